"""Ranks as processes, on this host or on hosts that are network namespaces."""

import itertools
import os
import random
import secrets
import selectors
import shutil
import signal
import socket
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

DEADLINE = 100  # seconds for one case, after which it hangs
TICK = 0.5  # seconds; the time in which a machine is suspended counts as one tick


class Failed(Exception):
    """A try failed, other than by its time."""


class Hosts:
    """Hosts: namespaces of network and processes, connected by a bridge. Needs root."""

    made = itertools.count()

    def __init__(self, count):
        number = f"{os.getpid() % 100000}n{next(Hosts.made)}"
        self.names = [f"nexar-{number}-{i}" for i in range(count)]
        self.bridge = f"nxb{number}"
        run("ip", "link", "add", self.bridge, "type", "bridge")
        run("ip", "link", "set", self.bridge, "up")
        for i, name in enumerate(self.names):
            cable = f"nx{number}c{i}"
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
        """Cuts the cable between two hosts; with "del" repairs it."""
        for a, b in ((one, other), (other, one)):
            run("ip", "-n", self.names[a], "route", action, "blackhole", f"10.78.0.{b + 1}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for name in self.names:
            run("ip", "netns", "del", name, check=False)
        run("ip", "link", "del", self.bridge, check=False)


def can_make_hosts():
    return os.geteuid() == 0 and shutil.which("ip") and shutil.which("unshare")


def run(*command, check=True):
    subprocess.run(command, check=check, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


# Never the same port twice, because a process of the case before may still hold its port; and no
# ephemeral port, because the system may give it to a rank of another world at the same time.
PORTS = itertools.count(random.randrange(12000, 28000))


def free_address(hosts=None):
    if hosts:
        return f"10.78.0.1:{next(PORTS)}"
    return f"127.0.0.1:{free_port()}"


# A starting process holds a copy of every socket until its exec, and so its port.
STARTING = threading.Lock()


def free_port():
    while True:
        with STARTING, socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as free:
            port = next(PORTS)
            try:
                free.bind(("::", port))
                return port
            except OSError:
                continue


# Transports of a case: shared memory, QUIC alone, or shared memory between every second rank.
WAYS = {
    "memory": lambda rank: {},
    "QUIC": lambda rank: {"NEXAR_SHM_DISABLE": "1"},
    "both": lambda rank: {"NEXAR_HOSTID": str(rank % 2)},
}


class World:
    """The ranks of one case: processes of one program with the same arguments. `own`: settings of
    each process."""

    over_by_default = over = "memory"

    def __init__(self, size, command, hosts=None, settings=(), own=None):
        self.size = size
        self.settings = {
            "NEXAR_NRANKS": str(size),
            "NEXAR_COMM_ID": free_address(hosts),
            "NEXAR_COMM_SECRET": secrets.token_hex(32),
            **dict(settings),
        }
        shared = {**os.environ, **self.settings}
        self.ranks = []
        wrapper = hosts.command if hosts else lambda rank: []
        for rank in range(size):
            with STARTING:
                process = subprocess.Popen(
                    wrapper(rank) + [str(word) for word in command],
                    env={
                        **shared,
                        "NEXAR_RANK": str(rank),
                        **WAYS[self.over](rank),
                        **(own[rank] if own else {}),
                    },
                    stdout=subprocess.PIPE,
                    # The tools that create namespaces print spurious messages about signals.
                    stderr=subprocess.DEVNULL if hosts else None,
                    start_new_session=True,
                    text=True,
                )
            self.ranks.append(process)

    def lines(self, ranks=None, seconds=DEADLINE):
        """Returns the next line of each of these ranks, or of all."""
        ranks = range(self.size) if ranks is None else ranks
        found, silent = {}, 0
        with selectors.DefaultSelector() as selector:
            for rank in ranks:
                selector.register(self.ranks[rank].stdout, selectors.EVENT_READ, rank)
            while len(found) < len(ranks):
                ready = selector.select(TICK)
                silent += 0 if ready else TICK
                if silent >= seconds:
                    missing = sorted(set(ranks) - set(found))
                    said = "".join(f"; rank {rank} said {line}" for rank, line in found.items())
                    raise Failed(f"ranks {missing} said nothing for {seconds} s{said}")
                for key, _ in ready:
                    found[key.data] = key.fileobj.readline().strip()
                    if not found[key.data]:
                        raise Failed(f"rank {key.data} ended without a word")
                    selector.unregister(key.fileobj)
        return found

    def outputs(self, seconds=DEADLINE):
        """Returns all lines of each rank after it has ended. Each must exit with 0."""

        def output(rank):
            process = self.ranks[rank]
            try:
                text, _ = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                raise Failed(f"rank {rank} has not ended after {seconds} s") from None
            if process.returncode != 0:
                raise Failed(f"rank {rank} ended with {process.returncode}")
            return text.splitlines()

        with ThreadPoolExecutor(self.size) as pool:
            return list(pool.map(output, range(self.size)))

    def process_of(self, rank):
        """Returns the id of the rank's process, which a PID namespace makes a descendant of
        ours."""
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
