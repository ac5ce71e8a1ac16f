/*
 * The measurement shared by the programs of compare.py, one for each library. C and C++.
 *
 *     PROGRAM OPERATION SECONDS BYTES...
 *
 * A program defines the functions declared here and passes its arguments to measure(). For each
 * size rank 0 prints `operation,bytes,microseconds`. Bytes are the size of the larger of a rank's
 * two buffers: the received one in an all-gather or a gatherv, the sent one in a reduce-scatter or
 * a scatterv. The counts of the V forms are equal. Elements are float32, the operator is sum, the
 * root is rank 0. Send and receive buffers differ, except for the broadcast, which MPI has in place
 * only: it uses the receive buffer.
 *
 * Each size is checked once, then warmed up, then timed in batches for about SECONDS. A batch
 * begins with a barrier; its time is that of the slowest rank. The figure is the median of the
 * batches, each the mean of its calls.
 */
#ifndef COLLECTIVES_H
#define COLLECTIVES_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "timing.h"

enum operation {
  ALL_REDUCE,
  REDUCE,
  BROADCAST,
  ALL_GATHER,
  REDUCE_SCATTER,
  ALL_TO_ALL,
  SCAN,
  BARRIER,
  ALL_TO_ALL_V,
  GATHER_V,
  SCATTER_V,
  ROUND_TRIP, /* ranks 0 and 1: a message there and one back */
  WINDOW,     /* WINDOW_MESSAGES from rank 0 to rank 1, posted together, then a short reply */
  EXCHANGE,   /* each rank: a message to the next rank and one from the rank before */
  OPERATIONS
};

static const char *const operation_names[OPERATIONS] = {
    "allreduce", "reduce", "broadcast", "allgather", "reducescatter", "alltoall", "scan",
    "barrier", "alltoallv", "gatherv", "scatterv", "roundtrip", "window", "exchange"};

enum { WINDOW_MESSAGES = 64 };

static int rank, size; /* of this process; set before measure() */

/* Makes one call and waits for its completion. `count`: elements of the larger buffer, a multiple
   of `size` where it has a block for each rank. */
static void call(enum operation operation, float *in, float *out, size_t count);
/* The maximum over all ranks. */
static double maximum(double value);
static float *allocate(size_t bytes);
static void release(float *buffer);

static inline void give_up(const char *what) {
  fprintf(stderr, "rank %d: %s\n", rank, what);
  exit(1);
}

static inline float *allocate_plain(size_t bytes) {
  const size_t page = 4096;
  float *buffer = (float *)aligned_alloc(page, (bytes / page + 1) * page);
  if (buffer == NULL) give_up("no memory");
  return buffer;
}

/* An element of a rank's input: a small integer, so that no sum is rounded. */
static inline float sent(int from, size_t index) { return (float)(index % 97) + (float)from; }

/* The sum of an element over the first `ranks` ranks. */
static inline float sum(int ranks, size_t index) {
  return (float)ranks * (float)(index % 97) + (float)(ranks * (ranks - 1) / 2);
}

static inline float expected(enum operation operation, size_t index, size_t block) {
  switch (operation) {
  case BROADCAST: return sent(0, index);
  case ALL_GATHER: return sent((int)(index / block), index % block);
  case REDUCE_SCATTER: return sum(size, (size_t)rank * block + index);
  case GATHER_V: return sent((int)(index / block), index % block);
  case ROUND_TRIP: return sent(1 - rank, index);
  case WINDOW: return sent(0, index);
  case EXCHANGE: return sent((rank + size - 1) % size, index);
  case SCATTER_V: return sent(0, (size_t)rank * block + index);
  case ALL_TO_ALL:
  case ALL_TO_ALL_V: return sent((int)(index / block), (size_t)rank * block + index % block);
  case SCAN: return sum(rank + 1, index);
  default: return sum(size, index);
  }
}

static inline void check(enum operation operation, float *in, float *out, size_t count) {
  size_t block = count / (size_t)size;
  for (size_t i = 0; i < count; i++) {
    in[i] = sent(rank, i);
    out[i] = operation == BROADCAST && rank == 0 ? in[i] : -1;
  }
  call(operation, in, out, count);
  size_t results = operation == REDUCE_SCATTER || operation == SCATTER_V ? block : count;
  bool at_root = operation == REDUCE || operation == GATHER_V;
  if (operation == BARRIER || (at_root && rank != 0)) results = 0;
  if ((operation == ROUND_TRIP && rank > 1) || (operation == WINDOW && rank != 1)) results = 0;
  for (size_t i = 0; i < results; i++) {
    if (out[i] != expected(operation, i, block)) give_up("a result is wrong");
  }
}

/* Returns the microseconds per call of the slowest rank, on every rank. */
static inline double batch(enum operation operation, float *in, float *out, size_t count,
                           size_t calls) {
  call(BARRIER, in, out, count);
  double begin = now_us();
  for (size_t i = 0; i < calls; i++) call(operation, in, out, count);
  return maximum((now_us() - begin) / (double)calls);
}

static inline double timed(enum operation operation, float *in, float *out, size_t count,
                           double budget) {
  double means[9];
  const size_t most = sizeof means / sizeof *means;
  size_t calls = 1;
  /* The warm-up doubles its calls until it is long enough to estimate how many fit the budget. */
  double once = batch(operation, in, out, count, calls);
  while (once * (double)calls < budget / 5) {
    calls *= 2;
    once = batch(operation, in, out, count, calls);
  }
  size_t fit = (size_t)(budget / once);
  size_t batches = (fit < most ? fit : most) | 1; /* odd: its median is one of them */
  calls = fit / batches > 0 ? fit / batches : 1;
  for (size_t i = 0; i < batches; i++) means[i] = batch(operation, in, out, count, calls);
  return median(means, batches);
}

static inline enum operation named(const char *name) {
  int found = 0;
  while (found < OPERATIONS && strcmp(name, operation_names[found]) != 0) found++;
  if (found == OPERATIONS) give_up("unknown operation");
  return (enum operation)found;
}

static inline void measure(int argc, char **argv) {
  if (argc < 4) give_up("usage: OPERATION SECONDS BYTES...");
  enum operation operation = named(argv[1]);
  double budget = atof(argv[2]) * 1e6;
  for (int i = 3; i < argc; i++) {
    size_t bytes = strtoull(argv[i], NULL, 10), count = bytes / sizeof(float);
    float *in = allocate(bytes), *out = allocate(bytes);
    check(operation, in, out, count);
    double us = timed(operation, in, out, count, budget);
    if (rank == 0) {
      printf("%s,%zu,%.3f\n", argv[1], bytes, us);
      fflush(stdout);
    }
    release(in);
    release(out);
  }
}

#endif
