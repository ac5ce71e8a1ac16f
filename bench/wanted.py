"""The project's targets on one host: the least ratio peer / ours, or None.

Sizes are nominal: blocks of a few bytes are rounded up to whole elements of all ranks.
"""

KIB, MIB = 1 << 10, 1 << 20

ALL_REDUCE = {8: 1.0, 64 * KIB: 1.5, MIB: 2.0, 16 * MIB: 1.8, 128 * MIB: 2.5}
MEMALLOC = {16 * MIB: 3.0, 128 * MIB: 5.0}
REDUCTIONS = ("reducescatter", "scan")
COPIES = ("allgather", "broadcast", "alltoall")
V_FORMS = ("alltoallv", "gatherv", "scatterv")
MESSAGES = ("roundtrip", "window", "exchange")


def of_mpi(ranks, operation, size, memalloc):
    """The target against the best MPI with 2 ranks, against Open MPI with more."""
    if ranks == 2:
        return of_mpi_in_pairs(operation, size, memalloc)
    if memalloc:
        return None
    if ranks == 4:
        return 1.0 if size >= KIB or operation == "exchange" else None
    return 1 / 1.5 if ranks == 8 else None


def of_mpi_in_pairs(operation, size, memalloc):
    if memalloc:
        return MEMALLOC.get(size)
    if operation == "allreduce":
        return ALL_REDUCE.get(size)
    if operation in MESSAGES:
        return 0.8 if operation == "window" and size == 8 else 1.0
    if operation in V_FORMS:
        return 1.0 if size >= 2 * KIB else None
    if operation == "barrier" or size == 8:
        return 0.8
    if size < 64 * KIB:
        return None
    return 1.5 if operation in REDUCTIONS else 1.0


def of_others(ranks, operation, size, memalloc):
    """The target against the best of Gloo and nexar 0.2.0."""
    if ranks != 2 or memalloc or operation in V_FORMS + MESSAGES:
        return None
    if size <= 64 * KIB:
        return 10.0
    if operation == "allreduce" or operation in REDUCTIONS:
        return 3.0
    return 1.2 if operation in COPIES and size >= 16 * MIB else None
