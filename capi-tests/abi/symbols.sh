#!/bin/sh
# The library exports exactly the functions that the header declares, and no symbol of Rust.
set -eu

nm=$1 library=$2 header=$3
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# A declaration starts in the first column with its type; comments start with a blank or a slash.
sed -n 's/^[a-z].*[ *]\(nexar[A-Za-z0-9]*\)(.*/\1/p' "$header" | sort >"$scratch/declared"
"$nm" -D --defined-only "$library" | awk '{print $3}' | sort >"$scratch/exported"

[ -s "$scratch/declared" ] || { echo "no function found in $header"; exit 1; }
if ! diff "$scratch/declared" "$scratch/exported"; then
    echo "'<' is declared but not exported, '>' is exported but not declared"
    exit 1
fi
