"""The table: a row for each kind of fault, printed as soon as it is measured."""

import os
import platform
import time
from concurrent.futures import ThreadPoolExecutor

from world import Failed, World

# Around the table on a page.
BEGIN, END = "<!-- by make fault -->", "<!-- end -->"
LINE = "|---|---|---|---|---|---|---|"
# Units whose bounds need many tries. Every other unit is a count.
NEEDS_MANY_TRIES = {"ms", "KiB", "files", "threads"}


def name_of(row):
    return row.split("|")[1].strip()


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def together(most, cases):
    """Yields the results of functions, `most` at a time: for cases that mostly wait."""
    with ThreadPoolExecutor(most) as pool:
        running = [pool.submit(case) for case in cases]
        for case in running:
            yield case.result()


class Table:
    def __init__(self, options):
        self.options = options
        self.all_held = True
        self.rows = []

    def with_way(self, name):
        """The name of a row, with the transport unless it is the default."""
        over = self.options.over
        return name if over == World.over_by_default else f"{name}, over {over}"

    def say(self, row):
        print(row, flush=True)
        self.rows.append(row)

    def put_into(self, page):
        """Replaces the table of a page, or only the measured rows if it is of the same day and
        machine."""
        before, rest = page.read_text().split(BEGIN)
        table, after = rest.split(END)
        head, _, old = table.strip("\n").partition(LINE)
        rows = {}
        if head == self.head():
            rows = {name_of(row): row for row in old.strip("\n").split("\n") if row}
        rows.update((name_of(row), row) for row in self.rows)
        table = "\n".join(rows.values())
        page.write_text(f"{before}{BEGIN}\n{self.head()}{LINE}\n{table}\n{END}{after}")

    def head(self):
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
        system = platform.release().split("-")[0]
        return (
            f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, {memory:.0f} GiB, "
            f"Linux {system}\n\n"
            "| fault | tried | p50 | p99 | max | bound | |\n"
        )

    def wants(self, name):
        return any(word in name for word in self.options.only) or not self.options.only

    def fail(self, name, reason):
        self.all_held = False
        # A row is one line.
        reason = " ".join(str(reason).split()).replace("|", "/")[:300]
        self.say(f"| {self.with_way(name)} | FAILED: {reason} |")

    def skip(self, name, reason):
        if self.wants(name):
            self.all_held &= self.options.quick
            self.say(f"| {name} | skipped: {reason} |")

    def row(self, name, bound, cases, unit="ms"):
        """Measures a row. `cases` yields the values of one try at a time. The 99th percentile of
        times, and all other values, must be within the bound; in a quick run only counts must."""
        if not self.wants(name):
            return
        values, tried = [], 0
        try:
            for case in cases:
                values += case
                tried += 1
        except Failed as reason:
            return self.fail(name, f"after {tried}: {reason}")
        # Unexpected output of a broken rank must not prevent the other rows.
        except Exception as surprise:
            return self.fail(name, f"after {tried}: {type(surprise).__name__}: {surprise}")
        if not values:
            return self.fail(name, "nothing was measured")
        worst = percentile(values, 0.99)
        held = (worst if unit == "ms" else max(values)) <= bound
        self.all_held &= held or (self.options.quick and unit in NEEDS_MANY_TRIES)
        numbers = (percentile(values, 0.5), worst, max(values), bound)
        cells = [f"{number:.0f} {unit}" for number in numbers]
        name = self.with_way(name)
        self.say(f"| {name} | {tried} | {' | '.join(cells)} | {'held' if held else 'MISSED'} |")
