#!/bin/sh
# libnccl.so.2 exports every function of NCCL and its profiling twin (pnccl*), nothing else, and no
# symbol versions. All symbols that PyTorch links are among them.
set -eu

nm=$1 readelf=$2 library=$3 names=$4 linked_by_torch=$5
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

{
    cat "$names"
    sed '/^ncclResetDebugInitInternal$/d; s/^/p/' "$names"
} | sort >"$scratch/expected"
[ "$(wc -l <"$names")" -eq 97 ] || { echo "$names has not 97 names"; exit 1; }
"$nm" -D --defined-only "$library" | awk '{print $3}' | sort >"$scratch/exported"
if ! diff "$scratch/expected" "$scratch/exported"; then
    echo "'<' is missing, '>' should not be exported"
    exit 1
fi
sort "$linked_by_torch" | comm -23 - "$scratch/exported" >"$scratch/missing"
if [ -s "$scratch/missing" ]; then
    echo "torch would not load without:"
    cat "$scratch/missing"
    exit 1
fi
if "$readelf" -dW "$library" | grep -q VERDEF; then
    echo "the symbols have versions; those of NCCL have none"
    exit 1
fi
