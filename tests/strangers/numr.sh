#!/bin/sh
# Runs the library tests of the crate numr with its feature `distributed`, and a program of four
# processes that uses its communicators, both on standins/nexar-rs in place of the crate nexar:
# tests/strangers/numr.sh [BUILD]
#
# cargo fetches the source of numr, which is kept unchanged below BUILD/strangers. A workspace there
# has numr as a member and patches the crate nexar. Versions of other crates are those of numr's own
# Cargo.lock. The exit code is 0, or 1 if something failed, or 77 if nothing could be run.
set -eu

build=${1:-build}
VERSION=0.5.2
# Building takes minutes on two processors, running takes seconds.
BUILD_SECONDS=3600 RUN_SECONDS=300

root=$(cd "$(dirname "$0")/../.." && pwd)

skip() {
    echo "skipped: $*"
    exit 77
}

fail() {
    echo "$1"
    exit 1
}

first_error() { sed -n 's/^error: //p' "$log" | head -1; }

[ -x "$build/bin/nexar-run" ] || skip "$build has no nexar-run; run make build"
command -v cargo >/dev/null || skip "cargo is not installed"
build=$(cd "$build" && pwd)
home=$build/strangers/numr source=$build/strangers/numr/numr-$VERSION
log=$home/log
mkdir -p "$home/fetch/src" "$home/client/src"

# package <name> <line of the dependency on numr>
package() {
    printf '[package]\nname = "%s"\nversion = "0.0.0"\nedition = "2024"\n' "$1"
    printf '[dependencies]\nnumr = { version = "=%s", %s }\n' "$VERSION" "$2"
}

# Copies the source from cargo's cache.
fetch() {
    { package fetch 'default-features = false' && echo '[workspace]'; } >"$home/fetch/Cargo.toml"
    : >"$home/fetch/src/lib.rs"
    set -- timeout "$BUILD_SECONDS" cargo metadata --format-version 1 \
        --manifest-path "$home/fetch/Cargo.toml"
    "$@" --offline >"$home/metadata" 2>/dev/null || "$@" >"$home/metadata" 2>"$log" ||
        skip "cargo cannot fetch numr $VERSION, is crates.io reachable? $(first_error)"
    manifest=$(grep -o '"manifest_path":"[^"]*/numr-[^"]*/Cargo.toml"' "$home/metadata" |
        head -1 | cut -d '"' -f 4)
    rm -rf "$source" "$home/Cargo.lock"
    cp -R "$(dirname "$manifest")" "$source.part"
    mv "$source.part" "$source"
}

rm -rf "$source.part"
[ -e "$source/Cargo.toml" ] || fetch

{
    printf '[workspace]\nresolver = "3"\nmembers = ["client", "numr-%s"]\n' "$VERSION"
    # Line tables suffice for backtraces and build faster.
    printf '[profile.dev]\ndebug = "line-tables-only"\n'
    printf '[profile.dev.package.nexar-capi]\nopt-level = 2\n'
    printf '[patch.crates-io]\nnexar = { path = "%s/standins/nexar-rs" }\n' "$root"
    printf 'numr = { path = "numr-%s" }\n' "$VERSION"
} >"$home/Cargo.toml"
{ package client 'features = ["distributed"]' && echo 'nexar = "0.1"'; } >"$home/client/Cargo.toml"
cp "$root/tests/strangers/numr_client.rs" "$home/client/src/main.rs"

# Works from cargo's cache if possible, else fetches the dependencies.
in_workspace() {
    action=$1
    shift
    set -- timeout "$BUILD_SECONDS" cargo "$action" --manifest-path "$home/Cargo.toml" "$@"
    "$@" --offline >"$home/output" 2>"$log" || "$@" >"$home/output" 2>"$log" || {
        # cargo's messages without a network, and with --offline.
        grep -q 'failed to \(download\|get\|fetch\)\|no matching package\|--offline' "$log" &&
            skip "cargo cannot fetch what numr $VERSION is built with, is crates.io reachable?" \
                "$(first_error)"
        cat "$log"
        fail "cargo $action failed for numr $VERSION"
    }
}

# numr's own Cargo.lock names the published nexar; without the update cargo would keep to it.
[ -e "$home/Cargo.lock" ] || {
    cp "$source/Cargo.lock" "$home/Cargo.lock"
    in_workspace update --package nexar
}
in_workspace test --package numr --lib --features distributed --no-run --message-format=json
tests=$(sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' "$home/output" | tail -1)
grep -q '"package_id":"[^"]*/standins/nexar-rs#' "$home/output" ||
    fail "numr $VERSION was not built with standins/nexar-rs"
in_workspace build --package client --message-format=json
client=$(sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' "$home/output" | tail -1)

unset RUST_BACKTRACE
export NEXAR_OP_TIMEOUT_MS="${NEXAR_OP_TIMEOUT_MS:-60000}"
(cd "$source" && timeout "$RUN_SECONDS" "$tests") >"$log" 2>&1 || {
    tail -40 "$log"
    fail "the tests of numr $VERSION failed"
}
nexar=$(grep -c '^test runtime::communicator::nexar.* ok$' "$log" || true)
[ "$nexar" -gt 0 ] || fail "no test of numr $VERSION used the crate nexar"
echo "numr $VERSION, library tests: $(sed -n 's/^test result: ok. \(.*\) measured.*/\1/p' "$log")" \
    "measured; $nexar of them of its nexar communicator"

for shm in 0 1; do
    case $shm in 0) over=memory ;; *) over=QUIC ;; esac
    NEXAR_SHM_DISABLE=$shm timeout "$RUN_SECONDS" "$build/bin/nexar-run" -n 4 "$client" \
        >"$log" 2>&1 || {
        tail -40 "$log"
        fail "the program that uses numr's communicators failed over $over"
    }
    right=$(grep -c 'all results are right' "$log" || true)
    [ "$right" = 4 ] || fail "$right of 4 processes over $over reported that all results are right"
    echo "numr $VERSION, communicators between processes over $over: $right of 4 processes right"
done
