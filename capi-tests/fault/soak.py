"""Random programs for half an hour over links of changing quality, every result checked.

A relay between each two ranks drops, duplicates, reorders, corrupts and delays datagrams. The row
is the growth of each rank's memory after the warm-up.
"""

import subprocess
import time
from statistics import median

from world import Failed, World, free_port

RANKS = 4
WARM_UP = 5 * 60  # seconds, or a third of the time
GROWTH_KIB = 4096
LATE = 60  # seconds that ranks may take to end


def resident_kib(process):
    with open(f"/proc/{process}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


def samples(world, seconds):
    """Returns the memory of each rank, sampled every second until the ranks have ended."""
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
    """Returns the growth from the first to the last fifth after the warm-up. Medians, because
    memory varies with the communicators in use."""
    warm = [kib for moment, kib in memory if moment >= warm_up]
    part = max(1, len(warm) // 5)
    return median(warm[-part:]) - median(warm[:part])


def soak(options, seconds):
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
        command = [options.programs / "stress" / "random_programs", seconds, options.seed]
        settings = {"NEXAR_COMM_ID": targets[0], "NEXAR_SHM_DISABLE": "1"}
        with World(RANKS, command, settings=settings, own=own) as world:
            memory = samples(world, seconds)
            for rank, process in enumerate(world.ranks):
                said = process.stdout.read().strip()
                if process.returncode != 0:
                    raise Failed(f"rank {rank} ended with {process.returncode}: {said}")
                if rank == 0:
                    print(said.splitlines()[0], flush=True)
        relay.stdin.close()
        relayed = relay.stdout.readline().strip()
        print(relayed, flush=True)
        if not int(relayed.split()[0]):
            raise Failed("the relay has relayed nothing")
        warm_up = min(WARM_UP, seconds / 3)
        yield [max(0, grown(rank, warm_up)) for rank in memory]
    finally:
        relay.stdin.close()
        relay.wait()


def add_rows(table, options):
    seconds = options.tries(1800, quick=5)
    name = f"soak of {RANKS} ranks for {seconds} s: growth of memory"
    if not options.hostile:
        return table.skip(name, "no --hostile")
    table.row(name, GROWTH_KIB, soak(options, seconds), "KiB")
