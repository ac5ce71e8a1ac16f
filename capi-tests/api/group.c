/* Groups: calls that start together, and groups with an invalid call. */
#include "support/ranks.h"

enum { SMALL_CALLS = 200 };

static nexarResult_t sum(int32_t *data, nexarComm_t comm) {
  return nexarAllReduce(data, data, 1, nexarInt32, nexarSum, comm, NULL);
}

static void call_in_nested_groups(int rank, int n, nexarComm_t comm, void *arg) {
  (void)rank, (void)arg;
  int32_t a = 1, b = 2, c = 3;
  CHECK_CODE(nexarSuccess, nexarGroupStart());
  CHECK_CODE(nexarSuccess, sum(&a, comm));
  CHECK_CODE(nexarSuccess, nexarGroupStart());
  CHECK_CODE(nexarSuccess, sum(&b, comm));
  CHECK_CODE(nexarSuccess, nexarGroupEnd());
  CHECK_CODE(nexarSuccess, sum(&c, comm));
  CHECK(a == 1 && b == 2 && c == 3); /* no call has started */
  CHECK_CODE(nexarSuccess, nexarGroupEnd());
  CHECK_EQ(n, a);
  CHECK_EQ(2 * n, b);
  CHECK_EQ(3 * n, c);
}
static void only_the_outermost_end_acts(void) { on_every_size(call_in_nested_groups); }

static void call_nothing(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  CHECK_CODE(nexarSuccess, nexarGroupStart());
  CHECK_CODE(nexarSuccess, nexarGroupEnd());
  CHECK_CODE(nexarInvalidUsage, nexarGroupEnd());
  CHECK_TEXT(nexarGetLastError(NULL), "nexarGroupEnd: this thread is not inside a group");
  check_it_works(rank, n, comm);
}
static void an_end_without_a_start_is_wrong_usage(void) { on_every_size(call_nothing); }

/* Odd ranks call on the other communicator first: without a group the ranks would deadlock. */
static void cross(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  nexarComm_t other = join_another(rank, n, comm);
  for (int round = 0; round < 20; round++) {
    int32_t mine[2] = {1, 10};
    CHECK_CODE(nexarSuccess, nexarGroupStart());
    for (int i = 0; i < 2; i++) {
      bool is_first = (i + rank) % 2 == 0;
      CHECK_CODE(nexarSuccess, sum(is_first ? &mine[0] : &mine[1], is_first ? comm : other));
    }
    CHECK_CODE(nexarSuccess, nexarGroupEnd());
    CHECK_EQ(n, mine[0]);
    CHECK_EQ(10 * n, mine[1]);
    progress();
  }
  CHECK_CODE(nexarSuccess, nexarCommDestroy(other));
}
static void communicators_may_be_named_in_another_order_on_every_rank(void) {
  run_ranks(2, cross, NULL);
  run_ranks(3, cross, NULL);
  run_ranks(4, cross, NULL);
}

/* All ranks of a communicator in one thread, as in NCCL programs. */
static void one_thread_may_call_for_all_ranks_of_a_communicator(void) {
  if (!can_share_memory()) return;
  enum { RANKS = 4 };
  nexarComm_t comms[RANKS];
  int32_t data[RANKS];
  CHECK_CODE(nexarSuccess, nexarCommInitAll(comms, RANKS, NULL));
  for (int round = 0; round < 20; round++) {
    CHECK_CODE(nexarSuccess, nexarGroupStart());
    for (int rank = 0; rank < RANKS; rank++) {
      data[rank] = rank;
      CHECK_CODE(nexarSuccess, sum(&data[rank], comms[rank]));
    }
    CHECK_CODE(nexarSuccess, nexarGroupEnd());
    for (int rank = 0; rank < RANKS; rank++) CHECK_EQ(6, data[rank]);
  }
  for (int rank = 0; rank < RANKS; rank++) CHECK_CODE(nexarSuccess, nexarCommDestroy(comms[rank]));
}

static void call_often(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  int64_t sums[SMALL_CALLS], roots[SMALL_CALLS];
  CHECK_CODE(nexarSuccess, nexarGroupStart());
  for (int i = 0; i < SMALL_CALLS; i++) {
    sums[i] = i + rank;
    roots[i] = rank;
    CHECK_CODE(nexarSuccess,
               nexarAllReduce(&sums[i], &sums[i], 1, nexarInt64, nexarSum, comm, NULL));
    CHECK_CODE(nexarSuccess, nexarBcast(&roots[i], 1, nexarInt64, i % n, comm, NULL));
  }
  CHECK_CODE(nexarSuccess, nexarGroupEnd());
  for (int i = 0; i < SMALL_CALLS; i++) {
    CHECK_EQ(i * n + n * (n - 1) / 2, sums[i]);
    CHECK_EQ(i % n, roots[i]);
  }
}
static void a_group_may_hold_hundreds_of_calls(void) { on_every_size(call_often); }

/* Scalars and arrays of counts belong to the caller again when its call has returned. */
static void call_with_lists(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  size_t counts[MOST_RANKS];
  int32_t mine[MOST_RANKS], all[MOST_RANKS * MOST_RANKS], scalar = 3, product = 1;
  nexarRedOp_t op;
  CHECK_CODE(nexarSuccess, nexarRedOpCreatePreMulSum(&op, &scalar, nexarInt32,
                                                     nexarScalarHostImmediate, comm));
  for (int i = 0; i < n; i++) counts[i] = (size_t)i + 1;
  for (int i = 0; i <= rank; i++) mine[i] = rank;
  CHECK_CODE(nexarSuccess, nexarGroupStart());
  CHECK_CODE(nexarSuccess, nexarAllGatherV(mine, counts[rank], all, counts, NULL, nexarInt32, comm,
                                           NULL));
  CHECK_CODE(nexarSuccess, nexarAllReduce(&product, &product, 1, nexarInt32, op, comm, NULL));
  CHECK_CODE(nexarSuccess, nexarRedOpDestroy(op, comm));
  memset(counts, 0xff, sizeof counts);
  scalar = 0;
  CHECK_CODE(nexarSuccess, nexarGroupEnd());
  CHECK_EQ(3 * n, product);
  for (int r = 0, at = 0; r < n; r++)
    for (int i = 0; i <= r; i++) CHECK_EQ(r, all[at++]);
}
static void counts_and_operators_are_copied_at_the_call(void) {
  on_every_size(call_with_lists);
}

/* Rank 0's group with an invalid call makes no call at all. */
static void make_an_invalid_call(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  int32_t kept = 5;
  if (rank == 0) {
    CHECK_CODE(nexarSuccess, nexarGroupStart());
    CHECK_CODE(nexarSuccess, sum(&kept, comm));
    CHECK_CODE(nexarInvalidArgument, nexarBcast(&kept, 1, nexarInt32, n, comm, NULL));
    CHECK_CODE(nexarInvalidArgument, nexarAllReduce(&kept, &kept, 1, (nexarDataType_t)99, nexarSum,
                                                    comm, NULL));
    CHECK_CODE(nexarSuccess, sum(&kept, comm));
    CHECK_CODE(nexarInvalidArgument, nexarGroupEnd());
    CHECK_TEXT(nexarGetLastError(NULL), "nexarAllReduce in it failed: datatype 99");
    CHECK_EQ(5, kept);
    CHECK_CODE(nexarInvalidUsage, nexarGroupEnd());
  }
  check_it_works(rank, n, comm);
}
static void a_wrong_call_drops_its_group_and_nothing_was_sent(void) {
  on_every_size(make_an_invalid_call);
}

/* Queries, even failed ones, are not part of a group; a destroy takes effect at once. */
static void query_in_a_group(int rank, int n, nexarComm_t comm, void *arg) {
  (void)rank, (void)arg;
  int32_t data = 1;
  int count = 0;
  nexarComm_t alone;
  CHECK_CODE(nexarSuccess, nexarCommInitAll(&alone, 1, NULL));
  CHECK_CODE(nexarSuccess, nexarGroupStart());
  CHECK_CODE(nexarSuccess, sum(&data, comm));
  CHECK_CODE(nexarInvalidArgument, nexarCommCount(NULL, &count));
  CHECK_CODE(nexarSuccess, nexarCommCount(comm, &count));
  CHECK_CODE(nexarSuccess, nexarCommDestroy(alone));
  CHECK_CODE(nexarInvalidArgument, nexarCommCount(alone, &count));
  CHECK_EQ(n, count);
  CHECK_CODE(nexarSuccess, nexarGroupEnd());
  CHECK_EQ(n, data);
}
static void queries_and_destroys_inside_a_group_act_at_once(void) {
  on_every_size(query_in_a_group);
}

/* The ranks disagree on the call of one communicator; the group goes on on the other. */
static void disagree(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  nexarComm_t failing = join_another(rank, n, comm);
  int32_t good = 1, bad[2] = {0};
  nexarResult_t error = nexarSuccess;
  CHECK_CODE(nexarSuccess, nexarGroupStart());
  CHECK_CODE(nexarSuccess, nexarAllReduce(bad, bad, rank == 0 ? 1 : 2, nexarInt32, nexarSum,
                                          failing, NULL));
  CHECK_CODE(nexarSuccess, sum(&good, comm));
  CHECK_CODE(nexarInvalidUsage, nexarGroupEnd());
  CHECK_TEXT(nexarGetLastError(NULL), "nexarGroupEnd: ranks disagree on call #0");
  CHECK_TEXT(nexarGetLastError(failing), "ranks disagree on call #0");
  CHECK_EQ(n, good);
  CHECK_CODE(nexarSuccess, nexarCommGetAsyncError(failing, &error));
  CHECK_EQ(nexarInvalidUsage, error);
  check_it_works(rank, n, comm);
  CHECK_CODE(nexarSuccess, nexarCommDestroy(failing));
}
static void a_failure_of_one_communicator_leaves_the_others_of_the_group_alone(void) {
  run_ranks(2, disagree, NULL);
  run_ranks(4, disagree, NULL);
}

/* Splits two communicators in an order that differs between ranks, together with an operation. */
static void split_in_a_group(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  nexarComm_t old[2] = {comm, join_another(rank, n, comm)}, made[2] = {NULL, NULL};
  int32_t data = 1;
  CHECK_CODE(nexarSuccess, nexarGroupStart());
  CHECK_CODE(nexarSuccess, sum(&data, comm));
  for (int i = 0; i < 2; i++) {
    int at = (i + rank) % 2;
    CHECK_CODE(nexarSuccess, nexarCommSplit(old[at], rank % 2, -rank, &made[at], NULL));
    CHECK(made[at] == NULL);
  }
  CHECK_CODE(nexarSuccess, nexarGroupEnd());
  CHECK_EQ(n, data);
  for (int i = 0; i < 2; i++) {
    int size = 0, place = -1;
    CHECK_CODE(nexarSuccess, nexarCommCount(made[i], &size));
    CHECK_CODE(nexarSuccess, nexarCommUserRank(made[i], &place));
    CHECK_EQ((n + 1 - rank % 2) / 2, size);
    check_it_works(place, size, made[i]);
    CHECK_CODE(nexarSuccess, nexarCommDestroy(made[i]));
  }
  CHECK_CODE(nexarSuccess, nexarCommDestroy(old[1]));
}
static void communicators_are_split_in_a_group(void) { on_every_size(split_in_a_group); }

static void *leave_inside_a_group(void *comm) {
  static int32_t data;
  CHECK_CODE(nexarSuccess, nexarGroupStart());
  CHECK_CODE(nexarSuccess, sum(&data, comm));
  return NULL;
}

static void let_a_thread_end(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  pthread_t thread;
  CHECK_EQ(0, pthread_create(&thread, NULL, leave_inside_a_group, comm));
  CHECK_EQ(0, pthread_join(thread, NULL));
  check_it_works(rank, n, comm);
}
static void a_thread_that_ends_inside_a_group_drops_it(void) { on_every_size(let_a_thread_end); }

enum { COMMUNICATORS = 16 };

struct use {
  int rank, n, first;
  nexarComm_t *comms;
};

/* Uses one communicator 20 times. */
static void *use_communicators(void *arg) {
  struct use *use = arg;
  for (int round = 0; round < 20; round++)
    check_it_works(use->rank, use->n, use->comms[use->first]);
  return NULL;
}

static void use_sixteen(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  nexarComm_t comms[COMMUNICATORS];
  pthread_t threads[COMMUNICATORS];
  struct use uses[COMMUNICATORS];
  int32_t data[COMMUNICATORS];
  for (int i = 0; i < COMMUNICATORS; i++) comms[i] = join_another(rank, n, comm);
  for (int i = 0; i < COMMUNICATORS; i++) {
    uses[i] = (struct use){rank, n, (i * 7 + rank) % COMMUNICATORS, comms};
    CHECK_EQ(0, pthread_create(&threads[i], NULL, use_communicators, &uses[i]));
  }
  for (int i = 0; i < COMMUNICATORS; i++) CHECK_EQ(0, pthread_join(threads[i], NULL));
  CHECK_CODE(nexarSuccess, nexarGroupStart());
  for (int i = 0; i < COMMUNICATORS; i++) {
    int at = (i * 5 + rank) % COMMUNICATORS;
    data[at] = at;
    CHECK_CODE(nexarSuccess, sum(&data[at], comms[at]));
  }
  CHECK_CODE(nexarSuccess, nexarGroupEnd());
  for (int i = 0; i < COMMUNICATORS; i++) {
    CHECK_EQ(n * i, data[i]);
    CHECK_CODE(nexarSuccess, nexarCommDestroy(comms[i]));
  }
}
static void sixteen_threads_use_sixteen_communicators_at_once(void) {
  run_ranks(2, use_sixteen, NULL);
}

/* One communicator of the group has work on a stream that waits for the other rank. */
static void call_behind_a_stream(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  (void)n;
  nexarComm_t other = NULL;
  nexarStream_t stream = NULL;
  CHECK_CODE(nexarSuccess, nexarCommSplit(comm, 0, rank, &other, NULL));
  CHECK_CODE(nexarSuccess, nexarStreamCreate(&stream));
  if (rank == 0) {
    CHECK_CODE(nexarSuccess, nexarBarrier(comm, stream));
    CHECK_CODE(nexarSuccess, nexarGroupStart());
    CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
    CHECK_CODE(nexarSuccess, nexarBarrier(other, NULL));
    CHECK_CODE(nexarSuccess, nexarGroupEnd());
  } else {
    CHECK_CODE(nexarSuccess, nexarBarrier(other, NULL));
    CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
    CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
  }
  CHECK_CODE(nexarSuccess, nexarStreamDestroy(stream));
  CHECK_CODE(nexarSuccess, nexarCommDestroy(other));
}

static void a_call_of_a_group_waits_for_streams_of_its_own_communicator_only(void) {
  on_every_size(call_behind_a_stream);
}

static const struct test_case cases[] = {
    CASE(a_call_of_a_group_waits_for_streams_of_its_own_communicator_only),
    CASE(only_the_outermost_end_acts),
    CASE(an_end_without_a_start_is_wrong_usage),
    CASE(communicators_may_be_named_in_another_order_on_every_rank),
    CASE(one_thread_may_call_for_all_ranks_of_a_communicator),
    CASE(a_group_may_hold_hundreds_of_calls),
    CASE(counts_and_operators_are_copied_at_the_call),
    CASE(a_wrong_call_drops_its_group_and_nothing_was_sent),
    CASE(queries_and_destroys_inside_a_group_act_at_once),
    CASE(a_failure_of_one_communicator_leaves_the_others_of_the_group_alone),
    CASE(communicators_are_split_in_a_group),
    CASE(a_thread_that_ends_inside_a_group_drops_it),
    CASE(sixteen_threads_use_sixteen_communicators_at_once),
};

int main(void) { return RUN(cases); }
