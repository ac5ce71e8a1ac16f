/* Thousands of different collectives in a row on one communicator, each compared. */
#define _GNU_SOURCE
#include "support/collectives.h"

enum { CALLS = 2000 };

static void make_all_calls(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  for (int i = 0; i < CALLS; i++) {
    struct job job = any_job(99, i, n);
    call_and_compare(rank, n, comm, &job);
    if (i % 100 == 0) CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
  }
}

static void two_thousand_different_collectives_in_a_row_are_right(void) {
  for (size_t i = 1; i < COUNT_OF(sizes); i++) run_ranks(sizes[i], make_all_calls, NULL);
}

static const struct test_case cases[] = {
    CASE(two_thousand_different_collectives_in_a_row_are_right),
};

int main(void) { return RUN(cases); }
