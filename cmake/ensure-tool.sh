#!/bin/sh
# Prints the path of a build tool: an installed one that works, else one that apt-get (as root) or
# pip (into build/tools only) installs. Installers print to stderr, so that stdout has only the
# path. A library is found by its header.
set -eu

tool=$1
private=$(cd "$(dirname "$0")/.." && pwd)/build/tools

header=
case $tool in
cmake | ctest) package=cmake wheel=cmake ;;
pkg-config) package=pkg-config wheel=pkgconf ;;
c++) package=g++ wheel= ;;
mpicc | mpirun | *.openmpi) package="openmpi-bin libopenmpi-dev" wheel= ;;
*.mpich) package="mpich libmpich-dev" wheel= ;;
gloo) package=libgloo-dev wheel= header=/usr/include/gloo/allreduce.h ;;
*) package=$tool wheel= ;;
esac

# Runs the tool, because a Python version manager may leave stubs on PATH that only fail.
working() {
    if [ -n "$header" ]; then
        [ -e "$header" ] && echo "$header"
        return
    fi
    for path in "$(command -v "$tool")" "$private/bin/$tool"; do
        if "$path" --version >/dev/null 2>&1; then
            echo "$path"
            return
        fi
    done
    return 1
}

by_apt() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    echo "Installing $package with apt-get" >&2
    export DEBIAN_FRONTEND=noninteractive
    # The installation may succeed with a stale package list.
    apt-get update -qq >&2 || true
    # shellcheck disable=SC2086 # it may be several packages
    apt-get install -qq --no-install-recommends $package >&2
}

by_pip() {
    [ -n "$wheel" ] && command -v python3 >/dev/null || return 1
    echo "Installing $wheel with pip into $private" >&2
    python3 -m venv "$private" >&2 && "$private/bin/pip" install --quiet --retries 1 "$wheel" >&2
}

working || { by_apt && working; } || { by_pip && working; } || {
    echo "nexar needs $tool, which could not be installed: please install the package $package." >&2
    exit 1
}
