/*
 * Pinned memory while a stream is inside a call: a driver may wait for every stream before it
 * allocates or frees any, so nothing is allocated or freed. A communicator takes what another has
 * left, or works without, and gets its own when no stream is inside a call any more. All is given
 * back in the end.
 */
#include <sched.h>

#include "processes.h"
#include "two_ranks.h"

enum { BYTES = 1 << 20, ROUNDS = 4 };

static nexarResult_t (*ends_others)(nexarComm_t);

/* Both ranks at once, on their other streams; ones become twos. */
static void reduce_small(const nexarComm_t others[2]) {
  for (int i = 0; i < 2; i++)
    for (int k = 0; k < SMALL_COUNT; k++)
      ((uint32_t *)view(sides[i].small, SMALL_COUNT * 4))[k] = 1;
  library_calls();
  CHECK_CODE(nexarSuccess, nexarGroupStart());
  for (int i = 0; i < 2; i++) {
    void *small = device_pointer(sides[i].small);
    CHECK_CODE(nexarSuccess, nexarAllReduce(small, small, SMALL_COUNT, nexarUint32, nexarSum,
                                            others[i], sides[i].other));
  }
  CHECK_CODE(nexarSuccess, nexarGroupEnd());
  own_calls();
  for (int i = 0; i < 2; i++) {
    OK(cuStreamSynchronize(sides[i].other));
    for (int k = 0; k < SMALL_COUNT; k++)
      CHECK_EQ(2, ((uint32_t *)view(sides[i].small, SMALL_COUNT * 4))[k]);
  }
}

static void make_others(nexarComm_t others[2]) {
  library_calls();
  CHECK_CODE(nexarSuccess, nexarCommInitAll(others, 2, NULL));
  own_calls();
}

static void end_others(const nexarComm_t others[2]) {
  library_calls();
  for (int i = 0; i < 2; i++) CHECK_CODE(nexarSuccess, ends_others(others[i]));
  own_calls();
}

/* While a stream of the first pair is inside a call. */
static void make_and_end_others(void) {
  size_t before = fakecuda_pinned_bytes();
  uint64_t events = fakecuda_live(FAKECUDA_EVENT);
  fakecuda_reset_calls();
  for (int round = 0; round < ROUNDS; round++) {
    nexarComm_t others[2];
    make_others(others);
    reduce_small(others);
    end_others(others);
    CHECK_EQ(before, fakecuda_pinned_bytes());
    CHECK_EQ(events, fakecuda_live(FAKECUDA_EVENT));
  }
  CHECK_EQ(0, fakecuda_calls("cuMemHostAlloc") + fakecuda_calls("cuMemFreeHost"));
  check_stays_busy(sides[0].stream);
}

static void use_others_beside_a_stream_that_waits(void) {
  nexarComm_t others[2];
  begin_pair(BYTES);
  size_t of_pair = fakecuda_pinned_bytes();
  CHECK(of_pair > 0);
  CHECK_CODE(nexarSuccess, all_reduce(0));
  make_and_end_others();
  make_others(others);
  CHECK_EQ(of_pair, fakecuda_pinned_bytes());
  CHECK_CODE(nexarSuccess, all_reduce(1));
  for (int i = 0; i < 2; i++) OK(cuStreamSynchronize(sides[i].stream));
  reduce_small(others);
  CHECK_EQ(2 * of_pair, fakecuda_pinned_bytes());
  end_others(others);
  for (int i = 0; i < 2; i++) {
    check_drained(&sides[i]);
    CHECK(is_right(i));
  }
  /* It is destroyed when nothing waits any more: what the others had is freed with it. */
  for (int i = 0; i < 2; i++) end(i, nexarCommDestroy);
  CHECK_EQ(0, fakecuda_report_leaks());
}
static void communicators_work_without_memory_while_a_stream_is_inside_a_call(void) {
  ends_others = nexarCommAbort;
  in_a_process("ALLOC_SYNC=all", use_others_beside_a_stream_that_waits);
  ends_others = nexarCommDestroy;
  in_a_process("ALLOC_SYNC=all", use_others_beside_a_stream_that_waits);
}

static void take_memory_beside_a_stream_that_waits(void) {
  nexarComm_t others[2];
  begin_pair(BYTES);
  make_others(others);
  library_calls();
  for (int i = 0; i < 2; i++) CHECK_CODE(nexarSuccess, nexarCommAbort(others[i]));
  own_calls();
  CHECK_CODE(nexarSuccess, all_reduce(0));
  make_and_end_others();
  CHECK_CODE(nexarSuccess, all_reduce(1));
  for (int i = 0; i < 2; i++) check_drained(&sides[i]);
  for (int i = 0; i < 2; i++) end(i, nexarCommDestroy);
  CHECK_EQ(0, fakecuda_report_leaks());
}
static void a_communicator_that_takes_memory_again_waits_for_no_stream(void) {
  ends_others = nexarCommAbort;
  in_a_process("ALLOC_SYNC=all", take_memory_beside_a_stream_that_waits);
  ends_others = nexarCommDestroy;
  in_a_process("ALLOC_SYNC=all", take_memory_beside_a_stream_that_waits);
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

/* A thread that allocates while the program has work on the device, for which the driver waits. */
static nexarComm_t third;
static atomic_bool third_is_made;

static void *make_third(void *unused) {
  static const int device = 0;
  (void)unused;
  CHECK_CODE(nexarSuccess, nexarCommInitAll(&third, 1, &device));
  atomic_store(&third_is_made, true);
  return NULL;
}

static void call_beside_an_allocation(void) {
  nexarComm_t others[2], unused[2];
  pthread_t thread;
  ends_others = nexarCommAbort;
  begin_pair(BYTES);
  make_others(others);
  make_others(unused);
  uint64_t hold = fakecuda_hold(sides[0].stream);
  fakecuda_reset_calls();
  CHECK_EQ(0, pthread_create(&thread, NULL, make_third, NULL));
  while (!fakecuda_calls("cuMemHostAlloc")) sched_yield();
  reduce_small(others);
  end_others(unused);
  library_calls();
  CHECK_CODE(nexarSuccess, nexarCommDestroy(others[0]));
  CHECK_CODE(nexarSuccess, nexarCommDestroy(others[1]));
  own_calls();
  CHECK(!atomic_load(&third_is_made));
  fakecuda_release(hold);
  CHECK_EQ(0, pthread_join(thread, NULL));
  library_calls();
  CHECK_CODE(nexarSuccess, nexarCommDestroy(third));
  own_calls();
  for (int i = 0; i < 2; i++) end(i, nexarCommDestroy);
  CHECK_EQ(0, fakecuda_report_leaks());
}
static void an_allocation_that_waits_for_the_program_holds_up_nobody(void) {
  in_a_process("ALLOC_SYNC=library", call_beside_an_allocation);
}

/* A call that waits for memory, or has got it, while its communicator is aborted. */
static void *reduce_on_first_of(void *others) {
  void *small = device_pointer(sides[0].small);
  (void)nexarAllReduce(small, small, SMALL_COUNT, nexarUint32, nexarSum, ((nexarComm_t *)others)[0],
                       sides[0].other);
  return NULL;
}

static void abort_beside_calls_without_memory(void) {
  begin_pair(BYTES);
  size_t of_pair = fakecuda_pinned_bytes();
  ends_others = nexarCommAbort;
  for (int round = 0; round < ROUNDS; round++) {
    nexarComm_t others[2];
    pthread_t thread;
    CHECK_CODE(nexarSuccess, all_reduce(0));
    make_others(others);
    CHECK_EQ(0, pthread_create(&thread, NULL, reduce_on_first_of, others));
    CHECK_CODE(nexarSuccess, all_reduce(1));
    end_others(others);
    CHECK_EQ(0, pthread_join(thread, NULL));
    for (int i = 0; i < 2; i++) OK(cuStreamSynchronize(sides[i].stream));
  }
  for (int i = 0; i < 2; i++) end(i, nexarCommDestroy);
  CHECK(of_pair > 0);
  CHECK_EQ(0, fakecuda_report_leaks());
}
static void an_abort_beside_a_call_without_memory_loses_none(void) {
  in_a_process("ALLOC_SYNC=all", abort_beside_calls_without_memory);
}

int main(void) {
  static const struct test_case cases[] = {
      CASE(communicators_work_without_memory_while_a_stream_is_inside_a_call),
      CASE(a_communicator_that_takes_memory_again_waits_for_no_stream),
      CASE(memory_that_a_stream_has_not_come_to_is_not_taken),
      CASE(memory_that_is_gone_is_not_taken),
      CASE(an_allocation_that_waits_for_the_program_holds_up_nobody),
      CASE(an_abort_beside_a_call_without_memory_loses_none),
  };
  return RUN(cases);
}
