#!/bin/sh
# Compares the answers of NVIDIA's libnccl.so.2 and of the stand-in without a GPU. differences.txt
# has the only differences allowed, with reasons.
set -eu

python=$1 answers=$2 library=$3 cache=$4
here=$(dirname "$0")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

"$python" "$here/clients/fetch.py" nvidia-nccl-cu12==2.32.3 "$cache/nccl-library" \
    'nvidia/nccl/lib/libnccl.so.2'
"$answers" "$cache/nccl-library/nvidia/nccl/lib/libnccl.so.2" >"$scratch/theirs"
"$answers" "$library" >"$scratch/ours"
[ "$(wc -l <"$scratch/theirs")" -eq "$(wc -l <"$scratch/ours")" ] || {
    echo "the numbers of answers differ"
    exit 1
}
paste -d '\t' "$scratch/theirs" "$scratch/ours" |
    awk -F '\t' '$1 != $2 { sub(/.*: /, "", $2); print $1 " from NCCL, " $2 " from nexar" }' \
        >"$scratch/found"
grep -v '^#' "$here/differences.txt" >"$scratch/listed"
if ! diff "$scratch/listed" "$scratch/found"; then
    echo "'<' is listed but not found, '>' is found but not listed"
    exit 1
fi
echo "$(wc -l <"$scratch/ours") answers, $(wc -l <"$scratch/found") differences, all listed"
