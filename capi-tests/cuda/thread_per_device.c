/*
 * A program with a thread for each device, as CUDA programs are written: each thread binds its
 * device, creates its rank of a communicator and calls a collective at once. The program has no
 * barrier between the two, so some ranks have a stream inside the collective while others are still
 * being created. A call of the driver that waits for the streams of other devices then never
 * returns: the fake driver ends the process after FAKECUDA_STALL_MS and names the call.
 *
 * Some of the library's work on a device is done once per process, so each case runs in fresh
 * processes too.
 */
#include "processes.h"
#include "vectors.h"

enum { N = 4, COUNT = 1000 };

/* How a thread gets its communicator. */
enum way { BY_INIT, BY_INIT_IN_A_GROUP, BY_SPLIT, BEFORE_ITS_DEVICE };

struct program {
  enum way way;
  int repetitions;
  nexarUniqueId id;
  pthread_barrier_t barrier;
};

struct device {
  CUdevice number;
  CUstream stream;
  struct vector vector;
};

static struct device open_device(CUdevice number) {
  struct device device = {number, NULL, {0, 0, NULL}};
  CUcontext context = NULL;
  DO(cuInit(0));
  DO(cuDevicePrimaryCtxRetain(&context, number));
  DO(cuCtxSetCurrent(context));
  device.stream = new_stream(CU_STREAM_NON_BLOCKING);
  device.vector = new_vector(COUNT);
  return device;
}

static void close_device(struct device *device) {
  end_stream(device->stream);
  free_vector(&device->vector);
  DO(cuCtxSetCurrent(NULL));
  DO(cuDevicePrimaryCtxRelease_v2(device->number));
}

/* Collective: thread 0 creates the id of the next communicator. */
static void get_id(struct program *program, int rank) {
  pthread_barrier_wait(&program->barrier);
  if (rank == 0) CHECK_CODE(nexarSuccess, nexarGetUniqueId(&program->id));
  pthread_barrier_wait(&program->barrier);
}

static void check_is_on(nexarComm_t comm, int expected) {
  int device = 77;
  CHECK_CODE(nexarSuccess, nexarCommCuDevice(comm, &device));
  CHECK_EQ(expected, device);
}

static void check_sum(const struct device *device, CUstream stream) {
  copy_out(&device->vector, stream);
  synchronize(stream);
  CHECK_SEEN(&device->vector, sum_of_ranks(N), N);
}

/* The legacy stream in every other repetition. */
static CUstream stream_of_repetition(const struct device *device, int repetition) {
  return repetition % 2 ? NULL : device->stream;
}

static void reduce_at_once(struct program *program, int rank, const struct device *device,
                           CUstream stream) {
  nexarComm_t comm = NULL, parts = NULL;
  fill_vector(&device->vector, stream, (uint32_t)rank + 1, 1);
  if (program->way == BY_INIT_IN_A_GROUP) {
    CHECK_CODE(nexarSuccess, nexarGroupStart());
    CHECK_CODE(nexarSuccess, nexarCommInitRank(&comm, N, program->id, rank));
    CALL(nexarGroupEnd());
  } else {
    CALL(nexarCommInitRank(&comm, N, program->id, rank));
  }
  if (program->way == BY_SPLIT) CALL(nexarCommSplit(comm, 0, rank, &parts, NULL));
  CALL(reduce_vector(&device->vector, parts ? parts : comm, stream));
  check_sum(device, stream);
  check_is_on(comm, device->number);
  if (program->way == BY_SPLIT) check_is_on(parts, device->number);
  if (parts) CALL(nexarCommDestroy(parts));
  CALL(nexarCommDestroy(comm));
}

/* No thread has used CUDA when the communicator is created. The threads allocate their own memory
   before the first of them calls, so that only the library allocates during a collective. */
static void reduce_before_a_device(struct program *program, int rank, int repetition) {
  nexarComm_t comm = NULL;
  CHECK_CODE(nexarSuccess, nexarCommInitRank(&comm, N, program->id, rank));
  check_is_on(comm, -1);
  pthread_barrier_wait(&program->barrier);
  struct device device = open_device(rank);
  CUstream stream = stream_of_repetition(&device, repetition);
  fill_vector(&device.vector, stream, (uint32_t)rank + 1, 1);
  pthread_barrier_wait(&program->barrier);
  CALL(reduce_vector(&device.vector, comm, stream));
  check_sum(&device, stream);
  check_is_on(comm, rank);
  CALL(nexarCommDestroy(comm));
  close_device(&device);
}

static void rank_of_program(int rank, int n, nexarComm_t unused, void *arg) {
  struct program *program = arg;
  (void)n, (void)unused;
  if (program->way == BEFORE_ITS_DEVICE) {
    for (int i = 0; i < program->repetitions; i++) {
      progress();
      get_id(program, rank);
      reduce_before_a_device(program, rank, i);
    }
    return;
  }
  struct device device = open_device(rank);
  for (int i = 0; i < program->repetitions; i++) {
    progress();
    get_id(program, rank);
    reduce_at_once(program, rank, &device, stream_of_repetition(&device, i));
  }
  close_device(&device);
}

static void run_program(enum way way, int repetitions) {
  struct program program = {.way = way, .repetitions = repetitions};
  pthread_barrier_init(&program.barrier, NULL, N);
  run_threads(N, NULL, rank_of_program, &program);
  pthread_barrier_destroy(&program.barrier);
  CHECK_EQ(0, fakecuda_report_leaks());
}

static void run_by_init(void) { run_program(BY_INIT, 1); }
static void run_in_a_group(void) { run_program(BY_INIT_IN_A_GROUP, 1); }
static void run_by_split(void) { run_program(BY_SPLIT, 1); }
static void run_before_its_device(void) { run_program(BEFORE_ITS_DEVICE, 1); }

/* Stops at the first process that fails, because each may take the whole FAKECUDA_STALL_MS. */
static void in_fresh_processes(int processes, void (*function)(void)) {
  int before = check_failures, i = 0;
  for (; i < processes && check_failures == before; i++) in_a_process("", function);
  if (check_failures != before) fprintf(stderr, "process %d of %d failed\n", i, processes);
}

/* This process has used neither the driver nor nexar yet. */
static void a_collective_follows_init_in_fresh_processes(void) {
  in_fresh_processes(20, run_by_init);
}
static void a_collective_follows_init_in_a_group_in_fresh_processes(void) {
  in_fresh_processes(10, run_in_a_group);
}
static void a_collective_follows_a_split_in_fresh_processes(void) {
  in_fresh_processes(10, run_by_split);
}
static void a_collective_attaches_the_device_in_fresh_processes(void) {
  in_fresh_processes(10, run_before_its_device);
}

static void a_collective_follows_init(void) { run_program(BY_INIT, 80); }
static void a_collective_follows_init_in_a_group(void) { run_program(BY_INIT_IN_A_GROUP, 40); }
static void a_collective_follows_a_split(void) { run_program(BY_SPLIT, 40); }
static void a_collective_attaches_the_device(void) { run_program(BEFORE_ITS_DEVICE, 40); }

static const struct test_case cases[] = {
    CASE(a_collective_follows_init_in_fresh_processes),
    CASE(a_collective_follows_init_in_a_group_in_fresh_processes),
    CASE(a_collective_follows_a_split_in_fresh_processes),
    CASE(a_collective_attaches_the_device_in_fresh_processes),
    CASE(a_collective_follows_init),
    CASE(a_collective_follows_init_in_a_group),
    CASE(a_collective_follows_a_split),
    CASE(a_collective_attaches_the_device),
};

int main(void) {
  put_settings("DEVICES=4");
  return RUN(cases);
}
