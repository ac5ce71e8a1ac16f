/* nexarReduce against the oracle of elements.h, bit by bit at every root. */
#define _GNU_SOURCE
#include "elements.h"
#include "ranks.h"

struct job {
  const struct dtype *dtype;
  nexarRedOp_t op;
  size_t count, shift;
  bool in_place;
  int root;
  unsigned char *expected;
};

static void reduce_and_compare(int rank, int n, nexarComm_t comm, void *arg) {
  const struct job *job = arg;
  size_t bytes = job->count * job->dtype->size;
  bool at_root = rank == job->root;
  char what[100];
  snprintf(what, sizeof what, "%s, op %d, %zu elements, rank %d of %d, root %d", job->dtype->name,
           (int)job->op, job->count, rank, n, job->root);

  struct guarded send = guarded(bytes, job->shift), recv = guarded(bytes, job->shift);
  struct guarded sent = guarded(bytes, 0), before = guarded(bytes, 0);
  fill(job->dtype, job->op, n, rank, send.at, job->count);
  memcpy(sent.at, send.at, bytes);
  void *result = job->in_place ? send.at : recv.at;
  CHECK_CODE(nexarSuccess, nexarReduce(send.at, result, job->count, job->dtype->code, job->op,
                                       job->root, comm, NULL));
  if (at_root) CHECK_SAME(job->expected, result, bytes, what);
  if (!at_root) CHECK_SAME(before.at, recv.at, bytes, what);
  if (!at_root || !job->in_place) CHECK_SAME(sent.at, send.at, bytes, what);
  check_guards(send);
  check_guards(recv);
  check_guards(sent);
  check_guards(before);
}

static void reduce(int n, nexarDataType_t datatype, nexarRedOp_t op, size_t count, int root,
                   bool in_place, size_t shift) {
  if (!can_run(n)) return; /* before the work of the oracle */
  const struct dtype *dtype = dtype_of(datatype);
  struct job job = {dtype, op, count, shift, in_place, root, malloc(count * dtype->size + 1)};
  fold_all(dtype, op, n, job.expected, count);
  run_ranks(n, reduce_and_compare, &job);
  free(job.expected);
}

static void every_root_gets_the_fold_and_nobody_else_is_written_to(void) {
  for (size_t i = 0; i < COUNT_OF(sizes); i++)
    FOR_COUNTS(count, sizes[i])
      for (int root = 0; root < sizes[i]; root++)
        for (int in_place = 0; in_place < 2; in_place++)
          reduce(sizes[i], nexarFloat32, nexarSum, count, root, in_place, (size_t)(root % 2));
}

static void every_operator_on_every_type_gives_the_fold(void) {
  for (int n = 2; n <= 4; n++)
    for (size_t d = 0; d < COUNT_OF(dtypes); d++)
      for (size_t o = 0; o < COUNT_OF(ops); o++)
        if (is_defined(ops[o], &dtypes[d]))
          reduce(n, dtypes[d].code, ops[o], 1001, (int)o % n, o % 2, o % 3);
}

static void a_rank_alone_gets_what_the_operator_says(void) {
  for (size_t d = 0; d < COUNT_OF(dtypes); d++)
    for (size_t o = 0; o < COUNT_OF(ops); o++)
      if (is_defined(ops[o], &dtypes[d])) reduce(1, dtypes[d].code, ops[o], 37, 0, o % 2, 0);
}

static void large_buffers_lose_no_element(void) {
  reduce(3, nexarFloat32, nexarSum, (4 << 20) + 3, 1, true, 0);
  reduce(3, nexarInt8, nexarAvg, (4 << 20) + 3, 2, false, 1);
  reduce(2, nexarFloat32, nexarSum, 16 << 20, 1, true, 0); /* 64 MiB */
}

static const struct test_case cases[] = {
    CASE(every_root_gets_the_fold_and_nobody_else_is_written_to),
    CASE(every_operator_on_every_type_gives_the_fold),
    CASE(a_rank_alone_gets_what_the_operator_says),
    CASE(large_buffers_lose_no_element),
};

int main(void) { return RUN(cases); }
