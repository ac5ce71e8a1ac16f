#!/bin/sh
# nexar.pc names the system libraries that libnexar.a needs as rustc lists them. A static link alone
# would not tell: recent C libraries have most of them built in.
#
# usage: native_libs.sh CARGO NEXAR_PC, in the source directory
set -eu

# Of the stand-in, a static library too, which has nothing but nexar inside: nexar itself would have to
# be compiled for this.
needed=$("$1" rustc --quiet --color never --locked --release --package nexar-nccl --lib \
    --crate-type staticlib -- -C lto=off --print native-static-libs 2>&1 |
    sed -n 's/^note: native-static-libs: //p')
named=$(sed -n 's/^Libs.private: //p' "$2")

if [ "$needed" != "$named" ]; then
    echo "rustc needs:    $needed"
    echo "nexar.pc names: $named (native_libs in cmake/library.cmake)"
    exit 1
fi
