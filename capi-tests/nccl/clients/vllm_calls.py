#!/usr/bin/env python3
"""Every call of vLLM's NCCL wrapper, on host memory: vllm_calls.py LIBRARY SCRATCH.

This process is one rank; rank and size are in the environment. The wrapper is vLLM's own file,
found on the Python path; the few names that it imports from PyTorch and vLLM are stubs. The code
above the wrapper needs a GPU.
"""

import ctypes
import importlib.util
import mmap
import sys
import types
from pathlib import Path

import calls
import data
from calls import FLOAT32, must, still_works

WRAPPER = "vllm/distributed/device_communicators/pynccl_wrapper.py"
SUSPEND_MEM = 1
SYMMETRIC = 1
API_MAGIC = 0xCAFEBEEF
NO_STREAM = ctypes.c_void_p(0)
# The texts of NCCL 2.32.3.
ERRORS = [
    "no error",
    "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
    "unhandled system error (run with NCCL_DEBUG=INFO for details)",
    "internal error - please report this issue to the NCCL developers",
    "invalid argument (run with NCCL_DEBUG=WARN for details)",
    "invalid usage (run with NCCL_DEBUG=WARN for details)",
    "remote process exited or there was a network error",
    "NCCL operation in progress",
    "timeout",
    "unknown result code",
]


def main():
    library, scratch = sys.argv[1:]
    rank, size = calls.rank_and_size()
    calls.run(f"rank {rank}", library, lambda: check(library, scratch, rank, size))


def check(library, scratch, rank, size):
    wrapper = load_wrapper()
    nccl = wrapper.NCCLLibrary(library)
    calls.must_be_loaded(library)
    nccl._funcs = Recorded(nccl._funcs)
    report = print if rank == 0 else lambda _: None
    report(f"version: {version(nccl)}")
    texts = [nccl.ncclGetErrorString(code) for code in range(len(ERRORS))]
    must(texts == ERRORS, f"error strings are {texts} instead of {ERRORS}")
    report(f"error strings: {len(ERRORS)}")

    def join(name):
        id = calls.share(scratch, name, rank, lambda: bytes(nccl.ncclGetUniqueId()))
        return nccl.ncclCommInitRank(size, nccl.unique_id_from_bytes(id), rank)

    comm = join("id")
    client = Client(wrapper, nccl, comm, rank, size)
    calls.check_all(client)
    properties(wrapper, nccl, comm, rank, size)
    report("query properties: rank and size")
    suspend_and_resume(nccl, client)
    report("suspend and resume: calls go on")
    windows(nccl, client)
    report("windows: registered, used, deregistered")
    wrong_calls(nccl, client)
    report("wrong calls: refused, and calls go on")
    abort(wrapper, nccl, client, join("second_id"))
    report("abort: of a second communicator, and calls go on")
    nccl.ncclCommDestroy(comm)
    report("destroy: done")
    never = {function.name for function in nccl.exported_functions} - nccl._funcs.called
    must(not never, f"functions of the wrapper were never called: {never}")


class Recorded(dict):
    """The functions by name; records the called ones."""

    def __init__(self, functions):
        super().__init__(functions)
        self.called = set()

    def __getitem__(self, name):
        self.called.add(name)
        return super().__getitem__(name)


def load_wrapper():
    add_stubs()
    found = [path for path in (Path(entry, WRAPPER) for entry in sys.path) if path.is_file()]
    must(found, f"{WRAPPER} is not on the Python path")
    spec = importlib.util.spec_from_file_location("pynccl_wrapper", found[0])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def add_stubs():
    """Adds stubs of the wrapper's imports to sys.modules."""

    def module(name, **names):
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update(names)

    dtypes = "int8 uint8 int32 int64 float16 float32 float64 bfloat16 float8_e4m3fn".split()
    operators = {name: name for name in ("SUM", "PRODUCT", "MAX", "MIN", "AVG")}
    platform = types.SimpleNamespace(fp8_dtype=lambda: "float8_e4m3fn", is_rocm=lambda: False)
    module("torch", dtype=str, **{name: name for name in dtypes})
    module("torch.distributed", ReduceOp=types.SimpleNamespace(**operators))
    module("vllm", envs=types.SimpleNamespace(VLLM_USE_NCCL_SYMM_MEM=True))
    module("vllm.logger", init_logger=lambda _: types.SimpleNamespace(error=print))
    module("vllm.platforms", current_platform=platform)
    module("vllm.utils")
    module("vllm.utils.nccl", find_nccl_library=None)


class Client:
    """The wrapper as a client of `calls`. Types and operators are translated as in vLLM."""

    def __init__(self, wrapper, nccl, comm, rank, size):
        self.nccl, self.comm, self.rank, self.size = nccl, comm, rank, size
        enum = wrapper.ncclDataTypeEnum
        self.types = {name: enum.try_from_torch(name) for name in data.TYPES}
        self.types["float8e4m3"] = enum.from_torch("float8_e4m3fn")
        # vLLM defines these two, but translates no type to them.
        self.types.update(uint32=enum.ncclUint32, uint64=enum.ncclUint64)
        names = {op: op.upper() for op in data.OPS} | {data.PROD: "PRODUCT"}
        self.ops = {op: wrapper.ncclRedOpTypeEnum.from_torch(name) for op, name in names.items()}
        self.at = wrapper.buffer_type
        self.end = comm, NO_STREAM  # the last arguments of every call
        self.group_start, self.group_end = nccl.ncclGroupStart, nccl.ncclGroupEnd

    def all_reduce(self, send, recv, count, type, op):
        how = self.types[type.name], self.ops[op]
        self.nccl.ncclAllReduce(self.at(send), self.at(recv), count, *how, *self.end)

    def reduce(self, send, recv, count, type, op, root):
        how = self.types[type.name], self.ops[op], root
        self.nccl.ncclReduce(self.at(send), self.at(recv), count, *how, *self.end)

    def broadcast(self, send, recv, count, type, root):
        how = self.types[type.name], root
        self.nccl.ncclBroadcast(self.at(send), self.at(recv), count, *how, *self.end)

    def all_gather(self, send, recv, count, type):
        how = self.types[type.name]
        self.nccl.ncclAllGather(self.at(send), self.at(recv), count, how, *self.end)

    def reduce_scatter(self, send, recv, count, type, op):
        how = self.types[type.name], self.ops[op]
        self.nccl.ncclReduceScatter(self.at(send), self.at(recv), count, *how, *self.end)

    def send(self, send, count, type, peer):
        self.nccl.ncclSend(self.at(send), count, self.types[type.name], peer, *self.end)

    def recv(self, recv, count, type, peer):
        self.nccl.ncclRecv(self.at(recv), count, self.types[type.name], peer, *self.end)


def version(nccl):
    """vLLM makes a text of the five digits, and needs at least 2.29.7 in some places."""
    raw, text = nccl.ncclGetRawVersion(), nccl.ncclGetVersion()
    must(22907 <= raw <= 29999, f"the version is {raw}")
    return text


def properties(wrapper, nccl, comm, rank, size):
    """The wrapper has only the structure; its users make the call."""
    asked = wrapper.ncclCommProperties()
    asked.size, asked.magic = ctypes.sizeof(asked), API_MAGIC
    asked.version = min(nccl.ncclGetRawVersion(), wrapper.NCCL_COMM_PROPERTIES_LAYOUT_VERSION)
    nccl.NCCL_CHECK(nccl._funcs["ncclCommQueryProperties"](comm, ctypes.byref(asked)))
    must(
        (asked.rank, asked.nRanks) == (rank, size),
        f"ncclCommQueryProperties: rank {asked.rank} of {asked.nRanks}",
    )
    must(
        not asked.deviceApiSupport and not asked.multimemSupport,
        "ncclCommQueryProperties: reports features of a device",
    )


def suspend_and_resume(nccl, client):
    nccl.ncclCommSuspend(client.comm, SUSPEND_MEM)
    nccl.ncclCommResume(client.comm)
    still_works(client, "after suspend and resume")


def windows(nccl, client):
    count = 65536
    length = count * FLOAT32.size
    given = data.input_of(client.rank, client.size, FLOAT32, data.SUM, count)
    with mmap.mmap(-1, length) as memory:  # page-aligned, as windows must be
        memory[:] = given
        view = ctypes.c_char.from_buffer(memory)
        address = ctypes.addressof(view)
        window = nccl.ncclCommWindowRegister(client.comm, client.at(address), length, SYMMETRIC)
        must(window.value, "ncclCommWindowRegister gives no window")
        client.all_reduce(address, address, count, FLOAT32, data.SUM)
        result = data.Buffer(memory[:])
        nccl.ncclCommWindowDeregister(client.comm, window)
        del view
    expected = data.result_of(client.size, FLOAT32, data.SUM, count)
    result.must_be(expected, "all_reduce in a window")


def wrong_calls(nccl, client):
    """Every rank makes the same invalid calls; none involves another rank."""
    buffer = data.Buffer.blank(64)
    at, comm = client.at(buffer.address), client.comm
    no_type, no_op = 12, 5
    wrong = {
        "no communicator": lambda: nccl.ncclAllReduce(at, at, 1, 7, 0, None, NO_STREAM),
        "no such type": lambda: nccl.ncclAllReduce(at, at, 1, no_type, 0, comm, NO_STREAM),
        "no such operator": lambda: nccl.ncclAllReduce(at, at, 1, 7, no_op, comm, NO_STREAM),
        "no such root": lambda: nccl.ncclBroadcast(at, at, 1, 7, client.size, comm, NO_STREAM),
        "no such peer": lambda: nccl.ncclSend(at, 1, 7, client.size, comm, NO_STREAM),
        "no such rank": lambda: nccl.ncclCommInitRank(2, nccl.ncclGetUniqueId(), 2),
    }
    for name, call in wrong.items():
        must_fail(f"NCCL error: {ERRORS[4]}", name, call)
    must_fail(f"NCCL error: {ERRORS[5]}", "end of no group", nccl.ncclGroupEnd)
    buffer.must_be_blank("wrong calls")
    still_works(client, "after wrong calls")


def must_fail(expected, name, call):
    try:
        call()
    except RuntimeError as error:
        must(str(error) == expected, f"{name}: {str(error)!r} instead of {expected!r}")
    else:
        must(False, f"{name}: accepted")


def abort(wrapper, nccl, client, second):
    still_works(Client(wrapper, nccl, second, client.rank, client.size), "of a second communicator")
    still_works(client, "beside a second communicator")  # all ranks have finished with that one
    nccl.ncclCommAbort(second)
    still_works(client, "after the abort of another communicator")


if __name__ == "__main__":
    main()
