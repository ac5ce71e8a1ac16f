/*
 * A rank that calls collectives for a time:
 *
 *     steady SECONDS
 *
 * Prints one line: the number of calls and the milliseconds of the longest one, or an error. Every
 * result is checked.
 */
#include <stdio.h>
#include <stdlib.h>

#include <nexar.h>

#include "clock.h"

enum { MOST = 100000 };

static int rank, size;
static nexarComm_t comm;
static int *sent, *received;
static long calls;
static long long longest; /* ns */

static void end(const char *what) {
  printf("call %ld: %s\n", calls, what);
  exit(1);
}

static void ended(nexarResult_t result, long long began) {
  if (result != nexarSuccess) end(nexarGetLastError(comm));
  long long took = now_ns() - began;
  if (took > longest) longest = took;
  calls++;
}

static void expect(size_t count, int first, int step) {
  for (size_t i = 0; i < count * (size_t)size; i++)
    if (received[i] != first + step * (int)(i / count)) end("a wrong result");
}

/* One call of four collectives. Every element of rank r is r + 1. */
static void one_of_each(size_t count) {
  long long began = now_ns();
  ended(nexarAllReduce(sent, received, count * (size_t)size, nexarInt32, nexarSum, comm, NULL),
        began);
  expect(count, size * (size + 1) / 2, 0);
  began = now_ns();
  ended(nexarAllToAll(sent, received, count, nexarInt32, comm, NULL), began);
  expect(count, 1, 1);
  began = now_ns();
  ended(nexarBroadcast(sent, received, count * (size_t)size, nexarInt32, size - 1, comm, NULL),
        began);
  expect(count, size, 0);
  began = now_ns();
  ended(nexarAllGather(sent, received, count, nexarInt32, comm, NULL), began);
  expect(count, 1, 1);
}

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  if (nexarCommInitFromEnv(&comm) != nexarSuccess) end(nexarGetLastError(NULL));
  nexarCommUserRank(comm, &rank);
  nexarCommCount(comm, &size);
  sent = malloc(MOST * (size_t)size * sizeof *sent);
  received = malloc(MOST * (size_t)size * sizeof *received);
  if (!sent || !received) return 2;
  for (size_t i = 0; i < MOST * (size_t)size; i++) sent[i] = rank + 1;
  const size_t counts[] = {1, 1000, MOST};
  long long until = now_ns() + atoll(argv[1]) * 1000000000LL;
  for (int go_on = 1; go_on;) {
    for (int i = 0; i < 3; i++) one_of_each(counts[i]);
    go_on = now_ns() < until; /* rank 0 decides for all */
    long long began = now_ns();
    ended(nexarBcast(&go_on, 1, nexarInt32, 0, comm, NULL), began);
  }
  if (nexarCommDestroy(comm) != nexarSuccess) end(nexarGetLastError(NULL));
  printf("%ld calls, the longest %lld ms\n", calls, longest / 1000000);
  return 0;
}
