/*
 * Threads of a rank use its device concurrently: each with its own communicator, or one
 * communicator in turn, on CUDA's per-thread default streams.
 */
#include <sched.h>

#include "vectors.h"

enum { THREADS = 3, CALLS = 12 };

/* The number of elements differs by thread and call; some calls have several pieces. */
static size_t count_of(int thread, int call) {
  return (call + thread) % 5 == 4 ? (5 << 19) + (size_t)call : 1 + 977 * (size_t)(call + thread);
}

struct worker {
  struct here here;
  CUcontext context;
  int number;
  atomic_int *turn; /* counts the steps of all threads */
};

/* Makes all calls without a wait in between. */
static void *work(void *argument) {
  struct worker *worker = argument;
  struct here h = worker->here;
  struct vector vectors[CALLS];
  DO(cuCtxPushCurrent_v2(worker->context));
  for (int i = 0; i < CALLS; i++) vectors[i] = new_vector(count_of(worker->number, i));
  atomic_fetch_add(worker->turn, 1);
  while (atomic_load(worker->turn) < THREADS) sched_yield(); /* all have allocated */
  for (int i = 0; i < CALLS; i++) {
    fill_vector(&vectors[i], CU_STREAM_PER_THREAD, (uint32_t)h.rank + 1, (uint32_t)i);
    CALL(reduce_vector(&vectors[i], h.comm, CU_STREAM_PER_THREAD));
    copy_out(&vectors[i], CU_STREAM_PER_THREAD);
  }
  synchronize(CU_STREAM_PER_THREAD);
  atomic_fetch_add(worker->turn, 1);
  while (atomic_load(worker->turn) < 2 * THREADS) sched_yield();
  for (int i = 0; i < CALLS; i++) {
    CHECK_SEEN(&vectors[i], sum_of_ranks(h.n), i * h.n);
    free_vector(&vectors[i]);
  }
  DO(cuCtxPopCurrent_v2(NULL));
  return NULL;
}

/* The threads make each call one after another, on one communicator. */
static void *work_in_turn(void *argument) {
  struct worker *worker = argument;
  struct here h = worker->here;
  struct vector vectors[CALLS];
  DO(cuCtxPushCurrent_v2(worker->context));
  for (int i = 0; i < CALLS; i++) vectors[i] = new_vector(count_of(0, i));
  atomic_fetch_add(worker->turn, 1);
  for (int i = 0; i < CALLS; i++) {
    while (atomic_load(worker->turn) != THREADS + i * THREADS + worker->number) sched_yield();
    fill_vector(&vectors[i], CU_STREAM_PER_THREAD, (uint32_t)h.rank + 1, (uint32_t)i);
    CALL(reduce_vector(&vectors[i], h.comm, CU_STREAM_PER_THREAD));
    copy_out(&vectors[i], CU_STREAM_PER_THREAD);
    atomic_fetch_add(worker->turn, 1);
  }
  synchronize(CU_STREAM_PER_THREAD);
  for (int i = 0; i < CALLS; i++) CHECK_SEEN(&vectors[i], sum_of_ranks(h.n), i * h.n);
  while (atomic_load(worker->turn) < (CALLS + 1) * THREADS) sched_yield();
  for (int i = 0; i < CALLS; i++) free_vector(&vectors[i]);
  DO(cuCtxPopCurrent_v2(NULL));
  return NULL;
}

static void run_workers(void *(*function)(void *), const nexarComm_t *comms) {
  struct here h = here();
  pthread_t threads[THREADS];
  struct worker workers[THREADS];
  atomic_int turn = 0;
  CUcontext context;
  DO(cuCtxGetCurrent(&context));
  for (int i = 0; i < THREADS; i++) {
    workers[i] = (struct worker){{h.rank, h.n, comms[i]}, context, i, &turn};
    CHECK_EQ(0, pthread_create(&threads[i], NULL, function, &workers[i]));
  }
  for (int i = 0; i < THREADS; i++) CHECK_EQ(0, pthread_join(threads[i], NULL));
}

/* Skipped if streams share a queue: ranks must then use their communicators in one order. */
static void threads_use_a_communicator_each_at_once(void) {
  (streams_share_a_queue() ? check_parts_skipped++ : check_parts++);
  if (streams_share_a_queue()) return;
  struct here h = here();
  nexarComm_t comms[THREADS];
  for (int i = 0; i < THREADS; i++) comms[i] = join_another(h.rank, h.n, h.comm);
  run_workers(work, comms);
  for (int i = 0; i < THREADS; i++) CALL(nexarCommDestroy(comms[i]));
}

static void threads_take_turns_on_a_communicator_each_on_its_own_stream(void) {
  struct here h = here();
  run_workers(work_in_turn, (nexarComm_t[THREADS]){h.comm, h.comm, h.comm});
}

static const struct test_case cases[] = {
    CASE(threads_use_a_communicator_each_at_once),
    CASE(threads_take_turns_on_a_communicator_each_on_its_own_stream),
};

int main(void) {
  begin_with_device();
  return RUN(cases);
}
