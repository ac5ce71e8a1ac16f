/*
 * One rank of four makes another call than the others, in every way and for every collective:
 *
 *     mismatch MEETING STEP
 *
 * With MEETING 1 the two calls move data along the same paths, so that it meets; with 0 ranks may only
 * wait for each other. Every STEP-th case is made, each on a communicator of its own. A rank prints one
 * line for each, with "|" between its parts: the case, which rank was odd, when this rank began the call
 * and when it or a later one failed, in nanoseconds of CLOCK_MONOTONIC, the code, whether memory is as it
 * must be, and the text.
 */
#include "calls.h"
#include "moment.h"

enum { RANKS = 4, FEW = 5, MANY = 60001, MOST_ELEMENTS = RANKS * (MANY + 1) };

enum difference {
  KIND,
  OPPOSITE_KIND,
  SPLIT, /* by the others */
  ORDER,
  DATATYPE,
  OP,
  ROOT,
  COUNT,
  COUNT_OF_ZERO,
  DIFFERENCES
};

static const char *const difference_names[] = {
    "kind", "opposite kind", "split", "order", "datatype", "op", "root", "count", "count of 0"};

/* Another call that moves few elements along the same paths; GATHER_V and SCATTER_V have none. */
static const enum function alike[FUNCTIONS] = {
    [ALL_REDUCE] = BARRIER,
    [REDUCE] = GATHER,
    [BROADCAST] = SCATTER,
    [BCAST] = SCATTER,
    [ALL_GATHER] = ALL_REDUCE,
    [REDUCE_SCATTER] = ALL_REDUCE,
    [ALL_TO_ALL] = BARRIER,
    [GATHER] = REDUCE,
    [SCATTER] = BROADCAST,
    [SCAN] = EX_SCAN,
    [EX_SCAN] = SCAN,
    [ALL_REDUCE_BUCKETED] = ALL_REDUCE,
    [ALL_GATHER_V] = BARRIER,
    [REDUCE_SCATTER_V] = REDUCE_SCATTER,
    [ALL_TO_ALL_V] = ALL_TO_ALL,
    [GATHER_V] = GATHER,
    [SCATTER_V] = SCATTER,
    [BARRIER] = ALL_REDUCE,
};

struct cell {
  enum difference difference;
  enum function function;
  size_t count;
  int odd;
};

static int rank;
static nexarComm_t world;
static unsigned char sent[MOST_ELEMENTS * 4], send[MOST_ELEMENTS * 4], recv[MOST_ELEMENTS * 4];

static bool sends_down(enum function f) {
  return f == BROADCAST || f == BCAST || f == SCATTER || f == SCATTER_V;
}

static bool exists(struct cell cell) {
  switch (cell.difference) {
    case DATATYPE:
    case COUNT:
    case COUNT_OF_ZERO:
      return has_buffers(cell.function);
    case OP:
      return has_op(cell.function);
    case ROOT:
    case OPPOSITE_KIND:
      return has_root(cell.function);
    default:
      return true;
  }
}

static bool meets(struct cell cell) {
  switch (cell.difference) {
    case KIND:
    case ORDER:
      return cell.count == FEW && cell.function != GATHER_V && cell.function != SCATTER_V;
    case OPPOSITE_KIND:
    case SPLIT:
    case ROOT:
    case COUNT_OF_ZERO:
      return false;
    default:
      return true;
  }
}

static struct call usual(struct cell cell, nexarComm_t comm) {
  return (struct call){.function = cell.function, .send = send, .recv = recv, .count = cell.count,
                       .datatype = nexarInt32, .op = nexarSum, .comm = comm};
}

static struct call odd(struct cell cell, nexarComm_t comm) {
  struct call call = usual(cell, comm);
  switch (cell.difference) {
    case KIND:
    case ORDER:
      call.function = alike[cell.function];
      break;
    case OPPOSITE_KIND:
      call.function = sends_down(cell.function) ? REDUCE : BROADCAST;
      break;
    case SPLIT:
      break;
    case DATATYPE:
      call.datatype = nexarUint32;
      break;
    case OP:
      call.op = nexarMax;
      break;
    case ROOT:
      call.root = 1;
      break;
    case COUNT:
      call.count++;
      break;
    default:
      call.count = 0;
  }
  return call;
}

/* How much of recv the call may write. */
static size_t bytes_received(struct call call) {
  enum function f = call.function;
  bool to_the_root = f == REDUCE || f == GATHER || f == GATHER_V;
  bool is_sent = f == BCAST && rank == call.root;
  if (f == BARRIER || is_sent || (to_the_root && rank != call.root)) return 0;
  return call.count * 4 * (receives_blocks(f) || exchanges_blocks(f) ? RANKS : 1);
}

static void prepare_memory(void) {
  for (size_t i = 0; i < sizeof sent; i++) sent[i] = (unsigned char)(i * 7 + i / 251);
  memcpy(send, sent, sizeof sent);
  memset(recv, 0xa5, sizeof recv);
}

static bool memory_is_as_it_must_be(size_t received) {
  for (size_t i = received; i < sizeof recv; i++)
    if (recv[i] != 0xa5) return false;
  return memcmp(send, sent, sizeof sent) == 0;
}

static void meet(void) {
  if (nexarBarrier(world, NULL) == nexarSuccess) return;
  fprintf(stderr, "%s\n", nexarGetLastError(world));
  exit(1);
}

static nexarResult_t make_first(struct cell cell, struct call call) {
  nexarComm_t part = NULL;
  if (cell.difference != SPLIT || rank == cell.odd) return make_call(call);
  return nexarCommSplit(call.comm, 0, 0, &part, NULL);
}

static void disagree(struct cell cell) {
  nexarComm_t comm = NULL;
  if (nexarCommSplit(world, 0, 0, &comm, NULL) != nexarSuccess) exit(1);
  bool is_odd = rank == cell.odd;
  struct call calls[] = {usual(cell, comm), odd(cell, comm), {.function = BARRIER, .comm = comm}};
  struct call first = calls[is_odd], second = calls[cell.difference == ORDER ? !is_odd : 2];
  size_t received = bytes_received(first);
  prepare_memory();
  meet();
  long long began = now_ns();
  nexarResult_t result = make_first(cell, first);
  if (result == nexarSuccess) {
    if (bytes_received(second) > received) received = bytes_received(second);
    result = make_call(second);
  }
  if (result == nexarSuccess) result = make_call(calls[2]);
  long long failed = now_ns();
  printf("%s of %s, %zu elements|%d|%lld|%lld|%d|%s|%s\n", difference_names[cell.difference],
         function_names[cell.function], cell.count, cell.odd, began, failed, (int)result,
         memory_is_as_it_must_be(received) ? "right" : "WRONG", reason(nexarGetLastError(comm)));
  if (nexarCommDestroy(comm) != nexarSuccess) exit(1);
}

int main(int argc, char **argv) {
  static const size_t counts[] = {FEW, MANY};
  if (argc != 3) return 2;
  bool meeting = atoi(argv[1]);
  int step = atoi(argv[2]), number = 0;
  if (nexarCommInitFromEnv(&world) != nexarSuccess) return 1;
  if (nexarCommUserRank(world, &rank) != nexarSuccess) return 1;
  struct cell cell;
  for (cell.difference = 0; cell.difference < DIFFERENCES; cell.difference++)
    for (cell.function = 0; cell.function < FUNCTIONS; cell.function++)
      for (cell.odd = 0; cell.odd < RANKS; cell.odd++)
        for (size_t i = 0; i < COUNT_OF(counts); i++) {
          cell.count = counts[i];
          if (!exists(cell) || meets(cell) != meeting) continue;
          if (number++ % step == 0) disagree(cell);
        }
  return nexarCommDestroy(world) != nexarSuccess;
}
