/*
 * Thousands of calls in a row, each compared, of up to 44 or up to 6000 bytes: ranks of one host
 * have different paths for up to 32 bytes, up to 4 KiB and more. Now and then a rank is late.
 */
#define _GNU_SOURCE
#include "support/collectives.h"

enum { CALLS = 3000 };

/* Delays one call in 16: the other ranks leave their fast path and wait. */
static void be_late(int rank, int call) {
  volatile uint64_t steps = mixed((uint64_t)rank, (uint64_t)call) % 16 == 0 ? 200000 : 0;
  while (steps > 0) steps--;
}

static void make_all_calls(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  for (int i = 0; i < CALLS; i++) {
    struct job job = any_job(7, i, n);
    size_t most = i % 4 == 0 ? 6000 : 44;
    job.count = 1 + mixed(3, (uint64_t)i) % (most / job.dtype->size);
    be_late(rank, i);
    call_and_compare(rank, n, comm, &job);
    if (i % 10 == 0) CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
  }
}

static void calls_of_few_bytes_are_right_if_ranks_are_late(void) {
  for (size_t i = 1; i < COUNT_OF(sizes); i++) run_ranks(sizes[i], make_all_calls, NULL);
}

static const struct test_case cases[] = {
    CASE(calls_of_few_bytes_are_right_if_ranks_are_late),
};

int main(void) { return RUN(cases); }
