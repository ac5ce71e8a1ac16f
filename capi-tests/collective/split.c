/* nexarCommSplit. */
#define _GNU_SOURCE
#include "support/elements.h"
#include "support/ranks.h"

static nexarComm_t split(nexarComm_t comm, int color, int key) {
  nexarComm_t part = (nexarComm_t)&part;
  CHECK_CODE(nexarSuccess, nexarCommSplit(comm, color, key, &part, NULL));
  return part;
}

static void destroy(nexarComm_t comm) { CHECK_CODE(nexarSuccess, nexarCommDestroy(comm)); }

/* Checks the rank and the size of a communicator, and that it works. */
static void check_rank(nexarComm_t comm, int rank, int n) {
  int own = -1, count = -1;
  CHECK_CODE(nexarSuccess, nexarCommUserRank(comm, &own));
  CHECK_CODE(nexarSuccess, nexarCommCount(comm, &count));
  CHECK_EQ(rank, own);
  CHECK_EQ(n, count);
  check_it_works(rank, n, comm);
}

static void split_odd_and_even(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  nexarComm_t part = split(comm, rank % 2, rank);
  check_rank(part, rank / 2, (n + 1 - rank % 2) / 2);
  check_it_works(rank, n, comm);
  destroy(part);
  check_it_works(rank, n, comm);
}

static void split_by_key(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  nexarComm_t reversed = split(comm, 3, -rank);
  check_rank(reversed, n - 1 - rank, n);
  nexarComm_t by_rank = split(comm, INT_MAX, INT_MIN);
  check_rank(by_rank, rank, n);
  /* The last rank becomes rank 0, the others follow in their order. */
  nexarComm_t rotated = split(comm, 0, rank == n - 1 ? -1 : 7);
  check_rank(rotated, (rank + 1) % n, n);
  destroy(reversed);
  destroy(by_rank);
  destroy(rotated);
}

static void stay_out(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  nexarComm_t part = split(comm, rank == 0 ? NEXAR_SPLIT_NOCOLOR : 5, 0);
  if (rank == 0)
    CHECK(part == NULL);
  else
    check_rank(part, rank - 1, n - 1);
  destroy(part);
  CHECK(split(comm, NEXAR_SPLIT_NOCOLOR, rank) == NULL);
  check_it_works(rank, n, comm);
}

static void split_to_single_ranks(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  nexarComm_t alone = split(comm, rank, 0);
  check_rank(alone, 0, 1);
  destroy(alone);
  check_it_works(rank, n, comm);
}

static void split_what_was_split(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  nexarComm_t parts[8] = {comm};
  int ranks[8] = {rank}, sizes_of[8] = {n}, depth = 0;
  for (; sizes_of[depth] > 1; depth++) {
    int half = sizes_of[depth] / 2, upper = ranks[depth] >= half;
    parts[depth + 1] = split(parts[depth], upper, ranks[depth]);
    ranks[depth + 1] = upper ? ranks[depth] - half : ranks[depth];
    sizes_of[depth + 1] = upper ? sizes_of[depth] - half : half;
  }
  for (int i = depth; i >= 0; i--) check_rank(parts[i], ranks[i], sizes_of[i]);
  for (int i = 1; i <= depth; i++) destroy(parts[i]);
  check_it_works(rank, n, comm);
}

static void outlive_the_parent(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  nexarComm_t parent = split(comm, 0, rank);
  nexarComm_t child = split(parent, 0, -rank);
  destroy(parent);
  check_rank(child, n - 1 - rank, n);
  nexarComm_t grandchild = split(child, 0, rank);
  destroy(child);
  check_rank(grandchild, rank, n);
  destroy(grandchild);
}

struct user {
  pthread_t thread;
  int rank, n;
  nexarComm_t comm;
};

static void *use_it(void *arg) {
  struct user *self = arg;
  for (int i = 0; i < 50; i++) check_it_works(self->rank, self->n, self->comm);
  return NULL;
}

static void use_many_at_once(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  struct user users[16];
  for (size_t i = 0; i < COUNT_OF(users); i++)
    users[i] = (struct user){0, rank, n, split(comm, 1, 0)};
  for (size_t i = 0; i < COUNT_OF(users); i++)
    CHECK_EQ(0, pthread_create(&users[i].thread, NULL, use_it, &users[i]));
  for (int i = 0; i < 50; i++) check_it_works(rank, n, comm);
  for (size_t i = 0; i < COUNT_OF(users); i++) {
    CHECK_EQ(0, pthread_join(users[i].thread, NULL));
    destroy(users[i].comm);
  }
}

static void split_again_and_again(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  for (int i = 0; i < 200; i++) {
    nexarComm_t part = split(comm, 0, i % 2 ? rank : -rank);
    check_it_works(i % 2 ? rank : n - 1 - rank, n, part);
    destroy(part);
  }
}

/* A part is destroyed right after a large broadcast; calls on the parent follow. */
static void leave_one_and_use_another(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  enum { COUNT = 3 << 20 };
  float *data = malloc(COUNT * sizeof *data);
  for (int round = 0; data && round < 5; round++) {
    nexarComm_t part = split(comm, 0, rank);
    for (int i = 0; i < COUNT; i++) data[i] = rank == 0 ? (float)(i + round) : -1;
    CHECK_CODE(nexarSuccess, nexarBcast(data, COUNT, nexarFloat32, 0, part, NULL));
    destroy(part);
    check_it_works(rank, n, comm);
    int wrong = 0;
    for (int i = 0; i < COUNT; i++) wrong += data[i] != (float)(i + round);
    CHECK_EQ(0, wrong);
  }
  free(data);
}

static void fail_in_a_part(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  nexarComm_t part = split(comm, 0, rank);
  int32_t data[2] = {0};
  size_t count = rank == 0 ? 1 : 2;
  CHECK_CODE(nexarInvalidUsage,
             nexarAllReduce(data, data, count, nexarInt32, nexarSum, part, NULL));
  CHECK_TEXT(nexarGetLastError(part), "ranks disagree on call #0");
  check_it_works(rank, n, comm);
  nexarResult_t failure = nexarSuccess;
  CHECK_CODE(nexarSuccess, nexarCommGetAsyncError(comm, &failure));
  CHECK_EQ(nexarSuccess, failure);
  destroy(part);
  check_it_works(rank, n, comm);
}

static void abort_a_part(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  nexarComm_t part = split(comm, 0, rank);
  check_it_works(rank, n, part);
  check_it_works(rank, n, comm); /* no rank is inside a call on the part any more */
  if (rank == 0) {
    CHECK_CODE(nexarSuccess, nexarCommAbort(part));
  } else {
    CHECK_CODE(nexarRemoteError, nexarBarrier(part, NULL));
    CHECK_TEXT(nexarGetLastError(part), "rank 0 aborted the communicator");
    destroy(part);
  }
  check_it_works(rank, n, comm);
}

static void differ_from_a_split(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  nexarComm_t another = split(comm, 0, rank), part = NULL;
  if (rank == n - 1)
    CHECK_CODE(nexarInvalidUsage, nexarBarrier(another, NULL));
  else
    CHECK_CODE(nexarInvalidUsage, nexarCommSplit(another, 0, 0, &part, NULL));
  CHECK(part == NULL);
  CHECK_TEXT(nexarGetLastError(another), "called Split()");
  CHECK_TEXT(nexarGetLastError(another), "called Barrier()");
  destroy(another);
  check_it_works(rank, n, comm);
}

static void pass_invalid_arguments(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  nexarComm_t part = NULL;
  CHECK_CODE(nexarInvalidArgument, nexarCommSplit(comm, -2, 0, &part, NULL));
  CHECK_CODE(nexarInvalidArgument, nexarCommSplit(comm, 0, 0, NULL, NULL));
  CHECK_CODE(nexarInvalidArgument, nexarCommSplit(NULL, 0, 0, &part, NULL));
  nexarConfig_t config = NEXAR_CONFIG_INITIALIZER;
  config.opTimeoutMs = 0;
  CHECK_CODE(nexarInvalidArgument, nexarCommSplit(comm, 0, 0, &part, &config));
  CHECK(part == NULL);
  check_it_works(rank, n, comm);
}

static void wait_for_missing_ranks(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  nexarConfig_t config = NEXAR_CONFIG_INITIALIZER;
  config.opTimeoutMs = 300;
  config.name = "short";
  nexarComm_t part = NULL;
  CHECK_CODE(nexarSuccess, nexarCommSplit(comm, 0, rank, &part, &config));
  if (rank == 0) {
    CHECK_CODE(nexarTimeout, nexarBarrier(part, NULL));
    CHECK_TEXT(nexarGetLastError(part), "no result within 300 ms");
  }
  /* The other ranks make no call on the part until rank 0 has timed out. */
  check_it_works(rank, n, comm);
  destroy(part);
}

/* Rank 0 keeps parts that the others have destroyed: their streams must not exhaust its limit. */
static void keep_what_others_leave(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  nexarComm_t kept[30];
  for (size_t i = 0; i < COUNT_OF(kept); i++) {
    kept[i] = split(comm, 0, rank);
    for (int call = 0; call < 4; call++) check_it_works(rank, n, kept[i]);
    if (rank > 0) destroy(kept[i]);
  }
  check_it_works(rank, n, comm);
  for (size_t i = 0; rank == 0 && i < COUNT_OF(kept); i++) destroy(kept[i]);
}

/* Two distant ranks split a communicator while one of them is in the group of another split too. */
static void split_beside_another(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  nexarComm_t one = split(comm, 0, rank), other = split(comm, 0, rank), far = NULL, rest = NULL;
  int color = rank == 0 || rank == n / 2 ? 0 : NEXAR_SPLIT_NOCOLOR;
  if (rank == 0) CHECK_CODE(nexarSuccess, nexarGroupStart());
  CHECK_CODE(nexarSuccess, nexarCommSplit(one, color, rank, &far, NULL));
  CHECK_CODE(nexarSuccess, nexarCommSplit(other, 0, rank, &rest, NULL));
  if (rank == 0) CHECK_CODE(nexarSuccess, nexarGroupEnd());
  if (far) check_rank(far, rank > 0, 2);
  check_rank(rest, rank, n);
  destroy(far);
  destroy(rest);
  destroy(one);
  destroy(other);
}

/* Both splits of a group have the same parent: they match in the order of the calls. */
static void split_in_a_group(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  nexarComm_t all = (nexarComm_t)&all, half = (nexarComm_t)&half;
  int32_t sum = rank;
  CHECK_CODE(nexarSuccess, nexarGroupStart());
  CHECK_CODE(nexarSuccess, nexarAllReduce(&sum, &sum, 1, nexarInt32, nexarSum, comm, NULL));
  CHECK_CODE(nexarSuccess, nexarCommSplit(comm, 0, -rank, &all, NULL));
  CHECK_CODE(nexarSuccess, nexarCommSplit(comm, rank % 2, 0, &half, NULL));
  CHECK(all == NULL && half == NULL);
  CHECK_CODE(nexarSuccess, nexarGroupEnd());
  CHECK_EQ(n * (n - 1) / 2, sum);
  check_rank(all, n - 1 - rank, n);
  check_rank(half, rank / 2, (n + 1 - rank % 2) / 2);
  destroy(all);
  destroy(half);
}

static void in_every_world(rank_function *function) {
  for (size_t i = 1; i < COUNT_OF(sizes); i++) run_ranks(sizes[i], function, NULL);
}

static void odd_and_even_ranks_are_split(void) { in_every_world(split_odd_and_even); }
static void keys_order_the_ranks_and_equal_keys_keep_their_order(void) {
  in_every_world(split_by_key);
}
static void a_rank_without_color_gets_null(void) { in_every_world(stay_out); }
static void every_rank_can_be_alone(void) { in_every_world(split_to_single_ranks); }
static void parts_can_be_split(void) { in_every_world(split_what_was_split); }
static void a_part_outlives_its_parent(void) { in_every_world(outlive_the_parent); }
static void sixteen_parts_are_used_by_sixteen_threads(void) { in_every_world(use_many_at_once); }
static void two_hundred_parts_are_created_and_destroyed(void) {
  in_every_world(split_again_and_again);
}
static void messages_sent_before_a_destroy_arrive(void) {
  in_every_world(leave_one_and_use_another);
}
static void a_failure_of_a_part_affects_no_other_communicator(void) {
  in_every_world(fail_in_a_part);
}
static void an_abort_of_a_part_affects_no_other_communicator(void) { in_every_world(abort_a_part); }
static void a_split_against_another_call_is_a_mismatch(void) {
  in_every_world(differ_from_a_split);
}
static void a_rank_may_keep_what_others_have_left(void) { in_every_world(keep_what_others_leave); }
static void a_split_does_not_wait_for_others_of_its_group(void) {
  in_every_world(split_beside_another);
}
static void splits_can_be_grouped(void) { in_every_world(split_in_a_group); }

/* One thread calls for all ranks: without the group it would deadlock. */
static void one_thread_splits_for_all_ranks(void) {
  if (!can_share_memory()) return;
  enum { N = 4 };
  nexarComm_t comms[N], parts[N];
  CHECK_CODE(nexarSuccess, nexarCommInitAll(comms, N, NULL));
  CHECK_CODE(nexarSuccess, nexarGroupStart());
  for (int rank = 0; rank < N; rank++)
    CHECK_CODE(nexarSuccess, nexarCommSplit(comms[rank], rank % 2, rank, &parts[rank], NULL));
  CHECK_CODE(nexarSuccess, nexarGroupEnd());
  int32_t sums[N] = {1, 2, 3, 4};
  CHECK_CODE(nexarSuccess, nexarGroupStart());
  for (int rank = 0; rank < N; rank++)
    CHECK_CODE(nexarSuccess, nexarAllReduce(&sums[rank], &sums[rank], 1, nexarInt32, nexarSum,
                                            parts[rank], NULL));
  CHECK_CODE(nexarSuccess, nexarGroupEnd());
  for (int rank = 0; rank < N; rank++) {
    int device = -1;
    CHECK_CODE(nexarSuccess, nexarCommCuDevice(parts[rank], &device));
    CHECK_EQ(rank, device);
    CHECK_EQ(rank % 2 ? 6 : 4, sums[rank]);
    destroy(parts[rank]);
    destroy(comms[rank]);
  }
}

static void wrong_arguments_change_nothing(void) { in_every_world(pass_invalid_arguments); }
static void a_part_has_settings_of_its_own(void) { in_every_world(wait_for_missing_ranks); }

static const struct test_case cases[] = {
    CASE(odd_and_even_ranks_are_split),
    CASE(keys_order_the_ranks_and_equal_keys_keep_their_order),
    CASE(a_rank_without_color_gets_null),
    CASE(every_rank_can_be_alone),
    CASE(parts_can_be_split),
    CASE(a_part_outlives_its_parent),
    CASE(sixteen_parts_are_used_by_sixteen_threads),
    CASE(two_hundred_parts_are_created_and_destroyed),
    CASE(messages_sent_before_a_destroy_arrive),
    CASE(a_failure_of_a_part_affects_no_other_communicator),
    CASE(an_abort_of_a_part_affects_no_other_communicator),
    CASE(a_split_against_another_call_is_a_mismatch),
    CASE(a_rank_may_keep_what_others_have_left),
    CASE(a_split_does_not_wait_for_others_of_its_group),
    CASE(splits_can_be_grouped),
    CASE(one_thread_splits_for_all_ranks),
    CASE(wrong_arguments_change_nothing),
    CASE(a_part_has_settings_of_its_own),
};

int main(void) { return RUN(cases); }
