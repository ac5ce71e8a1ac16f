/*
 * Pinned memory while a stream is inside a call: a driver may wait for every stream before it
 * allocates or frees memory, so the library does neither. A communicator reuses the memory of
 * another that has ended, or works without memory until no stream is inside a call. In the end all
 * memory is freed.
 */
#include <sched.h>

#include "processes.h"
#include "two_ranks.h"

enum { BYTES = 1 << 20, ROUNDS = 4 };

static nexarResult_t (*ends_others)(nexarComm_t);

/* An all-reduce of ones by both ranks, on their other streams. */
static void reduce_small(const nexarComm_t others[2]) {
  for (int i = 0; i < 2; i++)
    for (int k = 0; k < SMALL_COUNT; k++)
      ((uint32_t *)view(ranks[i].small, SMALL_COUNT * 4))[k] = 1;
  library_calls();
  CHECK_CODE(nexarSuccess, nexarGroupStart());
  for (int i = 0; i < 2; i++) {
    void *small = device_pointer(ranks[i].small);
    CHECK_CODE(nexarSuccess, nexarAllReduce(small, small, SMALL_COUNT, nexarUint32, nexarSum,
                                            others[i], ranks[i].other));
  }
  CHECK_CODE(nexarSuccess, nexarGroupEnd());
  own_calls();
  for (int i = 0; i < 2; i++) {
    OK(cuStreamSynchronize(ranks[i].other));
    for (int k = 0; k < SMALL_COUNT; k++)
      CHECK_EQ(2, ((uint32_t *)view(ranks[i].small, SMALL_COUNT * 4))[k]);
  }
}

static void create_others(nexarComm_t others[2]) {
  library_calls();
  CHECK_CODE(nexarSuccess, nexarCommInitAll(others, 2, NULL));
  own_calls();
}

static void end_others(const nexarComm_t others[2]) {
  library_calls();
  for (int i = 0; i < 2; i++) CHECK_CODE(nexarSuccess, ends_others(others[i]));
  own_calls();
}

/* Creates and ends communicators while a stream of the first pair is inside a call. */
static void create_and_end_others(void) {
  size_t before = fakecuda_pinned_bytes();
  uint64_t events = fakecuda_live(FAKECUDA_EVENT);
  fakecuda_reset_calls();
  for (int round = 0; round < ROUNDS; round++) {
    nexarComm_t others[2];
    create_others(others);
    reduce_small(others);
    end_others(others);
    CHECK_EQ(before, fakecuda_pinned_bytes());
    CHECK_EQ(events, fakecuda_live(FAKECUDA_EVENT));
  }
  CHECK_EQ(0, fakecuda_calls("cuMemHostAlloc") + fakecuda_calls("cuMemFreeHost"));
  check_stays_busy(ranks[0].stream);
}

static void use_others_beside_a_stream_that_waits(void) {
  nexarComm_t others[2];
  begin_pair(BYTES);
  size_t of_pair = fakecuda_pinned_bytes();
  CHECK(of_pair > 0);
  CHECK_CODE(nexarSuccess, all_reduce(0));
  create_and_end_others();
  create_others(others);
  CHECK_EQ(of_pair, fakecuda_pinned_bytes());
  CHECK_CODE(nexarSuccess, all_reduce(1));
  for (int i = 0; i < 2; i++) OK(cuStreamSynchronize(ranks[i].stream));
  reduce_small(others);
  CHECK_EQ(2 * of_pair, fakecuda_pinned_bytes());
  end_others(others);
  for (int i = 0; i < 2; i++) {
    check_drained(&ranks[i]);
    CHECK(is_right(i));
  }
  /* No stream waits any more: the destruction also frees the memory of the others. */
  for (int i = 0; i < 2; i++) end(i, nexarCommDestroy);
  CHECK_EQ(0, fakecuda_report_leaks());
}
static void communicators_work_without_memory_while_a_stream_is_inside_a_call(void) {
  ends_others = nexarCommAbort;
  in_a_process("ALLOC_SYNC=all", use_others_beside_a_stream_that_waits);
  ends_others = nexarCommDestroy;
  in_a_process("ALLOC_SYNC=all", use_others_beside_a_stream_that_waits);
}

static void reuse_memory_beside_a_stream_that_waits(void) {
  nexarComm_t others[2];
  begin_pair(BYTES);
  create_others(others);
  library_calls();
  for (int i = 0; i < 2; i++) CHECK_CODE(nexarSuccess, nexarCommAbort(others[i]));
  own_calls();
  CHECK_CODE(nexarSuccess, all_reduce(0));
  create_and_end_others();
  CHECK_CODE(nexarSuccess, all_reduce(1));
  for (int i = 0; i < 2; i++) check_drained(&ranks[i]);
  for (int i = 0; i < 2; i++) end(i, nexarCommDestroy);
  CHECK_EQ(0, fakecuda_report_leaks());
}
static void a_communicator_that_reuses_memory_waits_for_no_stream(void) {
  ends_others = nexarCommAbort;
  in_a_process("ALLOC_SYNC=all", reuse_memory_beside_a_stream_that_waits);
  ends_others = nexarCommDestroy;
  in_a_process("ALLOC_SYNC=all", reuse_memory_beside_a_stream_that_waits);
}

static void abort_before_the_stream_reaches_the_call(void) {
  begin_pair(BYTES);
  size_t of_all = fakecuda_pinned_bytes();
  uint64_t hold = fakecuda_hold(ranks[0].stream);
  for (int i = 0; i < 2; i++) CHECK_CODE(nexarSuccess, all_reduce(i));
  for (int i = 0; i < 2; i++) end(i, nexarCommAbort);
  CHECK_EQ(of_all, fakecuda_pinned_bytes());
  make_pair();
  CHECK_EQ(of_all + of_all / 2, fakecuda_pinned_bytes());
  fakecuda_release(hold);
  for (int i = 0; i < 2; i++) end(i, nexarCommDestroy);
  end_pair_and_go_on();
}
static void memory_that_a_stream_will_still_use_is_not_reused(void) {
  in_a_process("ALLOC_SYNC=off", abort_before_the_stream_reaches_the_call);
}

/* Like a program that resets its device between two communicators. */
static void reset_between_two(void) {
  begin_pair(BYTES);
  for (int i = 0; i < 2; i++) CHECK_CODE(nexarSuccess, all_reduce(i));
  for (int i = 0; i < 2; i++) check_drained(&ranks[i]);
  for (int i = 0; i < 2; i++) end(i, nexarCommAbort);
  CHECK_EQ(2, fakecuda_live(FAKECUDA_PINNED_MEMORY));
  for (int i = 0; i < 2; i++) fakecuda_drop_pinned(i);
  end_pair_and_go_on();
}
static void freed_memory_is_not_reused(void) { in_a_process("", reset_between_two); }

/* A thread allocates, and the driver waits for work of the program on the device. */
static nexarComm_t third;
static atomic_bool third_is_created;

static void *create_third(void *unused) {
  static const int device = 0;
  (void)unused;
  CHECK_CODE(nexarSuccess, nexarCommInitAll(&third, 1, &device));
  atomic_store(&third_is_created, true);
  return NULL;
}

static void call_beside_an_allocation(void) {
  nexarComm_t others[2], unused[2];
  pthread_t thread;
  ends_others = nexarCommAbort;
  begin_pair(BYTES);
  create_others(others);
  create_others(unused);
  uint64_t hold = fakecuda_hold(ranks[0].stream);
  fakecuda_reset_calls();
  CHECK_EQ(0, pthread_create(&thread, NULL, create_third, NULL));
  while (!fakecuda_calls("cuMemHostAlloc")) sched_yield();
  reduce_small(others);
  end_others(unused);
  library_calls();
  CHECK_CODE(nexarSuccess, nexarCommDestroy(others[0]));
  CHECK_CODE(nexarSuccess, nexarCommDestroy(others[1]));
  own_calls();
  CHECK(!atomic_load(&third_is_created));
  fakecuda_release(hold);
  CHECK_EQ(0, pthread_join(thread, NULL));
  library_calls();
  CHECK_CODE(nexarSuccess, nexarCommDestroy(third));
  own_calls();
  for (int i = 0; i < 2; i++) end(i, nexarCommDestroy);
  CHECK_EQ(0, fakecuda_report_leaks());
}
static void an_allocation_that_waits_for_the_program_blocks_no_other_thread(void) {
  in_a_process("ALLOC_SYNC=library", call_beside_an_allocation);
}

/* A call that has no memory yet, or has just got it, while its communicator is aborted. */
static void *reduce_on_first_of(void *others) {
  void *small = device_pointer(ranks[0].small);
  (void)nexarAllReduce(small, small, SMALL_COUNT, nexarUint32, nexarSum, ((nexarComm_t *)others)[0],
                       ranks[0].other);
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
    create_others(others);
    CHECK_EQ(0, pthread_create(&thread, NULL, reduce_on_first_of, others));
    CHECK_CODE(nexarSuccess, all_reduce(1));
    end_others(others);
    CHECK_EQ(0, pthread_join(thread, NULL));
    for (int i = 0; i < 2; i++) OK(cuStreamSynchronize(ranks[i].stream));
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
      CASE(a_communicator_that_reuses_memory_waits_for_no_stream),
      CASE(memory_that_a_stream_will_still_use_is_not_reused),
      CASE(freed_memory_is_not_reused),
      CASE(an_allocation_that_waits_for_the_program_blocks_no_other_thread),
      CASE(an_abort_beside_a_call_without_memory_loses_none),
  };
  return RUN(cases);
}
