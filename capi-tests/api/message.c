/* Invalid arguments of messages: refused with their code, and the communicator stays usable. */
#define _GNU_SOURCE
#include "support/ranks.h"

enum { N = 2 };

static char out[64], in[64];

/* A call whose arguments may be invalid: a datatype is an int, not the header's enum. */
struct message {
  enum { SEND, RECV, SEND_TAG, RECV_TAG, SEND_RECV, FUNCTIONS } function;
  const void *send;
  void *recv;
  size_t count;
  int datatype, peer, source, tag;
  nexarComm_t comm;
  nexarStream_t stream;
};

static const char *const names[FUNCTIONS] = {"nexarSend", "nexarRecv", "nexarSendTag",
                                             "nexarRecvTag", "nexarSendRecv"};

static nexarResult_t make(struct message m) {
  nexarDataType_t type = (nexarDataType_t)m.datatype;
  switch (m.function) {
    case SEND:
      return nexarSend(m.send, m.count, type, m.peer, m.comm, m.stream);
    case RECV:
      return nexarRecv(m.recv, m.count, type, m.peer, m.comm, m.stream);
    case SEND_TAG:
      return nexarSendTag(m.send, m.count, type, m.peer, m.tag, m.comm, m.stream);
    case RECV_TAG:
      return nexarRecvTag(m.recv, m.count, type, m.peer, m.tag, m.comm, m.stream);
    default:
      return nexarSendRecv(m.send, m.count, m.peer, m.recv, m.count, m.source, type, m.comm,
                           m.stream);
  }
}

static void refuse(struct message message, const char *argument) {
  memset(in, 7, sizeof in);
  nexarResult_t result = make(message);
  if (result != nexarInvalidArgument)
    check_failed(__FILE__, __LINE__, "%s with a wrong %s returned %d", names[message.function],
                 argument, (int)result);
  CHECK_TEXT(nexarGetLastError(NULL), names[message.function]);
  CHECK_TEXT(nexarGetLastError(NULL), argument);
  for (size_t i = 0; i < sizeof in; i++) CHECK_EQ(7, in[i]);
}

static bool sends(int function) { return function != RECV && function != RECV_TAG; }
static bool receives(int function) { return function != SEND && function != SEND_TAG; }
static bool has_tag(int function) { return function == SEND_TAG || function == RECV_TAG; }

static void refuse_all(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  for (int f = 0; rank == 0 && f < FUNCTIONS; f++) {
    const struct message good = {.function = f, .send = out, .recv = in, .count = 4, .peer = 1,
                                 .source = 1, .comm = comm};
    struct message wrong = good;
    wrong.comm = NULL;
    refuse(wrong, "comm is NULL");
    const int datatypes[] = {-1, 12, 31, 34, INT_MAX};
    for (size_t i = 0; i < COUNT_OF(datatypes); i++) {
      wrong = good;
      wrong.datatype = datatypes[i];
      refuse(wrong, "datatype");
    }
    const int peers[] = {-2, n, INT_MAX, INT_MIN, -1};
    for (size_t i = 0; i < COUNT_OF(peers) - (f == RECV_TAG); i++) {
      wrong = good;
      wrong.peer = peers[i];
      refuse(wrong, f == SEND_RECV ? "dest" : "peer");
      if (f != SEND_RECV) continue;
      wrong = good;
      wrong.source = peers[i];
      refuse(wrong, "source");
    }
    const int tags[] = {-2, INT_MIN, -1};
    for (size_t i = 0; has_tag(f) && i < COUNT_OF(tags) - (f == RECV_TAG); i++) {
      wrong = good;
      wrong.tag = tags[i];
      refuse(wrong, "tag");
    }
    wrong = good;
    wrong.stream = out;
    refuse(wrong, "stream");
    wrong = good;
    wrong.count = SIZE_MAX / 2;
    wrong.datatype = nexarInt32;
    refuse(wrong, "count");
    if (sends(f)) {
      wrong = good;
      wrong.send = NULL;
      refuse(wrong, "sendbuff is NULL");
    }
    if (receives(f)) {
      wrong = good;
      wrong.recv = NULL;
      refuse(wrong, "recvbuff is NULL");
    }
  }
  if (rank == 0) {
    struct message wrong = {.function = SEND_RECV, .send = in, .recv = in, .count = 4, .peer = 1,
                            .source = 1, .comm = comm};
    refuse(wrong, "overlap");
    wrong.recv = in + 2;
    refuse(wrong, "overlap");
  }
  /* The refused calls had no effect. */
  check_it_works(rank, n, comm);
  if (rank == 0)
    CHECK_CODE(nexarSuccess, nexarSend(out, 4, nexarInt8, 1, comm, NULL));
  else
    CHECK_CODE(nexarSuccess, nexarRecv(in, 4, nexarInt8, 0, comm, NULL));
}

static void a_wrong_argument_is_refused_without_an_effect_on_any_rank(void) {
  run_ranks(N, refuse_all, NULL);
}

static void pass_null(int rank, int n, nexarComm_t comm, void *arg) {
  (void)n, (void)arg;
  if (rank == 0)
    CHECK_CODE(nexarSuccess, nexarSend(NULL, 0, nexarFloat64, 1, comm, NULL));
  else
    CHECK_CODE(nexarSuccess, nexarRecv(NULL, 0, nexarFloat64, 0, comm, NULL));
}

static void a_message_of_no_elements_needs_no_buffer(void) { run_ranks(N, pass_null, NULL); }

static pthread_barrier_t rank_0_is_done;

/* Rank 1 makes no call: the waiting rank names it, and rank 1's next call reports the timeout. */
static void wait_in_vain(int rank, int n, nexarComm_t comm, void *function) {
  (void)n;
  const char *const expected[] = {
      "Send(100000 x int8 to rank 1): no result within 2000 ms; rank 1 has not received it",
      "Recv(100000 x int8 from rank 1): no result within 2000 ms; rank 1 has not sent it",
      "Send(100000 x int8 to rank 1, tag 3): no result within 2000 ms; rank 1 has not received it",
      "Recv(100000 x int8 from rank 1, tag 3): no result within 2000 ms; rank 1 has not sent it",
      "Send(100000 x int8 to rank 1): no result within 2000 ms; rank 1 has not received it",
  };
  int f = *(int *)function;
  static char send[100000], recv[100000];
  struct message message = {.function = f, .send = send, .recv = recv, .count = sizeof send,
                            .peer = 1, .source = 1, .tag = 3, .comm = comm};
  if (rank == 0) {
    CHECK_CODE(nexarTimeout, make(message));
    CHECK_TEXT(nexarGetLastError(comm), expected[f]);
    CHECK_CODE(nexarTimeout, make(message));
    pthread_barrier_wait(&rank_0_is_done);
  } else {
    pthread_barrier_wait(&rank_0_is_done);
    CHECK_CODE(nexarTimeout, nexarBarrier(comm, NULL));
    CHECK_TEXT(nexarGetLastError(comm), expected[f]);
  }
}

static void a_message_without_a_match_ends_at_its_deadline(void) {
  for (int f = 0; f < FUNCTIONS; f++) run_ranks(N, wait_in_vain, &f);
}

static void wait_for_abort(int rank, int n, nexarComm_t comm, void *arg) {
  (void)n, (void)arg;
  char byte;
  if (rank == 0) CHECK_CODE(nexarRemoteError, nexarRecv(&byte, 1, nexarInt8, 1, comm, NULL));
  if (rank == 1) CHECK_CODE(nexarSuccess, nexarCommAbort(comm));
}

static void an_abort_ends_a_receive_of_another_rank(void) {
  nexarComm_t comms[N];
  CHECK_CODE(nexarSuccess, nexarCommInitAll(comms, N, NULL));
  run_threads(N, comms, wait_for_abort, NULL);
  CHECK_CODE(nexarSuccess, nexarCommDestroy(comms[0]));
}

static void after_finalize(int rank, int n, nexarComm_t comm, void *arg) {
  (void)rank, (void)n, (void)arg;
  char byte = 0;
  CHECK_CODE(nexarSuccess, nexarCommFinalize(comm));
  CHECK_CODE(nexarInvalidUsage, nexarSend(&byte, 1, nexarInt8, 0, comm, NULL));
  CHECK_TEXT(nexarGetLastError(comm),
             "Send(1 x int8 to rank 0) on a communicator that was finalized");
}

static void a_finalized_communicator_sends_nothing(void) { run_ranks(N, after_finalize, NULL); }

static const struct test_case cases[] = {
    CASE(a_wrong_argument_is_refused_without_an_effect_on_any_rank),
    CASE(a_message_of_no_elements_needs_no_buffer),
    CASE(a_message_without_a_match_ends_at_its_deadline),
    CASE(an_abort_ends_a_receive_of_another_rank),
    CASE(a_finalized_communicator_sends_nothing),
};

int main(void) {
  pthread_barrier_init(&rank_0_is_done, NULL, N);
  setenv("NEXAR_OP_TIMEOUT_MS", "2000", 1); /* long enough for calls that do get an answer */
  return RUN(cases);
}
