/* nexarReduceScatter against the oracle of elements.h: rank i gets block i, bit by bit. */
#define _GNU_SOURCE
#include "elements.h"
#include "ranks.h"

struct job {
  const struct dtype *dtype;
  nexarRedOp_t op;
  size_t count, shift;
  bool in_place;
  unsigned char *expected; /* all blocks; no two are alike */
};

static void scatter_and_compare(int rank, int n, nexarComm_t comm, void *arg) {
  const struct job *job = arg;
  size_t block = job->count * job->dtype->size, all = (size_t)n * block, own = (size_t)rank * block;
  char what[100];
  snprintf(what, sizeof what, "%s, op %d, %zu elements, rank %d of %d%s", job->dtype->name,
           (int)job->op, job->count, rank, n, job->in_place ? ", in place" : "");

  struct guarded send = guarded(all, job->shift), recv = guarded(block, job->shift);
  struct guarded sent = guarded(all, 0);
  fill(job->dtype, job->op, n, rank, send.at, (size_t)n * job->count);
  memcpy(sent.at, send.at, all);
  unsigned char *result = job->in_place ? send.at + own : recv.at;
  CHECK_CODE(nexarSuccess, nexarReduceScatter(send.at, result, job->count, job->dtype->code,
                                              job->op, comm, NULL));
  CHECK_SAME(job->expected + own, result, block, what);
  /* In place the other blocks stay as they are, out of place all of them. */
  if (job->in_place) memcpy(sent.at + own, job->expected + own, block);
  CHECK_SAME(sent.at, send.at, all, what);
  check_guards(send);
  check_guards(recv);
  check_guards(sent);
}

static void reduce_scatter(int n, nexarDataType_t datatype, nexarRedOp_t op, size_t count,
                           bool in_place, size_t shift) {
  if (!can_run(n)) return; /* before the work of the oracle */
  const struct dtype *dtype = dtype_of(datatype);
  size_t all = (size_t)n * count;
  struct job job = {dtype, op, count, shift, in_place, malloc(all * dtype->size + 1)};
  fold_all(dtype, op, n, job.expected, all);
  run_ranks(n, scatter_and_compare, &job);
  free(job.expected);
}

static void every_rank_gets_its_own_block_of_the_fold(void) {
  for (size_t i = 0; i < COUNT_OF(sizes); i++)
    FOR_COUNTS(count, sizes[i])
      for (int in_place = 0; in_place < 2; in_place++)
        for (size_t shift = 0; shift < 2; shift++)
          reduce_scatter(sizes[i], nexarFloat32, nexarSum, count, in_place, shift);
}

static void every_operator_on_every_type_gives_the_fold(void) {
  for (int n = 2; n <= 4; n++)
    for (size_t d = 0; d < COUNT_OF(dtypes); d++)
      for (size_t o = 0; o < COUNT_OF(ops); o++)
        if (is_defined(ops[o], &dtypes[d]))
          reduce_scatter(n, dtypes[d].code, ops[o], 1001, o % 2, o % 3);
}

static void a_rank_alone_gets_what_the_operator_says(void) {
  for (size_t d = 0; d < COUNT_OF(dtypes); d++)
    for (size_t o = 0; o < COUNT_OF(ops); o++)
      if (is_defined(ops[o], &dtypes[d])) reduce_scatter(1, dtypes[d].code, ops[o], 37, o % 2, 0);
}

static void large_buffers_lose_no_element(void) {
  reduce_scatter(3, nexarFloat32, nexarSum, (4 << 20) / 3 + 1, true, 1);
  reduce_scatter(3, nexarBfloat16, nexarMax, (1 << 20) + 3, false, 1);
  reduce_scatter(2, nexarFloat32, nexarSum, 8 << 20, true, 0); /* 64 MiB of both ranks */
}

static const struct test_case cases[] = {
    CASE(every_rank_gets_its_own_block_of_the_fold),
    CASE(every_operator_on_every_type_gives_the_fold),
    CASE(a_rank_alone_gets_what_the_operator_says),
    CASE(large_buffers_lose_no_element),
};

int main(void) { return RUN(cases); }
