/*
 * Invalid handles in bulk: each is an argument error, none is dereferenced. The only argument, if
 * given, is the number of random ones.
 */
#define _GNU_SOURCE
#include "support/handles.h"
#include "support/ranks.h"

static long tries = 1000000;

static uint64_t next_random(uint64_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

static nexarComm_t handle(uint64_t number) { return (nexarComm_t)(uintptr_t)number; }

static void refuse_count(nexarComm_t comm) {
  int count = 77;
  CHECK_CODE(nexarInvalidArgument, nexarCommCount(comm, &count));
  CHECK_EQ(77, count);
}

static void refuse_everywhere(nexarComm_t number) {
  for (size_t way = 0; way < WAYS_TO_PASS; way++)
    CHECK_CODE(nexarInvalidArgument, pass_handle(way, number));
  CHECK(is_untouched());
}

static void no_number_is_a_handle_before_the_first_communicator(void) {
  for (uint64_t number = 1; number < 1000; number++) refuse_count(handle(number));
  for (int bit = 0; bit < 64; bit++) refuse_everywhere(handle(UINT64_C(1) << bit));
}

static void small_numbers_and_null_are_no_handles(void) {
  nexarComm_t comm;
  CHECK_CODE(nexarSuccess, nexarCommInitAll(&comm, 1, NULL));
  refuse_count(NULL);
  for (uint64_t number = 1; number < 10000; number++) {
    refuse_count(handle(number));
    refuse_count(handle(-number));
  }
  check_it_works(0, 1, comm);
  CHECK_CODE(nexarSuccess, nexarCommDestroy(comm));
}

static void a_handle_with_one_bit_flipped_is_no_handle(void) {
  nexarComm_t comm; /* the only live one: a flipped bit must not give another valid handle */
  CHECK_CODE(nexarSuccess, nexarCommInitAll(&comm, 1, NULL));
  live_comm = comm;
  for (int bit = 0; bit < 64; bit++)
    refuse_everywhere(handle((uint64_t)(uintptr_t)comm ^ UINT64_C(1) << bit));
  check_it_works(0, 1, comm);
  CHECK_CODE(nexarSuccess, nexarCommDestroy(comm));
}

static void random_numbers_are_no_handles(void) {
  uint64_t state = 0x9e3779b97f4a7c15;
  nexarComm_t comm;
  CHECK_CODE(nexarSuccess, nexarCommInitAll(&comm, 1, NULL));
  live_comm = comm;
  for (long i = 0; i < tries; i++) {
    nexarComm_t random = handle(next_random(&state));
    if (random == comm) continue;
    if (i % 1000 == 0)
      refuse_everywhere(random);
    else
      refuse_count(random);
  }
  check_it_works(0, 1, comm);
  CHECK_CODE(nexarSuccess, nexarCommDestroy(comm));
}

static void handles_stay_dead_while_their_slots_are_used_again(void) {
  enum { ROUNDS = 200, RANKS = 3 };
  static nexarComm_t stale[ROUNDS][RANKS];
  for (int round = 0; round < ROUNDS; round++) {
    CHECK_CODE(nexarSuccess, nexarCommInitAll(stale[round], RANKS, NULL));
    for (int old = 0; old < round; old++)
      for (int rank = 0; rank < RANKS; rank++) refuse_count(stale[old][rank]);
    for (int rank = 0; rank < RANKS; rank++)
      CHECK_CODE(nexarSuccess, nexarCommDestroy(stale[round][rank]));
  }
  for (int round = 0; round < ROUNDS; round += 20)
    for (int rank = 0; rank < RANKS; rank++) refuse_everywhere(stale[round][rank]);
}

static const struct test_case cases[] = {
    CASE(no_number_is_a_handle_before_the_first_communicator),
    CASE(small_numbers_and_null_are_no_handles),
    CASE(a_handle_with_one_bit_flipped_is_no_handle),
    CASE(random_numbers_are_no_handles),
    CASE(handles_stay_dead_while_their_slots_are_used_again),
};

int main(int argc, char **argv) {
  if (argc > 1) tries = atol(argv[1]);
  return RUN(cases);
}
