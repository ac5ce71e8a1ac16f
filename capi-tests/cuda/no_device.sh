#!/bin/sh
# NVIDIA's own libcuda.so.1 where there is no device: everything works as without CUDA. The library
# is that of the package libcuda1 of Debian and its kin, if a configured source has it; it is not
# installed, only kept below the build tree. It runs as a user without rights, since as root it
# makes device nodes by itself.
set -eu

cache=$1 run=$2 library=$3 gpu_check=$4
shift 4 # the rest are programs of the C tests

skip() {
    echo "skipped: $1"
    exit 77
}

nodes() { find /dev -maxdepth 1 -name 'nvidia*' | sort; }

[ -z "$(nodes)" ] || skip "there is a device, or a driver of one, on this host"
unprivileged=
if [ "$(id -u)" = 0 ]; then
    command -v setpriv >/dev/null || skip "there is no setpriv to give up the rights of root with"
    unprivileged="setpriv --reuid=65534 --regid=65534 --clear-groups"
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
chmod 755 "$scratch"

if ! [ -e "$cache/libcuda.so.1" ]; then
    command -v apt-get >/dev/null || skip "there is no apt-get here"
    mkdir -m 777 "$scratch/package"
    (cd "$scratch/package" && apt-get download -qq libcuda1 >/dev/null 2>&1) ||
        skip "no configured package source has libcuda1"
    dpkg-deb -x "$scratch"/package/libcuda1_*.deb "$scratch/package"
    mkdir -p "$cache"
    cp "$(find "$scratch/package" -name 'libcuda.so.[0-9]*.*' | head -1)" "$cache/libcuda.so.1"
fi

# Where that user can read it, wherever the build tree is.
for file in "$cache/libcuda.so.1" "$run" "$gpu_check" "$library"/libnexar.so.? "$@"; do
    cp "$file" "$scratch/"
done
mkdir -m 777 "$scratch/log"
cd "$scratch"
export LD_LIBRARY_PATH="$scratch"

for program; do
    name=$(basename "$program")
    echo "== $name, threads"
    NEXAR_DEBUG=INFO NEXAR_DEBUG_FILE="$scratch/log/$name" $unprivileged "./$name"
    grep -q 'CUDA is not available: there is no device' "log/$name" || {
        echo "$name has not met the driver:"
        cat "log/$name"
        exit 1
    }
    echo "== $name, two processes"
    $unprivileged ./nexar-run -n 2 "./$name"
done

echo "== gpu_check"
code=0
$unprivileged ./gpu_check || code=$?
[ "$code" = 77 ] || {
    echo "gpu_check ended with $code, not 77"
    exit 1
}
[ -z "$(nodes)" ] || {
    echo "device nodes have come into being: $(nodes)"
    exit 1
}
