/* Runs the operations with MPI: with_mpi <directory>, started by mpirun. MPI aborts on an error. */
#include <mpi.h>

#include "operations.h"

static MPI_Datatype types[TYPES];
static MPI_Op ops[OPS];
static const MPI_Comm world = MPI_COMM_WORLD;

static void all_reduce(const void *send, void *recv, int count, enum type type, enum op op) {
  MPI_Allreduce(send, recv, count, types[type], ops[op], world);
}

static void reduce(const void *send, void *recv, int count, enum type type, enum op op, int root) {
  MPI_Reduce(send, recv, count, types[type], ops[op], root, world);
}

static void reduce_scatter_block(const void *send, void *recv, int count, enum type type,
                                 enum op op) {
  MPI_Reduce_scatter_block(send, recv, count, types[type], ops[op], world);
}

static void reduce_scatter(const void *send, void *recv, const int *counts, enum type type,
                           enum op op) {
  MPI_Reduce_scatter(send, recv, counts, types[type], ops[op], world);
}

static void scan(const void *send, void *recv, int count, enum type type, enum op op) {
  MPI_Scan(send, recv, count, types[type], ops[op], world);
}

static void exscan(const void *send, void *recv, int count, enum type type, enum op op) {
  MPI_Exscan(send, recv, count, types[type], ops[op], world);
}

static void bcast(void *data, int count, enum type type, int root) {
  MPI_Bcast(data, count, types[type], root, world);
}

static void all_gather(const void *send, void *recv, int count, enum type type) {
  MPI_Allgather(send, count, types[type], recv, count, types[type], world);
}

static void all_gather_v(const void *send, int count, void *recv, const int *counts,
                         const int *displs, enum type type) {
  MPI_Allgatherv(send, count, types[type], recv, counts, displs, types[type], world);
}

static void all_to_all(const void *send, void *recv, int count, enum type type) {
  MPI_Alltoall(send, count, types[type], recv, count, types[type], world);
}

static void all_to_all_v(const void *send, const int *sendcounts, const int *sdispls, void *recv,
                         const int *recvcounts, const int *rdispls, enum type type) {
  MPI_Alltoallv(send, sendcounts, sdispls, types[type], recv, recvcounts, rdispls, types[type],
                world);
}

static void gather(const void *send, void *recv, int count, enum type type, int root) {
  MPI_Gather(send, count, types[type], recv, count, types[type], root, world);
}

static void gather_v(const void *send, int count, void *recv, const int *counts, const int *displs,
                     enum type type, int root) {
  MPI_Gatherv(send, count, types[type], recv, counts, displs, types[type], root, world);
}

static void scatter(const void *send, void *recv, int count, enum type type, int root) {
  MPI_Scatter(send, count, types[type], recv, count, types[type], root, world);
}

static void scatter_v(const void *send, const int *counts, const int *displs, void *recv, int count,
                      enum type type, int root) {
  MPI_Scatterv(send, counts, displs, types[type], recv, count, types[type], root, world);
}

int main(int argc, char **argv) {
  struct library mpi = {.name = "mpi", OPERATIONS(INITIALIZER)};
  if (argc != 2) return 2;
  MPI_Init(&argc, &argv);
  const MPI_Datatype their_types[TYPES] = {MPI_INT32_T, MPI_INT64_T, MPI_FLOAT, MPI_DOUBLE};
  const MPI_Op their_ops[OPS] = {MPI_SUM, MPI_PROD, MPI_MIN,  MPI_MAX, MPI_BAND,
                                 MPI_BOR, MPI_BXOR, MPI_LAND, MPI_LOR, MPI_LXOR};
  memcpy(types, their_types, sizeof types);
  memcpy(ops, their_ops, sizeof ops);
  MPI_Comm_rank(world, &mpi.rank);
  MPI_Comm_size(world, &mpi.n);
  int failed = run_all(&mpi, argv[1]);
  MPI_Finalize();
  return failed;
}
