/* Communicators that are created in the background, and in groups. */
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

static nexarResult_t poll_until_created(nexarComm_t comm) {
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

/* The last rank joins after all others have seen nexarInProgress. */
static void create_and_poll(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  nexarUniqueId id = new_id(rank, comm);
  nexarConfig_t config = in_background(0);
  nexarComm_t created = NULL;
  int count = 77, data = 0;
  if (rank == n - 1) CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
  CHECK_CODE(nexarInProgress, nexarCommInitRankConfig(&created, n, id, rank, &config));
  CHECK(created != NULL);
  if (rank != n - 1) {
    CHECK_EQ(nexarInProgress, state_of(created));
    CHECK_CODE(nexarInvalidArgument, nexarCommCount(created, &count));
    CHECK_TEXT(nexarGetLastError(NULL), "nexarCommCount: comm is still being created");
    CHECK_CODE(nexarInvalidArgument, nexarBcast(&data, 1, nexarInt32, 0, created, NULL));
    CHECK_CODE(nexarInvalidArgument, nexarCommFinalize(created));
    CHECK_CODE(nexarInvalidArgument, nexarCommGetAsyncError(created, NULL));
    CHECK_TEXT(nexarGetLastError(created), "still being created");
    CHECK_EQ(77, count);
    CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
  }
  CHECK_EQ(nexarSuccess, poll_until_created(created));
  check_it_works(rank, n, created);
  CHECK_CODE(nexarSuccess, nexarCommCount(created, &count));
  CHECK_EQ(n, count);
  CHECK_CODE(nexarSuccess, nexarCommDestroy(created));
  CHECK_CODE(nexarInvalidArgument, nexarCommGetAsyncError(created, &(nexarResult_t){0}));
}
static void creation_is_in_progress_until_all_ranks_have_joined(void) {
  run_ranks(2, create_and_poll, NULL);
  run_ranks(3, create_and_poll, NULL);
  run_ranks(4, create_and_poll, NULL);
}

static void a_single_rank_is_created_in_the_background_too(void) {
  if (!can_share_memory()) return;
  nexarUniqueId id;
  nexarConfig_t config = in_background(0);
  nexarComm_t comm;
  CHECK_CODE(nexarSuccess, nexarGetUniqueId(&id));
  CHECK_CODE(nexarInProgress, nexarCommInitRankConfig(&comm, 1, id, 0, &config));
  CHECK_EQ(nexarSuccess, poll_until_created(comm));
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
    CHECK_EQ(nexarTimeout, poll_until_created(comm));
    CHECK_TEXT(nexarGetLastError(comm), "rank 1");
    CHECK_CODE(nexarTimeout, nexarBarrier(comm, NULL));
    CHECK_CODE(nexarSuccess, abort ? nexarCommAbort(comm) : nexarCommDestroy(comm));
  }
}

/* Rank 0 aborts; the other ranks get an error. */
static void abort_during_creation(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  nexarUniqueId id = new_id(rank, comm);
  nexarConfig_t config = in_background(0);
  nexarComm_t created = NULL;
  if (rank == n - 1) CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
  CHECK_CODE(nexarInProgress, nexarCommInitRankConfig(&created, n, id, rank, &config));
  if (rank == 0) CHECK_CODE(nexarSuccess, nexarCommAbort(created));
  if (rank != n - 1) CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
  if (rank != 0) {
    nexarResult_t state = poll_until_created(created);
    CHECK(state == nexarSuccess || state == nexarRemoteError);
    CHECK_CODE(nexarRemoteError, nexarBarrier(created, NULL));
    CHECK_TEXT(nexarGetLastError(created), "rank 0");
    CHECK_CODE(nexarSuccess, nexarCommDestroy(created));
  }
  check_it_works(rank, n, comm);
}
static void an_abort_during_creation_fails_the_communicator_on_the_other_ranks(void) {
  run_ranks(2, abort_during_creation, NULL);
  run_ranks(3, abort_during_creation, NULL);
}

/* Two communicators in an order that differs between ranks: without a group they would deadlock. */
static void create_in_a_group(int rank, int n, nexarComm_t comm, void *blocking) {
  nexarUniqueId ids[2] = {new_id(rank, comm), new_id(rank, comm)};
  nexarConfig_t config = NEXAR_CONFIG_INITIALIZER;
  nexarComm_t created[2] = {NULL, NULL};
  int count, data = 1;
  config.blocking = blocking != NULL;
  CHECK_CODE(nexarSuccess, nexarGroupStart());
  for (int i = 0; i < 2; i++) {
    int at = (i + rank) % 2;
    CHECK_CODE(nexarSuccess, nexarCommInitRankConfig(&created[at], n, ids[at], rank, &config));
    CHECK(created[at] != NULL);
    CHECK_CODE(nexarInvalidArgument, nexarCommCount(created[at], &count));
    CHECK_EQ(nexarInProgress, state_of(created[at]));
  }
  CHECK_CODE(nexarSuccess, nexarAllReduce(&data, &data, 1, nexarInt32, nexarSum, comm, NULL));
  CHECK_CODE(blocking ? nexarSuccess : nexarInProgress, nexarGroupEnd());
  CHECK_EQ(n, data);
  for (int i = 0; i < 2; i++) {
    if (!blocking) poll_until_created(created[i]);
    CHECK_EQ(nexarSuccess, state_of(created[i]));
    check_it_works(rank, n, created[i]);
    CHECK_CODE(nexarSuccess, nexarCommDestroy(created[i]));
  }
}
static void a_group_creates_its_communicators_all_at_once(void) {
  run_ranks(2, create_in_a_group, "blocking");
  run_ranks(3, create_in_a_group, "blocking");
  run_ranks(2, create_in_a_group, NULL);
  run_ranks(3, create_in_a_group, NULL);
}

/* All ranks of this process in one group, as in NCCL programs. */
static void one_thread_may_create_all_ranks_of_a_communicator(void) {
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

static void blocking_and_nonblocking_creation_cannot_share_a_group(void) {
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

static void a_communicator_whose_creation_never_began_can_be_destroyed(void) {
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

static void a_failure_in_a_group_is_the_result_of_the_group_and_of_the_handle(void) {
  if (!can_share_memory()) return;
  nexarUniqueId ids[2];
  nexarConfig_t config = NEXAR_CONFIG_INITIALIZER;
  nexarComm_t good, bad;
  config.initTimeoutMs = 2000; /* long enough for the one that can be created */
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

static void blocking_and_split_share_are_zero_or_one(void) {
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
    CASE(creation_is_in_progress_until_all_ranks_have_joined),
    CASE(a_single_rank_is_created_in_the_background_too),
    CASE(an_abort_does_not_wait),
    CASE(a_destroy_waits_no_longer_than_the_initialisation_may_take),
    CASE(a_failure_is_the_state_and_can_be_destroyed),
    CASE(an_abort_during_creation_fails_the_communicator_on_the_other_ranks),
    CASE(a_group_creates_its_communicators_all_at_once),
    CASE(one_thread_may_create_all_ranks_of_a_communicator),
    CASE(blocking_and_nonblocking_creation_cannot_share_a_group),
    CASE(a_communicator_whose_creation_never_began_can_be_destroyed),
    CASE(a_failure_in_a_group_is_the_result_of_the_group_and_of_the_handle),
    CASE(blocking_and_split_share_are_zero_or_one),
};

int main(void) { return RUN(cases); }
