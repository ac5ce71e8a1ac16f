#!/usr/bin/env python3
"""Every call of CuPy's NCCL module, on host memory: cupy_calls.py LIBRARY SCRATCH.

This process is one rank; rank and size are in the environment. cupy_init_all.py has several ranks
in one process.
"""

import sys

import calls
import cupy_client
from calls import must, still_works
from data import SUM, TYPES, Buffer, input_of

INVALID_ARGUMENT, INVALID_USAGE = 4, 5
NO_COLOR = -1


def main():
    library, scratch = sys.argv[1:]
    rank, size = calls.rank_and_size()
    calls.run(f"rank {rank}", library, lambda: check(library, scratch, rank, size))


def check(library, scratch, rank, size):
    nccl = cupy_client.load(library)
    report = print if rank == 0 else lambda _: None
    report(f"version: {nccl.get_version()}, built with {nccl.get_build_version()}")

    def join(name, *config):
        id = calls.share(scratch, name, rank, nccl.get_unique_id)
        return cupy_client.Client(nccl, nccl.NcclCommunicator(size, id, rank, *config))

    client = join("id")
    must((client.rank, client.size) == (rank, size), f"rank {client.rank} of {client.size}")
    must(client.comm.device_id() >= 0, f"device {client.comm.device_id()}")
    calls.check_all(client)
    report(f"bcast: {bcast(client)} calls")
    wrong_calls(nccl, client)
    report("wrong calls: refused, and calls go on")
    splits(nccl, client, None)
    configured = join("second_id", nccl.NcclConfig(split_share=1))
    splits(nccl, configured, nccl.NcclConfig(split_share=1))
    report("splits: with and without a configuration")
    client.comm.check_async_error()
    still_works(client, "beside a second communicator")  # all ranks have finished with that one
    configured.comm.abort()
    still_works(client, "after the abort of another communicator")
    report("abort: of a second communicator, and calls go on")
    client.comm.check_async_error()
    client.comm.destroy()
    report("destroy: done")
    methods = {
        name
        for name, method in vars(nccl.NcclCommunicator).items()
        if callable(method) and not name.startswith("_")
    }
    never = methods - cupy_client.Recorded.called - {"initAll"}
    must(not never, f"methods of CuPy's communicator were never called: {never}")


def bcast(client):
    """The older broadcast with a single buffer."""
    made = 0
    for number, (type, count) in enumerate(calls.copies(client, calls.LARGE)):
        root = number % client.size
        buffer = Buffer(input_of(client.rank, client.size, type, SUM, count))
        client.bcast(buffer.address, count, type, root)
        expected = input_of(root, client.size, type, SUM, count)
        buffer.must_be(expected, f"bcast of {count} x {type.name} from {root}")
        made += 1
    return made


def wrong_calls(nccl, client):
    """Every rank makes the same invalid calls; none involves another rank."""
    buffer = Buffer.blank(64)
    at, comm, stream = buffer.address, client.comm, cupy_client.NO_STREAM
    no_type, no_op = 12, 5
    wrong = {
        "no such type": lambda: comm.allReduce(at, at, 1, no_type, nccl.NCCL_SUM, stream),
        "no such operator": lambda: comm.allReduce(at, at, 1, nccl.NCCL_INT8, no_op, stream),
        "no such root": lambda: comm.bcast(at, 1, nccl.NCCL_INT8, client.size, stream),
        "no such peer": lambda: comm.recv(at, 1, nccl.NCCL_INT8, -1, stream),
        "no such rank": lambda: nccl.NcclCommunicator(1, nccl.get_unique_id(), 1),
    }
    for name, call in wrong.items():
        must_fail(nccl, INVALID_ARGUMENT, name, call)
    must_fail(nccl, INVALID_USAGE, "end of no group", nccl.groupEnd)
    buffer.must_be_blank("wrong calls")
    still_works(client, "after wrong calls")


def must_fail(nccl, code, name, call):
    try:
        call()
    except nccl.NcclError as error:
        must(error.status == code, f"{name}: {error} ({error.status} instead of {code})")
    else:
        must(False, f"{name}: accepted")


def splits(nccl, client, config):
    """Splits into even and odd ranks in reverse order; then into all but rank 0."""
    rank, size = client.rank, client.size
    part = cupy_client.Client(nccl, client.comm.commSplit(rank % 2, -rank, config))
    members = sorted(range(rank % 2, size, 2), reverse=True)
    must(
        (part.rank, part.size) == (members.index(rank), len(members)),
        f"rank {rank} of {size} is {part.rank} of {part.size} in its half",
    )
    calls_in(part, "in a half")
    part.comm.destroy()

    rest = client.comm.commSplit(NO_COLOR if rank == 0 else 7, rank, config)
    must((rest is None) == (rank == 0), f"commSplit without a color gives {rest}")
    if rest:
        rest = cupy_client.Client(nccl, rest)
        must(
            (rest.rank, rest.size) == (rank - 1, size - 1),
            f"rank {rank} of {size} is {rest.rank} of {rest.size} without rank 0",
        )
        calls_in(rest, "without rank 0")
        rest.comm.destroy()
    still_works(client, "after splits")


def calls_in(part, what):
    still_works(part, what)
    for count in calls.COUNTS:
        type = TYPES["int32"]
        blocks = [input_of(rank, part.size, type, SUM, count) for rank in range(part.size)]
        send, recv = Buffer(blocks[part.rank]), Buffer.blank(part.size * len(blocks[0]))
        part.all_gather(send.address, recv.address, count, type)
        recv.must_be(b"".join(blocks), f"allGather of {count} x int32 {what}")


if __name__ == "__main__":
    main()
