#!/usr/bin/env python3
"""Measures the memory that ranks of one host share in collectives with large buffers.

    bench/shared_memory.py [RANKS...]    # default 8 and 32; needs the programs of make bench

Counts the resident pages of memory named nexar-*, each once: in total, and per pair of ranks.
"""

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BYTES = 4 << 20
SECONDS = 2


def ranks_of(launcher):
    listed = subprocess.run(["pgrep", "-P", str(launcher)], capture_output=True, text=True)
    return [int(number) for number in listed.stdout.split()]


def shared_kib(process):
    """Returns KiB by kind of memory. A page of n processes counts 1/n in each."""
    kinds, kind = {}, None
    for line in Path(f"/proc/{process}/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0] and ":" not in words[0]:
            name = words[5] if len(words) > 5 else ""
            kind = name.removeprefix("/memfd:") if name.startswith("/memfd:nexar-") else None
        elif kind and words[0] == "Pss:":
            kinds[kind] = kinds.get(kind, 0) + int(words[1])
    return kinds


def measure(size, operation):
    command = [ROOT / "build/bin/nexar-run", "-n", str(size), ROOT / "build/bench/ours", operation]
    with subprocess.Popen([*command, str(SECONDS), str(BYTES)], stdout=subprocess.DEVNULL) as run:
        most = {}
        while run.poll() is None:
            time.sleep(0.2)
            total = {}
            for rank in ranks_of(run.pid):
                try:
                    for kind, kib in shared_kib(rank).items():
                        total[kind] = total.get(kind, 0) + kib
                except (FileNotFoundError, ProcessLookupError):
                    break  # the rank has ended
            else:
                if sum(total.values()) > sum(most.values()):
                    most = total
        return most


def main():
    for size in [int(word) for word in sys.argv[1:]] or [8, 32]:
        for operation in ("allreduce", "broadcast", "alltoall"):
            kinds = measure(size, operation)
            total = sum(kinds.values())
            pairs = size * (size - 1) // 2
            parts = ", ".join(f"{kind} {kib} KiB" for kind, kib in sorted(kinds.items()))
            figures = f"{total} KiB ({parts}), {total / pairs:.0f} KiB per pair"
            print(f"{size} ranks, {operation}: {figures}", flush=True)


if __name__ == "__main__":
    main()
