/*
 * A rank that joins, splits the world into even and odd ranks, and works with both:
 *
 *     parts
 *
 * Prints one line: the milliseconds that it took to join and those of the split, or what went wrong.
 */
#include "check.h"
#include "moment.h"

static void end(const char *what, nexarComm_t comm) {
  printf("%s: %s\n", what, nexarGetLastError(comm));
  exit(1);
}

static void work(nexarComm_t comm) {
  int size = 0, sum = 1;
  if (nexarCommCount(comm, &size) != nexarSuccess) end("nexarCommCount", comm);
  if (nexarAllReduce(&sum, &sum, 1, nexarInt32, nexarSum, comm, NULL) != nexarSuccess)
    end("nexarAllReduce", comm);
  if (sum != size) end("a wrong sum", NULL);
}

int main(void) {
  nexarComm_t world = NULL, part = NULL;
  int rank = 0;
  long long began = now_ns();
  if (nexarCommInitFromEnv(&world) != nexarSuccess) end("nexarCommInitFromEnv", NULL);
  work(world);
  long long joined = now_ns();
  if (nexarCommUserRank(world, &rank) != nexarSuccess) end("nexarCommUserRank", world);
  if (nexarCommSplit(world, rank % 2, rank, &part, NULL) != nexarSuccess)
    end("nexarCommSplit", world);
  work(part);
  long long split = now_ns();
  if (nexarCommDestroy(part) != nexarSuccess) end("nexarCommDestroy", part);
  if (nexarCommDestroy(world) != nexarSuccess) end("nexarCommDestroy", world);
  printf("joined in %lld ms, split in %lld ms\n", (joined - began) / 1000000,
         (split - joined) / 1000000);
  return 0;
}
