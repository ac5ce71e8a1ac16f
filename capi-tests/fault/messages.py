"""Ranks inside a send, a receive or a probe whose peer is killed, stops, aborts or exits."""

import itertools
import os
import random
import signal
import time

from deaths import errors
from table import together
from world import Failed, Hosts, World, can_make_hosts

CALLS = "send send_many recv recv_any probe probe_any".split()
SIGNALS = {
    "kill": signal.SIGKILL,
    "stop": signal.SIGSTOP,
    "abort": signal.SIGUSR1,
    "exit": signal.SIGUSR1,
}


def end(options, size, call, victim, how, hosts=None, settings=()):
    """Returns the ms from the fault to the error of each other rank, all of which wait for the
    victim, or for any rank."""
    command = [options.program("message"), call, victim, how]
    with World(size, command, hosts, settings) as world:
        for rank, line in world.lines().items():
            if line != "ready":
                raise Failed(f"{call} of {size}: rank {rank} began with: {line}")
        process = world.process_of(victim)
        time.sleep(random.uniform(0, 0.05))  # anywhere inside the call
        began = time.monotonic_ns()
        os.kill(process, SIGNALS[how])
        return errors(world, [rank for rank in range(size) if rank != victim], began, [victim])


def tries(options, size, how, on_hosts, settings=()):
    """Every call with every victim, repeated until there are enough tries."""
    once = list(itertools.product(CALLS, range(size)))
    random.shuffle(once)
    quick = 1 if on_hosts else 4
    count = options.repeat(max(100, len(once)), quick)

    def case(call, victim):
        if not on_hosts:
            return end(options, size, call, victim, how, settings=settings)
        with Hosts(size) as hosts:
            return end(options, size, call, victim, how, hosts, settings)

    cases = (
        lambda cell=cell: case(*cell) for cell in itertools.islice(itertools.cycle(once), count)
    )
    # Those that mostly wait run together.
    return together(8 if how == "stop" else 1, cases)


def add_rows(table, options):
    ms = options.tries(1000, quick=3000)
    causes = {
        "kill -9": ("kill", 100, ()),
        f"SIGSTOP, NEXAR_PEER_TIMEOUT_MS={ms},": (
            "stop",
            ms + 500,
            {"NEXAR_PEER_TIMEOUT_MS": str(ms)},
        ),
        "nexarCommAbort": ("abort", 100, ()),
        "exit at once": ("exit", 100, ()),
    }
    for cause, (how, bound, settings) in causes.items():
        for size in options.tries((2, 4), quick=(4,)):
            name = f"{cause} of the peer inside a message, {size} ranks of one host"
            table.row(name, bound, tries(options, size, how, False, settings))
        name = f"{cause} of the peer inside a message, 4 ranks of 4 hosts"
        if can_make_hosts():
            bound = max(bound, 1000)
            table.row(name, bound, tries(options, 4, how, True, settings))
        else:
            table.skip(name, "only root can make hosts of namespaces")
