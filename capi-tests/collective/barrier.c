/* nexarBarrier: nobody leaves before everybody has come. */
#define _GNU_SOURCE
#include "ranks.h"

enum { ROUNDS = 500 };

static void count_those_who_came(int rank, int n, nexarComm_t comm, void *arg) {
  atomic_int *came = arg;
  (void)rank;
  for (int round = 1; round <= ROUNDS; round++) {
    atomic_fetch_add(came, 1);
    CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
    /* Nobody is a whole round ahead, as the next barrier waits for this rank. */
    int seen = atomic_load(came);
    CHECK(seen >= round * n);
    CHECK(seen < (round + 1) * n);
  }
}

static void nobody_leaves_before_everybody_has_come(void) {
  for (int n = 1; n <= 9; n++) {
    atomic_int came = 0;
    run_ranks(n, count_those_who_came, &came);
    CHECK_EQ(n * ROUNDS, came);
  }
}

/* What a rank wrote before the barrier is seen by all after it. */
static void read_what_the_neighbour_wrote(int rank, int n, nexarComm_t comm, void *arg) {
  int *written = arg;
  for (int round = 0; round < ROUNDS; round++) {
    written[rank] = round;
    CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
    CHECK_EQ(round, written[(rank + 1) % n]);
    CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
  }
}

static void plain_memory_is_seen_across_a_barrier(void) {
  int written[8] = {0};
  for (int n = 2; n <= 8; n += 3) run_ranks(n, read_what_the_neighbour_wrote, written);
}

static const struct test_case cases[] = {
    CASE(nobody_leaves_before_everybody_has_come),
    CASE(plain_memory_is_seen_across_a_barrier),
};

int main(void) { return RUN(cases); }
