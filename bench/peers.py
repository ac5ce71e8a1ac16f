"""The libraries that compare.py measures: how each is built and started.

Each has a program with the same arguments: PROGRAM OPERATION SECONDS BYTES... (collectives.h). A
library that cannot be built keeps its column and has a reason.
"""

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parent
BUILD = ROOT / "build"
PROGRAMS = BUILD / "bench"

OPERATIONS = (
    "allreduce",
    "reduce",
    "broadcast",
    "allgather",
    "reducescatter",
    "alltoall",
    "scan",
    "barrier",
)
# Gloo and nexar 0.2.0 do not have them, and a quick run measures them only if they are named.
V_FORMS = ("alltoallv", "gatherv", "scatterv")
MESSAGES = ("roundtrip", "window", "exchange")
# Optimized for this machine, because the peers' headers have code that is compiled here.
FLAGS = ["-O3", "-march=native", "-Wall", "-Wextra", f"-I{ROOT / 'include'}"]


@dataclass
class Library:
    name: str
    version: str = ""
    call: list = field(default_factory=list)  # before the operation; N stands for the ranks
    operations: tuple = OPERATIONS + V_FORMS + MESSAGES
    missing: str = ""  # the reason, if it is not measured


class Missing(Exception):
    """A library cannot be measured here."""


def build(library_directory, names):
    """Builds nexar, nexar with buffers of nexarMemAlloc, and the named peers, in column order."""
    PROGRAMS.mkdir(parents=True, exist_ok=True)
    ours = build_ours(library_directory)
    libraries = {
        "ours": startable(Library("ours", call=[*launcher(), ours])),
        "memalloc": Library(
            "ours, nexarMemAlloc", call=[*launcher(), ours, "--memalloc"], operations=("allreduce",)
        ),
    }
    for name, (title, make) in PEERS.items():
        try:
            if name in names:
                libraries[name] = startable(make(title))
        except Missing as why:
            libraries[name] = Library(title, missing=str(why))
    return libraries


def startable(library):
    if not shutil.which(library.call[0]):
        raise Missing(f"{library.call[0]} is not installed")
    return library


def launcher():
    return [BUILD / "bin" / "nexar-run", "-n", "N"]


def compiled(name, source, compiler, *more):
    if not shutil.which(compiler):
        raise Missing(f"{compiler} is not installed")
    program = PROGRAMS / name
    call = [compiler, *FLAGS, "-o", program, BENCH / source, *more]
    if subprocess.run(call).returncode:
        raise Missing(f"{source} does not compile")
    return program


def build_ours(directory):
    library = directory.resolve() / "libnexar.so"
    if not library.exists():
        raise Missing(f"no {library}: run make build")
    # A copy under the name of the loader, which no build changes between two rounds.
    copy = PROGRAMS / "libnexar.so.0"
    shutil.copyfile(library, copy)
    return compiled("ours", "ours.c", os.environ.get("CC", "cc"), copy, "-Wl,-rpath,$ORIGIN")


def build_open_mpi(title):
    program = compiled("openmpi", "mpi.c", "mpicc.openmpi")
    # --oversubscribe allows more ranks than cores and changes nothing else.
    call = ["mpirun.openmpi", "--oversubscribe", "-n", "N", program]
    return Library(title, debian_version("openmpi-bin"), call)


def build_mpich(title):
    program = compiled("mpich", "mpi.c", "mpicc.mpich")
    return Library(title, debian_version("mpich"), ["mpirun.mpich", "-n", "N", program])


def build_gloo(title):
    if not Path("/usr/include/gloo/allreduce.h").exists():
        raise Missing("the package libgloo-dev is not installed")
    program = compiled("gloo", "gloo.cc", os.environ.get("CXX", "c++"), "-lgloo")
    operations = tuple(name for name in OPERATIONS if name != "scan")
    return Library(title, debian_version("libgloo-dev"), [*launcher(), program], operations)


def build_crate(title):
    # faults.py builds the same package there.
    target = BUILD / "bench-target"
    call = ["cargo", "build", "--release", "--locked", "--quiet", "--bin", "peer-nexar"]
    call += ["--manifest-path", BENCH / "peer-nexar" / "Cargo.toml", "--target-dir", target]
    # Where rustup puts cargo; not every shell has it on its PATH.
    path = f"{os.environ['PATH']}:{Path.home() / '.cargo' / 'bin'}"
    try:
        subprocess.run(call, env=os.environ | {"PATH": path}, check=True)
    except (OSError, subprocess.CalledProcessError):
        raise Missing("the crate does not build") from None
    call = [*launcher(), target / "release" / "peer-nexar"]
    return Library(title, call=call, operations=OPERATIONS)


PEERS = {
    "openmpi": ("Open MPI", build_open_mpi),
    "mpich": ("MPICH", build_mpich),
    "gloo": ("Gloo", build_gloo),
    "nexar": ("nexar 0.2.0", build_crate),
}


def debian_version(package):
    call = ["dpkg-query", "--show", "--showformat=${Version}", package]
    try:
        asked = subprocess.run(call, capture_output=True, text=True)
    except FileNotFoundError:
        return "of unknown version"
    return asked.stdout or "of unknown version"


# -- running -------------------------------------------------------------------------------------


def run(library, ranks, operation, seconds, sizes, timeout):
    """Runs one operation. Returns the microseconds by bytes, and an error text or ""."""
    command = [str(ranks) if word == "N" else str(word) for word in library.call]
    command += [operation, str(seconds), *map(str, sizes)]
    with tempfile.TemporaryDirectory() as store:
        # Without the caller's NEXAR_*, which two of the libraries read. The store is Gloo's
        # rendezvous; Open MPI needs both variables to run as root.
        own = {name: value for name, value in os.environ.items() if not name.startswith("NEXAR_")}
        environment = own | {
            "GLOO_STORE": store,
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }
        child = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            output, complaint = child.communicate(timeout=timeout)
            failure = complaint.strip()[-300:] or "failed" if child.returncode else ""
        except subprocess.TimeoutExpired:
            output, failure = end(child), f"took longer than {timeout:.0f} s"
        except BaseException:
            end(child)
            raise
    return figures(output, operation), " ".join(failure.split())


def end(child):
    """Terminates a launcher, which ends its ranks unless it is killed. Returns its output."""
    child.terminate()
    try:
        return child.communicate(timeout=10)[0]
    except subprocess.TimeoutExpired:
        child.kill()
        return child.communicate()[0]


def figures(output, operation):
    found = {}
    for line in output.splitlines():
        # nexar-run prefixes lines with the rank.
        name, *numbers = line.split("] ")[-1].split(",")
        if name == operation and len(numbers) == 2:
            found[int(numbers[0])] = float(numbers[1])
    return found
