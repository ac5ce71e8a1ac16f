#!/bin/sh
# A job of three ranks of which one hangs is ended by the watchdog, and names the case.
#
#   hanging_rank.sh NEXAR_RUN PROGRAM
set -eu

run=$1 program=$2
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# hangs CASE WHERE: the case hangs, and a rank prints where. nexar-run starts ranks without fork of
# a watched process, so they wait FIRST_WAITS_S = 2 s longer.
hangs() {
    code=0
    CHECK_PATIENCE_S=2 CHECK_CASES=$1 timeout 100 "$run" -n 3 --grace 1 "$program" \
        >"$log" 2>&1 || code=$?
    cat "$log"
    [ "$code" = 3 ] || { echo "the job ended with $code, not 3"; exit 1; }
    grep -q "no progress for 4 s in $2\$" "$log" || { echo "no rank reports a hang in $2"; exit 1; }
}

hangs one_rank_hangs one_rank_hangs
hangs one_rank_hangs_at_its_end 'the end'
