"""One rank of four makes another call than the others."""

import re

from world import Failed, World

INVALID_USAGE = 5
TWO_CALLS = re.compile(r"ranks disagree on call #\d: rank (\d) called (.+), rank (\d) called (.+)")
# For blocks of different lengths: a rank sends another length than its receiver expects.
TWO_LENGTHS = re.compile(
    r"ranks disagree on call #\d, .+: rank (\d) sends (\d+) bytes to rank (\d), which expects (\d+)"
)


def names_both_calls(text, odd):
    found = TWO_CALLS.fullmatch(text) or TWO_LENGTHS.fullmatch(text)
    if not found:
        return False
    one, call, other, other_call = found.groups()
    return odd in (one, other) and call != other_call


def cases(options, meeting):
    """Yields for each case the ms of each rank since the last rank's call, and the number of
    texts."""
    step = options.tries(1, quick=12)
    with World(4, [options.program("mismatch"), meeting, step]) as world:
        for of_ranks in zip(*world.outputs(seconds=240), strict=True):
            moments, texts = [], set()
            for rank, line in enumerate(of_ranks):
                case, odd, began, failed, code, memory, text = line.split("|", 6)
                if int(code) != INVALID_USAGE or not names_both_calls(text, odd):
                    raise Failed(f"{case}, rank {odd} was odd: rank {rank} got {code} {text}")
                if memory != "right":
                    raise Failed(f"{case}, rank {odd} was odd: rank {rank} has written elsewhere")
                moments.append((int(began), int(failed)))
                texts.add(text)
            last = max(began for began, _ in moments)
            # The mismatch may be detected before the last rank's call.
            yield [max(0, failed - last) / 1e6 for _, failed in moments], len(texts)


def add_rows(table, options):
    """Adds two rows of times, and one about the texts of both."""
    other_texts = []

    def times(meeting):
        for of_ranks, texts in cases(options, meeting):
            other_texts.append([texts - 1])
            yield of_ranks

    table.row("mismatch, data meets, 4 ranks", 100, times(meeting=1))
    table.row("mismatch, ranks only wait, 4 ranks", 1000, times(meeting=0))
    if other_texts:
        table.row("mismatch: texts that differ from others'", 0, other_texts, unit="texts")
