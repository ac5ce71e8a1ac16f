/*
 * Messages between two ranks: how long one takes there and back, how fast long ones are, and what many
 * at once cost.
 *
 *     pingpong
 *
 * Joins the communicator the environment describes, of which the first two ranks take part. Rank 0
 * prints the median over BATCHES of the mean of a batch.
 */
#include <string.h>

#include "measure.h"

enum { BATCHES = 21, MANY = 64, LONGEST = 64 << 20 };

static int rank;
static nexarComm_t comm;
static char *out, *in;

/* There and back. */
static void ping_pong(size_t bytes) {
  int other = 1 - rank;
  if (rank == 0) CHECK(nexarSend(out, bytes, nexarInt8, other, comm, NULL));
  CHECK(nexarRecv(in, bytes, nexarInt8, other, comm, NULL));
  if (rank == 1) CHECK(nexarSend(out, bytes, nexarInt8, other, comm, NULL));
}

/* Both ways at once. */
static void exchange(size_t bytes) {
  CHECK(nexarSendRecv(out, bytes, 1 - rank, in, bytes, 1 - rank, nexarInt8, comm, NULL));
}

/* From rank 0 to rank 1, and one back at the end. */
static void many_single(size_t bytes) {
  for (size_t i = 0; i < MANY; i++) {
    if (rank == 0) CHECK(nexarSend(out + i * bytes, bytes, nexarInt8, 1, comm, NULL));
    if (rank == 1) CHECK(nexarRecv(in + i * bytes, bytes, nexarInt8, 0, comm, NULL));
  }
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
    measure("there and back", ping_pong, 8, 200);
    measure("both ways, nexarSendRecv", exchange, 8, 200);
    measure("there and back", ping_pong, 4 << 10, 100);
    measure("there and back", ping_pong, 16 << 10, 50);
    measure("there and back", ping_pong, (16 << 10) + 1, 50);
    measure("there and back", ping_pong, 64 << 10, 50);
    measure("there and back", ping_pong, 1 << 20, 5);
    measure("there and back", ping_pong, LONGEST, 1);
    measure("64 sends, single calls", many_single, 8, 20);
    measure("64 sends, single calls", many_single, 8 << 10, 20);
  }
  CHECK(nexarBarrier(comm, NULL));
  CHECK(nexarCommDestroy(comm));
  return 0;
}
