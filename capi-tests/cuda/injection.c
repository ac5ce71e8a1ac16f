/*
 * A failure at every call of the driver that the library makes, in every operation between two
 * ranks, on one of them. The operation returns success and the right result, or an error that names
 * the call of the driver; the other rank gets the error; all streams go on; nothing leaks; then a
 * new communicator works.
 *
 * A run is one operation with one failure. A run without a failure counts the calls of the driver.
 */
#include "injection.h"
#include "two_rank_operations.h"

/* Shared by the two ranks if they are threads. */
static pthread_barrier_t both;
static nexarComm_t fresh[2];
static atomic_uint shared_word;

/* The calls of the driver that rank 0 makes in the operation. */
static struct driver_calls calls;

static void await_both(void) {
  if (ranks_are_processes()) CHECK_CODE(nexarSuccess, nexarBarrier(world, NULL));
  else pthread_barrier_wait(&both);
}

/* Collective: returns the word of rank 0. */
static unsigned from_rank_0(int rank, unsigned word) {
  uint32_t shared = word;
  if (rank == 0) shared_word = word;
  await_both();
  if (ranks_are_processes())
    CHECK_CODE(nexarSuccess, nexarBcast(&shared, 1, nexarUint32, 0, world, NULL));
  else shared = shared_word;
  await_both();
  return shared;
}

/* Collective: creates a communicator. */
static void join_fresh(struct device_rank *self) {
  library_calls();
  if (ranks_are_processes()) {
    self->comm = join_another(self->rank, self->n, world);
  } else {
    if (self->rank == 0) CHECK_CODE(nexarSuccess, nexarCommInitAll(fresh, 2, NULL));
    await_both();
    self->comm = fresh[self->rank];
    await_both();
  }
  own_calls();
}

/* Executes the operation without a failure and lists the calls of the driver. Calls of rank 1 are
   not listed: they count as the test's own. */
static void count_calls(const struct plan *plan) {
  struct device_rank *self = plan->self;
  put_before(plan);
  await_both();
  if (self->rank == 0) begin_to_list();
  await_both();
  if (self->rank == 0) library_calls();
  nexarResult_t result = call(plan);
  own_calls();
  CHECK_CODE(nexarSuccess, result);
  if (self->rank == 0) list_calls(&calls);
  check_drained(self);
  CHECK(is_as_planned(plan));
  await_both();
}

/* Ends a communicator that has failed, which must not take long. */
static void leave(struct device_rank *self, bool destroys) {
  double before = seconds_now();
  library_calls();
  if (destroys) CHECK_CODE(nexarSuccess, nexarCommDestroy(self->comm));
  else CHECK_CODE(nexarSuccess, nexarCommAbort(self->comm));
  own_calls();
  CHECK_TIME(5, END_GIVES_UP_S, seconds_now() - before);
  self->comm = NULL;
}

/* The failure of a run: the number of the call that fails, "+" if all later calls fail too, and
   their code. */
struct failure {
  unsigned nth;
  const char *plus;
  unsigned code;
};

/* Executes the operation on the rank whose driver fails. Returns whether it succeeded at last. */
static bool fail(const struct plan *plan, struct failure failure) {
  struct device_rank *self = plan->self;
  unsigned depth = fakecuda_context_depth();
  arm(failure.nth, failure.plus, failure.code);
  library_calls();
  nexarResult_t result = call(plan);
  const char *failed = fakecuda_failed_function();
  CHECK(failed);
  if (!*failure.plus) fakecuda_fail(NULL);
  if (result != nexarSuccess && failed) {
    /* nexarGroupEnd has no communicator. */
    nexarComm_t failed_comm = plan->operation->call == group ? NULL : self->comm;
    /* If several calls fail, the error may name any of them; a failed pop is not reported. */
    check_error_names(*failure.plus ? "cu" : failed, failure.code, result, failed_comm);
    /* The operation has not begun: it can be called again. */
    if (!*failure.plus && async_error(self->comm) == nexarSuccess) result = call(plan);
  }
  own_calls();
  bool made = result == nexarSuccess;
  if (!failed) CHECK_CODE(nexarSuccess, result);
  if (made) CHECK_CODE(nexarSuccess, async_error(self->comm));
  else leave(self, failure.nth % 2);
  fakecuda_fail(NULL);
  bool stays = *failure.plus || (failed && strcmp(failed, "cuCtxPopCurrent_v2") == 0);
  restore_contexts(depth, stays);
  return made;
}

static void run(const struct plan *plan, struct failure failure) {
  struct device_rank *self = plan->self;
  int failures = check_failures;
  if (self->rank == 0)
    begin_run(plan->operation->name, &calls, failure.nth, failure.plus, failure.code);
  if (!self->comm) join_fresh(self);
  check_it_works_on(self, self->other);
  put_before(plan);
  await_both();
  nexarResult_t result = nexarSuccess;
  bool made = self->rank == 0 && fail(plan, failure);
  if (self->rank == 1) result = call(plan);
  check_drained(self);
  /* A wrong result always comes with an error. */
  bool right = is_as_planned(plan);
  if (self->rank == 1 && !right && result == nexarSuccess)
    CHECK(async_error(self->comm) != nexarSuccess);
  made = from_rank_0(self->rank, made);
  if (made) CHECK(right);
  if (result != nexarSuccess)
    CHECK(!made && (result == nexarRemoteError || result == nexarUnhandledCudaError));
  if (self->rank == 1 && !made) {
    /* This rank may have its result and not know of the failure yet. */
    while (async_error(self->comm) == nexarSuccess) usleep(100);
    CHECK_TEXT(nexarGetLastError(self->comm), "rank 0");
    leave(self, failure.nth / 2 % 2);
  }
  check_drained(self);
  if (check_failures > failures) fprintf(stderr, "    rank %d in %s\n", self->rank, progress_at);
  await_both();
}

static void run_all(struct device_rank *self, const struct operation *operation, const char *plus) {
  static unsigned last; /* index of the last code, on rank 0 */
  struct driver_objects before = driver_objects();
  join_fresh(self);
  struct plan plan = plan_on_host(operation, self);
  check_it_works_on(self, self->other);
  count_calls(&plan);
  unsigned count = from_rank_0(self->rank, calls.count);
  /* If all later calls fail, nothing can be released: a few of these runs are enough. */
  for (unsigned nth = 1; nth <= count && can_go_on(); nth += *plus ? 7 : 1)
    run(&plan, (struct failure){nth, plus, codes[last++ % COUNT_OF(codes)]});
  /* Memory that an abort has kept is freed when the next communicator is destroyed. */
  if (!self->comm) join_fresh(self);
  leave(self, true);
  await_both();
  if (self->rank == 0 && !*plus) check_no_leak(before, operation->name);
  forget(&plan);
}

struct choice {
  const struct operation *operations;
  size_t count, bytes;
  const char *plus;
};

static void run_choice(int rank, int n, nexarComm_t comm, void *arg) {
  const struct choice *choice = arg;
  (void)comm;
  struct device_rank self = take_device(rank, n, ranks_are_processes() ? 0 : rank, choice->bytes);
  for (size_t i = 0; i < choice->count; i++) run_all(&self, &choice->operations[i], choice->plus);
  give_back_device(&self);
}

static void run_on_two(struct choice choice) {
  pthread_barrier_init(&both, NULL, 2);
  run_ranks(2, run_choice, &choice);
  pthread_barrier_destroy(&both);
}

static void a_failure_at_any_call_of_any_operation_is_reported_and_no_rank_hangs(void) {
  if (!can_share_memory()) return;
  run_on_two((struct choice){operations, COUNT_OF(operations), SMALL, ""});
}

static void a_failure_between_any_two_pieces_is_reported_and_no_rank_hangs(void) {
  if (!can_share_memory()) return;
  run_on_two((struct choice){large_operations, COUNT_OF(large_operations), LARGE, ""});
}

static void between_processes_a_failure_at_any_call_is_reported_and_no_rank_hangs(void) {
  const struct operation some[] = {ENTRY(all_reduce, SMALL), ENTRY(send, SMALL)};
  run_on_two((struct choice){some, COUNT_OF(some), SMALL, ""});
}

static void no_rank_hangs_if_a_driver_fails_from_some_call_on(void) {
  if (!can_share_memory()) return;
  const struct operation some[] = {ENTRY(group, SMALL), ENTRY(all_reduce, SMALL)};
  run_on_two((struct choice){some, COUNT_OF(some), SMALL, "+"});
}

int main(void) {
  static const struct test_case cases[] = {
      CASE(a_failure_at_any_call_of_any_operation_is_reported_and_no_rank_hangs),
      CASE(a_failure_between_any_two_pieces_is_reported_and_no_rank_hangs),
      CASE(between_processes_a_failure_at_any_call_is_reported_and_no_rank_hangs),
      CASE(no_rank_hangs_if_a_driver_fails_from_some_call_on),
  };
  count_queries_once();
  int failed = RUN(cases);
  printf("injection: %d runs\n", *runs());
  return failed;
}
