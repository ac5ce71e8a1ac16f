/* Messages between two ranks: every type and length, order, tags, any source, and self-sends. */
#define _GNU_SOURCE
#include "support/elements.h"
#include "support/ranks.h"

enum { EAGER = 16 << 10, MIB = 1 << 20 };

/* Bytes: short ones, around the longest eager message, and a long one. */
static const size_t lengths[] = {0, 1, 8, 13, 1000, EAGER - 1, EAGER, EAGER + 1, MIB + 3};

static const int ranks[] = {2, 3, 4, 7, 8};

static void on_all_sizes(rank_function *function) {
  for (size_t i = 0; i < COUNT_OF(ranks); i++) run_ranks(ranks[i], function, NULL);
}

/* The content of a message, unlike that of all others. */
static void put(unsigned char *at, size_t bytes, int from, int to, size_t number) {
  uint64_t seed = (uint64_t)from * 1000003 + (uint64_t)to * 10007 + number * 97;
  for (size_t i = 0; i < bytes; i++) at[i] = (unsigned char)((seed + i * 31 + (i >> 8)) & 0xff);
}

static void check_bytes(const unsigned char *at, size_t bytes, int from, int to, size_t number) {
  unsigned char *expected = malloc(bytes + 1);
  put(expected, bytes, from, to, number);
  if (memcmp(expected, at, bytes) != 0)
    check_failed(__FILE__, __LINE__, "message %zu of %zu bytes from %d to %d", number, bytes, from,
                 to);
  free(expected);
}

static nexarResult_t send_bytes(size_t bytes, int from, int to, int tag, size_t number,
                                nexarComm_t comm) {
  unsigned char *data = malloc(bytes + 1);
  put(data, bytes, from, to, number);
  nexarResult_t sent = tag < 0 ? nexarSend(data, bytes, nexarInt8, to, comm, NULL)
                               : nexarSendTag(data, bytes, nexarInt8, to, tag, comm, NULL);
  free(data);
  return sent;
}

/* Receives a message of rank `from` and compares its bytes. */
static void recv_bytes(size_t bytes, int from, int to, int tag, size_t number, nexarComm_t comm) {
  unsigned char *data = malloc(bytes + 1);
  memset(data, 0xaa, bytes + 1);
  CHECK_CODE(nexarSuccess, tag < 0 ? nexarRecv(data, bytes, nexarInt8, from, comm, NULL)
                                   : nexarRecvTag(data, bytes, nexarInt8, from, tag, comm, NULL));
  check_bytes(data, bytes, from, to, number);
  CHECK_EQ(0xaa, data[bytes]);
  free(data);
}

static void round_the_ring(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  int next = (rank + 1) % n, before = (rank + n - 1) % n;
  unsigned char *out = malloc(MIB + 64), *in = malloc(MIB + 64);
  for (size_t d = 0; d < COUNT_OF(dtypes); d++)
    for (size_t l = 0; l < COUNT_OF(lengths); l++) {
      size_t count = lengths[l] / dtypes[d].size, bytes = count * dtypes[d].size, shift = l % 3;
      put(out + shift, bytes, rank, next, l);
      memset(in, 0xaa, MIB + 64);
      CHECK_CODE(nexarSuccess, nexarSendRecv(out + shift, count, next, in + shift, count, before,
                                             dtypes[d].code, comm, NULL));
      check_bytes(in + shift, bytes, before, rank, l);
      CHECK_EQ(0xaa, in[shift + bytes]);
    }
  free(out);
  free(in);
}

static void every_type_and_length_arrives(void) { on_all_sizes(round_the_ring); }

/* Ranks 2k and 2k + 1 send to each other in turn. */
static void send_64_mib(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  int other = rank ^ 1;
  if (other >= n) return;
  for (int turn = 0; turn < 2; turn++)
    if (turn == rank % 2)
      CHECK_CODE(nexarSuccess, send_bytes(64 * MIB, rank, other, -1, 1, comm));
    else
      recv_bytes(64 * MIB, other, rank, -1, 1, comm);
}

static void sixty_four_mib_arrive(void) {
  run_ranks(2, send_64_mib, NULL);
  run_ranks(3, send_64_mib, NULL);
}

/* Every rank to every other, long and short messages mixed, received in the order sent. */
static void mix_lengths(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  const size_t order[] = {EAGER + 1, 8, 0, 100000, 1, EAGER, 0, 3};
  for (int distance = 1; distance < n; distance++) {
    int to = (rank + distance) % n, from = (rank + n - distance) % n;
    for (size_t i = 0; i < COUNT_OF(order); i++) {
      unsigned char *out = malloc(order[i] + 1);
      put(out, order[i], rank, to, i);
      /* Rendezvous messages are sent together with their receives, eager ones before them. */
      if (order[i] > EAGER) {
        unsigned char *in = malloc(order[i]);
        CHECK_CODE(nexarSuccess, nexarSendRecv(out, order[i], to, in, order[i], from, nexarInt8,
                                               comm, NULL));
        check_bytes(in, order[i], from, rank, i);
        free(in);
      } else {
        int tag = (int)(i * 7 % 5);
        CHECK_CODE(nexarSuccess, nexarSendTag(out, order[i], nexarInt8, to, tag, comm, NULL));
      }
      free(out);
    }
    for (size_t i = 0; i < COUNT_OF(order); i++) {
      if (order[i] > EAGER) continue;
      unsigned char *in = malloc(order[i] + 1);
      CHECK_CODE(nexarSuccess, nexarRecvTag(in, order[i], nexarInt8, from, NEXAR_ANY_TAG, comm,
                                            NULL));
      check_bytes(in, order[i], from, rank, i);
      free(in);
    }
  }
}

static void messages_of_all_lengths_arrive_in_the_order_sent(void) { on_all_sizes(mix_lengths); }

static void by_tag_backwards(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  const int tags[] = {0, 1, 2, 1000, INT_MAX};
  int to = (rank + 1) % n, from = (rank + n - 1) % n;
  for (int i = 0; i < 5; i++)
    CHECK_CODE(nexarSuccess, send_bytes(9, rank, to, tags[i], (size_t)i, comm));
  for (int i = 4; i >= 0; i--) recv_bytes(9, from, rank, tags[i], (size_t)i, comm);
}

static void messages_are_received_by_tag_in_any_order(void) { on_all_sizes(by_tag_backwards); }

/* The barriers keep the receive from any source apart from messages of other cases. */
static void with_and_without_tag(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
  int to = (rank + 1) % n, from = (rank + n - 1) % n;
  CHECK_CODE(nexarSuccess, send_bytes(5, rank, to, -1, 1, comm));
  CHECK_CODE(nexarSuccess, send_bytes(6, rank, to, 0, 2, comm));
  unsigned char tagged[6];
  CHECK_CODE(nexarSuccess, nexarRecvTag(tagged, 6, nexarInt8, NEXAR_ANY_SOURCE, NEXAR_ANY_TAG, comm,
                                        NULL));
  check_bytes(tagged, 6, from, rank, 2);
  recv_bytes(5, from, rank, -1, 1, comm);
  CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
}

static void a_message_without_a_tag_is_not_one_of_any_tag(void) {
  on_all_sizes(with_and_without_tag);
}

/* Rank 0 receives from any source; each message has its sender in it. */
static void send_to_rank_0(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  enum { ROUNDS = 20 };
  if (rank > 0) {
    for (int i = 0; i < ROUNDS; i++) {
      int32_t words[2] = {rank, i};
      CHECK_CODE(nexarSuccess, nexarSendTag(words, 2, nexarInt32, 0, rank * 100 + i, comm, NULL));
    }
  }
  int next[MOST_RANKS] = {0};
  for (int i = 0; rank == 0 && i < ROUNDS * (n - 1); i++) {
    int32_t words[2] = {0, -1};
    CHECK_CODE(nexarSuccess, nexarRecvTag(words, 2, nexarInt32, NEXAR_ANY_SOURCE, NEXAR_ANY_TAG,
                                          comm, NULL));
    CHECK(words[0] > 0 && words[0] < n);
    CHECK_EQ(next[words[0] & 31]++, words[1]); /* in the order of this sender */
  }
  CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
}

static void messages_are_received_from_any_source(void) { on_all_sizes(send_to_rank_0); }

static void send_much(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  enum { MESSAGES = 5000, BYTES = 200 };
  int other = rank ^ 1;
  if (other >= n) return;
  for (size_t i = 0; i < MESSAGES; i++) {
    if (rank % 2)
      CHECK_CODE(nexarSuccess, send_bytes(BYTES, rank, other, -1, i, comm));
    else
      recv_bytes(BYTES, other, rank, -1, i, comm);
    progress();
  }
}

static void many_messages_arrive_if_the_sender_is_ahead(void) {
  run_ranks(2, send_much, NULL);
  run_ranks(4, send_much, NULL);
}

struct transfer {
  pthread_t thread;
  nexarComm_t comm;
  int rank, peer, tag;
  size_t bytes, times;
};

static void *receive_all(void *arg) {
  struct transfer *e = arg;
  for (size_t i = 0; i < e->times; i++)
    recv_bytes(e->bytes, e->peer, e->rank, e->tag, i, e->comm);
  return NULL;
}

static void *send_all(void *arg) {
  struct transfer *e = arg;
  for (size_t i = 0; i < e->times; i++)
    CHECK_CODE(nexarSuccess, send_bytes(e->bytes, e->rank, e->peer, e->tag, i, e->comm));
  return NULL;
}

static void begin(struct transfer *transfer, void *(*main)(void *)) {
  CHECK_EQ(0, pthread_create(&transfer->thread, NULL, main, transfer));
}

static void send_to_itself(int rank, int n, nexarComm_t comm, void *arg) {
  (void)n, (void)arg;
  CHECK_CODE(nexarSuccess, send_bytes(100, rank, rank, 4, 1, comm));
  CHECK_CODE(nexarSuccess, send_bytes(0, rank, rank, -1, 2, comm));
  recv_bytes(0, rank, rank, -1, 2, comm);
  recv_bytes(100, rank, rank, 4, 1, comm);
  for (size_t l = 0; l < COUNT_OF(lengths); l++) {
    struct transfer sender = {.comm = comm, .rank = rank, .peer = rank, .tag = 1,
                              .bytes = lengths[l],
                            .times = 3};
    struct transfer receiver = sender;
    begin(&sender, send_all);
    receive_all(&receiver);
    CHECK_EQ(0, pthread_join(sender.thread, NULL));
  }
  unsigned char *out = malloc(MIB), *in = malloc(MIB);
  put(out, MIB, rank, rank, 5);
  CHECK_CODE(nexarSuccess, nexarSendRecv(out, MIB, rank, in, MIB, rank, nexarInt8, comm, NULL));
  check_bytes(in, MIB, rank, rank, 5);
  free(out);
  free(in);
}

static void a_rank_sends_to_itself(void) {
  run_ranks(1, send_to_itself, NULL);
  on_all_sizes(send_to_itself);
}

/* Two threads wait for messages that are sent last; a third makes collective calls meanwhile. */
static void wait_beside_collectives(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  int next = (rank + 1) % n, before = (rank + n - 1) % n;
  struct transfer receivers[2];
  for (int i = 0; i < 2; i++) {
    receivers[i] = (struct transfer){.comm = comm, .rank = rank, .peer = before, .tag = i,
                                   .bytes = i ? MIB : 10, .times = 3};
    begin(&receivers[i], receive_all);
  }
  for (int i = 0; i < 30; i++) {
    check_it_works(rank, n, comm);
    CHECK_CODE(nexarSuccess, send_bytes(20, rank, next, 9, (size_t)i, comm));
    recv_bytes(20, before, rank, 9, (size_t)i, comm);
  }
  for (int i = 0; i < 2; i++) {
    struct transfer sender = receivers[i];
    sender.peer = next;
    send_all(&sender);
  }
  for (int i = 0; i < 2; i++) CHECK_EQ(0, pthread_join(receivers[i].thread, NULL));
}

static void threads_that_wait_for_messages_block_no_collective(void) {
  on_all_sizes(wait_beside_collectives);
}

/* Rank 1 sends what rank 0 does not expect. */
struct mismatch {
  size_t sent, expected;
  nexarDataType_t sent_type;
  const char *sent_text, *expected_text;
};

static void mismatch(int rank, int n, nexarComm_t comm, void *arg) {
  const struct mismatch *it = arg;
  nexarComm_t another = join_another(rank, n, comm);
  static unsigned char data[MOST_RANKS][100000];
  nexarResult_t result = nexarSuccess, error = nexarSuccess;
  if (rank == 0) {
    result = nexarRecvTag(data[0], it->expected, nexarInt8, 1, 5, another, NULL);
    for (size_t i = 0; i < sizeof data[0]; i++)
      if (data[0][i]) {
        check_failed(__FILE__, __LINE__, "byte %zu was written", i);
        break;
      }
  } else if (rank == 1) {
    result = nexarSendTag(data[1], it->sent, it->sent_type, 0, 5, another, NULL);
  }
  /* A rank whose call had completed gets the error from its next call. */
  if (result == nexarSuccess) result = nexarBarrier(another, NULL);
  CHECK_CODE(nexarInvalidUsage, result);
  CHECK_TEXT(nexarGetLastError(another), it->sent_text);
  CHECK_TEXT(nexarGetLastError(another), it->expected_text);
  CHECK_CODE(nexarSuccess, nexarCommGetAsyncError(another, &error));
  CHECK_EQ(nexarInvalidUsage, error);
  CHECK_CODE(nexarSuccess, nexarCommDestroy(another));
  check_it_works(rank, n, comm);
}

static void a_message_that_differs_from_its_receive_fails_both_ranks(void) {
  struct mismatch mismatches[] = {
      {3, 4, nexarInt8, "rank 1 called Send(3 x int8 to rank 0, tag 5)",
       "rank 0 called Recv(4 x int8 from rank 1, tag 5)"},
      {90000, 80000, nexarInt8, "Send(90000 x int8 to rank 0, tag 5)", "Recv(80000 x int8"},
      {4, 4, nexarUint8, "Send(4 x uint8 to rank 0, tag 5)", "Recv(4 x int8 from rank 1, tag 5)"},
      {0, 1, nexarInt8, "Send(0 x int8 to rank 0, tag 5)", "Recv(1 x int8 from rank 1, tag 5)"},
  };
  for (size_t m = 0; m < COUNT_OF(mismatches); m++)
    for (int n = 2; n <= 3; n++) run_ranks(n, mismatch, &mismatches[m]);
}

/* The last rank leaves. Ranks that wait for it or send to it get an error. */
static void leave_early(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  nexarComm_t another = join_another(rank, n, comm);
  unsigned char byte = 0;
  char text[80];
  snprintf(text, sizeof text, "rank %d has left the communicator", n - 1);
  if (rank == n - 1) {
    for (int to = 0; to < n - 1; to++)
      CHECK_CODE(nexarSuccess, nexarSend(&byte, 1, nexarInt8, to, another, NULL));
    CHECK_CODE(nexarSuccess, nexarCommDestroy(another));
    check_it_works(rank, n, comm);
  } else {
    CHECK_CODE(nexarSuccess, nexarRecv(&byte, 1, nexarInt8, n - 1, another, NULL));
    check_it_works(rank, n, comm); /* all have received, so the error below is on all ranks */
    CHECK_CODE(nexarRemoteError, nexarRecv(&byte, 1, nexarInt8, n - 1, another, NULL));
    CHECK_TEXT(nexarGetLastError(another), text);
    CHECK_CODE(nexarSuccess, nexarCommDestroy(another));
  }
  check_it_works(rank, n, comm);
}

static void messages_of_a_rank_that_has_left_arrive_before_the_error(void) {
  on_all_sizes(leave_early);
}

enum { SHORT = 100, WITH_CREDIT = 1000 }; /* 228 bytes of credit each, of 256 KiB */

/* Rank 0 sends short messages on a communicator on which rank 1 makes no call before they are
   sent: it learns of that on another communicator. */
static void send_to_a_rank_that_makes_no_call(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  nexarComm_t another = join_another(rank, n, comm);
  unsigned char byte = 0;
  if (rank == 0) {
    for (size_t m = 0; m < WITH_CREDIT; m++)
      CHECK_CODE(nexarSuccess, send_bytes(SHORT, 0, 1, -1, m, another));
    CHECK_CODE(nexarSuccess, nexarSend(&byte, 1, nexarInt8, 1, comm, NULL));
  } else if (rank == 1) {
    CHECK_CODE(nexarSuccess, nexarRecv(&byte, 1, nexarInt8, 0, comm, NULL));
    for (size_t m = 0; m < WITH_CREDIT; m++) recv_bytes(SHORT, 0, 1, -1, m, another);
  }
  CHECK_CODE(nexarSuccess, nexarCommDestroy(another));
  check_it_works(rank, n, comm);
}

static void short_messages_need_no_call_of_their_receiver(void) {
  on_all_sizes(send_to_a_rank_that_makes_no_call);
}

enum { FROM_EACH = 3000 };

/* Rank 0 receives from any rank, by turns with and without waiting. */
static void many_to_one(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  if (rank != 0) {
    for (uint64_t m = 0; m < FROM_EACH; m++) {
      uint64_t words[6] = {(uint64_t)rank, m, m, m, m, m};
      size_t bytes = m % 2 ? sizeof words : 2 * sizeof *words; /* in a line, and beside it */
      CHECK_CODE(nexarSuccess, nexarSendTag(words, bytes, nexarInt8, 0, (int)(m % 2), comm, NULL));
    }
  } else {
    uint64_t *next = calloc((size_t)n, sizeof *next);
    for (uint64_t m = 0; m < (uint64_t)(n - 1) * FROM_EACH; m++) {
      uint64_t words[6] = {0};
      nexarStatus_t status = NEXAR_STATUS_INITIALIZER;
      CHECK_CODE(nexarSuccess,
                 nexarRecvTagStatus(words, sizeof words, nexarInt8, NEXAR_ANY_SOURCE, NEXAR_ANY_TAG,
                                    &status, comm, NULL));
      CHECK_EQ(status.source, (int)words[0]);
      CHECK_EQ(next[words[0]]++, words[1]);
      CHECK_EQ(words[1] % 2 ? sizeof words : 2 * sizeof *words, status.count);
      if (m % 1000 == 0) progress();
    }
    free(next);
  }
  check_it_works(rank, n, comm);
}

static void messages_from_any_source_keep_the_order_of_each(void) { on_all_sizes(many_to_one); }

static const struct test_case cases[] = {
    CASE(every_type_and_length_arrives),
    CASE(sixty_four_mib_arrive),
    CASE(messages_of_all_lengths_arrive_in_the_order_sent),
    CASE(messages_are_received_by_tag_in_any_order),
    CASE(a_message_without_a_tag_is_not_one_of_any_tag),
    CASE(messages_are_received_from_any_source),
    CASE(many_messages_arrive_if_the_sender_is_ahead),
    CASE(a_rank_sends_to_itself),
    CASE(threads_that_wait_for_messages_block_no_collective),
    CASE(a_message_that_differs_from_its_receive_fails_both_ranks),
    CASE(messages_of_a_rank_that_has_left_arrive_before_the_error),
    CASE(short_messages_need_no_call_of_their_receiver),
    CASE(messages_from_any_source_keep_the_order_of_each),
};

int main(void) { return RUN(cases); }
