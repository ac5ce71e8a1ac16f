#!/usr/bin/env python3
"""How much memory the ranks of one host share, while they all-reduce, broadcast and exchange large buffers.

    bench/shared_memory.py [RANKS...]        8 and 32 by default; after make bench has built its programs

Counts what the system says of memory named nexar-*, each page once: in all, and for each pair of ranks.
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
    """By kind of memory, a page that n processes have counts 1/n in each."""
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
                    break  # it has ended
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
            print(f"{size} ranks, {operation}: {total} KiB ({parts}), {total / pairs:.0f} KiB a pair", flush=True)


if __name__ == "__main__":
    main()
