/* Arrays of v-forms and of nexarAllReduceBucketed: invalid ones are refused, unusual ones work. */
#define _GNU_SOURCE
#include "support/calls.h"
#include "support/ranks.h"

enum { RANKS = 3, COUNT = 4, MOST_ELEMENTS = 64 };

/* A valid call with its buffers and arrays. */
struct setup {
  int rank;
  struct call call;
  struct arrays arrays;
  size_t sendcounts[RANKS], sdispls[RANKS], recvcounts[RANKS], rdispls[RANKS];
  void *buffs[RANKS];
  int32_t send[MOST_ELEMENTS], recv[MOST_ELEMENTS], behind[MOST_ELEMENTS];
};

/* Blocks of COUNT elements with one between them. The caller is the root. */
static void set_up(struct setup *setup, enum function function, int rank, nexarComm_t comm) {
  memset(setup, 0, sizeof *setup);
  setup->rank = rank;
  for (int i = 0; i < RANKS; i++) {
    setup->sendcounts[i] = setup->recvcounts[i] = COUNT;
    setup->sdispls[i] = setup->rdispls[i] = (size_t)i * (COUNT + 1);
    setup->buffs[i] = setup->recv + i * (COUNT + 1);
  }
  for (int i = 0; i < MOST_ELEMENTS; i++) setup->send[i] = 1000 * rank + i, setup->recv[i] = -i;
  setup->arrays = (struct arrays){.sendcounts = setup->sendcounts, .sdispls = setup->sdispls,
                                 .recvcounts = setup->recvcounts, .rdispls = setup->rdispls,
                                 .buffs = setup->buffs, .counts = setup->recvcounts,
                                 .nbuffs = RANKS};
  setup->call = (struct call){.function = function, .send = setup->send, .recv = setup->recv,
                             .count = COUNT, .datatype = nexarInt32, .root = rank, .comm = comm,
                             .arrays = &setup->arrays};
}

static bool has_recvcounts(enum function f) {
  return f == ALL_GATHER_V || f == REDUCE_SCATTER_V || f == ALL_TO_ALL_V || f == GATHER_V;
}
static bool has_rdispls(enum function f) {
  return f == ALL_GATHER_V || f == ALL_TO_ALL_V || f == GATHER_V;
}
static bool has_sendcounts(enum function f) { return f == ALL_TO_ALL_V || f == SCATTER_V; }

/* A change that makes a call invalid. The error text must name `argument`. */
struct wrong {
  const char *with, *argument;
  bool (*applies)(enum function function);
  void (*change)(struct setup *setup);
};

static bool is_bucketed(enum function f) { return f == ALL_REDUCE_BUCKETED; }
static bool is_gather(enum function f) { return f == ALL_GATHER_V || f == GATHER_V; }
static bool is_scatter(enum function f) { return f == SCATTER_V; }
static bool is_exchange(enum function f) { return f == ALL_TO_ALL_V; }
static int other(const struct setup *setup) { return (setup->rank + 1) % RANKS; }

static void no_recvcounts(struct setup *d) { d->arrays.recvcounts = NULL; }
static void no_sendcounts(struct setup *d) { d->arrays.sendcounts = NULL; }
static void no_counts(struct setup *d) { d->arrays.counts = NULL; }
static void no_buffs(struct setup *d) { d->arrays.buffs = NULL; }
static void no_buffer(struct setup *d) { d->buffs[1] = NULL; }
static void endless_buffer(struct setup *d) { d->buffs[1] = (void *)(UINTPTR_MAX - 7); }
static void same_buffer_twice(struct setup *d) { d->buffs[2] = d->buffs[0]; }
static void overlapping_buffers(struct setup *d) { d->buffs[2] = (char *)d->buffs[0] + 15; }
static void buffer_within_another(struct setup *d) {
  d->recvcounts[2] = 1, d->buffs[2] = d->recv + 1;
}
static void no_sendbuff(struct setup *d) { d->call.send = NULL; }
static void no_recvbuff(struct setup *d) { d->call.recv = NULL; }
static void huge_recvcount(struct setup *d) { d->recvcounts[other(d)] = SIZE_MAX; }
static void large_recvcounts(struct setup *d) {
  for (int i = 0; i < RANKS; i++) d->recvcounts[i] = SIZE_MAX / 8 / RANKS + 1;
  d->call.count = d->sendcounts[d->rank] = d->recvcounts[d->rank];
}
static void huge_sendcount(struct setup *d) { d->sendcounts[other(d)] = SIZE_MAX / 2; }
static void large_sendcounts(struct setup *d) {
  for (int i = 0; i < RANKS; i++) d->sendcounts[i] = SIZE_MAX / 8 / RANKS + 1;
  d->call.count = d->recvcounts[d->rank] = d->sendcounts[d->rank];
}
static void huge_count(struct setup *d) { d->recvcounts[1] = SIZE_MAX / 4; }
static void huge_rdispl(struct setup *d) { d->rdispls[other(d)] = SIZE_MAX - 1; }
static void large_rdispl(struct setup *d) { d->rdispls[other(d)] = SIZE_MAX / 8; }
static void huge_sdispl(struct setup *d) { d->sdispls[other(d)] = SIZE_MAX - 1; }
static void large_sdispl(struct setup *d) { d->sdispls[other(d)] = SIZE_MAX / 8; }
static void same_place_twice(struct setup *d) { d->rdispls[2] = d->rdispls[0]; }
static void overlapping_places(struct setup *d) { d->rdispls[2] = COUNT - 1; }
static void place_within_another(struct setup *d) {
  d->recvcounts[other(d)] = 1, d->rdispls[other(d)] = d->rdispls[d->rank] + 1;
}
static void another_sendcount(struct setup *d) { d->call.count = COUNT - 1; }
static void another_own_recvcount(struct setup *d) { d->recvcounts[d->rank] = COUNT - 1; }
static void send_from_a_gap(struct setup *d) { d->call.send = d->recv + d->rdispls[d->rank] + 1; }
static void send_from_anothers_block(struct setup *d) {
  d->call.send = d->recv + d->rdispls[other(d)];
}
static void receive_in_anothers_block(struct setup *d) {
  d->call.recv = d->send + d->sdispls[other(d)];
}
static void in_place_of_other_counts(struct setup *d) {
  d->call.send = d->recv;
  d->sendcounts[other(d)] = COUNT - 1;
}
static void in_place_of_other_places(struct setup *d) {
  d->call.send = d->recv;
  for (int i = 0; i < RANKS; i++) d->sdispls[i]++;
}
static void nearly_in_place(struct setup *d) { d->call.send = d->recv + 1; }

#define WRONG(change, argument, applies) {#change, argument, applies, change}

static const struct wrong wrongs[] = {
    WRONG(no_recvcounts, "recvcounts", has_recvcounts),
    WRONG(no_sendcounts, "sendcounts", has_sendcounts),
    WRONG(no_counts, "counts", is_bucketed),
    WRONG(no_buffs, "buffs", is_bucketed),
    WRONG(no_buffer, "buffs", is_bucketed),
    WRONG(endless_buffer, "buffs", is_bucketed),
    WRONG(same_buffer_twice, "buffs", is_bucketed),
    WRONG(overlapping_buffers, "buffs", is_bucketed),
    WRONG(buffer_within_another, "buffs", is_bucketed),
    WRONG(no_sendbuff, "sendbuff", has_sendbuff),
    WRONG(no_recvbuff, "recvbuff", has_sendbuff),
    WRONG(huge_recvcount, "recvcounts", has_recvcounts),
    WRONG(large_recvcounts, "recvcounts", has_recvcounts),
    WRONG(huge_sendcount, "sendcounts", has_sendcounts),
    WRONG(large_sendcounts, "sendcounts", has_sendcounts),
    WRONG(huge_count, "counts", is_bucketed),
    WRONG(huge_rdispl, "rdispls", has_rdispls),
    WRONG(large_rdispl, "rdispls", has_rdispls),
    WRONG(huge_sdispl, "sdispls", has_sendcounts),
    WRONG(large_sdispl, "sdispls", has_sendcounts),
    WRONG(same_place_twice, "rdispls", has_rdispls),
    WRONG(overlapping_places, "rdispls", has_rdispls),
    WRONG(place_within_another, "rdispls", has_rdispls),
    WRONG(another_sendcount, "sendcount", is_gather),
    WRONG(another_sendcount, "recvcount", is_scatter),
    WRONG(another_own_recvcount, "recvcounts", is_gather),
    WRONG(another_own_recvcount, "recvcounts", is_exchange),
    WRONG(send_from_a_gap, "sendbuff and recvbuff overlap", is_gather),
    WRONG(send_from_anothers_block, "sendbuff and recvbuff overlap", is_gather),
    WRONG(receive_in_anothers_block, "sendbuff and recvbuff overlap", is_scatter),
    WRONG(in_place_of_other_counts, "sendcounts", is_exchange),
    WRONG(in_place_of_other_places, "sdispls", is_exchange),
    WRONG(nearly_in_place, "sendbuff and recvbuff overlap", is_exchange),
};

static void check_refused(const struct wrong *wrong, struct setup *setup, const char *name) {
  int32_t send[MOST_ELEMENTS], recv[MOST_ELEMENTS];
  memcpy(send, setup->send, sizeof send);
  memcpy(recv, setup->recv, sizeof recv);
  nexarResult_t result = make_call(setup->call);
  const char *text = nexarGetLastError(setup->call.comm);
  if (result != nexarInvalidArgument)
    check_failed(__FILE__, __LINE__, "%s with %s returned %d", name, wrong->with, (int)result);
  else if (!strstr(text, name) || !strstr(text, wrong->argument))
    check_failed(__FILE__, __LINE__, "%s with %s says \"%s\", without %s", name, wrong->with, text,
                 wrong->argument);
  CHECK(memcmp(send, setup->send, sizeof send) == 0 && memcmp(recv, setup->recv, sizeof recv) == 0);
}

/* One rank makes the invalid call, then all ranks make a valid one. */
static void make_wrong_calls(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  struct setup *setup = malloc(sizeof *setup);
  for (size_t i = 0; i < COUNT_OF(wrongs); i++)
    for (enum function f = 0; f < FUNCTIONS; f++)
      for (int maker = 0; maker < n && has_arrays(f) && wrongs[i].applies(f); maker++) {
        set_up(setup, f, rank, comm);
        wrongs[i].change(setup);
        if (rank == maker) check_refused(&wrongs[i], setup, function_names[f]);
        check_it_works(rank, n, comm);
      }
  free(setup);
}

static void wrong_arrays_are_refused_by_name_and_the_communicator_goes_on(void) {
  run_ranks(RANKS, make_wrong_calls, NULL);
}

/* All ranks make the call with this change, which must succeed. */
static void make_an_unusual_call(enum function function, void (*change)(struct setup *), int rank,
                             nexarComm_t comm) {
  struct setup *setup = malloc(sizeof *setup);
  set_up(setup, function, rank, comm);
  setup->call.root = 0;
  change(setup);
  nexarResult_t result = make_call(setup->call);
  if (result != nexarSuccess)
    check_failed(__FILE__, __LINE__, "%s returned %d", function_names[function], (int)result);
  for (int i = 0; i < MOST_ELEMENTS; i++) CHECK_EQ(1000 * rank + i, setup->send[i]);
  free(setup);
}

/* Rank 1's block is empty, and its displacement is ignored. */
static void nothing_at(struct setup *d, size_t place) {
  d->sendcounts[1] = d->recvcounts[1] = 0;
  d->sdispls[1] = d->rdispls[1] = place;
  d->buffs[1] = (void *)place;
  if (d->rank == 1) {
    d->call.count = 0;
    if (d->call.function == ALL_TO_ALL_V)
      for (int i = 0; i < RANKS; i++) d->sendcounts[i] = d->recvcounts[i] = 0;
  }
}
static void nothing_inside_another_block(struct setup *d) { nothing_at(d, 2); }
static void nothing_inside_the_other_buffer(struct setup *d) {
  nothing_at(d, MOST_ELEMENTS + 5); /* the buffers are adjacent: */
  if (!has_sendcounts(d->call.function)) d->call.send = memcpy(d->behind, d->send, sizeof d->send);
}
static void nothing_at_no_address(struct setup *d) { nothing_at(d, SIZE_MAX); }

static void make_calls_with_an_empty_block(int rank, int n, nexarComm_t comm, void *change) {
  for (enum function f = 0; f < FUNCTIONS; f++)
    if (has_arrays(f)) make_an_unusual_call(f, *(void (**)(struct setup *))change, rank, comm);
  check_it_works(rank, n, comm);
}

static void with_an_empty_block(void (*change)(struct setup *)) {
  run_ranks(RANKS, make_calls_with_an_empty_block, &change);
}

static void an_empty_block_does_not_overlap_another(void) {
  with_an_empty_block(nothing_inside_another_block);
}

static void an_empty_block_does_not_overlap_the_other_buffer(void) {
  with_an_empty_block(nothing_inside_the_other_buffer);
}

static void an_empty_block_may_have_any_place(void) { with_an_empty_block(nothing_at_no_address); }

static void one_place_for_all(struct setup *d) {
  for (int i = 0; i < RANKS; i++) d->sdispls[i] = 3;
}

/* The same elements for every rank. */
static void send_from_one_place(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  make_an_unusual_call(ALL_TO_ALL_V, one_place_for_all, rank, comm);
  make_an_unusual_call(SCATTER_V, one_place_for_all, rank, comm);
  check_it_works(rank, n, comm);
}

static void blocks_that_are_only_read_may_overlap(void) {
  run_ranks(RANKS, send_from_one_place, NULL);
}

static void pass_no_list(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  CHECK_CODE(nexarSuccess,
             nexarAllReduceBucketed(NULL, NULL, 0, nexarInt32, nexarSum, comm, NULL));
  check_it_works(rank, n, comm);
}

static void an_empty_list_of_buffers_may_be_null(void) {
  run_ranks(1, pass_no_list, NULL);
  run_ranks(RANKS, pass_no_list, NULL);
}

static const struct test_case cases[] = {
    CASE(wrong_arrays_are_refused_by_name_and_the_communicator_goes_on),
    CASE(an_empty_block_does_not_overlap_another),
    CASE(an_empty_block_does_not_overlap_the_other_buffer),
    CASE(an_empty_block_may_have_any_place),
    CASE(blocks_that_are_only_read_may_overlap),
    CASE(an_empty_list_of_buffers_may_be_null),
};

int main(void) { return RUN(cases); }
