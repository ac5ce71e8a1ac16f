"""Ranks that are missing, duplicate, of another world or strangers while the others join."""

import random
import time

from table import together
from world import Failed, World

INVALID_USAGE, TIMEOUT = 5, 8
IS_IN = (0, ["is in"])


def ends(world, wanted, processes=None):
    """Returns the times at which the processes' joins ended. Each must have the wanted code and
    words."""
    code, words = wanted
    moments = []
    for process, line in world.lines(processes).items():
        moment, its_code, text = line.split(" ", 2)
        if int(its_code) != code or not all(word in text for word in words):
            raise Failed(f"process {process}: {line}")
        moments.append(int(moment))
    return moments


def refused(options, wanted, own, settings=()):
    """Lets processes join, each with its own settings; all must fail. Returns the ms since the
    start."""
    began = time.monotonic_ns()
    with World(len(own), [options.program("join")], settings=settings, own=own) as world:
        return [(moment - began) / 1e6 for moment in ends(world, wanted)]


def numbered(ranks, size):
    return [{"NEXAR_RANK": str(rank), "NEXAR_NRANKS": str(size)} for rank in ranks]


def patience_ms(options):
    """The timeout of a join: longer in a quick run, which may share a busy machine."""
    return options.tries(1000, quick=5000)


def missing(options):
    # Without rank 0 the others have no rendezvous.
    absent = random.randrange(1, 4)
    own = numbered([rank for rank in range(4) if rank != absent], 4)
    settings = {"NEXAR_INIT_TIMEOUT_MS": str(patience_ms(options))}
    times = refused(options, (TIMEOUT, [f"rank {absent} of 4 has not joined"]), own, settings)
    return [ms - patience_ms(options) for ms in times]


def duplicate(options):
    # A second rank 0 could not listen at the same address.
    twice = random.randrange(1, 4)
    own = numbered([0, 1, 2, 3, twice], 5)
    return refused(options, (INVALID_USAGE, [f"rank {twice} joined twice"]), own)


def different_size(options):
    other = random.randrange(4)
    own = [numbered([rank], 5 if rank == other else 4)[0] for rank in range(4)]
    words = ["number of ranks", "says 4", "says 5"]
    return refused(options, (INVALID_USAGE, words), own)


def wrong_secret(options):
    """A stranger joins as the rank that three others wait for; then the right rank joins."""
    command, place = [options.program("join")], random.randrange(1, 4)
    waiting = [rank for rank in range(4) if rank != place]
    secret = {"NEXAR_COMM_SECRET": "the secret of another job"}
    own = numbered(waiting, 4) + [{**numbered([place], 4)[0], **secret}]
    began = time.monotonic_ns()
    with World(4, command, own=own) as world:
        (moment,) = ends(world, (INVALID_USAGE, ["has another NEXAR_COMM_SECRET"]), [3])
        with World(1, command, settings=world.settings, own=numbered([place], 4)) as late:
            ends(late, IS_IN)
            ends(world, IS_IN, range(3))
    return [(moment - began) / 1e6]


def add_rows(table, options):
    def tries(case, at_once, quick):
        count = options.tries(100, quick)
        return together(at_once, [lambda: case(options)] * count)

    name = f"missing rank (not 0), 3 of 4, beyond NEXAR_INIT_TIMEOUT_MS={patience_ms(options)}"
    table.row(name, 500, tries(missing, 8, quick=2))
    table.row("duplicate rank (not 0), 5 processes", 1000, tries(duplicate, 1, quick=2))
    table.row("different number of ranks, 4 processes", 1000, tries(different_size, 1, quick=2))
    name = "wrong secret (not on rank 0) beside 3 ranks, which wait for the right one"
    table.row(name, 1000, tries(wrong_secret, 1, quick=2))
