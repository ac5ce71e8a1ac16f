#!/usr/bin/env python3
"""CuPy with all ranks in one process: cupy_init_all.py LIBRARY RANKS.

One thread makes the calls of all ranks in groups, so no call may wait before the group ends. Needs
as many devices, or NEXAR_FAKE_DEVICES.
"""

import sys
import time

import calls
import cupy_client
from calls import LARGE, must
from data import SUM, Buffer, input_of, result_of


def main():
    library, ranks = sys.argv[1:]
    calls.run(f"{ranks} ranks in a process", library, lambda: check(library, int(ranks)))


def check(library, size):
    nccl = cupy_client.load(library)
    world = World(nccl, nccl.NcclCommunicator.initAll(size), list(range(size)))
    for family in (all_reduce, reduce, broadcast, all_gather, reduce_scatter, messages):
        begin = time.monotonic()
        made = family(world)
        print(f"{family.__name__}: {made} calls, {time.monotonic() - begin:.1f} s", flush=True)
    # A second communicator, on devices in another order.
    devices = list(reversed(range(size)))
    other = World(nccl, nccl.NcclCommunicator.initAll(devices), devices)
    all_gather(other)
    for client in other.clients:
        client.comm.abort()
    print("abort: of a second world", flush=True)
    all_gather(world)
    for client in world.clients:
        client.comm.check_async_error()
        client.comm.destroy()
    print("destroy: done", flush=True)


class World:
    """All ranks of a communicator."""

    def __init__(self, nccl, comms, devices):
        self.nccl = nccl
        self.clients = [cupy_client.Client(nccl, comm) for comm in comms]
        self.size = len(self.clients)
        self.types = self.clients[0].types
        found = [(client.rank, client.size, client.comm.device_id()) for client in self.clients]
        expected = [(rank, len(devices), device) for rank, device in enumerate(devices)]
        must(found == expected, f"ranks, sizes and devices are {found} instead of {expected}")

    def inputs(self, type, op, count):
        return [Buffer(input_of(rank, self.size, type, op, count)) for rank in range(self.size)]

    def blanks(self, length):
        return [Buffer.blank(length) for _ in range(self.size)]

    def grouped(self, call, buffers, *arguments):
        """Makes the call on every rank with its own buffers, in one group."""
        self.nccl.groupStart()
        for client, *own in zip(self.clients, *buffers):
            getattr(client, call)(*(buffer.address for buffer in own), *arguments)
        self.nccl.groupEnd()
        return self.size


def all_reduce(world):
    made = 0
    for type, op, count in calls.reductions(world, LARGE):
        what = f"allReduce of {count} x {type.name}, {op}"
        expected = result_of(world.size, type, op, count)
        sends, recvs = world.inputs(type, op, count), world.blanks(len(expected))
        made += world.grouped("all_reduce", (sends, recvs), count, type, op)
        for rank in range(world.size):
            recvs[rank].must_be(expected, f"{what}, rank {rank}")
            sends[rank].must_be(input_of(rank, world.size, type, op, count), f"{what}, its input")
        made += world.grouped("all_reduce", (sends, sends), count, type, op)
        for rank in range(world.size):
            sends[rank].must_be(expected, f"{what}, in place, rank {rank}")
    return made


def reduce(world):
    made = 0
    for number, (type, op, count) in enumerate(calls.reductions(world, LARGE)):
        root = number % world.size
        what = f"reduce of {count} x {type.name}, {op}, to {root}"
        expected = result_of(world.size, type, op, count)
        sends, recvs = world.inputs(type, op, count), world.blanks(len(expected))
        made += world.grouped("reduce", (sends, recvs), count, type, op, root)
        for rank in range(world.size):
            if rank == root:
                recvs[rank].must_be(expected, what)
            else:
                recvs[rank].must_be_blank(f"{what}, rank {rank}")
    return made


def broadcast(world):
    made = 0
    for number, (type, count) in enumerate(calls.copies(world, LARGE)):
        root = number % world.size
        what = f"of {count} x {type.name} from {root} to"
        expected = input_of(root, world.size, type, SUM, count)
        sends, recvs = world.inputs(type, SUM, count), world.blanks(len(expected))
        made += world.grouped("broadcast", (sends, recvs), count, type, root)
        made += world.grouped("bcast", (sends,), count, type, root)
        for rank in range(world.size):
            recvs[rank].must_be(expected, f"broadcast {what} {rank}")
            sends[rank].must_be(expected, f"bcast {what} {rank}")
    return made


def all_gather(world):
    made = 0
    for type, count in calls.copies(world, LARGE // world.size):
        expected = b"".join(input_of(r, world.size, type, SUM, count) for r in range(world.size))
        sends, recvs = world.inputs(type, SUM, count), world.blanks(len(expected))
        made += world.grouped("all_gather", (sends, recvs), count, type)
        for rank in range(world.size):
            recvs[rank].must_be(expected, f"allGather of {count} x {type.name}, rank {rank}")
    return made


def reduce_scatter(world):
    made = 0
    for type, op, count in calls.reductions(world, LARGE // world.size):
        what = f"reduceScatter of {count} x {type.name}, {op}"
        length = count * type.size
        expected = result_of(world.size, type, op, count * world.size)
        sends, recvs = world.inputs(type, op, count * world.size), world.blanks(length)
        made += world.grouped("reduce_scatter", (sends, recvs), count, type, op)
        for rank in range(world.size):
            part = expected[rank * length : (rank + 1) * length]
            recvs[rank].must_be(part, f"{what}, rank {rank}")
    return made


def messages(world):
    """Sends and receives around a ring, in one group."""
    made = 0
    for type, count in calls.copies(world, LARGE):
        sends, recvs = world.inputs(type, SUM, count), world.blanks(count * type.size)
        world.nccl.groupStart()
        for rank, client in enumerate(world.clients):
            client.send(sends[rank].address, count, type, (rank + 1) % world.size)
            client.recv(recvs[rank].address, count, type, (rank - 1) % world.size)
        world.nccl.groupEnd()
        made += 2 * world.size
        for rank in range(world.size):
            expected = input_of((rank - 1) % world.size, world.size, type, SUM, count)
            recvs[rank].must_be(expected, f"{count} x {type.name} from the left, rank {rank}")
    return made


if __name__ == "__main__":
    main()
