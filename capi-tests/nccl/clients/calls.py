"""The calls that every client has, with every result checked, and helpers of a rank.

A client is an object with a rank, a size, its types (names of TYPES to its own codes) and the calls
under the names used here; addresses are integers. Counts are one, few, many, odd, and 64 MB.
"""

import ctypes
import faulthandler
import os
import sys
import time
import traceback
from pathlib import Path

from data import AVG, OPS, SUM, TYPES, Buffer, input_of, result_of

PATIENCE = 60  # seconds without progress, after which a rank prints where it is and exits
COUNTS = (1, 3, 1000, 65537)
LARGE = (64 << 20) // 4  # float32s
FLOAT32, FLOAT64, INT8, INT64 = (TYPES[name] for name in ("float32", "float64", "int8", "int64"))


class Failure(Exception):
    """A call did not behave as required."""


def must(condition, what):
    if not condition:
        raise Failure(what)


def rank_and_size():
    return int(os.environ["NEXAR_RANK"]), int(os.environ["NEXAR_NRANKS"])


def progress():
    """Restarts the time after which the rank counts as hanging."""
    faulthandler.dump_traceback_later(PATIENCE, exit=True)


def run(name, library, body):
    """Runs a rank. On failure prints the traceback, the rank and the library's last error."""
    progress()
    try:
        body()
    except Exception:
        last_error = ctypes.CDLL(library).ncclGetLastError
        last_error.restype, last_error.argtypes = ctypes.c_char_p, [ctypes.c_void_p]
        text = (last_error(None) or b"").decode(errors="replace")
        sys.exit(f"{traceback.format_exc()}{name} failed; ncclGetLastError: {text!r}")
    print(f"{name}: ok", flush=True)


def must_be_loaded(library):
    """Fails if the client has loaded another libnccl.so.2."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    loaded = {line.split(maxsplit=5)[5] for line in maps if "libnccl" in line}
    must(loaded == {os.path.realpath(library)}, f"not {library} alone is loaded, but {loaded}")


def share(scratch, name, rank, make):
    """Returns on every rank the bytes that `make` returns on rank 0."""
    path = Path(scratch, name)
    if rank == 0:
        made = make()
        new = path.with_suffix(".new")
        new.write_bytes(made)
        os.replace(new, path)
        return made
    while not path.exists():
        time.sleep(0.005)
    return path.read_bytes()


def check_all(client):
    for family in (all_reduce, reduce, broadcast, all_gather, reduce_scatter, messages, groups):
        begin = time.monotonic()
        calls = family(client)
        if client.rank == 0:
            print(f"{family.__name__}: {calls} calls, {time.monotonic() - begin:.1f} s", flush=True)


def still_works(client, what):
    for count in (1, 1000):
        buffer = Buffer(input_of(client.rank, client.size, FLOAT32, SUM, count))
        client.all_reduce(buffer.address, buffer.address, count, FLOAT32, SUM)
        expected = result_of(client.size, FLOAT32, SUM, count)
        buffer.must_be(expected, f"all_reduce of {count} x float32 {what}")


def reductions(client, large):
    """Yields type, operator and count of each reduction."""
    for type in map(TYPES.get, client.types):
        for op in OPS:
            if type.has(op, client.size):
                yield from with_progress((type, op, count) for count in COUNTS)
    yield from with_progress([(FLOAT32, SUM, large)])


def copies(client, large):
    for type in map(TYPES.get, client.types):
        yield from with_progress((type, count) for count in COUNTS)
    yield from with_progress([(FLOAT32, large)])


def with_progress(items):
    """Yields the items and reports progress for each."""
    for item in items:
        progress()
        yield item


def all_reduce(client):
    calls = 0
    for type, op, count in reductions(client, LARGE):
        what = f"all_reduce of {count} x {type.name}, {op}"
        given = input_of(client.rank, client.size, type, op, count)
        expected = result_of(client.size, type, op, count)
        send, recv = Buffer(given), Buffer.blank(len(given))
        client.all_reduce(send.address, recv.address, count, type, op)
        recv.must_be(expected, what)
        send.must_be(given, f"{what}, its input")
        client.all_reduce(send.address, send.address, count, type, op)
        send.must_be(expected, f"{what}, in place")
        calls += 2
    return calls


def reduce(client):
    calls = 0
    for number, (type, op, count) in enumerate(reductions(client, LARGE)):
        root = number % client.size
        what = f"reduce of {count} x {type.name}, {op}, to {root}"
        given = input_of(client.rank, client.size, type, op, count)
        expected = result_of(client.size, type, op, count)
        send, recv = Buffer(given), Buffer.blank(len(given))
        client.reduce(send.address, recv.address, count, type, op, root)
        if client.rank == root:
            recv.must_be(expected, what)
        else:
            recv.must_be_blank(f"{what}, elsewhere")
        send.must_be(given, f"{what}, its input")
        out = send.address if client.rank == root else 0  # only the root needs it
        client.reduce(send.address, out, count, type, op, root)
        send.must_be(expected if client.rank == root else given, f"{what}, in place")
        calls += 2
    return calls


def broadcast(client):
    calls = 0
    for number, (type, count) in enumerate(copies(client, LARGE)):
        for root in range(client.size) if count < LARGE else [number % client.size]:
            what = f"broadcast of {count} x {type.name} from {root}"
            expected = input_of(root, client.size, type, SUM, count)
            send, recv = Buffer(expected), Buffer.blank(len(expected))
            source = send.address if client.rank == root else 0  # only the root needs it
            client.broadcast(source, recv.address, count, type, root)
            recv.must_be(expected, what)
            own = Buffer(input_of(client.rank, client.size, type, SUM, count))
            client.broadcast(own.address, own.address, count, type, root)
            own.must_be(expected, f"{what}, in place")
            calls += 2
    return calls


def all_gather(client):
    calls = 0
    for type, count in copies(client, LARGE // client.size):
        what = f"all_gather of {count} x {type.name}"
        blocks = [input_of(rank, client.size, type, SUM, count) for rank in range(client.size)]
        given, expected = blocks[client.rank], b"".join(blocks)
        send, recv = Buffer(given), Buffer.blank(len(expected))
        client.all_gather(send.address, recv.address, count, type)
        recv.must_be(expected, what)
        send.must_be(given, f"{what}, its input")
        own, at = Buffer.blank(len(expected)), client.rank * len(given)
        own.memory[at : at + len(given)] = given
        client.all_gather(own.address + at, own.address, count, type)
        own.must_be(expected, f"{what}, in place")
        calls += 2
    return calls


def reduce_scatter(client):
    calls = 0
    for type, op, count in reductions(client, LARGE // client.size):
        what = f"reduce_scatter of {count} x {type.name}, {op}"
        given = input_of(client.rank, client.size, type, op, count * client.size)
        length = count * type.size
        begin, end = client.rank * length, (client.rank + 1) * length
        expected = result_of(client.size, type, op, count * client.size)[begin:end]
        send, recv = Buffer(given), Buffer.blank(length)
        client.reduce_scatter(send.address, recv.address, count, type, op)
        recv.must_be(expected, what)
        send.must_be(given, f"{what}, its input")
        client.reduce_scatter(send.address, send.address + begin, count, type, op)
        # The other blocks are undefined.
        Buffer(bytes(send.memory[begin:end])).must_be(expected, f"{what}, in place")
        calls += 2
    return calls


def messages(client):
    calls = 0
    rank, n = client.rank, client.size
    right, left = (rank + 1) % n, (rank - 1) % n
    for type, count in copies(client, LARGE):
        what = f"{count} x {type.name}"
        given, expected = (input_of(r, n, type, SUM, count) for r in (rank, left))
        send, recv = Buffer(given), Buffer.blank(len(given))
        client.group_start()
        client.send(send.address, count, type, right)
        client.recv(recv.address, count, type, left)
        client.group_end()
        recv.must_be(expected, f"{what} from the left, in a group")
        send.must_be(given, f"{what} to the right, its input")
        calls += 2
        # Outside of a group: to the neighbour and back. The last of an odd number has none.
        other = rank ^ 1
        if other < n:
            recv = Buffer.blank(len(given))
            if rank < other:
                client.send(send.address, count, type, other)
                client.recv(recv.address, count, type, other)
            else:
                client.recv(recv.address, count, type, other)
                client.send(send.address, count, type, other)
            recv.must_be(input_of(other, n, type, SUM, count), f"{what} from {other}")
            calls += 2
    for type, count in copies(client, LARGE // n):
        # An all-to-all, self-sends included: block d of rank s becomes block s of rank d.
        length = count * type.size
        send = Buffer(input_of(rank, n, type, SUM, count * n))
        recv = Buffer.blank(length * n)
        client.group_start()
        for peer in range(n):
            client.send(send.address + peer * length, count, type, peer)
            client.recv(recv.address + peer * length, count, type, peer)
        client.group_end()
        begin, end = rank * length, (rank + 1) * length
        recv.must_be(
            b"".join(input_of(s, n, type, SUM, count * n)[begin:end] for s in range(n)),
            f"{count} x {type.name} from all to all",
        )
        calls += 2 * n
    return calls


def groups(client):
    calls = 0
    for count in with_progress((*COUNTS, LARGE // client.size)):
        calls += blocks_that_differ(client, count)
        calls += mixed(client, count)
    return calls


def blocks_that_differ(client, count):
    """A call for each root, as in vLLM: NCCL has no AllGatherV, ReduceScatterV and ScatterV.

    Pointers that a rank does not use point to buffers that are shorter than the count.
    """
    rank, n, type = client.rank, client.size, FLOAT32
    counts = [count * (n - r) // n for r in range(n)]
    lengths = [each * type.size for each in counts]
    offsets = [sum(lengths[:r]) for r in range(n)]
    what = f"of {counts} x {type.name}"

    blocks = [input_of(r, n, type, SUM, counts[r]) for r in range(n)]
    send, recv = Buffer(blocks[rank]), Buffer.blank(sum(lengths))
    client.group_start()
    for root in range(n):
        client.broadcast(send.address, recv.address + offsets[root], counts[root], type, root)
    client.group_end()
    recv.must_be(b"".join(blocks), f"broadcasts {what}")

    send = Buffer(input_of(rank, n, type, SUM, sum(counts)))
    recv = Buffer.blank(lengths[rank])
    client.group_start()
    for root in range(n):
        client.reduce(send.address + offsets[root], recv.address, counts[root], type, SUM, root)
    client.group_end()
    expected = result_of(n, type, SUM, sum(counts))
    recv.must_be(expected[offsets[rank] : offsets[rank] + lengths[rank]], f"reduces {what}")

    root = n - 1
    recv = Buffer.blank(lengths[rank])
    client.group_start()
    for peer in range(n) if rank == root else ():
        if peer != root and counts[peer]:
            client.send(send.address + offsets[peer], counts[peer], type, peer)
    if rank != root and counts[rank]:
        client.recv(recv.address, counts[rank], type, root)
    client.group_end()
    if rank != root:
        given = input_of(root, n, type, SUM, sum(counts))
        recv.must_be(given[offsets[rank] : offsets[rank] + lengths[rank]], f"messages {what}")
    else:
        recv.must_be_blank(f"messages {what}, at their sender")
    return 2 * n + n - 1


def mixed(client, count):
    """Collectives of several types and messages in nested groups."""
    rank, n = client.rank, client.size
    right, left = (rank + 1) % n, (rank - 1) % n
    plan = [(type, op) for type in (FLOAT32, FLOAT64, INT8, INT64) for op in OPS if op != AVG]
    if count > max(COUNTS):
        plan = [(FLOAT32, SUM)]
    sends = [Buffer(input_of(rank, n, type, op, count)) for type, op in plan]
    recvs = [Buffer.blank(count * type.size) for type, _ in plan]
    message = Buffer(input_of(rank, n, INT8, SUM, count))
    received, gathered = Buffer.blank(count), Buffer.blank(count * n)
    client.group_start()
    client.send(message.address, count, INT8, right)
    for (type, op), send, recv in zip(plan, sends, recvs):
        client.group_start()
        client.all_reduce(send.address, recv.address, count, type, op)
        client.group_end()
    client.all_gather(message.address, gathered.address, count, INT8)
    client.recv(received.address, count, INT8, left)
    client.group_end()
    for (type, op), recv in zip(plan, recvs):
        what = f"all_reduce of {count} x {type.name}, {op}, in a group"
        recv.must_be(result_of(n, type, op, count), what)
    received.must_be(input_of(left, n, INT8, SUM, count), f"{count} bytes in a group of all kinds")
    gathered.must_be(
        b"".join(input_of(r, n, INT8, SUM, count) for r in range(n)),
        f"all_gather of {count} bytes in a group of all kinds",
    )
    return len(plan) + 3
