/* Ranks that disagree on a call: every rank gets an error that names both calls, and none hangs. */
#define _GNU_SOURCE
#include "support/calls.h"
#include "support/ranks.h"

enum { MOST = 4 };

/* The odd rank makes the call `one`, all others make `other`. */
struct mismatch {
  const char *kind;
  struct call one, other;
  const char *one_text, *other_text;
  /* No rank can complete its call before the mismatch is detected: that call fails on all ranks. */
  bool all_fail;
};

/* Counts for four ranks. The sums of the first two lists are equal for two ranks too. */
static const size_t fours[] = {4, 4, 4, 4}, others[] = {5, 3, 4, 4}, longer[] = {4, 5, 4, 4};
static const struct arrays equal_list = {.recvcounts = fours, .counts = fours, .nbuffs = 2};
static const struct arrays other_list = {.recvcounts = others, .counts = others, .nbuffs = 2};
static const struct arrays longer_list = {.recvcounts = longer, .counts = longer, .nbuffs = 2};
static const struct arrays shorter_list = {.counts = fours, .nbuffs = 1};

static const struct mismatch mismatches[] = {
    {"collective",
     {.function = ALL_GATHER, .count = 4},
     {.function = ALL_REDUCE, .count = 4},
     "AllGather(4 x int8)", "AllReduce(4 x int8, sum)", true},
    {"collective with a root",
     {.function = BROADCAST, .count = 4},
     {.function = REDUCE, .count = 4},
     "Broadcast(4 x int8, root 0)", "Reduce(4 x int8, sum, root 0)", false},
    {"scatter",
     {.function = REDUCE_SCATTER, .count = 4},
     {.function = ALL_REDUCE, .count = 4},
     "ReduceScatter(4 x int8, sum)", "AllReduce(4 x int8, sum)", true},
    {"barrier",
     {.function = BARRIER},
     {.function = ALL_REDUCE, .count = 4},
     "Barrier()", "AllReduce(4 x int8, sum)", true},
    {"datatype",
     {.function = ALL_REDUCE, .count = 4, .datatype = nexarUint8},
     {.function = ALL_REDUCE, .count = 4},
     "4 x uint8", "4 x int8", true},
    {"datatype that is only moved",
     {.function = ALL_GATHER, .count = 4, .datatype = nexarUint8},
     {.function = ALL_GATHER, .count = 4},
     "4 x uint8", "4 x int8", true},
    {"op",
     {.function = ALL_REDUCE, .count = 4, .op = nexarMax},
     {.function = ALL_REDUCE, .count = 4},
     "max", "sum", true},
    {"op of a reduce-scatter",
     {.function = REDUCE_SCATTER, .count = 4, .op = nexarBitXor},
     {.function = REDUCE_SCATTER, .count = 4},
     "bitxor", "sum", true},
    {"count",
     {.function = ALL_REDUCE, .count = 5},
     {.function = ALL_REDUCE, .count = 4},
     "AllReduce(5 x", "AllReduce(4 x", true},
    {"large count",
     {.function = ALL_REDUCE, .count = 100001},
     {.function = ALL_REDUCE, .count = 100000},
     "AllReduce(100001 x", "AllReduce(100000 x", true},
    {"count of a gather",
     {.function = ALL_GATHER, .count = 5},
     {.function = ALL_GATHER, .count = 4},
     "AllGather(5 x", "AllGather(4 x", true},
    {"count of a broadcast",
     {.function = BCAST, .count = 5},
     {.function = BCAST, .count = 4},
     "Broadcast(5 x", "Broadcast(4 x", false},
    {"same bytes, other shape",
     {.function = ALL_REDUCE, .count = 1, .datatype = nexarInt32},
     {.function = ALL_REDUCE, .count = 4},
     "1 x int32", "4 x int8", true},
    {"root of a broadcast",
     {.function = BCAST, .count = 4, .root = 1},
     {.function = BCAST, .count = 4},
     "root 1", "root 0", false},
    {"root of a reduce",
     {.function = REDUCE, .count = 4, .root = 1},
     {.function = REDUCE, .count = 4},
     "root 1", "root 0", false},
    {"exchange",
     {.function = ALL_TO_ALL, .count = 4},
     {.function = ALL_GATHER, .count = 4},
     "AllToAll(4 x int8)", "AllGather(4 x int8)", true},
    {"count of an exchange",
     {.function = ALL_TO_ALL, .count = 5},
     {.function = ALL_TO_ALL, .count = 4},
     "AllToAll(5 x", "AllToAll(4 x", true},
    {"count of a large exchange",
     {.function = ALL_TO_ALL, .count = 100001},
     {.function = ALL_TO_ALL, .count = 100000},
     "AllToAll(100001 x", "AllToAll(100000 x", true},
    {"datatype of an exchange",
     {.function = ALL_TO_ALL_V, .count = 4, .datatype = nexarFloat8e5m2},
     {.function = ALL_TO_ALL_V, .count = 4},
     "AllToAllV(float8e5m2", "AllToAllV(int8", true},
    {"form of an exchange",
     {.function = ALL_TO_ALL_V, .count = 4},
     {.function = ALL_TO_ALL, .count = 4},
     "AllToAllV(", "AllToAll(4 x", true},
    {"form of a gather",
     {.function = ALL_GATHER_V, .count = 4},
     {.function = ALL_GATHER, .count = 4},
     "AllGatherV(", "AllGather(4 x", true},
    {"form of a reduce-scatter",
     {.function = REDUCE_SCATTER_V, .count = 4},
     {.function = REDUCE_SCATTER, .count = 4},
     "ReduceScatterV(", "ReduceScatter(4 x", true},
    {"list of counts",
     {.function = REDUCE_SCATTER_V, .arrays = &other_list},
     {.function = REDUCE_SCATTER_V, .arrays = &equal_list},
     "ReduceScatterV(", "ReduceScatterV(", true},
    {"sum of a list of counts",
     {.function = REDUCE_SCATTER_V, .arrays = &longer_list},
     {.function = REDUCE_SCATTER_V, .arrays = &equal_list},
     "ReduceScatterV(", "ReduceScatterV(", true},
    {"op of a reduce-scatter with a list",
     {.function = REDUCE_SCATTER_V, .count = 4, .op = nexarMin},
     {.function = REDUCE_SCATTER_V, .count = 4},
     "min", "sum", true},
    {"list of buffers",
     {.function = ALL_REDUCE_BUCKETED, .arrays = &other_list},
     {.function = ALL_REDUCE_BUCKETED, .arrays = &equal_list},
     "AllReduceBucketed(8", "AllReduceBucketed(8", true},
    {"number of buffers",
     {.function = ALL_REDUCE_BUCKETED, .arrays = &shorter_list},
     {.function = ALL_REDUCE_BUCKETED, .arrays = &equal_list},
     "AllReduceBucketed(4", "AllReduceBucketed(8", true},
    {"list instead of one buffer",
     {.function = ALL_REDUCE_BUCKETED, .count = 4},
     {.function = ALL_REDUCE, .count = 4},
     "AllReduceBucketed(4", "AllReduce(4 x", true},
    {"root of a gather",
     {.function = GATHER, .count = 4, .root = 1},
     {.function = GATHER, .count = 4},
     "Gather(4 x int8, root 1)", "Gather(4 x int8, root 0)", false},
    {"root of a gather of blocks that differ",
     {.function = GATHER_V, .count = 4, .root = 1},
     {.function = GATHER_V, .count = 4},
     "GatherV(int8, root 1)", "GatherV(int8, root 0)", false},
    {"root of a scatter",
     {.function = SCATTER, .count = 4, .root = 1},
     {.function = SCATTER, .count = 4},
     "Scatter(4 x int8, root 1)", "Scatter(4 x int8, root 0)", false},
    {"root of a scatter of blocks that differ",
     {.function = SCATTER_V, .count = 4, .root = 1},
     {.function = SCATTER_V, .count = 4},
     "ScatterV(int8, root 1)", "ScatterV(int8, root 0)", false},
    {"count of a gather to one",
     {.function = GATHER, .count = 5},
     {.function = GATHER, .count = 4},
     "Gather(5 x", "Gather(4 x", false},
    {"count of a scatter",
     {.function = SCATTER, .count = 5},
     {.function = SCATTER, .count = 4},
     "Scatter(5 x", "Scatter(4 x", false},
    {"direction",
     {.function = GATHER, .count = 4},
     {.function = SCATTER, .count = 4},
     "Gather(4 x", "Scatter(4 x", false},
    {"datatype of a gather",
     {.function = GATHER, .count = 4, .datatype = nexarUint8},
     {.function = GATHER, .count = 4},
     "4 x uint8", "4 x int8", false},
    {"scan",
     {.function = EX_SCAN, .count = 4},
     {.function = SCAN, .count = 4},
     "ExScan(4 x int8, sum)", "Scan(4 x int8, sum)", false},
    {"count of a scan",
     {.function = SCAN, .count = 5},
     {.function = SCAN, .count = 4},
     "Scan(5 x", "Scan(4 x", false},
    {"op of a scan",
     {.function = SCAN, .count = 4, .op = nexarMax},
     {.function = SCAN, .count = 4},
     "max", "sum", false},
    {"count of a large exclusive scan",
     {.function = EX_SCAN, .count = 100001},
     {.function = EX_SCAN, .count = 100000},
     "ExScan(100001 x", "ExScan(100000 x", false},
    {"count 0 by one rank",
     {.function = ALL_REDUCE, .count = 0},
     {.function = ALL_REDUCE, .count = 4},
     "AllReduce(0 x", "AllReduce(4 x", false},
    {"count 0 by all but one",
     {.function = ALL_REDUCE, .count = 4},
     {.function = ALL_REDUCE, .count = 0},
     "AllReduce(4 x", "AllReduce(0 x", false},
};

/* A rank's memory. */
struct memory {
  char send[500000], recv[500000], buffers[2][8];
  void *buffs[2];
  struct arrays arrays;
};

struct trial {
  const struct mismatch *mismatch;
  int odd, before; /* the rank that differs; the number of equal calls before that */
  pthread_barrier_t right_calls_done; /* a failure may end a slower rank's earlier call too */
  struct memory *memories[MOST];
  char texts[MOST][500];
};

static struct call on(struct call call, nexarComm_t comm, struct memory *memory) {
  call.comm = comm;
  call.send = memory->send;
  call.recv = memory->recv;
  if (call.arrays) {
    memory->buffs[0] = memory->buffers[0];
    memory->buffs[1] = memory->buffers[1];
    memory->arrays = *call.arrays;
    memory->arrays.buffs = memory->buffs;
    call.arrays = &memory->arrays;
  }
  return call;
}

/* The communicator has failed with this text, and all its operations keep returning the error. */
static void check_it_has_failed(nexarComm_t comm, struct memory *memory, const char *why) {
  nexarResult_t error = nexarSuccess;
  for (enum function f = 0; f < FUNCTIONS; f++) {
    struct call any = on((struct call){.function = f, .count = 2}, comm, memory);
    CHECK_CODE(nexarInvalidUsage, make_call(any));
    CHECK_TEXT(nexarGetLastError(comm), function_names[f]);
    CHECK_TEXT(nexarGetLastError(comm), why);
  }
  CHECK_CODE(nexarSuccess, nexarCommGetAsyncError(comm, &error));
  CHECK_EQ(nexarInvalidUsage, error);
  struct call wrong = {.function = BARRIER, .comm = comm, .stream = memory};
  CHECK_CODE(nexarInvalidArgument, make_call(wrong));
}

static void disagree(int rank, int n, nexarComm_t comm, void *arg) {
  struct trial *trial = arg;
  const struct mismatch *mismatch = trial->mismatch;
  struct memory *memory = trial->memories[rank];
  for (int i = 0; i < trial->before; i++) check_it_works(rank, n, comm);
  pthread_barrier_wait(&trial->right_calls_done);

  struct call own = on(rank == trial->odd ? mismatch->one : mismatch->other, comm, memory);
  nexarResult_t result = make_call(own);
  if (result == nexarSuccess && !mismatch->all_fail) result = nexarBarrier(comm, NULL);
  if (result != nexarInvalidUsage)
    check_failed(__FILE__, __LINE__, "another %s: rank %d of %d got %d, rank %d was odd",
                 mismatch->kind, rank, n, (int)result, trial->odd);
  strncpy(trial->texts[rank], reason(nexarGetLastError(comm)), sizeof trial->texts[rank] - 1);
  check_it_has_failed(comm, memory, trial->texts[rank]);
}

static void check_the_texts(const struct trial *trial, int n) {
  char number[40];
  snprintf(number, sizeof number, "call #%d:", trial->before);
  CHECK_TEXT(trial->texts[0], number);
  CHECK_TEXT(trial->texts[0], trial->mismatch->one_text);
  CHECK_TEXT(trial->texts[0], trial->mismatch->other_text);
  for (int rank = 1; rank < n; rank++) CHECK(strcmp(trial->texts[0], trial->texts[rank]) == 0);
}

static void every_kind_of_mismatch_is_reported_to_every_rank(void) {
  struct trial trial = {0};
  for (int rank = 0; rank < MOST; rank++) trial.memories[rank] = calloc(1, sizeof(struct memory));
  for (size_t i = 0; i < COUNT_OF(mismatches); i++) {
    for (int n = 2; n <= MOST; n++) {
      for (trial.odd = 0; trial.odd < n; trial.odd++) {
        for (trial.before = 0; trial.before < 6; trial.before += 5) {
          trial.mismatch = &mismatches[i];
          memset(trial.texts, 0, sizeof trial.texts);
          pthread_barrier_init(&trial.right_calls_done, NULL, (unsigned)n);
          run_ranks(n, disagree, &trial);
          pthread_barrier_destroy(&trial.right_calls_done);
          check_the_texts(&trial, n);
        }
      }
    }
  }
  for (int rank = 0; rank < MOST; rank++) free(trial.memories[rank]);
}

/* Every rank passes the right count of its own block; the last one passes another for rank 0's. */
static void gather_by_other_lists(int rank, int n, nexarComm_t comm, void *texts) {
  char send[8] = {0}, recv[8 * MOST];
  size_t counts[MOST];
  for (int i = 0; i < n; i++) counts[i] = rank == n - 1 && i == 0 ? 5 : 4;
  CHECK_CODE(nexarInvalidUsage,
             nexarAllGatherV(send, 4, recv, counts, NULL, nexarInt8, comm, NULL));
  strncpy(((char(*)[500])texts)[rank], reason(nexarGetLastError(comm)), 499);
}

static void other_lists_of_an_all_gather_are_a_mismatch(void) {
  for (int n = 2; n <= MOST; n++) {
    char texts[MOST][500] = {{0}}, odd[30];
    snprintf(odd, sizeof odd, "rank %d called AllGatherV(", n - 1);
    run_ranks(n, gather_by_other_lists, texts);
    CHECK_TEXT(texts[0], odd);
    for (int rank = 1; rank < n; rank++) CHECK(strcmp(texts[0], texts[rank]) == 0);
  }
}

/* Each rank waits for the other's data: a library that only matches messages would hang here. */
static void cross_the_roots(int rank, int n, nexarComm_t comm, void *texts) {
  (void)n;
  int data = rank;
  CHECK_CODE(nexarInvalidUsage, nexarBcast(&data, 1, nexarInt32, 1 - rank, comm, NULL));
  strncpy(((char(*)[500])texts)[rank], nexarGetLastError(comm), 499);
}

static void crossed_roots_of_a_broadcast_are_a_mismatch(void) {
  char texts[2][500] = {{0}};
  run_ranks(2, cross_the_roots, texts);
  CHECK_TEXT(texts[0], "rank 0 called Broadcast(1 x int32, root 1)");
  CHECK_TEXT(texts[0], "rank 1 called Broadcast(1 x int32, root 0)");
  CHECK(strcmp(texts[0], texts[1]) == 0);
}

static void swap_two_calls(int rank, int n, nexarComm_t comm, void *texts) {
  int data[8] = {0};
  for (int i = 0; i < 2; i++) {
    struct call call = {.function = i == (rank == 0) ? ALL_REDUCE : ALL_GATHER, .count = 1,
                        .send = data, .recv = data + n, .datatype = nexarInt32, .comm = comm};
    CHECK_CODE(nexarInvalidUsage, make_call(call));
  }
  strncpy(((char(*)[500])texts)[rank], reason(nexarGetLastError(comm)), 499);
}

static void calls_in_another_order_are_a_mismatch(void) {
  char texts[3][500] = {{0}};
  run_ranks(3, swap_two_calls, texts);
  CHECK_TEXT(texts[0], "call #0");
  CHECK_TEXT(texts[0], "rank 0 called AllGather(1 x int32)");
  CHECK_TEXT(texts[0], "called AllReduce(1 x int32, sum)");
  CHECK(strcmp(texts[0], texts[1]) == 0 && strcmp(texts[0], texts[2]) == 0);
}

/* The rank that passed 0 has returned before the other rank makes its call. */
static void a_rank_that_alone_passed_zero_gets_the_error_later(void) {
  nexarComm_t comms[2];
  nexarResult_t error = nexarTimeout;
  int data[2] = {0};
  CHECK_CODE(nexarSuccess, nexarCommInitAll(comms, 2, NULL));
  CHECK_CODE(nexarSuccess, nexarAllReduce(data, data, 0, nexarInt32, nexarSum, comms[0], NULL));
  CHECK_CODE(nexarSuccess, nexarCommGetAsyncError(comms[0], &error));
  CHECK_EQ(nexarSuccess, error);
  CHECK_CODE(nexarInvalidUsage,
             nexarAllReduce(data, data, 2, nexarInt32, nexarSum, comms[1], NULL));
  CHECK_CODE(nexarSuccess, nexarCommGetAsyncError(comms[0], &error));
  CHECK_EQ(nexarInvalidUsage, error);
  CHECK_TEXT(nexarGetLastError(comms[0]), "rank 0 called AllReduce(0 x int32, sum)");
  CHECK_CODE(nexarInvalidUsage, nexarBarrier(comms[0], NULL));
  for (int rank = 0; rank < 2; rank++) CHECK_CODE(nexarSuccess, nexarCommDestroy(comms[rank]));
}

static void bcast_or_broadcast(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  int data = rank == 0 ? 41 : 0, got = 0;
  if (rank % 2 == 0) {
    CHECK_CODE(nexarSuccess, nexarBcast(&data, 1, nexarInt32, 0, comm, NULL));
    CHECK_EQ(41, data);
  } else {
    CHECK_CODE(nexarSuccess, nexarBroadcast(NULL, &got, 1, nexarInt32, 0, comm, NULL));
    CHECK_EQ(41, got);
  }
  check_it_works(rank, n, comm);
}

static void bcast_and_broadcast_are_the_same_call(void) { run_ranks(4, bcast_or_broadcast, NULL); }

static const struct test_case cases[] = {
    CASE(every_kind_of_mismatch_is_reported_to_every_rank),
    CASE(other_lists_of_an_all_gather_are_a_mismatch),
    CASE(crossed_roots_of_a_broadcast_are_a_mismatch),
    CASE(calls_in_another_order_are_a_mismatch),
    CASE(a_rank_that_alone_passed_zero_gets_the_error_later),
    CASE(bcast_and_broadcast_are_the_same_call),
};

int main(void) { return RUN(cases); }
