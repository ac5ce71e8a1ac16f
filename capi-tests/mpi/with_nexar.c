/* Runs the operations with nexar: with_nexar <directory>, started by nexar-run. */
#include <nexar.h>

#include "operations.h"

static const nexarDataType_t types[TYPES] = {nexarInt32, nexarInt64, nexarFloat32, nexarFloat64};
static const nexarRedOp_t ops[OPS] = {
    nexarSum,   nexarProd,   nexarMin,        nexarMax,       nexarBitAnd,
    nexarBitOr, nexarBitXor, nexarLogicalAnd, nexarLogicalOr, nexarLogicalXor};
static nexarComm_t world;

static void must(nexarResult_t result) {
  if (result == nexarSuccess) return;
  fprintf(stderr, "%s\n", nexarGetLastError(NULL));
  exit(1);
}

/* Counts are ints as in MPI; nexar takes size_t. */
struct sizes {
  size_t of[MOST_RANKS];
};

static struct sizes sizes(const int *ints) {
  struct sizes sizes;
  int n = 0;
  must(nexarCommCount(world, &n));
  for (int i = 0; i < n; i++) sizes.of[i] = (size_t)ints[i];
  return sizes;
}

static void all_reduce(const void *send, void *recv, int count, enum type type, enum op op) {
  must(nexarAllReduce(send, recv, (size_t)count, types[type], ops[op], world, NULL));
}

static void reduce(const void *send, void *recv, int count, enum type type, enum op op, int root) {
  must(nexarReduce(send, recv, (size_t)count, types[type], ops[op], root, world, NULL));
}

static void reduce_scatter_block(const void *send, void *recv, int count, enum type type,
                                 enum op op) {
  must(nexarReduceScatter(send, recv, (size_t)count, types[type], ops[op], world, NULL));
}

static void reduce_scatter(const void *send, void *recv, const int *counts, enum type type,
                           enum op op) {
  must(nexarReduceScatterV(send, recv, sizes(counts).of, types[type], ops[op], world, NULL));
}

static void scan(const void *send, void *recv, int count, enum type type, enum op op) {
  must(nexarScan(send, recv, (size_t)count, types[type], ops[op], world, NULL));
}

static void exscan(const void *send, void *recv, int count, enum type type, enum op op) {
  must(nexarExScan(send, recv, (size_t)count, types[type], ops[op], world, NULL));
}

static void bcast(void *data, int count, enum type type, int root) {
  must(nexarBcast(data, (size_t)count, types[type], root, world, NULL));
}

static void all_gather(const void *send, void *recv, int count, enum type type) {
  must(nexarAllGather(send, recv, (size_t)count, types[type], world, NULL));
}

static void all_gather_v(const void *send, int count, void *recv, const int *counts,
                         const int *displs, enum type type) {
  must(nexarAllGatherV(send, (size_t)count, recv, sizes(counts).of, sizes(displs).of, types[type],
                       world, NULL));
}

static void all_to_all(const void *send, void *recv, int count, enum type type) {
  must(nexarAllToAll(send, recv, (size_t)count, types[type], world, NULL));
}

static void all_to_all_v(const void *send, const int *sendcounts, const int *sdispls, void *recv,
                         const int *recvcounts, const int *rdispls, enum type type) {
  must(nexarAllToAllV(send, sizes(sendcounts).of, sizes(sdispls).of, recv, sizes(recvcounts).of,
                      sizes(rdispls).of, types[type], world, NULL));
}

static void gather(const void *send, void *recv, int count, enum type type, int root) {
  must(nexarGather(send, recv, (size_t)count, types[type], root, world, NULL));
}

static void gather_v(const void *send, int count, void *recv, const int *counts, const int *displs,
                     enum type type, int root) {
  must(nexarGatherV(send, (size_t)count, recv, sizes(counts).of, sizes(displs).of, types[type],
                    root, world, NULL));
}

static void scatter(const void *send, void *recv, int count, enum type type, int root) {
  must(nexarScatter(send, recv, (size_t)count, types[type], root, world, NULL));
}

static void scatter_v(const void *send, const int *counts, const int *displs, void *recv, int count,
                      enum type type, int root) {
  must(nexarScatterV(send, sizes(counts).of, sizes(displs).of, recv, (size_t)count, types[type],
                     root, world, NULL));
}

int main(int argc, char **argv) {
  struct library nexar = {.name = "nexar", OPERATIONS(INITIALIZER)};
  if (argc != 2) return 2;
  must(nexarCommInitFromEnv(&world));
  must(nexarCommUserRank(world, &nexar.rank));
  must(nexarCommCount(world, &nexar.n));
  int failed = run_all(&nexar, argv[1]);
  must(nexarCommDestroy(world));
  return failed;
}
