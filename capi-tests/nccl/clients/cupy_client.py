"""CuPy's NCCL module, `cupy_backends.cuda.libs.nccl`, as a client of `calls`.

It is linked with libnccl.so.2, whose directory must be in LD_LIBRARY_PATH.
"""

import ctypes

import calls
import data

NO_STREAM = 0


def load(library):
    # CuPy prefers a loaded NCCL to that of an installed package, and that to LD_LIBRARY_PATH.
    ctypes.CDLL("libnccl.so.2")
    from cupy_backends.cuda.libs import nccl

    calls.must_be_loaded(library)
    calls.must(nccl.available, "CuPy says that there is no NCCL")
    built, version = nccl.get_build_version(), nccl.get_version()
    calls.must(20000 < built <= version < 30000, f"built with {built}, runs with {version}")
    return nccl


class Recorded:
    """A communicator that records the names of its called methods."""

    called = set()

    def __init__(self, comm):
        self.comm = comm

    def __getattr__(self, name):
        Recorded.called.add(name)
        return getattr(self.comm, name)


class Client:
    def __init__(self, nccl, comm):
        self.nccl, self.comm = nccl, Recorded(comm)
        self.rank, self.size = self.comm.rank_id(), self.comm.size()
        known = [name for name in data.TYPES if name != "float8e4m3"]
        self.types = {name: getattr(nccl, f"NCCL_{name.upper()}") for name in known}
        self.ops = {op: getattr(nccl, f"NCCL_{op.upper()}") for op in data.OPS}
        self.group_start, self.group_end = nccl.groupStart, nccl.groupEnd

    def all_reduce(self, send, recv, count, type, op):
        self.comm.allReduce(send, recv, count, self.types[type.name], self.ops[op], NO_STREAM)

    def reduce(self, send, recv, count, type, op, root):
        self.comm.reduce(send, recv, count, self.types[type.name], self.ops[op], root, NO_STREAM)

    def broadcast(self, send, recv, count, type, root):
        self.comm.broadcast(send, recv, count, self.types[type.name], root, NO_STREAM)

    def bcast(self, buffer, count, type, root):
        self.comm.bcast(buffer, count, self.types[type.name], root, NO_STREAM)

    def all_gather(self, send, recv, count, type):
        self.comm.allGather(send, recv, count, self.types[type.name], NO_STREAM)

    def reduce_scatter(self, send, recv, count, type, op):
        self.comm.reduceScatter(send, recv, count, self.types[type.name], self.ops[op], NO_STREAM)

    def send(self, send, count, type, peer):
        self.comm.send(send, count, self.types[type.name], peer, NO_STREAM)

    def recv(self, recv, count, type, peer):
        self.comm.recv(recv, count, self.types[type.name], peer, NO_STREAM)
