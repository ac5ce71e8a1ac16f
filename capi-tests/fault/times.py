"""The times that tests promise. `make test` does not check them, because the machine may be
busy."""

import os
import re
import subprocess

from world import Failed

PROGRAMS = (
    "api/limits",
    "process/signals",
    "cuda/abort",
    "cuda/comm_end",
    "cuda/injection",
    "cuda/blocking_calls",
)

# "ok name" or "FAILED name" of a C test, "test name ... ok (0.1 s)" of tests/hostile.
OUTCOME = re.compile(r"(?:test \w+ \.\.\. )?(ok|FAILED) \S")


def failed_cases(program, **settings):
    environment = {**os.environ, "CHECK_TIMES": "1", "HOSTILE_TIMES": "1", **settings}
    ran = subprocess.run([program], env=environment, capture_output=True, text=True, check=False)
    cases = [found[1] for line in ran.stdout.splitlines() if (found := OUTCOME.match(line))]
    failed = cases.count("FAILED")
    if not cases or (ran.returncode != 0) != (failed > 0):
        raise Failed(f"{program.name} ended with {ran.returncode}: {ran.stderr.strip()}")
    if failed:
        print(ran.stdout, ran.stderr, flush=True)
    return [failed]


def of_c_tests(options):
    for name in PROGRAMS:
        memops = {"FAKECUDA_NO_MEMOPS": "1"} if name == "cuda/blocking_calls" else {}
        yield failed_cases(options.programs / name, **memops)


def add_rows(table, options):
    if options.quick:
        return
    table.row("times that C tests promise", 0, of_c_tests(options), unit="failed cases")
    name = "times that tests/hostile promises"
    if options.hostile:
        table.row(name, 0, (failed_cases(options.hostile) for _ in range(1)), unit="failed cases")
    else:
        table.skip(name, "no --hostile")
