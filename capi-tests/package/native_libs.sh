#!/bin/sh
# nexar.pc names the system libraries that libnexar.a needs as rustc lists them. A static link alone
# would not tell: recent C libraries have most of them built in.
#
# usage: native_libs.sh CARGO NEXAR_PC, in the source directory
set -eu

# The development profile, as its dependencies are there after `cargo test`.
needed=$("$1" rustc --quiet --color never --locked --lib --crate-type staticlib \
    -- --print native-static-libs 2>&1 | sed -n 's/^note: native-static-libs: //p')
named=$(sed -n 's/^Libs.private: //p' "$2")

if [ "$needed" != "$named" ]; then
    echo "rustc needs:    $needed"
    echo "nexar.pc names: $named (native_libs in cmake/install.cmake)"
    exit 1
fi
