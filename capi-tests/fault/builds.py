"""Ranks that run different builds of nexar: all fail at once, with both builds named."""

import os
import random
import re
import shutil
import subprocess
from pathlib import Path

from joins import INVALID_USAGE, numbered, refused
from world import Failed

SOURCE = Path(__file__).parents[2]
# A constant of the shared memory that ranks do not exchange, and another value for it.
CHANGED = "src/transport/host.rs", r"(EPOCHS_OF_MANY: usize = )8;", r"\g<1>7;"
RANKS = 4


def other_build(options):
    """Builds this source with one constant changed. Returns the directory of the library."""
    scratch = options.programs.parent.resolve() / "other-build"
    source = scratch / "source"
    shutil.rmtree(source, ignore_errors=True)
    unneeded = shutil.ignore_patterns("target", "build", ".git", "fuzz")
    # Copying keeps modification times, so that a later run builds only changed files.
    shutil.copytree(SOURCE, source, ignore=unneeded)
    path, pattern, replacement = CHANGED
    text, count = re.subn(pattern, replacement, (source / path).read_text())
    if count != 1:
        raise Failed(f"{path} has {count} matches of {pattern}")
    (source / path).write_text(text)
    command = ["cargo", "build", "--quiet", "--release", "--locked", "--lib"]
    subprocess.run([*command, "--target-dir", scratch / "target"], cwd=source, check=True)
    library = scratch / "lib"
    library.mkdir(exist_ok=True)
    shutil.copy2(scratch / "target/release/libnexar.so", library / "libnexar.so.0")
    return library


def mixed(options, library, others):
    """Some ranks run the other build. Each error must name one of them and both builds."""
    own = numbered(range(RANKS), RANKS)
    for rank in others:
        path = os.pathsep.join([str(library), os.environ.get("LD_LIBRARY_PATH", "")])
        own[rank]["LD_LIBRARY_PATH"] = path.rstrip(os.pathsep)
    words = [" runs nexar ", "rank 0 runs nexar ", "install one build on all hosts"]
    return refused(options, (INVALID_USAGE, words), own)


def cases(options):
    library = other_build(options)
    for _ in range(options.tries(100, quick=2)):
        others = random.sample(range(RANKS), random.randrange(1, RANKS))
        yield mixed(options, library, others)


def add_rows(table, options):
    name = f"two builds of nexar among {RANKS} ranks: refused"
    if options.quick and not options.only:
        return table.skip(name, "a quick run builds nothing")
    table.row(name, 1000, cases(options))
