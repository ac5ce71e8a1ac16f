"""The tables of compare.py, with every point that was asked for."""

import statistics

import peers
import wanted

MPIS, OTHERS = ("openmpi", "mpich"), ("gloo", "nexar")
READING = """
Microseconds are medians of the rounds. A ratio is peer / ours, above 1 ours is faster: the median
of the rounds' ratios, with the smallest and the largest."""


def tables(libraries, options, runs):
    for ranks in options.ranks:
        columns = [key for key in peers.PEERS if key in libraries]
        # MPICH spins, so it is no reference with more ranks than cores.
        rivals, best = (MPIS, "best MPI") if ranks == 2 else (MPIS[:1], "Open MPI")
        titles = ["operation", "size", "ours", *(libraries[key].name for key in columns)]
        titles += [f"{best} / ours", "wanted", "met", "best other / ours", "wanted", "met"]
        yield f"\n## {ranks} ranks\n{READING}\n"
        yield row(titles)
        yield row(["---"] * len(titles))
        verdicts = []
        for operation, size, mine in points(options):
            memalloc = mine == "memalloc"
            place = ranks, operation, size, memalloc
            rounds = by_round(runs, options, ranks, operation, size)
            cells = [operation + memalloc * ", nexarMemAlloc", name(size) if size else ""]
            cells += [median(rounds, key) for key in (mine, *columns)]
            for others, want in (
                (rivals, wanted.of_mpi(*place)),
                (OTHERS, wanted.of_others(*place)),
            ):
                found = ratios(rounds, mine, others)
                judged = verdict(found, want)
                cells += [spread(found), f"{want:.2g}" if want else "", judged]
                verdicts.append(judged)
            yield row(cells)
        yield f"\n{summary(verdicts)}{rounding(ranks)}"


def front_page(libraries, options, runs):
    """A short table of the first number of ranks: what each library takes, without verdicts."""
    keys = ["ours", *(key for key in peers.PEERS if key in libraries)]
    names = ["nexar", *(libraries[key].name for key in keys[1:])]
    yield ""
    yield row(["operation", "size", *names])
    yield row(["---"] * (2 + len(keys)))
    for operation, size, mine in points(options):
        if mine == "ours":
            rounds = by_round(runs, options, options.ranks[0], operation, size)
            took = [median(rounds, key) for key in keys]
            yield row([operation, name(size) if size else "", *took])
    yield ""


def points(options):
    for operation in options.ops:
        for mine in ("ours", "memalloc") if operation == "allreduce" else ("ours",):
            for size in (0,) if operation == "barrier" else options.sizes:
                yield operation, size, mine


def by_round(runs, options, ranks, operation, size):
    """Returns for each round the microseconds by library."""
    return [
        {
            key: took
            for (*place, key), took in runs.items()
            if place == [ranks, number, operation, size]
        }
        for number in range(1, options.rounds + 1)
    ]


def median(rounds, key):
    took = [found[key] for found in rounds if key in found]
    return figure(statistics.median(took)) if took else "-"


def ratios(rounds, mine, others):
    """Returns the ratio of the best other library to ours, for each round that has both."""
    best = [
        (min(found[key] for key in others if key in found), found[mine])
        for found in rounds
        if mine in found and any(key in found for key in others)
    ]
    return [theirs / ours for theirs, ours in best]


def spread(found):
    if not found:
        return "-"
    return f"{figure(statistics.median(found))} ({figure(min(found))}..{figure(max(found))})"


def verdict(found, want):
    if not want:
        return ""
    if not found:
        return "-"
    return "yes" if statistics.median(found) >= want else "**no**"


def summary(verdicts):
    yes, no, unknown = (verdicts.count(word) for word in ("yes", "**no**", "-"))
    return f"Of the wanted ratios {yes} are met, {no} are not, {unknown} were not measured."


def rounding(ranks):
    blocks = " Operations on blocks have at least one element per rank: {} B instead of 8 B."
    return blocks.format(4 * ranks) if ranks > 2 else ""


def failures(libraries, failed):
    if failed:
        yield "\nFailed, and not repeated:\n"
    for (ranks, operation, key), why in failed.items():
        yield f"- {libraries[key].name}, {operation} of {ranks} ranks: {why}"


def row(cells):
    return f"| {' | '.join(cells)} |"


def figure(value):
    """Formats with three significant digits; small values with five decimals."""
    if value < 0.001:
        return f"{value:.5f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def name(size):
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size // factor} {unit}"
    return f"{size} B"
