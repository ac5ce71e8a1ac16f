#!/bin/sh
# libnexar and libnccl of one source have the same build fingerprint, so their ranks can share a
# communicator.
set -eu

build_of() {
    LC_ALL=C grep -aoE 'nexar build [0-9A-Za-z.+-]+/[0-9a-f]{16}' "$1" | sort -u
}

first=$(build_of "$1")
second=$(build_of "$2")
[ "$(echo "$first" | wc -l)" -eq 1 ] && [ -n "$first" ] || { echo "$1 says: $first"; exit 1; }
[ "$first" = "$second" ] || { echo "$1 is $first, $2 is $second"; exit 1; }
