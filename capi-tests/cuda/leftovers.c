/*
 * The pinned memory of communicators that have ended: a driver may wait for every stream before it
 * frees any, so while one is inside a call nothing is freed. The next communicator takes it
 * instead, so that it does not grow, and when no stream is inside a call all is given back.
 */
#include "processes.h"
#include "twins.h"

enum { BYTES = 1 << 20, ROUNDS = 8 };

static nexarResult_t (*ends_others)(nexarComm_t);

/* While a stream of the first pair is inside a call. */
static void make_and_end_others(size_t of_one) {
  size_t before = fakecuda_pinned_bytes();
  uint64_t events = fakecuda_live(FAKECUDA_EVENT);
  for (int round = 0; round < ROUNDS; round++) {
    nexarComm_t others[2];
    library_calls();
    CHECK_CODE(nexarSuccess, nexarCommInitAll(others, 2, NULL));
    own_calls();
    CHECK_EQ(before + 2 * of_one, fakecuda_pinned_bytes());
    library_calls();
    for (int i = 0; i < 2; i++) CHECK_CODE(nexarSuccess, ends_others(others[i]));
    own_calls();
    CHECK_EQ(before + 2 * of_one, fakecuda_pinned_bytes());
    CHECK_EQ(events, fakecuda_live(FAKECUDA_EVENT));
  }
  check_stays_busy(sides[0].stream);
}

static void end_others_while_a_stream_waits(void) {
  begin_pair(BYTES);
  size_t of_one = fakecuda_pinned_bytes() / 2;
  CHECK(of_one > 0);
  CHECK_CODE(nexarSuccess, all_reduce(0));
  make_and_end_others(of_one);
  CHECK_CODE(nexarSuccess, all_reduce(1));
  for (int i = 0; i < 2; i++) {
    check_drained(&sides[i]);
    CHECK(is_right(i));
  }
  /* It is destroyed when nothing waits any more: what the others had is freed with it. */
  for (int i = 0; i < 2; i++) end(i, nexarCommDestroy);
  CHECK_EQ(0, fakecuda_report_leaks());
}
/* A driver that waits for streams before it gives memory would wait for ever in all of these. */
static void memory_of_aborted_communicators_is_taken_again_while_a_stream_is_inside_a_call(void) {
  ends_others = nexarCommAbort;
  in_a_process("ALLOC_SYNC=off", end_others_while_a_stream_waits);
}
static void memory_of_destroyed_communicators_is_taken_again_while_a_stream_is_inside_a_call(void) {
  ends_others = nexarCommDestroy;
  in_a_process("ALLOC_SYNC=off", end_others_while_a_stream_waits);
}

/* Nothing is allocated once there is enough, so that a driver that waits holds up nobody. */
static void make_beside_a_stream_that_waits(void) {
  nexarComm_t others[2];
  begin_pair(BYTES);
  library_calls();
  CHECK_CODE(nexarSuccess, nexarCommInitAll(others, 2, NULL));
  for (int i = 0; i < 2; i++) CHECK_CODE(nexarSuccess, nexarCommAbort(others[i]));
  own_calls();
  CHECK_CODE(nexarSuccess, all_reduce(0));
  fakecuda_reset_calls();
  make_and_end_others(0);
  CHECK_EQ(0, fakecuda_calls("cuMemHostAlloc") + fakecuda_calls("cuMemFreeHost"));
  CHECK_CODE(nexarSuccess, all_reduce(1));
  for (int i = 0; i < 2; i++) check_drained(&sides[i]);
  for (int i = 0; i < 2; i++) end(i, nexarCommDestroy);
  CHECK_EQ(0, fakecuda_report_leaks());
}
static void a_communicator_that_takes_memory_again_waits_for_no_stream(void) {
  ends_others = nexarCommAbort;
  in_a_process("ALLOC_SYNC=all", make_beside_a_stream_that_waits);
  ends_others = nexarCommDestroy;
  in_a_process("ALLOC_SYNC=all", make_beside_a_stream_that_waits);
}

static void abort_before_a_stream_has_come(void) {
  begin_pair(BYTES);
  size_t of_all = fakecuda_pinned_bytes();
  uint64_t hold = fakecuda_hold(sides[0].stream);
  for (int i = 0; i < 2; i++) CHECK_CODE(nexarSuccess, all_reduce(i));
  for (int i = 0; i < 2; i++) end(i, nexarCommAbort);
  CHECK_EQ(of_all, fakecuda_pinned_bytes());
  make_pair();
  CHECK_EQ(of_all + of_all / 2, fakecuda_pinned_bytes());
  fakecuda_release(hold);
  for (int i = 0; i < 2; i++) end(i, nexarCommDestroy);
  end_pair_and_go_on();
}
static void memory_that_a_stream_has_not_come_to_is_not_taken(void) {
  in_a_process("ALLOC_SYNC=off", abort_before_a_stream_has_come);
}

/* As a program that resets its device between two communicators. */
static void drop_between_two(void) {
  begin_pair(BYTES);
  for (int i = 0; i < 2; i++) CHECK_CODE(nexarSuccess, all_reduce(i));
  for (int i = 0; i < 2; i++) check_drained(&sides[i]);
  for (int i = 0; i < 2; i++) end(i, nexarCommAbort);
  CHECK_EQ(2, fakecuda_live(FAKECUDA_PINNED_MEMORY));
  for (int i = 0; i < 2; i++) fakecuda_drop_pinned(i);
  end_pair_and_go_on();
}
static void memory_that_is_gone_is_not_taken(void) { in_a_process("", drop_between_two); }

int main(void) {
  static const struct test_case cases[] = {
      CASE(memory_of_aborted_communicators_is_taken_again_while_a_stream_is_inside_a_call),
      CASE(memory_of_destroyed_communicators_is_taken_again_while_a_stream_is_inside_a_call),
      CASE(a_communicator_that_takes_memory_again_waits_for_no_stream),
      CASE(memory_that_a_stream_has_not_come_to_is_not_taken),
      CASE(memory_that_is_gone_is_not_taken),
  };
  return RUN(cases);
}
