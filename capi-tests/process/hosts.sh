#!/bin/sh
# Runs the programs given as arguments on two ranks of two hosts, which are network namespaces
# joined by a veth pair: over IPv4 and IPv6, and with both ranks on one host over the loopback
# address of IPv6. Without root, which namespaces need, the test is skipped.
set -eu

skip() {
    echo "skipped: $*"
    exit 77
}

[ "$(id -u)" = 0 ] || skip "only root can create network namespaces"
command -v ip >/dev/null || skip "there is no ip command"
a=nexar-a-$$ b=nexar-b-$$
trap 'ip netns del $a 2>/dev/null || true; ip netns del $b 2>/dev/null || true' EXIT
ip netns add "$a" 2>/dev/null && ip netns add "$b" ||
    skip "network namespaces cannot be created here"
ip link add cable netns "$a" type veth peer name cable netns "$b"
for host in "$a 1" "$b 2"; do
    name=${host% *} number=${host#* }
    ip -n "$name" addr add "10.77.0.$number/24" dev cable
    ip -n "$name" addr add "fd77::$number/64" dev cable nodad
    ip -n "$name" link set cable up
    ip -n "$name" link set lo up
done

NEXAR_NRANKS=2
NEXAR_COMM_SECRET=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
export NEXAR_NRANKS NEXAR_COMM_SECRET NEXAR_COMM_ID

# ranks PROGRAM HOST0 HOST1 ADDRESS
ranks() {
    NEXAR_COMM_ID=$4
    NEXAR_RANK=1 ip netns exec "$3" "$1" >"$log" 2>&1 &
    other=$!
    NEXAR_RANK=0 ip netns exec "$2" "$1" || { cat "$log"; exit 1; }
    wait $other || { cat "$log"; exit 1; }
}

log=$(mktemp)
for program in "$@"; do
    echo "== ${program##*/}"
    ranks "$program" "$a" "$b" 10.77.0.1:7000
    ranks "$program" "$a" "$b" "[fd77::1]:7000"
    ranks "$program" "$a" "$a" "[::1]:7000"
done
rm -f "$log"
