"""The charts of compare.py as SVG: for each operation its time and its bus bandwidth by size.

Both axes are logarithmic. Bus bandwidth is the bytes that each rank must move at least per second:
size times a factor of the operation, so that different operations and numbers of ranks are
comparable.
"""

import math
import statistics

from report import name

WIDTH, HEIGHT = 400, 190  # of a panel's plot
LEFT, TOP, GAP, BELOW = 80, 90, 90, 60  # around it
# A palette for colour-blind readers too (Okabe and Ito).
COLOURS = {
    "ours": "#d55e00",
    "memalloc": "#d55e00",
    "openmpi": "#0072b2",
    "mpich": "#56b4e9",
    "gloo": "#009e73",
    "nexar": "#7f7f7f",
}


def svg(libraries, options, runs, ranks):
    operations = [operation for operation in options.ops if operation != "barrier"]
    lines = {operation: curves(runs, ranks, operation) for operation in operations}
    drawn = [key for key in libraries if any(key in found for found in lines.values())]
    across = 2 * (LEFT + WIDTH) + GAP
    down = TOP + len(operations) * (HEIGHT + BELOW)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {across} {down}" '
        f'width="{across}" height="{down}" font-family="sans-serif" font-size="12">',
        f'<rect width="{across}" height="{down}" fill="white"/>',
        text(LEFT, 28, f"Collectives of {ranks} ranks on one host, medians", "start", 16),
    ]
    for number, key in enumerate(drawn):
        x = LEFT + 165 * number
        parts.append(curve(key, [(x, 52), (x + 24, 52)]))
        parts.append(text(x + 30, 56, libraries[key].name, "start"))
    for number, operation in enumerate(operations):
        top = TOP + number * (HEIGHT + BELOW)
        times = lines[operation]
        buses = {
            key: [(size, size * factor(operation, ranks) / took / 1e3) for size, took in points]
            for key, points in times.items()
        }
        parts += panel(LEFT, top, f"{operation}, time", times, duration)
        parts += panel(LEFT + WIDTH + GAP, top, f"{operation}, bus bandwidth", buses, bandwidth)
    return "\n".join([*parts, "</svg>\n"])


def curves(runs, ranks, operation):
    """Returns medians by library: points of bytes and microseconds."""
    found = {}
    for (many, _, what, size, key), took in runs.items():
        if (many, what) == (ranks, operation) and size:
            found.setdefault(key, {}).setdefault(size, []).append(took)
    return {
        key: [(size, statistics.median(took)) for size, took in sorted(sizes.items())]
        for key, sizes in found.items()
    }


def factor(operation, ranks):
    others = (ranks - 1) / ranks
    return {
        "allreduce": 2 * others,
        "allgather": others,
        "reducescatter": others,
        **dict.fromkeys(("alltoall", "alltoallv", "gatherv", "scatterv"), others),
    }.get(operation, 1)


def panel(left, top, title, lines, unit):
    """Returns a frame, a grid with labels, and the lines."""
    points = [point for line in lines.values() for point in line]
    parts = [
        text(left, top - 8, title, "start", 13),
        f'<rect x="{left}" y="{top}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#999"/>',
    ]
    if not points:
        return [*parts, text(left + WIDTH / 2, top + HEIGHT / 2, "not measured", "middle")]
    sizes = sorted({size for size, _ in points})
    low = math.floor(math.log10(min(value for _, value in points)))
    high = math.ceil(math.log10(max(value for _, value in points)))
    across = scale(math.log10(sizes[0]), math.log10(sizes[-1]), left, left + WIDTH)
    up = scale(low, high, top + HEIGHT, top)
    for size in sizes:
        x = across(math.log10(size))
        parts.append(grid(x, top, x, top + HEIGHT))
        parts.append(text(x, top + HEIGHT + 16, name(size), "middle"))
    for decade in range(low, high + 1):
        y = up(decade)
        parts.append(grid(left, y, left + WIDTH, y))
        parts.append(text(left - 6, y + 4, unit(decade), "end"))
    for key, line in lines.items():
        parts.append(curve(key, [(across(math.log10(x)), up(math.log10(y))) for x, y in line]))
    return parts


def scale(low, high, begin, end):
    span = high - low or 1
    return lambda value: begin + (value - low) / span * (end - begin)


def duration(decade):
    """10^decade microseconds."""
    for unit, least in (("s", 6), ("ms", 3), ("µs", 0)):
        if decade >= least:
            return f"{10 ** (decade - least)} {unit}"
    return f"{10 ** (decade + 3)} ns"


def bandwidth(decade):
    """10^decade GB/s."""
    for unit, least in (("GB/s", 0), ("MB/s", -3), ("kB/s", -6)):
        if decade >= least:
            return f"{10 ** (decade - least)} {unit}"
    return f"{10 ** (decade + 9)} B/s"


def curve(key, points):
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashes = ' stroke-dasharray="5 4"' if key == "memalloc" else ""
    wide = 2.5 if key in ("ours", "memalloc") else 1.5
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{wide}"/>' for x, y in points)
    line = f'<polyline points="{path}" fill="none" stroke-width="{wide}"{dashes}/>'
    return f'<g stroke="{COLOURS[key]}" fill="{COLOURS[key]}">{line}{dots}</g>'


def grid(x, y, to_x, to_y):
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" stroke="#ddd"/>'


def text(x, y, words, anchor, size=12):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{words}</text>'
