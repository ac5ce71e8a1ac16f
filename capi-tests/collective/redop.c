/*
 * nexarRedOpCreate: functions of the program in every reduction, in rank order if they do not
 * commute. operators.h checks their calls: alignment, the calling thread, `user`.
 */
#define _GNU_SOURCE
#include "support/collectives.h"

/*
 * An element is the map x -> (2 k + 1) x + b, where k and b are its upper and lower half. Composes
 * two maps, the left one first. Odd factors are invertible, so every element affects the result.
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

/* (1 + a) (1 + b) - 1: commutative. */
static uint64_t accumulate(const struct dtype *dtype, uint64_t left, uint64_t right) {
  return wrapped(dtype, left + right + left * right);
}

static void reduce_in_every_collective(int n, nexarDataType_t datatype, struct operator op,
                                     size_t count) {
  for (size_t c = 0; c < COUNT_OF(folding); c++)
    run_every_way(n, (struct job){.collective = folding[c], .dtype = dtype_of(datatype), .op = op,
                                  .count = count, .lengths = RAGGED, .buffers = 5});
}

static void operands_that_do_not_commute_are_reduced_in_rank_order(void) {
  const size_t counts[] = {0, 1, 4, 1001, 40001};
  struct operator op = {.combine = compose, .commutative = false};
  for (size_t i = 0; i < COUNT_OF(sizes); i++)
    for (size_t c = 0; c < COUNT_OF(counts); c++)
      reduce_in_every_collective(sizes[i], nexarUint64, op, counts[c]);
}

static void operands_that_commute_give_the_fold(void) {
  const size_t counts[] = {0, 1, 1001, 40001};
  struct operator op = {.combine = accumulate, .commutative = true};
  for (size_t i = 0; i < COUNT_OF(sizes); i++)
    for (size_t c = 0; c < COUNT_OF(counts); c++)
      reduce_in_every_collective(sizes[i], nexarInt32, op, counts[c]);
}

static void a_function_reduces_elements_of_any_type(void) {
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

/* The state of a function that calls nexar. */
struct reentrant {
  nexarComm_t comm;
  nexarRedOp_t op;
  int calls;
};

static void add_and_call_nexar(const void *in, void *inout, size_t count, nexarDataType_t datatype,
                           void *user) {
  struct reentrant *reentrant = user;
  nexarResult_t error = nexarTimeout;
  nexarComm_t made = NULL;
  int version = 77, data[2] = {5, 6};
  (void)datatype;
  reentrant->calls++;
  CHECK_CODE(nexarInvalidUsage, nexarBarrier(reentrant->comm, NULL));
  CHECK_TEXT(nexarGetLastError(NULL), "nexarBarrier");
  CHECK_TEXT(nexarGetLastError(NULL), "nexarRedOpCreate");
  CHECK_CODE(nexarInvalidUsage,
             nexarAllReduce(data, data, 2, nexarInt32, nexarSum, reentrant->comm, NULL));
  CHECK_CODE(nexarInvalidUsage, nexarCommGetAsyncError(reentrant->comm, &error));
  CHECK_CODE(nexarInvalidUsage, nexarRedOpDestroy(reentrant->op, reentrant->comm));
  CHECK_CODE(nexarInvalidUsage, nexarCommDestroy(reentrant->comm));
  CHECK_CODE(nexarInvalidUsage, nexarCommInitAll(&made, 1, NULL));
  CHECK_CODE(nexarInvalidUsage, nexarGetVersion(&version));
  CHECK(error == nexarTimeout && made == NULL && version == 77 && data[0] == 5 && data[1] == 6);
  for (size_t i = 0; i < count; i++) ((int32_t *)inout)[i] += ((const int32_t *)in)[i];
}

static void reduce_with_a_reentrant_function(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  struct reentrant reentrant = {.comm = comm};
  int32_t data[10], sums[10];
  for (int i = 0; i < 10; i++) data[i] = rank + i;
  CHECK_CODE(nexarSuccess, nexarRedOpCreate(&reentrant.op, add_and_call_nexar, &reentrant, 1,
                                            comm));
  CHECK_CODE(nexarSuccess, nexarAllReduce(data, sums, 10, nexarInt32, reentrant.op, comm, NULL));
  for (int i = 0; i < 10; i++) CHECK_EQ(n * (n - 1) / 2 + n * i, sums[i]);
  CHECK_CODE(nexarSuccess,
             nexarAllReduce(&reentrant.calls, &reentrant.calls, 1, nexarInt32, nexarSum, comm,
                            NULL));
  CHECK(reentrant.calls >= n - 1); /* on all ranks together */
  CHECK_CODE(nexarSuccess, nexarRedOpDestroy(reentrant.op, comm));
  check_it_works(rank, n, comm);
}

static void a_function_that_calls_nexar_is_refused_and_its_operation_goes_on(void) {
  for (size_t i = 1; i < COUNT_OF(sizes); i++)
    run_ranks(sizes[i], reduce_with_a_reentrant_function, NULL);
}

/* The state of a function that waits until its operator is destroyed. */
struct destruction {
  pthread_barrier_t inside, destroyed;
  nexarComm_t comm;
  nexarRedOp_t op;
  bool waited;
};

static void add_and_wait(const void *in, void *inout, size_t count, nexarDataType_t datatype,
                         void *user) {
  struct destruction *destruction = user;
  (void)datatype;
  if (!destruction->waited) {
    pthread_barrier_wait(&destruction->inside);
    pthread_barrier_wait(&destruction->destroyed);
    destruction->waited = true;
  }
  for (size_t i = 0; i < count; i++) ((int64_t *)inout)[i] += ((const int64_t *)in)[i];
}

static void *destroy_when_inside(void *arg) {
  struct destruction *destruction = arg;
  pthread_barrier_wait(&destruction->inside);
  CHECK_CODE(nexarSuccess, nexarRedOpDestroy(destruction->op, destruction->comm));
  pthread_barrier_wait(&destruction->destroyed);
  return NULL;
}

static void destroy_while_folding(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  enum { COUNT = 20000 };
  struct destruction destruction = {.comm = comm};
  int64_t *data = malloc(COUNT * sizeof *data), wrong = 0;
  pthread_t destroyer;
  for (int i = 0; i < COUNT; i++) data[i] = rank + i;
  pthread_barrier_init(&destruction.inside, NULL, 2);
  pthread_barrier_init(&destruction.destroyed, NULL, 2);
  CHECK_CODE(nexarSuccess, nexarRedOpCreate(&destruction.op, add_and_wait, &destruction, 1, comm));
  CHECK_EQ(0, pthread_create(&destroyer, NULL, destroy_when_inside, &destruction));
  CHECK_CODE(nexarSuccess,
             nexarAllReduce(data, data, COUNT, nexarInt64, destruction.op, comm, NULL));
  CHECK_EQ(0, pthread_join(destroyer, NULL));
  for (int i = 0; i < COUNT; i++) wrong += data[i] != n * (n - 1) / 2 + (int64_t)n * i;
  CHECK_EQ(0, wrong);
  CHECK_CODE(nexarInvalidArgument,
             nexarAllReduce(data, data, 1, nexarInt64, destruction.op, comm, NULL));
  CHECK_TEXT(nexarGetLastError(comm), "op");
  check_it_works(rank, n, comm);
  pthread_barrier_destroy(&destruction.inside);
  pthread_barrier_destroy(&destruction.destroyed);
  free(data);
}

/* With two ranks, each rank calls the function, whatever the algorithm. */
static void a_call_that_uses_an_operator_completes_when_it_is_destroyed(void) {
  run_ranks(2, destroy_while_folding, NULL);
}

static const struct test_case cases[] = {
    CASE(operands_that_do_not_commute_are_reduced_in_rank_order),
    CASE(operands_that_commute_give_the_fold),
    CASE(a_function_reduces_elements_of_any_type),
    CASE(large_buffers_keep_their_order),
    CASE(a_function_that_calls_nexar_is_refused_and_its_operation_goes_on),
    CASE(a_call_that_uses_an_operator_completes_when_it_is_destroyed),
};

int main(void) { return RUN(cases); }
