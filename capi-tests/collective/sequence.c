/* Thousands of different collectives in a row on one communicator, each compared. */
#define _GNU_SOURCE
#include "collectives.h"

enum { CALLS = 2000 };

static const struct collective *const all[] = {
    &all_reduce,   &reduce,           &broadcast,  &bcast,    &all_gather, &all_gather_v,
    &reduce_scatter, &reduce_scatter_v, &all_to_all, &all_to_all_v, &gather,  &gather_v,
    &scatter,      &scatter_v,        &scan,       &ex_scan,  &all_reduce_bucketed,
};

/* Everything about call number i follows from i, alike on every rank. */
static struct job job_number(int i, int n) {
  uint64_t random = mixed(99, (uint64_t)i);
  struct job job = {.collective = all[(random >> 8) % COUNT_OF(all)],
                    .dtype = &dtypes[(random >> 16) % COUNT_OF(dtypes)],
                    .op.known = ops[(random >> 24) % COUNT_OF(ops)],
                    .count = (random >> 32) % (i % 50 ? 200 : 12000),
                    .root = (int)(random >> 56) % n,
                    .lengths = i % 3,
                    .places = i % 4 % 3,
                    .buffers = i % 10,
                    .in_place = i % 5 == 0,
                    .shift = (size_t)i % 7};
  if (job.dtype->kind == ONLY_MOVED) job.dtype = dtype_of(nexarInt32);
  bool average = job.op.known == nexarAvg && job.collective->has_no_average;
  if (average || !is_defined(job.op.known, job.dtype)) job.op.known = nexarSum;
  if (!job.collective->has_lengths) job.lengths = EQUAL;
  if (!job.collective->has_displacements) job.places = PACKED;
  return job;
}

static void make_all_calls(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  for (int i = 0; i < CALLS; i++) {
    struct job job = job_number(i, n);
    call_and_compare(rank, n, comm, &job);
    if (i % 100 == 0) CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
  }
}

static void two_thousand_different_collectives_in_a_row_are_all_right(void) {
  for (size_t i = 1; i < COUNT_OF(sizes); i++) run_ranks(sizes[i], make_all_calls, NULL);
}

static const struct test_case cases[] = {
    CASE(two_thousand_different_collectives_in_a_row_are_all_right),
};

int main(void) { return RUN(cases); }
