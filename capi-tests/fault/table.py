"""A row for each kind of fault, printed as soon as it is known."""

import os
import platform
import time
from concurrent.futures import ThreadPoolExecutor

from world import Failed


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def together(most, cases):
    """Calls functions, several at a time: for cases in which nearly all wait."""
    with ThreadPoolExecutor(most) as pool:
        running = [pool.submit(case) for case in cases]
        for case in running:
            yield case.result()


class Table:
    def __init__(self, options):
        self.options = options
        self.all_held = True

    def head(self):
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
        print(
            f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, {pages:.0f} GiB, "
            f"Linux {platform.release()}, seed {self.options.seed}\n\n"
            "| fault | tried | p50 | p99 | max | bound | |\n|---|---|---|---|---|---|---|",
            flush=True,
        )

    def wants(self, name):
        return any(word in name for word in self.options.only) or not self.options.only

    def fail(self, name, reason):
        self.all_held = False
        print(f"| {name} | FAILED: {reason} |", flush=True)

    def row(self, name, bound, cases, unit="ms", share=0.99):
        """`cases` gives the values of one try at a time; the 99th percentile of all, or that of another
        share, must be within the bound, unless this is a quick run."""
        if not self.wants(name):
            return
        values, tried = [], 0
        try:
            for case in cases:
                values += case
                tried += 1
        except Failed as reason:
            return self.fail(name, f"after {tried}: {reason}")
        worst = percentile(values, 0.99)
        held = percentile(values, share) <= bound
        self.all_held &= held or self.options.quick
        cells = [f"{value:.0f} {unit}" for value in (percentile(values, 0.5), worst, max(values), bound)]
        print(f"| {name} | {tried} | {' | '.join(cells)} | {'held' if held else 'MISSED'} |", flush=True)
