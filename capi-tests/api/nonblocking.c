/* Communicators that are made in the background, and in groups. */
#include <sched.h>

#include "support/ranks.h"

static nexarConfig_t in_background(int timeout_ms) {
  nexarConfig_t config = NEXAR_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (timeout_ms) config.initTimeoutMs = timeout_ms;
  return config;
}

static nexarResult_t state_of(nexarComm_t comm) {
  nexarResult_t state = nexarInternalError;
  CHECK_CODE(nexarSuccess, nexarCommGetAsyncError(comm, &state));
  return state;
}

static nexarResult_t poll_until_made(nexarComm_t comm) {
  nexarResult_t state;
  while ((state = state_of(comm)) == nexarInProgress) sched_yield();
  return state;
}

static nexarUniqueId new_id(int rank, nexarComm_t comm) {
  nexarUniqueId id = {{0}};
  if (rank == 0) CHECK_CODE(nexarSuccess, nexarGetUniqueId(&id));
  CHECK_CODE(nexarSuccess, nexarBcast(&id, sizeof id, nexarInt8, 0, comm, NULL));
  return id;
}

/* The last rank comes when the first has seen that it is waited for. */
static void make_and_poll(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  nexarUniqueId id = new_id(rank, comm);
  nexarConfig_t config = in_background(0);
  nexarComm_t made = NULL;
  int count = 77, data = 0;
  if (rank == n - 1) CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
  CHECK_CODE(nexarInProgress, nexarCommInitRankConfig(&made, n, id, rank, &config));
  CHECK(made != NULL);
  if (rank != n - 1) {
    CHECK_EQ(nexarInProgress, state_of(made));
    CHECK_CODE(nexarInvalidArgument, nexarCommCount(made, &count));
    CHECK_TEXT(nexarGetLastError(NULL), "nexarCommCount: comm is still being made");
    CHECK_CODE(nexarInvalidArgument, nexarBcast(&data, 1, nexarInt32, 0, made, NULL));
    CHECK_CODE(nexarInvalidArgument, nexarCommFinalize(made));
    CHECK_CODE(nexarInvalidArgument, nexarCommGetAsyncError(made, NULL));
    CHECK_TEXT(nexarGetLastError(made), "still being made");
    CHECK_EQ(77, count);
    CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
  }
  CHECK_EQ(nexarSuccess, poll_until_made(made));
  check_it_works(rank, n, made);
  CHECK_CODE(nexarSuccess, nexarCommCount(made, &count));
  CHECK_EQ(n, count);
  CHECK_CODE(nexarSuccess, nexarCommDestroy(made));
  CHECK_CODE(nexarInvalidArgument, nexarCommGetAsyncError(made, &(nexarResult_t){0}));
}
static void it_is_in_progress_until_all_ranks_have_come(void) {
  run_ranks(2, make_and_poll, NULL);
  run_ranks(3, make_and_poll, NULL);
  run_ranks(4, make_and_poll, NULL);
}

static void a_rank_alone_is_made_in_the_background_too(void) {
  if (!can_share_memory()) return;
  nexarUniqueId id;
  nexarConfig_t config = in_background(0);
  nexarComm_t comm;
  CHECK_CODE(nexarSuccess, nexarGetUniqueId(&id));
  CHECK_CODE(nexarInProgress, nexarCommInitRankConfig(&comm, 1, id, 0, &config));
  CHECK_EQ(nexarSuccess, poll_until_made(comm));
  check_it_works(0, 1, comm);
  CHECK_CODE(nexarSuccess, nexarCommDestroy(comm));
}

/* One rank of two never comes. */
static nexarComm_t begin_in_vain(int timeout_ms) {
  nexarUniqueId id;
  nexarConfig_t config = in_background(timeout_ms);
  nexarComm_t comm = NULL;
  CHECK_CODE(nexarSuccess, nexarGetUniqueId(&id));
  CHECK_CODE(nexarInProgress, nexarCommInitRankConfig(&comm, 2, id, 0, &config));
  return comm;
}

static void an_abort_does_not_wait(void) {
  if (!can_share_memory()) return;
  nexarComm_t comm = begin_in_vain(0);
  CHECK_CODE(nexarSuccess, nexarCommAbort(comm));
  CHECK_CODE(nexarInvalidArgument, nexarCommAbort(comm));
}

static void a_destroy_waits_no_longer_than_the_initialisation_may_take(void) {
  if (!can_share_memory()) return;
  nexarComm_t comm = begin_in_vain(300);
  CHECK_CODE(nexarSuccess, nexarCommDestroy(comm));
  CHECK_CODE(nexarInvalidArgument, nexarCommDestroy(comm));
}

static void a_failure_is_the_state_and_can_be_destroyed(void) {
  if (!can_share_memory()) return;
  for (int abort = 0; abort < 2; abort++) {
    nexarComm_t comm = begin_in_vain(300);
    CHECK_EQ(nexarTimeout, poll_until_made(comm));
    CHECK_TEXT(nexarGetLastError(comm), "rank 1");
    CHECK_CODE(nexarTimeout, nexarBarrier(comm, NULL));
    CHECK_CODE(nexarSuccess, abort ? nexarCommAbort(comm) : nexarCommDestroy(comm));
  }
}

/* Whoever aborted it leaves; the others are told. */
static void abort_while_it_is_made(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  nexarUniqueId id = new_id(rank, comm);
  nexarConfig_t config = in_background(0);
  nexarComm_t made = NULL;
  if (rank == n - 1) CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
  CHECK_CODE(nexarInProgress, nexarCommInitRankConfig(&made, n, id, rank, &config));
  if (rank == 0) CHECK_CODE(nexarSuccess, nexarCommAbort(made));
  if (rank != n - 1) CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
  if (rank != 0) {
    nexarResult_t state = poll_until_made(made);
    CHECK(state == nexarSuccess || state == nexarRemoteError);
    CHECK_CODE(nexarRemoteError, nexarBarrier(made, NULL));
    CHECK_TEXT(nexarGetLastError(made), "rank 0");
    CHECK_CODE(nexarSuccess, nexarCommDestroy(made));
  }
  check_it_works(rank, n, comm);
}
static void an_aborted_one_fails_on_the_other_ranks_when_it_is_made(void) {
  run_ranks(2, abort_while_it_is_made, NULL);
  run_ranks(3, abort_while_it_is_made, NULL);
}

/* Two communicators, named in another order by each rank: one by one they would never be made. */
static void make_in_a_group(int rank, int n, nexarComm_t comm, void *blocking) {
  nexarUniqueId ids[2] = {new_id(rank, comm), new_id(rank, comm)};
  nexarConfig_t config = NEXAR_CONFIG_INITIALIZER;
  nexarComm_t made[2] = {NULL, NULL};
  int count, data = 1;
  config.blocking = blocking != NULL;
  CHECK_CODE(nexarSuccess, nexarGroupStart());
  for (int i = 0; i < 2; i++) {
    int at = (i + rank) % 2;
    CHECK_CODE(nexarSuccess, nexarCommInitRankConfig(&made[at], n, ids[at], rank, &config));
    CHECK(made[at] != NULL);
    CHECK_CODE(nexarInvalidArgument, nexarCommCount(made[at], &count));
    CHECK_EQ(nexarInProgress, state_of(made[at]));
  }
  CHECK_CODE(nexarSuccess, nexarAllReduce(&data, &data, 1, nexarInt32, nexarSum, comm, NULL));
  CHECK_CODE(blocking ? nexarSuccess : nexarInProgress, nexarGroupEnd());
  CHECK_EQ(n, data);
  for (int i = 0; i < 2; i++) {
    if (!blocking) poll_until_made(made[i]);
    CHECK_EQ(nexarSuccess, state_of(made[i]));
    check_it_works(rank, n, made[i]);
    CHECK_CODE(nexarSuccess, nexarCommDestroy(made[i]));
  }
}
static void a_group_makes_its_communicators_all_at_once(void) {
  run_ranks(2, make_in_a_group, "blocking");
  run_ranks(3, make_in_a_group, "blocking");
  run_ranks(2, make_in_a_group, NULL);
  run_ranks(3, make_in_a_group, NULL);
}

/* As NCCL's programs do it: all ranks of this process in one group. */
static void one_thread_may_make_all_ranks_of_a_communicator(void) {
  if (!can_share_memory()) return;
  enum { RANKS = 3 };
  nexarUniqueId id;
  nexarComm_t comms[RANKS];
  CHECK_CODE(nexarSuccess, nexarGetUniqueId(&id));
  CHECK_CODE(nexarSuccess, nexarGroupStart());
  for (int rank = 0; rank < RANKS; rank++)
    CHECK_CODE(nexarSuccess, nexarCommInitRank(&comms[rank], RANKS, id, rank));
  CHECK_CODE(nexarSuccess, nexarGroupEnd());
  run_threads(RANKS, comms, it_works, NULL);
  for (int rank = 0; rank < RANKS; rank++) CHECK_CODE(nexarSuccess, nexarCommDestroy(comms[rank]));
}

static void blocking_ones_and_others_are_not_made_in_one_group(void) {
  if (!can_share_memory()) return;
  nexarUniqueId id;
  nexarConfig_t config = in_background(0);
  nexarComm_t first = NULL, second = NULL;
  CHECK_CODE(nexarSuccess, nexarGetUniqueId(&id));
  CHECK_CODE(nexarSuccess, nexarGroupStart());
  CHECK_CODE(nexarSuccess, nexarCommInitRank(&first, 1, id, 0));
  CHECK_CODE(nexarInvalidArgument, nexarCommInitRankConfig(&second, 1, id, 0, &config));
  CHECK(second == NULL);
  CHECK_CODE(nexarInvalidArgument, nexarGroupEnd());
  CHECK_EQ(nexarInvalidArgument, state_of(first));
  CHECK_TEXT(nexarGetLastError(first), "the group was dropped");
  CHECK_CODE(nexarInvalidArgument, nexarBarrier(first, NULL));
  CHECK_CODE(nexarSuccess, nexarCommDestroy(first));
}

static void *begin_and_leave(void *comm) {
  nexarUniqueId id;
  CHECK_CODE(nexarSuccess, nexarGetUniqueId(&id));
  CHECK_CODE(nexarSuccess, nexarGroupStart());
  CHECK_CODE(nexarSuccess, nexarCommInitRank(comm, 1, id, 0));
  return NULL;
}

static void one_that_was_never_begun_can_be_ended(void) {
  if (!can_share_memory()) return;
  nexarUniqueId id;
  nexarComm_t comms[3];
  pthread_t thread;
  CHECK_EQ(0, pthread_create(&thread, NULL, begin_and_leave, &comms[0]));
  CHECK_EQ(0, pthread_join(thread, NULL));
  CHECK_EQ(nexarInvalidUsage, state_of(comms[0]));
  CHECK_CODE(nexarSuccess, nexarCommDestroy(comms[0]));
  CHECK_CODE(nexarSuccess, nexarGetUniqueId(&id));
  CHECK_CODE(nexarSuccess, nexarGroupStart());
  for (int i = 1; i < 3; i++) CHECK_CODE(nexarSuccess, nexarCommInitRank(&comms[i], 2, id, i - 1));
  CHECK_CODE(nexarSuccess, nexarCommDestroy(comms[1]));
  CHECK_CODE(nexarSuccess, nexarCommAbort(comms[2]));
  nexarGroupEnd();
}

static void a_failure_in_a_group_is_its_result_and_that_of_the_handle(void) {
  if (!can_share_memory()) return;
  nexarUniqueId ids[2];
  nexarConfig_t config = NEXAR_CONFIG_INITIALIZER;
  nexarComm_t good, bad;
  config.initTimeoutMs = 2000; /* long enough for the one that can be made */
  for (int i = 0; i < 2; i++) CHECK_CODE(nexarSuccess, nexarGetUniqueId(&ids[i]));
  CHECK_CODE(nexarSuccess, nexarGroupStart());
  CHECK_CODE(nexarSuccess, nexarCommInitRankConfig(&bad, 2, ids[0], 0, &config));
  CHECK_CODE(nexarSuccess, nexarCommInitRankConfig(&good, 1, ids[1], 0, &config));
  CHECK_CODE(nexarTimeout, nexarGroupEnd());
  CHECK_EQ(nexarTimeout, state_of(bad));
  CHECK_EQ(nexarSuccess, state_of(good));
  check_it_works(0, 1, good);
  CHECK_CODE(nexarSuccess, nexarCommDestroy(good));
  CHECK_CODE(nexarSuccess, nexarCommDestroy(bad));
}

static void the_fields_that_say_how_are_zero_or_one(void) {
  if (!can_share_memory()) return;
  nexarUniqueId id;
  nexarComm_t comm = NULL;
  CHECK_CODE(nexarSuccess, nexarGetUniqueId(&id));
  for (int value = -1; value <= 2; value++) {
    nexarConfig_t config = NEXAR_CONFIG_INITIALIZER;
    config.splitShare = value;
    if (value == 0 || value == 1) continue;
    CHECK_CODE(nexarInvalidArgument, nexarCommInitRankConfig(&comm, 1, id, 0, &config));
    CHECK_TEXT(nexarGetLastError(NULL), "splitShare");
    config.splitShare = 1;
    config.blocking = value;
    CHECK_CODE(nexarInvalidArgument, nexarCommInitRankConfig(&comm, 1, id, 0, &config));
    CHECK_TEXT(nexarGetLastError(NULL), "blocking");
  }
  nexarConfig_t config = NEXAR_CONFIG_INITIALIZER;
  config.splitShare = 1;
  CHECK_CODE(nexarSuccess, nexarCommInitRankConfig(&comm, 1, id, 0, &config));
  CHECK_CODE(nexarSuccess, nexarCommDestroy(comm));
}

static const struct test_case cases[] = {
    CASE(it_is_in_progress_until_all_ranks_have_come),
    CASE(a_rank_alone_is_made_in_the_background_too),
    CASE(an_abort_does_not_wait),
    CASE(a_destroy_waits_no_longer_than_the_initialisation_may_take),
    CASE(a_failure_is_the_state_and_can_be_destroyed),
    CASE(an_aborted_one_fails_on_the_other_ranks_when_it_is_made),
    CASE(a_group_makes_its_communicators_all_at_once),
    CASE(one_thread_may_make_all_ranks_of_a_communicator),
    CASE(blocking_ones_and_others_are_not_made_in_one_group),
    CASE(one_that_was_never_begun_can_be_ended),
    CASE(a_failure_in_a_group_is_its_result_and_that_of_the_handle),
    CASE(the_fields_that_say_how_are_zero_or_one),
};

int main(void) { return RUN(cases); }
