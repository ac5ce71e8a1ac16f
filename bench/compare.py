#!/usr/bin/env python3
"""Compares the speed of nexar's collectives with that of other libraries, on this host.

In each round, for each operation, the libraries take turns in new processes, so that disturbances
of the machine affect all of them. collectives.h describes the measurement, README.md the table.
Writes to build/bench: every single run as CSV, the table, and a chart for each number of ranks.
"""

import argparse
import csv
import os
import signal
import sys
import time
from datetime import date
from pathlib import Path

import chart
import peers
import report

SIZES = (8, 1 << 10, 64 << 10, 1 << 20, 16 << 20, 128 << 20)
RANKS = (2, 4, 8)
# Operations on blocks, one for each rank.
IN_BLOCKS = ("allgather", "reducescatter", "alltoall", *peers.V_FORMS)
ELEMENT = 4
# Where a page has the short table.
BEGIN, END = "<!-- speed -->", "<!-- /speed -->"
# A higher load means that other work uses part of the cores.
BUSY = 0.5


def main():
    options = parse()
    try:
        libraries = peers.build(options.lib, options.peers or peers.PEERS)
    except peers.Missing as why:
        sys.exit(str(why))
    begin = os.getloadavg()[0]
    print(heading(libraries, options), file=sys.stderr)
    if begin > BUSY:
        warning = f"the machine is busy, load {begin:.1f}: libraries that spin look worse"
        print(f"warning: {warning}", file=sys.stderr)
    runs, failures, stopped = measure(libraries, options)
    load = f"load before {begin:.1f}, after {os.getloadavg()[0]:.1f}"
    text = "\n".join(
        [
            f"{heading(libraries, options)}; {load}",
            *report.tables(libraries, options, runs),
            *report.failures(libraries, failures),
            *stopped,
        ]
    )
    print(text)
    (peers.PROGRAMS / "table.md").write_text(text + "\n")
    if options.page:
        renew(options.page, report.front_page(libraries, options, runs))
    for ranks in options.ranks:
        path = peers.PROGRAMS / f"{ranks}-ranks.svg"
        path.write_text(chart.svg(libraries, options, runs, ranks))
    print(f"\nevery run, this table and the charts: {peers.PROGRAMS}")


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="2 ranks, to 16 MiB, 3 short rounds")
    parser.add_argument("--ranks", type=numbers, help="numbers of processes (2,4,8)")
    parser.add_argument(
        "--ops",
        type=words,
        help="operations (all; quick: all but the V forms and messages)",
    )
    parser.add_argument("--sizes", type=numbers, help="bytes (8 to 128 MiB)")
    parser.add_argument(
        "--peers",
        type=words,
        help="of openmpi,mpich,gloo,nexar (all with 2 ranks, openmpi with more)",
    )
    parser.add_argument("--rounds", type=int, help="(5)")
    parser.add_argument("--seconds", type=float, help="to time one size in a round (0.2)")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for all sizes (120)")
    parser.add_argument("--minutes", type=float, help="stop after this time (quick: 4.5)")
    parser.add_argument(
        "--lib", type=Path, default=peers.BUILD / "lib", help="directory of libnexar.so (build/lib)"
    )
    parser.add_argument(
        "--page", type=Path, help=f"file whose short table between {BEGIN} and {END} is renewed"
    )
    options = parser.parse_args()
    options.ranks = options.ranks or (RANKS[:1] if options.quick else RANKS)
    options.sizes = options.sizes or (SIZES[:-1] if options.quick else SIZES)
    options.minutes = options.minutes or (4.5 if options.quick else None)
    options.rounds = options.rounds or (3 if options.quick else 5)
    options.seconds = options.seconds or (0.05 if options.quick else 0.2)
    known = peers.OPERATIONS + peers.V_FORMS + peers.MESSAGES
    options.ops = options.ops or (peers.OPERATIONS if options.quick else known)
    for given, known in ((options.ops, known), (options.peers or [], peers.PEERS)):
        if unknown := set(given) - set(known):
            parser.error(f"not of {', '.join(known)}: {', '.join(unknown)}")
    if min(options.ranks) < 2 or options.rounds < 1:
        parser.error("at least 2 ranks and 1 round")
    return options


def renew(page, lines):
    """Replaces what stands between the two marks of a page."""
    text = page.read_text()
    before, rest = text.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    page.write_text("\n".join([before + BEGIN, *lines, END + after]))


def words(text):
    return tuple(text.split(","))


def numbers(text):
    return tuple(int(number) for number in text.split(","))


def heading(libraries, options):
    versions = [
        f"{library.name} {library.version}".strip() + (library.missing and f": {library.missing}")
        for key, library in libraries.items()
        if key in peers.PEERS
    ]
    control = Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    rounds = f"{options.rounds} rounds, {options.seconds} s a size"
    return f"{date.today()}, {os.cpu_count()} cores, {rounds}; {'; '.join(versions)}; TCP {control}"


# -- measuring -----------------------------------------------------------------------------------


def plan(libraries, options):
    """Yields every run: ranks, round, operation, library. Rounds begin with different libraries."""
    for ranks in options.ranks:
        keys = [key for key in libraries if taken(key, ranks, libraries, options)]
        for number in range(options.rounds):
            turn = number % len(keys)
            for operation in options.ops:
                for key in keys[turn:] + keys[:turn]:
                    if operation in libraries[key].operations:
                        yield ranks, number + 1, operation, key


def taken(key, ranks, libraries, options):
    """Whether a library is measured. With more than two ranks only Open MPI is, unless --peers
    names others: MPICH spins, so with more ranks than cores each call takes milliseconds."""
    asked = ranks == 2 or options.peers is not None or key in ("ours", "memalloc", "openmpi")
    return asked and not libraries[key].missing


def measure(libraries, options):
    """Returns microseconds by (ranks, round, operation, nominal size, library), failures by (ranks,
    operation, library), and why it ended early. A failed operation is not repeated, because it may
    hang until its timeout."""
    turns = list(plan(libraries, options))
    runs, failed, stopped = {}, {}, []
    bar = Bar(len(turns))
    with (peers.PROGRAMS / "runs.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["ranks", "round", "operation", "bytes", "library", "microseconds"])
        try:
            for ranks, number, operation, key in turns:
                library = libraries[key]
                if options.minutes and bar.seconds() > 60 * options.minutes:
                    stopped = [f"\nStopped after {options.minutes} minutes: {bar.part()}."]
                    break
                bar.show(f"{ranks} ranks, round {number}, {operation}, {library.name}")
                if (ranks, operation, key) in failed:
                    continue
                sizes = {real(operation, size, ranks): size for size in nominal(operation, options)}
                found, failure = peers.run(
                    library, ranks, operation, options.seconds, sizes, options.timeout
                )
                for size, took in found.items():
                    table.writerow([ranks, number, operation, size, library.name, took])
                    runs[ranks, number, operation, sizes[size], key] = took
                file.flush()
                if failure:
                    failed[ranks, operation, key] = failure
        except KeyboardInterrupt:
            stopped = [f"\nInterrupted: {bar.part()}."]
    bar.clear()
    return runs, failed, stopped


def nominal(operation, options):
    return (0,) if operation == "barrier" else options.sizes


def real(operation, size, ranks):
    """Returns the bytes of the larger buffer, with at least one element in each block."""
    return max(size, ELEMENT * ranks) if operation in IN_BLOCKS else size


class Bar:
    """A progress bar, if stderr is a terminal."""

    WIDTH = 30

    def __init__(self, total):
        self.total, self.done, self.begin = total, 0, time.monotonic()

    def show(self, what):
        if sys.stderr.isatty():
            full = self.WIDTH * self.done // self.total
            bar = "#" * full + "." * (self.WIDTH - full)
            print(f"\r\033[K[{bar}] {self.left()} {what}", end="", file=sys.stderr, flush=True)
        self.done += 1

    def seconds(self):
        return time.monotonic() - self.begin

    def part(self):
        return f"the table has {self.done} of {self.total} runs"

    def left(self):
        if self.done == 0:
            return "     "
        seconds = self.seconds() / self.done * (self.total - self.done)
        return f"-{seconds // 60:.0f}:{seconds % 60:02.0f}"

    def clear(self):
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    # Exits through the handlers that end the ranks.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    main()
