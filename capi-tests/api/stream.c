/* Host streams: queued operations, their order, and how their errors are reported. */
#include <sched.h>

#include "support/ranks.h"

enum { ELEMENTS = 50000, ROUNDS = 10 };

static nexarStream_t new_stream(void) {
  nexarStream_t stream = NULL;
  CHECK_CODE(nexarSuccess, nexarStreamCreate(&stream));
  CHECK(stream != NULL);
  return stream;
}

static nexarResult_t sum(int32_t *data, size_t count, nexarComm_t comm, nexarStream_t stream) {
  return nexarAllReduce(data, data, count, nexarInt32, nexarSum, comm, stream);
}

static void queue_and_wait(int rank, int n, nexarComm_t comm, void *arg) {
  (void)rank, (void)arg;
  nexarStream_t stream = new_stream();
  CHECK_CODE(nexarSuccess, nexarStreamQuery(stream));
  int32_t data = 1;
  int64_t expected = 1;
  for (int i = 0; i < ROUNDS; i++, expected *= n) {
    CHECK_CODE(nexarSuccess, sum(&data, 1, comm, stream));
  }
  CHECK_CODE(nexarSuccess, nexarStreamSynchronize(stream));
  CHECK_CODE(nexarSuccess, nexarStreamQuery(stream));
  CHECK_EQ(expected, data);
  CHECK_CODE(nexarSuccess, nexarStreamDestroy(stream));
}
static void calls_queued_on_a_stream_run_in_order(void) { on_every_size(queue_and_wait); }

/* All calls are in place on one buffer: two at the same time would give other sums. */
static void queue_on_two_streams(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  static int32_t buffers[MOST_RANKS][ELEMENTS];
  int32_t *data = buffers[rank];
  nexarStream_t streams[2] = {new_stream(), new_stream()};
  for (int i = 0; i < ELEMENTS; i++) data[i] = i;
  for (int i = 0; i < 4; i++) CHECK_CODE(nexarSuccess, sum(data, ELEMENTS, comm, streams[i % 2]));
  CHECK_CODE(nexarSuccess, sum(data, ELEMENTS, comm, NULL)); /* runs after all queued calls */
  for (int i = 0; i < ELEMENTS; i++) CHECK_EQ((int64_t)i * n * n * n * n * n, data[i]);
  for (int i = 0; i < 2; i++) CHECK_CODE(nexarSuccess, nexarStreamDestroy(streams[i]));
}
static void streams_of_one_communicator_run_one_after_another(void) {
  on_every_size(queue_on_two_streams);
}

/* Rank 0 first queues the call that can complete only after the second one. */
static void depend(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  nexarComm_t other = join_another(rank, n, comm);
  int32_t first = 1, second = 2;
  if (rank == 0) {
    nexarStream_t streams[2] = {new_stream(), new_stream()};
    CHECK_CODE(nexarSuccess, sum(&first, 1, comm, streams[0]));
    CHECK_CODE(nexarSuccess, sum(&second, 1, other, streams[1]));
    for (int i = 0; i < 2; i++) CHECK_CODE(nexarSuccess, nexarStreamSynchronize(streams[i]));
    for (int i = 0; i < 2; i++) CHECK_CODE(nexarSuccess, nexarStreamDestroy(streams[i]));
  } else {
    CHECK_CODE(nexarSuccess, sum(&second, 1, other, NULL));
    CHECK_CODE(nexarSuccess, sum(&first, 1, comm, NULL));
  }
  CHECK_EQ(n, first);
  CHECK_EQ(2 * n, second);
  CHECK_CODE(nexarSuccess, nexarCommDestroy(other));
}
static void streams_of_different_communicators_overlap(void) {
  run_ranks(2, depend, NULL);
  run_ranks(4, depend, NULL);
}

/* A query returns nexarInProgress while the other ranks have not made the call. */
static void query_too_early(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  nexarComm_t other = join_another(rank, n, comm);
  int32_t data = 1;
  if (rank == 0) {
    nexarStream_t stream = new_stream();
    CHECK_CODE(nexarSuccess, sum(&data, 1, other, stream));
    CHECK_CODE(nexarInProgress, nexarStreamQuery(stream));
    CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
    while (nexarStreamQuery(stream) == nexarInProgress) sched_yield();
    CHECK_CODE(nexarSuccess, nexarStreamQuery(stream));
    CHECK_CODE(nexarSuccess, nexarStreamDestroy(stream));
  } else {
    CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
    CHECK_CODE(nexarSuccess, sum(&data, 1, other, NULL));
  }
  CHECK_EQ(n, data);
  CHECK_CODE(nexarSuccess, nexarCommDestroy(other));
}
static void a_query_reports_whether_all_calls_have_completed(void) {
  run_ranks(2, query_too_early, NULL);
  run_ranks(3, query_too_early, NULL);
}

static void queue_a_mismatch(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  nexarComm_t failing = join_another(rank, n, comm);
  nexarStream_t stream = new_stream();
  int32_t data[2] = {0};
  nexarResult_t error = nexarSuccess;
  nexarResult_t queued = sum(data, rank == 0 ? 1 : 2, failing, stream);
  /* A call that is made after the mismatch was detected fails at once. */
  if (queued == nexarSuccess) {
    while (nexarStreamQuery(stream) == nexarInProgress) sched_yield();
    CHECK_CODE(nexarInvalidUsage, nexarStreamQuery(stream));
    CHECK_CODE(nexarInvalidUsage, nexarStreamSynchronize(stream));
    CHECK_TEXT(nexarGetLastError(NULL), "nexarStreamSynchronize: ranks disagree on call #0");
  }
  CHECK(queued == nexarSuccess || queued == nexarInvalidUsage);
  CHECK_CODE(nexarSuccess, nexarStreamSynchronize(stream));
  CHECK_CODE(nexarSuccess, nexarStreamQuery(stream));
  CHECK_CODE(nexarSuccess, nexarCommGetAsyncError(failing, &error));
  CHECK_EQ(nexarInvalidUsage, error);
  CHECK_TEXT(nexarGetLastError(failing), "ranks disagree on call #0");
  CHECK_CODE(nexarSuccess, nexarStreamDestroy(stream));
  CHECK_CODE(nexarSuccess, nexarCommDestroy(failing));
  check_it_works(rank, n, comm);
}
static void synchronizing_a_stream_returns_the_error_of_its_calls(void) {
  run_ranks(2, queue_a_mismatch, NULL);
  run_ranks(3, queue_a_mismatch, NULL);
}

static void abort_queued_work(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  nexarComm_t other = join_another(rank, n, comm);
  if (rank == 0) {
    nexarStream_t streams[2] = {new_stream(), new_stream()};
    int32_t data[10] = {0};
    for (int i = 0; i < 10; i++) CHECK_CODE(nexarSuccess, sum(&data[i], 1, other, streams[i % 2]));
    CHECK_CODE(nexarSuccess, nexarCommAbort(other));
    for (int i = 0; i < 2; i++) {
      CHECK_CODE(nexarInvalidUsage, nexarStreamSynchronize(streams[i]));
      CHECK_TEXT(nexarGetLastError(NULL), "aborted");
      CHECK_CODE(nexarSuccess, nexarStreamSynchronize(streams[i]));
      CHECK_CODE(nexarSuccess, nexarStreamDestroy(streams[i]));
    }
    CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
  } else {
    CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
    CHECK_CODE(nexarRemoteError, nexarBarrier(other, NULL));
    CHECK_CODE(nexarSuccess, nexarCommDestroy(other));
  }
}
static void an_abort_ends_queued_calls(void) {
  run_ranks(2, abort_queued_work, NULL);
  run_ranks(3, abort_queued_work, NULL);
}

/* nexarCommDestroy completes queued work, whatever happens to the stream. */
static void destroy_early(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  nexarComm_t other = join_another(rank, n, comm);
  nexarStream_t stream = new_stream();
  int32_t data[ROUNDS];
  for (int i = 0; i < ROUNDS; i++) {
    data[i] = i;
    CHECK_CODE(nexarSuccess, sum(&data[i], 1, other, stream));
  }
  if (rank % 2 == 0) {
    CHECK_CODE(nexarSuccess, nexarCommDestroy(other));
  } else {
    CHECK_CODE(nexarSuccess, nexarCommFinalize(other));
    CHECK_CODE(nexarInvalidUsage, sum(data, 1, other, stream));
    CHECK_CODE(nexarSuccess, nexarStreamSynchronize(stream));
    CHECK_CODE(nexarSuccess, nexarCommDestroy(other));
  }
  for (int i = 0; i < ROUNDS; i++) CHECK_EQ(n * i, data[i]);
  CHECK_CODE(nexarSuccess, nexarStreamDestroy(stream));
}
static void ending_a_communicator_waits_for_queued_calls(void) { on_every_size(destroy_early); }

static void destroy_a_busy_stream(int rank, int n, nexarComm_t comm, void *arg) {
  (void)rank, (void)arg;
  nexarStream_t stream = new_stream();
  int32_t data[ROUNDS];
  for (int i = 0; i < ROUNDS; i++) {
    data[i] = i;
    CHECK_CODE(nexarSuccess, sum(&data[i], 1, comm, stream));
  }
  CHECK_CODE(nexarSuccess, nexarStreamDestroy(stream));
  for (int i = 0; i < ROUNDS; i++) CHECK_EQ(n * i, data[i]);
  CHECK_CODE(nexarInvalidArgument, nexarStreamDestroy(stream));
  CHECK_TEXT(nexarGetLastError(NULL), "stream is not a live stream handle");
  CHECK_CODE(nexarInvalidArgument, nexarStreamSynchronize(stream));
  CHECK_CODE(nexarInvalidArgument, nexarStreamQuery(stream));
  CHECK_CODE(nexarInvalidArgument, sum(data, 1, comm, stream));
}
static void destroying_a_stream_waits_for_queued_calls_and_ends_its_handle(void) {
  on_every_size(destroy_a_busy_stream);
}

static void pass_null_and_invalid_handles(void) {
  nexarComm_t comm;
  nexarStream_t stream = new_stream();
  int count, data = 0;
  CHECK_CODE(nexarSuccess, nexarCommInitAll(&comm, 1, NULL));
  CHECK_CODE(nexarSuccess, nexarStreamSynchronize(NULL));
  CHECK_CODE(nexarSuccess, nexarStreamQuery(NULL));
  CHECK_CODE(nexarSuccess, nexarStreamDestroy(NULL));
  CHECK_CODE(nexarInvalidArgument, nexarStreamCreate(NULL));
  CHECK_CODE(nexarInvalidArgument, nexarStreamSynchronize(&data));
  CHECK_CODE(nexarInvalidArgument, nexarStreamQuery(&data));
  CHECK_CODE(nexarInvalidArgument, nexarStreamDestroy(&data));
  CHECK_CODE(nexarInvalidArgument, nexarStreamDestroy(comm));
  CHECK_CODE(nexarInvalidArgument, nexarCommCount(stream, &count));
  CHECK_CODE(nexarInvalidArgument, nexarBarrier(comm, comm));
  CHECK_CODE(nexarInvalidArgument, nexarBarrier(stream, stream));
  CHECK_CODE(nexarSuccess, nexarBarrier(comm, stream));
  for (int bit = 0; bit < 64; bit++) {
    nexarStream_t flipped = (nexarStream_t)((uintptr_t)stream ^ (uintptr_t)1 << bit);
    CHECK_CODE(nexarInvalidArgument, nexarStreamQuery(flipped));
    CHECK_CODE(nexarInvalidArgument, nexarBarrier(comm, flipped));
  }
  CHECK_CODE(nexarSuccess, nexarStreamDestroy(stream));
  CHECK_CODE(nexarSuccess, nexarCommDestroy(comm));
}
static void no_other_number_is_a_stream(void) {
  if (can_share_memory()) pass_null_and_invalid_handles();
}

/* One group on two streams and on none: all calls start before nexarGroupEnd waits for any. */
static void queue_a_group(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  nexarComm_t other = join_another(rank, n, comm);
  nexarStream_t streams[3] = {new_stream(), new_stream(), NULL};
  for (int round = 0; round < ROUNDS; round++) {
    int32_t data[3] = {1, 2, 3};
    CHECK_CODE(nexarSuccess, nexarGroupStart());
    for (int i = 0; i < 6; i++) {
      /* The order of the communicators, and the streams, differ between ranks. */
      nexarComm_t one = (i + rank) % 2 ? comm : other;
      CHECK_CODE(nexarSuccess, nexarBarrier(one, streams[(i + round + rank) % 3]));
    }
    for (int i = 0; i < 3; i++) CHECK_CODE(nexarSuccess, sum(&data[i], 1, comm, streams[i]));
    CHECK_CODE(nexarSuccess, nexarGroupEnd());
    CHECK_EQ(3 * n, data[2]);
    for (int i = 0; i < 2; i++) CHECK_CODE(nexarSuccess, nexarStreamSynchronize(streams[i]));
    for (int i = 0; i < 2; i++) CHECK_EQ((i + 1) * n, data[i]);
  }
  for (int i = 0; i < 2; i++) CHECK_CODE(nexarSuccess, nexarStreamDestroy(streams[i]));
  CHECK_CODE(nexarSuccess, nexarCommDestroy(other));
}
static void a_group_may_use_several_streams(void) {
  run_ranks(2, queue_a_group, NULL);
  run_ranks(3, queue_a_group, NULL);
}

struct worker {
  int32_t data[ROUNDS];
  nexarComm_t comm;
  nexarStream_t *streams;
};

static void *queue_batches(void *arg) {
  struct worker *worker = arg;
  for (int i = 0; i < ROUNDS; i++) {
    worker->data[i] = 1;
    CHECK_CODE(nexarSuccess, nexarGroupStart());
    CHECK_CODE(nexarSuccess, sum(&worker->data[i], 1, worker->comm, worker->streams[i % 2]));
    CHECK_CODE(nexarSuccess, nexarBarrier(worker->comm, worker->streams[(i + 1) % 2]));
    CHECK_CODE(nexarSuccess, nexarGroupEnd());
  }
  return NULL;
}

/* With a single rank, because the order of calls of several threads differs between ranks. */
static void threads_may_share_streams(void) {
  if (!can_share_memory()) return;
  enum { THREADS = 8 };
  nexarStream_t streams[2] = {new_stream(), new_stream()};
  static struct worker workers[THREADS];
  pthread_t threads[THREADS];
  nexarComm_t comm;
  CHECK_CODE(nexarSuccess, nexarCommInitAll(&comm, 1, NULL));
  for (int i = 0; i < THREADS; i++) {
    workers[i] = (struct worker){{0}, comm, streams};
    CHECK_EQ(0, pthread_create(&threads[i], NULL, queue_batches, &workers[i]));
  }
  for (int i = 0; i < THREADS; i++) CHECK_EQ(0, pthread_join(threads[i], NULL));
  for (int i = 0; i < 2; i++) CHECK_CODE(nexarSuccess, nexarStreamSynchronize(streams[i]));
  for (int i = 0; i < 2; i++) CHECK_CODE(nexarSuccess, nexarStreamDestroy(streams[i]));
  CHECK_CODE(nexarSuccess, nexarCommDestroy(comm));
}

static const struct test_case cases[] = {
    CASE(calls_queued_on_a_stream_run_in_order),
    CASE(streams_of_one_communicator_run_one_after_another),
    CASE(streams_of_different_communicators_overlap),
    CASE(a_query_reports_whether_all_calls_have_completed),
    CASE(synchronizing_a_stream_returns_the_error_of_its_calls),
    CASE(an_abort_ends_queued_calls),
    CASE(ending_a_communicator_waits_for_queued_calls),
    CASE(destroying_a_stream_waits_for_queued_calls_and_ends_its_handle),
    CASE(no_other_number_is_a_stream),
    CASE(a_group_may_use_several_streams),
    CASE(threads_may_share_streams),
};

int main(void) { return RUN(cases); }
