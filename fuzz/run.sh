#!/bin/sh
# Runs fuzz targets one after another: run.sh SECONDS [TARGET...]. Runs all targets if none is
# named, and only their corpora if SECONDS is 0. Prints a line for each target, and stops at the
# first finding. Results are kept below build/fuzz: inputs with new coverage in found/, findings in
# findings/.
set -eu

seconds=$1
shift
root=$(cd "$(dirname "$0")/.." && pwd)
build=$root/build/fuzz
cd "$root/fuzz"
[ $# -gt 0 ] || set -- $(basename -s .rs targets/*.rs)

command -v rustup >/dev/null || {
    echo "make fuzz needs a nightly compiler, and rustup to get it: please install rustup." >&2
    exit 1
}
rustup toolchain list | grep -q '^nightly' || rustup toolchain install nightly --profile minimal
CXX=$("$root/cmake/ensure-tool.sh" c++)
export CXX

# With --target, build scripts and macros are not instrumented.
host=$(rustup run nightly rustc -vV | sed -n 's/^host: //p')
coverage=-sanitizer-coverage
export RUSTFLAGS="--cfg=fuzzing -Zsanitizer=address -Cpasses=sancov-module \
    -Cllvm-args=$coverage-level=4 -Cllvm-args=$coverage-inline-8bit-counters \
    -Cllvm-args=$coverage-pc-table -Cllvm-args=$coverage-trace-compares"
rustup run nightly cargo build --release --locked --quiet --target "$host" --target-dir "$build" \
    --jobs "${JOBS:-2}"

# Leak detection fails where ptrace is not allowed; -rss_limit_mb bounds leaks instead.
export ASAN_OPTIONS=detect_leaks=0
limit=-max_total_time=$seconds
[ "$seconds" -gt 0 ] || limit=-runs=0

line="%-14s %12s %8s %9s %7s  %s\n"
printf "$line" target executions per_s coverage corpus findings
for target; do
    found=$build/found/$target findings=$build/findings/$target log=$build/$target.log
    mkdir -p "$found" "$findings"
    failed=0
    "$build/$host/release/$target" "$found" "corpus/$target" "$limit" \
        -artifact_prefix="$findings/" -malloc_limit_mb=8 -rss_limit_mb=2048 -timeout=60 \
        -len_control=0 -detect_leaks=0 -print_final_stats=1 \
        >"$log" 2>&1 || failed=1
    last() { sed -n "s/$1/\\1/p" "$log" | tail -n 1; }
    executions=$(last 'stat::number_of_executed_units: *\([0-9]*\).*')
    per_second=$(last 'stat::average_exec_per_sec: *\([0-9]*\).*')
    coverage=$(last '.* cov: \([0-9]*\) .*')
    corpus=$(last '.* corp: \([0-9]*\).*')
    printf "$line" "$target" "${executions:-?}" "${per_second:-?}" "${coverage:-?}" "${corpus:-?}" \
        "$([ $failed = 0 ] && echo none || echo ONE)"
    if [ $failed = 1 ]; then
        input=$(last '.*Test unit written to \(.*\)')
        tail -n 40 "$log" >&2
        echo "The input is ${input:-not known}, its log ${log}." >&2
        exit 1
    fi
done
