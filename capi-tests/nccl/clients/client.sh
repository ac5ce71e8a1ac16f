#!/bin/sh
# Runs a real client of NCCL, fetched from the package index, with our libnccl.so.2:
#
#   client.sh CLIENT PYTHON NEXAR_RUN LIBRARY_DIRECTORY CACHE_DIRECTORY SIZE
#
# CLIENT is vllm_calls or cupy_calls (SIZE processes) or cupy_init_all (one process of SIZE ranks).
# Where the index cannot be reached the exit code is 77, that of a skipped test.
set -eu

client=$1 python=$2 nexar_run=$3 libraries=$4 cache=$5 size=$6
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1

# Of what the clients need there are no wheels for older ones.
if [ "$("$python" -c 'import sys; print(sys.version_info < (3, 11))')" = True ]; then
    echo "skipped: $client needs Python 3.11"
    exit 77
fi

options= path=
# fetch <requirement> <pattern>...: into a directory of its own, put on the Python path.
fetch() {
    requirement=$1 directory=$cache/$1
    shift
    "$python" "$here/fetch.py" $options "$requirement" "$directory" "$@"
    path=$path${path:+:}$directory
}

case $client in
vllm_calls)
    # One file of Python, which need not fit this one.
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
# Buffers of 64 MB come and go: their memory is kept, because to get it anew takes most of the time.
export MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=4294967296

if [ "$client" = cupy_init_all ]; then
    NEXAR_FAKE_DEVICES=$size timeout 600 \
        "$python" "$here/$client.py" "$libraries/libnccl.so.2" "$size"
else
    "$nexar_run" -n "$size" --timeout 600 \
        "$python" "$here/$client.py" "$libraries/libnccl.so.2" "$scratch"
fi
