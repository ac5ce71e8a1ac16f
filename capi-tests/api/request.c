/* Requests: sends and receives that the caller does not wait for at once. */
#include <sched.h>

#include "support/status.h"

enum { SHORT = 3, LONG = 300000, MANY = 64 };

static const size_t lengths[] = {0, SHORT, 4096, LONG};

static int32_t *numbers(size_t count, int tag) {
  int32_t *data = malloc((count + 1) * sizeof *data);
  for (size_t i = 0; i < count; i++) data[i] = element(i, tag);
  data[count] = -1;
  return data;
}

static int32_t *untouched(size_t count) {
  int32_t *data = malloc((count + 1) * sizeof *data);
  memset(data, 0xff, (count + 1) * sizeof *data);
  return data;
}

static nexarRequest_t isend(const void *data, size_t count, int to, int tag, nexarComm_t comm) {
  nexarRequest_t request = NULL;
  CHECK_CODE(nexarSuccess, nexarIsendTag(data, count, nexarInt32, to, tag, &request, comm));
  CHECK(request != NULL);
  return request;
}

static nexarRequest_t irecv(void *data, size_t count, int from, int tag, nexarComm_t comm) {
  nexarRequest_t request = NULL;
  CHECK_CODE(nexarSuccess, nexarIrecvTag(data, count, nexarInt32, from, tag, &request, comm));
  CHECK(request != NULL);
  return request;
}

static nexarResult_t test_until_done(nexarRequest_t request, nexarStatus_t *status) {
  for (int done = 0;; sched_yield()) {
    nexarResult_t result = nexarRequestTest(request, &done, status);
    if (done) return result;
    CHECK_CODE(nexarSuccess, result);
  }
}

static void exchange(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  int next = (rank + 1) % n, before = (rank + n - 1) % n;
  for (int round = 0; round < 2 * (int)COUNT_OF(lengths); round++) {
    size_t count = lengths[round / 2];
    nexarStatus_t status = unset, of_send = unset;
    int32_t *in = untouched(count), *out = numbers(count, rank);
    nexarRequest_t recv = irecv(in, count + 1, before, 5, comm);
    nexarRequest_t send = isend(out, count, next, 5, comm);
    if (round % 2) {
      CHECK_CODE(nexarSuccess, test_until_done(recv, &status));
      CHECK_CODE(nexarSuccess, test_until_done(send, &of_send));
    } else {
      CHECK_CODE(nexarSuccess, nexarRequestWait(recv, &status));
      CHECK_CODE(nexarSuccess, nexarRequestWait(send, &of_send));
    }
    CHECK_STATUS(status, before, 5, count, nexarInt32);
    CHECK(is_unset(&of_send));
    check_numbers(in, count, count + 1, before);
    int done = 7;
    CHECK_CODE(nexarInvalidArgument, nexarRequestTest(recv, &done, NULL));
    CHECK_EQ(7, done);
    CHECK_CODE(nexarInvalidArgument, nexarRequestWait(send, NULL));
    CHECK_TEXT(nexarGetLastError(NULL), "request is not a live request handle");
    CHECK_CODE(nexarInvalidArgument, nexarRequestCancel(send));
    free(in);
    free(out);
    progress();
  }
}
static void a_request_is_consumed_by_the_call_that_completes_it(void) {
  run_ranks(1, exchange, NULL);
  on_two_and_three(exchange);
}

/* Requests are waited for in another order than they were issued, and messages sent in a third. */
static void exchange_many(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  int next = (rank + 1) % n, before = (rank + n - 1) % n;
  int32_t in[MANY], out[MANY];
  nexarRequest_t requests[2 * MANY];
  for (int i = 0; i < MANY; i++) {
    in[i] = -1;
    requests[i] = irecv(&in[i], 1, i % 3 ? before : NEXAR_ANY_SOURCE, i, comm);
  }
  for (int i = 0; i < MANY; i++) {
    int tag = (i * 37) % MANY;
    out[tag] = 1000 * rank + tag;
    requests[MANY + i] = isend(&out[tag], 1, next, tag, comm);
  }
  for (int left = 2 * MANY; left > 0; left--) {
    size_t index = 2 * MANY;
    nexarStatus_t status = unset;
    CHECK_CODE(nexarSuccess, nexarRequestWaitAny(2 * MANY, requests, &index, &status));
    CHECK(index < 2 * MANY && requests[index] == NULL);
    if (index < MANY) {
      CHECK_STATUS(status, before, (int)index, 1, nexarInt32);
      CHECK_EQ(1000 * before + (int)index, in[index]);
    }
  }
  size_t index = 0;
  CHECK_CODE(nexarSuccess, nexarRequestWaitAny(2 * MANY, requests, &index, NULL));
  CHECK_EQ(2 * MANY, index);
  CHECK_CODE(nexarSuccess, nexarRequestWaitAny(0, NULL, &index, NULL));
  CHECK_EQ(0, index);
}
static void many_requests_complete_in_any_order(void) { on_two_and_three(exchange_many); }

/* No call is made after the requests are issued, until the last bytes are there. */
static void overlap(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  int next = (rank + 1) % n, before = (rank + n - 1) % n;
  int32_t *in = untouched(LONG), *out = numbers(LONG, rank);
  CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
  nexarRequest_t recv = irecv(in, LONG, before, 1, comm), send = isend(out, LONG, next, 1, comm);
  volatile int32_t *first = in, *last = in + LONG - 1;
  while (*first != element(0, before) || *last != element(LONG - 1, before)) sched_yield();
  CHECK_CODE(nexarSuccess, nexarRequestWait(send, NULL));
  CHECK_CODE(nexarSuccess, nexarRequestWait(recv, NULL));
  check_numbers(in, LONG, LONG + 1, before);
  free(in);
  free(out);
}
static void a_long_message_moves_while_the_caller_computes(void) { on_two_and_three(overlap); }

static void cancel(int rank, int n, nexarComm_t comm, void *arg) {
  (void)n, (void)arg;
  if (rank == 0) {
    int32_t in = -1, other = -1;
    nexarRequest_t cancelled = irecv(&in, 1, 1, 1, comm);
    CHECK_CODE(nexarSuccess, nexarRequestCancel(cancelled));
    CHECK_CODE(nexarInvalidArgument, nexarRequestWait(cancelled, NULL));
    CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
    CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
    nexarRequest_t matched = irecv(&other, 1, 1, 1, comm);
    CHECK_CODE(nexarSuccess, nexarProbeTag(1, 2, NULL, NULL, comm)); /* tag 1 was sent before */
    CHECK_CODE(nexarInProgress, nexarRequestCancel(matched));
    CHECK_CODE(nexarSuccess, nexarRequestWait(matched, NULL));
    CHECK_CODE(nexarSuccess, recv_numbers(1, 1, 2, NULL, comm));
    CHECK_EQ(-1, in);
    CHECK_EQ(element(0, 1), other);
  } else {
    CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
    for (int tag = 1; tag <= 2 && rank == 1; tag++)
      CHECK_CODE(nexarSuccess, send_numbers(1, 0, tag, comm));
    CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
  }
  int32_t *out = numbers(LONG, 3);
  if (rank == 1) {
    nexarRequest_t send = isend(out, LONG, 0, 3, comm);
    CHECK_CODE(nexarInProgress, nexarRequestCancel(send));
    CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
    CHECK_CODE(nexarSuccess, nexarRequestWait(send, NULL));
  } else {
    CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
    if (rank == 0) CHECK_CODE(nexarSuccess, recv_numbers(LONG, 1, 3, NULL, comm));
  }
  free(out);
}
static void only_a_receive_that_has_matched_nothing_is_withdrawn(void) {
  on_two_and_three(cancel);
}

static void exceed(int rank, int n, nexarComm_t comm, void *arg) {
  (void)n, (void)arg;
  if (rank == 0) {
    int32_t in[2] = {-1, -1};
    nexarStatus_t status = unset;
    CHECK_CODE(nexarInvalidArgument, nexarRequestWait(irecv(in, 1, 1, 4, comm), &status));
    CHECK_TEXT(nexarGetLastError(comm), "nexarRequestWait: ");
    CHECK(is_unset(&status) && in[0] == -1);
    nexarRequest_t request = irecv(in, 1, 1, 4, comm);
    CHECK_CODE(nexarInvalidArgument, test_until_done(request, NULL));
    CHECK_CODE(nexarSuccess, nexarRequestWait(irecv(in, 2, 1, 4, comm), &status));
    CHECK_STATUS(status, 1, 4, 2, nexarInt32);
    check_has_not_failed(comm);
  } else if (rank == 1) {
    CHECK_CODE(nexarSuccess, send_numbers(2, 0, 4, comm));
  }
}
static void a_message_beyond_the_capacity_fails_its_request_alone(void) {
  on_two_and_three(exceed);
}

static void pass_wrong_arguments(int rank, int n, nexarComm_t comm, void *arg) {
  (void)n, (void)arg;
  int32_t data = -1;
  int done = 7;
  size_t index = 7;
  nexarRequest_t request = NULL;
  CHECK_CODE(nexarInvalidArgument, nexarIrecvTag(&data, 1, nexarInt32, 0, 1, NULL, comm));
  CHECK_CODE(nexarInvalidArgument, nexarIsendTag(&data, 1, nexarInt32, 0, 1, NULL, comm));
  CHECK_CODE(nexarInvalidArgument, nexarIsendTag(&data, 1, nexarInt32, 99, 1, &request, comm));
  CHECK_CODE(nexarInvalidArgument, nexarIsendTag(&data, 1, nexarInt32, 0, -1, &request, comm));
  CHECK_CODE(nexarInvalidArgument, nexarIrecvTag(NULL, 1, nexarInt32, 0, 1, &request, comm));
  CHECK_CODE(nexarInvalidArgument, nexarIrecvTag(&data, 1, nexarInt32, 0, 1, &request, NULL));
  CHECK(request == NULL);
  CHECK_CODE(nexarInvalidArgument, nexarRequestTest(NULL, &done, NULL));
  CHECK_CODE(nexarInvalidArgument, nexarRequestWait(NULL, NULL));
  CHECK_CODE(nexarInvalidArgument, nexarRequestWait((nexarRequest_t)comm, NULL));
  CHECK_CODE(nexarInvalidArgument, nexarRequestCancel((nexarRequest_t)&data));
  CHECK_CODE(nexarInvalidArgument, nexarRequestWaitAny(1, NULL, &index, NULL));
  request = irecv(&data, 1, rank, 1, comm);
  nexarRequest_t twice[3] = {NULL, request, request};
  CHECK_CODE(nexarInvalidUsage, nexarRequestWaitAny(3, twice, &index, NULL));
  CHECK_CODE(nexarInvalidArgument, nexarRequestTest(request, NULL, NULL));
  nexarStatus_t small = {.size = 4};
  CHECK_CODE(nexarInvalidArgument, nexarRequestTest(request, &done, &small));
  CHECK(done == 7 && index == 7 && twice[1] == request);
  CHECK_CODE(nexarSuccess, nexarGroupStart());
  CHECK_CODE(nexarInvalidUsage, nexarRequestTest(request, &done, NULL));
  CHECK_CODE(nexarInvalidUsage, nexarGroupEnd());
  CHECK_CODE(nexarSuccess, nexarGroupStart());
  CHECK_CODE(nexarInvalidUsage, nexarIsendTag(&data, 1, nexarInt32, rank, 1, &request, comm));
  CHECK_CODE(nexarInvalidUsage, nexarGroupEnd());
  CHECK_CODE(nexarSuccess, nexarRequestTest(request, &done, NULL));
  CHECK_EQ(0, done);
  CHECK_CODE(nexarSuccess, nexarRequestCancel(request));
  check_has_not_failed(comm);
}
static void a_wrong_call_consumes_nothing(void) { on_two_and_three(pass_wrong_arguments); }

/* Live requests end with their communicator; their handles stay until they are consumed. */
static void end_with(int rank, int n, nexarComm_t comm, void *arg) {
  int how = *(int *)arg;
  nexarComm_t other = join_another(rank, n, comm);
  int32_t in[2] = {-1, -1}, *out = numbers(LONG, 0);
  nexarRequest_t requests[3] = {irecv(&in[0], 1, (rank + 1) % n, 1, other), NULL, NULL};
  requests[1] = irecv(&in[1], 1, NEXAR_ANY_SOURCE, NEXAR_ANY_TAG, other);
  CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
  if (rank == 0) {
    if (how == 1) requests[2] = isend(out, LONG, 1, 9, other);
    if (how == 2) {
      CHECK_CODE(nexarSuccess, nexarCommAbort(other));
    } else if (how == 3) {
      CHECK_CODE(nexarSuccess, nexarCommFinalize(other));
    } else {
      CHECK_CODE(nexarSuccess, nexarCommDestroy(other));
    }
    for (int i = 0; i < 3 && requests[i]; i++)
      CHECK_CODE(nexarInvalidUsage, nexarRequestWait(requests[i], NULL));
    if (how == 3) CHECK_CODE(nexarSuccess, nexarCommDestroy(other));
    CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
  } else if (how == 2) {
    CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
    for (int i = 0; i < 2; i++)
      CHECK_CODE(nexarRemoteError, nexarRequestWait(requests[i], NULL));
    CHECK_CODE(nexarSuccess, nexarCommDestroy(other));
  } else {
    CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
    CHECK_CODE(nexarSuccess, nexarCommDestroy(other));
    for (int i = 0; i < 2; i++) CHECK(nexarRequestWait(requests[i], NULL) != nexarSuccess);
  }
  free(out);
  check_it_works(rank, n, comm);
}
static void live_requests_end_with_their_communicator(void) {
  for (int how = 0; how < 4; how++) {
    run_ranks(2, end_with, &how);
    run_ranks(3, end_with, &how);
  }
}

static void be_late(int rank, int n, nexarComm_t comm, void *arg) {
  (void)n, (void)arg;
  nexarComm_t hasty = another_with(rank, comm, 100);
  int32_t in = -1;
  if (rank == 0) {
    nexarRequest_t request = irecv(&in, 1, 1, 1, hasty);
    /* The deadline passes although no call waits for the request. */
    nexarResult_t error = nexarSuccess;
    while (error == nexarSuccess) CHECK_CODE(nexarSuccess, nexarCommGetAsyncError(hasty, &error));
    CHECK_EQ(nexarTimeout, error);
    CHECK_CODE(nexarTimeout, nexarRequestWait(request, NULL));
  } else {
    nexarResult_t error = nexarSuccess;
    while (error == nexarSuccess) CHECK_CODE(nexarSuccess, nexarCommGetAsyncError(hasty, &error));
  }
  CHECK_CODE(nexarSuccess, nexarCommDestroy(hasty));
}
static void a_request_that_is_late_fails_its_communicator(void) { on_two_and_three(be_late); }

static void *wait_in_thread(void *request) {
  CHECK_CODE(nexarSuccess, nexarRequestWait(request, NULL));
  return NULL;
}

static void wait_in_threads(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  enum { THREADS = 4 };
  int next = (rank + 1) % n, before = (rank + n - 1) % n;
  int32_t in[THREADS], out[THREADS];
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) {
    in[i] = -1, out[i] = 10 * rank + i;
    void *request = irecv(&in[i], 1, before, i, comm);
    CHECK_EQ(0, pthread_create(&threads[i], NULL, wait_in_thread, request));
  }
  for (int i = THREADS - 1; i >= 0; i--)
    CHECK_CODE(nexarSuccess, nexarRequestWait(isend(&out[i], 1, next, i, comm), NULL));
  for (int i = 0; i < THREADS; i++) CHECK_EQ(0, pthread_join(threads[i], NULL));
  for (int i = 0; i < THREADS; i++) CHECK_EQ(10 * before + i, in[i]);
}
static void threads_may_wait_for_different_requests(void) { on_two_and_three(wait_in_threads); }

static const struct test_case cases[] = {
    CASE(a_request_is_consumed_by_the_call_that_completes_it),
    CASE(many_requests_complete_in_any_order),
    CASE(a_long_message_moves_while_the_caller_computes),
    CASE(only_a_receive_that_has_matched_nothing_is_withdrawn),
    CASE(a_message_beyond_the_capacity_fails_its_request_alone),
    CASE(a_wrong_call_consumes_nothing),
    CASE(live_requests_end_with_their_communicator),
    CASE(a_request_that_is_late_fails_its_communicator),
    CASE(threads_may_wait_for_different_requests),
};

int main(void) { return RUN(cases); }
