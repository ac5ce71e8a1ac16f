#!/bin/sh
# Bucketed all-reduce and one of the same size: bench/buckets.sh [ranks]. After make build.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
program=$root/build/bench-target/buckets
mkdir -p "$(dirname "$program")"
"${CC:-cc}" -O2 -Wall -Wextra -o "$program" "$root/bench/buckets.c" -I"$root/include" \
    "$root/build/lib/libnexar.so" "-Wl,-rpath,$root/build/lib"
exec "$root/build/bin/nexar-run" -n "${1:-2}" "$program"
