"""What C tests promise of times. In `make test` they check no promise, because the machine may be busy."""

import os
import subprocess

from world import Failed

PROGRAMS = (
    "api/limits",
    "process/signals",
    "cuda/aborting",
    "cuda/ending",
    "cuda/injection",
    "cuda/waiting",
)


def promises(options):
    """One value of each program: the number of its cases that failed."""
    for name in PROGRAMS:
        environment = {**os.environ, "CHECK_TIMES": "1"}
        if name == "cuda/waiting":
            environment["FAKECUDA_NO_MEMOPS"] = "1"
        ran = subprocess.run(
            [options.programs / name], env=environment, capture_output=True, text=True, check=False
        )
        cases = [line.split()[0] for line in ran.stdout.splitlines() if line.startswith(("ok ", "FAILED "))]
        if not cases or (ran.returncode != 0 and "FAILED" not in cases):
            raise Failed(f"{name} ended with {ran.returncode}: {ran.stderr.strip()}")
        if ran.returncode != 0:
            print(ran.stderr, flush=True)
        yield [cases.count("FAILED")]


def add_rows(table, options):
    if not options.quick:
        table.row("times that C tests promise", 0, promises(options), unit="failed cases")
