/*
 * Messages between two ranks: round trips, the speed of long messages, and many messages at once.
 *
 *     pingpong
 *
 * Joins the communicator of the environment; the first two ranks take part. Rank 0 prints the
 * median over BATCHES of the mean of a batch.
 */
#include <string.h>

#include "measure.h"

enum { BATCHES = 21, MANY = 64, LONGEST = 64 << 20 };

static int rank;
static nexarComm_t comm;
static char *out, *in;

/* One round trip. */
static void ping_pong(size_t bytes) {
  int other = 1 - rank;
  if (rank == 0) CHECK(nexarSend(out, bytes, nexarInt8, other, comm, NULL));
  CHECK(nexarRecv(in, bytes, nexarInt8, other, comm, NULL));
  if (rank == 1) CHECK(nexarSend(out, bytes, nexarInt8, other, comm, NULL));
}

/* A message in both directions at once. */
static void exchange(size_t bytes) {
  CHECK(nexarSendRecv(out, bytes, 1 - rank, in, bytes, 1 - rank, nexarInt8, comm, NULL));
}

/* MANY messages from rank 0 to rank 1, then a reply. */
static void many_single(size_t bytes) {
  for (size_t i = 0; i < MANY; i++) {
    if (rank == 0) CHECK(nexarSend(out + i * bytes, bytes, nexarInt8, 1, comm, NULL));
    if (rank == 1) CHECK(nexarRecv(in + i * bytes, bytes, nexarInt8, 0, comm, NULL));
  }
  if (rank == 0) CHECK(nexarRecv(in, 1, nexarInt8, 1, comm, NULL));
  if (rank == 1) CHECK(nexarSend(out, 1, nexarInt8, 0, comm, NULL));
}

/* As many_single, with the messages of each rank in one group. */
static void many_grouped(size_t bytes) {
  CHECK(nexarGroupStart());
  for (size_t i = 0; i < MANY; i++) {
    if (rank == 0) CHECK(nexarSend(out + i * bytes, bytes, nexarInt8, 1, comm, NULL));
    if (rank == 1) CHECK(nexarRecv(in + i * bytes, bytes, nexarInt8, 0, comm, NULL));
  }
  CHECK(nexarGroupEnd());
  if (rank == 0) CHECK(nexarRecv(in, 1, nexarInt8, 1, comm, NULL));
  if (rank == 1) CHECK(nexarSend(out, 1, nexarInt8, 0, comm, NULL));
}

static void measure(const char *what, void (*once)(size_t), size_t bytes, size_t iterations) {
  double times[BATCHES];
  for (size_t i = 0; i < iterations; i++) once(bytes);
  for (size_t batch = 0; batch < BATCHES; batch++) {
    double begin = now_us();
    for (size_t i = 0; i < iterations; i++) once(bytes);
    times[batch] = (now_us() - begin) / (double)iterations;
  }
  double middle = median(times, BATCHES);
  if (rank == 0)
    printf("%-34s %9zu bytes %10.1f us   fastest %10.1f us\n", what, bytes, middle, times[0]);
}

int main(void) {
  CHECK(nexarCommInitFromEnv(&comm));
  CHECK(nexarCommUserRank(comm, &rank));
  if (rank < 2) {
    out = calloc(1, LONGEST);
    in = calloc(1, LONGEST);
    if (!out || !in) return 1;
    memset(out, 7, LONGEST);
    memset(in, 1, LONGEST);
    measure("round trip", ping_pong, 8, 200);
    measure("both directions, nexarSendRecv", exchange, 8, 200);
    measure("round trip", ping_pong, 4 << 10, 100);
    measure("round trip", ping_pong, 16 << 10, 50);
    measure("round trip", ping_pong, (16 << 10) + 1, 50);
    measure("round trip", ping_pong, 64 << 10, 50);
    measure("round trip", ping_pong, 1 << 20, 5);
    measure("round trip", ping_pong, LONGEST, 1);
    const size_t each[] = {8, 8 << 10, 64 << 10};
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
      measure("64 sends, single calls", many_single, each[i], 20);
      measure("64 sends, one group", many_grouped, each[i], 20);
    }
  }
  CHECK(nexarBarrier(comm, NULL));
  CHECK(nexarCommDestroy(comm));
  return 0;
}
