#!/bin/sh
# Builds the program in CUDA.md unchanged and runs it as two ranks, on the fake driver.
set -eu

cc=$1 run=$2 library=$3 driver=$4
here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

sed -n '/^```c$/,/^```$/p' "$root/CUDA.md" | sed '/^```/d' >"$scratch/example.c"
"$cc" -std=c99 -Wall -Wextra -Wpedantic -Werror -I"$here/toolkit" -I"$root/include" \
    "$scratch/example.c" -o "$scratch/example" -L"$library" -lnexar -L"$driver" -lcuda
LD_LIBRARY_PATH=$library:$driver "$run" -n 2 --timeout 100 "$scratch/example" |
    sort >"$scratch/output"
cat "$scratch/output"
printf '[0] 1048576 times 3\n[1] 1048576 times 3\n' | diff - "$scratch/output"
