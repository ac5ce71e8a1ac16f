/*
 * Communicators that end while CUDA streams are inside their calls: aborted by another thread,
 * destroyed, left behind by the end of the process, or broken with their device. All enqueued work
 * completes, no thread waits for ever, and results and errors are as documented.
 *
 * Two ranks in one process, each with a device. Most cases need no thread for each, because calls
 * on streams do not wait.
 */
#include "injection.h"
#include "processes.h"
#include "two_ranks.h"

enum {
  LARGE = (5 * 8 + 2) << 20, /* bytes, in several pieces */
  MEDIUM = 12 << 20,         /* in two */
};

static void *abort_first(void *unused) {
  (void)unused;
  own_calls();
  end(0, nexarCommAbort);
  return NULL;
}

/* Aborts. */

static void abort_while_a_stream_waits(void) {
  begin_pair(LARGE);
  CHECK_CODE(nexarSuccess, all_reduce(0));
  check_stays_busy(ranks[0].stream);
  in_another_thread(abort_first);
  check_drained(&ranks[0]);
  CHECK_CODE(nexarRemoteError, async_error(comms[1]));
  CHECK_CODE(nexarRemoteError, all_reduce(1));
  CHECK_TEXT(nexarGetLastError(comms[1]), "rank 0");
  end(1, nexarCommAbort);
  end_pair_and_go_on();
}
static void an_abort_by_another_thread_lets_a_stream_that_waits_go_on(void) {
  in_a_process("", abort_while_a_stream_waits);
  in_a_process("HWQ=1 LATENCY_US=0-300", abort_while_a_stream_waits);
}

static void abort_before_a_call(void) {
  begin_pair(MEDIUM);
  in_another_thread(abort_first);
  fakecuda_reset_calls();
  CHECK_CODE(nexarInvalidArgument, all_reduce(0));
  CHECK_EQ(0, fakecuda_calls("cuMemcpyAsync") + fakecuda_calls("cuStreamWaitValue32_v2"));
  CHECK_EQ(0, fakecuda_pending(ranks[0].stream));
  end(1, nexarCommDestroy);
  end_pair_and_go_on();
}
static void after_an_abort_nothing_is_put_on_a_stream(void) {
  in_a_process("", abort_before_a_call);
}

static nexarResult_t called;
static void *call_first(void *unused) {
  (void)unused;
  own_calls();
  called = all_reduce(0);
  return NULL;
}

/* The queue of the stream is full, so the call blocks until its first pieces have completed. */
static void abort_during_a_call(void) {
  enum { DEPTH = 12 };
  pthread_t caller;
  begin_pair(LARGE);
  CHECK_EQ(0, pthread_create(&caller, NULL, call_first, NULL));
  for (int full = 0; full < 50; usleep(100))
    full = fakecuda_pending(ranks[0].stream) == DEPTH ? full + 1 : 0;
  end(0, nexarCommAbort);
  CHECK_EQ(0, pthread_join(caller, NULL));
  check_drained(&ranks[0]);
  end(1, nexarCommAbort);
  fakecuda_set("QUEUE_DEPTH", NULL);
  end_pair_and_go_on();
}
static void an_abort_ends_a_call_that_cannot_go_on(void) {
  in_a_process("QUEUE_DEPTH=12", abort_during_a_call);
}

/* Aborts before, in and after the call. */
static void abort_at_any_time(void) {
  begin_pair(MEDIUM);
  for (int i = 0; i < 60; i++) {
    pthread_t caller;
    progress_at = "an abort at any time";
    progress();
    if (i > 0) make_pair();
    CHECK_EQ(0, pthread_create(&caller, NULL, call_first, NULL));
    for (volatile int wait = 0; wait < i * i * 40; wait++) continue;
    if (i % 3 == 0) CHECK_CODE(nexarSuccess, all_reduce(1));
    end(0, nexarCommAbort);
    CHECK_EQ(0, pthread_join(caller, NULL));
    check_drained(&ranks[0]);
    end(1, i % 2 ? nexarCommAbort : nexarCommDestroy);
    check_drained(&ranks[1]);
  }
  end_pair_and_go_on();
}
static void an_abort_at_any_time_of_a_call_ends_it_and_lets_its_stream_go_on(void) {
  in_a_process("", abort_at_any_time);
}

/* Destroying. */

static void destroy_in_flight(void) {
  begin_pair(LARGE);
  for (int i = 0; i < 2; i++) CHECK_CODE(nexarSuccess, all_reduce(i));
  for (int i = 0; i < 2; i++) CHECK(fakecuda_pending(ranks[i].stream) > 0);
  for (int i = 0; i < 2; i++) end(i, nexarCommDestroy);
  for (int i = 0; i < 2; i++) {
    check_drained(&ranks[i]);
    CHECK(is_right(i));
  }
  end_pair_and_go_on();
}
static void operations_in_progress_when_a_communicator_is_destroyed_complete(void) {
  in_a_process("COPY_MBPS=600", destroy_in_flight);
}

/* Repeated, because the time between the two events whose order is checked is short. */
static void leave_while_another_waits(void) {
  begin_pair(MEDIUM);
  for (int i = 0; i < 40; i++) {
    progress();
    if (i > 0) make_pair();
    CHECK_CODE(nexarSuccess, all_reduce(1));
    end(0, nexarCommDestroy);
    OK(cuStreamSynchronize(ranks[1].stream));
    /* There is no result, and the error is visible by now. */
    CHECK_EQ(0xFF, *(unsigned char *)view(ranks[1].recv, 1));
    CHECK_CODE(nexarRemoteError, async_error(comms[1]));
    CHECK_TEXT(nexarGetLastError(comms[1]), "rank 0");
    end(1, nexarCommDestroy);
  }
  end_pair_and_go_on();
}
static void a_rank_without_a_result_has_the_error_too(void) {
  in_a_process("ALLOC_SYNC=off", leave_while_another_waits);
}
/* A driver may wait for all streams before it frees memory. */
static void a_rank_is_known_to_have_left_before_its_memory_is_freed(void) {
  in_a_process("ALLOC_SYNC=all", leave_while_another_waits);
}

/* The end of the process. */

static void end_idle(void) {
  begin_pair(MEDIUM);
  for (int i = 0; i < 2; i++) CHECK_CODE(nexarSuccess, all_reduce(i));
  for (int i = 0; i < 2; i++) check_drained(&ranks[i]);
}
static void end_in_flight(void) {
  begin_pair(LARGE);
  for (int i = 0; i < 2; i++) CHECK_CODE(nexarSuccess, all_reduce(i));
}
static void end_waiting(void) {
  begin_pair(LARGE);
  CHECK_CODE(nexarSuccess, all_reduce(0));
  check_stays_busy(ranks[0].stream);
}
static void end_failed_and_held(void) {
  setenv("NEXAR_CUDA_ON_ERROR", "hold", 1);
  begin_pair(LARGE);
  CHECK_CODE(nexarSuccess, all_reduce(0));
  end(1, nexarCommAbort);
  check_stays_busy(ranks[0].stream);
}
/* Work of the program that never completes, like a kernel that hangs. */
static void end_behind_other_work(void) {
  begin_pair(LARGE);
  CHECK(fakecuda_hold(ranks[0].stream) != 0);
  CHECK_CODE(nexarSuccess, all_reduce(0));
  CHECK_CODE(nexarSuccess, all_reduce(1));
}

static void a_process_ends_soon_without_destroying_anything(void) {
  static const struct {
    const char *settings;
    void (*function)(void);
  } ends[] = {
      {"EXIT_WAIT=1", end_idle},    {"EXIT_WAIT=1 COPY_MBPS=600", end_in_flight},
      {"EXIT_WAIT=1", end_waiting}, {"EXIT_WAIT=1", end_failed_and_held},
      {"", end_waiting},            {"", end_behind_other_work},
  };
  for (size_t i = 0; i < COUNT_OF(ends); i++) {
    double before = seconds_now();
    in_a_process(ends[i].settings, ends[i].function);
    CHECK_TIME(SOON_S, END_GIVES_UP_S, seconds_now() - before);
  }
}

/* Broken devices. */

static void check_broken(nexarResult_t result, nexarComm_t comm) {
  char text[1000];
  snprintf(text, sizeof text, "%s", nexarGetLastError(comm));
  CHECK_CODE(nexarUnhandledCudaError, result);
  CHECK_TEXT(text, "CUDA_ERROR_ILLEGAL_ADDRESS (700)");
}

/* The second rank, whose device works, gets the error. */
static void check_peer_learns(void) {
  OK(cuStreamSynchronize(ranks[1].stream));
  CHECK(async_error(comms[1]) != nexarSuccess);
  CHECK_TEXT(nexarGetLastError(comms[1]), "rank 0");
  CHECK(all_reduce(1) != nexarSuccess);
  end(1, nexarCommAbort);
  check_drained(&ranks[1]);
}

static nexarResult_t (*ends_broken)(nexarComm_t);

static void break_between_calls(void) {
  begin_pair(MEDIUM);
  fakecuda_break(0, 700);
  check_broken(all_reduce(0), comms[0]);
  check_broken(all_reduce(0), comms[0]);
  CHECK_CODE(nexarSuccess, all_reduce(1));
  end(0, ends_broken);
  check_peer_learns();
}
static void break_while_a_stream_waits(void) {
  begin_pair(LARGE);
  CHECK_CODE(nexarSuccess, all_reduce(0));
  check_stays_busy(ranks[0].stream);
  fakecuda_break(0, 700);
  CHECK_EQ(700, cuStreamSynchronize(ranks[0].stream));
  CHECK_CODE(nexarSuccess, all_reduce(1));
  check_broken(all_reduce(0), comms[0]);
  end(0, ends_broken);
  check_peer_learns();
}
static void break_before_the_call_begins_there(void) {
  begin_pair(LARGE);
  CHECK(fakecuda_hold(ranks[0].stream) != 0);
  CHECK_CODE(nexarSuccess, all_reduce(0));
  CHECK_CODE(nexarSuccess, all_reduce(1));
  fakecuda_break(0, 700);
  check_broken(all_reduce(0), comms[0]);
  end(0, ends_broken);
  check_peer_learns();
}
static void a_broken_device_is_reported_and_its_communicator_can_be_ended(void) {
  void (*const functions[])(void) = {break_between_calls, break_while_a_stream_waits,
                                     break_before_the_call_begins_there};
  for (size_t i = 0; i < COUNT_OF(functions); i++) {
    ends_broken = nexarCommAbort;
    in_a_process("", functions[i]);
    ends_broken = nexarCommDestroy;
    in_a_process("", functions[i]);
  }
}

/* The chosen call of the driver in the second all-reduce fails and breaks the device. */
static unsigned chosen;
enum { NO_SUCH_CALL = 77 };
static void break_at_a_call(void) {
  begin_pair(MEDIUM);
  for (int i = 0; i < 2; i++) CHECK_CODE(nexarSuccess, all_reduce(i));
  for (int i = 0; i < 2; i++) OK(cuStreamSynchronize(ranks[i].stream));
  unsigned depth = fakecuda_context_depth();
  arm(chosen, "", 700);
  nexarResult_t result = all_reduce(0);
  restore_contexts(depth, true);
  if (!fakecuda_failed()) exit(NO_SUCH_CALL);
  fakecuda_fail(NULL);
  atomic_fetch_add(runs(), 1);
  if (result != nexarSuccess) check_broken(result, comms[0]);
  /* Rank 1 may or may not know of the failure yet. */
  nexarResult_t other = all_reduce(1);
  if (other != nexarSuccess) check_broken(other, comms[1]);
  if (result == nexarSuccess) check_broken(all_reduce(0), comms[0]);
  end(0, chosen % 2 ? nexarCommAbort : nexarCommDestroy);
  check_peer_learns();
}
static void a_device_that_breaks_at_any_call_is_reported_and_no_rank_hangs(void) {
  runs();
  struct ended ended = {.status = 0};
  for (chosen = 1; ended.status == 0 && chosen < MOST_CALLS; chosen++) {
    ended = run_child("", break_at_a_call);
    if (ended.status && WEXITSTATUS(ended.status) != NO_SUCH_CALL) {
      check_failed(__FILE__, __LINE__, "call %u: status %d: %s", chosen, ended.status,
                   ended.stderr_text);
      ended.status = 0;
    }
    if (check_failures > 10) break;
  }
  CHECK(chosen > 20);
  printf("calls at which a device broke: %d\n", *runs());
}

int main(void) {
  static const struct test_case cases[] = {
      CASE(an_abort_by_another_thread_lets_a_stream_that_waits_go_on),
      CASE(after_an_abort_nothing_is_put_on_a_stream),
      CASE(an_abort_ends_a_call_that_cannot_go_on),
      CASE(an_abort_at_any_time_of_a_call_ends_it_and_lets_its_stream_go_on),
      CASE(operations_in_progress_when_a_communicator_is_destroyed_complete),
      CASE(a_rank_without_a_result_has_the_error_too),
      CASE(a_rank_is_known_to_have_left_before_its_memory_is_freed),
      CASE(a_process_ends_soon_without_destroying_anything),
      CASE(a_broken_device_is_reported_and_its_communicator_can_be_ended),
      CASE(a_device_that_breaks_at_any_call_is_reported_and_no_rank_hangs),
  };
  return RUN(cases);
}
