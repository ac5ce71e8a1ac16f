/*
 * Ranks that disagree on counts that only a pair of ranks knows: every rank gets an error that
 * names the pair and both counts, also the ranks outside the pair.
 */
#define _GNU_SOURCE
#include "support/calls.h"
#include "support/ranks.h"

enum { MOST = 7, USUAL = 4, LARGE = 300000 };

/* Rank `from` sends another number of bytes than rank `to` expects. */
struct disagreement {
  enum function function;
  int from, to;
  size_t sent, expected;
};

static void disagree(int rank, int n, nexarComm_t comm, void *arg) {
  const struct disagreement *it = arg;
  size_t sendcounts[MOST], recvcounts[MOST];
  for (int i = 0; i < n; i++) {
    sendcounts[i] = rank == it->from && i == it->to ? it->sent : USUAL;
    recvcounts[i] = rank == it->to && i == it->from ? it->expected : USUAL;
  }
  const struct arrays arrays = {.sendcounts = sendcounts, .recvcounts = recvcounts};
  const bool gathers = it->function == GATHER_V;
  const int root = gathers ? it->to : it->from;
  struct call call = {.function = it->function, .root = root, .datatype = nexarInt8,
                      .count = gathers ? sendcounts[root] : recvcounts[root], .arrays = &arrays};
  call.send = calloc(1, LARGE + USUAL * MOST);
  call.recv = malloc(LARGE + USUAL * MOST);
  call.comm = join_another(rank, n, comm); /* fails; `comm` stays usable */

  /* A rank whose call had completed gets the error from its next call. */
  nexarResult_t result = make_call(call);
  if (result == nexarSuccess) result = nexarBarrier(call.comm, NULL);
  CHECK_CODE(nexarInvalidUsage, result);
  char pair[60], expected[40];
  snprintf(pair, sizeof pair, "rank %d sends %zu bytes to rank %d", it->from, it->sent, it->to);
  snprintf(expected, sizeof expected, "expects %zu", it->expected);
  CHECK_TEXT(nexarGetLastError(call.comm), function_names[it->function] + strlen("nexar"));
  CHECK_TEXT(nexarGetLastError(call.comm), pair);
  CHECK_TEXT(nexarGetLastError(call.comm), expected);
  CHECK_CODE(nexarInvalidUsage, nexarBarrier(call.comm, NULL));
  CHECK_CODE(nexarSuccess, nexarCommDestroy(call.comm));
  check_it_works(rank, n, comm);
  free((void *)call.send);
  free(call.recv);
}

/* Every pair of two and of three ranks, and one pair of more ranks. */
static void disagree_in_pairs(enum function function, size_t sent, size_t expected) {
  const int sizes[] = {2, 3, 4, MOST};
  for (size_t i = 0; i < COUNT_OF(sizes); i++) {
    const int n = sizes[i];
    for (int pair = 0; pair < n * n; pair++) {
      struct disagreement it = {function, pair / n, pair % n, sent, expected};
      if (it.from == it.to || (n > 3 && pair != n + 3)) continue;
      run_ranks(n, disagree, &it);
      progress();
    }
  }
}

static void disagree_in_every_function(size_t sent, size_t expected) {
  disagree_in_pairs(ALL_TO_ALL_V, sent, expected);
  disagree_in_pairs(GATHER_V, sent, expected);
  disagree_in_pairs(SCATTER_V, sent, expected);
}

static void a_pair_whose_sender_sends_more_is_named_on_every_rank(void) {
  disagree_in_every_function(5, 4);
  disagree_in_every_function(LARGE, 1);
}

static void a_pair_whose_receiver_expects_more_is_named_on_every_rank(void) {
  disagree_in_every_function(4, 5);
  disagree_in_every_function(1, LARGE);
}

static void a_pair_with_one_count_of_zero_is_named_on_every_rank(void) {
  disagree_in_every_function(0, 4);
  disagree_in_every_function(4, 0);
}

static const struct test_case cases[] = {
    CASE(a_pair_whose_sender_sends_more_is_named_on_every_rank),
    CASE(a_pair_whose_receiver_expects_more_is_named_on_every_rank),
    CASE(a_pair_with_one_count_of_zero_is_named_on_every_rank),
};

int main(void) { return RUN(cases); }
