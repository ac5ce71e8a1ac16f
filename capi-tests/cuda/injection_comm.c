/*
 * A failure at every call of the driver that the library makes while a communicator is made, is
 * given a device by its first call, is split, or is destroyed. The call returns, with success or an
 * error that names the call of the driver; what it had got is given back; and then communicators
 * are made and work as ever.
 *
 * Each case has processes of its own: some things are found out once in a process.
 */
#include "injection.h"
#include "processes.h"

enum { BYTES = 4096, NO_SUCH_CALL = 77 };

/* What fails to give something back leaves it. */
static bool gives_back(const struct driver_calls *calls, unsigned nth) {
  static const char *const names[] = {"cuMemFreeHost", "cuStreamDestroy_v2", "cuEventDestroy_v2",
                                      "cuDevicePrimaryCtxRelease_v2"};
  for (size_t i = 0; i < COUNT_OF(names); i++)
    if (is_call(calls, nth, names[i])) return true;
  return false;
}

static nexarResult_t make(struct side *side) {
  nexarUniqueId id;
  CHECK_CODE(nexarSuccess, nexarGetUniqueId(&id));
  return nexarCommInitRank(&side->comm, side->n, id, side->rank);
}

static void make_and_use(struct side *side) {
  library_calls();
  CHECK_CODE(nexarSuccess, make(side));
  own_calls();
  check_it_works_on(side, side->stream);
}

static void destroy(struct side *side) {
  library_calls();
  CHECK_CODE(nexarSuccess, nexarCommDestroy(side->comm));
  own_calls();
  side->comm = NULL;
}

/* Arms, makes the call, and tells whether there was such a call. */
static nexarResult_t make_with_failure(struct side *side, struct driver_calls *calls, unsigned nth,
                                       unsigned code) {
  begin_to_list();
  arm(nth, "", code);
  library_calls();
  nexarResult_t result = make(side);
  own_calls();
  bool failed = fakecuda_failed() > 0;
  fakecuda_fail(NULL);
  list_calls(calls);
  if (!failed) calls->count = 0;
  return result;
}

/* A driver that could not be begun counts as none. */
static void check_without_driver(struct side *side) {
  int32_t data = 5;
  CHECK_CODE(nexarSuccess, nexarAllReduce(&data, &data, 1, nexarInt32, nexarSum, side->comm, NULL));
  CHECK_EQ(5, data);
  CHECK_CODE(nexarInvalidArgument, nexarBarrier(side->comm, side->stream));
  CHECK_TEXT(nexarGetLastError(side->comm), "stream");
  CHECK_CODE(nexarSuccess, nexarCommDestroy(side->comm));
}

static unsigned chosen;

static void make_the_first_with_a_failure(void) {
  static struct driver_calls calls;
  unsigned code = codes[chosen % COUNT_OF(codes)], depth;
  struct side side = take_device(0, 1, 0, BYTES);
  struct belongings before = belongings();
  depth = fakecuda_context_depth();
  nexarResult_t result = make_with_failure(&side, &calls, chosen, code);
  if (!calls.count) exit(NO_SUCH_CALL);
  begin_run("the first", &calls, chosen, "", code);
  restore_contexts(depth, is_call(&calls, chosen, "cuCtxPopCurrent_v2"));
  bool no_driver = is_call(&calls, chosen, "cuInit") || is_call(&calls, chosen, "cuDeviceGetCount");
  if (no_driver) {
    CHECK_CODE(nexarSuccess, result);
    check_without_driver(&side);
    return;
  }
  if (result != nexarSuccess) {
    check_told(call_name(&calls, chosen), code, result, NULL);
    CHECK(side.comm == NULL);
    make_and_use(&side);
  }
  check_it_works_on(&side, side.stream);
  destroy(&side);
  if (!gives_back(&calls, chosen)) check_given_back(before, progress_at);
}

static void a_failure_at_any_call_while_the_first_communicator_is_made_is_told_or_overcome(void) {
  runs();
  struct ended ended = {.status = 0};
  for (chosen = 1; ended.status == 0 && chosen < MOST_CALLS; chosen++) {
    ended = run_child("", make_the_first_with_a_failure);
    if (ended.status && WEXITSTATUS(ended.status) != NO_SUCH_CALL) {
      check_failed(__FILE__, __LINE__, "call %u: status %d: %s", chosen, ended.status,
                   ended.stderr_text);
      ended.status = 0;
    }
  }
  CHECK(chosen > 20);
}

static void make_later_ones_with_failures(void) {
  static struct driver_calls calls;
  struct side side = take_device(0, 1, 0, BYTES);
  make_and_use(&side);
  destroy(&side);
  struct belongings before = belongings();
  unsigned depth = fakecuda_context_depth();
  for (unsigned nth = 1; can_go_on(); nth++) {
    unsigned code = codes[nth % COUNT_OF(codes)];
    nexarResult_t result = make_with_failure(&side, &calls, nth, code);
    if (calls.count) begin_run("a later one", &calls, nth, "", code);
    restore_contexts(depth, calls.count && is_call(&calls, nth, "cuCtxPopCurrent_v2"));
    if (result == nexarSuccess) check_it_works_on(&side, side.stream);
    else check_told(call_name(&calls, nth), code, result, NULL);
    if (result == nexarSuccess) destroy(&side);
    if (!calls.count) break;
    if (!gives_back(&calls, nth)) check_given_back(before, progress_at);
    before = belongings();
  }
  make_and_use(&side);
  destroy(&side);
  give_back_device(&side);
}

static void a_failure_at_any_call_while_a_communicator_is_made_is_told_and_loses_nothing(void) {
  runs();
  in_a_process("", make_later_ones_with_failures);
}

/* All ranks of a process at once: the failure is that of any of their devices. */
static void make_all_with_failures(void) {
  enum { RANKS = 3 };
  static struct driver_calls calls;
  nexarComm_t all[RANKS];
  own_calls();
  OK(cuInit(0));
  library_calls();
  CHECK_CODE(nexarSuccess, nexarCommInitAll(all, RANKS, NULL));
  for (int i = 0; i < RANKS; i++) CHECK_CODE(nexarSuccess, nexarCommDestroy(all[i]));
  unsigned nth = 0, depth = fakecuda_context_depth();
  do {
    unsigned code = codes[++nth % COUNT_OF(codes)];
    struct belongings before = belongings();
    begin_to_list();
    arm(nth, "", code);
    nexarResult_t result = nexarCommInitAll(all, RANKS, NULL);
    const char *failed = fakecuda_failed_function();
    fakecuda_fail(NULL);
    list_calls(&calls);
    if (!failed) calls.count = 0;
    else begin_run("all of a process", &calls, nth, "", code);
    restore_contexts(depth, failed && is_call(&calls, nth, "cuCtxPopCurrent_v2"));
    if (result != nexarSuccess) check_told(failed, code, result, NULL);
    for (int i = 0; result == nexarSuccess && i < RANKS; i++)
      CHECK_CODE(nexarSuccess, nexarCommDestroy(all[i]));
    if (failed && !gives_back(&calls, nth)) check_given_back(before, progress_at);
  } while (calls.count && can_go_on());
  CHECK(nth > 20);
}

static void a_failure_at_any_call_while_all_of_a_process_are_made_is_told_and_loses_nothing(void) {
  runs();
  in_a_process("DEVICES=3", make_all_with_failures);
}

/* A communicator is made before the program uses CUDA; its first call gives it a device. */
static void come_late_with_failures(void) {
  static struct driver_calls calls;
  unsigned count = 1;
  for (unsigned nth = 0; nth <= count && can_go_on(); nth++) {
    unsigned code = codes[nth % COUNT_OF(codes)];
    struct side side = {.n = 1};
    nexarComm_t comm;
    library_calls();
    CHECK_CODE(nexarSuccess, make(&side));
    own_calls();
    comm = side.comm;
    side = take_device(0, 1, 0, BYTES);
    side.comm = comm;
    struct belongings before = belongings();
    unsigned depth = fakecuda_context_depth();
    void *data = device_pointer(side.send);
    bool warms_up = nth == 0 && calls.count == 0;
    begin_to_list();
    if (nth > 0) arm(nth, "", code);
    library_calls();
    nexarResult_t result =
        nexarAllReduce(data, data, BYTES / 4, nexarUint32, nexarSum, comm, side.stream);
    bool failed = fakecuda_failed() > 0;
    fakecuda_fail(NULL);
    own_calls();
    if (nth == 0) {
      CHECK_CODE(nexarSuccess, result);
      list_calls(&calls);
      count = calls.count;
      if (warms_up) nth--; /* the first also found out what the streams can do */
    } else {
      CHECK(failed);
      begin_run("a device that comes late", &calls, nth, "", code);
      restore_contexts(depth, is_call(&calls, nth, "cuCtxPopCurrent_v2"));
      if (result != nexarSuccess) check_told(call_name(&calls, nth), code, result, comm);
    }
    check_drained(&side);
    bool healthy = async_error(comm) == nexarSuccess;
    if (healthy) check_it_works_on(&side, side.other);
    destroy(&side);
    if (nth > 0 && nth <= count && !gives_back(&calls, nth))
      CHECK_EQ(before.of[FAKECUDA_PINNED_MEMORY], fakecuda_live(FAKECUDA_PINNED_MEMORY));
    give_back_device(&side);
    CHECK_EQ(before.of[FAKECUDA_EVENT], fakecuda_live(FAKECUDA_EVENT));
  }
}

static void a_failure_at_any_call_while_a_communicator_gets_its_device_late_is_told(void) {
  runs();
  in_a_process("", come_late_with_failures);
}

/* Destroying, and aborting, which frees nothing. */

static nexarResult_t (*ends)(nexarComm_t);

static void end_with_failures(void) {
  static struct driver_calls calls;
  unsigned count = 1;
  struct side side = take_device(0, 1, 0, BYTES);
  unsigned depth = fakecuda_context_depth();
  for (unsigned nth = 0; nth <= count && can_go_on(); nth++) {
    unsigned code = codes[nth % COUNT_OF(codes)];
    make_and_use(&side);
    begin_to_list();
    if (nth > 0) arm(nth, "", code);
    library_calls();
    nexarResult_t result = ends(side.comm);
    own_calls();
    bool failed = fakecuda_failed() > 0;
    fakecuda_fail(NULL);
    CHECK_CODE(nexarSuccess, result);
    if (nth == 0) {
      list_calls(&calls);
      count = calls.count;
    } else {
      CHECK(failed);
      begin_run("an end", &calls, nth, "", code);
      restore_contexts(depth, is_call(&calls, nth, "cuCtxPopCurrent_v2"));
    }
    check_drained(&side);
  }
  make_and_use(&side);
  destroy(&side);
}

static void a_failure_at_any_call_while_a_communicator_ends_is_of_no_consequence(void) {
  runs();
  ends = nexarCommDestroy;
  in_a_process("", end_with_failures);
  ends = nexarCommAbort;
  in_a_process("", end_with_failures);
}

/* Splitting, between two ranks that are threads; the first one fails. */

static pthread_barrier_t both;
static nexarComm_t whole[2];
static struct driver_calls split_calls;
static atomic_bool over;

/* The other rank has a part whose first rank may have failed: whatever it calls ends. */
static void use_part(struct side *side, nexarComm_t part, bool whole_part) {
  void *data = device_pointer(side->send);
  side->comm = part;
  if (whole_part) {
    check_it_works_on(side, side->stream);
    return;
  }
  nexarResult_t result =
      nexarAllReduce(data, data, BYTES / 4, nexarUint32, nexarSum, part, side->stream);
  check_drained(side);
  CHECK(result != nexarSuccess || async_error(part) != nexarSuccess);
}

static void split_once(struct side *side, unsigned nth, unsigned code) {
  static atomic_bool rank_0_made;
  nexarComm_t part = NULL, whole_comm = whole[side->rank];
  unsigned depth = fakecuda_context_depth();
  pthread_barrier_wait(&both);
  if (side->rank == 0) {
    begin_to_list();
    if (nth > 0) arm(nth, "", code);
    library_calls();
  }
  nexarResult_t result = nexarCommSplit(whole_comm, 0, side->rank, &part, NULL);
  if (side->rank == 0) {
    own_calls();
    bool failed = fakecuda_failed() > 0;
    fakecuda_fail(NULL);
    if (nth == 0) list_calls(&split_calls);
    else CHECK(failed);
    if (nth > 0) {
      begin_run("a split", &split_calls, nth, "", code);
      const char *function = call_name(&split_calls, nth);
      if (result != nexarSuccess) check_told(function, code, result, whole_comm);
      restore_contexts(depth, is_call(&split_calls, nth, "cuCtxPopCurrent_v2"));
    } else CHECK_CODE(nexarSuccess, result);
    CHECK((result == nexarSuccess) == (part != NULL));
    rank_0_made = part != NULL;
  }
  pthread_barrier_wait(&both);
  if (part) {
    use_part(side, part, rank_0_made);
    library_calls();
    CHECK_CODE(nexarSuccess, nexarCommDestroy(part));
    own_calls();
  }
  pthread_barrier_wait(&both);
  /* The communicator that was split is as before. */
  CHECK_CODE(nexarSuccess, async_error(whole_comm));
  side->comm = whole_comm;
  check_it_works_on(side, side->other);
}

static void split_with_failures_on(int rank, int n, nexarComm_t comm, void *arg) {
  (void)comm, (void)arg;
  struct side side = take_device(rank, n, rank, BYTES);
  pthread_barrier_wait(&both);
  library_calls();
  if (rank == 0) CHECK_CODE(nexarSuccess, nexarCommInitAll(whole, 2, NULL));
  own_calls();
  pthread_barrier_wait(&both);
  split_once(&side, 0, 0);
  for (unsigned nth = 1; !over; nth++) {
    split_once(&side, nth, codes[nth % COUNT_OF(codes)]);
    pthread_barrier_wait(&both);
    if (rank == 0) over = nth >= split_calls.count || !can_go_on();
    pthread_barrier_wait(&both);
  }
  library_calls();
  CHECK_CODE(nexarSuccess, nexarCommDestroy(whole[rank]));
  own_calls();
}

static void split_with_failures(void) {
  pthread_barrier_init(&both, NULL, 2);
  run_threads(2, NULL, split_with_failures_on, NULL);
}

static void a_failure_at_any_call_of_a_split_is_told_and_the_whole_goes_on(void) {
  runs();
  in_a_process("", split_with_failures);
}

int main(void) {
  static const struct test_case cases[] = {
      CASE(a_failure_at_any_call_while_the_first_communicator_is_made_is_told_or_overcome),
      CASE(a_failure_at_any_call_while_a_communicator_is_made_is_told_and_loses_nothing),
      CASE(a_failure_at_any_call_while_all_of_a_process_are_made_is_told_and_loses_nothing),
      CASE(a_failure_at_any_call_while_a_communicator_gets_its_device_late_is_told),
      CASE(a_failure_at_any_call_while_a_communicator_ends_is_of_no_consequence),
      CASE(a_failure_at_any_call_of_a_split_is_told_and_the_whole_goes_on),
  };
  count_questions_once();
  int failed = RUN(cases);
  printf("injection: %d runs\n", *runs());
  return failed;
}
