/* Unique ids and nexarCommInitRank: refused arguments, and ranks that share one process. */
#define _GNU_SOURCE
#include "support/ranks.h"

#define UNWRITTEN ((nexarComm_t)0x5a5a5a5a)

static nexarUniqueId new_id(void) {
  nexarUniqueId id;
  memset(&id, 0x11, sizeof id);
  CHECK_CODE(nexarSuccess, nexarGetUniqueId(&id));
  return id;
}

static void a_null_output_for_an_id_is_refused(void) {
  CHECK_CODE(nexarInvalidArgument, nexarGetUniqueId(NULL));
  CHECK_TEXT(nexarGetLastError(NULL), "nexarGetUniqueId: uniqueId is NULL");
}

static void ids_differ(void) {
  nexarUniqueId one = new_id(), other = new_id();
  CHECK(memcmp(&one, &other, sizeof one) != 0);
}

static void refuse(nexarResult_t code, int nranks, nexarUniqueId id, int rank, const char *text) {
  nexarComm_t comm = UNWRITTEN;
  CHECK_CODE(code, nexarCommInitRank(&comm, nranks, id, rank));
  CHECK_TEXT(nexarGetLastError(NULL), "nexarCommInitRank: ");
  CHECK_TEXT(nexarGetLastError(NULL), text);
  CHECK_CODE(code, nexarCommInitRankConfig(&comm, nranks, id, rank, NULL));
  CHECK_TEXT(nexarGetLastError(NULL), "nexarCommInitRankConfig: ");
  CHECK(comm == UNWRITTEN);
}

static void a_rank_out_of_range_is_refused(void) {
  nexarUniqueId id = new_id();
  const int wrong[][2] = {{0, 0}, {-1, 0}, {2, 2}, {2, -1}, {INT_MIN, 0}, {1, INT_MIN}, {65537, 0}};
  for (size_t i = 0; i < COUNT_OF(wrong); i++)
    refuse(nexarInvalidArgument, wrong[i][0], id, wrong[i][1], "does not exist");
  CHECK_CODE(nexarInvalidArgument, nexarCommInitRank(NULL, 1, id, 0));
  CHECK_TEXT(nexarGetLastError(NULL), "comm is NULL");
}

/* A single rank, which needs no other, is refused too. */
static void a_corrupt_id_is_refused_at_once(void) {
  nexarUniqueId zero = {{0}}, cut = new_id(), changed = new_id();
  memset(cut.internal + 64, 0, 64);
  changed.internal[100] ^= 1;
  for (int nranks = 1; nranks <= 2; nranks++) {
    refuse(nexarInvalidArgument, nranks, zero, 0, "its first bytes are wrong");
    refuse(nexarInvalidArgument, nranks, cut, 0, "checksum");
    refuse(nexarInvalidArgument, nranks, changed, 0, "checksum");
  }
}

static void a_single_rank_needs_no_other(void) {
  nexarComm_t comm;
  CHECK_CODE(nexarSuccess, nexarCommInitRank(&comm, 1, new_id(), 0));
  check_it_works(0, 1, comm);
  CHECK_CODE(nexarSuccess, nexarCommDestroy(comm));
  CHECK_CODE(nexarSuccess, nexarCommInitFromEnv(&comm));
  check_it_works(0, 1, comm);
  CHECK_CODE(nexarSuccess, nexarCommDestroy(comm));
  CHECK_CODE(nexarInvalidArgument, nexarCommInitFromEnv(NULL));
}

static void refuse_config(nexarResult_t code, nexarConfig_t config, const char *text) {
  nexarComm_t comm = UNWRITTEN;
  CHECK_CODE(code, nexarCommInitRankConfig(&comm, 1, new_id(), 0, &config));
  CHECK_TEXT(nexarGetLastError(NULL), text);
  CHECK(comm == UNWRITTEN);
}

static void a_wrong_config_is_refused_by_its_field(void) {
  nexarConfig_t good = NEXAR_CONFIG_INITIALIZER, config;
  refuse_config(nexarInvalidArgument, (nexarConfig_t){0}, "NEXAR_CONFIG_INITIALIZER");
  config = good, config.size -= 1;
  refuse_config(nexarInvalidArgument, config, "NEXAR_CONFIG_INITIALIZER");
  config = good, config.magic ^= 1;
  refuse_config(nexarInvalidArgument, config, "NEXAR_CONFIG_INITIALIZER");
  config = good, config.initTimeoutMs = 0;
  refuse_config(nexarInvalidArgument, config, "initTimeoutMs 0");
  config = good, config.opTimeoutMs = -5;
  refuse_config(nexarInvalidArgument, config, "opTimeoutMs -5");
  config = good, config.peerTimeoutMs = -1;
  refuse_config(nexarInvalidArgument, config, "peerTimeoutMs -1");
  config = good, config.blocking = 2;
  refuse_config(nexarInvalidArgument, config, "blocking 2");
}

struct join {
  nexarUniqueId id;
  nexarConfig_t config;
};

static void join_and_work(int rank, int n, nexarComm_t none, void *arg) {
  (void)none;
  struct join *join = arg;
  nexarComm_t comm;
  int count = 0, own = -1;
  CHECK_CODE(nexarSuccess, nexarCommInitRankConfig(&comm, n, join->id, rank, &join->config));
  CHECK_CODE(nexarSuccess, nexarCommCount(comm, &count));
  CHECK_CODE(nexarSuccess, nexarCommUserRank(comm, &own));
  CHECK_EQ(n, count);
  CHECK_EQ(rank, own);
  check_it_works(rank, n, comm);
  CHECK_CODE(nexarSuccess, nexarCommDestroy(comm));
}

/* The ranks connect over the network, although they share a process and its socket. */
static void threads_may_join_as_ranks(void) {
  for (int n = 2; n <= 5; n++) {
    struct join join = {new_id(), NEXAR_CONFIG_INITIALIZER};
    join.config.name = "threads";
    join.config.opTimeoutMs = 20000;
    run_threads(n, NULL, join_and_work, &join);
  }
}

static void join_in_vain(int rank, int n, nexarComm_t none, void *arg) {
  (void)none, (void)n;
  struct join *join = arg;
  nexarComm_t comm = UNWRITTEN;
  CHECK_CODE(nexarTimeout, nexarCommInitRankConfig(&comm, 4, join->id, rank, &join->config));
  CHECK_TEXT(nexarGetLastError(NULL), "ranks 2, 3 of 4 have not joined");
  CHECK(comm == UNWRITTEN);
}

static void ranks_that_never_join_are_named_after_the_timeout(void) {
  struct join join = {new_id(), NEXAR_CONFIG_INITIALIZER};
  join.config.initTimeoutMs = 3000; /* long enough for the two ranks that do join */
  run_threads(2, NULL, join_in_vain, &join);
}

static void an_id_serves_once(void) {
  struct join join = {new_id(), NEXAR_CONFIG_INITIALIZER};
  run_threads(2, NULL, join_and_work, &join);
  refuse(nexarInvalidUsage, 2, join.id, 0, "used before");
}

static void join_as_rank_0(int rank, int n, nexarComm_t none, void *arg) {
  (void)rank, (void)n, (void)none;
  nexarComm_t comm = UNWRITTEN;
  CHECK_CODE(nexarInvalidUsage, nexarCommInitRank(&comm, 3, *(nexarUniqueId *)arg, 0));
  CHECK_TEXT(nexarGetLastError(NULL), "rank 0 joined twice");
}

static void a_rank_that_joins_twice_fails_both_calls(void) {
  nexarUniqueId id = new_id();
  run_threads(2, NULL, join_as_rank_0, &id);
}

static void join_with_another_number_of_ranks(int rank, int n, nexarComm_t none, void *arg) {
  (void)n, (void)none;
  nexarComm_t comm = UNWRITTEN;
  CHECK_CODE(nexarInvalidUsage, nexarCommInitRank(&comm, 3 + rank, *(nexarUniqueId *)arg, rank));
  CHECK_TEXT(nexarGetLastError(NULL), "ranks disagree on the number of ranks");
  CHECK_TEXT(nexarGetLastError(NULL), "rank 1 says 4");
}

static void ranks_that_disagree_on_their_number_get_an_error(void) {
  nexarUniqueId id = new_id();
  run_threads(2, NULL, join_with_another_number_of_ranks, &id);
}

static const struct test_case cases[] = {
    CASE(a_null_output_for_an_id_is_refused),
    CASE(ids_differ),
    CASE(a_rank_out_of_range_is_refused),
    CASE(a_corrupt_id_is_refused_at_once),
    CASE(a_single_rank_needs_no_other),
    CASE(a_wrong_config_is_refused_by_its_field),
    CASE(threads_may_join_as_ranks),
    CASE(ranks_that_never_join_are_named_after_the_timeout),
    CASE(an_id_serves_once),
    CASE(a_rank_that_joins_twice_fails_both_calls),
    CASE(ranks_that_disagree_on_their_number_get_an_error),
};

int main(void) { return RUN(cases); }
