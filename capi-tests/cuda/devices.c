/*
 * Devices of communicators: ranks that are threads have one each, one thread may use several, and a
 * rank that has used no device yet gets one at its first call.
 */
#include <sched.h>

#include "vectors.h"

enum { COUNT = 3 << 20, MOST_DEVICES_HERE = 4 };

static CUcontext context_of(CUdevice device) {
  CUcontext context = NULL;
  DO(cuInit(0));
  DO(cuDevicePrimaryCtxRetain(&context, device));
  return context;
}

static void enter(CUdevice device) { DO(cuCtxPushCurrent_v2(context_of(device))); }

static void leave(CUdevice device) {
  DO(cuCtxPopCurrent_v2(NULL));
  DO(cuDevicePrimaryCtxRelease_v2(device));
}

static void check_is_on(nexarComm_t comm, int expected) {
  int device = 77;
  CHECK_CODE(nexarSuccess, nexarCommCuDevice(comm, &device));
  CHECK_EQ(expected, device);
}

/* A rank with the device that the list names. */
static void reduce_on_device(int rank, int n, nexarComm_t comm, void *list) {
  const int *devices = list;
  int device = devices ? devices[rank] : rank;
  check_is_on(comm, device);
  enter(device);
  struct here here = {rank, n, comm};
  struct vector vector = new_vector(COUNT);
  for (int i = 0; i < 3; i++) {
    fill_vector(&vector, NULL, (uint32_t)rank + 1, 5);
    CALL(reduce_vector(&vector, comm, i == 1 ? CU_STREAM_PER_THREAD : NULL));
    copy_out(&vector, i == 1 ? CU_STREAM_PER_THREAD : NULL);
    synchronize(i == 1 ? CU_STREAM_PER_THREAD : NULL);
    CHECK_SEEN(&vector, sum_of_ranks(n), 5 * n);
  }
  check_device_works(here);
  check_is_on(comm, device);
  free_vector(&vector);
  leave(device);
}

static void run_threads_on_devices(int n, const int *devices) {
  nexarComm_t comms[MOST_DEVICES_HERE];
  CHECK_CODE(nexarSuccess, nexarCommInitAll(comms, n, devices));
  run_threads(n, comms, reduce_on_device, (void *)(uintptr_t)devices);
  for (int i = 0; i < n; i++) CALL(nexarCommDestroy(comms[i]));
}

/* A communicator that had no device when it was created, and threads that use it first. */
enum { FIRST_USERS = 4, FEW = 100 };

struct first_use {
  nexarComm_t comm;
  pthread_barrier_t together;
  struct vector vectors[FIRST_USERS];
  CUstream streams[FIRST_USERS];
};

static void use_first(int thread, int n, nexarComm_t comm, void *arg) {
  struct first_use *use = arg;
  (void)n, (void)comm;
  enter(0);
  pthread_barrier_wait(&use->together);
  CALL(reduce_vector(&use->vectors[thread], use->comm, use->streams[thread]));
  synchronize(use->streams[thread]);
  leave(0);
}

static void use_first_together(void) {
  struct first_use use;
  nexarUniqueId id;
  CHECK_CODE(nexarSuccess, nexarGetUniqueId(&id));
  CHECK_CODE(nexarSuccess, nexarCommInitRank(&use.comm, 1, id, 0));
  check_is_on(use.comm, -1);
  enter(0);
  for (int i = 0; i < FIRST_USERS; i++) {
    use.vectors[i] = new_vector(FEW);
    use.streams[i] = new_stream(CU_STREAM_NON_BLOCKING);
  }
  pthread_barrier_init(&use.together, NULL, FIRST_USERS);
  run_threads(FIRST_USERS, NULL, use_first, &use);
  pthread_barrier_destroy(&use.together);
  check_is_on(use.comm, 0);
  CHECK_EQ(1, fakecuda_live(FAKECUDA_PINNED_MEMORY));
  CHECK_EQ(1, fakecuda_live(FAKECUDA_EVENT));
  for (int i = 0; i < FIRST_USERS; i++) {
    end_stream(use.streams[i]);
    free_vector(&use.vectors[i]);
  }
  CALL(nexarCommDestroy(use.comm));
  CHECK_EQ(0, fakecuda_report_leaks());
  leave(0);
}

/* Repeated, because the threads must collide. */
static void threads_that_use_a_communicator_first_give_it_one_device(void) {
  for (int i = 0; i < 30; i++) use_first_together();
}

static const int reversed[] = {3, 2, 1, 0};

/* The process has used no device before. */
static void threads_use_a_device_each(void) {
  for (int n = 1; n <= MOST_DEVICES_HERE; n++) run_threads_on_devices(n, NULL);
  run_threads_on_devices(4, reversed);
}

static void threads_use_devices_that_are_in_use_already(void) {
  for (int device = 0; device < MOST_DEVICES_HERE; device++) enter(device);
  run_threads_on_devices(4, reversed);
  run_threads_on_devices(3, NULL);
  CHECK_EQ(MOST_DEVICES_HERE, fakecuda_context_depth());
  for (int device = MOST_DEVICES_HERE - 1; device >= 0; device--) leave(device);
}

/* More ranks than devices: the ranks without a device use host memory. */
static void ranks_beyond_the_last_device_have_host_memory(void) {
  nexarComm_t comms[6];
  CHECK_CODE(nexarSuccess, nexarCommInitAll(comms, 6, NULL));
  for (int i = 0; i < 6; i++) check_is_on(comms[i], i);
  run_threads(6, comms, it_works, NULL);
  for (int i = 0; i < 6; i++) CALL(nexarCommDestroy(comms[i]));
}

/* Like programs that use all devices of a host in one process. */
static void one_thread_uses_several_devices_in_a_group(void) {
  enum { N = 3 };
  nexarComm_t comms[N];
  struct vector vectors[N];
  CUstream streams[N];
  CHECK_CODE(nexarSuccess, nexarCommInitAll(comms, N, NULL));
  for (int i = 0; i < N; i++) {
    enter(i);
    streams[i] = new_stream(i == 1 ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING);
    vectors[i] = new_vector(COUNT);
    fill_vector(&vectors[i], streams[i], (uint32_t)i + 1, 2);
    DO(cuCtxPopCurrent_v2(NULL));
  }
  CHECK_EQ(0, fakecuda_context_depth());
  CHECK_CODE(nexarSuccess, nexarGroupStart());
  for (int i = N - 1; i >= 0; i--)
    CHECK_CODE(nexarSuccess, reduce_vector(&vectors[i], comms[i], streams[i]));
  CHECK_CODE(nexarSuccess, nexarGroupEnd());
  CHECK_EQ(0, fakecuda_context_depth());
  for (int i = 0; i < N; i++) {
    DO(cuCtxPushCurrent_v2(context_of(i)));
    copy_out(&vectors[i], streams[i]);
    synchronize(streams[i]);
    CHECK_SEEN(&vectors[i], sum_of_ranks(N), 2 * N);
    end_stream(streams[i]);
    free_vector(&vectors[i]);
    leave(i);
    DO(cuDevicePrimaryCtxRelease_v2(i));
  }
  for (int i = 0; i < N; i++) CHECK_CODE(nexarSuccess, nexarCommDestroy(comms[i]));
}

static void nothing_is_left_of_destroyed_communicators(void) {
  for (enum fakecuda_object kind = 0; kind < FAKECUDA_OBJECTS; kind++)
    CHECK_EQ(0, fakecuda_live(kind));
  CHECK_EQ(0, fakecuda_pinned_bytes());
  CHECK_EQ(0, fakecuda_report_leaks());
}

static const struct test_case cases[] = {
    CASE(threads_that_use_a_communicator_first_give_it_one_device),
    CASE(threads_use_a_device_each),
    CASE(threads_use_devices_that_are_in_use_already),
    CASE(ranks_beyond_the_last_device_have_host_memory),
    CASE(one_thread_uses_several_devices_in_a_group),
    CASE(nothing_is_left_of_destroyed_communicators),
};

int main(void) { return RUN(cases); }
