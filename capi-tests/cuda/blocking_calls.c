/*
 * A driver whose streams cannot await values: calls on device memory block their caller instead.
 * When a call returns, its stream has executed all of it and the result is right; the log says once
 * that callers wait; a failure is returned by the call itself. The call waits for earlier work of
 * its stream no longer than the timeout of a call. A call that fails before it has begun has no
 * effect.
 *
 * Two ranks, which are threads. Run with FAKECUDA_NO_MEMOPS=1, and linked with a driver that lacks
 * the memory operations; the cases of large messages also with one whose streams can wait.
 */
#include "two_rank_operations.h"
#include "processes.h"

static pthread_barrier_t both;
static nexarComm_t comms[2];

static void await_both(void) { pthread_barrier_wait(&both); }

static struct device_rank begin_rank(int rank, size_t bytes) {
  struct device_rank self = take_device(rank, 2, rank, bytes);
  await_both();
  library_calls();
  if (rank == 0) CHECK_CODE(nexarSuccess, nexarCommInitAll(comms, 2, NULL));
  own_calls();
  await_both();
  self.comm = comms[rank];
  return self;
}

static void end_rank(struct device_rank *self, nexarResult_t (*how)(nexarComm_t)) {
  library_calls();
  CHECK_CODE(nexarSuccess, how(self->comm));
  own_calls();
  await_both();
  give_back_device(self);
}

static void run_two(rank_function *function) {
  pthread_barrier_init(&both, NULL, 2);
  run_threads(2, NULL, function, NULL);
  pthread_barrier_destroy(&both);
  CHECK_EQ(0, fakecuda_report_leaks());
}

static void wait_in(struct device_rank *self, const struct operation *operation) {
  struct plan plan = plan_on_host(operation, self);
  put_before(&plan);
  int failures = check_failures;
  library_calls();
  nexarResult_t result = call(&plan);
  own_calls();
  /* The call has waited for the streams: nothing else did. */
  CHECK_EQ(0, fakecuda_pending(self->stream) + fakecuda_pending(self->other));
  CHECK_CODE(nexarSuccess, result);
  CHECK(is_as_planned(&plan));
  if (check_failures > failures)
    fprintf(stderr, "    rank %d in %s\n", self->rank, operation->name);
  forget(&plan);
  await_both();
}

static void wait_in_all(int rank, int n, nexarComm_t comm, void *arg) {
  (void)n, (void)comm, (void)arg;
  struct device_rank self = begin_rank(rank, LARGE);
  for (size_t i = 0; i < COUNT_OF(operations); i++) wait_in(&self, &operations[i]);
  for (size_t i = 0; i < COUNT_OF(large_operations); i++) wait_in(&self, &large_operations[i]);
  CHECK_EQ(0, fakecuda_pinned_bytes());
  end_rank(&self, nexarCommDestroy);
}
static void two_wait_in_all(void) { run_two(wait_in_all); }
static void every_call_returns_when_its_stream_has_executed_all_of_it(void) {
  in_a_process("LATENCY_US=0-300", two_wait_in_all);
  in_a_process("HWQ=1", two_wait_in_all);
}

/* The stream's earlier work completes before the call reads its data. */
static void wait_for_earlier_work(int rank, int n, nexarComm_t comm, void *arg) {
  (void)n, (void)comm, (void)arg;
  struct device_rank self = begin_rank(rank, SMALL);
  for (uint32_t round = 1; round < 20; round++) {
    void *data = device_pointer(self.send);
    OK(fakecuda_fill(self.stream, self.send, COUNT, round * (uint32_t)(rank + 1), 0));
    library_calls();
    CHECK_CODE(nexarSuccess, nexarAllReduce(data, data, COUNT, nexarUint32, nexarSum, self.comm,
                                            self.stream));
    own_calls();
    const uint32_t *seen = view(self.send, SMALL);
    CHECK_EQ(3 * round, seen[0]);
    CHECK_EQ(3 * round, seen[COUNT - 1]);
    await_both();
  }
  end_rank(&self, nexarCommDestroy);
}
static void two_wait_for_earlier_work(void) { run_two(wait_for_earlier_work); }
static void a_call_waits_for_earlier_work_of_its_stream(void) {
  in_a_process("LATENCY_US=500", two_wait_for_earlier_work);
}

static atomic_bool is_inside;
static void fail_in_the_call(int rank, int n, nexarComm_t comm, void *arg) {
  (void)n, (void)comm, (void)arg;
  struct device_rank self = begin_rank(rank, LARGE);
  if (rank == 0) {
    struct buffers b = {rank, self.comm, device_pointer(self.send), device_pointer(self.recv),
                        self.stream, self.other};
    is_inside = true;
    library_calls();
    nexarResult_t result = large_all_reduce(&b);
    own_calls();
    CHECK_CODE(nexarRemoteError, result);
    CHECK_TEXT(nexarGetLastError(self.comm), "rank 1");
    check_drained(&self);
  } else {
    while (!is_inside) usleep(100);
  }
  end_rank(&self, rank == 0 ? nexarCommDestroy : nexarCommAbort);
}
static void two_fail_in_the_call(void) { run_two(fail_in_the_call); }
static void a_failure_is_returned_by_the_call_itself(void) {
  in_a_process("", two_fail_in_the_call);
}

/* Large messages, for which callers wait whatever the driver can do. Rank 0 sends. */

static nexarResult_t call_large(const struct device_rank *self, bool counts) {
  struct buffers b = {self->rank, self->comm, device_pointer(self->send),
                      device_pointer(self->recv), self->stream, self->other};
  if (counts) library_calls();
  nexarResult_t result = large_send(&b);
  own_calls();
  return result;
}

/* Both ranks: rank 0 sends a large message, which arrives. */
static void check_arrives(const struct device_rank *self) {
  const uint32_t *seen = view(self->recv, self->bytes);
  size_t wrong = 0;
  CHECK_CODE(nexarSuccess, call_large(self, true));
  for (size_t i = 0; self->rank == 1 && i < WAITING_COUNT; i++) wrong += seen[i] != sent(0, i);
  CHECK_EQ(0, wrong);
}

/* The timeout of a call: longer than a call takes that completes. */
enum { CALL_MS = 4000 };

static void be_late(int rank, int n, nexarComm_t comm, void *arg) {
  (void)n, (void)comm, (void)arg;
  struct device_rank self = begin_rank(rank, LARGE);
  if (rank == 0) {
    uint64_t hold = fakecuda_hold(self.stream);
    double before = seconds_now(), waited;
    CHECK_CODE(nexarTimeout, call_large(&self, true));
    waited = seconds_now() - before;
    CHECK(waited > CALL_MS / 1e3 - 0.1);
    CHECK_TIME(CALL_MS / 1e3 + 4, 30, waited);
    CHECK_TEXT(nexarGetLastError(self.comm), "stream");
    CHECK(fakecuda_pending(self.stream) > 0);
    fakecuda_release(hold);
  }
  await_both();
  /* The other rank is not affected. */
  CHECK_CODE(nexarSuccess, async_error(self.comm));
  check_arrives(&self);
  end_rank(&self, nexarCommDestroy);
}
static void two_are_late(void) {
  char timeout[12];
  snprintf(timeout, sizeof timeout, "%d", CALL_MS);
  setenv("NEXAR_OP_TIMEOUT_MS", timeout, 1);
  run_two(be_late);
}
static void a_large_message_waits_for_its_stream_no_longer_than_a_call_may_take(void) {
  in_a_process("", two_are_late);
}

static void fail_to_fetch(int rank, int n, nexarComm_t comm, void *arg) {
  (void)n, (void)comm, (void)arg;
  struct device_rank self = begin_rank(rank, LARGE);
  if (rank == 0) {
    fakecuda_fail("cuMemcpyAsync:1:999");
    CHECK_CODE(nexarUnhandledCudaError, call_large(&self, true));
    CHECK_TEXT(nexarGetLastError(self.comm), "cuMemcpyAsync");
    CHECK_EQ(1, fakecuda_failed());
    fakecuda_fail(NULL);
  }
  await_both();
  CHECK_CODE(nexarSuccess, async_error(self.comm));
  check_arrives(&self);
  end_rank(&self, nexarCommDestroy);
}
static void two_fail_to_fetch(void) { run_two(fail_to_fetch); }
static void a_large_message_that_could_not_be_fetched_can_be_sent_again(void) {
  in_a_process("", two_fail_to_fetch);
}

/* The receiver's copy fails after the sender's call has completed: the sender learns it later. */
static void fail_to_store(int rank, int n, nexarComm_t comm, void *arg) {
  (void)n, (void)comm, (void)arg;
  struct device_rank self = begin_rank(rank, LARGE);
  if (rank == 1) fakecuda_fail("cuMemcpyAsync:1:999");
  await_both();
  if (rank == 0) {
    nexarResult_t result = call_large(&self, false);
    if (result != nexarSuccess) CHECK_CODE(nexarUnhandledCudaError, result);
  } else {
    CHECK_CODE(nexarUnhandledCudaError, call_large(&self, true));
    CHECK_TEXT(nexarGetLastError(self.comm), "cuMemcpyAsync");
    CHECK_EQ(1, fakecuda_failed());
    fakecuda_fail(NULL);
  }
  while (async_error(self.comm) == nexarSuccess) usleep(100);
  CHECK_CODE(nexarUnhandledCudaError, async_error(self.comm));
  CHECK_TEXT(nexarGetLastError(self.comm), "rank 1");
  CHECK_CODE(nexarUnhandledCudaError, call_large(&self, true));
  check_drained(&self);
  end_rank(&self, nexarCommDestroy);
}
static void two_fail_to_store(void) { run_two(fail_to_store); }
static void a_large_message_that_could_not_be_stored_fails_the_communicator_on_both_ranks(void) {
  in_a_process("", two_fail_to_store);
}

static void wait_thrice(int rank, int n, nexarComm_t comm, void *arg) {
  (void)n, (void)comm, (void)arg;
  for (int i = 0; i < 3; i++) {
    struct device_rank self = begin_rank(rank, SMALL);
    for (int j = 0; j < 3; j++) {
      check_it_works_on(&self, self.stream);
      await_both();
    }
    end_rank(&self, nexarCommDestroy);
  }
}
static char log_path[SCRATCH_PATH];
static void two_wait_thrice(void) {
  setenv("NEXAR_DEBUG", "WARN", 1);
  setenv("NEXAR_DEBUG_FILE", log_path, 1);
  run_two(wait_thrice);
}
static void the_log_says_once_for_each_device_that_callers_wait(void) {
  char line[1000];
  int of_devices[2] = {0, 0};
  FILE *file = scratch_file(log_path);
  in_a_process("", two_wait_thrice);
  while (fgets(line, sizeof line, file)) {
    of_devices[0] += strstr(line, "device 0") != NULL;
    of_devices[1] += strstr(line, "device 1") != NULL;
  }
  fclose(file);
  for (int i = 0; i < 2; i++) CHECK_EQ(1, of_devices[i]);
}

int main(void) {
  static const struct test_case cases[] = {
      CASE(every_call_returns_when_its_stream_has_executed_all_of_it),
      CASE(a_call_waits_for_earlier_work_of_its_stream),
      CASE(a_failure_is_returned_by_the_call_itself),
      CASE(the_log_says_once_for_each_device_that_callers_wait),
      CASE(a_large_message_waits_for_its_stream_no_longer_than_a_call_may_take),
      CASE(a_large_message_that_could_not_be_fetched_can_be_sent_again),
      CASE(a_large_message_that_could_not_be_stored_fails_the_communicator_on_both_ranks),
  };
  return RUN(cases);
}
