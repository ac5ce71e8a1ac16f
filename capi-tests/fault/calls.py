"""Calls that end communicators, invalid handles, forked children, and repeated initialization."""

import functools
import shutil
import subprocess

from world import Failed, World

INVALID_ARGUMENT, INVALID_USAGE, REMOTE_ERROR = 4, 5, 6
# As the target valgrind of the Makefile.
MEMCHECK = (
    "--quiet --error-exitcode=1 --leak-check=full --show-leak-kinds=definite "
    "--errors-for-leak-kinds=definite"
).split()


def leaves(options, how, own_code, code):
    """Yields for each try the time of the leaving rank, the times of the others, and the errors
    that name another rank than the leaving one."""
    tries = options.tries(104, quick=8)
    with World(4, [options.program("leave"), how, tries]) as world:
        for of_ranks in zip(*world.outputs(), strict=True):
            lines = [line.split("|", 4) for line in of_ranks]
            leaver = int(lines[0][0])
            if int(lines[leaver][3]) == INVALID_ARGUMENT:
                continue  # its call came after its abort and got an invalid handle
            last_began = max(int(began) for _, began, *_ in lines)
            own, others, strange = 0, [], []
            for rank, (_, began, ended, got, text) in enumerate(lines):
                if int(got) != (own_code if rank == leaver else code):
                    raise Failed(f"{how} by rank {leaver}: rank {rank} got {got} {text}")
                if rank == leaver:
                    own = (int(ended) - int(began)) / 1e6
                    continue
                others.append(max(0, int(ended) - last_began) / 1e6)
                if code == REMOTE_ERROR and f"rank {leaver} " not in text:
                    strange.append(f"rank {leaver} left, rank {rank} says {text}")
            yield own, others, strange


def all_times(tries):
    for own, others, strange in tries:
        if strange:
            raise Failed(strange[0])
        yield [own, *others]


def wrong_codes(options, tries, wrapper=()):
    """Yields for each function how often it accepted an invalid handle."""
    command = [*wrapper, options.program("handles"), tries]
    command = [str(word) for word in command]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if ran.returncode != 0:
        raise Failed(f"handles ended with {ran.returncode}: {ran.stderr.strip()}")
    for line in ran.stdout.splitlines():
        yield [int(line.rsplit("|", 1)[1])]


def forks(options):
    with World(4, [options.program("fork"), options.tries(1000, quick=40)]) as world:
        for of_ranks in zip(*world.outputs(seconds=240), strict=True):
            yield [int(wrong) for wrong in of_ranks]


def renewals(options, tries):
    """Returns the growth of each rank: files, threads, KiB of memory. A link may close after the
    next one has opened, so the high-water mark is reached only after hundreds of warm-ups."""
    command = [options.program("renew"), options.tries(500, quick=10), tries]
    with World(4, command) as world:
        outputs = world.outputs(seconds=600)
        return [[int(number) for number in lines[0].split("|")] for lines in outputs]


def values(measure, choose):
    """Yields the chosen values of each try of a cached measurement, which the first row runs."""
    for one in measure():
        yield choose(*one)


def add_rows_of_leaving(table, options):
    rows = (
        ("nexarCommAbort while inside calls", "abort", INVALID_USAGE, REMOTE_ERROR),
        (
            "nexarCommAbort with calls queued on streams",
            "abort_queued",
            INVALID_USAGE,
            REMOTE_ERROR,
        ),
        ("nexarCommDestroy while others wait", "destroy", 0, REMOTE_ERROR),
        ("nexarCommDestroy with calls queued on streams", "destroy_queued", 0, 0),
    )
    for name, how, own_code, code in rows:
        table.row(f"{name}, 4 ranks", 100, all_times(leaves(options, how, own_code, code)))

    unmade = functools.cache(lambda: list(leaves(options, "abort_init", 0, REMOTE_ERROR)))
    name = "nexarCommAbort while it is made"
    table.row(name, 100, values(unmade, lambda own, others, strange: [own]))
    table.row(f"{name}, the others", 1000, values(unmade, lambda own, others, strange: others))
    blamed = values(unmade, lambda own, others, strange: [len(strange)])
    table.row(f"{name}, the others blame another", 0, blamed, unit="ranks")


def add_rows_of_handles(table, options):
    row = functools.partial(table.row, bound=0, unit="wrong codes")
    tries = options.tries(1_000_000, quick=1_000)
    row(f"{tries:,} stale and random handles to each function", cases=wrong_codes(options, tries))
    tries = options.tries(400, quick=10)
    name = f"{tries:,} handles to each function under valgrind"
    if valgrind := shutil.which("valgrind"):
        row(name, cases=wrong_codes(options, tries, [valgrind, *MEMCHECK]))
    else:
        table.skip(name, "there is no valgrind")


def add_rows_of_renewals(table, options):
    tries = options.tries(1_000, quick=20)
    growth = functools.cache(lambda: renewals(options, tries))
    name = f"init and destroy {tries:,} times, 4 ranks"
    files = values(growth, lambda files, threads, kib: [files])
    table.row(f"{name}: files", 0, files, unit="files")
    threads = values(growth, lambda files, threads, kib: [threads])
    table.row(f"{name}: threads", 0, threads, unit="threads")
    kib = values(growth, lambda files, threads, kib: [kib])
    table.row(f"{name}: memory", 256, kib, unit="KiB")


def add_rows(table, options):
    add_rows_of_leaving(table, options)
    add_rows_of_handles(table, options)
    table.row("fork: the child refused and silent, 4 ranks go on", 0, forks(options), unit="wrong")
    add_rows_of_renewals(table, options)
