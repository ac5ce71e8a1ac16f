/*
 * A communicator between processes gets its device when it is created, also in the background or in
 * a group, or at its first call on device memory. At its end it releases all that it had.
 *
 * Ranks with an even number have used a device before the communicator `world` was created.
 */
#include <sched.h>

#include "vectors.h"

static void check_is_on(nexarComm_t comm, int expected) {
  int device = 77;
  CALL(nexarCommCuDevice(comm, &device));
  CHECK_EQ(expected, device);
}

static bool is_early(void) { return atoi(getenv("NEXAR_RANK")) % 2 == 0; }

/* Must be the first case: afterwards every rank has used its device. */
static void a_communicator_gets_its_device_when_that_is_first_used(void) {
  struct here h = here();
  check_is_on(h.comm, is_early() ? 0 : -1);
  check_it_works(h.rank, h.n, h.comm);
  if (!is_early()) {
    check_is_on(h.comm, -1);
    begin_with_device();
  }
  check_device_works(h);
  check_is_on(h.comm, 0);
}

static nexarUniqueId new_id(struct here here) {
  nexarUniqueId id = {{0}};
  if (here.rank == 0) CHECK_CODE(nexarSuccess, nexarGetUniqueId(&id));
  CHECK_CODE(nexarSuccess, nexarBcast(&id, sizeof id, nexarInt8, 0, here.comm, NULL));
  return id;
}

static nexarResult_t poll_until_created(nexarComm_t comm) {
  nexarResult_t state = nexarInProgress;
  while (state == nexarInProgress) {
    CHECK_CODE(nexarSuccess, nexarCommGetAsyncError(comm, &state));
    sched_yield();
  }
  return state;
}

static void a_communicator_created_in_the_background_has_the_device_of_the_caller(void) {
  struct here h = here();
  nexarConfig_t config = NEXAR_CONFIG_INITIALIZER;
  nexarUniqueId id = new_id(h);
  struct here made = h;
  config.blocking = 0;
  CALL_CODE(nexarInProgress, nexarCommInitRankConfig(&made.comm, h.n, id, h.rank, &config));
  CHECK_EQ(nexarSuccess, poll_until_created(made.comm));
  check_is_on(made.comm, 0);
  check_device_works(made);
  CALL(nexarCommDestroy(made.comm));
}

static void communicators_of_a_group_have_the_device_of_the_caller(void) {
  struct here h = here(), made[2] = {h, h};
  nexarUniqueId ids[2] = {new_id(h), new_id(h)};
  CALL(nexarGroupStart());
  for (int i = 0; i < 2; i++) CALL(nexarCommInitRank(&made[i].comm, h.n, ids[i], h.rank));
  CALL(nexarGroupEnd());
  for (int i = 0; i < 2; i++) {
    check_is_on(made[i].comm, 0);
    check_device_works(made[i]);
    CALL(nexarCommDestroy(made[i].comm));
  }
}

/* The current devices differ between ranks: a communicator may have different ordinals. */
static void a_communicator_gets_the_current_device(void) {
  struct here h = here(), made = h;
  nexarUniqueId id = new_id(h);
  CUcontext context;
  CUdevice device = h.rank % 2;
  DO(cuDevicePrimaryCtxRetain(&context, device));
  DO(cuCtxPushCurrent_v2(context));
  CALL(nexarCommInitRank(&made.comm, h.n, id, h.rank));
  check_is_on(made.comm, device);
  check_device_works(made);
  CALL(nexarCommDestroy(made.comm));
  DO(cuCtxPopCurrent_v2(NULL));
  DO(cuDevicePrimaryCtxRelease_v2(device));
}

static void a_communicator_releases_everything_and_the_next_one_needs_no_more(void) {
  struct here h = here();
  uint64_t before[FAKECUDA_OBJECTS];
  size_t pinned = fakecuda_pinned_bytes();
  for (int kind = 0; kind < FAKECUDA_OBJECTS; kind++) before[kind] = fakecuda_live(kind);
  for (int i = 0; i < 5; i++) {
    struct here other = {h.rank, h.n, join_another(h.rank, h.n, h.comm)};
    CHECK(fakecuda_pinned_bytes() <= pinned + MOST_PINNED);
    check_device_works(other);
    if (i % 2) CALL(nexarCommFinalize(other.comm));
    CALL(nexarCommDestroy(other.comm));
    CHECK_EQ(pinned, fakecuda_pinned_bytes());
    for (int kind = 0; kind < FAKECUDA_OBJECTS; kind++) CHECK_EQ(before[kind], fakecuda_live(kind));
  }
}

static void a_finalized_communicator_puts_nothing_on_a_stream(void) {
  struct here h = here();
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  struct vector vector = new_vector(1001);
  nexarComm_t comm = join_another(h.rank, h.n, h.comm);
  CALL(reduce_vector(&vector, comm, stream));
  CALL(nexarCommFinalize(comm));
  synchronize(stream);
  CALL_CODE(nexarInvalidUsage, reduce_vector(&vector, comm, stream));
  CALL_CODE(nexarInvalidUsage, nexarBarrier(comm, stream));
  CHECK_EQ(0, fakecuda_pending(stream));
  CALL(nexarCommDestroy(comm));
  CALL_CODE(nexarInvalidArgument, reduce_vector(&vector, comm, stream));
  end_stream(stream);
  free_vector(&vector);
}

/* nexarCommDestroy waits until its streams have executed the calls. */
static void a_communicator_is_destroyed_after_its_calls_have_completed(void) {
  enum { COUNT = (9 << 20) + 1 };
  struct here h = here();
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  struct vector vector = new_vector(COUNT);
  for (int i = 0; i < 3; i++) {
    nexarComm_t comm = join_another(h.rank, h.n, h.comm);
    fill_vector(&vector, stream, (uint32_t)h.rank + 1, 1);
    CALL(reduce_vector(&vector, comm, stream));
    copy_out(&vector, stream);
    CALL(nexarCommDestroy(comm));
    synchronize(stream);
    CHECK_SEEN(&vector, sum_of_ranks(h.n), h.n);
  }
  end_stream(stream);
  free_vector(&vector);
}

/* A rank gets the error when the communicator is created, or at its first call. */
static void check_names_the_culprit(nexarResult_t made, nexarComm_t comm, int culprit) {
  char text[40];
  snprintf(text, sizeof text, "rank %d, preparing its device", culprit);
  if (made == nexarSuccess) made = nexarBarrier(comm, NULL);
  CHECK_EQ(nexarUnhandledCudaError, made);
  CHECK_TEXT(nexarGetLastError(NULL), text);
  CHECK_TEXT(nexarGetLastError(NULL), "cuMemHostAlloc failed: CUDA_ERROR_OUT_OF_MEMORY (2)");
  CALL(nexarCommDestroy(comm));
}

/* The allocation of pinned memory fails on the last rank. */
static void a_rank_whose_device_has_no_memory_is_named_on_all_ranks(void) {
  struct here h = here();
  int culprit = h.n - 1;
  const char *failure = h.rank == culprit ? "cuMemHostAlloc:1+:2" : NULL;
  nexarUniqueId id = new_id(h);
  nexarComm_t comm = NULL;
  fakecuda_fail(failure);
  nexarResult_t made = nexarCommInitRank(&comm, h.n, id, h.rank);
  check_names_the_culprit(made, comm, culprit);

  comm = NULL;
  made = nexarCommSplit(h.comm, 0, 0, &comm, NULL);
  check_names_the_culprit(made, comm, culprit);
  fakecuda_fail(NULL);
  check_device_works(h);
}

static const struct test_case cases[] = {
    CASE(a_communicator_gets_its_device_when_that_is_first_used),
    CASE(a_communicator_created_in_the_background_has_the_device_of_the_caller),
    CASE(communicators_of_a_group_have_the_device_of_the_caller),
    CASE(a_communicator_gets_the_current_device),
    CASE(a_communicator_releases_everything_and_the_next_one_needs_no_more),
    CASE(a_finalized_communicator_puts_nothing_on_a_stream),
    CASE(a_communicator_is_destroyed_after_its_calls_have_completed),
    CASE(a_rank_whose_device_has_no_memory_is_named_on_all_ranks),
};

int main(void) {
  if (is_early()) begin_with_device();
  return RUN(cases);
}
