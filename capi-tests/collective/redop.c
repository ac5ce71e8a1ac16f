/*
 * nexarRedOpCreate: functions of the program fold in every collective, in the order of ranks if
 * they do not commute. operators.h checks how they are called: aligned, in the calling thread, with
 * `user`.
 */
#define _GNU_SOURCE
#include "support/collectives.h"

/*
 * An element is the map x -> (2 k + 1) x + b, k and b its upper and lower half; two are composed,
 * the left one first. The factors are odd, so that nothing of any rank is lost.
 */
static uint64_t compose(const struct dtype *dtype, uint64_t left, uint64_t right) {
  unsigned half = 4 * (unsigned)dtype->size;
  uint64_t mask = (UINT64_C(1) << half) - 1;
  uint64_t k1 = left >> half & mask, b1 = left & mask, k2 = right >> half & mask, b2 = right & mask;
  uint64_t k = (2 * k1 * k2 + k1 + k2) & mask, b = ((2 * k2 + 1) * b1 + b2) & mask;
  return wrapped(dtype, k << half | b);
}

static uint64_t take_the_left(const struct dtype *dtype, uint64_t left, uint64_t right) {
  (void)dtype, (void)right;
  return left;
}

static uint64_t take_the_right(const struct dtype *dtype, uint64_t left, uint64_t right) {
  (void)dtype, (void)left;
  return right;
}

/* (1 + a) (1 + b) - 1, which commutes. */
static uint64_t accumulate(const struct dtype *dtype, uint64_t left, uint64_t right) {
  return wrapped(dtype, left + right + left * right);
}

static void fold_in_every_collective(int n, nexarDataType_t datatype, struct operator op,
                                     size_t count) {
  for (size_t c = 0; c < COUNT_OF(folding); c++)
    run_every_way(n, (struct job){.collective = folding[c], .dtype = dtype_of(datatype), .op = op,
                                  .count = count, .lengths = RAGGED, .buffers = 5});
}

static void operands_that_do_not_commute_are_folded_in_the_order_of_ranks(void) {
  const size_t counts[] = {0, 1, 4, 1001, 40001};
  struct operator op = {.combine = compose, .commutative = false};
  for (size_t i = 0; i < COUNT_OF(sizes); i++)
    for (size_t c = 0; c < COUNT_OF(counts); c++)
      fold_in_every_collective(sizes[i], nexarUint64, op, counts[c]);
}

static void operands_that_commute_give_the_fold(void) {
  const size_t counts[] = {0, 1, 1001, 40001};
  struct operator op = {.combine = accumulate, .commutative = true};
  for (size_t i = 0; i < COUNT_OF(sizes); i++)
    for (size_t c = 0; c < COUNT_OF(counts); c++)
      fold_in_every_collective(sizes[i], nexarInt32, op, counts[c]);
}

static void a_function_folds_elements_of_any_type(void) {
  combine_function *const functions[] = {compose, take_the_left, take_the_right};
  for (int n = 2; n <= 4; n++)
    for (size_t f = 0; f < COUNT_OF(functions); f++)
      for (size_t c = 0; c < COUNT_OF(folding); c++)
        run_every_type(n, (struct job){.collective = folding[c], .op.combine = functions[f],
                                       .count = 1003, .lengths = RAGGED, .buffers = 5});
}

static void large_buffers_keep_their_order(void) {
  for (size_t c = 0; c < COUNT_OF(folding); c++)
    run_job(3, (struct job){.collective = folding[c], .dtype = dtype_of(nexarInt32),
                            .op.combine = compose, .count = (1 << 20) + 3, .buffers = 3,
                            .shift = c % 2});
  run_job(2, JOB(all_reduce, nexarInt32, .op.combine = compose, .count = MIB_64));
  run_job(2, JOB(reduce, nexarInt32, .op.combine = compose, .count = MIB_64, .root = 1));
  run_job(2, JOB(reduce_scatter, nexarInt32, .op.combine = compose, .count = MIB_64 / 2));
  run_job(2, JOB(scan, nexarInt32, .op.combine = compose, .count = MIB_64, .in_place = true));
  run_job(2, JOB(ex_scan, nexarInt32, .op.combine = compose, .count = MIB_64, .in_place = true));
}

/* What a function got when it called nexar. */
struct meddler {
  nexarComm_t comm;
  nexarRedOp_t op;
  int calls;
};

static void add_and_meddle(const void *in, void *inout, size_t count, nexarDataType_t datatype,
                           void *user) {
  struct meddler *meddler = user;
  nexarResult_t error = nexarTimeout;
  nexarComm_t made = NULL;
  int version = 77, data[2] = {5, 6};
  (void)datatype;
  meddler->calls++;
  CHECK_CODE(nexarInvalidUsage, nexarBarrier(meddler->comm, NULL));
  CHECK_TEXT(nexarGetLastError(NULL), "nexarBarrier");
  CHECK_TEXT(nexarGetLastError(NULL), "nexarRedOpCreate");
  CHECK_CODE(nexarInvalidUsage,
             nexarAllReduce(data, data, 2, nexarInt32, nexarSum, meddler->comm, NULL));
  CHECK_CODE(nexarInvalidUsage, nexarCommGetAsyncError(meddler->comm, &error));
  CHECK_CODE(nexarInvalidUsage, nexarRedOpDestroy(meddler->op, meddler->comm));
  CHECK_CODE(nexarInvalidUsage, nexarCommDestroy(meddler->comm));
  CHECK_CODE(nexarInvalidUsage, nexarCommInitAll(&made, 1, NULL));
  CHECK_CODE(nexarInvalidUsage, nexarGetVersion(&version));
  CHECK(error == nexarTimeout && made == NULL && version == 77 && data[0] == 5 && data[1] == 6);
  for (size_t i = 0; i < count; i++) ((int32_t *)inout)[i] += ((const int32_t *)in)[i];
}

static void fold_with_a_meddler(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  struct meddler meddler = {.comm = comm};
  int32_t data[10], sums[10];
  for (int i = 0; i < 10; i++) data[i] = rank + i;
  CHECK_CODE(nexarSuccess, nexarRedOpCreate(&meddler.op, add_and_meddle, &meddler, 1, comm));
  CHECK_CODE(nexarSuccess, nexarAllReduce(data, sums, 10, nexarInt32, meddler.op, comm, NULL));
  for (int i = 0; i < 10; i++) CHECK_EQ(n * (n - 1) / 2 + n * i, sums[i]);
  CHECK_CODE(nexarSuccess,
             nexarAllReduce(&meddler.calls, &meddler.calls, 1, nexarInt32, nexarSum, comm, NULL));
  CHECK(meddler.calls >= n - 1); /* somebody has folded */
  CHECK_CODE(nexarSuccess, nexarRedOpDestroy(meddler.op, comm));
  check_it_works(rank, n, comm);
}

static void a_function_that_calls_nexar_is_refused_and_its_operation_goes_on(void) {
  for (size_t i = 1; i < COUNT_OF(sizes); i++) run_ranks(sizes[i], fold_with_a_meddler, NULL);
}

/* The function waits until the operator that it belongs to is destroyed. */
struct farewell {
  pthread_barrier_t inside, destroyed;
  nexarComm_t comm;
  nexarRedOp_t op;
  bool waited;
};

static void add_and_wait(const void *in, void *inout, size_t count, nexarDataType_t datatype,
                         void *user) {
  struct farewell *farewell = user;
  (void)datatype;
  if (!farewell->waited) {
    pthread_barrier_wait(&farewell->inside);
    pthread_barrier_wait(&farewell->destroyed);
    farewell->waited = true;
  }
  for (size_t i = 0; i < count; i++) ((int64_t *)inout)[i] += ((const int64_t *)in)[i];
}

static void *destroy_when_inside(void *arg) {
  struct farewell *farewell = arg;
  pthread_barrier_wait(&farewell->inside);
  CHECK_CODE(nexarSuccess, nexarRedOpDestroy(farewell->op, farewell->comm));
  pthread_barrier_wait(&farewell->destroyed);
  return NULL;
}

static void destroy_while_folding(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  enum { COUNT = 20000 };
  struct farewell farewell = {.comm = comm};
  int64_t *data = malloc(COUNT * sizeof *data), wrong = 0;
  pthread_t destroyer;
  for (int i = 0; i < COUNT; i++) data[i] = rank + i;
  pthread_barrier_init(&farewell.inside, NULL, 2);
  pthread_barrier_init(&farewell.destroyed, NULL, 2);
  CHECK_CODE(nexarSuccess, nexarRedOpCreate(&farewell.op, add_and_wait, &farewell, 1, comm));
  CHECK_EQ(0, pthread_create(&destroyer, NULL, destroy_when_inside, &farewell));
  CHECK_CODE(nexarSuccess,
             nexarAllReduce(data, data, COUNT, nexarInt64, farewell.op, comm, NULL));
  CHECK_EQ(0, pthread_join(destroyer, NULL));
  for (int i = 0; i < COUNT; i++) wrong += data[i] != n * (n - 1) / 2 + (int64_t)n * i;
  CHECK_EQ(0, wrong);
  CHECK_CODE(nexarInvalidArgument,
             nexarAllReduce(data, data, 1, nexarInt64, farewell.op, comm, NULL));
  CHECK_TEXT(nexarGetLastError(comm), "op");
  check_it_works(rank, n, comm);
  pthread_barrier_destroy(&farewell.inside);
  pthread_barrier_destroy(&farewell.destroyed);
  free(data);
}

/* On two ranks each of them folds, whatever the algorithm. */
static void a_call_that_uses_an_operator_is_not_disturbed_by_its_end(void) {
  run_ranks(2, destroy_while_folding, NULL);
}

static const struct test_case cases[] = {
    CASE(operands_that_do_not_commute_are_folded_in_the_order_of_ranks),
    CASE(operands_that_commute_give_the_fold),
    CASE(a_function_folds_elements_of_any_type),
    CASE(large_buffers_keep_their_order),
    CASE(a_function_that_calls_nexar_is_refused_and_its_operation_goes_on),
    CASE(a_call_that_uses_an_operator_is_not_disturbed_by_its_end),
};

int main(void) { return RUN(cases); }
