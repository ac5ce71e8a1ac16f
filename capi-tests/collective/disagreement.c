/*
 * Ranks that disagree on counts which only pairs of them know: every rank learns who sends what to
 * whom, also those that are not of the pair.
 */
#define _GNU_SOURCE
#include "support/calls.h"
#include "support/ranks.h"

enum { MOST = 7, USUAL = 4, LARGE = 300000 };

/* Rank `from` sends another number of bytes than rank `to` expects. */
struct quarrel {
  enum function function;
  int from, to;
  size_t sent, expected;
};

static void quarrel(int rank, int n, nexarComm_t comm, void *arg) {
  const struct quarrel *quarrel = arg;
  size_t sendcounts[MOST], recvcounts[MOST];
  for (int i = 0; i < n; i++) {
    sendcounts[i] = rank == quarrel->from && i == quarrel->to ? quarrel->sent : USUAL;
    recvcounts[i] = rank == quarrel->to && i == quarrel->from ? quarrel->expected : USUAL;
  }
  const struct arrays arrays = {.sendcounts = sendcounts, .recvcounts = recvcounts};
  const bool gathers = quarrel->function == GATHER_V;
  const int root = gathers ? quarrel->to : quarrel->from;
  struct call call = {.function = quarrel->function, .root = root, .datatype = nexarInt8,
                      .count = gathers ? sendcounts[root] : recvcounts[root], .arrays = &arrays};
  call.send = calloc(1, LARGE + USUAL * MOST);
  call.recv = malloc(LARGE + USUAL * MOST);
  call.comm = join_another(rank, n, comm); /* which fails, while the other one stays whole */

  /* A rank that has left the call before gets it from its next. */
  nexarResult_t result = make_call(call);
  if (result == nexarSuccess) result = nexarBarrier(call.comm, NULL);
  CHECK_CODE(nexarInvalidUsage, result);
  char who[60], expected[40];
  snprintf(who, sizeof who, "rank %d sends %zu bytes to rank %d", quarrel->from, quarrel->sent,
           quarrel->to);
  snprintf(expected, sizeof expected, "expects %zu", quarrel->expected);
  CHECK_TEXT(nexarGetLastError(call.comm), function_names[quarrel->function] + strlen("nexar"));
  CHECK_TEXT(nexarGetLastError(call.comm), who);
  CHECK_TEXT(nexarGetLastError(call.comm), expected);
  CHECK_CODE(nexarInvalidUsage, nexarBarrier(call.comm, NULL));
  CHECK_CODE(nexarSuccess, nexarCommDestroy(call.comm));
  check_it_works(rank, n, comm);
  free((void *)call.send);
  free(call.recv);
}

/* Every pair of two and of three ranks, and one of more. */
static void quarrel_in_pairs(enum function function, size_t sent, size_t expected) {
  const int sizes[] = {2, 3, 4, MOST};
  for (size_t i = 0; i < COUNT_OF(sizes); i++) {
    const int n = sizes[i];
    for (int pair = 0; pair < n * n; pair++) {
      struct quarrel it = {function, pair / n, pair % n, sent, expected};
      if (it.from == it.to || (n > 3 && pair != n + 3)) continue;
      run_ranks(n, quarrel, &it);
      progress();
    }
  }
}

static void quarrel_in_every_function(size_t sent, size_t expected) {
  quarrel_in_pairs(ALL_TO_ALL_V, sent, expected);
  quarrel_in_pairs(GATHER_V, sent, expected);
  quarrel_in_pairs(SCATTER_V, sent, expected);
}

static void a_pair_of_which_one_sends_more_is_named_on_every_rank(void) {
  quarrel_in_every_function(5, 4);
  quarrel_in_every_function(LARGE, 1);
}

static void a_pair_of_which_one_expects_more_is_named_on_every_rank(void) {
  quarrel_in_every_function(4, 5);
  quarrel_in_every_function(1, LARGE);
}

static void a_pair_of_which_one_has_nothing_is_named_on_every_rank(void) {
  quarrel_in_every_function(0, 4);
  quarrel_in_every_function(4, 0);
}

static const struct test_case cases[] = {
    CASE(a_pair_of_which_one_sends_more_is_named_on_every_rank),
    CASE(a_pair_of_which_one_expects_more_is_named_on_every_rank),
    CASE(a_pair_of_which_one_has_nothing_is_named_on_every_rank),
};

int main(void) { return RUN(cases); }
