"""Ranks of users without privileges, as most are: of several users on one host, and many of one user."""

import os
import re
import shutil

from table import together
from world import Failed, World

RANKS = 4
MANY_RANKS = 64
# A kernel lets a user have as many descriptors on their way as one process may have open.
OPEN_FILES = 1024
NOBODY = 65534
USERS = (0, NOBODY, NOBODY - 1, NOBODY)
WITHOUT_MEMORY = re.compile(r"shares? no memory")


def as_user(user):
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]


def both_times(world):
    """Milliseconds of each rank to join and to split, and the records of all ranks' logs."""
    times, log = [], []
    for rank, lines in enumerate(world.outputs(seconds=120)):
        ended = re.fullmatch(r"joined in (\d+) ms, split in (\d+) ms", lines[-1])
        if not ended:
            raise Failed(f"rank {rank}: {lines[-1]}")
        times += [int(ended[1]), int(ended[2])]
        log += lines[:-1]
    return times, log


def of_users(options):
    with World(RANKS, [options.program("parts")], wrapper=lambda rank: as_user(USERS[rank])) as world:
        return both_times(world)[0]


def of_one_user(options):
    """Ranks that share no memory with their host, and say so."""
    limit = ["prlimit", f"--nofile={OPEN_FILES}"]
    both = ["sh", "-c", 'exec "$0" 2>&1', options.program("parts")]
    settings = {"NEXAR_DEBUG": "INFO"}
    wrapper = lambda rank: limit + as_user(NOBODY)  # noqa: E731
    with World(MANY_RANKS, both, settings=settings, wrapper=wrapper) as world:
        _, log = both_times(world)
    alone = [record for record in log if WITHOUT_MEMORY.search(record)]
    for record in alone[:1]:
        print(f"  {record}", flush=True)
    return [len(alone)]


def add_rows(table, options):
    several = f"{RANKS} ranks of one host under {len(set(USERS))} users: time to join and to split"
    many = f"{MANY_RANKS} ranks of an ordinary user, ulimit -n {OPEN_FILES}"
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        return table.skip(f"{several}; {many}", "only root can start ranks of other users")
    tries = options.repeat(100, quick=2)
    table.row(several, 1000, together(2, [lambda: of_users(options)] * tries))
    # Their memory is found by each rank anew: one try has many.
    tries = options.repeat(10, quick=1)
    cases = (of_one_user(options) for _ in range(tries))
    table.row(f"{many}: without shared memory", 0, cases, "ranks")
