#!/bin/sh
# Runs a real client of NCCL, fetched from the Python package index, with the stand-in:
#
#   client.sh CLIENT PYTHON NEXAR_RUN LIBRARY_DIRECTORY CACHE_DIRECTORY SIZE
#
# CLIENT is vllm_calls or cupy_calls (SIZE processes) or cupy_init_all (one process of SIZE ranks).
# Where the index cannot be reached the exit code is 77, that of a skipped test.
set -eu

client=$1 python=$2 nexar_run=$3 libraries=$4 cache=$5 size=$6
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1

# The clients' packages have no wheels for older versions.
if [ "$("$python" -c 'import sys; print(sys.version_info < (3, 11))')" = True ]; then
    echo "skipped: $client needs Python 3.11"
    exit 77
fi

options= path=
# fetch <requirement> <pattern>...: fetches into its own directory and adds that to the Python path.
fetch() {
    requirement=$1 directory=$cache/$1
    shift
    "$python" "$here/fetch.py" $options "$requirement" "$directory" "$@"
    path=$path${path:+:}$directory
}

case $client in
vllm_calls)
    # A single source file, which works with any version.
    options='--python-version 3.12'
    fetch vllm==0.32.0 vllm/distributed/device_communicators/pynccl_wrapper.py
    ;;
cupy_*)
    backends=cupy_backends/cuda
    fetch cupy-cuda12x==14.2.0 cupy_backends/__init__.py "$backends/__init__.py" \
        "$backends/_softlink.*.so" "$backends/api/__init__.py" "$backends/api/_runtime_enum.*.so" \
        "$backends/api/runtime.*.so" "$backends/libs/__init__.py" "$backends/libs/nccl.*.so"
    fetch cuda-pathfinder==1.8.6 'cuda/pathfinder/*.py'
    ;;
*)
    echo "client.sh: there is no client $client" >&2
    exit 2
    ;;
esac

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export PYTHONPATH="$path" LD_LIBRARY_PATH="$libraries"
# Keeps freed memory, because mapping buffers of 64 MB again takes most of the time.
export MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=4294967296

if [ "$client" = cupy_init_all ]; then
    NEXAR_FAKE_DEVICES=$size timeout 600 \
        "$python" "$here/$client.py" "$libraries/libnccl.so.2" "$size"
else
    "$nexar_run" -n "$size" --timeout 600 \
        "$python" "$here/$client.py" "$libraries/libnccl.so.2" "$scratch"
fi
