#!/bin/sh
# Runs the NCCL tests of the crate cudarc, unchanged, on libnccl.so.2 and the fake CUDA driver of
# the build tree: tests/strangers/cudarc.sh [BUILD [REPETITIONS]]
#
# cargo fetches the source of the version in Cargo.lock, which is kept below BUILD/strangers. With 2
# and with 4 devices, each test runs in a process of its own, because much is initialised once per
# process; then all of them run in one process, one after another. They use the same streams of the
# same devices: run concurrently, two tests could enqueue their collectives in different orders on
# two devices, which NCCL does not allow. The exit code is 0, or 1 if a run failed, or 77 if nothing
# could be run.
set -eu

build=${1:-build} repetitions=${2:-10}
# A run takes less than a second. The fake driver reports a call that blocks longer than STALL_MS.
RUN_SECONDS=60 BUILD_SECONDS=1200 STALL_MS=5000
FEATURES=std,driver,nccl,dynamic-loading,cuda-12040

root=$(cd "$(dirname "$0")/../.." && pwd)

skip() {
    echo "skipped: $1"
    exit 77
}

first_error() { sed -n 's/^error: //p' "$log" | head -1; }

[ -d "$build" ] || skip "there is no build tree $build; run make build"
build=$(cd "$build" && pwd)
driver=$build/capi-tests/cuda/driver nccl=$build/lib/nexar
[ -e "$driver/libcuda.so.1" ] || skip "$build has no fake libcuda.so.1; run make build"
[ -e "$nccl/libnccl.so.2" ] || skip "$build has no libnccl.so.2; run make build"
command -v cargo >/dev/null || skip "cargo is not installed"

version=$(sed -n '/^name = "cudarc"$/{n;s/^version = "\(.*\)"$/\1/p;}' "$root/Cargo.lock")
home=$build/strangers/cudarc source=$build/strangers/cudarc/cudarc-$version
log=$home/log
mkdir -p "$home/fetch/src"

cargo_metadata() {
    timeout "$BUILD_SECONDS" cargo metadata --format-version 1 \
        --manifest-path "$home/fetch/Cargo.toml" "$@"
}

# Copies the source from cargo's cache, because the tests of a dependency cannot be built in place.
fetch() {
    printf '[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2021"\n[workspace]\n' \
        >"$home/fetch/Cargo.toml"
    printf '[dependencies.cudarc]\nversion = "=%s"\ndefault-features = false\nfeatures = ["%s"]\n' \
        "$version" "$(echo "$FEATURES" | sed 's/,/", "/g')" >>"$home/fetch/Cargo.toml"
    : >"$home/fetch/src/lib.rs"
    cargo_metadata --offline >"$home/metadata" 2>/dev/null ||
        cargo_metadata >"$home/metadata" 2>"$log" ||
        skip "cargo cannot fetch cudarc $version: $(first_error)"
    manifest=$(grep -o '"manifest_path":"[^"]*/cudarc-[^"]*/Cargo.toml"' "$home/metadata" |
        head -1 | cut -d '"' -f 4)
    rm -rf "$source"
    cp -R "$(dirname "$manifest")" "$source"
    # The copy is below the workspace of nexar, but is no member of it.
    printf '\n[workspace]\n' >>"$source/Cargo.toml"
}

[ -e "$source/Cargo.toml" ] || fetch

cargo_test() {
    timeout "$BUILD_SECONDS" cargo test --manifest-path "$source/Cargo.toml" \
        --target-dir "$home/target" --lib --no-default-features --features "$FEATURES" \
        --no-run --message-format=json "$@"
}

# Builds from cargo's cache if possible, else fetches the dependencies.
cargo_test --offline >"$home/built" 2>"$log" || cargo_test >"$home/built" 2>"$log" || {
    grep -q 'failed to download\|failed to get\|could not resolve' "$log" &&
        skip "cargo cannot fetch what cudarc $version is built with: $(first_error)"
    cat "$log"
    echo "cudarc $version could not be built"
    exit 1
}
tests=$(sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' "$home/built" | tail -1)

unset NEXAR_FAKE_DEVICES RUST_BACKTRACE
export LD_LIBRARY_PATH="$driver:$nccl" FAKECUDA_STALL_MS="${FAKECUDA_STALL_MS:-$STALL_MS}"
export NEXAR_DEBUG="${NEXAR_DEBUG:-WARN}"
names=$("$tests" --list nccl:: | sed -n 's/: test$//p')
[ -n "$names" ] || {
    echo "cudarc $version has no NCCL tests"
    exit 1
}

passed=0 failed=0

# run <devices> <label> <arguments of the test program>
run() {
    devices=$1 label=$2 code=0
    shift 2
    FAKECUDA_DEVICES=$devices timeout "$RUN_SECONDS" "$tests" --test-threads=1 "$@" >"$log" 2>&1 ||
        code=$?
    if [ "$code" = 0 ]; then
        passed=$((passed + 1))
        passed_here=$((passed_here + 1))
        return
    fi
    failed=$((failed + 1))
    # Only the first failure prints its output.
    [ "$round" = "$passed_here" ] || return 0
    echo "-- $label, $devices devices: exit code $code"
    [ "$code" != 124 ] || echo "killed after $RUN_SECONDS s"
    tail -25 "$log"
}

# repeat <devices> <label> <arguments of the test program>
repeat() {
    passed_here=0 round=0
    while [ "$round" -lt "$repetitions" ]; do
        run "$@"
        round=$((round + 1))
    done
    echo "cudarc $version, $1 devices, $2: $passed_here of $repetitions"
}

for devices in 2 4; do
    for name in $names; do
        repeat "$devices" "$name" --exact "$name"
    done
    repeat "$devices" "all in one process" nccl::
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
