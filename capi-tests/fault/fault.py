#!/usr/bin/env python3
"""Injects faults into ranks and prints how long the other ranks took to report them.

    fault.py PROGRAMS [--over WAY] [--hostile PROGRAM] [--quick] [--repetitions N] [--page FILE]
             [--seed N] [WORDS]

PROGRAMS is the build directory of capi-tests. Prints one row for each kind of fault: the tries, the
median, the 99th percentile and the maximum of the times from the fault to the error of each rank,
and the bound. WORDS choose the rows whose name has one of them. The exit code is 1 if a rank named
another culprit, got another error or none; and if a bound was missed, in a quick run only one of a
count.
"""

import argparse
import random
import sys
from pathlib import Path

import builds
import calls
import deaths
import exits
import hostile
import joins
import load
import messages
import mismatches
import soak
import times
from table import LINE, Table
from world import WAYS, World


class Options(argparse.Namespace):
    def program(self, name):
        return self.programs / "fault" / name

    def tries(self, full, quick):
        return quick if self.quick else full

    def repeat(self, full, quick):
        """As `tries`, unless --repetitions is given."""
        return self.repetitions or self.tries(full, quick)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", type=Path)
    parser.add_argument("only", nargs="*", metavar="WORDS", help="rows whose name has one of these")
    parser.add_argument("--over", choices=WAYS, default=World.over, help="transport of the ranks")
    parser.add_argument("--hostile", type=Path, help="the program of tests/hostile")
    parser.add_argument("--quick", action="store_true", help="a few of each kind")
    parser.add_argument(
        "--repetitions", type=int, metavar="N", help="tries of a row that takes a number"
    )
    parser.add_argument("--page", type=Path, help="file whose table is replaced")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_intermixed_args(namespace=Options())
    random.seed(options.seed)
    World.over = options.over
    table = Table(options)
    print(f"seed {options.seed}\n\n{table.head()}{LINE}", flush=True)
    for section in (
        deaths,
        messages,
        exits,
        mismatches,
        joins,
        builds,
        hostile,
        calls,
        load,
        times,
        soak,
    ):
        section.add_rows(table, options)
    if not table.rows:
        parser.error("no row has one of these words")
    if options.page:
        table.put_into(options.page)
    return 0 if table.all_held else 1


if __name__ == "__main__":
    sys.exit(main())
