#!/usr/bin/env python3
"""Lets ranks run random programs for half an hour over links that get better and worse.

    soak.py STRESS --hostile PROGRAM [--minutes N] [--seed N]

STRESS is the program that draws and checks them. Between each two ranks stands a relay that loses,
doubles, reorders, changes and delays datagrams. Prints a row like those of fault.py: how much the memory
of each rank has grown since it was warm. The exit code is 1 if that is too much, a result was wrong, a
call failed, or the ranks did not end in time.
"""

import argparse
import random
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from table import Table
from world import Failed, World, free_port

RANKS = 4
WARM_UP = 5 * 60  # seconds, or a third of the time
GROWTH_KIB = 4096
LATE = 60  # seconds that ranks may take to end


def resident_kib(process):
    with open(f"/proc/{process}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


def samples(world, seconds):
    """Memory of each rank once a second, until the ranks have ended."""
    began, seen = time.monotonic(), [[] for _ in range(RANKS)]
    while any(rank.poll() is None for rank in world.ranks):
        if time.monotonic() - began > seconds + LATE:
            raise Failed(f"the ranks have not ended {LATE} s after their time")
        for rank, process in enumerate(world.ranks):
            try:
                seen[rank].append((time.monotonic() - began, resident_kib(process.pid)))
            except (FileNotFoundError, StopIteration):
                pass  # it has ended
        time.sleep(1)
    return seen


def grown(memory, warm_up):
    """Between the first fifth of the time after the warm-up and the last one: programs come and go, so
    memory goes up and down."""
    warm = [kib for moment, kib in memory if moment >= warm_up]
    part = max(1, len(warm) // 5)
    return median(warm[-part:]) - median(warm[:part])


def soak(options):
    seconds = int(options.minutes * 60)
    ports = [free_port() for _ in range(RANKS)]
    targets = [f"127.0.0.1:{port}" for port in ports]
    relay = subprocess.Popen(
        [options.hostile, "relay", str(options.seed), *targets],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        addresses = relay.stdout.readline().split()
        own = [
            {"NEXAR_ADVERTISE_ADDR": address, "NEXAR_PORT_RANGE": f"{port}-{port}"}
            for address, port in zip(addresses, ports)
        ]
        command = [options.stress, seconds, options.seed]
        settings = {"NEXAR_COMM_ID": targets[0]}
        with World(RANKS, command, settings=settings, own=own) as world:
            memory = samples(world, seconds)
            for rank, process in enumerate(world.ranks):
                said = process.stdout.read().strip()
                if process.returncode != 0:
                    raise Failed(f"rank {rank} ended with {process.returncode}: {said}")
                if rank == 0:
                    print(f"| {said.splitlines()[0]} |", flush=True)
        relay.stdin.close()
        relayed = relay.stdout.readline().strip()
        print(f"| {relayed} |", flush=True)
        if not int(relayed.split()[0]):
            raise Failed("the relay was not on the way")
        warm_up = min(WARM_UP, seconds / 3)
        yield [max(0, grown(rank, warm_up)) for rank in memory]
    finally:
        relay.stdin.close()
        relay.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stress", type=Path)
    parser.add_argument("--hostile", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.set_defaults(only=[], quick=False)
    options = parser.parse_args()
    table = Table(options)
    table.head()
    name = f"soak of {RANKS} ranks for {options.minutes:g} min: growth of memory"
    table.row(name, GROWTH_KIB, soak(options), "KiB", share=1)
    return 0 if table.all_held else 1


if __name__ == "__main__":
    sys.exit(main())
