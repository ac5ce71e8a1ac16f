/* The cost of a call without communication: calls on a communicator of one rank. Prints nanoseconds
   per call, the best of several rounds. */
#include "measure.h"

enum { CALLS = 20000, ROUNDS = 50 };

static nexarComm_t comm;
static float in[2] = {1, 2}, out[2];

static void all_reduce(void) {
  CHECK(nexarAllReduce(in, out, 2, nexarFloat32, nexarSum, comm, NULL));
}
static void all_reduce_in_place(void) {
  CHECK(nexarAllReduce(out, out, 2, nexarFloat32, nexarSum, comm, NULL));
}
static void broadcast(void) {
  CHECK(nexarBroadcast(in, out, 2, nexarFloat32, 0, comm, NULL));
}
static void barrier(void) {
  CHECK(nexarBarrier(comm, NULL));
}
/* The C boundary alone. */
static void count(void) {
  int ranks;
  CHECK(nexarCommCount(comm, &ranks));
}

static void measure(const char *name, void (*call)(void)) {
  double best = 1e30;
  for (int round = 0; round < ROUNDS; round++) {
    double start = now_us();
    for (int i = 0; i < CALLS; i++)
      call();
    double ns = (now_us() - start) * 1e3 / CALLS;
    if (ns < best)
      best = ns;
  }
  printf("%-24s %7.1f ns\n", name, best);
}

int main(void) {
  CHECK(nexarCommInitAll(&comm, 1, NULL));
  measure("nexarAllReduce", all_reduce);
  measure("nexarAllReduce in place", all_reduce_in_place);
  measure("nexarBroadcast", broadcast);
  measure("nexarBarrier", barrier);
  measure("nexarCommCount", count);
  CHECK(nexarCommDestroy(comm));
}
