"""Ranks that are killed, stand still or are cut off while all are inside a collective."""

import itertools
import os
import random
import signal
import time

from table import together
from world import Failed, Hosts, World, can_make_hosts

COLLECTIVES = (
    "allreduce reduce broadcast allgather reducescatter alltoall gather scatter scan exscan barrier"
).split()
# Ranks that are not neighbours need no cable until something goes over it.
ALL_TALK = ["allreduce", "allgather", "alltoall", "barrier"]
REMOTE_ERROR = 6


def begun(options, size, collective, hosts=None, settings=()):
    """A world in which all ranks have worked."""
    command = [options.program("rank"), collective, random.choice([2, 1000, 100_000])]
    world = World(size, command, hosts, settings)
    try:
        for rank, line in world.lines().items():
            if line != "ready":
                raise Failed(f"{collective} of {size}: rank {rank} began with: {line}")
    except BaseException:
        world.__exit__()
        raise
    time.sleep(random.uniform(0, 0.05))  # anywhere inside a call
    return world


def errors(world, ranks, began, culprits):
    """Times in ms from the fault to the error of each of these ranks, which must name a culprit."""
    times = []
    for rank, line in world.lines(ranks).items():
        moment, code, text = line.split(" ", 2)
        named = any(f"rank {culprit} " in text for culprit in culprits)
        if int(code) != REMOTE_ERROR or not named:
            raise Failed(f"rank {rank} does not blame rank {culprits}: {line}")
        times.append((int(moment) - began) / 1e6)
    if min(times) < 0:
        raise Failed(f"an error before the fault: {times}")
    return times


def end(options, size, collective, victim, hosts=None, how=signal.SIGKILL, settings=()):
    with begun(options, size, collective, hosts, settings) as world:
        process = world.process_of(victim)
        began = time.monotonic_ns()
        os.kill(process, how)
        survivors = [rank for rank in range(size) if rank != victim]
        return errors(world, survivors, began, [victim])


def pause(options, collective, victim):
    """A rank that stands still for 3 s is waited for: no error, until it is killed. How often it was
    taken for lost: never, or this fails."""
    with begun(options, 4, collective) as world:
        process = world.process_of(victim)
        os.kill(process, signal.SIGSTOP)
        time.sleep(3)
        os.kill(process, signal.SIGCONT)
        time.sleep(0.2)
        began = time.monotonic_ns()
        os.kill(process, signal.SIGKILL)
        errors(world, [rank for rank in range(4) if rank != victim], began, [victim])
        return [0]


def cut(options, hosts, one, other, worlds):
    """The cable between two of four hosts, seen by several worlds at once. Each of the two ranks may
    blame the other."""
    running = []
    try:
        for _ in range(worlds):
            running.append(begun(options, 4, random.choice(ALL_TALK), hosts))
        began = time.monotonic_ns()
        hosts.cut(one, other)
        try:
            for world in running:
                yield errors(world, range(4), began, [one, other])
        finally:
            hosts.cut(one, other, "del")
    finally:
        for world in running:
            world.__exit__()


def cells(options, size, quick):
    """Every collective, every victim; and again until there are enough."""
    once = list(itertools.product(COLLECTIVES, range(size)))
    random.shuffle(once)
    return itertools.islice(itertools.cycle(once), options.tries(max(100, len(once)), quick))


def kills(options, size):
    for collective, victim in cells(options, size, quick=4):
        yield end(options, size, collective, victim)


def kills_between_hosts(options):
    """New hosts each time: one that has just refused packets of another says so only once a second."""
    for collective, victim in cells(options, 4, quick=4):
        with Hosts(4) as hosts:
            yield end(options, 4, collective, victim, hosts)


def stops(options, settings=()):
    def case(collective, victim):
        return lambda: end(options, 4, collective, victim, None, signal.SIGSTOP, settings)

    return together(8, (case(*cell) for cell in cells(options, 4, quick=1)))


def pauses(options):
    def case(collective, victim):
        return lambda: pause(options, collective, victim)

    return together(4, (case(*cell) for cell in cells(options, 4, quick=1)))


def cuts(options):
    pairs = itertools.cycle(itertools.combinations(range(4), 2))
    with Hosts(4) as hosts:
        for _ in range(options.tries(18, quick=1)):
            yield from cut(options, hosts, *next(pairs), worlds=options.tries(6, quick=1))


def add_rows(table, options):
    for size, bound in ((2, 100), (4, 100), (8, 250)):
        table.row(f"kill -9, {size} ranks of one host", bound, kills(options, size))
    table.row("SIGSTOP, 4 ranks", 5500, stops(options))
    settings = {"NEXAR_PEER_TIMEOUT_MS": "1000"}
    table.row("SIGSTOP, 4 ranks, NEXAR_PEER_TIMEOUT_MS=1000", 1500, stops(options, settings))
    table.row("SIGSTOP for 3 s, 4 ranks", 0, pauses(options), unit="lost")
    if can_make_hosts():
        table.row("kill -9, 4 ranks of 4 hosts", 1000, kills_between_hosts(options))
        table.row("cable cut between 2 of 4 hosts", 6000, cuts(options))
    else:
        table.skip("ranks of 4 hosts", "only root can make hosts of namespaces")
