/*
 * A rank that handles an error as programs do: it prints the error, aborts and exits at once,
 * without waiting for other ranks:
 *
 *     quit FAULT NUMBER RANK HOW
 *
 * FAULT "kill": every rank calls one collective over and over until it fails. "abort": the same,
 * but RANK aborts after some calls and exits. The name of a difference: RANK makes another call
 * than the others. NUMBER chooses the collective and its length. With HOW "abort" a rank calls
 * nexarCommAbort before it exits, with "exit" it does not.
 *
 * Prints one line, with "|" between its fields: the time of the failure in nanoseconds of
 * CLOCK_MONOTONIC, its code, the call and the text. With "kill" it prints "ready" first, after a
 * barrier.
 */
#include "differences.h"
#include "clock.h"

enum { MOST_RANKS = 8, MOST_ELEMENTS = MOST_RANKS * (MANY + 1) };

static int rank;
static bool aborts;
static nexarComm_t comm;
static unsigned char sent[MOST_ELEMENTS * 4], received[MOST_ELEMENTS * 4];

static void quit(nexarResult_t result, struct cell cell) {
  dprintf(1, "%lld|%d|%s, %zu elements|%s\n", now_ns(), (int)result,
          function_names[cell.function], cell.count, nexarGetLastError(comm));
  if (aborts) nexarCommAbort(comm);
  _exit(0);
}

static void leave(void) {
  nexarCommAbort(comm);
  _exit(0);
}

/* The case of that number among the existing ones. */
static struct cell choose(enum difference difference, long number, int odd) {
  static const size_t counts[] = {FEW, MANY};
  struct cell cell = {.difference = difference, .odd = odd};
  cell.count = counts[number % 2];
  number /= 2;
  do cell.function = (enum function)(number++ % FUNCTIONS);
  while (!exists(cell));
  return cell;
}

static enum difference difference_of(const char *name) {
  int difference = 0;
  while (difference < DIFFERENCES && strcmp(difference_names[difference], name) != 0) difference++;
  return (enum difference)difference;
}

int main(int argc, char **argv) {
  if (argc != 5) return 2;
  const char *fault = argv[1];
  long number = atol(argv[2]);
  int odd = atoi(argv[3]);
  aborts = strcmp(argv[4], "abort") == 0;
  enum difference difference = difference_of(fault);
  bool others_call_on = strcmp(fault, "abort") == 0;
  if (difference == DIFFERENCES && !others_call_on && strcmp(fault, "kill") != 0) return 2;
  struct cell cell = choose(difference, number, odd);
  nexarResult_t result = nexarCommInitFromEnv(&comm);
  if (result == nexarSuccess) result = nexarCommUserRank(comm, &rank);
  if (result == nexarSuccess) result = nexarBarrier(comm, NULL);
  if (result != nexarSuccess) quit(result, cell);
  if (difference == DIFFERENCES && !others_call_on) dprintf(1, "ready\n");
  if (difference != DIFFERENCES) {
    struct call sequence[2];
    int completed = 0;
    calls_of(cell, rank == odd, sent, received, comm, sequence);
    quit(disagree(cell, rank == odd, sequence, &completed), cell);
  }
  for (long turn = 0;; turn++) {
    if (others_call_on && rank == odd && turn == number % 50) leave();
    result = make_call(usual(cell, sent, received, comm));
    if (result != nexarSuccess) quit(result, cell);
  }
}
