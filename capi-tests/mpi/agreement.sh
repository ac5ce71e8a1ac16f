#!/bin/sh
# Runs the same operations with Open MPI and with nexar, and compares the results. Without Open MPI
# the test is skipped; `make test-c` installs it if it can.
set -eu

ranks=$1 nexar_run=$2 with_nexar=$3 compare=$4
here=$(cd "$(dirname "$0")" && pwd)

skip() {
    echo "skipped: $*"
    exit 77
}

command -v mpicc >/dev/null && command -v mpirun >/dev/null ||
    skip "Open MPI is not installed (packages openmpi-bin and libopenmpi-dev)"
version=$(mpirun --version 2>/dev/null | sed -n 's/.*(Open MPI) //p')
[ -n "$version" ] || skip "mpirun is not Open MPI's"
# The component for shared memory has another name since version 5.
case $version in
[1-4].*) memory=vader ;;
*) memory=sm ;;
esac

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mpicc -std=c11 -O1 -Wall -Wextra -Werror -o "$scratch/with_mpi" "$here/with_mpi.c" -lm

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# Uses only this machine. Waiting ranks yield their processors.
timeout 100 mpirun --oversubscribe -n "$ranks" --mca mpi_yield_when_idle 1 \
    --mca btl "self,$memory,tcp" --mca btl_vader_single_copy_mechanism none \
    --mca btl_tcp_if_include lo --mca oob_tcp_if_include lo \
    "$scratch/with_mpi" "$scratch"
"$nexar_run" -n "$ranks" --timeout 100 "$with_nexar" "$scratch"
"$compare" "$scratch" "$ranks"
