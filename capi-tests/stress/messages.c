/*
 * Many messages between all ranks, and from each rank to itself: a thread of each rank sends, and
 * another receives them from any source. Lengths are around every border of the protocol. Content
 * is compared, and the order of each source.
 *
 *     messages [total [seed]]
 *
 * Ranks are threads, or processes of nexar-run. `total`: messages of all ranks together.
 */
#define _GNU_SOURCE
#include "support/random.h"
#include "support/ranks.h"

enum {
  KIB = 1 << 10,
  MIB = 1 << 20,
  PATTERN = 4 * KIB, /* bytes by which messages are shifted against each other */
  STEP = 64,         /* messages between two signs of progress */
};

/* Inline in a line of a ring, eager, and a payload on its own: each with one byte more. */
static const size_t lengths[] = {0, 1, 8, 32, 33, 1000, 16 * KIB, 16 * KIB + 1};
/* Parts of payloads, and long ones. Seldom, because they are most of the bytes. */
static const size_t long_lengths[] = {48 * KIB, 48 * KIB + 1, 4 * 48 * KIB + 1, MIB};

static long total = 5000;
static uint64_t seed = 1;
static unsigned char *content;

struct message {
  size_t bytes, shift;
};

/* Message `number` from one rank to another. */
static struct message message_of(int from, int to, long number) {
  uint64_t state = seed + (uint64_t)number * 1000003 + (uint64_t)(from * 1009 + to);
  bool is_long = below(&state, 100) == 0;
  int which = below(&state, is_long ? COUNT_OF(long_lengths) : COUNT_OF(lengths));
  size_t bytes = is_long ? long_lengths[which] : lengths[which];
  return (struct message){bytes, (size_t)below(&state, PATTERN)};
}

struct sender {
  pthread_t thread;
  int rank, n;
  long count; /* to each rank */
  nexarComm_t comm;
};

/* Tags count the messages to each rank. */
static void *send_all(void *arg) {
  struct sender *self = arg;
  for (long number = 0; number < self->count && !check_failures; number++)
    for (int i = 0; i < self->n; i++) {
      int to = (self->rank + i) % self->n;
      struct message message = message_of(self->rank, to, number);
      CHECK_CODE(nexarSuccess, nexarSendTag(content + message.shift, message.bytes, nexarUint8, to,
                                            (int)number, self->comm, NULL));
    }
  return NULL;
}

/* Probes for every eighth message, and receives it by source, tag and exact count. */
static nexarResult_t receive(unsigned char *into, bool probes, nexarStatus_t *status,
                             nexarComm_t comm) {
  if (!probes)
    return nexarRecvTagStatus(into, MIB, nexarUint8, NEXAR_ANY_SOURCE, NEXAR_ANY_TAG, status, comm,
                              NULL);
  nexarResult_t found = nexarProbeTag(NEXAR_ANY_SOURCE, NEXAR_ANY_TAG, NULL, status, comm);
  if (found != nexarSuccess) return found;
  return nexarRecvTag(into, status->count, nexarUint8, status->source, status->tag, comm, NULL);
}

static void exchange(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  unsigned char *into = malloc(MIB + 1);
  long next[MOST_RANKS] = {0}, count = total / ((long)n * n);
  struct sender sender = {.rank = rank, .n = n, .count = count, .comm = comm};
  CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
  double start = seconds_now();
  CHECK_EQ(0, pthread_create(&sender.thread, NULL, send_all, &sender));
  into[MIB] = 0xaa;
  for (long i = 0; i < count * n && !check_failures; i++) {
    nexarStatus_t status = NEXAR_STATUS_INITIALIZER;
    CHECK_CODE(nexarSuccess, receive(into, i % 8 == 0, &status, comm));
    int from = status.source;
    CHECK(from >= 0 && from < n);
    if (from < 0 || from >= n) break;
    struct message message = message_of(from, rank, next[from]);
    CHECK_EQ(next[from], status.tag);
    CHECK_EQ(message.bytes, status.count);
    CHECK_EQ(nexarUint8, status.datatype);
    CHECK(memcmp(into, content + message.shift, message.bytes) == 0);
    next[from]++;
    if (i % STEP == 0) progress();
  }
  CHECK_EQ(0xaa, into[MIB]);
  CHECK_EQ(0, pthread_join(sender.thread, NULL));
  CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
  double took = seconds_now() - start;
  if (rank == 0) {
    long sent = count * n * n;
    printf("%d ranks: %ld messages in %.1f s, %.0f a second\n", n, sent, took, sent / took);
  }
  if (check_failures)
    fprintf(stderr, "seed %llu, rank %d of %d\n", (unsigned long long)seed, rank, n);
  free(into);
}

static void every_message_arrives_once_and_in_order(void) {
  content = malloc(MIB + PATTERN);
  uint64_t state = seed;
  for (size_t i = 0; i < MIB + PATTERN; i++) content[i] = (unsigned char)draw(&state);
  run_ranks(size_of_job(3), exchange, NULL);
  free(content);
}

static const struct test_case cases[] = {CASE(every_message_arrives_once_and_in_order)};

int main(int argc, char **argv) {
  if (argc > 1) total = atol(argv[1]);
  if (argc > 2) seed = strtoull(argv[2], NULL, 0);
  setenv("CHECK_ANY_SIZE", "1", 1);
  return RUN(cases);
}
