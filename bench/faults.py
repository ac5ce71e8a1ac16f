#!/usr/bin/env python3
"""The errors of ranks after a fault, and their times: nexar, Gloo and the crate nexar 0.2.0.

Each case is a world of four processes on this host that call all-reduce, all at default settings:

    kill, leave   kill -9 of one rank; a rank that gets an error exits
    kill, stay    the same, but a rank that gets an error stays: each must detect the fault itself
    stop          SIGSTOP of one rank; a rank that gets an error exits
    fewer, more   a tenth fewer or more elements on rank 1
    type          float32 on rank 1, int32 on the others
    operator      max on rank 1, sum on the others
    root          broadcast: rank 0 passes root 1, the others root 0

Prints one markdown table: times are from the fault to the error of each rank that got one; "late"
is after 10 s or more. Libraries take turns. One world at a time is started, harmed and watched for
its first seconds; worlds that only wait run beside it.

A rank is `PROGRAM none|fewer|more|type|operator|root COUNT leave|stay`, with NEXAR_RANK,
NEXAR_NRANKS and NEXAR_COMM_ID. It prints `ready TIME` after the first call of all ranks, and at the
end `TIME CODE TEXT`. Times are nanoseconds of CLOCK_MONOTONIC. Code 0 is a call that succeeded
although the ranks disagreed; its text is "right numbers" if the result is right for this rank's
call, else "wrong numbers".
"""

import argparse
import concurrent.futures
import contextlib
import os
import re
import secrets
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parent
TARGET = ROOT / "build" / "bench-target"

SIZE = 4
START = 60  # seconds until all ranks must have completed their first call
WATCHED = 2  # seconds for which a harmed world is alone
BESIDE = 16  # worlds at a time, all but one of them waiting
LATE = 10_000  # ms

# Case: the fault of the ranks, their behaviour after an error, signal.
FAULTS = {
    "kill, leave": ("none", "leave", signal.SIGKILL),
    "kill, stay": ("none", "stay", signal.SIGKILL),
    "stop": ("none", "leave", signal.SIGSTOP),
    **{name: (name, "stay", None) for name in ("fewer", "more", "type", "operator", "root")},
}
TITLES = {
    "kill, leave": "kill -9, ranks with an error exit",
    "kill, stay": "kill -9, ranks with an error stay",
    "stop": "SIGSTOP",
    "fewer": "fewer elements on one rank",
    "more": "more elements on one rank",
    "type": "int32 and float32",
    "operator": "sum and max",
    "root": "crossed roots of a broadcast",
}


def main():
    options = parse()
    ours, gloo, crate = build_ours(options.build), build_gloo(), build_crate()
    programs = {"ours": ours, "Gloo": gloo, "nexar 0.2.0": crate}
    libraries = [name for name, program in programs.items() if isinstance(program, Path)]
    tries = {signal.SIGKILL: options.kills, signal.SIGSTOP: options.stops}
    cases = []
    for fault in options.faults:
        turns = range(tries.get(FAULTS[fault][2], options.mismatches))
        cases += [(fault, turn, name) for turn in turns for name in libraries]

    print(f"{SIZE} processes, {os.cpu_count()} cores; Gloo {gloo_version()}", end="; ", flush=True)
    load = os.getloadavg()[0]
    ends = try_all(cases, programs, options.limit)
    print(f"load before {load:.1f}, after {os.getloadavg()[0]:.1f}\n")
    table(options, programs, libraries, ends)
    texts(options.faults, libraries, ends)


def try_all(cases, programs, limit):
    """Returns the ends of all cases by fault and library."""
    alone = threading.Lock()
    ends = {}
    with concurrent.futures.ThreadPoolExecutor(BESIDE) as pool:
        running = {
            pool.submit(try_one, programs[name], fault, turn, limit, alone): (fault, name)
            for fault, turn, name in cases
        }
        try:
            for number, future in enumerate(concurrent.futures.as_completed(running), 1):
                ends.setdefault(running[future], []).append(future.result())
                print(f"{number} of {len(cases)}", end="\r", flush=True, file=sys.stderr)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return ends


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--build", type=Path, default=ROOT / "build", help="its lib/libnexar.so is measured (build)"
    )
    parser.add_argument("--kills", type=int, default=20, help="of each library (20)")
    parser.add_argument("--stops", type=int, default=5, help="(5)")
    parser.add_argument("--mismatches", type=int, default=3, help="of each kind (3)")
    parser.add_argument("--limit", type=float, default=60, help="seconds until it is a hang (60)")
    parser.add_argument("--faults", nargs="+", choices=FAULTS, default=list(FAULTS), help="(all)")
    return parser.parse_args()


# -- building ------------------------------------------------------------------------------------


def build_ours(build):
    library = build.resolve() / "lib" / "libnexar.so"
    if not library.exists():
        sys.exit(f"no {library}: run make build")
    TARGET.mkdir(parents=True, exist_ok=True)
    # A copy under the name of the loader, which no build changes between two cases.
    copy = TARGET / "libnexar.so.0"
    shutil.copyfile(library, copy)
    program = TARGET / "faults-ours"
    call = [os.environ.get("CC", "cc"), "-O2", "-Wall", "-Wextra", "-o", program]
    call += [BENCH / "faults" / "ours.c", f"-I{ROOT / 'include'}", copy, "-Wl,-rpath,$ORIGIN"]
    subprocess.run(call, check=True)
    return program


def build_gloo():
    """Returns the program, or a text if it cannot be built."""
    if not Path("/usr/include/gloo/allreduce.h").exists():
        return "not installed: apt install libgloo-dev"
    program = TARGET / "faults-gloo"
    call = [os.environ.get("CXX", "c++"), "-O2", "-Wall", "-Wextra", "-o", program]
    subprocess.run([*call, BENCH / "faults" / "gloo.cc", "-lgloo"], check=True)
    return program


def gloo_version():
    """Returns the version of the Debian package: Gloo's own version has not changed for years."""
    call = ["dpkg-query", "--show", "--showformat=${Version}", "libgloo-dev"]
    try:
        asked = subprocess.run(call, capture_output=True, text=True)
    except FileNotFoundError:
        return "of unknown version"
    return asked.stdout or "of unknown version"


def build_crate():
    call = ["cargo", "build", "--release", "--locked", "--quiet"]
    call += ["--manifest-path", BENCH / "peer-nexar" / "Cargo.toml", "--target-dir", TARGET]
    # Where rustup puts cargo; not every shell has it on its PATH.
    path = f"{os.environ['PATH']}:{Path.home() / '.cargo' / 'bin'}"
    subprocess.run(call, check=True, env=os.environ | {"PATH": path})
    return TARGET / "release" / "faults"


# -- one world -----------------------------------------------------------------------------------


class World:
    """The processes of one case. Their output goes to files, so no pipe can fill up."""

    def __init__(self, program, fault, count, ending):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
            free.bind(("127.0.0.1", 0))
            address = "127.0.0.1:%d" % free.getsockname()[1]
        self.place = tempfile.TemporaryDirectory()
        store = Path(self.place.name) / "store"
        store.mkdir()
        # Without the caller's NEXAR_*, which two of the libraries read.
        own = {name: value for name, value in os.environ.items() if not name.startswith("NEXAR_")}
        shared = own | {
            "NEXAR_NRANKS": str(SIZE),
            "NEXAR_COMM_ID": address,
            "NEXAR_COMM_SECRET": secrets.token_hex(16),
            "FAULTS_STORE": str(store),
        }
        self.processes = []
        for rank in range(SIZE):
            with open(self.file("out", rank), "w") as out, open(self.file("err", rank), "w") as err:
                process = subprocess.Popen(
                    [program, fault, str(count), ending],
                    env=shared | {"NEXAR_RANK": str(rank)},
                    stdout=out,
                    stderr=err,
                )
            self.processes.append(process)

    def file(self, kind, rank):
        return Path(self.place.name) / f"{kind}{rank}"

    def crash(self, rank):
        """Describes a rank that exited without its last line."""
        complaint = " ".join(self.file("err", rank).read_text(errors="replace").split())
        return f"ended with {self.processes[rank].returncode}: {complaint}"

    def lines(self, ranks, wanted, deadline):
        """Returns the first wanted line of each of these ranks: None for a rank that exited without
        it, no entry for a rank that did not print it in time."""
        found = {}
        while True:
            late = time.monotonic() > deadline
            for rank in set(ranks) - set(found):
                ended = self.processes[rank].poll() is not None
                lines = self.file("out", rank).read_text().split("\n")[:-1]
                line = next(filter(wanted, lines), None)
                if line or ended:
                    found[rank] = line
            if late or len(found) == len(ranks):
                return found
            time.sleep(0.02)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()
        self.place.cleanup()


def is_ready(line):
    return line.startswith("ready ")


def is_end(line):
    return not is_ready(line)


def try_one(program, fault, turn, limit, alone):
    """Returns how the case ended for each rank. Equal turns are equal cases for all libraries."""
    harm, ending, signal_ = FAULTS[fault]
    if signal_:
        count, culprit = (2, 1000, 100_000)[turn % 3], turn % SIZE
        watching = [rank for rank in range(SIZE) if rank != culprit]
    else:
        count, culprit = (10, 1000, 100_000)[turn % 3], 0 if fault == "root" else 1
        watching = list(range(SIZE))
    with contextlib.ExitStack() as stack:
        with alone:
            world = stack.enter_context(World(program, harm, count, ending))
            begin = world.lines(range(SIZE), bool, time.monotonic() + START)
            ready = {rank: line for rank, line in begin.items() if line and is_ready(line)}
            # A rank may get the error of a disagreement in its first call, before its ready line.
            printed = [rank for rank, line in begin.items() if line]
            if len(ready) < (SIZE if signal_ else 1) or len(printed) < SIZE:
                return [{"what": "did not start", "text": str(begin)}]
            if signal_:
                time.sleep(0.01 * (turn % 5))  # anywhere inside a call
                began = time.monotonic_ns()
                world.processes[culprit].send_signal(signal_)
            else:
                began = min(int(line.split()[1]) for line in ready.values())  # the first call
            world.lines(watching, is_end, time.monotonic() + WATCHED)
        lines = world.lines(watching, is_end, began / 1e9 + limit)
        ends = [judge(world, lines, rank, began, culprit) for rank in watching]
        return [end | {"before": rank not in ready} for rank, end in zip(watching, ends)]


def judge(world, lines, rank, began, culprit):
    if rank not in lines:
        return {"what": "hang", "text": ""}
    if lines[rank] is None:
        return {"what": "crash", "text": world.crash(rank)}
    moment, code, text = lines[rank].split(" ", 2)
    if code == "0" or text.startswith("wrong numbers"):
        return {"what": " ".join(text.split()[:2]), "text": ""}
    named = {int(other) for other in re.findall(r"\b(?:rank|peer) (\d+)", text)}
    ms = (int(moment) - began) / 1e6
    names = "the rank" if culprit in named else "another" if named else "none"
    what = "error" if ms >= 0 else "early"
    return {"what": what, "ms": ms, "text": text, "names": names}


# -- reporting -----------------------------------------------------------------------------------


def table(options, programs, libraries, ends):
    print("| fault | library | tried | p50 ms | max ms | what happened |")
    print("|---|---|---|---|---|---|")
    for fault in options.faults:
        for name, program in programs.items():
            if worlds := ends.get((fault, name)):
                print(row(fault, name, worlds, options.limit))
            else:
                why = program if name not in libraries else "not tried"
                print(f"| {TITLES[fault]} | {name} | 0 | - | - | {why} |")


def texts(faults, libraries, ends):
    print("\nThe two most frequent texts of each row:\n")
    for fault in faults:
        for name in libraries:
            found = [end["text"] for world in ends.get((fault, name), []) for end in world]
            for text, times in Counter(map(alike, filter(None, found))).most_common(2):
                print(f"- {TITLES[fault]}, {name}, {times} times: `{text[:250]}`")


def alike(text):
    """Removes the numbers in which otherwise equal texts differ."""
    return re.sub(r"(\]:|#)\d+", r"\1N", text)


def row(fault, name, worlds, limit):
    ends = [end for world in worlds for end in world]
    kinds = Counter(end["what"] for end in ends)
    errors = [end for end in ends if end["what"] == "error"]
    cells = []
    if errors:
        names = Counter(end["names"] for end in errors).most_common()
        named = ", ".join(f"{culprit} in {times}" for culprit, times in names)
        late = sum(end["ms"] >= LATE for end in errors)
        cells.append(f"error on {len(errors)} of {len(ends)}, late on {late}, names {named}")
        if before := sum(end["before"] for end in errors):
            cells.append(f"{before} of these in the previous call")
    for what, text in (
        ("early", "error before the fault"),
        ("hang", f"hang past {limit:.0f} s"),
        ("wrong numbers", "no error, wrong numbers"),
        ("right numbers", "no error, right numbers"),
        ("crash", "crash"),
        ("did not start", "world did not start"),
    ):
        if kinds[what]:
            cells.append(f"{text} on {kinds[what]} of {len(ends)}")
    times = [end["ms"] for end in errors]
    figures = f"{statistics.median(times):.1f} | {max(times):.1f}" if times else "- | -"
    return f"| {TITLES[fault]} | {name} | {len(worlds)} | {figures} | {'; '.join(cells)} |"


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(f"the build failed: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
