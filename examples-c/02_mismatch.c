/*
 * Two ranks make different calls: with this bug in a program many libraries hang or return garbage.
 * nexar fails both calls with an error text that has the calls of both ranks.
 *
 *     cc 02_mismatch.c -lnexar -lpthread && ./a.out
 */
#include <nexar.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(call)                                                                                \
  do {                                                                                             \
    if ((call) != nexarSuccess) {                                                                  \
      fprintf(stderr, "%s\n", nexarGetLastError(NULL));                                            \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)

enum { RANKS = 2 };

static void *work(void *handle) {
  nexarComm_t comm = handle;
  int rank;
  CHECK(nexarCommUserRank(comm, &rank));

  /* The bug: the ranks do not agree on how many elements to add up. */
  size_t count = rank == 0 ? 1000 : 1001;
  float data[1001] = {0};
  nexarResult_t result = nexarAllReduce(data, data, count, nexarFloat32, nexarSum, comm, NULL);

  printf("rank %d got \"%s\":\n  %s\n", rank, nexarGetErrorString(result), nexarGetLastError(comm));

  /* A failed communicator stays failed. It is destroyed as usual. */
  CHECK(nexarCommDestroy(comm));
  if (result != nexarInvalidUsage) {
    fprintf(stderr, "rank %d expected nexarInvalidUsage\n", rank);
    exit(1);
  }
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
