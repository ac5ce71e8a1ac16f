"""Ranks that run beside busy processes: no error, however long a call takes."""

import os
import re
import subprocess
import sys

from world import Failed, World

RANKS = 4
BUSY = "while True: pass"
LATE = 120  # seconds that ranks may take beyond their time


def under_load(options, seconds, longest):
    """Yields the number of errors of each rank. Appends the ms of its longest call to `longest`."""
    load = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(2 * os.cpu_count())]
    try:
        with World(RANKS, [options.program("steady"), seconds]) as world:
            for rank, line in world.lines(seconds=seconds + LATE).items():
                ended = re.fullmatch(r"(\d+) calls, the longest (\d+) ms", line)
                if not ended:
                    raise Failed(f"rank {rank}: {line}")
                longest.append(int(ended[2]))
                yield [0]
    finally:
        for process in load:
            process.kill()
            process.wait()


def add_rows(table, options):
    seconds = options.tries(600, quick=5)
    name = f"{2 * os.cpu_count()} busy processes beside 4 ranks for {seconds} s"
    longest = []
    table.row(f"{name}: errors", 0, under_load(options, seconds, longest), "errors")
    if longest:
        # NEXAR_PEER_TIMEOUT_MS: a rank that stands still for longer is taken for lost.
        table.row(f"{name}: longest call", 5000, [longest], "ms")
