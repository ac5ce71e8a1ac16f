/*
 * An abort waits for no other work: neither for a stream of the program, nor for a call of another
 * thread, nor for a function of the program that an operation calls. Calls of other threads end
 * soon, too. Work that outlives the abort neither calls the driver nor keeps its objects.
 */
#include "processes.h"
#include "two_ranks.h"

enum {
  PIECES = (5 * 8 + 2) << 20, /* bytes, in several pieces */
  MESSAGE = 17 << 20,         /* bytes, more than fit pinned memory: the caller waits */
  SMALL = 1 << 20,
};

/* Much less than the time limits of devices and calls: an abort takes at most half a second. */
static const double ABORT_S = 2;

static void abort_soon(nexarComm_t comm) {
  double before = seconds_now();
  library_calls();
  CHECK_CODE(nexarSuccess, nexarCommAbort(comm));
  own_calls();
  CHECK_TIME(ABORT_S, END_GIVES_UP_S, seconds_now() - before);
}

/* A call in another thread, and its result. */
struct caller {
  pthread_t thread;
  nexarResult_t (*call)(void);
  nexarResult_t result;
  char text[300];
  double ended;
};

static void *call_in_thread(void *argument) {
  struct caller *caller = argument;
  own_calls();
  OK(cuCtxPushCurrent_v2(ranks[0].context));
  library_calls();
  caller->result = caller->call();
  snprintf(caller->text, sizeof caller->text, "%s", nexarGetLastError(NULL));
  own_calls();
  OK(cuCtxPopCurrent_v2(NULL));
  caller->ended = seconds_now();
  return NULL;
}

static void begin_call(struct caller *caller, nexarResult_t (*call)(void)) {
  *caller = (struct caller){.call = call};
  CHECK_EQ(0, pthread_create(&caller->thread, NULL, call_in_thread, caller));
}

/* The call ended soon after the abort, like a call on host memory. after: time of the abort. */
static void check_ended(struct caller *caller, double after) {
  CHECK_EQ(0, pthread_join(caller->thread, NULL));
  CHECK_TIME(ABORT_S, END_GIVES_UP_S, caller->ended - after);
  if (caller->result == nexarSuccess) return;
  CHECK_CODE(nexarInvalidUsage, caller->result);
  CHECK_TEXT(caller->text, "aborted");
}

/* Streams of the program. */

static void abort_beside_a_stream(void) {
  begin_pair(SMALL);
  for (int i = 0; i < 2; i++) CHECK_CODE(nexarSuccess, all_reduce(i));
  for (int i = 0; i < 2; i++) check_drained(&ranks[i]);
  uint64_t hold = fakecuda_hold(ranks[0].other);
  for (int i = 0; i < 2; i++) abort_soon(comms[i]);
  CHECK_EQ(1, fakecuda_pending(ranks[0].other));
  fakecuda_release(hold);
  end_pair_and_go_on();
}
static void an_abort_does_not_wait_for_a_stream_of_the_program(void) {
  in_a_process("", abort_beside_a_stream);
  in_a_process("HWQ=1", abort_beside_a_stream);
}

/* Calls of other threads. */

static nexarComm_t other_comms[2];

/* All-reduces of two communicators, on a stream each. The other rank calls neither. */
static nexarResult_t reduce_in_a_group(void) {
  const struct device_rank *self = &ranks[0];
  void *send = device_pointer(self->send), *recv = device_pointer(self->recv);
  size_t count = self->bytes / 4;
  CHECK_CODE(nexarSuccess, nexarGroupStart());
  CHECK_CODE(nexarSuccess, nexarAllReduce(send, send, count, nexarUint32, nexarSum, comms[0],
                                          self->stream));
  CHECK_CODE(nexarSuccess, nexarAllReduce(recv, recv, count, nexarUint32, nexarSum, other_comms[0],
                                          self->other));
  return nexarGroupEnd();
}

static bool is_full(CUstream stream) {
  return fakecuda_pending(stream) == atoi(getenv("FAKECUDA_QUEUE_DEPTH"));
}

/* Waits until the call has filled the queue of one of its streams and blocks in the driver. */
static void await_full_queue(void) {
  for (int full = 0; full < 50; usleep(100))
    full = is_full(ranks[0].stream) || is_full(ranks[0].other) ? full + 1 : 0;
}

static void abort_one_of_a_group(void) {
  struct caller caller;
  begin_pair(PIECES);
  library_calls();
  CHECK_CODE(nexarSuccess, nexarCommInitAll(other_comms, 2, NULL));
  own_calls();
  begin_call(&caller, reduce_in_a_group);
  await_full_queue();
  /* Either stream may be the full one: the abort of the first communicator waits for neither. */
  abort_soon(comms[0]);
  abort_soon(other_comms[0]);
  check_ended(&caller, seconds_now());
  check_drained(&ranks[0]);
  abort_soon(comms[1]);
  abort_soon(other_comms[1]);
  fakecuda_set("QUEUE_DEPTH", NULL);
  /* The result of an aborted call is undefined, and this call was in place: restores its input. */
  put_sent(0, view(ranks[0].send, ranks[0].bytes), ranks[0].bytes);
  end_pair_and_go_on();
}
static void an_abort_does_not_wait_for_a_group_whose_streams_are_full(void) {
  in_a_process("QUEUE_DEPTH=12", abort_one_of_a_group);
}

static nexarResult_t send_much(void) {
  return nexarSend(device_pointer(ranks[0].send), MESSAGE / 4, nexarUint32, 1, comms[0],
                   ranks[0].stream);
}

/* Waits until the call polls its stream. */
static void await_queries(void) {
  fakecuda_reset_calls();
  while (fakecuda_calls("cuStreamQuery") < 10) usleep(100);
}

static void abort_before_the_stream_reaches_the_call(void) {
  struct caller caller;
  begin_pair(MESSAGE);
  uint64_t hold = fakecuda_hold(ranks[0].stream);
  begin_call(&caller, send_much);
  await_queries();
  double before = seconds_now();
  abort_soon(comms[0]);
  check_ended(&caller, before);
  CHECK(caller.result != nexarSuccess);
  CHECK(fakecuda_pending(ranks[0].stream) > 0);
  fakecuda_release(hold);
  abort_soon(comms[1]);
  make_pair();
  for (int i = 0; i < 2; i++) end(i, nexarCommDestroy);
  CHECK_EQ(0, fakecuda_report_leaks());
}
static void an_abort_ends_a_call_that_waits_for_its_stream(void) {
  in_a_process("", abort_before_the_stream_reaches_the_call);
  in_a_process("NO_MEMOPS=1", abort_before_the_stream_reaches_the_call);
}

/* Host streams. */

static atomic_int inside;
static atomic_bool may_go;

/* An operator of the program that blocks until may_go. */
static void fold(const void *in, void *inout, size_t count, nexarDataType_t type, void *user) {
  (void)in, (void)inout, (void)count, (void)type, (void)user;
  atomic_fetch_add(&inside, 1);
  while (!may_go) usleep(100);
}

static void abort_under_a_host_stream(void) {
  static uint32_t data[2][16];
  nexarStream_t streams[2];
  begin_pair(SMALL);
  library_calls();
  for (int i = 0; i < 2; i++) {
    nexarRedOp_t op;
    CHECK_CODE(nexarSuccess, nexarStreamCreate(&streams[i]));
    CHECK_CODE(nexarSuccess, nexarRedOpCreate(&op, fold, NULL, 1, comms[i]));
    CHECK_CODE(nexarSuccess,
               nexarAllReduce(data[i], data[i], 16, nexarUint32, op, comms[i], streams[i]));
  }
  while (!inside) usleep(100);
  for (int i = 0; i < 2; i++) abort_soon(comms[i]);
  may_go = true;
  /* A host stream that was destroyed has dropped all its work. */
  library_calls();
  for (int i = 0; i < 2; i++) CHECK_CODE(nexarSuccess, nexarStreamDestroy(streams[i]));
  end_pair_and_go_on();
}
static void an_operation_on_a_host_stream_may_outlive_its_communicator_and_its_device(void) {
  in_a_process("", abort_under_a_host_stream);
}

int main(void) {
  static const struct test_case cases[] = {
      CASE(an_abort_does_not_wait_for_a_stream_of_the_program),
      CASE(an_abort_does_not_wait_for_a_group_whose_streams_are_full),
      CASE(an_abort_ends_a_call_that_waits_for_its_stream),
      CASE(an_operation_on_a_host_stream_may_outlive_its_communicator_and_its_device),
  };
  return RUN(cases);
}
