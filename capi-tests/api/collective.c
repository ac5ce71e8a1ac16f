/* Invalid arguments of collectives: refused with their code, and the communicator stays usable. */
#define _GNU_SOURCE
#include "support/calls.h"
#include "support/ranks.h"

#define ELEMENTS 4 /* per block; a call's buffers have n blocks of 4-byte elements */
#define BLOCK (ELEMENTS * sizeof(float))
#define APART 256 /* bytes between sendbuff and recvbuff */

/* The state of one rank that goes through the misuses. */
struct state {
  int rank, n, pass, number;
  nexarComm_t comm, destroyed;
  unsigned char *memory; /* sendbuff in its middle, recvbuff APART bytes behind */
};

static struct call good_call(const struct state *state, enum function f) {
  unsigned char *send = state->memory + APART;
  return (struct call){.function = f, .send = send, .recv = send + APART, .count = ELEMENTS,
                       .datatype = nexarFloat32, .op = nexarSum, .root = state->rank,
                       .comm = state->comm};
}

/*
 * Makes the invalid call on one rank only, in every pass on another one, then a valid call on all
 * ranks: a refused call must not affect the others.
 */
static void refuse(struct state *state, struct call call, const char *argument) {
  if ((state->number++ + state->pass) % state->n == state->rank) {
    unsigned char before[4 * APART];
    memcpy(before, state->memory, sizeof before);
    nexarResult_t result = make_call(call);
    if (result != nexarInvalidArgument)
      check_failed(__FILE__, __LINE__, "%s with a wrong %s returned %d",
                   function_names[call.function], argument, (int)result);
    CHECK_TEXT(nexarGetLastError(NULL), function_names[call.function]);
    CHECK_TEXT(nexarGetLastError(NULL), argument);
    if (call.comm == state->comm) {
      CHECK_TEXT(nexarGetLastError(state->comm), function_names[call.function]);
      CHECK_TEXT(nexarGetLastError(state->comm), argument);
    }
    CHECK(memcmp(before, state->memory, sizeof before) == 0);
  }
  check_it_works(state->rank, state->n, state->comm);
}

/* Expects each function's call to be refused after `change`, a statement that modifies `call`. */
#define REFUSE_IF(applies, argument, change)                                                       \
  for (enum function f = 0; f < FUNCTIONS; f++) {                                                  \
    struct call call = good_call(state, f);                                                        \
    if (!(applies)) continue;                                                                      \
    change;                                                                                        \
    refuse(state, call, argument);                                                                 \
  }

static void wrong_handles(struct state *state) {
  int on_the_stack;
  void *on_the_heap = malloc(64);
  const nexarComm_t handles[] = {
      NULL,
      state->destroyed,
      (nexarComm_t)0x123456789abcdef,
      (nexarComm_t)1,
      (nexarComm_t)UINTPTR_MAX,
      (nexarComm_t)&on_the_stack,
      (nexarComm_t)on_the_heap,
  };
  for (size_t i = 0; i < COUNT_OF(handles); i++) REFUSE_IF(true, "comm", call.comm = handles[i])
  free(on_the_heap);
}

static void wrong_enums(struct state *state) {
  const int datatypes[] = {-1, 12, 31, 34, INT_MIN, INT_MAX};
  for (size_t i = 0; i < COUNT_OF(datatypes); i++)
    REFUSE_IF(has_buffers(f), "datatype", call.datatype = datatypes[i])
  const int ops[] = {-1, 5, 31, 38, 0x10000, nexarMaxRedOp, INT_MIN};
  for (size_t i = 0; i < COUNT_OF(ops); i++) REFUSE_IF(has_op(f), "op", call.op = ops[i])
}

static void averages_of_scans(struct state *state) {
  REFUSE_IF(f == SCAN || f == EX_SCAN, "avg", call.op = nexarAvg)
  REFUSE_IF(f == SCAN || f == EX_SCAN, "avg", (call.op = nexarAvg, call.datatype = nexarInt32))
}

static void ops_on_types_they_are_not_defined_for(struct state *state) {
  const struct { int code; const char *name; } floats[] = {
      {nexarFloat16, "float16"}, {nexarFloat32, "float32"},
      {nexarFloat64, "float64"}, {nexarBfloat16, "bfloat16"},
      {nexarFloat8e4m3, "float8e4m3"}, {nexarFloat8e5m2, "float8e5m2"}};
  for (size_t i = 0; i < COUNT_OF(floats); i++)
    for (int op = nexarBitAnd; op <= nexarLogicalXor; op++)
      REFUSE_IF(has_op(f), floats[i].name, (call.datatype = floats[i].code, call.op = op))
}

static void wrong_roots(struct state *state) {
  const int roots[] = {-1, state->n, state->n + 1, INT_MIN, INT_MAX};
  for (size_t i = 0; i < COUNT_OF(roots); i++) REFUSE_IF(has_root(f), "root", call.root = roots[i])
}

static void wrong_addresses(struct state *state) {
  void *near_the_end = (void *)(UINTPTR_MAX - 7);
  REFUSE_IF(has_sendbuff(f), "sendbuff is NULL", call.send = NULL)
  REFUSE_IF(has_buffers(f), f == ALL_REDUCE_BUCKETED ? "buffs" : "buff is NULL", call.recv = NULL)
  REFUSE_IF(has_sendbuff(f), "sendbuff runs past", call.send = near_the_end)
  REFUSE_IF(has_buffers(f), f == ALL_REDUCE_BUCKETED ? "buffs" : "buff runs past",
            call.recv = near_the_end)
}

/* The elements have 4 bytes: the size in bytes wraps to a small number, or exceeds SIZE_MAX / 2. */
static void counts_beyond_the_address_space(struct state *state) {
  const size_t n = (size_t)state->n;
  const size_t counts[] = {SIZE_MAX,         SIZE_MAX / 2,     SIZE_MAX / 4,
                           SIZE_MAX / 4 + 1, SIZE_MAX / 8 + 1};
  for (size_t i = 0; i < COUNT_OF(counts); i++)
    REFUSE_IF(has_buffers(f), "count", call.count = counts[i])
  const size_t all_blocks[] = {SIZE_MAX / 4 / n + 1, SIZE_MAX / 8 / n + 1};
  for (size_t i = 0; i < COUNT_OF(all_blocks); i++)
    REFUSE_IF(receives_blocks(f) || sends_blocks(f) || exchanges_blocks(f), "count",
              call.count = all_blocks[i])
}

static void partial_overlaps(struct state *state) {
  const int shifts[] = {1, 4, (int)BLOCK - 1, -1, -4, 1 - (int)BLOCK};
  for (size_t i = 0; i < COUNT_OF(shifts); i++)
    REFUSE_IF(f == ALL_REDUCE || f == REDUCE || f == BROADCAST || f == SCAN || f == EX_SCAN ||
                  exchanges_blocks(f),
              "sendbuff and recvbuff overlap", call.recv = (char *)call.send + shifts[i])
}

/* The only overlap allowed is with this rank's own block of the larger buffer. */
static void blocks_at_a_wrong_offset(struct state *state) {
  const size_t whole = (size_t)state->n * BLOCK, own = (size_t)state->rank * BLOCK;
  for (size_t offset = 0; offset < whole; offset += 4) {
    /* All ranks must make equally many calls; at its own block a rank shifts the offset by one. */
    const size_t wrong = offset == own ? own + 1 : offset;
    REFUSE_IF(receives_blocks(f), "sendbuff and recvbuff overlap",
              call.send = (char *)call.recv + wrong)
    REFUSE_IF(sends_blocks(f), "sendbuff and recvbuff overlap",
              call.recv = (char *)call.send + wrong)
  }
}

static void invalid_streams(struct state *state) {
  int on_the_stack;
  REFUSE_IF(true, "stream", call.stream = &on_the_stack)
  REFUSE_IF(true, "stream", call.stream = (nexarStream_t)1)
  REFUSE_IF(true, "stream", call.stream = (nexarStream_t)UINTPTR_MAX)
}

typedef void misuse(struct state *state);

static void misuse_in_turn(int rank, int n, nexarComm_t comm, void *arg) {
  misuse *const *misuse_function = arg;
  struct state state = {.rank = rank, .n = n, .comm = comm};
  CHECK_CODE(nexarSuccess, nexarCommInitAll(&state.destroyed, 1, NULL));
  CHECK_CODE(nexarSuccess, nexarCommDestroy(state.destroyed));
  state.memory = malloc(4 * APART);
  for (int i = 0; i < 4 * APART; i++) state.memory[i] = (unsigned char)i;
  for (state.pass = 0; state.pass < n; state.pass++) {
    state.number = 0;
    (*misuse_function)(&state);
  }
  free(state.memory);
}

static void refused_in_worlds_of_one_and_three(misuse *misuse_function) {
  run_ranks(1, misuse_in_turn, &misuse_function);
  run_ranks(3, misuse_in_turn, &misuse_function);
}

#define REFUSED(what)                                                                              \
  static void what##_are_refused(void) { refused_in_worlds_of_one_and_three(what); }

REFUSED(wrong_handles)
REFUSED(wrong_enums)
REFUSED(ops_on_types_they_are_not_defined_for)
REFUSED(averages_of_scans)
REFUSED(wrong_roots)
REFUSED(wrong_addresses)
REFUSED(counts_beyond_the_address_space)
REFUSED(partial_overlaps)
REFUSED(blocks_at_a_wrong_offset)
REFUSED(invalid_streams)

static void pass_a_count_of_zero(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  const uintptr_t addresses[] = {0, 1, UINTPTR_MAX};
  for (enum function f = 0; f < FUNCTIONS; f++) {
    for (size_t i = 0; i < COUNT_OF(addresses); i++) {
      struct call call = {.function = f, .send = (void *)addresses[i],
                          .recv = (void *)addresses[i], .datatype = nexarInt32, .comm = comm};
      CHECK_CODE(nexarSuccess, make_call(call));
    }
  }
  check_it_works(rank, n, comm);
}

static void a_count_of_zero_takes_any_address(void) {
  run_ranks(1, pass_a_count_of_zero, NULL);
  run_ranks(3, pass_a_count_of_zero, NULL);
}

/* With a count of zero, only the buffers are not checked. */
static void pass_a_count_of_zero_and_wrong_arguments(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  for (enum function f = 0; f < BARRIER; f++) {
    const struct call call = {.function = f, .datatype = nexarInt32, .comm = comm};
    struct call wrong = call;
    wrong.datatype = 12;
    CHECK_CODE(nexarInvalidArgument, make_call(wrong));
    wrong = call;
    wrong.stream = &wrong;
    CHECK_CODE(nexarInvalidArgument, make_call(wrong));
    wrong = call;
    wrong.root = n;
    if (has_root(f)) CHECK_CODE(nexarInvalidArgument, make_call(wrong));
    wrong = call;
    wrong.op = 5;
    if (has_op(f)) CHECK_CODE(nexarInvalidArgument, make_call(wrong));
  }
  check_it_works(rank, n, comm);
}

static void a_count_of_zero_does_not_excuse_the_other_arguments(void) {
  run_ranks(3, pass_a_count_of_zero_and_wrong_arguments, NULL);
}

/* Garbage: NULL, invalid addresses, and an overlap that is refused where the buffer is used. */
static void pass_garbage_where_it_is_ignored(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  const enum function rooted[] = {REDUCE, BROADCAST, GATHER, SCATTER, GATHER_V, SCATTER_V};
  for (size_t f = 0; f < COUNT_OF(rooted); f++)
    for (int root = 0; root < n; root++)
      for (int i = 0; i < 4; i++) {
        int32_t send[3 * ELEMENTS], recv[3 * ELEMENTS];
        for (int k = 0; k < 3 * ELEMENTS; k++) send[k] = k, recv[k] = -1;
        bool receiving = rooted[f] == REDUCE || rooted[f] == GATHER || rooted[f] == GATHER_V;
        void *const used = receiving ? (void *)send : (void *)recv;
        void *const garbage[] = {NULL, (void *)UINTPTR_MAX, (void *)1, (char *)used + 1};
        const struct arrays none = {.sendcounts = garbage[i], .sdispls = garbage[i],
                                    .recvcounts = garbage[i], .rdispls = garbage[i]};
        struct call call = {.function = rooted[f], .send = send, .recv = recv, .count = ELEMENTS,
                            .datatype = nexarInt32, .root = root, .comm = comm};
        if (rank != root && receiving) call.recv = garbage[i];
        if (rank != root && !receiving) call.send = garbage[i];
        if (rank != root) call.arrays = &none;
        CHECK_CODE(nexarSuccess, make_call(call));
        bool blocks = rooted[f] == SCATTER || rooted[f] == SCATTER_V;
        int expected = rooted[f] == REDUCE ? 3 * n : blocks ? ELEMENTS * rank + 3 : 3;
        CHECK_EQ(receiving && rank != root ? -1 : expected, recv[3]);
        for (int k = 0; k < 3 * ELEMENTS; k++) CHECK_EQ(k, send[k]);
      }
}

static void buffers_that_a_rank_does_not_use_are_not_checked(void) {
  run_ranks(3, pass_garbage_where_it_is_ignored, NULL);
}

static const struct test_case cases[] = {
    CASE(wrong_handles_are_refused),
    CASE(wrong_enums_are_refused),
    CASE(ops_on_types_they_are_not_defined_for_are_refused),
    CASE(averages_of_scans_are_refused),
    CASE(wrong_roots_are_refused),
    CASE(wrong_addresses_are_refused),
    CASE(counts_beyond_the_address_space_are_refused),
    CASE(partial_overlaps_are_refused),
    CASE(blocks_at_a_wrong_offset_are_refused),
    CASE(invalid_streams_are_refused),
    CASE(a_count_of_zero_takes_any_address),
    CASE(a_count_of_zero_does_not_excuse_the_other_arguments),
    CASE(buffers_that_a_rank_does_not_use_are_not_checked),
};

int main(void) { return RUN(cases); }
