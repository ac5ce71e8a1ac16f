#!/usr/bin/env python3
"""Kills, stops and confuses ranks, and prints how long the others took to know it, and of whom.

    fault.py RANK_PROGRAM [--quick]

One row for each kind of fault: how often it was tried, and the median, the 99th percentile and the
longest of the times from the fault to the error of each survivor, beside the bound. The exit code is 1
if a survivor blamed another rank, got anything but the error, or never got it; and, but for a quick
run, if a bound was missed.
"""

import argparse
import itertools
import os
import random
import secrets
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time

COLLECTIVES = (
    "allreduce reduce broadcast allgather reducescatter alltoall gather scatter scan exscan barrier"
).split()
REMOTE_ERROR = 6
DEADLINE = 40  # seconds, for one case


class Hosts:
    """Hosts that are namespaces of network and processes, joined by a bridge."""

    def __init__(self, count):
        self.names = [f"nexar-{os.getpid()}-{i}" for i in range(count)]
        self.bridge = f"nxb{os.getpid() % 100000}"
        run("ip", "link", "add", self.bridge, "type", "bridge")
        run("ip", "link", "set", self.bridge, "up")
        for i, name in enumerate(self.names):
            cable = f"nx{os.getpid() % 100000}c{i}"
            run("ip", "netns", "add", name)
            run("ip", "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name)
            run("ip", "link", "set", cable, "master", self.bridge, "up")
            run("ip", "-n", name, "addr", "add", f"10.78.0.{i + 1}/24", "dev", "eth0")
            run("ip", "-n", name, "link", "set", "eth0", "up")
            run("ip", "-n", name, "link", "set", "lo", "up")

    def command(self, rank):
        name = self.names[rank % len(self.names)]
        inside = ["unshare", "--pid", "--fork", "--mount-proc"]
        return ["ip", "netns", "exec", name, *inside]

    def cut(self, one, other, action="add"):
        """The cable between two hosts; with "del" it is mended."""
        for a, b in ((one, other), (other, one)):
            run("ip", "-n", self.names[a], "route", action, "blackhole", f"10.78.0.{b + 1}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for name in self.names:
            run("ip", "netns", "del", name, check=False)
        run("ip", "link", "del", self.bridge, check=False)


def run(*command, check=True):
    subprocess.run(command, check=check, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class World:
    """The ranks of one case."""

    def __init__(self, program, size, collective, count, hosts=None, settings=()):
        self.size = size
        if hosts:
            # Another each time: a process of the case before may hold its port for a moment longer.
            address = f"10.78.0.1:{random.randrange(20000, 30000)}"
        else:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
                free.bind(("127.0.0.1", 0))
                address = "127.0.0.1:%d" % free.getsockname()[1]
        shared = {
            **os.environ,
            "NEXAR_NRANKS": str(size),
            "NEXAR_COMM_ID": address,
            "NEXAR_COMM_SECRET": secrets.token_hex(16),
            **dict(settings),
        }
        self.ranks = []
        for rank in range(size):
            environment = {**shared, "NEXAR_RANK": str(rank)}
            command = (hosts.command(rank) if hosts else []) + [program, collective, str(count)]
            process = subprocess.Popen(
                command,
                env=environment,
                stdout=subprocess.PIPE,
                # What makes the namespaces complains there about signals that nobody sent.
                stderr=subprocess.DEVNULL if hosts else None,
                start_new_session=True,
                text=True,
            )
            self.ranks.append(process)

    def lines(self, ranks, deadline):
        """One line of each of these ranks."""
        found = {}
        with selectors.DefaultSelector() as selector:
            for rank in ranks:
                selector.register(self.ranks[rank].stdout, selectors.EVENT_READ, rank)
            while len(found) < len(ranks):
                ready = selector.select(max(0, deadline - time.monotonic()))
                if not ready:
                    missing = sorted(set(ranks) - set(found))
                    raise Failed(f"ranks {missing} said nothing for {DEADLINE} s")
                for key, _ in ready:
                    found[key.data] = key.fileobj.readline().strip()
                    selector.unregister(key.fileobj)
        return found

    def process_of(self, rank):
        """The rank itself: in a namespace of processes it is a child of what was started."""
        process = self.ranks[rank].pid
        while True:
            with open(f"/proc/{process}/task/{process}/children") as children:
                below = children.read().split()
            if not below:
                return process
            process = int(below[0])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.ranks:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
            process.stdout.close()


class Failed(Exception):
    pass


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def begun(arguments, size, collective, hosts=None, settings=()):
    """A world in which all ranks have worked."""
    count = random.choice([2, 1000, 100_000])
    world = World(arguments.program, size, collective, count, hosts, settings)
    try:
        for rank, line in world.lines(range(size), time.monotonic() + DEADLINE).items():
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
    for rank, line in world.lines(ranks, time.monotonic() + DEADLINE).items():
        moment, code, text = line.split(" ", 2)
        named = any(f"rank {culprit} " in text for culprit in culprits)
        if int(code) != REMOTE_ERROR or not named:
            raise Failed(f"rank {rank} blames not rank {culprits}: {line}")
        times.append((int(moment) - began) / 1e6)
    return times


def kill(arguments, size, collective, victim, hosts=None, how=signal.SIGKILL, settings=()):
    with begun(arguments, size, collective, hosts, settings) as world:
        process = world.process_of(victim)
        began = time.monotonic_ns()
        os.kill(process, how)
        survivors = [rank for rank in range(size) if rank != victim]
        return errors(world, survivors, began, [victim])


def pause(arguments, collective, victim):
    """A rank that stands still for 3 s is waited for: no error, until it is killed."""
    with begun(arguments, 4, collective) as world:
        process = world.process_of(victim)
        os.kill(process, signal.SIGSTOP)
        time.sleep(3)
        os.kill(process, signal.SIGCONT)
        time.sleep(0.2)
        began = time.monotonic_ns()
        os.kill(process, signal.SIGKILL)
        times = errors(world, [rank for rank in range(4) if rank != victim], began, [victim])
        if min(times) < 0:
            raise Failed(f"{collective}: an error before the rank was killed")
        return times


def cut(arguments, collective, hosts, one, other):
    """The cable between two of four hosts. Each of the two may blame the other."""
    with begun(arguments, 4, collective, hosts) as world:
        began = time.monotonic_ns()
        hosts.cut(one, other)
        try:
            return errors(world, range(4), began, [one, other])
        finally:
            hosts.cut(one, other, "del")


def kills(arguments, sizes, repetitions, hosts=None):
    """Every collective, every victim; and again until there are enough."""
    cells = [(n, c, v) for n in sizes for c in COLLECTIVES for v in range(n)]
    random.shuffle(cells)
    for n, collective, victim in itertools.islice(itertools.cycle(cells), repetitions(cells)):
        yield kill(arguments, n, collective, victim, hosts)


def row(name, bound, cases, quick):
    times, tried = [], 0
    try:
        for case in cases:
            times += case
            tried += 1
    except Failed as reason:
        print(f"| {name} | FAILED after {tried}: {reason} |", flush=True)
        return False
    worst = percentile(times, 0.99)
    held = worst <= bound
    print(
        f"| {name} | {tried} | {percentile(times, 0.5):.0f} | {worst:.0f} | {max(times):.0f} | {bound} "
        f"| {'held' if held else 'MISSED'} |",
        flush=True,
    )
    return held or quick


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--quick", action="store_true", help="a few of each kind")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    arguments = parser.parse_args()
    random.seed(arguments.seed)
    print(f"seed {arguments.seed}\n")
    print("| fault | tried | p50 ms | p99 ms | max ms | bound ms | |\n|---|---|---|---|---|---|---|")
    enough = (lambda cells: 4) if arguments.quick else (lambda cells: max(100, len(cells)))
    few = 1 if arguments.quick else 25
    quick = arguments.quick
    ok = True
    for n, bound in ((2, 100), (4, 100), (8, 250)):
        name = f"kill -9, {n} ranks of one host"
        ok &= row(name, bound, kills(arguments, [n], enough), quick)
    stops = (
        kill(arguments, 4, random.choice(COLLECTIVES), random.randrange(4), how=signal.SIGSTOP)
        for _ in range(few)
    )
    ok &= row("SIGSTOP, 4 ranks", 5500, stops, quick)
    quick_stops = (
        kill(
            arguments,
            4,
            random.choice(COLLECTIVES),
            random.randrange(4),
            how=signal.SIGSTOP,
            settings={"NEXAR_PEER_TIMEOUT_MS": "1000"}.items(),
        )
        for _ in range(few)
    )
    ok &= row("SIGSTOP, 4 ranks, NEXAR_PEER_TIMEOUT_MS=1000", 1500, quick_stops, quick)
    pauses = (
        pause(arguments, random.choice(COLLECTIVES), random.randrange(4)) for _ in range(few)
    )
    ok &= row("SIGSTOP for 3 s survived, 4 ranks; then kill -9", 100, pauses, quick)
    if os.geteuid() == 0 and shutil.which("ip") and shutil.which("unshare"):
        with Hosts(4) as hosts:
            ok &= row("kill -9, 4 ranks of 4 hosts", 1000, kills(arguments, [4], enough, hosts), quick)
            pairs = itertools.cycle(itertools.combinations(range(4), 2))
            # Ranks that are not neighbours need no cable until something goes over it.
            needed = ["allreduce", "allgather", "alltoall", "barrier"]
            cuts = (
                cut(arguments, random.choice(needed), hosts, *next(pairs)) for _ in range(few)
            )
            ok &= row("cable cut between 2 of 4 hosts", 6000, cuts, quick)
    else:
        print("| kill -9, 4 ranks of 4 hosts | skipped: only root can make hosts of namespaces |")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
