/*
 * Four ranks add up their numbers, and every rank gets the sums.
 *
 * A rank is a participant of a communicator. Here each rank is a thread of this process:
 * nexarCommInitAll creates the communicator and returns one handle per rank.
 *
 *     cc 01_allreduce.c -lnexar -lpthread && ./a.out
 */
#include <nexar.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* Every call returns nexarSuccess or an error code; nexarGetLastError has the full error text. */
#define CHECK(call)                                                                                \
  do {                                                                                             \
    if ((call) != nexarSuccess) {                                                                  \
      fprintf(stderr, "%s\n", nexarGetLastError(NULL));                                            \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)

enum { RANKS = 4, COUNT = 3 };

static void *work(void *handle) {
  nexarComm_t comm = handle;
  int rank, nranks;
  CHECK(nexarCommUserRank(comm, &rank));
  CHECK(nexarCommCount(comm, &nranks));

  /* Each rank has its own data: rank 2 has 2, 20, 200. */
  float mine[COUNT] = {(float)rank, 10.0f * (float)rank, 100.0f * (float)rank}, sums[COUNT];

  /* All ranks make the same call, with the same count, type and operator. When it returns, the
     result is in sums. */
  CHECK(nexarAllReduce(mine, sums, COUNT, nexarFloat32, nexarSum, comm, NULL));

  printf("rank %d of %d got %g %g %g\n", rank, nranks, sums[0], sums[1], sums[2]);

  /* 0 + 1 + 2 + 3 = 6 */
  if (sums[0] != 6 || sums[1] != 60 || sums[2] != 600) {
    fprintf(stderr, "rank %d expected 6 60 600\n", rank);
    exit(1);
  }
  CHECK(nexarCommDestroy(comm));
  return NULL;
}

int main(void) {
  nexarComm_t comms[RANKS];
  pthread_t threads[RANKS];

  CHECK(nexarCommInitAll(comms, RANKS, NULL));
  for (int rank = 0; rank < RANKS; rank++) {
    if (pthread_create(&threads[rank], NULL, work, comms[rank]) != 0) {
      perror("pthread_create");
      return 1;
    }
  }
  for (int rank = 0; rank < RANKS; rank++) pthread_join(threads[rank], NULL);
  return 0;
}
