/*
 * The network fails while CUDA streams are inside a call: a rank dies, aborts, calls something else
 * or never comes. The streams of the others go on by themselves, with 0xFF in place of what did not
 * arrive, and from then on the error is there; or, if that is wanted, they are held until somebody
 * who knows of the error lets them go.
 *
 * Run with NEXAR_SHM_DISABLE=1 too.
 */
#include "peers.h"

enum {
  LARGE = (5 * 8 + 2) << 20, /* bytes, in several pieces */
  COUNT = LARGE / 4,
  VICTIM = 2,
  SPOILT = 0xFF,
  CALL_MS = 3000, /* long enough for a call that does get its answer */
};

/* Steps. */
enum { HAS_CALLED, HAS_ENDED, MAY_GO };

static uint32_t sum_of(int n, size_t i) {
  uint32_t sum = 0;
  for (int rank = 0; rank < n; rank++) sum += sent(rank, i);
  return sum;
}

static nexarResult_t all_reduce(const struct side *side, size_t count) {
  library_calls();
  nexarResult_t result = nexarAllReduce(device_pointer(side->send), device_pointer(side->recv),
                                        count, nexarUint32, nexarSum, side->comm, side->stream);
  own_calls();
  return result;
}

static struct side begin_peer(int rank, int n, const nexarConfig_t *config) {
  struct side side = take_device(rank, n, 0, LARGE);
  library_calls();
  side.comm = join_peers(rank, n, 0, config);
  own_calls();
  check_it_works_on(&side, side.stream);
  return side;
}

/* How much of the result is right; what follows is all of one byte. */
static size_t right_elements(const struct side *side, int byte) {
  const uint32_t *result = view(side->recv, LARGE);
  size_t right = 0, filled = 0;
  uint32_t filler = (uint32_t)byte * 0x01010101u;
  while (right < COUNT && result[right] == sum_of(side->n, right)) right++;
  while (right + filled < COUNT && result[right + filled] == filler) filled++;
  CHECK_EQ(COUNT, right + filled);
  return right;
}

/* The communicator has failed, and says so from now on: because of this rank. */
static void check_failed_because_of(struct side *side, int culprit, nexarResult_t code) {
  char name[20];
  snprintf(name, sizeof name, "rank %d", culprit);
  CHECK_CODE(code, async_error(side->comm));
  CHECK_TEXT(nexarGetLastError(side->comm), name);
  CHECK_CODE(code, all_reduce(side, COUNT));
  CHECK_TEXT(nexarGetLastError(side->comm), name);
  check_drained(side);
}

/* With it the device works on: the first ranks make another communicator. */
static void begin_anew(struct side *side, int n) {
  side->n = n;
  library_calls();
  side->comm = join_peers(side->rank, n, 1, NULL);
  own_calls();
  check_it_works_on(side, side->stream);
  library_calls();
  CHECK_CODE(nexarSuccess, nexarCommDestroy(side->comm));
  own_calls();
  CHECK_EQ(0, fakecuda_live(FAKECUDA_PINNED_MEMORY));
  CHECK_EQ(0, fakecuda_live(FAKECUDA_EVENT));
  give_back_device(side);
}

static void leave(struct side *side, bool destroys) {
  library_calls();
  if (destroys) CHECK_CODE(nexarSuccess, nexarCommDestroy(side->comm));
  else CHECK_CODE(nexarSuccess, nexarCommAbort(side->comm));
  own_calls();
}

/* The victim's copies are slow: it is killed when the first of several pieces has been made. */
static struct side call_and_kill(int rank, int n) {
  struct side side = begin_peer(rank, n, NULL);
  if (rank == VICTIM) fakecuda_set("COPY_MBPS", "40");
  await_all(HAS_CALLED, n);
  CHECK_CODE(nexarSuccess, all_reduce(&side, COUNT));
  if (rank == VICTIM) AWAIT(false); /* until the kill */
  if (rank == 0) {
    const volatile uint32_t *result = view(side.recv, LARGE);
    AWAIT(result[0] == sum_of(n, 0));
    kill_peer(VICTIM);
  }
  return side;
}

static void survive(int rank, int n) {
  struct side side = call_and_kill(rank, n);
  OK(cuStreamSynchronize(side.stream));
  /* At once: nobody takes what is there for a result. */
  CHECK_CODE(nexarRemoteError, async_error(side.comm));
  size_t right = right_elements(&side, SPOILT);
  CHECK(right > 0 && right < COUNT);
  check_failed_because_of(&side, VICTIM, nexarRemoteError);
  leave(&side, rank == 0);
  begin_anew(&side, n - 1);
}
static void a_rank_that_is_killed_lets_the_streams_of_others_go_on_with_no_result(void) {
  run_peers(3, VICTIM, "", survive);
  run_peers(3, VICTIM, "HWQ=1 LATENCY_US=0-200", survive);
}

static bool destroys_held;
static void survive_and_hold(int rank, int n) {
  setenv("NEXAR_CUDA_ON_ERROR", "hold", 1);
  struct side side = call_and_kill(rank, n);
  AWAIT(async_error(side.comm) != nexarSuccess);
  CHECK_CODE(nexarRemoteError, async_error(side.comm));
  check_stays_busy(side.stream);
  size_t right = right_elements(&side, UNTOUCHED);
  CHECK(right > 0 && right < COUNT);
  CHECK_CODE(nexarRemoteError, all_reduce(&side, COUNT));
  check_stays_busy(side.stream);
  leave(&side, destroys_held);
  check_drained(&side);
  begin_anew(&side, n - 1);
}
static void a_stream_may_be_held_until_the_failed_communicator_is_aborted(void) {
  destroys_held = false;
  run_peers(3, VICTIM, "", survive_and_hold);
}
static void a_stream_may_be_held_until_the_failed_communicator_is_destroyed(void) {
  destroys_held = true;
  run_peers(3, VICTIM, "", survive_and_hold);
}

/* The last rank never calls, and aborts when the others wait. */
static void wait_for_one_that_aborts(int rank, int n) {
  struct side side = begin_peer(rank, n, NULL);
  if (rank == VICTIM) {
    AWAIT(shared->steps[HAS_CALLED] == n - 1);
    leave(&side, false);
    await_all(HAS_ENDED, n);
    return;
  }
  CHECK_CODE(nexarSuccess, all_reduce(&side, COUNT));
  check_stays_busy(side.stream);
  come(HAS_CALLED);
  OK(cuStreamSynchronize(side.stream));
  CHECK_CODE(nexarRemoteError, async_error(side.comm));
  CHECK_EQ(0, right_elements(&side, SPOILT));
  check_failed_because_of(&side, VICTIM, nexarRemoteError);
  leave(&side, true);
  await_all(HAS_ENDED, n);
  begin_anew(&side, n - 1);
}
static void a_rank_that_aborts_lets_the_streams_of_others_go_on_with_no_result(void) {
  run_peers(3, NOBODY, "", wait_for_one_that_aborts);
}

static void disagree(int rank, int n) {
  struct side side = begin_peer(rank, n, NULL);
  size_t count = rank == VICTIM ? COUNT - 1 : COUNT;
  nexarResult_t result = all_reduce(&side, count);
  OK(cuStreamSynchronize(side.stream));
  /* Whoever is told early has enqueued nothing. */
  CHECK_CODE(nexarInvalidUsage, async_error(side.comm));
  if (result != nexarSuccess) CHECK_CODE(nexarInvalidUsage, result);
  const uint32_t *seen = view(side.recv, LARGE);
  if (result == nexarSuccess) CHECK_EQ(0xFFFFFFFF, seen[0]);
  char ours[40], theirs[40];
  snprintf(ours, sizeof ours, "AllReduce(%d x uint32", COUNT);
  snprintf(theirs, sizeof theirs, "AllReduce(%d x uint32", COUNT - 1);
  CHECK_TEXT(nexarGetLastError(side.comm), ours);
  CHECK_TEXT(nexarGetLastError(side.comm), theirs);
  CHECK_CODE(nexarInvalidUsage, all_reduce(&side, count));
  await_all(HAS_ENDED, n);
  leave(&side, true);
  begin_anew(&side, n);
}
static void ranks_that_disagree_are_told_so_and_their_streams_go_on_with_no_result(void) {
  run_peers(3, NOBODY, "", disagree);
}

/* The same of calls that are in one piece, and of messages. */
static void lose_small_ones(int rank, int n) {
  enum { FEW = 1000 };
  struct side side = begin_peer(rank, n, NULL);
  char *send = device_pointer(side.send), *recv = device_pointer(side.recv);
  if (rank == VICTIM) {
    AWAIT(shared->steps[HAS_CALLED] == n - 1);
    raise(SIGKILL);
  }
  library_calls();
  nexarComm_t comm = side.comm;
  CHECK_CODE(nexarSuccess, nexarAllGather(send, recv, FEW, nexarUint32, comm, side.stream));
  CHECK_CODE(nexarSuccess, nexarRecv(recv + 40000, FEW, nexarUint32, VICTIM, comm, side.stream));
  own_calls();
  come(HAS_CALLED);
  OK(cuStreamSynchronize(side.stream));
  CHECK_CODE(nexarRemoteError, async_error(comm));
  const unsigned char *seen = view(side.recv, LARGE);
  size_t wrong = 0;
  for (size_t i = 0; i < FEW * 4; i++) wrong += seen[40000 + i] != SPOILT;
  for (size_t i = 0; i < 3 * FEW * 4; i++) wrong += seen[i] != SPOILT;
  CHECK_EQ(0, wrong);
  CHECK_EQ(UNTOUCHED, seen[39999]);
  CHECK_EQ(UNTOUCHED, seen[40000 + FEW * 4]);
  check_failed_because_of(&side, VICTIM, nexarRemoteError);
  leave(&side, false);
  begin_anew(&side, n - 1);
}
static void a_small_call_and_a_message_that_fail_have_no_result_and_spoil_nothing_else(void) {
  run_peers(3, VICTIM, "", lose_small_ones);
}

static void wait_too_long(int rank, int n) {
  nexarConfig_t config = NEXAR_CONFIG_INITIALIZER;
  config.opTimeoutMs = CALL_MS;
  struct side side = begin_peer(rank, n, &config);
  if (rank == 1) {
    AWAIT(shared->steps[HAS_ENDED] == 1);
    leave(&side, true);
    return;
  }
  CHECK_CODE(nexarSuccess, all_reduce(&side, COUNT));
  check_stays_busy(side.stream);
  OK(cuStreamSynchronize(side.stream));
  CHECK_CODE(nexarTimeout, async_error(side.comm));
  CHECK_EQ(0, right_elements(&side, SPOILT));
  check_failed_because_of(&side, 1, nexarTimeout);
  leave(&side, true);
  come(HAS_ENDED);
}
static void a_rank_that_never_comes_is_waited_for_no_longer_than_a_call_may_take(void) {
  run_peers(2, NOBODY, "", wait_too_long);
}

/* The program's own work stands before the call of one rank for longer than a call may take: the
   call is late on both, and the stream that comes to it then finds it failed. */
static void come_late(int rank, int n) {
  nexarConfig_t config = NEXAR_CONFIG_INITIALIZER;
  config.opTimeoutMs = CALL_MS;
  struct side side = begin_peer(rank, n, &config);
  uint64_t hold = rank == 1 ? fakecuda_hold(side.stream) : 0;
  CHECK_CODE(nexarSuccess, all_reduce(&side, COUNT));
  if (rank == 0) {
    OK(cuStreamSynchronize(side.stream));
    CHECK_CODE(nexarTimeout, async_error(side.comm));
    come(MAY_GO);
  } else {
    AWAIT(shared->steps[MAY_GO] == 1);
    check_stays_busy(side.stream);
    fakecuda_release(hold);
    OK(cuStreamSynchronize(side.stream));
    CHECK(async_error(side.comm) != nexarSuccess);
  }
  CHECK_EQ(0, right_elements(&side, SPOILT));
  await_all(HAS_ENDED, n);
  leave(&side, true);
}
static void a_stream_that_comes_after_the_call_has_failed_goes_on_with_no_result(void) {
  run_peers(2, NOBODY, "", come_late);
}

int main(void) {
  static const struct test_case cases[] = {
      CASE(a_rank_that_is_killed_lets_the_streams_of_others_go_on_with_no_result),
      CASE(a_stream_may_be_held_until_the_failed_communicator_is_aborted),
      CASE(a_stream_may_be_held_until_the_failed_communicator_is_destroyed),
      CASE(a_rank_that_aborts_lets_the_streams_of_others_go_on_with_no_result),
      CASE(ranks_that_disagree_are_told_so_and_their_streams_go_on_with_no_result),
      CASE(a_small_call_and_a_message_that_fail_have_no_result_and_spoil_nothing_else),
      CASE(a_rank_that_never_comes_is_waited_for_no_longer_than_a_call_may_take),
      CASE(a_stream_that_comes_after_the_call_has_failed_goes_on_with_no_result),
  };
  return RUN(cases);
}
