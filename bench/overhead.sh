#!/bin/sh
# The cost of a call without communication: bench/overhead.sh. After make build.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
program=$root/build/bench-target/overhead
mkdir -p "$(dirname "$program")"
"${CC:-cc}" -O2 -Wall -Wextra -o "$program" "$root/bench/overhead.c" -I"$root/include" \
    "$root/build/lib/libnexar.so" "-Wl,-rpath,$root/build/lib"
exec "$program"
