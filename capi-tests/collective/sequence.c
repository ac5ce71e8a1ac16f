/* Thousands of different collectives in a row on one communicator, each checked. */
#define _GNU_SOURCE
#include "elements.h"
#include "ranks.h"

enum { CALLS = 2000, LARGEST = 12000 };

struct buffers {
  unsigned char *send, *recv, *expected;
};

/* Call number i: everything about it follows from i, alike on every rank. */
static void make_call_number(int i, int rank, int n, nexarComm_t comm, struct buffers b) {
  uint64_t random = mixed(99, (uint64_t)i);
  const struct dtype *dtype = &dtypes[random % COUNT_OF(dtypes)];
  nexarRedOp_t op = ops[(random >> 8) % COUNT_OF(ops)];
  if (!is_defined(op, dtype)) op = nexarSum;
  size_t count = (random >> 16) % (i % 50 ? 200 : LARGEST);
  size_t bytes = count * dtype->size, all = (size_t)n * bytes, own = (size_t)rank * bytes;
  int root = (int)(random >> 40) % n;
  char what[80];
  snprintf(what, sizeof what, "call %d: %zu x %s, op %d, rank %d", i, count, dtype->name, (int)op,
           rank);

  switch ((random >> 50) % 6) {
    case 0:
      fill(dtype, op, n, rank, b.send, count);
      fold_all(dtype, op, n, b.expected, count);
      CHECK_CODE(nexarSuccess, nexarAllReduce(b.send, b.recv, count, dtype->code, op, comm, NULL));
      CHECK_SAME(b.expected, b.recv, bytes, what);
      break;
    case 1:
      fill(dtype, op, n, rank, b.send, count);
      fold_all(dtype, op, n, b.expected, count);
      CHECK_CODE(nexarSuccess,
                 nexarReduce(b.send, b.recv, count, dtype->code, op, root, comm, NULL));
      if (rank == root) CHECK_SAME(b.expected, b.recv, bytes, what);
      break;
    case 2:
      fill(dtype, op, n, root, b.expected, count);
      fill(dtype, op, n, rank, b.recv, count);
      CHECK_CODE(nexarSuccess, nexarBcast(b.recv, count, dtype->code, root, comm, NULL));
      CHECK_SAME(b.expected, b.recv, bytes, what);
      break;
    case 3:
      for (int r = 0; r < n; r++) fill(dtype, op, n, r, b.expected + (size_t)r * bytes, count);
      fill(dtype, op, n, rank, b.send, count);
      CHECK_CODE(nexarSuccess, nexarAllGather(b.send, b.recv, count, dtype->code, comm, NULL));
      CHECK_SAME(b.expected, b.recv, all, what);
      break;
    case 4:
      fill(dtype, op, n, rank, b.send, (size_t)n * count);
      fold_all(dtype, op, n, b.expected, (size_t)n * count);
      CHECK_CODE(nexarSuccess,
                 nexarReduceScatter(b.send, b.recv, count, dtype->code, op, comm, NULL));
      CHECK_SAME(b.expected + own, b.recv, bytes, what);
      break;
    default:
      CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
  }
}

static void make_all_calls(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  size_t bytes = (size_t)n * LARGEST * 8;
  struct buffers buffers = {malloc(bytes), malloc(bytes), malloc(bytes)};
  for (int i = 0; i < CALLS; i++) make_call_number(i, rank, n, comm, buffers);
  free(buffers.send);
  free(buffers.recv);
  free(buffers.expected);
}

static void two_thousand_different_collectives_in_a_row_are_all_right(void) {
  for (size_t i = 1; i < COUNT_OF(sizes); i++) run_ranks(sizes[i], make_all_calls, NULL);
}

/* More than 16 bits of call numbers. */
static void make_very_many_calls(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  for (int i = 0; i < 70000; i++) {
    int32_t data = rank + i;
    CHECK_CODE(nexarSuccess, nexarAllReduce(&data, &data, 1, nexarInt32, nexarMax, comm, NULL));
    CHECK_EQ(n - 1 + i, data);
  }
}

static void call_number_65536_is_like_any_other(void) { run_ranks(2, make_very_many_calls, NULL); }

static const struct test_case cases[] = {
    CASE(two_thousand_different_collectives_in_a_row_are_all_right),
    CASE(call_number_65536_is_like_any_other),
};

int main(void) { return RUN(cases); }
