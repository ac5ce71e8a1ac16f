#!/bin/sh
# Compiles device_program.c with NVIDIA's own nccl.h, links it with the stand-in and the fake CUDA
# driver, and runs it.
set -eu

python=$1 cc=$2 library_directory=$3 cache=$4 driver_directory=$5
here=$(dirname "$0")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

"$python" "$here/clients/fetch.py" nvidia-nccl-cu12==2.32.3 "$cache/nccl-header" \
    'nvidia/nccl/include/nccl.h'
"$cc" -std=gnu11 -Wall -Wextra -Werror -I "$here/.." -I "$here/cudart" \
    -I "$cache/nccl-header/nvidia/nccl/include" "$here/device_program.c" -o "$scratch/program" \
    -L "$library_directory" -L "$driver_directory" -lnccl -l:libcuda.so.1
LD_LIBRARY_PATH=$library_directory:$driver_directory FAKECUDA_DEVICES=3 FAKECUDA_LATENCY_US=50-500 \
    "$scratch/program"
