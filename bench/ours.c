/*
 * Measures nexar's collectives as collectives.h describes. With --memalloc as the first argument
 * the buffers are allocated by nexarMemAlloc.
 */
#include "collectives.h"
#include "measure.h"

static nexarComm_t comm;
static int memalloc;

/* The counts of a V form. */
static const size_t *counts_of(size_t block) {
  static size_t counts[1024];
  for (int i = 0; i < size; i++) counts[i] = block;
  return counts;
}

static void call(enum operation operation, float *in, float *out, size_t count) {
  nexarDataType_t type = nexarFloat32;
  size_t block = count / (size_t)size;
  switch (operation) {
  case ALL_REDUCE: CHECK(nexarAllReduce(in, out, count, type, nexarSum, comm, NULL)); break;
  case REDUCE: CHECK(nexarReduce(in, out, count, type, nexarSum, 0, comm, NULL)); break;
  case BROADCAST: CHECK(nexarBcast(out, count, type, 0, comm, NULL)); break;
  case ALL_GATHER: CHECK(nexarAllGather(in, out, block, type, comm, NULL)); break;
  case REDUCE_SCATTER: CHECK(nexarReduceScatter(in, out, block, type, nexarSum, comm, NULL)); break;
  case ALL_TO_ALL: CHECK(nexarAllToAll(in, out, block, type, comm, NULL)); break;
  case SCAN: CHECK(nexarScan(in, out, count, type, nexarSum, comm, NULL)); break;
  case ALL_TO_ALL_V: {
    const size_t *counts = counts_of(block);
    CHECK(nexarAllToAllV(in, counts, NULL, out, counts, NULL, type, comm, NULL));
    break;
  }
  case GATHER_V:
    CHECK(nexarGatherV(in, block, out, counts_of(block), NULL, type, 0, comm, NULL));
    break;
  case SCATTER_V:
    CHECK(nexarScatterV(in, counts_of(block), NULL, out, block, type, 0, comm, NULL));
    break;
  case ROUND_TRIP:
    if (rank == 0) CHECK(nexarSend(in, count, type, 1, comm, NULL));
    if (rank < 2) CHECK(nexarRecv(out, count, type, 1 - rank, comm, NULL));
    if (rank == 1) CHECK(nexarSend(in, count, type, 0, comm, NULL));
    break;
  case WINDOW:
    CHECK(nexarGroupStart());
    for (int i = 0; i < WINDOW_MESSAGES; i++) {
      if (rank == 0) CHECK(nexarSend(in, count, type, 1, comm, NULL));
      if (rank == 1) CHECK(nexarRecv(out, count, type, 0, comm, NULL));
    }
    CHECK(nexarGroupEnd());
    if (rank == 0) CHECK(nexarRecv(out, 1, type, 1, comm, NULL));
    if (rank == 1) CHECK(nexarSend(in, 1, type, 0, comm, NULL));
    break;
  case EXCHANGE: {
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    CHECK(nexarSendRecv(in, count, next, out, count, before, type, comm, NULL));
    break;
  }
  default: CHECK(nexarBarrier(comm, NULL));
  }
}

static double maximum(double value) {
  double most;
  CHECK(nexarAllReduce(&value, &most, 1, nexarFloat64, nexarMax, comm, NULL));
  return most;
}

static float *allocate(size_t bytes) {
  if (!memalloc) return allocate_plain(bytes);
  void *buffer;
  CHECK(nexarMemAlloc(&buffer, bytes));
  return buffer;
}

static void release(float *buffer) {
  if (!memalloc) free(buffer);
  else CHECK(nexarMemFree(buffer));
}

int main(int argc, char **argv) {
  memalloc = argc > 1 && strcmp(argv[1], "--memalloc") == 0;
  CHECK(nexarCommInitFromEnv(&comm));
  CHECK(nexarCommUserRank(comm, &rank));
  CHECK(nexarCommCount(comm, &size));
  measure(argc - memalloc, argv + memalloc);
  CHECK(nexarCommDestroy(comm));
  return 0;
}
