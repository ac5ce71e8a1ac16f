#!/bin/sh
# nexar.pc names the system libraries that rustc lists for libnexar.a. Linking statically would not
# find a missing one, because recent C libraries contain most of them.
#
# usage: native_libs.sh CARGO NEXAR_PC, in the source directory
set -eu

# Asks for the stand-in, which needs the same libraries: for nexar itself the whole library would be
# compiled again.
needed=$("$1" rustc --quiet --color never --locked --release --package nexar-nccl --lib \
    --crate-type staticlib -- -C lto=off --print native-static-libs 2>&1 |
    sed -n 's/^note: native-static-libs: //p')
named=$(sed -n 's/^Libs.private: //p' "$2")

if [ "$needed" != "$named" ]; then
    echo "rustc needs:    $needed"
    echo "nexar.pc names: $named (native_libs in cmake/library.cmake)"
    exit 1
fi
