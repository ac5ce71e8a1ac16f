#!/bin/sh
# Messages between two ranks: bench/pingpong.sh. After make build.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
program=$root/build/bench-target/pingpong
mkdir -p "$(dirname "$program")"
"${CC:-cc}" -O2 -Wall -Wextra -o "$program" "$root/bench/pingpong.c" -I"$root/include" \
    "$root/build/lib/libnexar.so" "-Wl,-rpath,$root/build/lib"
exec "$root/build/bin/nexar-run" -n 2 "$program"
