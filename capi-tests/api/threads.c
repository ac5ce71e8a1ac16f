/* Any thread may make any call: many threads on one communicator, many communicators at once. */
#define _GNU_SOURCE
#include "support/ranks.h"

enum { THREADS = 4, CALLS = 300, COMMUNICATORS = 8, RANKS = 4 };

struct shared {
  nexarComm_t comms[RANKS];
  int ranks;
};

/* Thread t of the process is thread t / ranks of rank t % ranks. All make the same calls. */
static void use_a_shared_communicator(int thread, int threads, nexarComm_t none, void *arg) {
  (void)threads, (void)none;
  struct shared *shared = arg;
  int n = shared->ranks, rank = thread % n;
  nexarComm_t comm = shared->comms[rank];
  for (int i = 0; i < CALLS; i++) check_it_works(rank, n, comm);
}

static void threads_share_a_communicator(int ranks) {
  struct shared shared = {.ranks = ranks};
  CHECK_CODE(nexarSuccess, nexarCommInitAll(shared.comms, ranks, NULL));
  run_threads(ranks * THREADS, NULL, use_a_shared_communicator, &shared);
  for (int i = 0; i < ranks; i++) CHECK_CODE(nexarSuccess, nexarCommDestroy(shared.comms[i]));
}

static void several_threads_may_use_a_rank_that_is_alone(void) { threads_share_a_communicator(1); }

static void several_threads_may_use_each_of_several_ranks(void) {
  threads_share_a_communicator(2);
  threads_share_a_communicator(3);
}

/* Every communicator, rank and call has other data, so that mixed-up messages are found. */
static void compute(int rank, int n, nexarComm_t comm, void *arg) {
  int world = *(int *)arg;
  for (int i = 0; i < CALLS; i++) {
    int64_t mine[2] = {1000000LL * world + 1000 * i, rank}, sum[2], all[2 * RANKS];
    CHECK_CODE(nexarSuccess, nexarAllReduce(mine, sum, 2, nexarInt64, nexarSum, comm, NULL));
    CHECK_CODE(nexarSuccess, nexarAllGather(mine, all, 2, nexarInt64, comm, NULL));
    CHECK_EQ(n * mine[0], sum[0]);
    CHECK_EQ(n * (n - 1) / 2, sum[1]);
    for (int r = 0; r < n; r++) CHECK(all[2 * r] == mine[0] && all[2 * r + 1] == r);
    progress();
  }
}

static void create_use_and_destroy(int world, int worlds, nexarComm_t none, void *arg) {
  (void)worlds, (void)none, (void)arg;
  run_ranks(RANKS, compute, &world);
}

static void communicators_run_side_by_side(void) {
  run_threads(COMMUNICATORS, NULL, create_use_and_destroy, NULL);
}

struct crossing {
  nexarComm_t forward[RANKS], backward[RANKS];
};

/* Rank r of one communicator is rank n - 1 - r of the other. */
static void use_two_communicators(int rank, int n, nexarComm_t none, void *arg) {
  (void)none;
  struct crossing *crossing = arg;
  for (int i = 0; i < CALLS; i++) {
    check_it_works(rank, n, crossing->forward[rank]);
    check_it_works(n - 1 - rank, n, crossing->backward[n - 1 - rank]);
  }
}

static void one_thread_may_belong_to_several_communicators(void) {
  struct crossing crossing;
  CHECK_CODE(nexarSuccess, nexarCommInitAll(crossing.forward, RANKS, NULL));
  CHECK_CODE(nexarSuccess, nexarCommInitAll(crossing.backward, RANKS, NULL));
  run_threads(RANKS, NULL, use_two_communicators, &crossing);
  for (int i = 0; i < RANKS; i++) {
    CHECK_CODE(nexarSuccess, nexarCommDestroy(crossing.forward[i]));
    CHECK_CODE(nexarSuccess, nexarCommDestroy(crossing.backward[i]));
  }
}

static void create_and_destroy_without_calls(int thread, int threads, nexarComm_t none, void *arg) {
  (void)thread, (void)threads, (void)none, (void)arg;
  for (int i = 0; i < CALLS; i++) {
    nexarComm_t comms[3];
    int rank = -1;
    CHECK_CODE(nexarSuccess, nexarCommInitAll(comms, 3, NULL));
    CHECK_CODE(nexarSuccess, nexarCommUserRank(comms[2], &rank));
    CHECK_EQ(2, rank);
    for (int r = 0; r < 3; r++) CHECK_CODE(nexarSuccess, nexarCommDestroy(comms[r]));
    CHECK_CODE(nexarInvalidArgument, nexarCommUserRank(comms[i % 3], &rank));
  }
}

static void communicators_are_created_and_destroyed_by_many_threads_at_once(void) {
  run_threads(8, NULL, create_and_destroy_without_calls, NULL);
}

/* One of the threads succeeds, the others get nexarInvalidArgument. */
static void destroy_a_shared_handle(int thread, int threads, nexarComm_t comm, void *wins) {
  (void)thread, (void)threads;
  nexarResult_t result = nexarCommDestroy(comm);
  CHECK(result == nexarSuccess || result == nexarInvalidArgument);
  if (result == nexarSuccess) atomic_fetch_add((atomic_int *)wins, 1);
}

static void a_communicator_is_destroyed_once_however_many_try(void) {
  for (int round = 0; round < 100; round++) {
    nexarComm_t comm;
    atomic_int wins = 0;
    CHECK_CODE(nexarSuccess, nexarCommInitAll(&comm, 1, NULL));
    nexarComm_t same[THREADS] = {comm, comm, comm, comm};
    run_threads(THREADS, same, destroy_a_shared_handle, &wins);
    CHECK_EQ(1, wins);
  }
}

/* A destructor of thread-specific data. The thread-locals of nexar may be destroyed already. */
static void call_from_an_ending_thread(void *arg) {
  int version = 0;
  CHECK_CODE(nexarInvalidArgument, nexarGetVersion(NULL));
  CHECK_CODE(nexarSuccess, nexarGetVersion(&version));
  CHECK(nexarGetLastError(NULL) != NULL);
  check_it_works(0, 1, *(nexarComm_t *)arg);
}

static void *end_with_a_call(void *arg) {
  pthread_key_t *key = ((void **)arg)[0];
  nexarComm_t *comm = ((void **)arg)[1];
  CHECK_CODE(nexarInvalidArgument, nexarGetVersion(NULL));
  CHECK(strlen(nexarGetLastError(NULL)) > 0);
  check_it_works(0, 1, *comm);
  pthread_setspecific(*key, comm);
  return NULL;
}

static void calls_work_while_their_thread_ends(void) {
  nexarComm_t comm;
  pthread_key_t key;
  CHECK_CODE(nexarSuccess, nexarCommInitAll(&comm, 1, NULL));
  CHECK_EQ(0, pthread_key_create(&key, call_from_an_ending_thread));
  for (int i = 0; i < 20; i++) {
    pthread_t thread;
    void *arg[] = {&key, &comm};
    CHECK_EQ(0, pthread_create(&thread, NULL, end_with_a_call, arg));
    pthread_join(thread, NULL);
  }
  CHECK_CODE(nexarSuccess, nexarCommDestroy(comm));
}

static const struct test_case cases[] = {
    CASE(several_threads_may_use_a_rank_that_is_alone),
    CASE(several_threads_may_use_each_of_several_ranks),
    CASE(communicators_run_side_by_side),
    CASE(one_thread_may_belong_to_several_communicators),
    CASE(communicators_are_created_and_destroyed_by_many_threads_at_once),
    CASE(a_communicator_is_destroyed_once_however_many_try),
    CASE(calls_work_while_their_thread_ends),
};

int main(void) { return RUN(cases); }
