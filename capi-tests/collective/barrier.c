/* nexarBarrier: no rank leaves before all ranks have entered. */
#define _GNU_SOURCE
#include <time.h>

#include "support/ranks.h"

enum { ROUNDS = 500 };

static void count_entered_ranks(int rank, int n, nexarComm_t comm, void *arg) {
  atomic_int *entered = arg;
  (void)rank;
  for (int round = 1; round <= ROUNDS; round++) {
    atomic_fetch_add(entered, 1);
    CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
    /* No rank is a whole round ahead, because the next barrier waits for this rank. */
    int seen = atomic_load(entered);
    CHECK(seen >= round * n);
    CHECK(seen < (round + 1) * n);
    progress();
  }
}

static void no_rank_leaves_before_all_have_entered(void) {
  for (int n = 1; n <= 9 && can_share_memory(); n++) {
    atomic_int entered = 0;
    run_ranks(n, count_entered_ranks, &entered);
    CHECK_EQ(n * ROUNDS, entered);
  }
}

/* A write before the barrier is visible to all ranks after it. */
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
  for (int n = 2; n <= 8 && can_share_memory(); n += 3)
    run_ranks(n, read_what_the_neighbour_wrote, written);
}

/* Nanoseconds of a clock that all processes of a machine share. */
static int64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void compare_clocks(int rank, int n, nexarComm_t comm, void *arg) {
  (void)rank, (void)n, (void)arg;
  int64_t entered[ROUNDS], left[ROUNDS];
  for (int round = 0; round < ROUNDS; round++) {
    entered[round] = now();
    CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
    left[round] = now();
    progress();
  }
  CHECK_CODE(nexarSuccess, nexarAllReduce(entered, entered, ROUNDS, nexarInt64, nexarMax, comm,
                                          NULL));
  CHECK_CODE(nexarSuccess, nexarAllReduce(left, left, ROUNDS, nexarInt64, nexarMin, comm, NULL));
  for (int round = 0; round < ROUNDS; round++) CHECK(entered[round] <= left[round]);
}

static void by_the_clock_the_first_leaves_after_the_last_has_entered(void) {
  for (int n = 1; n <= 8; n++) run_ranks(n, compare_clocks, NULL);
}

static const struct test_case cases[] = {
    CASE(no_rank_leaves_before_all_have_entered),
    CASE(by_the_clock_the_first_leaves_after_the_last_has_entered),
    CASE(plain_memory_is_seen_across_a_barrier),
};

int main(void) { return RUN(cases); }
