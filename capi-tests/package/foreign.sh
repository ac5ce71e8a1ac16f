#!/bin/sh
# Installs nexar, then builds and runs the project in foreign/ with pkg-config, with the static
# library and with find_package; in C and, where CXX is set, in C++. Repeats that after moving the
# installed tree.
#
# usage: foreign.sh BUILD LIBDIR VERSION, with CMAKE PKG_CONFIG READELF CC CXX in the environment
set -eu

build=$1 libdir=$2 version=$3
project=$(dirname "$0")/foreign
# The caller's environment must not lead to another installed nexar.
unset DESTDIR LD_LIBRARY_PATH PKG_CONFIG_PATH CMAKE_PREFIX_PATH
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

fail() {
    echo "FAILED: $*"
    exit 1
}

# step WHAT COMMAND...: runs the command and prints its output only if it fails.
step() {
    what=$1
    shift
    echo "$what"
    "$@" >"$scratch/log" 2>&1 || { cat "$scratch/log"; fail "$what"; }
}

# from_pkg_config COMPILER SOURCE
from_pkg_config() {
    # shellcheck disable=SC2046 # flags are to be split into words
    step "$2 by pkg-config" "$1" "$2" -o shared \
        $("$PKG_CONFIG" --cflags --libs nexar) -Wl,-rpath,"$prefix/$libdir"
    step "$2 runs" timeout 110 ./shared

    # shellcheck disable=SC2046
    step "$2 with libnexar.a" "$1" "$2" -o static \
        $("$PKG_CONFIG" --static --cflags --libs nexar | sed 's/-lnexar/-l:libnexar.a/')
    ! "$READELF" -d static | grep -q libnexar || fail "$2 with libnexar.a needs libnexar.so"
    step "$2 with libnexar.a runs" timeout 110 ./static
}

# configure VERSION: the CMake project, asking for that version of nexar
configure() {
    rm -rf cmake-build
    "$CMAKE" -S . -B cmake-build -DCMAKE_PREFIX_PATH="$prefix" -DWANTED="$1" \
        -DCMAKE_C_COMPILER="$CC" -DCMAKE_CXX_COMPILER="$CXX"
}

from_find_package() {
    step "find_package(nexar $version)" configure "$version"
    step "CMake project builds" "$CMAKE" --build cmake-build
    step "C program of CMake runs" timeout 110 cmake-build/c_program
    [ -z "$CXX" ] || step "C++ program of CMake runs" timeout 110 cmake-build/cxx_program
}

use_from() {
    prefix=$1
    echo "== installed in $prefix"
    # LIBDIR replaces the system's directories; PATH would only precede them.
    export PKG_CONFIG_LIBDIR="$prefix/$libdir/pkgconfig"
    from_pkg_config "$CC" program.c
    [ -z "$CXX" ] || from_pkg_config "$CXX" program.cc
    from_find_package
}

installed=$build/package-test
rm -rf "$installed"
step "install" "$CMAKE" --install "$build" --prefix "$installed"
for name in libnexar.so "libnexar.so.${version%%.*}" "libnexar.so.$version" libnexar.a; do
    [ -e "$installed/$libdir/$name" ] || fail "$name was not installed"
done

step "nexar-run is installed" "$installed/bin/nexar-run" -n 2 --timeout 110 true

cp -R "$project" "$scratch/project"
cd "$scratch/project"
use_from "$installed"
mv "$installed" "$scratch/moved"
use_from "$scratch/moved"

! configure 99.0 >/dev/null 2>&1 || fail "find_package(nexar 99.0) accepted $version"
