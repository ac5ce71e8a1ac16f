#!/bin/sh
# The overhead of the stand-in for NCCL over nexar's calls: bench/standin.sh. After make build.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
program=$root/build/bench-target/standin
mkdir -p "$(dirname "$program")"
"${CC:-cc}" -O2 -Wall -Wextra -o "$program" "$root/bench/standin.c" -I"$root/include" \
    "$root/build/lib/libnexar.so" "$root/build/lib/nexar/libnccl.so.2" \
    "-Wl,-rpath,$root/build/lib:$root/build/lib/nexar"
"$program"
# Times vary between pairs of processes: prints the median of many pairs.
for _ in 1 2 3 4 5 6 7 8 9 10 11; do
    "$root/build/bin/nexar-run" -n 2 "$program"
done | sed 's/.*ratio //' | sort -n | tr '\n' ' ' |
    awk '{ print "2 ranks, ratios of 11 pairs:", $0 ", median", $6 }'
