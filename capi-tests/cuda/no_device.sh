#!/bin/sh
# NVIDIA's own libcuda.so.1 on a host without a device: everything works as without CUDA. The
# library is that of Debian's package libcuda1, if a configured source has it; the script does not
# install it, but extracts it below the build tree. The programs run as an unprivileged user,
# because as root the library creates device nodes.
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
    command -v setpriv >/dev/null || skip "there is no setpriv to drop the privileges of root"
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

# Copies to where that user can read them, wherever the build tree is.
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
        echo "$name has not loaded the driver:"
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
    echo "device nodes were created: $(nodes)"
    exit 1
}
