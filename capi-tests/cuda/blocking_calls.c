/*
 * A driver whose streams cannot wait for numbers: calls on the memory of a device wait instead.
 * When one returns its stream has done all of it; the result is right; that callers wait is told
 * once; and what goes wrong is returned by the call itself. What is before it on the stream is
 * waited for no longer than a call may take, and what fails before it has begun is as if it had not
 * been called.
 *
 * Two ranks, which are threads. Run with FAKECUDA_NO_MEMOPS=1, and linked with a driver that has no
 * such functions; the cases of large messages also with one whose streams can wait.
 */
#include "two_rank_operations.h"
#include "processes.h"

static pthread_barrier_t both;
static nexarComm_t comms[2];

static void meet(void) { pthread_barrier_wait(&both); }

static struct side begin_side(int rank, size_t bytes) {
  struct side side = take_device(rank, 2, rank, bytes);
  meet();
  library_calls();
  if (rank == 0) CHECK_CODE(nexarSuccess, nexarCommInitAll(comms, 2, NULL));
  own_calls();
  meet();
  side.comm = comms[rank];
  return side;
}

static void end_side(struct side *side, nexarResult_t (*how)(nexarComm_t)) {
  library_calls();
  CHECK_CODE(nexarSuccess, how(side->comm));
  own_calls();
  meet();
  give_back_device(side);
}

static void run_two(rank_function *function) {
  pthread_barrier_init(&both, NULL, 2);
  run_threads(2, NULL, function, NULL);
  pthread_barrier_destroy(&both);
  CHECK_EQ(0, fakecuda_report_leaks());
}

static void wait_in(struct side *side, const struct operation *operation) {
  struct plan plan = plan_on_host(operation, side);
  put_before(&plan);
  int failures = check_failures;
  library_calls();
  nexarResult_t result = call(&plan);
  own_calls();
  /* Nothing else waits for the streams. */
  CHECK_EQ(0, fakecuda_pending(side->stream) + fakecuda_pending(side->other));
  CHECK_CODE(nexarSuccess, result);
  CHECK(is_as_planned(&plan));
  if (check_failures > failures)
    fprintf(stderr, "    rank %d in %s\n", side->rank, operation->name);
  forget(&plan);
  meet();
}

static void wait_in_all(int rank, int n, nexarComm_t comm, void *arg) {
  (void)n, (void)comm, (void)arg;
  struct side side = begin_side(rank, LARGE);
  for (size_t i = 0; i < COUNT_OF(operations); i++) wait_in(&side, &operations[i]);
  for (size_t i = 0; i < COUNT_OF(large_operations); i++) wait_in(&side, &large_operations[i]);
  CHECK_EQ(0, fakecuda_pinned_bytes());
  end_side(&side, nexarCommDestroy);
}
static void two_wait_in_all(void) { run_two(wait_in_all); }
static void every_call_returns_when_its_stream_has_done_all_of_it(void) {
  in_a_process("LATENCY_US=0-300", two_wait_in_all);
  in_a_process("HWQ=1", two_wait_in_all);
}

/* What the stream was to do before is done before the call takes its data. */
static void wait_for_what_is_before(int rank, int n, nexarComm_t comm, void *arg) {
  (void)n, (void)comm, (void)arg;
  struct side side = begin_side(rank, SMALL);
  for (uint32_t round = 1; round < 20; round++) {
    void *data = device_pointer(side.send);
    OK(fakecuda_fill(side.stream, side.send, COUNT, round * (uint32_t)(rank + 1), 0));
    library_calls();
    CHECK_CODE(nexarSuccess, nexarAllReduce(data, data, COUNT, nexarUint32, nexarSum, side.comm,
                                            side.stream));
    own_calls();
    const uint32_t *seen = view(side.send, SMALL);
    CHECK_EQ(3 * round, seen[0]);
    CHECK_EQ(3 * round, seen[COUNT - 1]);
    meet();
  }
  end_side(&side, nexarCommDestroy);
}
static void two_wait_for_what_is_before(void) { run_two(wait_for_what_is_before); }
static void a_call_waits_for_what_its_stream_was_to_do_before(void) {
  in_a_process("LATENCY_US=500", two_wait_for_what_is_before);
}

static atomic_bool is_inside;
static void fail_in_the_call(int rank, int n, nexarComm_t comm, void *arg) {
  (void)n, (void)comm, (void)arg;
  struct side side = begin_side(rank, LARGE);
  if (rank == 0) {
    struct buffers b = {rank, side.comm, device_pointer(side.send), device_pointer(side.recv),
                        side.stream, side.other};
    is_inside = true;
    library_calls();
    nexarResult_t result = large_all_reduce(&b);
    own_calls();
    CHECK_CODE(nexarRemoteError, result);
    CHECK_TEXT(nexarGetLastError(side.comm), "rank 1");
    check_drained(&side);
  } else {
    while (!is_inside) usleep(100);
  }
  end_side(&side, rank == 0 ? nexarCommDestroy : nexarCommAbort);
}
static void two_fail_in_the_call(void) { run_two(fail_in_the_call); }
static void what_fails_is_returned_by_the_call_itself(void) {
  in_a_process("", two_fail_in_the_call);
}

/* Large messages, for which callers wait whatever the driver can do. Rank 0 sends. */

static nexarResult_t call_large(const struct side *side, bool counts) {
  struct buffers b = {side->rank, side->comm, device_pointer(side->send),
                      device_pointer(side->recv), side->stream, side->other};
  if (counts) library_calls();
  nexarResult_t result = large_send(&b);
  own_calls();
  return result;
}

/* Both ranks: it arrives. */
static void check_arrives(const struct side *side) {
  const uint32_t *seen = view(side->recv, side->bytes);
  size_t wrong = 0;
  CHECK_CODE(nexarSuccess, call_large(side, true));
  for (size_t i = 0; side->rank == 1 && i < WAITING_COUNT; i++) wrong += seen[i] != sent(0, i);
  CHECK_EQ(0, wrong);
}

/* Long enough for a call that does get its answer. */
enum { CALL_MS = 4000 };

static void come_too_late(int rank, int n, nexarComm_t comm, void *arg) {
  (void)n, (void)comm, (void)arg;
  struct side side = begin_side(rank, LARGE);
  if (rank == 0) {
    uint64_t hold = fakecuda_hold(side.stream);
    double before = seconds_now(), waited;
    CHECK_CODE(nexarTimeout, call_large(&side, true));
    waited = seconds_now() - before;
    CHECK(waited > CALL_MS / 1e3 - 0.1);
    CHECK_TIME(CALL_MS / 1e3 + 4, 30, waited);
    CHECK_TEXT(nexarGetLastError(side.comm), "stream");
    CHECK(fakecuda_pending(side.stream) > 0);
    fakecuda_release(hold);
  }
  meet();
  /* The other rank knows nothing of it. */
  CHECK_CODE(nexarSuccess, async_error(side.comm));
  check_arrives(&side);
  end_side(&side, nexarCommDestroy);
}
static void two_come_too_late(void) {
  char timeout[12];
  snprintf(timeout, sizeof timeout, "%d", CALL_MS);
  setenv("NEXAR_OP_TIMEOUT_MS", timeout, 1);
  run_two(come_too_late);
}
static void a_large_message_waits_for_its_stream_no_longer_than_a_call_may_take(void) {
  in_a_process("", two_come_too_late);
}

static void fail_to_fetch(int rank, int n, nexarComm_t comm, void *arg) {
  (void)n, (void)comm, (void)arg;
  struct side side = begin_side(rank, LARGE);
  if (rank == 0) {
    fakecuda_fail("cuMemcpyAsync:1:999");
    CHECK_CODE(nexarUnhandledCudaError, call_large(&side, true));
    CHECK_TEXT(nexarGetLastError(side.comm), "cuMemcpyAsync");
    CHECK_EQ(1, fakecuda_failed());
    fakecuda_fail(NULL);
  }
  meet();
  CHECK_CODE(nexarSuccess, async_error(side.comm));
  check_arrives(&side);
  end_side(&side, nexarCommDestroy);
}
static void two_fail_to_fetch(void) { run_two(fail_to_fetch); }
static void a_large_message_that_could_not_be_fetched_can_be_sent_again(void) {
  in_a_process("", two_fail_to_fetch);
}

/* The sender has ended its call by then: it hears of it later. */
static void fail_to_store(int rank, int n, nexarComm_t comm, void *arg) {
  (void)n, (void)comm, (void)arg;
  struct side side = begin_side(rank, LARGE);
  if (rank == 1) fakecuda_fail("cuMemcpyAsync:1:999");
  meet();
  if (rank == 0) {
    nexarResult_t result = call_large(&side, false);
    if (result != nexarSuccess) CHECK_CODE(nexarUnhandledCudaError, result);
  } else {
    CHECK_CODE(nexarUnhandledCudaError, call_large(&side, true));
    CHECK_TEXT(nexarGetLastError(side.comm), "cuMemcpyAsync");
    CHECK_EQ(1, fakecuda_failed());
    fakecuda_fail(NULL);
  }
  while (async_error(side.comm) == nexarSuccess) usleep(100);
  CHECK_CODE(nexarUnhandledCudaError, async_error(side.comm));
  CHECK_TEXT(nexarGetLastError(side.comm), "rank 1");
  CHECK_CODE(nexarUnhandledCudaError, call_large(&side, true));
  check_drained(&side);
  end_side(&side, nexarCommDestroy);
}
static void two_fail_to_store(void) { run_two(fail_to_store); }
static void a_large_message_that_could_not_be_stored_fails_the_communicator_on_both_ranks(void) {
  in_a_process("", two_fail_to_store);
}

static void wait_thrice(int rank, int n, nexarComm_t comm, void *arg) {
  (void)n, (void)comm, (void)arg;
  for (int i = 0; i < 3; i++) {
    struct side side = begin_side(rank, SMALL);
    for (int j = 0; j < 3; j++) {
      check_it_works_on(&side, side.stream);
      meet();
    }
    end_side(&side, nexarCommDestroy);
  }
}
static char log_path[SCRATCH_PATH];
static void two_wait_thrice(void) {
  setenv("NEXAR_DEBUG", "WARN", 1);
  setenv("NEXAR_DEBUG_FILE", log_path, 1);
  run_two(wait_thrice);
}
static void that_callers_wait_is_told_once_for_each_device(void) {
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
      CASE(every_call_returns_when_its_stream_has_done_all_of_it),
      CASE(a_call_waits_for_what_its_stream_was_to_do_before),
      CASE(what_fails_is_returned_by_the_call_itself),
      CASE(that_callers_wait_is_told_once_for_each_device),
      CASE(a_large_message_waits_for_its_stream_no_longer_than_a_call_may_take),
      CASE(a_large_message_that_could_not_be_fetched_can_be_sent_again),
      CASE(a_large_message_that_could_not_be_stored_fails_the_communicator_on_both_ranks),
  };
  return RUN(cases);
}
