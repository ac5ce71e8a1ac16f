/*
 * A rank that calls one collective over and over until it fails:
 *
 *     rank COLLECTIVE COUNT
 *
 * Prints "ready" after its first call, and at the end one line: the time of the failure in
 * nanoseconds of CLOCK_MONOTONIC, its code and its text. Every result before the failure is
 * checked.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <nexar.h>

#include "clock.h"

static int rank, size;
static nexarComm_t comm;
static size_t count;
static int *sent, *received;

static int end(nexarResult_t result) {
  printf("%lld %d %s\n", now_ns(), (int)result, nexarGetLastError(comm));
  nexarCommAbort(comm);
  return 0;
}

static nexarResult_t call(const char *name) {
#define IS(other) (strcmp(name, other) == 0)
  if (IS("allreduce"))
    return nexarAllReduce(sent, received, count, nexarInt32, nexarSum, comm, NULL);
  if (IS("reduce")) return nexarReduce(sent, received, count, nexarInt32, nexarSum, 0, comm, NULL);
  if (IS("broadcast")) return nexarBroadcast(sent, received, count, nexarInt32, 0, comm, NULL);
  if (IS("allgather")) return nexarAllGather(sent, received, count, nexarInt32, comm, NULL);
  if (IS("reducescatter"))
    return nexarReduceScatter(sent, received, count, nexarInt32, nexarSum, comm, NULL);
  if (IS("alltoall")) return nexarAllToAll(sent, received, count, nexarInt32, comm, NULL);
  if (IS("gather")) return nexarGather(sent, received, count, nexarInt32, 0, comm, NULL);
  if (IS("scatter")) return nexarScatter(sent, received, count, nexarInt32, 0, comm, NULL);
  if (IS("scan")) return nexarScan(sent, received, count, nexarInt32, nexarSum, comm, NULL);
  if (IS("exscan")) return nexarExScan(sent, received, count, nexarInt32, nexarSum, comm, NULL);
  if (IS("barrier")) return nexarBarrier(comm, NULL);
  fprintf(stderr, "there is no collective %s\n", name);
  exit(2);
}

/* Every rank sends ones: sums are counts of ranks. */
static int is_right(const char *name) {
  int expected = 1;
  if (IS("allreduce") || IS("reducescatter")) expected = size;
  if (IS("reduce")) expected = rank == 0 ? size : 0;
  if (IS("gather")) expected = rank == 0 ? 1 : 0;
  if (IS("scan")) expected = rank + 1;
  if (IS("exscan")) expected = rank;
  if (IS("barrier")) expected = 0;
  for (size_t i = 0; i < count; i++)
    if (received[i] != expected) return 0;
  return 1;
}

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  count = (size_t)atoll(argv[2]);
  if (nexarCommInitFromEnv(&comm) != nexarSuccess) return end(nexarInternalError);
  nexarCommUserRank(comm, &rank);
  nexarCommCount(comm, &size);
  sent = calloc(count * (size_t)size, sizeof *sent);
  received = calloc(count * (size_t)size, sizeof *received);
  if (!sent || !received) return 2;
  for (size_t i = 0; i < count * (size_t)size; i++) sent[i] = 1;
  for (long turn = 0;; turn++) {
    nexarResult_t result = call(argv[1]);
    if (result != nexarSuccess) return end(result);
    if (!is_right(argv[1])) {
      printf("%lld -1 wrong numbers in turn %ld\n", now_ns(), turn);
      return 1;
    }
    /* Ranks that only send may be ahead: after the barrier all have completed their first call. */
    if (turn == 0) {
      if ((result = nexarBarrier(comm, NULL)) != nexarSuccess) return end(result);
      printf("ready\n");
      fflush(stdout);
    }
  }
}
