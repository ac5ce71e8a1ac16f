/*
 * A failure at every call that the library makes of the driver, in every operation, between two
 * ranks of which one fails. The call returns, with success and the right result or with an error
 * that names the call of the driver; the other rank hears of it; all streams go on; nothing is
 * lost; and then a new communicator works.
 *
 * A run is one operation with one failure. Which calls there are is counted in a run without any.
 */
#include "injection.h"
#include "two_rank_operations.h"

/* Worlds of two ranks. */

/* What ranks share if they are threads. */
static pthread_barrier_t both;
static nexarComm_t fresh[2];
static atomic_uint told;

/* Which calls of the driver rank 0 makes in the operation. */
static struct driver_calls calls;

static void meet(void) {
  if (ranks_are_processes()) CHECK_CODE(nexarSuccess, nexarBarrier(world, NULL));
  else pthread_barrier_wait(&both);
}

/* All ranks together: what rank 0 says. */
static unsigned hear(int rank, unsigned word) {
  uint32_t shared = word;
  if (rank == 0) told = word;
  meet();
  if (ranks_are_processes())
    CHECK_CODE(nexarSuccess, nexarBcast(&shared, 1, nexarUint32, 0, world, NULL));
  else shared = told;
  meet();
  return shared;
}

/* All ranks together: a communicator that has not been used. */
static void join_fresh(struct side *side) {
  library_calls();
  if (ranks_are_processes()) {
    side->comm = join_another(side->rank, side->n, world);
  } else {
    if (side->rank == 0) CHECK_CODE(nexarSuccess, nexarCommInitAll(fresh, 2, NULL));
    meet();
    side->comm = fresh[side->rank];
    meet();
  }
  own_calls();
}

/* Without a failure: what calls are made. Those of rank 1 are not counted, as if they were ours. */
static void count_calls(const struct plan *plan) {
  struct side *side = plan->side;
  put_before(plan);
  meet();
  if (side->rank == 0) begin_to_list();
  meet();
  if (side->rank == 0) library_calls();
  nexarResult_t result = call(plan);
  own_calls();
  CHECK_CODE(nexarSuccess, result);
  if (side->rank == 0) list_calls(&calls);
  check_drained(side);
  CHECK(is_as_planned(plan));
  meet();
}

/* Leaves a communicator that is no good any more: soon, whatever has become of it. */
static void leave(struct side *side, bool destroys) {
  double before = seconds_now();
  library_calls();
  if (destroys) CHECK_CODE(nexarSuccess, nexarCommDestroy(side->comm));
  else CHECK_CODE(nexarSuccess, nexarCommAbort(side->comm));
  own_calls();
  CHECK_TIME(5, END_GIVES_UP_S, seconds_now() - before);
  side->comm = NULL;
}

/* A run: the number of the call that fails, "+" if all after it fail too, and their code. */
struct failure {
  unsigned nth;
  const char *plus;
  unsigned code;
};

/* The rank whose driver fails. Whether the operation was made in the end. */
static bool fail(const struct plan *plan, struct failure failure) {
  struct side *side = plan->side;
  unsigned depth = fakecuda_context_depth();
  arm(failure.nth, failure.plus, failure.code);
  library_calls();
  nexarResult_t result = call(plan);
  const char *failed = fakecuda_failed_function();
  CHECK(failed);
  if (!*failure.plus) fakecuda_fail(NULL);
  if (result != nexarSuccess && failed) {
    /* The end of a group is of no communicator. */
    nexarComm_t told_of = plan->operation->call == group ? NULL : side->comm;
    /* If more than one fails, it may be another that is told: a context that stays is no error. */
    check_told(*failure.plus ? "cu" : failed, failure.code, result, told_of);
    /* Nothing has begun: the call can be made again. */
    if (!*failure.plus && async_error(side->comm) == nexarSuccess) result = call(plan);
  }
  own_calls();
  bool made = result == nexarSuccess;
  if (!failed) CHECK_CODE(nexarSuccess, result);
  if (made) CHECK_CODE(nexarSuccess, async_error(side->comm));
  else leave(side, failure.nth % 2);
  fakecuda_fail(NULL);
  bool stays = *failure.plus || (failed && strcmp(failed, "cuCtxPopCurrent_v2") == 0);
  restore_contexts(depth, stays);
  return made;
}

static void run(const struct plan *plan, struct failure failure) {
  struct side *side = plan->side;
  int failures = check_failures;
  if (side->rank == 0)
    begin_run(plan->operation->name, &calls, failure.nth, failure.plus, failure.code);
  if (!side->comm) join_fresh(side);
  check_it_works_on(side, side->other);
  put_before(plan);
  meet();
  nexarResult_t result = nexarSuccess;
  bool made = side->rank == 0 && fail(plan, failure);
  if (side->rank == 1) result = call(plan);
  check_drained(side);
  /* Whatever a rank has got, it is not wrong in silence. */
  bool right = is_as_planned(plan);
  if (side->rank == 1 && !right && result == nexarSuccess)
    CHECK(async_error(side->comm) != nexarSuccess);
  made = hear(side->rank, made);
  if (made) CHECK(right);
  if (result != nexarSuccess)
    CHECK(!made && (result == nexarRemoteError || result == nexarUnhandledCudaError));
  if (side->rank == 1 && !made) {
    /* It may have its result and not have heard yet. */
    while (async_error(side->comm) == nexarSuccess) usleep(100);
    CHECK_TEXT(nexarGetLastError(side->comm), "rank 0");
    leave(side, failure.nth / 2 % 2);
  }
  check_drained(side);
  if (check_failures > failures) fprintf(stderr, "    rank %d in %s\n", side->rank, progress_at);
  meet();
}

static void run_all(struct side *side, const struct operation *operation, const char *plus) {
  static unsigned last; /* code; of rank 0 */
  struct belongings before = belongings();
  join_fresh(side);
  struct plan plan = plan_on_host(operation, side);
  check_it_works_on(side, side->other);
  count_calls(&plan);
  unsigned count = hear(side->rank, calls.count);
  /* What keeps failing gives nothing back: a few of these are enough. */
  for (unsigned nth = 1; nth <= count && can_go_on(); nth += *plus ? 7 : 1)
    run(&plan, (struct failure){nth, plus, codes[last++ % COUNT_OF(codes)]});
  /* What an abort has kept is freed when the next one is destroyed. */
  if (!side->comm) join_fresh(side);
  leave(side, true);
  meet();
  if (side->rank == 0 && !*plus) check_given_back(before, operation->name);
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
  struct side side = take_device(rank, n, ranks_are_processes() ? 0 : rank, choice->bytes);
  for (size_t i = 0; i < choice->count; i++) run_all(&side, &choice->operations[i], choice->plus);
  give_back_device(&side);
}

static void run_on_two(struct choice choice) {
  pthread_barrier_init(&both, NULL, 2);
  run_ranks(2, run_choice, &choice);
  pthread_barrier_destroy(&both);
}

static void a_failure_at_any_call_of_any_operation_is_told_and_holds_up_nobody(void) {
  if (!can_share_memory()) return;
  run_on_two((struct choice){operations, COUNT_OF(operations), SMALL, ""});
}

static void a_failure_between_any_two_pieces_is_told_and_holds_up_nobody(void) {
  if (!can_share_memory()) return;
  run_on_two((struct choice){large_operations, COUNT_OF(large_operations), LARGE, ""});
}

static void between_processes_a_failure_at_any_call_is_told_and_holds_up_nobody(void) {
  const struct operation some[] = {ENTRY(all_reduce, SMALL), ENTRY(send, SMALL)};
  run_on_two((struct choice){some, COUNT_OF(some), SMALL, ""});
}

static void a_driver_that_fails_from_some_call_on_holds_up_nobody(void) {
  if (!can_share_memory()) return;
  const struct operation some[] = {ENTRY(group, SMALL), ENTRY(all_reduce, SMALL)};
  run_on_two((struct choice){some, COUNT_OF(some), SMALL, "+"});
}

int main(void) {
  static const struct test_case cases[] = {
      CASE(a_failure_at_any_call_of_any_operation_is_told_and_holds_up_nobody),
      CASE(a_failure_between_any_two_pieces_is_told_and_holds_up_nobody),
      CASE(between_processes_a_failure_at_any_call_is_told_and_holds_up_nobody),
      CASE(a_driver_that_fails_from_some_call_on_holds_up_nobody),
  };
  count_questions_once();
  int failed = RUN(cases);
  printf("injection: %d runs\n", *runs());
  return failed;
}
