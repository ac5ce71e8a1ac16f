/* Measures the collectives of any MPI as collectives.h describes. Build it with the MPI's
   wrapper. */
#include <mpi.h>

#include "collectives.h"

/* The counts and displacements of a V form. */
static int counts[1024], displs[1024];

static void count_blocks(int block) {
  for (int i = 0; i < size; i++) counts[i] = block, displs[i] = i * block;
}

/* A failed call ends the program, which is MPI's default. */
static void call(enum operation operation, float *in, float *out, size_t elements) {
  MPI_Comm all = MPI_COMM_WORLD;
  int count = (int)elements, block = count / size;
  switch (operation) {
  case ALL_REDUCE: MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, all); break;
  case REDUCE: MPI_Reduce(in, out, count, MPI_FLOAT, MPI_SUM, 0, all); break;
  case BROADCAST: MPI_Bcast(out, count, MPI_FLOAT, 0, all); break;
  case ALL_GATHER: MPI_Allgather(in, block, MPI_FLOAT, out, block, MPI_FLOAT, all); break;
  case REDUCE_SCATTER: MPI_Reduce_scatter_block(in, out, block, MPI_FLOAT, MPI_SUM, all); break;
  case ALL_TO_ALL: MPI_Alltoall(in, block, MPI_FLOAT, out, block, MPI_FLOAT, all); break;
  case SCAN: MPI_Scan(in, out, count, MPI_FLOAT, MPI_SUM, all); break;
  case ALL_TO_ALL_V:
    count_blocks(block);
    MPI_Alltoallv(in, counts, displs, MPI_FLOAT, out, counts, displs, MPI_FLOAT, all);
    break;
  case GATHER_V:
    count_blocks(block);
    MPI_Gatherv(in, block, MPI_FLOAT, out, counts, displs, MPI_FLOAT, 0, all);
    break;
  case SCATTER_V:
    count_blocks(block);
    MPI_Scatterv(in, counts, displs, MPI_FLOAT, out, block, MPI_FLOAT, 0, all);
    break;
  case ROUND_TRIP:
    if (rank == 0) MPI_Send(in, count, MPI_FLOAT, 1, 0, all);
    if (rank < 2) MPI_Recv(out, count, MPI_FLOAT, 1 - rank, 0, all, MPI_STATUS_IGNORE);
    if (rank == 1) MPI_Send(in, count, MPI_FLOAT, 0, 0, all);
    break;
  case WINDOW: {
    MPI_Request requests[WINDOW_MESSAGES];
    int posted = rank < 2 ? WINDOW_MESSAGES : 0;
    for (int i = 0; i < posted; i++) {
      if (rank == 0) MPI_Isend(in, count, MPI_FLOAT, 1, 0, all, &requests[i]);
      if (rank == 1) MPI_Irecv(out, count, MPI_FLOAT, 0, 0, all, &requests[i]);
    }
    MPI_Waitall(posted, requests, MPI_STATUSES_IGNORE);
    if (rank == 0) MPI_Recv(out, 1, MPI_FLOAT, 1, 0, all, MPI_STATUS_IGNORE);
    if (rank == 1) MPI_Send(in, 1, MPI_FLOAT, 0, 0, all);
    break;
  }
  case EXCHANGE: {
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    MPI_Sendrecv(in, count, MPI_FLOAT, next, 0, out, count, MPI_FLOAT, before, 0, all,
                 MPI_STATUS_IGNORE);
    break;
  }
  default: MPI_Barrier(all);
  }
}

static double maximum(double value) {
  double most;
  MPI_Allreduce(&value, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return most;
}

static float *allocate(size_t bytes) { return allocate_plain(bytes); }

static void release(float *buffer) { free(buffer); }

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  measure(argc, argv);
  MPI_Finalize();
  return 0;
}
