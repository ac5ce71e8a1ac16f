"""Ranks that are killed, stopped or cut off while all are inside a collective."""

import contextlib
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
# In these collectives every rank uses the cable to every other.
ALL_TALK = ["allreduce", "allgather", "alltoall", "barrier"]
REMOTE_ERROR = 6


def begun(options, size, collective, hosts=None, settings=(), own=None):
    """Returns a world whose ranks have completed their first call."""
    command = [options.program("rank"), collective, random.choice([2, 1000, 100_000])]
    world = World(size, command, hosts, settings, own)
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
    """Returns the ms from the fault to the error of each rank. Each error must name a culprit."""
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


def pause(options, collective, seconds, stopped, hosts=None, own=None):
    """Stops ranks for a time, which must cause no error on any rank; then kills one of the others,
    or any rank if there are none. Returns how many ranks had another error than that death."""
    victim = random.choice([rank for rank in range(4) if rank not in stopped] or range(4))
    with begun(options, 4, collective, hosts, own=own) as world:
        processes = [world.process_of(rank) for rank in range(4)]
        for how in (signal.SIGSTOP, signal.SIGCONT):
            for rank in stopped:
                os.kill(processes[rank], how)
            time.sleep(seconds if how == signal.SIGSTOP else 0.5)
        began = time.monotonic_ns()
        with contextlib.suppress(ProcessLookupError):  # its early end is counted below
            os.kill(processes[victim], signal.SIGKILL)
        lost = 0
        for rank, line in world.lines([rank for rank in range(4) if rank != victim]).items():
            moment, _, text = line.split(" ", 2)
            if int(moment) < began or f"rank {victim} " not in text:
                lost += 1
                case = f"{collective}, ranks {list(stopped)} stood still"
                print(f"  {case}: rank {rank}: {text}", flush=True)
        return [lost]


def cut(options, hosts, one, other, worlds):
    """Cuts the cable between two of four hosts under several worlds at once. Either of the two
    ranks may be named."""
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
    """Every collective with every victim, repeated until there are enough tries."""
    once = list(itertools.product(COLLECTIVES, range(size)))
    random.shuffle(once)
    return itertools.islice(itertools.cycle(once), options.tries(max(100, len(once)), quick))


def kills(options, size):
    for collective, victim in cells(options, size, quick=4):
        yield end(options, size, collective, victim)


def kills_between_hosts(options):
    """Kills with new hosts each time, because a host limits its ICMP errors to one per second."""
    for collective, victim in cells(options, 4, quick=4):
        with Hosts(4) as hosts:
            yield end(options, 4, collective, victim, hosts)


def stops(options, settings=()):
    def case(collective, victim):
        return lambda: end(options, 4, collective, victim, None, signal.SIGSTOP, settings)

    return together(8, (case(*cell) for cell in cells(options, 4, quick=1)))


def pauses(options):
    def case(collective, victim):
        return lambda: pause(options, collective, 3, [victim])

    return together(4, (case(*cell) for cell in cells(options, 4, quick=1)))


def patience(options, ms):
    """The setting NEXAR_PEER_TIMEOUT_MS of a rank, halved in a quick run."""
    return {"NEXAR_PEER_TIMEOUT_MS": str(options.tries(ms, quick=ms // 2))}


def pauses_of_all(options, seconds, on_hosts):
    """Stops all ranks together, as a suspended machine does."""
    own = [patience(options, 5000)] * 4

    def case():
        if not on_hosts:
            return pause(options, random.choice(COLLECTIVES), seconds, range(4), own=own)
        with Hosts(4) as hosts:
            return pause(options, random.choice(COLLECTIVES), seconds, range(4), hosts, own)

    return together(8, [case] * options.repeat(40, quick=1))


def starved_observers(options, seconds):
    """Stops a rank for longer than its own peer timeout, but not longer than the others'."""

    def case():
        observer = random.randrange(4)
        own = [patience(options, 5000 if rank == observer else 20000) for rank in range(4)]
        return pause(options, random.choice(COLLECTIVES), seconds, [observer], own=own)

    return together(8, [case] * options.repeat(40, quick=1))


def cuts(options):
    pairs = itertools.cycle(itertools.combinations(range(4), 2))
    with Hosts(4) as hosts:
        for _ in range(options.tries(18, quick=1)):
            yield from cut(options, hosts, *next(pairs), worlds=options.tries(6, quick=1))


def add_rows(table, options):
    for size, bound in ((2, 100), (4, 100), (8, 250)):
        table.row(f"kill -9, {size} ranks of one host", bound, kills(options, size))
    table.row("SIGSTOP, 4 ranks", 5500, stops(options))
    ms = options.tries(1000, quick=3000)
    settings = {"NEXAR_PEER_TIMEOUT_MS": str(ms)}
    table.row(f"SIGSTOP, 4 ranks, NEXAR_PEER_TIMEOUT_MS={ms}", ms + 500, stops(options, settings))
    table.row("SIGSTOP for 3 s, 4 ranks", 0, pauses(options), unit="lost")
    seconds = options.tries(6, quick=3)
    name = f"SIGSTOP for {seconds} s of a rank that is less patient than the others, 4 ranks"
    table.row(name, 0, starved_observers(options, seconds), unit="lost")
    seconds = options.tries(10, quick=3)
    name = f"SIGSTOP of all ranks for {seconds} s, 4 ranks of"
    table.row(f"{name} one host", 0, pauses_of_all(options, seconds, on_hosts=False), unit="lost")
    if can_make_hosts():
        table.row(f"{name} 4 hosts", 0, pauses_of_all(options, seconds, on_hosts=True), unit="lost")
        table.row("kill -9, 4 ranks of 4 hosts", 1000, kills_between_hosts(options))
        table.row("cable cut between 2 of 4 hosts", 6000, cuts(options))
    else:
        table.skip("ranks of 4 hosts", "only root can make hosts of namespaces")
