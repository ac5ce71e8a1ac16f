"""Ranks that print their error and exit at once, as programs do.

Every rank's error must name the rank that caused the fault, not one that exited because of it.
"""

import collections
import itertools
import os
import random
import re
import signal
import time

from mismatches import INVALID_USAGE, names_both_calls
from table import together
from world import Failed, Hosts, World, can_make_hosts

REMOTE_ERROR = 6
DIFFERENCES = (
    "kind",
    "opposite kind",
    "split",
    "order",
    "datatype",
    "op",
    "root",
    "count",
    "count of 0",
)
# Worlds side by side, by number of ranks: most of them wait, also for hosts to be created.
AT_ONCE = {2: 4, 4: 2, 8: 1}
AT_ONCE_ON_HOSTS = {2: 4, 4: 4, 8: 2}
# Precedes the reason in an error text: the function, and the rank's position if a call was running.
POSITION = re.compile(r"nexar\w+: (rank \d+, .+? #\d+: )?")


def blames(fault, culprit, code, text):
    """Whether the error names the culprit and the fault."""
    if fault in DIFFERENCES:
        return code == INVALID_USAGE and names_both_calls(text, str(culprit))
    named = re.match(r"rank (\d+) (.+)", text)
    if code != REMOTE_ERROR or not named or int(named[1]) != culprit:
        return False
    return fault == "kill" or "aborted" in named[2]


def wrong_blames(options, size, fault, hosts=None):
    """Returns the error texts that name another rank or another fault."""
    culprit, how = random.randrange(size), random.choice(["abort", "exit"])
    command = [options.program("quit"), fault, random.randrange(1 << 20), culprit, how]
    with World(size, command, hosts) as world:
        if fault == "kill":
            for rank, line in world.lines().items():
                if line != "ready":
                    raise Failed(f"kill of {size}: rank {rank} began with: {line}")
            time.sleep(random.uniform(0, 0.02))  # anywhere inside a call
            os.kill(world.process_of(culprit), signal.SIGKILL)
        silent = [culprit] if fault in ("kill", "abort") else []
        reporting = [rank for rank in range(size) if rank not in silent]
        wrong = []
        for rank, line in world.lines(reporting).items():
            _, code, called, text = line.split("|", 3)
            if not blames(fault, culprit, int(code), POSITION.sub("", text, count=1)):
                done = f"{fault} by rank {culprit} of {size}, {called}, {how}"
                wrong.append(f"{done}: rank {rank} says {code} {text}")
        return wrong


class Tally:
    """The wrong blames of a row. Prints the first few; the row has only their number."""

    shown_most = 3

    def __init__(self):
        self.by_fault = collections.Counter()

    def count(self, fault, wrong):
        for line in wrong[: max(0, self.shown_most - self.by_fault.total())]:
            print(f"  {line}", flush=True)
        self.by_fault[fault] += len(wrong)
        return [len(wrong)]

    def show(self):
        found = [f"{fault} {count}" for fault, count in self.by_fault.items() if count]
        if found:
            print(f"  wrong blames by fault: {', '.join(found)}", flush=True)


def tries(options, size, faults, on_hosts):
    """A hundred tries of each fault, or a few in all."""
    count = options.repeat(100 * len(faults), quick=2)
    # Tries are spread evenly over the faults.
    drawn = list(itertools.islice(itertools.cycle(faults), count))
    tally = Tally()

    def batch(mine):
        """Runs tries one after another, on the same hosts."""
        if not on_hosts:
            return [(fault, wrong_blames(options, size, fault)) for fault in mine]
        with Hosts(size) as hosts:
            return [(fault, wrong_blames(options, size, fault, hosts)) for fault in mine]

    batches = [drawn[begin : begin + 10] for begin in range(0, count, 10)]
    at_once = (AT_ONCE_ON_HOSTS if on_hosts else AT_ONCE)[size]
    running = together(at_once, [lambda mine=mine: batch(mine) for mine in batches])
    for number, done in enumerate(running, 1):
        for fault, wrong in done:
            yield tally.count(fault, wrong)
        if number % 10 == 0:
            print(f"  {10 * number} of {count} tries", flush=True)
    tally.show()


def add_rows(table, options):
    causes = {"kill -9": ["kill"], "nexarCommAbort": ["abort"], "a mismatch": DIFFERENCES}
    sizes = {False: (2, 4, 8), True: options.tries((2, 4, 8), quick=(4,))}
    places = [(on_hosts, size) for on_hosts in sizes for size in sizes[on_hosts]]
    for cause, (on_hosts, size) in itertools.product(causes, places):
        where = f"{size} hosts" if on_hosts else "one host"
        name = f"exit at once after {cause}, {size} ranks of {where}"
        if on_hosts and not can_make_hosts():
            table.skip(name, "only root can make hosts of namespaces")
        else:
            table.row(name, 0, tries(options, size, causes[cause], on_hosts), "wrong blames")
