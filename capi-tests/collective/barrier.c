/* nexarBarrier: nobody leaves before everybody has come. */
#define _GNU_SOURCE
#include <time.h>

#include "support/ranks.h"

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
    progress();
  }
}

static void nobody_leaves_before_everybody_has_come(void) {
  for (int n = 1; n <= 9 && can_share_memory(); n++) {
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
    progress();
  }
}

static void plain_memory_is_seen_across_a_barrier(void) {
  int written[8] = {0};
  for (int n = 2; n <= 8 && can_share_memory(); n += 3) run_ranks(n, read_what_the_neighbour_wrote, written);
}

/* The clock is the same for all processes of a machine. */
static int64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void compare_clocks(int rank, int n, nexarComm_t comm, void *arg) {
  (void)rank, (void)n, (void)arg;
  int64_t came[ROUNDS], left[ROUNDS];
  for (int round = 0; round < ROUNDS; round++) {
    came[round] = now();
    CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
    left[round] = now();
    progress();
  }
  CHECK_CODE(nexarSuccess, nexarAllReduce(came, came, ROUNDS, nexarInt64, nexarMax, comm, NULL));
  CHECK_CODE(nexarSuccess, nexarAllReduce(left, left, ROUNDS, nexarInt64, nexarMin, comm, NULL));
  for (int round = 0; round < ROUNDS; round++) CHECK(came[round] <= left[round]);
}

static void by_the_clock_too_the_first_leaves_after_the_last_has_come(void) {
  for (int n = 1; n <= 8; n++) run_ranks(n, compare_clocks, NULL);
}

static const struct test_case cases[] = {
    CASE(nobody_leaves_before_everybody_has_come),
    CASE(by_the_clock_too_the_first_leaves_after_the_last_has_come),
    CASE(plain_memory_is_seen_across_a_barrier),
};

int main(void) { return RUN(cases); }
