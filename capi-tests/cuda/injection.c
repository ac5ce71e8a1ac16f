/*
 * A failure at every call that the library makes of the driver, in every operation, between two
 * ranks of which one fails. The call returns, with success and the right result or with an error
 * that names the call of the driver; the other rank hears of it; all streams go on; nothing is
 * lost; and then a new communicator works.
 *
 * A run is one operation with one failure. Which calls there are is counted in a run without any.
 */
#include "injection.h"

enum {
  COUNT = 1000,              /* elements of a block */
  SMALL = 8 * COUNT * 4,     /* bytes of a buffer */
  LARGE = (5 * 8 + 2) << 20, /* bytes, in more pieces than are under way at once */
};

struct buffers {
  int rank;
  nexarComm_t comm;
  char *send, *recv;
  nexarStream_t stream, other;
};

struct operation {
  const char *name;
  nexarResult_t (*call)(const struct buffers *b);
  size_t bytes;
};

/* Operations. The rank that fails is 0. */

#define AT(buffer, elements) ((buffer) + (size_t)(elements)*4)
#define END b->comm, b->stream

static const size_t counts[] = {COUNT, COUNT / 2}, places[] = {2 * COUNT, 10};
static const size_t pairs[2][2] = {{300, 1}, {COUNT, 0}}, turned[2][2] = {{300, COUNT}, {1, 0}};

#define OPERATION(name, call_)                                                                     \
  static nexarResult_t name(const struct buffers *b) { return call_; }

OPERATION(all_reduce,
          nexarAllReduce(b->send, b->recv, COUNT, nexarUint32, nexarSum, END))
OPERATION(all_reduce_in_place,
          nexarAllReduce(b->send, b->send, COUNT, nexarUint32, nexarSum, END))
OPERATION(large_all_reduce,
          nexarAllReduce(b->send, b->recv, LARGE / 4, nexarUint32, nexarSum, END))
OPERATION(reduce_to_it, nexarReduce(b->send, b->recv, COUNT, nexarUint32, nexarSum, 0, END))
OPERATION(reduce_from_it, nexarReduce(b->send, b->recv, COUNT, nexarUint32, nexarSum, 1, END))
OPERATION(broadcast_from_it, nexarBroadcast(b->send, b->recv, COUNT, nexarUint32, 0, END))
OPERATION(broadcast_to_it, nexarBroadcast(b->send, b->recv, COUNT, nexarUint32, 1, END))
OPERATION(bcast_to_it, nexarBcast(b->send, COUNT, nexarUint32, 1, END))
OPERATION(all_gather, nexarAllGather(b->send, b->recv, COUNT, nexarUint32, END))
OPERATION(large_all_gather, nexarAllGather(b->send, b->recv, 3 << 20, nexarUint32, END))
OPERATION(reduce_scatter,
          nexarReduceScatter(b->send, b->recv, COUNT, nexarUint32, nexarSum, END))
OPERATION(all_to_all, nexarAllToAll(b->send, b->recv, COUNT, nexarUint32, END))
OPERATION(gather_to_it, nexarGather(b->send, b->recv, COUNT, nexarUint32, 0, END))
OPERATION(gather_from_it, nexarGather(b->send, b->recv, COUNT, nexarUint32, 1, END))
OPERATION(scatter_from_it, nexarScatter(b->send, b->recv, COUNT, nexarUint32, 0, END))
OPERATION(scatter_to_it, nexarScatter(b->send, b->recv, COUNT, nexarUint32, 1, END))
OPERATION(scan, nexarScan(b->send, b->recv, COUNT, nexarUint32, nexarSum, END))
OPERATION(ex_scan, nexarExScan(b->send, b->recv, COUNT, nexarUint32, nexarSum, END))
OPERATION(barrier, nexarBarrier(END))
OPERATION(all_gather_v, nexarAllGatherV(b->send, counts[b->rank], b->recv, counts, places,
                                        nexarUint32, END))
OPERATION(reduce_scatter_v,
          nexarReduceScatterV(b->send, b->recv, counts, nexarUint32, nexarSum, END))
OPERATION(all_to_all_v, nexarAllToAllV(b->send, pairs[b->rank], places, b->recv, turned[b->rank],
                                       places, nexarUint32, END))
OPERATION(gather_v_to_it, nexarGatherV(b->send, counts[b->rank], b->recv, counts, places,
                                       nexarUint32, 0, END))
OPERATION(gather_v_from_it, nexarGatherV(b->send, counts[b->rank], b->recv, counts, places,
                                         nexarUint32, 1, END))
OPERATION(scatter_v_from_it, nexarScatterV(b->send, counts, places, b->recv, counts[b->rank],
                                           nexarUint32, 0, END))
OPERATION(scatter_v_to_it, nexarScatterV(b->send, counts, places, b->recv, counts[b->rank],
                                         nexarUint32, 1, END))
OPERATION(send, b->rank == 0 ? nexarSend(b->send, COUNT, nexarUint32, 1, END)
                             : nexarRecv(b->recv, COUNT, nexarUint32, 0, END))
OPERATION(recv, b->rank == 1 ? nexarSend(b->send, COUNT, nexarUint32, 0, END)
                             : nexarRecv(b->recv, COUNT, nexarUint32, 1, END))
OPERATION(tagged, b->rank == 0 ? nexarSendTag(b->send, COUNT, nexarUint32, 1, 7, END)
                               : nexarRecvTag(b->recv, COUNT, nexarUint32, 0, 7, END))
OPERATION(send_recv, nexarSendRecv(b->send, COUNT, 1 - b->rank, b->recv, COUNT, 1 - b->rank,
                                   nexarUint32, END))

static nexarResult_t bucketed(const struct buffers *b) {
  void *const buffs[] = {AT(b->send, 0), AT(b->send, 2 * COUNT), AT(b->recv, 0)};
  const size_t lengths[] = {COUNT, COUNT / 2, 1};
  return nexarAllReduceBucketed(buffs, lengths, 3, nexarUint32, nexarSum, END);
}

/* What fails inside is returned again at the end. */
static nexarResult_t group(const struct buffers *b) {
  int peer = 1 - b->rank;
  nexarGroupStart();
  nexarAllReduce(b->send, b->recv, COUNT, nexarUint32, nexarSum, END);
  nexarSend(b->send, COUNT, nexarUint32, peer, END);
  nexarAllToAll(b->send, AT(b->recv, COUNT), COUNT, nexarUint32, b->comm, b->other);
  nexarRecv(AT(b->recv, 3 * COUNT), COUNT, nexarUint32, peer, END);
  nexarAllGather(b->send, AT(b->recv, 4 * COUNT), COUNT, nexarUint32, END);
  return nexarGroupEnd();
}

#define ENTRY(function, bytes) {#function, function, bytes}
static const struct operation operations[] = {
    ENTRY(all_reduce, SMALL),        ENTRY(all_reduce_in_place, SMALL),
    ENTRY(reduce_to_it, SMALL),      ENTRY(reduce_from_it, SMALL),
    ENTRY(broadcast_from_it, SMALL), ENTRY(broadcast_to_it, SMALL),
    ENTRY(bcast_to_it, SMALL),       ENTRY(all_gather, SMALL),
    ENTRY(reduce_scatter, SMALL),    ENTRY(all_to_all, SMALL),
    ENTRY(gather_to_it, SMALL),      ENTRY(gather_from_it, SMALL),
    ENTRY(scatter_from_it, SMALL),   ENTRY(scatter_to_it, SMALL),
    ENTRY(scan, SMALL),              ENTRY(ex_scan, SMALL),
    ENTRY(barrier, SMALL),           ENTRY(all_gather_v, SMALL),
    ENTRY(reduce_scatter_v, SMALL),  ENTRY(all_to_all_v, SMALL),
    ENTRY(gather_v_to_it, SMALL),    ENTRY(gather_v_from_it, SMALL),
    ENTRY(scatter_v_from_it, SMALL), ENTRY(scatter_v_to_it, SMALL),
    ENTRY(bucketed, SMALL),          ENTRY(send, SMALL),
    ENTRY(recv, SMALL),              ENTRY(tagged, SMALL),
    ENTRY(send_recv, SMALL),         ENTRY(group, SMALL),
};
static const struct operation large_operations[] = {
    ENTRY(large_all_reduce, LARGE), ENTRY(large_all_gather, LARGE)};

/* Worlds of two ranks. */

/* What ranks share if they are threads. */
static pthread_barrier_t both;
static nexarComm_t fresh[2];
static atomic_uint told;

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

/* An operation of a rank: what its buffers are before and after it, and which calls it makes. */
struct plan {
  const struct operation *operation;
  struct side *side;
  char *send, *recv, *send_after, *recv_after;
  struct driver_calls calls; /* of rank 0 */
};

static void put_before(const struct plan *plan) {
  memcpy(view(plan->side->send, plan->operation->bytes), plan->send, plan->operation->bytes);
  memcpy(view(plan->side->recv, plan->operation->bytes), plan->recv, plan->operation->bytes);
}

static bool is_as_planned(const struct plan *plan) {
  size_t bytes = plan->operation->bytes;
  return memcmp(view(plan->side->send, bytes), plan->send_after, bytes) == 0 &&
         memcmp(view(plan->side->recv, bytes), plan->recv_after, bytes) == 0;
}

/* On host memory, for what is to come out. */
static void call_on_host(struct plan *plan) {
  struct side *side = plan->side;
  size_t bytes = plan->operation->bytes;
  char **all[] = {&plan->send, &plan->recv, &plan->send_after, &plan->recv_after};
  for (int i = 0; i < 4; i++) *all[i] = malloc(bytes);
  put_sent(side->rank, plan->send, bytes);
  memset(plan->recv, UNTOUCHED, bytes);
  memcpy(plan->send_after, plan->send, bytes);
  memcpy(plan->recv_after, plan->recv, bytes);
  struct buffers b = {side->rank, side->comm, plan->send_after, plan->recv_after, NULL, NULL};
  CHECK_CODE(nexarSuccess, plan->operation->call(&b));
}

static nexarResult_t call(const struct plan *plan) {
  struct side *side = plan->side;
  struct buffers b = {side->rank, side->comm,
                      device_pointer(side->send), device_pointer(side->recv),
                      side->stream, side->other};
  return plan->operation->call(&b);
}

/* Without a failure: what calls are made. Those of rank 1 are not counted, as if they were ours. */
static void count_calls(struct plan *plan) {
  struct side *side = plan->side;
  put_before(plan);
  meet();
  if (side->rank == 0) begin_to_list();
  meet();
  if (side->rank == 0) library_calls();
  nexarResult_t result = call(plan);
  own_calls();
  CHECK_CODE(nexarSuccess, result);
  if (side->rank == 0) list_calls(&plan->calls);
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
  CHECK(seconds_now() - before < RUN_S / 4);
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
  CHECK(fakecuda_failed() > 0);
  if (!*failure.plus) fakecuda_fail(NULL);
  if (result != nexarSuccess) {
    /* The end of a group is of no communicator. */
    nexarComm_t told_of = plan->operation->call == group ? NULL : side->comm;
    /* If more than one fails, it may be another that is told: a context that stays is no error. */
    const char *function = *failure.plus ? "cu" : call_name(&plan->calls, failure.nth);
    check_told(function, failure.code, result, told_of);
    /* Nothing has begun: the call can be made again. */
    if (!*failure.plus && async_error(side->comm) == nexarSuccess) result = call(plan);
  }
  own_calls();
  bool made = result == nexarSuccess;
  if (made) CHECK_CODE(nexarSuccess, async_error(side->comm));
  else leave(side, failure.nth % 2);
  fakecuda_fail(NULL);
  bool stays = *failure.plus || is_call(&plan->calls, failure.nth, "cuCtxPopCurrent_v2");
  restore_contexts(depth, stays);
  return made;
}

static void run(struct plan *plan, struct failure failure) {
  struct side *side = plan->side;
  int failures = check_failures;
  if (side->rank == 0)
    begin_run(plan->operation->name, &plan->calls, failure.nth, failure.plus, failure.code);
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
    CHECK_TEXT(nexarGetLastError(side->comm), "rank 0");
    leave(side, failure.nth / 2 % 2);
  }
  check_drained(side);
  if (check_failures > failures) fprintf(stderr, "    rank %d in %s\n", side->rank, check_running);
  meet();
}

static void run_all(struct side *side, const struct operation *operation, const char *plus) {
  static unsigned last; /* code; of rank 0 */
  static struct plan plans[2];
  struct plan *plan = &plans[side->rank];
  *plan = (struct plan){.operation = operation, .side = side};
  struct belongings before = belongings();
  join_fresh(side);
  call_on_host(plan);
  check_it_works_on(side, side->other);
  count_calls(plan);
  unsigned count = hear(side->rank, plan->calls.count);
  /* What keeps failing gives nothing back: a few of these are enough. */
  for (unsigned nth = 1; nth <= count && can_go_on(); nth += *plus ? 7 : 1)
    run(plan, (struct failure){nth, plus, codes[last++ % COUNT_OF(codes)]});
  if (side->comm) leave(side, true);
  meet();
  if (side->rank == 0 && !*plus) check_given_back(before, operation->name);
  char *all[] = {plan->send, plan->recv, plan->send_after, plan->recv_after};
  for (int i = 0; i < 4; i++) free(all[i]);
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
  int failed = RUN(cases);
  printf("injection: %d runs\n", *runs());
  return failed;
}
