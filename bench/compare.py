#!/usr/bin/env python3
"""Compares the speed of our all-reduce with that of the crate nexar 0.2.0, QUIC against QUIC.

Each round runs the peer, then ours, each as fresh processes on this host's loopback: what disturbs
the machine disturbs both. Every size is checked for a right sum, warmed up, then timed in batches;
a run reports the median batch, the table the median run. All-reduce, float32, sum, in place.
"""

import argparse
import csv
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parent
BUILD = ROOT / "build"

READING = """\
how to read it:
  ratio is peer / ours: above 1, ours is faster. It is the median of the rounds' ratios, with the
  smallest and the largest behind it; only neighbouring runs are ever divided. GB/s is bytes of the
  buffer per second of ours. On a shared machine with two cores the same cell varies twofold from
  run to run: believe no single run, no difference that the spread covers, and no absolute time.
"""

# bytes, warm-up, batches, iterations of a batch: about two seconds of the slower side at most,
# but for the last.
PLANS = [
    (8, 200, 9, 300),
    (1 << 10, 100, 9, 200),
    (64 << 10, 50, 9, 100),
    (1 << 20, 10, 9, 10),
    (16 << 20, 2, 5, 3),
    (128 << 20, 1, 3, 1),
]
QUICK_BYTES = 16 << 20


def main():
    options = parse()
    library = find_library(options.lib)
    plans = [plan for plan in PLANS if not options.quick or plan[0] <= QUICK_BYTES]
    rounds = options.rounds or (3 if options.quick else 5)
    peer, ours = build_peer(), build_ours(library)
    print(f"all-reduce of {options.ranks} processes, {rounds} rounds")
    print(f"peer: nexar 0.2.0, QUIC only, called from a {options.peer}; ours: {library}")

    sides = [
        ("peer", lambda port: start_peer(peer, options.peer, options.ranks, port, plans)),
        ("ours", lambda port: start_ours(ours, options.ranks, port, plans)),
    ]
    rows = []  # round, side, bytes, microseconds
    for number in range(1, rounds + 1):
        for side, start in sides:
            print(f"round {number} of {rounds}: {side}", end="\r", flush=True, file=sys.stderr)
            measured = run(side, start, plans, options.timeout)
            rows += [(number, side, size, took) for size, took in measured.items()]
    print(" " * 40, end="\r", file=sys.stderr)

    write_csv(options.csv, options.ranks, rows)
    print_table(plans, rows)
    print(f"every run: {options.csv}")


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=READING, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-n", "--ranks", type=int, default=2, help="processes per run (2)")
    parser.add_argument("--rounds", type=int, help="runs of each side (5)")
    parser.add_argument("--quick", action="store_true", help="3 rounds, sizes up to 16 MiB")
    parser.add_argument(
        "--peer",
        choices=["task", "thread"],
        default="task",
        help="call the peer from a task of its runtime, its best case, or from the program's own "
        "thread, as ours is called (task)",
    )
    parser.add_argument("--timeout", type=float, default=180, help="seconds per run (180)")
    parser.add_argument(
        "--lib", type=Path, help="directory of libnexar.so (build/lib, or else target/release)"
    )
    parser.add_argument("--csv", type=Path, default=BUILD / "bench.csv", help="(build/bench.csv)")
    options = parser.parse_args()
    if options.ranks < 2 or (options.rounds is not None and options.rounds < 1):
        parser.error("at least 2 ranks and 1 round")
    return options


# -- building ------------------------------------------------------------------------------------


def find_library(given):
    places = [given] if given else [BUILD / "lib", ROOT / "target" / "release"]
    for place in places:
        library = place.resolve() / "libnexar.so"
        if library.exists():
            warn_if_old(library, given)
            return library
    sys.exit("no libnexar.so in " + " or ".join(map(str, places)) + ": run make build")


def warn_if_old(library, given):
    newest = max(source.stat().st_mtime for source in (ROOT / "src").rglob("*.rs"))
    if not given and newest > library.stat().st_mtime:
        print(f"warning: {library} is older than src/: run make build", file=sys.stderr)


def build_ours(library):
    program = BUILD / "bench-target" / "ours"
    program.parent.mkdir(parents=True, exist_ok=True)
    # A copy under the name the loader looks for: nobody's build changes it between two rounds.
    copy = program.with_name("libnexar.so.0")
    shutil.copyfile(library, copy)
    call = [os.environ.get("CC", "cc"), "-O2", "-Wall", "-Wextra", "-o", program, BENCH / "ours.c"]
    call += [f"-I{ROOT / 'include'}", copy, "-Wl,-rpath,$ORIGIN"]
    subprocess.run(call, check=True)
    return program


def build_peer():
    target = BUILD / "bench-target"
    call = ["cargo", "build", "--release", "--locked", "--quiet"]
    call += ["--manifest-path", BENCH / "peer-nexar" / "Cargo.toml", "--target-dir", target]
    # Where rustup puts cargo; not every shell has it on its PATH.
    path = f"{os.environ['PATH']}:{Path.home() / '.cargo' / 'bin'}"
    subprocess.run(call, check=True, env=os.environ | {"PATH": path})
    return target / "release" / "peer-nexar"


# -- running -------------------------------------------------------------------------------------


def environment(**more):
    """The user's environment, less NEXAR_*: both libraries read these names."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("NEXAR_")}
    return own | more


def start_peer(program, caller, ranks, port, plans):
    settings = environment(NEXAR_ENABLE_TCP_BULK_SIDECAR="0")
    for rank in range(ranks):
        place = [caller, str(rank), str(ranks), f"127.0.0.1:{port}"]
        yield [program, *place, *arguments(plans)], settings


def start_ours(program, ranks, port, plans):
    for rank in range(ranks):
        settings = environment(
            NEXAR_RANK=str(rank),
            NEXAR_NRANKS=str(ranks),
            NEXAR_COMM_ID=f"127.0.0.1:{port}",
            NEXAR_COMM_SECRET="a secret for the comparison",
        )
        yield [program, *arguments(plans)], settings


def arguments(plans):
    return [":".join(map(str, plan)) for plan in plans]


def run(side, start, plans, timeout):
    """One run: its processes, ended by us if need be; microseconds by size."""
    with tempfile.TemporaryDirectory() as place:
        children, failure = [], None
        try:
            for call, settings in start(free_port()):
                output = Path(place) / str(len(children))
                with output.open("w") as file:
                    children.append(
                        subprocess.Popen(call, env=settings, stdout=file, stderr=subprocess.STDOUT)
                    )
            failure = wait(children, time.monotonic() + timeout)
        finally:
            for child in children:
                child.kill()
                child.wait()
        outputs = [path.read_text() for path in sorted(Path(place).iterdir())]
    if failure:
        sys.exit(f"{side}: {failure}\n" + "\n".join(outputs))
    measured = {}
    for line in outputs[0].splitlines():
        size, took = line.split()
        measured[int(size)] = float(took)
    if list(measured) != [plan[0] for plan in plans]:
        sys.exit(f"{side}: not what was asked for:\n{outputs[0]}")
    return measured


def wait(children, deadline):
    """Until all have ended well; else what happened."""
    while True:
        codes = [child.poll() for child in children]
        for rank, code in enumerate(codes):
            if code:
                return f"rank {rank} ended with {code}"
        if None not in codes:
            return None
        if time.monotonic() > deadline:
            return "the run took too long"
        time.sleep(0.02)


def free_port():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# -- reporting -----------------------------------------------------------------------------------


def write_csv(path, ranks, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["ranks", "round", "side", "bytes", "microseconds"])
        table.writerows((ranks, *row) for row in rows)


def print_table(plans, rows):
    print(f"{'size':>8} {'peer us':>12} {'ours us':>12} {'ratio':>7}  {'spread':<13} {'GB/s':>6}")
    for size, *_ in plans:
        took = {
            side: {number: us for number, who, bytes_, us in rows if (who, bytes_) == (side, size)}
            for side in ("peer", "ours")
        }
        peer, ours = (statistics.median(took[side].values()) for side in ("peer", "ours"))
        ratios = [took["peer"][number] / us for number, us in took["ours"].items()]
        spread = f"{min(ratios):.2f}..{max(ratios):.2f}"
        print(
            f"{name(size):>8} {peer:12.1f} {ours:12.1f} {statistics.median(ratios):7.2f}"
            f"  {spread:<13} {size / ours / 1e3:6.3f}"
        )


def name(size):
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size // factor} {unit}"
    return f"{size} B"


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(f"the build failed: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
