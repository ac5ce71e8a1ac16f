/* Messages in groups and on streams: all start, in call order, before a rank waits for any. */
#define _GNU_SOURCE
#include "support/elements.h"
#include "support/ranks.h"

enum { MIB = 1 << 20, MANY = 100 };

static const int ranks[] = {2, 3, 4, 7, 8};

static void on_all_sizes(rank_function *function) {
  for (size_t i = 0; i < COUNT_OF(ranks); i++) run_ranks(ranks[i], function, NULL);
}

static int32_t word(int from, int to, int number) { return from * 1000000 + to * 10000 + number; }

/* The all-to-all of NCCL's documentation: sends and receives of all ranks, self-sends included. */
static void exchange_all(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  const size_t counts[] = {0, 1, 1000, 5000, 100003};
  for (size_t c = 0; c < COUNT_OF(counts); c++) {
    size_t count = counts[c];
    int32_t *out = malloc((count * (size_t)n + 1) * 4), *in = malloc((count * (size_t)n + 1) * 4);
    for (int peer = 0; peer < n; peer++)
      for (size_t i = 0; i < count; i++) {
        out[(size_t)peer * count + i] = word(rank, peer, (int)(i % 10000));
        in[(size_t)peer * count + i] = -1;
      }
    CHECK_CODE(nexarSuccess, nexarGroupStart());
    for (int peer = 0; peer < n; peer++) {
      CHECK_CODE(nexarSuccess,
                 nexarSend(out + (size_t)peer * count, count, nexarInt32, peer, comm, NULL));
      CHECK_CODE(nexarSuccess,
                 nexarRecv(in + (size_t)peer * count, count, nexarInt32, peer, comm, NULL));
    }
    CHECK_CODE(nexarSuccess, nexarGroupEnd());
    int wrong = 0;
    for (int peer = 0; peer < n; peer++)
      for (size_t i = 0; i < count; i++)
        wrong += in[(size_t)peer * count + i] != word(peer, rank, (int)(i % 10000));
    CHECK_EQ(0, wrong);
    free(out);
    free(in);
  }
}

static void all_ranks_exchange_messages_in_a_group(void) { on_all_sizes(exchange_all); }

/* Long and short messages mixed: a message out of order would not match its receive's length. */
static void send_many(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  int next = (rank + 1) % n, before = (rank + n - 1) % n;
  size_t counts[MANY], at[MANY], total = 0;
  for (int i = 0; i < MANY; i++) {
    counts[i] = i % 7 == 3 ? 20000 : (size_t)(i * 13 % 40);
    at[i] = total;
    total += counts[i];
  }
  int32_t *out = malloc(total * 4), *in = calloc(total, 4);
  for (int i = 0; i < MANY; i++)
    for (size_t k = 0; k < counts[i]; k++) out[at[i] + k] = word(rank, next, i);
  CHECK_CODE(nexarSuccess, nexarGroupStart());
  for (int i = 0; i < MANY; i++)
    CHECK_CODE(nexarSuccess,
               nexarSendTag(out + at[i], counts[i], nexarInt32, next, i % 3, comm, NULL));
  for (int i = 0; i < MANY; i++)
    CHECK_CODE(nexarSuccess, nexarRecvTag(in + at[i], counts[i], nexarInt32, before, NEXAR_ANY_TAG,
                                          comm, NULL));
  CHECK_CODE(nexarSuccess, nexarGroupEnd());
  int wrong = 0;
  for (int i = 0; i < MANY; i++)
    for (size_t k = 0; k < counts[i]; k++) wrong += in[at[i] + k] != word(before, rank, i);
  CHECK_EQ(0, wrong);
  free(out);
  free(in);
  progress();
}

static void a_hundred_messages_of_a_group_arrive_in_the_order_of_their_calls(void) {
  on_all_sizes(send_many);
}

/* Collectives and messages, in an order that differs between ranks where that is allowed. */
static void mix(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  int next = (rank + 1) % n, before = (rank + n - 1) % n;
  int32_t sum = 1, got[2] = {-1, -1}, mine = word(rank, next, 1);
  for (int round = 0; round < 20; round++) {
    CHECK_CODE(nexarSuccess, nexarGroupStart());
    if (rank % 2) CHECK_CODE(nexarSuccess, nexarRecv(got, 1, nexarInt32, before, comm, NULL));
    sum = 1;
    CHECK_CODE(nexarSuccess, nexarAllReduce(&sum, &sum, 1, nexarInt32, nexarSum, comm, NULL));
    CHECK_CODE(nexarSuccess, nexarSend(&mine, 1, nexarInt32, next, comm, NULL));
    if (!(rank % 2)) CHECK_CODE(nexarSuccess, nexarRecv(got, 1, nexarInt32, before, comm, NULL));
    CHECK_CODE(nexarSuccess, nexarSendRecv(&mine, 1, before, got + 1, 1, next, nexarInt32, comm,
                                           NULL));
    CHECK_CODE(nexarSuccess, nexarGroupEnd());
    CHECK_EQ(n, sum);
    CHECK_EQ(word(before, rank, 1), got[0]);
    CHECK_EQ(word(next, (next + 1) % n, 1), got[1]);
  }
}

static void messages_and_collectives_share_a_group(void) { on_all_sizes(mix); }

/* Calls on a stream return before their messages arrive. */
static void on_a_stream(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  int next = (rank + 1) % n, before = (rank + n - 1) % n;
  nexarStream_t stream;
  CHECK_CODE(nexarSuccess, nexarStreamCreate(&stream));
  unsigned char *in = malloc(MIB), *out = malloc(MIB);
  memset(out, rank + 1, MIB);
  for (int round = 0; round < 3; round++) {
    memset(in, 0, MIB);
    CHECK_CODE(nexarSuccess, nexarSendRecv(out, MIB, next, in, MIB, before, nexarInt8, comm,
                                           stream));
    CHECK_CODE(nexarSuccess, nexarSendTag(out, 10, nexarInt8, next, 1, comm, stream));
    CHECK_CODE(nexarSuccess, nexarRecvTag(in + 1, 10, nexarInt8, NEXAR_ANY_SOURCE, 1, comm,
                                          stream));
    CHECK_CODE(nexarSuccess, nexarStreamSynchronize(stream));
    for (size_t i = 0; i < MIB; i++)
      if (in[i] != before + 1) {
        check_failed(__FILE__, __LINE__, "byte %zu is %d", i, in[i]);
        break;
      }
    CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
  }
  CHECK_CODE(nexarSuccess, nexarStreamDestroy(stream));
  free(in);
  free(out);
}

static void messages_run_on_streams_in_order(void) { on_all_sizes(on_a_stream); }

/* The stream reports the error of its message when it is synchronized. */
static void mismatch_on_a_stream(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  nexarComm_t another = join_another(rank, n, comm);
  nexarStream_t stream;
  char data[8] = {0};
  CHECK_CODE(nexarSuccess, nexarStreamCreate(&stream));
  nexarResult_t queued = nexarSuccess;
  if (rank == 0) queued = nexarRecv(data, 4, nexarInt8, 1, another, stream);
  if (rank == 1) queued = nexarSend(data, 3, nexarInt8, 0, another, stream);
  CHECK(queued == nexarSuccess || queued == nexarInvalidUsage);
  nexarResult_t waited = nexarStreamSynchronize(stream);
  if (rank == 0) CHECK_EQ(nexarInvalidUsage, waited);
  CHECK_CODE(nexarInvalidUsage, nexarBarrier(another, NULL));
  CHECK_TEXT(nexarGetLastError(another), "rank 1 called Send(3 x int8 to rank 0)");
  CHECK_CODE(nexarSuccess, nexarStreamDestroy(stream));
  CHECK_CODE(nexarSuccess, nexarCommDestroy(another));
  check_it_works(rank, n, comm);
}

static void a_message_that_fails_on_a_stream_fails_its_communicator(void) {
  on_all_sizes(mismatch_on_a_stream);
}

static void drop_a_group(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  char byte = 1;
  if (rank == 0) {
    CHECK_CODE(nexarSuccess, nexarGroupStart());
    CHECK_CODE(nexarSuccess, nexarSend(&byte, 1, nexarInt8, 1, comm, NULL));
    CHECK_CODE(nexarInvalidArgument, nexarSend(&byte, 1, nexarInt8, n, comm, NULL));
    CHECK_CODE(nexarInvalidArgument, nexarGroupEnd());
    byte = 2;
    CHECK_CODE(nexarSuccess, nexarSend(&byte, 1, nexarInt8, 1, comm, NULL));
  }
  if (rank == 1) {
    CHECK_CODE(nexarSuccess, nexarRecv(&byte, 1, nexarInt8, 0, comm, NULL));
    CHECK_EQ(2, byte); /* the dropped message was not sent */
  }
}

static void a_wrong_message_drops_its_group(void) { on_all_sizes(drop_a_group); }

/* The messages of a group alternate between two streams and none, and keep their order. */
static void alternate_streams(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  nexarStream_t streams[3] = {NULL};
  for (int s = 1; s < 3; s++) CHECK_CODE(nexarSuccess, nexarStreamCreate(&streams[s]));
  for (int round = 0; round < 50; round++) {
    int32_t out[6], in[6];
    CHECK_CODE(nexarSuccess, nexarGroupStart());
    for (int i = 0; i < 6; i++) {
      out[i] = word(rank, (rank + 1) % n, round * 6 + i);
      CHECK_CODE(nexarSuccess, nexarSend(&out[i], 1, nexarInt32, (rank + 1) % n, comm,
                                         streams[(i + round) % 3]));
      CHECK_CODE(nexarSuccess, nexarRecv(&in[i], 1, nexarInt32, (rank + n - 1) % n, comm,
                                         streams[(2 * i + rank) % 3]));
    }
    CHECK_CODE(nexarSuccess, nexarGroupEnd());
    for (int s = 1; s < 3; s++) CHECK_CODE(nexarSuccess, nexarStreamSynchronize(streams[s]));
    for (int i = 0; i < 6; i++) CHECK_EQ(word((rank + n - 1) % n, rank, round * 6 + i), in[i]);
    progress();
  }
  for (int s = 1; s < 3; s++) CHECK_CODE(nexarSuccess, nexarStreamDestroy(streams[s]));
}

static void messages_of_a_group_keep_their_order_on_several_streams(void) {
  on_all_sizes(alternate_streams);
}

static const struct test_case cases[] = {
    CASE(messages_of_a_group_keep_their_order_on_several_streams),
    CASE(all_ranks_exchange_messages_in_a_group),
    CASE(a_hundred_messages_of_a_group_arrive_in_the_order_of_their_calls),
    CASE(messages_and_collectives_share_a_group),
    CASE(messages_run_on_streams_in_order),
    CASE(a_message_that_fails_on_a_stream_fails_its_communicator),
    CASE(a_wrong_message_drops_its_group),
};

int main(void) { return RUN(cases); }
