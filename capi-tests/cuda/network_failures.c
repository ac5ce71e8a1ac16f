/*
 * The network fails while CUDA streams are inside a call: a rank dies, aborts, makes a different
 * call or none. The streams of the other ranks continue, with 0xFF in place of data that did not
 * arrive, and the communicator reports the error from then on. With NEXAR_CUDA_ON_ERROR=hold the
 * streams wait until the program aborts or destroys the communicator.
 *
 * Run with NEXAR_SHM_DISABLE=1 too.
 */
#include "peers.h"

enum {
  LARGE = (5 * 8 + 2) << 20, /* bytes, in several pieces */
  COUNT = LARGE / 4,
  VICTIM = 2,
  SPOILT = 0xFF,
  CALL_MS = 3000, /* timeout of a call: longer than a call takes that completes */
};

/* The steps of arrive and await_all. */
enum { HAS_CALLED, HAS_ENDED, MAY_GO };

static uint32_t sum_of(int n, size_t i) {
  uint32_t sum = 0;
  for (int rank = 0; rank < n; rank++) sum += sent(rank, i);
  return sum;
}

static nexarResult_t all_reduce(const struct device_rank *self, size_t count) {
  library_calls();
  nexarResult_t result = nexarAllReduce(device_pointer(self->send), device_pointer(self->recv),
                                        count, nexarUint32, nexarSum, self->comm, self->stream);
  own_calls();
  return result;
}

static struct device_rank begin_peer(int rank, int n, const nexarConfig_t *config) {
  struct device_rank self = take_device(rank, n, 0, LARGE);
  library_calls();
  self.comm = join_peers(rank, n, 0, config);
  own_calls();
  check_it_works_on(&self, self.stream);
  return self;
}

/* The number of right elements at the beginning of the result. The rest is filled with `byte`. */
static size_t right_elements(const struct device_rank *self, int byte) {
  const uint32_t *result = view(self->recv, LARGE);
  size_t right = 0, filled = 0;
  uint32_t filler = (uint32_t)byte * 0x01010101u;
  while (right < COUNT && result[right] == sum_of(self->n, right)) right++;
  while (right + filled < COUNT && result[right + filled] == filler) filled++;
  CHECK_EQ(COUNT, right + filled);
  return right;
}

/* The communicator has failed because of `culprit`, and every call reports that. */
static void check_failed_because_of(struct device_rank *self, int culprit, nexarResult_t code) {
  char name[20];
  snprintf(name, sizeof name, "rank %d", culprit);
  CHECK_CODE(code, async_error(self->comm));
  CHECK_TEXT(nexarGetLastError(self->comm), name);
  CHECK_CODE(code, all_reduce(self, COUNT));
  CHECK_TEXT(nexarGetLastError(self->comm), name);
  check_drained(self);
}

/* The device still works: the first n ranks create another communicator. */
static void begin_anew(struct device_rank *self, int n) {
  self->n = n;
  library_calls();
  self->comm = join_peers(self->rank, n, 1, NULL);
  own_calls();
  check_it_works_on(self, self->stream);
  library_calls();
  CHECK_CODE(nexarSuccess, nexarCommDestroy(self->comm));
  own_calls();
  CHECK_EQ(0, fakecuda_live(FAKECUDA_PINNED_MEMORY));
  CHECK_EQ(0, fakecuda_live(FAKECUDA_EVENT));
  give_back_device(self);
}

static void leave(struct device_rank *self, bool destroys) {
  library_calls();
  if (destroys) CHECK_CODE(nexarSuccess, nexarCommDestroy(self->comm));
  else CHECK_CODE(nexarSuccess, nexarCommAbort(self->comm));
  own_calls();
}

/* The victim's copies are slow: it is killed after the first of several pieces has completed. */
static struct device_rank call_and_kill(int rank, int n) {
  struct device_rank self = begin_peer(rank, n, NULL);
  if (rank == VICTIM) fakecuda_set("COPY_MBPS", "40");
  await_all(HAS_CALLED, n);
  CHECK_CODE(nexarSuccess, all_reduce(&self, COUNT));
  if (rank == VICTIM) AWAIT(false); /* until the kill */
  if (rank == 0) {
    const volatile uint32_t *result = view(self.recv, LARGE);
    AWAIT(result[0] == sum_of(n, 0));
    kill_peer(VICTIM);
  }
  return self;
}

static void survive(int rank, int n) {
  struct device_rank self = call_and_kill(rank, n);
  OK(cuStreamSynchronize(self.stream));
  /* The error is visible when the stream is done, so the buffer is not taken for a result. */
  CHECK_CODE(nexarRemoteError, async_error(self.comm));
  size_t right = right_elements(&self, SPOILT);
  CHECK(right > 0 && right < COUNT);
  check_failed_because_of(&self, VICTIM, nexarRemoteError);
  leave(&self, rank == 0);
  begin_anew(&self, n - 1);
}
static void a_rank_that_is_killed_lets_the_streams_of_others_go_on_with_no_result(void) {
  run_peers(3, VICTIM, "", survive);
  run_peers(3, VICTIM, "HWQ=1 LATENCY_US=0-200", survive);
}

static bool destroys_held;
static void survive_and_hold(int rank, int n) {
  setenv("NEXAR_CUDA_ON_ERROR", "hold", 1);
  struct device_rank self = call_and_kill(rank, n);
  AWAIT(async_error(self.comm) != nexarSuccess);
  CHECK_CODE(nexarRemoteError, async_error(self.comm));
  check_stays_busy(self.stream);
  size_t right = right_elements(&self, UNTOUCHED);
  CHECK(right > 0 && right < COUNT);
  CHECK_CODE(nexarRemoteError, all_reduce(&self, COUNT));
  check_stays_busy(self.stream);
  leave(&self, destroys_held);
  check_drained(&self);
  begin_anew(&self, n - 1);
}
static void a_stream_may_be_held_until_the_failed_communicator_is_aborted(void) {
  destroys_held = false;
  run_peers(3, VICTIM, "", survive_and_hold);
}
static void a_stream_may_be_held_until_the_failed_communicator_is_destroyed(void) {
  destroys_held = true;
  run_peers(3, VICTIM, "", survive_and_hold);
}

/* The last rank never calls, and aborts while the others wait. */
static void wait_for_one_that_aborts(int rank, int n) {
  struct device_rank self = begin_peer(rank, n, NULL);
  if (rank == VICTIM) {
    AWAIT(shared->steps[HAS_CALLED] == n - 1);
    leave(&self, false);
    await_all(HAS_ENDED, n);
    return;
  }
  CHECK_CODE(nexarSuccess, all_reduce(&self, COUNT));
  check_stays_busy(self.stream);
  arrive(HAS_CALLED);
  OK(cuStreamSynchronize(self.stream));
  CHECK_CODE(nexarRemoteError, async_error(self.comm));
  CHECK_EQ(0, right_elements(&self, SPOILT));
  check_failed_because_of(&self, VICTIM, nexarRemoteError);
  leave(&self, true);
  await_all(HAS_ENDED, n);
  begin_anew(&self, n - 1);
}
static void a_rank_that_aborts_lets_the_streams_of_others_go_on_with_no_result(void) {
  run_peers(3, NO_VICTIM, "", wait_for_one_that_aborts);
}

static void disagree(int rank, int n) {
  struct device_rank self = begin_peer(rank, n, NULL);
  size_t count = rank == VICTIM ? COUNT - 1 : COUNT;
  nexarResult_t result = all_reduce(&self, count);
  OK(cuStreamSynchronize(self.stream));
  /* A rank that learns of the disagreement in its call has enqueued nothing. */
  CHECK_CODE(nexarInvalidUsage, async_error(self.comm));
  if (result != nexarSuccess) CHECK_CODE(nexarInvalidUsage, result);
  const uint32_t *seen = view(self.recv, LARGE);
  if (result == nexarSuccess) CHECK_EQ(0xFFFFFFFF, seen[0]);
  char ours[40], theirs[40];
  snprintf(ours, sizeof ours, "AllReduce(%d x uint32", COUNT);
  snprintf(theirs, sizeof theirs, "AllReduce(%d x uint32", COUNT - 1);
  CHECK_TEXT(nexarGetLastError(self.comm), ours);
  CHECK_TEXT(nexarGetLastError(self.comm), theirs);
  CHECK_CODE(nexarInvalidUsage, all_reduce(&self, count));
  await_all(HAS_ENDED, n);
  leave(&self, true);
  begin_anew(&self, n);
}
static void ranks_that_disagree_get_the_error_and_their_streams_go_on_with_no_result(void) {
  run_peers(3, NO_VICTIM, "", disagree);
}

/* The same for calls of one piece, and for messages. */
static void lose_small_ones(int rank, int n) {
  enum { FEW = 1000 };
  struct device_rank self = begin_peer(rank, n, NULL);
  char *send = device_pointer(self.send), *recv = device_pointer(self.recv);
  if (rank == VICTIM) {
    AWAIT(shared->steps[HAS_CALLED] == n - 1);
    raise(SIGKILL);
  }
  library_calls();
  nexarComm_t comm = self.comm;
  CHECK_CODE(nexarSuccess, nexarAllGather(send, recv, FEW, nexarUint32, comm, self.stream));
  CHECK_CODE(nexarSuccess, nexarRecv(recv + 40000, FEW, nexarUint32, VICTIM, comm, self.stream));
  own_calls();
  arrive(HAS_CALLED);
  OK(cuStreamSynchronize(self.stream));
  CHECK_CODE(nexarRemoteError, async_error(comm));
  const unsigned char *seen = view(self.recv, LARGE);
  size_t wrong = 0;
  for (size_t i = 0; i < FEW * 4; i++) wrong += seen[40000 + i] != SPOILT;
  for (size_t i = 0; i < 3 * FEW * 4; i++) wrong += seen[i] != SPOILT;
  CHECK_EQ(0, wrong);
  CHECK_EQ(UNTOUCHED, seen[39999]);
  CHECK_EQ(UNTOUCHED, seen[40000 + FEW * 4]);
  check_failed_because_of(&self, VICTIM, nexarRemoteError);
  leave(&self, false);
  begin_anew(&self, n - 1);
}
static void a_small_call_and_a_message_that_fail_have_no_result_and_spoil_nothing_else(void) {
  run_peers(3, VICTIM, "", lose_small_ones);
}

static void wait_too_long(int rank, int n) {
  nexarConfig_t config = NEXAR_CONFIG_INITIALIZER;
  config.opTimeoutMs = CALL_MS;
  struct device_rank self = begin_peer(rank, n, &config);
  if (rank == 1) {
    AWAIT(shared->steps[HAS_ENDED] == 1);
    leave(&self, true);
    return;
  }
  CHECK_CODE(nexarSuccess, all_reduce(&self, COUNT));
  check_stays_busy(self.stream);
  OK(cuStreamSynchronize(self.stream));
  CHECK_CODE(nexarTimeout, async_error(self.comm));
  CHECK_EQ(0, right_elements(&self, SPOILT));
  check_failed_because_of(&self, 1, nexarTimeout);
  leave(&self, true);
  arrive(HAS_ENDED);
}
static void a_rank_that_never_calls_is_waited_for_no_longer_than_a_call_may_take(void) {
  run_peers(2, NO_VICTIM, "", wait_too_long);
}

/* On one rank the program's own work delays the call beyond its timeout: the call fails on both
   ranks, and the stream that reaches it later continues without a result. */
static void reach_late(int rank, int n) {
  nexarConfig_t config = NEXAR_CONFIG_INITIALIZER;
  config.opTimeoutMs = CALL_MS;
  struct device_rank self = begin_peer(rank, n, &config);
  uint64_t hold = rank == 1 ? fakecuda_hold(self.stream) : 0;
  CHECK_CODE(nexarSuccess, all_reduce(&self, COUNT));
  if (rank == 0) {
    OK(cuStreamSynchronize(self.stream));
    CHECK_CODE(nexarTimeout, async_error(self.comm));
    arrive(MAY_GO);
  } else {
    AWAIT(shared->steps[MAY_GO] == 1);
    check_stays_busy(self.stream);
    fakecuda_release(hold);
    OK(cuStreamSynchronize(self.stream));
    CHECK(async_error(self.comm) != nexarSuccess);
  }
  CHECK_EQ(0, right_elements(&self, SPOILT));
  await_all(HAS_ENDED, n);
  leave(&self, true);
}
static void a_stream_that_reaches_a_failed_call_goes_on_with_no_result(void) {
  run_peers(2, NO_VICTIM, "", reach_late);
}

int main(void) {
  static const struct test_case cases[] = {
      CASE(a_rank_that_is_killed_lets_the_streams_of_others_go_on_with_no_result),
      CASE(a_stream_may_be_held_until_the_failed_communicator_is_aborted),
      CASE(a_stream_may_be_held_until_the_failed_communicator_is_destroyed),
      CASE(a_rank_that_aborts_lets_the_streams_of_others_go_on_with_no_result),
      CASE(ranks_that_disagree_get_the_error_and_their_streams_go_on_with_no_result),
      CASE(a_small_call_and_a_message_that_fail_have_no_result_and_spoil_nothing_else),
      CASE(a_rank_that_never_calls_is_waited_for_no_longer_than_a_call_may_take),
      CASE(a_stream_that_reaches_a_failed_call_goes_on_with_no_result),
  };
  return RUN(cases);
}
