#!/usr/bin/env python3
"""Compares two builds of the library: the cost of a change.

    bench/two_builds.py BEFORE AFTER        # directories with libnexar.so.0; after make build

All-reduce of 8 B and 16 MiB between two processes, through shared memory and over QUIC. The builds
take turns, and each round begins with the other one. A line has both medians in microseconds and
their ratio.
"""

import argparse
import os
import statistics
from pathlib import Path

import peers

WAYS = {"shared memory": "NEXAR_SHM_DISABLE=0", "QUIC": "NEXAR_SHM_DISABLE=1"}
SIZES = (8, 16 << 20)


def main():
    parser = argparse.ArgumentParser(description="Compare the speed of two builds of the library.")
    parser.add_argument("before", type=Path, help="directory of libnexar.so.0")
    parser.add_argument("after", type=Path, help="another")
    parser.add_argument("--rounds", type=int, default=9, help="(9)")
    parser.add_argument(
        "--seconds", type=float, default=0.2, help="to time one size in a round (0.2)"
    )
    options = parser.parse_args()
    peers.PROGRAMS.mkdir(parents=True, exist_ok=True)
    program = peers.build_ours(peers.BUILD / "lib")
    for way, setting in WAYS.items():
        ours = peers.Library("ours", call=[*peers.launcher(), "env", setting, program])
        times = {(build, size): [] for build in (options.before, options.after) for size in SIZES}
        for number in range(options.rounds):
            for build in (options.before, options.after)[:: 1 if number % 2 else -1]:
                # The loader searches it before the directory of the program.
                os.environ["LD_LIBRARY_PATH"] = str(build.resolve())
                found, failure = peers.run(ours, 2, "allreduce", options.seconds, SIZES, 60)
                if failure:
                    raise SystemExit(f"{build}: {failure}")
                for size, took in found.items():
                    times[build, size].append(took)
        for size in SIZES:
            before, after = (
                statistics.median(times[build, size]) for build in (options.before, options.after)
            )
            figures = f"{before:.3f} us, {after:.3f} us, {after / before:.3f}"
            print(f"{way}, {size} B: {figures}", flush=True)


if __name__ == "__main__":
    main()
