/*
 * Calls on CUDA streams: each returns before its data is written. Calls keep their order with other
 * work of their stream, and with calls on other streams of their communicator.
 */
#include "vectors.h"

enum { FEW = 1001, MANY = 11 << 20 /* elements: more pieces than the ring has slots */ };

static struct vector vector_of_rank(size_t count, CUstream stream, struct here here) {
  struct vector vector = new_vector(count);
  fill_vector(&vector, stream, (uint32_t)here.rank + 1, 3 * (uint32_t)here.rank + 3);
  return vector;
}

static void check_reduced(const struct vector *vector, struct here here) {
  CHECK_SEEN(vector, sum_of_ranks(here.n), 3 * sum_of_ranks(here.n));
}

/* The stream of rank 0 is held, so it sends nothing, and no rank can have a result. */
static void return_early(size_t count, struct here here, nexarComm_t other) {
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  struct vector vector = new_vector(count);
  uint64_t hold = 0;
  if (here.rank == 0) MINE(hold = fakecuda_hold(stream));
  fill_vector(&vector, stream, (uint32_t)here.rank + 1, 3 * (uint32_t)here.rank + 3);
  CALL(reduce_vector(&vector, here.comm, stream));
  copy_out(&vector, stream);
  check_stays_busy(stream);
  CHECK_CODE(nexarSuccess, nexarBarrier(other, NULL)); /* all have called */
  check_stays_busy(stream);
  CHECK_CODE(nexarSuccess, nexarBarrier(other, NULL));
  if (here.rank == 0) fakecuda_release(hold);
  synchronize(stream);
  check_reduced(&vector, here);
  end_stream(stream);
  free_vector(&vector);
}

static void a_call_returns_before_its_data_is_there(void) {
  if (!can_hold_streams()) return;
  struct here h = here();
  nexarComm_t other = join_another(h.rank, h.n, h.comm);
  return_early(FEW, h, other);
  return_early(MANY, h, other);
  CALL(nexarCommDestroy(other));
}

/* The stream adds each result to the next input: y = the sum of all x, x += y. */
static void work_after_a_call_sees_its_result(void) {
  enum { TIMES = 8 };
  struct here h = here();
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  struct vector x = vector_of_rank(FEW, stream, h), y = new_vector(FEW);
  uint32_t own = (uint32_t)h.rank + 1, all = sum_of_ranks(h.n);
  for (int i = 0; i < TIMES; i++) {
    CALL(nexarAllReduce(data_of(&x), data_of(&y), FEW, nexarUint32, nexarSum, h.comm, stream));
    DO(fakecuda_add(stream, x.at, y.at, FEW));
    own += all;
    all += (uint32_t)h.n * all;
  }
  copy_out(&x, stream);
  synchronize(stream);
  CHECK_SEEN(&x, own, 3 * own);
  end_stream(stream);
  free_vector(&x);
  free_vector(&y);
}

/* The next call reuses the staging buffer, whichever stream it is on. */
static void take_turns(size_t count, struct here here) {
  CUstream streams[] = {new_stream(CU_STREAM_NON_BLOCKING), NULL,
                        new_stream(CU_STREAM_NON_BLOCKING), CU_STREAM_PER_THREAD,
                        new_stream(CU_STREAM_DEFAULT), CU_STREAM_LEGACY};
  struct vector vectors[COUNT_OF(streams)];
  for (size_t i = 0; i < COUNT_OF(streams); i++) vectors[i] = new_vector(count);
  for (int again = 0; again < 2; again++) {
    for (size_t i = 0; i < COUNT_OF(streams); i++) {
      uint32_t first = (uint32_t)here.rank + 1 + (uint32_t)i;
      fill_vector(&vectors[i], streams[i], first, 7);
      CALL(reduce_vector(&vectors[i], here.comm, streams[i]));
      copy_out(&vectors[i], streams[i]);
    }
    for (size_t i = 0; i < COUNT_OF(streams); i++) {
      synchronize(streams[i]);
      uint32_t n = (uint32_t)here.n;
      CHECK_SEEN(&vectors[i], sum_of_ranks(here.n) + n * (uint32_t)i, 7 * n);
    }
  }
  for (size_t i = 0; i < COUNT_OF(streams); i++) free_vector(&vectors[i]);
  for (size_t i = 0; i < COUNT_OF(streams); i += 2) end_stream(streams[i]);
}

static void streams_take_turns_on_a_communicator(void) {
  take_turns(FEW, here());
  take_turns((6 << 20) + 1, here());
}

static void calls_of_a_communicator_keep_their_order_on_all_streams(void) {
  if (!can_hold_streams()) return;
  struct here h = here();
  CUstream first = new_stream(CU_STREAM_NON_BLOCKING), second = new_stream(CU_STREAM_NON_BLOCKING);
  struct vector one = vector_of_rank(FEW, first, h), other = vector_of_rank(FEW, second, h);
  uint64_t hold;
  MINE(hold = fakecuda_hold(first));
  CALL(reduce_vector(&one, h.comm, first));
  CALL(reduce_vector(&other, h.comm, second));
  copy_out(&one, first);
  copy_out(&other, second);
  check_stays_busy(second);
  fakecuda_release(hold);
  synchronize(second);
  check_reduced(&other, h);
  synchronize(first);
  check_reduced(&one, h);
  end_stream(first);
  end_stream(second);
  free_vector(&one);
  free_vector(&other);
}

/* The stream is destroyed while the device still executes its work. */
static void a_stream_may_be_destroyed_after_a_call(void) {
  struct here h = here();
  struct vector vectors[5];
  for (size_t i = 0; i < COUNT_OF(vectors); i++) vectors[i] = new_vector(FEW);
  for (size_t i = 0; i < COUNT_OF(vectors); i++) {
    CUstream stream = new_stream(i % 2 ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING);
    fill_vector(&vectors[i], stream, (uint32_t)h.rank + 1, 3 * (uint32_t)h.rank + 3);
    CALL(reduce_vector(&vectors[i], h.comm, stream));
    copy_out(&vectors[i], stream);
    DO(cuStreamDestroy_v2(stream));
  }
  DO(cuCtxSynchronize());
  for (size_t i = 0; i < COUNT_OF(vectors); i++) {
    check_reduced(&vectors[i], h);
    free_vector(&vectors[i]);
  }
}

static void two_communicators_have_streams_of_their_own(void) {
  if (!can_hold_streams()) return;
  struct here h = here();
  nexarComm_t other = join_another(h.rank, h.n, h.comm);
  CUstream held = new_stream(CU_STREAM_NON_BLOCKING), free_one = new_stream(CU_STREAM_NON_BLOCKING);
  struct vector one = vector_of_rank(MANY, held, h), another = vector_of_rank(MANY, free_one, h);
  uint64_t hold;
  CHECK(fakecuda_pinned_bytes() <= 2 * (size_t)MOST_PINNED);
  synchronize(held);
  synchronize(free_one);
  MINE(hold = fakecuda_hold(held));
  CALL(reduce_vector(&one, h.comm, held));
  CALL(reduce_vector(&another, other, free_one));
  copy_out(&one, held);
  copy_out(&another, free_one);
  if (streams_share_a_queue()) fakecuda_release(hold);
  synchronize(free_one);
  check_reduced(&another, h);
  if (!streams_share_a_queue()) {
    CHECK(fakecuda_pending(held) > 0);
    fakecuda_release(hold);
  }
  synchronize(held);
  check_reduced(&one, h);
  end_stream(held);
  end_stream(free_one);
  CALL(nexarCommDestroy(other));
  free_vector(&one);
  free_vector(&another);
}

static void a_communicator_that_was_split_off_has_the_device(void) {
  struct here h = here();
  nexarComm_t half = NULL, everybody = NULL;
  int device = -1;
  CALL(nexarCommSplit(h.comm, h.rank % 2, h.rank, &half, NULL));
  CALL(nexarCommSplit(h.comm, 0, -h.rank, &everybody, NULL));
  struct here of_half = {h.rank / 2, (h.n + 1 - h.rank % 2) / 2, half};
  struct here of_all = {h.n - 1 - h.rank, h.n, everybody};
  CALL(nexarCommCuDevice(half, &device));
  CHECK_EQ(0, device);
  check_device_works(of_half);
  check_device_works(of_all);
  take_turns((5 << 20) + 3, of_all);
  CALL(nexarCommDestroy(half));
  CALL(nexarCommDestroy(everybody));
  check_device_works(h);
}

static void write_late(void *data) {
  uint32_t *numbers = data;
  numbers[0] = 5;
}

/* The stream writes the data before the call, and reads it after. */
static void reduce_host_memory(uint32_t *numbers, struct here here) {
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  uint64_t hold;
  numbers[0] = 1000;
  numbers[1] = (uint32_t)here.rank;
  MINE(hold = fakecuda_hold(stream));
  DO(cuLaunchHostFunc(stream, write_late, numbers));
  CALL(nexarAllReduce(numbers, numbers, 2, nexarUint32, nexarSum, here.comm, stream));
  check_stays_busy(stream);
  CHECK_EQ(1000, numbers[0]);
  fakecuda_release(hold);
  synchronize(stream);
  CHECK_EQ(5 * here.n, numbers[0]);
  CHECK_EQ(here.n * (here.n - 1) / 2, numbers[1]);
  end_stream(stream);
}

static void host_memory_is_used_in_the_order_of_a_cuda_stream(void) {
  if (!can_hold_streams()) return;
  uint32_t numbers[2], *pinned;
  reduce_host_memory(numbers, here());
  MINE(pinned = pinned_memory(8));
  reduce_host_memory(pinned, here());
  DO(cuMemFreeHost(pinned));
}

static void a_barrier_follows_the_work_of_its_stream(void) {
  if (!can_hold_streams()) return;
  struct here h = here();
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  nexarComm_t other = join_another(h.rank, h.n, h.comm);
  uint64_t hold = 0;
  if (h.rank == h.n - 1) MINE(hold = fakecuda_hold(stream));
  CALL(nexarBarrier(h.comm, stream));
  CHECK_CODE(nexarSuccess, nexarBarrier(other, NULL)); /* all have called the other one */
  check_stays_busy(stream);
  CHECK_CODE(nexarSuccess, nexarBarrier(other, NULL));
  if (h.rank == h.n - 1) fakecuda_release(hold);
  synchronize(stream);
  end_stream(stream);
  CALL(nexarCommDestroy(other));
}

/* Calls on host memory wait for earlier calls that were enqueued on the device. */
static void a_call_on_no_stream_follows_those_on_cuda_streams(void) {
  struct here h = here();
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  struct vector vector = vector_of_rank(FEW, stream, h);
  for (int i = 0; i < 10; i++) {
    fill_vector(&vector, stream, (uint32_t)h.rank + 1, 3 * (uint32_t)h.rank + 3);
    CALL(reduce_vector(&vector, h.comm, stream));
    check_it_works(h.rank, h.n, h.comm);
  }
  copy_out(&vector, stream);
  synchronize(stream);
  check_reduced(&vector, h);
  end_stream(stream);
  free_vector(&vector);
}

static void nothing_is_allocated_or_waited_for_while_operations_run(void) {
  if (!can_hold_streams()) return;
  struct here h = here();
  fakecuda_reset_calls();
  take_turns(FEW, h);
  take_turns((5 << 20) + 1, h);
  CHECK(fakecuda_calls("cuMemcpyAsync") > 0);
  const char *const functions[] = {"cuMemHostAlloc", "cuMemFreeHost", "cuStreamCreate",
                                   "cuStreamDestroy_v2", "cuEventCreate", "cuStreamSynchronize"};
  for (size_t i = 0; i < COUNT_OF(functions); i++) CHECK_EQ(0, fakecuda_calls(functions[i]));
}

static const struct test_case cases[] = {
    CASE(a_call_returns_before_its_data_is_there),
    CASE(work_after_a_call_sees_its_result),
    CASE(streams_take_turns_on_a_communicator),
    CASE(calls_of_a_communicator_keep_their_order_on_all_streams),
    CASE(a_stream_may_be_destroyed_after_a_call),
    CASE(two_communicators_have_streams_of_their_own),
    CASE(a_communicator_that_was_split_off_has_the_device),
    CASE(host_memory_is_used_in_the_order_of_a_cuda_stream),
    CASE(a_barrier_follows_the_work_of_its_stream),
    CASE(a_call_on_no_stream_follows_those_on_cuda_streams),
    CASE(nothing_is_allocated_or_waited_for_while_operations_run),
};

int main(void) {
  begin_with_device();
  return RUN(cases);
}
