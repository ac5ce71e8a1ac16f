/*
 * Heat spreads over a plate that is cut into strips, one for each rank: messages, a group, a stream
 * and a split.
 *
 * In every step a rank sends its first and last row to its neighbours and receives theirs, in one
 * group, so that all messages start before the rank waits. Every 50 steps all ranks compute their
 * largest change on a stream, while the next steps are computed. At the end the even ranks add up
 * their heat, and the odd ranks theirs, each on their own communicator.
 *
 *     cc 05_heat.c -lnexar -lm && nexar-run -n 4 ./a.out
 */
#include <math.h>
#include <nexar.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call)                                                                                \
  do {                                                                                             \
    if ((call) != nexarSuccess) {                                                                  \
      fprintf(stderr, "%s\n", nexarGetLastError(NULL));                                            \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)

enum { ROWS = 240, COLUMNS = 200, STEPS = 400, STEPS_BETWEEN_CHECKS = 50 };

typedef double row[COLUMNS];

static row *rows(int count) {
  row *memory = calloc((size_t)count, sizeof(row));
  if (!memory) exit(1);
  return memory;
}

/* One edge of the plate is hot. */
static void heat(row *plate) {
  for (int x = 0; x < COLUMNS; x++) plate[0][x] = 100;
}

/* Computes rows 1 to count from the rows around them. Returns the largest change. */
static double step(row *from, row *to, int count) {
  double change = 0;
  for (int y = 1; y <= count; y++) {
    to[y][0] = from[y][0];
    to[y][COLUMNS - 1] = from[y][COLUMNS - 1];
    for (int x = 1; x < COLUMNS - 1; x++) {
      to[y][x] = (from[y - 1][x] + from[y + 1][x] + from[y][x - 1] + from[y][x + 1]) / 4;
      change = fmax(change, fabs(to[y][x] - from[y][x]));
    }
  }
  return change;
}

/* Rows 0 and count + 1 of a strip are copies of the neighbours' rows. */
static void exchange_edges(row *strip, int count, int rank, int nranks, nexarComm_t comm) {
  CHECK(nexarGroupStart());
  if (rank > 0) {
    CHECK(nexarSend(strip[1], COLUMNS, nexarFloat64, rank - 1, comm, NULL));
    CHECK(nexarRecv(strip[0], COLUMNS, nexarFloat64, rank - 1, comm, NULL));
  }
  if (rank < nranks - 1) {
    CHECK(nexarSend(strip[count], COLUMNS, nexarFloat64, rank + 1, comm, NULL));
    CHECK(nexarRecv(strip[count + 1], COLUMNS, nexarFloat64, rank + 1, comm, NULL));
  }
  CHECK(nexarGroupEnd());
}

/* Computes the whole plate in this process. */
static row *alone(void) {
  row *from = rows(ROWS + 2), *to = rows(ROWS + 2);
  heat(from);
  heat(to);
  for (int i = 0; i < STEPS; i++) {
    step(from, to, ROWS);
    row *other = from;
    from = to;
    to = other;
  }
  free(to);
  return from;
}

int main(void) {
  nexarComm_t comm;
  nexarStream_t stream;
  int rank, nranks;
  CHECK(nexarCommInitFromEnv(&comm));
  CHECK(nexarStreamCreate(&stream));
  CHECK(nexarCommUserRank(comm, &rank));
  CHECK(nexarCommCount(comm, &nranks));

  int first = ROWS * rank / nranks, count = ROWS * (rank + 1) / nranks - first;
  row *from = rows(count + 2), *to = rows(count + 2);
  if (rank == 0) heat(from);
  if (rank == 0) heat(to);

  /* The streams of one communicator run one after another, and calls on stream NULL wait for them.
     Calls that may overlap need another communicator. */
  nexarComm_t checks;
  CHECK(nexarCommSplit(comm, 0, rank, &checks, NULL));
  double change = 0, largest = 0;
  for (int i = 0; i < STEPS; i++) {
    exchange_edges(from, count, rank, nranks, comm);
    double here = step(from, to, count);
    row *other = from;
    from = to;
    to = other;
    if (i % STEPS_BETWEEN_CHECKS == 0) {
      CHECK(nexarStreamSynchronize(stream)); /* the previous reduction */
      if (rank == 0 && i > 0)
        printf("step %3d   largest change %.4f\n", i - STEPS_BETWEEN_CHECKS, largest);
      change = here;
      CHECK(nexarAllReduce(&change, &largest, 1, nexarFloat64, nexarMax, checks, stream));
    }
  }
  CHECK(nexarStreamSynchronize(stream));

  /* One communicator of the even ranks, one of the odd ranks. */
  nexarComm_t part;
  CHECK(nexarCommSplit(comm, rank % 2, rank, &part, NULL));
  double sum = 0, of_part = 0;
  for (int y = 1; y <= count; y++)
    for (int x = 0; x < COLUMNS; x++) sum += from[y][x];
  CHECK(nexarReduce(&sum, &of_part, 1, nexarFloat64, nexarSum, 0, part, NULL));
  if (rank < 2) printf("heat of the %s ranks: %.3f\n", rank ? "odd" : "even", of_part);

  row *whole = alone();
  if (memcmp(from + 1, whole + first + 1, (size_t)count * sizeof(row)) != 0) {
    fprintf(stderr, "rank %d differs from the result of one process\n", rank);
    return 1;
  }
  CHECK(nexarBarrier(comm, NULL));
  if (rank == 0) printf("passed: %d ranks are bitwise equal to one process\n", nranks);

  free(whole);
  free(from);
  free(to);
  CHECK(nexarStreamDestroy(stream));
  CHECK(nexarCommDestroy(part));
  CHECK(nexarCommDestroy(checks));
  CHECK(nexarCommDestroy(comm));
  return 0;
}
