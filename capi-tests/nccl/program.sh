#!/bin/sh
# Compiles program.c with NVIDIA's own nccl.h, links it with the stand-in, and runs it: four
# processes, one of which is killed.
set -eu

python=$1 cc=$2 library_directory=$3 cache=$4
here=$(dirname "$0")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

"$python" "$here/clients/fetch.py" nvidia-nccl-cu12==2.32.3 "$cache/nccl-header" \
    'nvidia/nccl/include/nccl.h'
"$cc" -std=gnu11 -Wall -Wextra -Werror -I "$here/cudart" \
    -I "$cache/nccl-header/nvidia/nccl/include" "$here/program.c" "$here/cudart/cudart.c" \
    -o "$scratch/program" -L "$library_directory" -lnccl
LD_LIBRARY_PATH=$library_directory "$scratch/program" "$scratch/id"
