/*
 * A failure at every call of the driver that the library makes while a communicator is created,
 * gets a device in its first call, is split, or ends. The call of nexar returns success, or an
 * error that names the call of the driver; it leaks nothing; then communicators can be created and
 * work.
 *
 * Each case has its own processes, because the library finds out some things once in a process.
 */
#include "injection.h"
#include "processes.h"

enum { BYTES = 4096, NO_SUCH_CALL = 77 };

/* Whether the call releases an object: if it fails, the object leaks. */
static bool releases(const struct driver_calls *calls, unsigned nth) {
  static const char *const names[] = {"cuMemFreeHost", "cuStreamDestroy_v2", "cuEventDestroy_v2",
                                      "cuDevicePrimaryCtxRelease_v2"};
  for (size_t i = 0; i < COUNT_OF(names); i++)
    if (is_call(calls, nth, names[i])) return true;
  return false;
}

static nexarResult_t create(struct device_rank *self) {
  nexarUniqueId id;
  CHECK_CODE(nexarSuccess, nexarGetUniqueId(&id));
  return nexarCommInitRank(&self->comm, self->n, id, self->rank);
}

static void create_and_use(struct device_rank *self) {
  library_calls();
  CHECK_CODE(nexarSuccess, create(self));
  own_calls();
  check_it_works_on(self, self->stream);
}

static void destroy(struct device_rank *self) {
  library_calls();
  CHECK_CODE(nexarSuccess, nexarCommDestroy(self->comm));
  own_calls();
  self->comm = NULL;
}

/* Creates a communicator while the nth call of the driver fails. Lists the calls; none if there
   was no nth call. */
static nexarResult_t create_with_failure(struct device_rank *self, struct driver_calls *calls,
                                         unsigned nth, unsigned code) {
  begin_to_list();
  arm(nth, "", code);
  library_calls();
  nexarResult_t result = create(self);
  own_calls();
  bool failed = fakecuda_failed() > 0;
  fakecuda_fail(NULL);
  list_calls(calls);
  if (!failed) calls->count = 0;
  return result;
}

/* A driver that could not be initialized counts as none. */
static void check_without_driver(struct device_rank *self) {
  int32_t data = 5;
  CHECK_CODE(nexarSuccess, nexarAllReduce(&data, &data, 1, nexarInt32, nexarSum, self->comm, NULL));
  CHECK_EQ(5, data);
  CHECK_CODE(nexarInvalidArgument, nexarBarrier(self->comm, self->stream));
  CHECK_TEXT(nexarGetLastError(self->comm), "stream");
  CHECK_CODE(nexarSuccess, nexarCommDestroy(self->comm));
}

static unsigned chosen;

static void create_the_first_with_a_failure(void) {
  static struct driver_calls calls;
  unsigned code = codes[chosen % COUNT_OF(codes)], depth;
  struct device_rank self = take_device(0, 1, 0, BYTES);
  struct driver_objects before = driver_objects();
  depth = fakecuda_context_depth();
  nexarResult_t result = create_with_failure(&self, &calls, chosen, code);
  if (!calls.count) exit(NO_SUCH_CALL);
  begin_run("the first", &calls, chosen, "", code);
  restore_contexts(depth, is_call(&calls, chosen, "cuCtxPopCurrent_v2"));
  bool no_driver = is_call(&calls, chosen, "cuInit") || is_call(&calls, chosen, "cuDeviceGetCount");
  if (no_driver) {
    CHECK_CODE(nexarSuccess, result);
    check_without_driver(&self);
    return;
  }
  if (result != nexarSuccess) {
    check_error_names(call_name(&calls, chosen), code, result, NULL);
    CHECK(self.comm == NULL);
    create_and_use(&self);
  }
  check_it_works_on(&self, self.stream);
  destroy(&self);
  if (!releases(&calls, chosen)) check_no_leak(before, progress_at);
}

static void a_failure_while_the_first_communicator_is_created_is_reported_or_overcome(void) {
  runs();
  struct ended ended = {.status = 0};
  for (chosen = 1; ended.status == 0 && chosen < MOST_CALLS; chosen++) {
    ended = run_child("", create_the_first_with_a_failure);
    if (ended.status && WEXITSTATUS(ended.status) != NO_SUCH_CALL) {
      check_failed(__FILE__, __LINE__, "call %u: status %d: %s", chosen, ended.status,
                   ended.stderr_text);
      ended.status = 0;
    }
  }
  CHECK(chosen > 20);
}

static void create_later_ones_with_failures(void) {
  static struct driver_calls calls;
  struct device_rank self = take_device(0, 1, 0, BYTES);
  create_and_use(&self);
  destroy(&self);
  struct driver_objects before = driver_objects();
  unsigned depth = fakecuda_context_depth();
  for (unsigned nth = 1; can_go_on(); nth++) {
    unsigned code = codes[nth % COUNT_OF(codes)];
    nexarResult_t result = create_with_failure(&self, &calls, nth, code);
    if (calls.count) begin_run("a later one", &calls, nth, "", code);
    restore_contexts(depth, calls.count && is_call(&calls, nth, "cuCtxPopCurrent_v2"));
    if (result == nexarSuccess) check_it_works_on(&self, self.stream);
    else check_error_names(call_name(&calls, nth), code, result, NULL);
    if (result == nexarSuccess) destroy(&self);
    if (!calls.count) break;
    if (!releases(&calls, nth)) check_no_leak(before, progress_at);
    before = driver_objects();
  }
  create_and_use(&self);
  destroy(&self);
  give_back_device(&self);
}

static void a_failure_while_a_communicator_is_created_is_reported_and_leaks_nothing(void) {
  runs();
  in_a_process("", create_later_ones_with_failures);
}

/* Creates all ranks of a process at once: the failure may be on any of their devices. */
static void create_all_with_failures(void) {
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
    struct driver_objects before = driver_objects();
    begin_to_list();
    arm(nth, "", code);
    nexarResult_t result = nexarCommInitAll(all, RANKS, NULL);
    const char *failed = fakecuda_failed_function();
    fakecuda_fail(NULL);
    list_calls(&calls);
    if (!failed) calls.count = 0;
    else begin_run("all of a process", &calls, nth, "", code);
    restore_contexts(depth, failed && is_call(&calls, nth, "cuCtxPopCurrent_v2"));
    if (result != nexarSuccess) check_error_names(failed, code, result, NULL);
    for (int i = 0; result == nexarSuccess && i < RANKS; i++)
      CHECK_CODE(nexarSuccess, nexarCommDestroy(all[i]));
    if (failed && !releases(&calls, nth)) check_no_leak(before, progress_at);
  } while (calls.count && can_go_on());
  CHECK(nth > 20);
}

static void a_failure_while_all_of_a_process_are_created_is_reported_and_leaks_nothing(void) {
  runs();
  in_a_process("DEVICES=3", create_all_with_failures);
}

/* A communicator is created before the program uses CUDA, and gets its device in its first call. */
static void get_device_late_with_failures(void) {
  static struct driver_calls calls;
  unsigned count = 1;
  for (unsigned nth = 0; nth <= count && can_go_on(); nth++) {
    unsigned code = codes[nth % COUNT_OF(codes)];
    struct device_rank self = {.n = 1};
    nexarComm_t comm;
    library_calls();
    CHECK_CODE(nexarSuccess, create(&self));
    own_calls();
    comm = self.comm;
    self = take_device(0, 1, 0, BYTES);
    self.comm = comm;
    struct driver_objects before = driver_objects();
    unsigned depth = fakecuda_context_depth();
    void *data = device_pointer(self.send);
    bool warms_up = nth == 0 && calls.count == 0;
    begin_to_list();
    if (nth > 0) arm(nth, "", code);
    library_calls();
    nexarResult_t result =
        nexarAllReduce(data, data, BYTES / 4, nexarUint32, nexarSum, comm, self.stream);
    bool failed = fakecuda_failed() > 0;
    fakecuda_fail(NULL);
    own_calls();
    if (nth == 0) {
      CHECK_CODE(nexarSuccess, result);
      list_calls(&calls);
      count = calls.count;
      if (warms_up) nth--; /* the first call also tries the memory operations of streams */
    } else {
      CHECK(failed);
      begin_run("a device in the first call", &calls, nth, "", code);
      restore_contexts(depth, is_call(&calls, nth, "cuCtxPopCurrent_v2"));
      if (result != nexarSuccess) check_error_names(call_name(&calls, nth), code, result, comm);
    }
    check_drained(&self);
    bool healthy = async_error(comm) == nexarSuccess;
    if (healthy) check_it_works_on(&self, self.other);
    destroy(&self);
    if (nth > 0 && nth <= count && !releases(&calls, nth))
      CHECK_EQ(before.of[FAKECUDA_PINNED_MEMORY], fakecuda_live(FAKECUDA_PINNED_MEMORY));
    give_back_device(&self);
    CHECK_EQ(before.of[FAKECUDA_EVENT], fakecuda_live(FAKECUDA_EVENT));
  }
}

static void a_failure_at_any_call_while_a_communicator_gets_its_device_late_is_reported(void) {
  runs();
  in_a_process("", get_device_late_with_failures);
}

/* Destroying, and aborting, which frees no memory. */

static nexarResult_t (*ends)(nexarComm_t);

static void end_with_failures(void) {
  static struct driver_calls calls;
  unsigned count = 1;
  struct device_rank self = take_device(0, 1, 0, BYTES);
  unsigned depth = fakecuda_context_depth();
  for (unsigned nth = 0; nth <= count && can_go_on(); nth++) {
    unsigned code = codes[nth % COUNT_OF(codes)];
    create_and_use(&self);
    begin_to_list();
    if (nth > 0) arm(nth, "", code);
    library_calls();
    nexarResult_t result = ends(self.comm);
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
    check_drained(&self);
  }
  create_and_use(&self);
  destroy(&self);
}

static void a_failure_at_any_call_while_a_communicator_ends_is_of_no_consequence(void) {
  runs();
  ends = nexarCommDestroy;
  in_a_process("", end_with_failures);
  ends = nexarCommAbort;
  in_a_process("", end_with_failures);
}

/* Splits of two ranks that are threads. Rank 0 fails. */

static pthread_barrier_t both;
static nexarComm_t parents[2];
static struct driver_calls split_calls;
static atomic_bool over;

/* Uses the new communicator of a split, of which rank 0 may have failed: every call ends. */
static void use_part(struct device_rank *self, nexarComm_t part, bool is_complete) {
  void *data = device_pointer(self->send);
  self->comm = part;
  if (is_complete) {
    check_it_works_on(self, self->stream);
    return;
  }
  nexarResult_t result =
      nexarAllReduce(data, data, BYTES / 4, nexarUint32, nexarSum, part, self->stream);
  check_drained(self);
  CHECK(result != nexarSuccess || async_error(part) != nexarSuccess);
}

static void split_once(struct device_rank *self, unsigned nth, unsigned code) {
  static atomic_bool rank_0_succeeded;
  nexarComm_t part = NULL, parent = parents[self->rank];
  unsigned depth = fakecuda_context_depth();
  pthread_barrier_wait(&both);
  if (self->rank == 0) {
    begin_to_list();
    if (nth > 0) arm(nth, "", code);
    library_calls();
  }
  nexarResult_t result = nexarCommSplit(parent, 0, self->rank, &part, NULL);
  if (self->rank == 0) {
    own_calls();
    bool failed = fakecuda_failed() > 0;
    fakecuda_fail(NULL);
    if (nth == 0) list_calls(&split_calls);
    else CHECK(failed);
    if (nth > 0) {
      begin_run("a split", &split_calls, nth, "", code);
      const char *function = call_name(&split_calls, nth);
      if (result != nexarSuccess) check_error_names(function, code, result, parent);
      restore_contexts(depth, is_call(&split_calls, nth, "cuCtxPopCurrent_v2"));
    } else CHECK_CODE(nexarSuccess, result);
    CHECK((result == nexarSuccess) == (part != NULL));
    rank_0_succeeded = part != NULL;
  }
  pthread_barrier_wait(&both);
  if (part) {
    use_part(self, part, rank_0_succeeded);
    library_calls();
    CHECK_CODE(nexarSuccess, nexarCommDestroy(part));
    own_calls();
  }
  pthread_barrier_wait(&both);
  /* The parent still works. */
  CHECK_CODE(nexarSuccess, async_error(parent));
  self->comm = parent;
  check_it_works_on(self, self->other);
}

static void split_with_failures_on(int rank, int n, nexarComm_t comm, void *arg) {
  (void)comm, (void)arg;
  struct device_rank self = take_device(rank, n, rank, BYTES);
  pthread_barrier_wait(&both);
  library_calls();
  if (rank == 0) CHECK_CODE(nexarSuccess, nexarCommInitAll(parents, 2, NULL));
  own_calls();
  pthread_barrier_wait(&both);
  split_once(&self, 0, 0);
  for (unsigned nth = 1; !over; nth++) {
    split_once(&self, nth, codes[nth % COUNT_OF(codes)]);
    pthread_barrier_wait(&both);
    if (rank == 0) over = nth >= split_calls.count || !can_go_on();
    pthread_barrier_wait(&both);
  }
  library_calls();
  CHECK_CODE(nexarSuccess, nexarCommDestroy(parents[rank]));
  own_calls();
}

static void split_with_failures(void) {
  pthread_barrier_init(&both, NULL, 2);
  run_threads(2, NULL, split_with_failures_on, NULL);
}

static void a_failure_at_any_call_of_a_split_is_reported_and_the_parent_works_on(void) {
  runs();
  in_a_process("", split_with_failures);
}

int main(void) {
  static const struct test_case cases[] = {
      CASE(a_failure_while_the_first_communicator_is_created_is_reported_or_overcome),
      CASE(a_failure_while_a_communicator_is_created_is_reported_and_leaks_nothing),
      CASE(a_failure_while_all_of_a_process_are_created_is_reported_and_leaks_nothing),
      CASE(a_failure_at_any_call_while_a_communicator_gets_its_device_late_is_reported),
      CASE(a_failure_at_any_call_while_a_communicator_ends_is_of_no_consequence),
      CASE(a_failure_at_any_call_of_a_split_is_reported_and_the_parent_works_on),
  };
  count_queries_once();
  int failed = RUN(cases);
  printf("injection: %d runs\n", *runs());
  return failed;
}
