/*
 * One rank of four makes another call than the others, in every way and for every collective:
 *
 *     mismatch MEETING STEP
 *
 * With MEETING 1 the two calls move data along the same paths, so that it meets; with 0 ranks may
 * only wait for each other. Every STEP-th case is tried, each on its own communicator. A rank
 * prints one line for each, with "|" between its fields: the case, the odd rank, when this rank
 * began the call and when it or a later one failed, in nanoseconds of CLOCK_MONOTONIC, the code,
 * whether memory outside the receive buffer is unchanged, and the text.
 */
#include "differences.h"
#include "clock.h"

enum { RANKS = 4, MOST_ELEMENTS = RANKS * (MANY + 1) };

static int rank;
static nexarComm_t world;
static unsigned char sent[MOST_ELEMENTS * 4], send[MOST_ELEMENTS * 4], recv[MOST_ELEMENTS * 4];

/* The bytes of `recv` that the call may write. */
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

static void try(struct cell cell) {
  nexarComm_t comm = NULL;
  if (nexarCommSplit(world, 0, 0, &comm, NULL) != nexarSuccess) exit(1);
  bool is_odd = rank == cell.odd;
  struct call sequence[2];
  calls_of(cell, is_odd, send, recv, comm, sequence);
  prepare_memory();
  meet();
  int completed = 0;
  long long began = now_ns();
  nexarResult_t result = disagree(cell, is_odd, sequence, &completed);
  long long failed = now_ns();
  size_t received = bytes_received(sequence[0]), later = bytes_received(sequence[1]);
  if (completed > 0 && later > received) received = later;
  printf("%s of %s, %zu elements|%d|%lld|%lld|%d|%s|%s\n", difference_names[cell.difference],
         function_names[cell.function], cell.count, cell.odd, began, failed, (int)result,
         memory_is_as_it_must_be(received) ? "right" : "WRONG", reason(nexarGetLastError(comm)));
  if (nexarCommDestroy(comm) != nexarSuccess) exit(1);
  progress();
}

int main(int argc, char **argv) {
  static const size_t counts[] = {FEW, MANY};
  if (argc != 3) return 2;
  bool meeting = atoi(argv[1]);
  int step = atoi(argv[2]), number = 0;
  begin_watch();
  if (nexarCommInitFromEnv(&world) != nexarSuccess) return 1;
  if (nexarCommUserRank(world, &rank) != nexarSuccess) return 1;
  struct cell cell;
  for (cell.difference = 0; cell.difference < DIFFERENCES; cell.difference++)
    for (cell.function = 0; cell.function < FUNCTIONS; cell.function++)
      for (cell.odd = 0; cell.odd < RANKS; cell.odd++)
        for (size_t i = 0; i < COUNT_OF(counts); i++) {
          cell.count = counts[i];
          if (!exists(cell) || meets(cell) != meeting) continue;
          if (number++ % step == 0) try(cell);
        }
  return nexarCommDestroy(world) != nexarSuccess;
}
