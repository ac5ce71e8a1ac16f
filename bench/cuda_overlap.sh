#!/bin/sh
# Overlap of copies and network in an all-reduce of device memory, over QUIC between two processes,
# with the fake CUDA driver: bench/cuda_overlap.sh [megabytes per second of a copy]. After make
# build.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
program=$root/build/bench-target/cuda_overlap
driver=$root/build/capi-tests/cuda/driver
mkdir -p "$(dirname "$program")"
"${CC:-cc}" -std=gnu11 -O2 -Wall -Wextra -o "$program" "$root/bench/cuda_overlap.c" \
    -I"$root/include" -I"$root/capi-tests/cuda" "$root/build/lib/libnexar.so" \
    "$driver/libcuda.so.1" \
    "-Wl,-rpath,$root/build/lib:$driver"
export NEXAR_SHM_DISABLE=1 FAKECUDA_COPY_MBPS="${1:-500}"
exec "$root/build/bin/nexar-run" -n 2 "$program"
