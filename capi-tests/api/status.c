/*
 * nexarRecvTagStatus: what it reports and refuses, and what it leaves: a message that is too long,
 * a status of another version, a communicator that works. It refuses the same arguments as
 * nexarProbeTag.
 */
#define _GNU_SOURCE
#include "support/status.h"

enum { EAGER = 16 << 10, LONG = 100000, MESSAGES = 60, THREADS = 3 };

static void report(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  const size_t counts[] = {0, 1, 8, EAGER / 4, EAGER / 4 + 1, LONG};
  for (size_t i = 0; i < COUNT_OF(counts); i++) {
    if (rank == 1) CHECK_CODE(nexarSuccess, send_numbers(counts[i], 0, (int)i + 2, comm));
    for (int wild = 0; rank == 1 && wild < 2; wild++)
      CHECK_CODE(nexarSuccess, send_numbers(counts[i], 0, INT_MAX, comm));
    if (rank != 0) continue;
    nexarStatus_t status = unset;
    CHECK_CODE(nexarSuccess, recv_numbers(LONG, 1, (int)i + 2, &status, comm));
    CHECK_STATUS(status, 1, (int)i + 2, counts[i], nexarInt32);
    status = unset;
    CHECK_CODE(nexarSuccess,
               recv_numbers(counts[i], NEXAR_ANY_SOURCE, NEXAR_ANY_TAG, &status, comm));
    CHECK_STATUS(status, 1, INT_MAX, counts[i], nexarInt32);
    int32_t *data = malloc(LONG * sizeof *data);
    CHECK_CODE(nexarSuccess,
               nexarRecvTagStatus(data, LONG, nexarInt32, 1, INT_MAX, NULL, comm, NULL));
    check_numbers(data, counts[i], counts[i], INT_MAX);
    free(data);
  }
  check_it_works(rank, n, comm);
}

static void a_receive_reports_source_tag_count_and_datatype(void) { on_two_and_three(report); }

static void receive_nothing(int rank, int n, nexarComm_t comm, void *arg) {
  (void)n, (void)arg;
  nexarStatus_t status = unset;
  if (rank == 1) CHECK_CODE(nexarSuccess, nexarSendTag(NULL, 0, nexarFloat64, 0, 0, comm, NULL));
  if (rank != 0) return;
  CHECK_CODE(nexarSuccess, nexarProbeTag(1, 0, NULL, &status, comm));
  CHECK_STATUS(status, 1, 0, 0, nexarFloat64);
  status = unset;
  CHECK_CODE(nexarSuccess,
             nexarRecvTagStatus(NULL, 0, nexarFloat64, 1, 0, &status, comm, NULL));
  CHECK_STATUS(status, 1, 0, 0, nexarFloat64);
}

static void a_capacity_of_0_receives_a_message_without_elements(void) {
  on_two_and_three(receive_nothing);
}

static void check_too_long(nexarResult_t result, nexarComm_t comm, size_t sent, int tag,
                           const char *receive) {
  char text[100];
  CHECK_CODE(nexarInvalidArgument, result);
  snprintf(text, sizeof text, "rank 1 called Send(%zu x int32 to rank 0, tag %d)", sent, tag);
  CHECK_TEXT(nexarGetLastError(NULL), text);
  CHECK_TEXT(nexarGetLastError(NULL), receive);
  check_has_not_failed(comm);
}

/* The message is there when the receive is called: a probe has found it. */
static void keep_too_long(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  const size_t counts[] = {4, LONG};
  for (size_t i = 0; i < COUNT_OF(counts); i++) {
    if (rank == 1) CHECK_CODE(nexarSuccess, send_numbers(counts[i], 0, 9, comm));
    if (rank == 1) CHECK_CODE(nexarSuccess, send_numbers(1, 0, 9, comm));
    if (rank == 1) CHECK_CODE(nexarSuccess, send_numbers(2, 0, 8, comm));
    for (int times = 0; rank == 0 && times < 3; times++) {
      nexarStatus_t status = unset;
      check_too_long(recv_numbers(3, 1, 9, &status, comm), comm, counts[i], 9,
                     "too long for Recv(up to 3 x int32 from rank 1, tag 9) of rank 0");
      CHECK(is_unset(&status));
      CHECK_CODE(nexarSuccess, nexarProbeTag(NEXAR_ANY_SOURCE, 9, NULL, &status, comm));
      CHECK_STATUS(status, 1, 9, counts[i], nexarInt32);
    }
    if (rank == 0) {
      nexarStatus_t status = unset;
      check_too_long(recv_numbers(0, NEXAR_ANY_SOURCE, NEXAR_ANY_TAG, NULL, comm), comm, counts[i],
                     9, "Recv(up to 0 x int32 from any rank, any tag)");
      if (counts[i] == 4) /* eager: the sender has sent the others already */
        CHECK_CODE(nexarSuccess, recv_numbers(2, NEXAR_ANY_SOURCE, 8, &status, comm));
      CHECK_CODE(nexarSuccess, recv_numbers(LONG, 1, NEXAR_ANY_TAG, &status, comm));
      CHECK_STATUS(status, 1, 9, counts[i], nexarInt32);
      CHECK_CODE(nexarSuccess, recv_numbers(3, 1, NEXAR_ANY_TAG, &status, comm));
      CHECK_STATUS(status, 1, 9, 1, nexarInt32);
      if (counts[i] != 4) CHECK_CODE(nexarSuccess, recv_numbers(2, 1, 8, &status, comm));
    }
    check_it_works(rank, n, comm);
  }
}

static void a_message_that_is_too_long_stays_before_later_ones(void) {
  on_two_and_three(keep_too_long);
}

/* The receives are queued on a stream, of which the sender hears before it sends. */
static void post_too_short(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  int32_t short_data[2] = {-1, -1}, long_data[5] = {-1, -1, -1, -1, -1}, go = 0;
  nexarStatus_t one = unset, other = unset;
  nexarStream_t stream;
  CHECK_CODE(nexarSuccess, nexarStreamCreate(&stream));
  for (int round = 0; round < 30; round++) {
    one = other = unset;
    if (rank == 0) {
      CHECK_CODE(nexarSuccess, nexarGroupStart());
      CHECK_CODE(nexarSuccess, nexarRecvTagStatus(short_data, 2, nexarInt32, 1, NEXAR_ANY_TAG,
                                                  &one, comm, stream));
      CHECK_CODE(nexarSuccess, nexarRecvTagStatus(long_data, 5, nexarInt32, NEXAR_ANY_SOURCE, 3,
                                                  &other, comm, stream));
      CHECK_CODE(nexarSuccess, nexarSend(&go, 1, nexarInt32, 1, comm, stream));
      CHECK_CODE(nexarSuccess, nexarGroupEnd());
      check_too_long(nexarStreamSynchronize(stream), comm, 4, 3,
                     "Recv(up to 2 x int32 from rank 1, any tag)");
      CHECK(is_unset(&one));
      CHECK_EQ(-1, short_data[0]);
      CHECK_STATUS(other, 1, 3, 4, nexarInt32);
      check_numbers(long_data, 4, 5, 3);
      CHECK_CODE(nexarSuccess, nexarStreamSynchronize(stream)); /* the error is returned once */
    } else if (rank == 1) {
      CHECK_CODE(nexarSuccess, nexarRecv(&go, 1, nexarInt32, 0, comm, NULL));
      CHECK_CODE(nexarSuccess, send_numbers(4, 0, 3, comm));
    }
    progress();
  }
  CHECK_CODE(nexarSuccess, nexarStreamDestroy(stream));
  check_it_works(rank, n, comm);
}

static void a_receive_that_waits_fails_alone_when_a_longer_message_arrives(void) {
  on_two_and_three(post_too_short);
}

static void fail_in_group(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  int32_t small[1] = {-1}, large[4] = {-1, -1, -1, -1};
  nexarStatus_t first = unset, second = unset;
  if (rank == 1) {
    CHECK_CODE(nexarSuccess, nexarGroupStart());
    int32_t data[3] = {2, 5, 8};
    CHECK_CODE(nexarSuccess, nexarSendTag(data, 3, nexarInt32, 0, 1, comm, NULL));
    CHECK_CODE(nexarSuccess, nexarSendTag(data, 3, nexarInt32, 0, 2, comm, NULL));
    CHECK_CODE(nexarSuccess, nexarGroupEnd());
  }
  if (rank == 0) {
    CHECK_CODE(nexarSuccess, nexarGroupStart());
    CHECK_CODE(nexarSuccess,
               nexarRecvTagStatus(small, 1, nexarInt32, 1, 1, &first, comm, NULL));
    CHECK_CODE(nexarSuccess,
               nexarRecvTagStatus(large, 4, nexarInt32, 1, 2, &second, comm, NULL));
    CHECK(is_unset(&second)); /* written at the end of the group */
    check_too_long(nexarGroupEnd(), comm, 3, 1, "up to 1 x int32");
    CHECK(is_unset(&first));
    CHECK_EQ(-1, small[0]);
    CHECK_STATUS(second, 1, 2, 3, nexarInt32);
    check_numbers(large, 3, 4, 2);
    CHECK_CODE(nexarSuccess, nexarRecvTag(large, 3, nexarInt32, 1, 1, comm, NULL));
  }
  check_it_works(rank, n, comm);
}

static void in_a_group_the_other_receives_succeed(void) { on_two_and_three(fail_in_group); }

/* A status with the fields of a later version, and bytes behind it. */
static void keep_what_is_behind(int rank, int n, nexarComm_t comm, void *arg) {
  (void)n, (void)arg;
  struct {
    nexarStatus_t status;
    unsigned char later[24], behind[8];
  } newer;
  const unsigned char *bytes = (const unsigned char *)&newer + sizeof newer.status;
  if (rank == 1) CHECK_CODE(nexarSuccess, send_numbers(2, 0, 6, comm));
  if (rank == 1) CHECK_CODE(nexarSuccess, send_numbers(2, 0, 6, comm));
  for (int probes = 0; rank == 0 && probes < 3; probes++) {
    const size_t sizes[] = {sizeof(nexarStatus_t), sizeof(nexarStatus_t) + sizeof newer.later};
    int32_t data[2];
    memset(&newer, 0x5a, sizeof newer);
    newer.status.size = sizes[probes % 2];
    if (probes == 0)
      CHECK_CODE(nexarSuccess, nexarProbeTag(1, 6, NULL, &newer.status, comm));
    else
      CHECK_CODE(nexarSuccess,
                 nexarRecvTagStatus(data, 2, nexarInt32, 1, 6, &newer.status, comm, NULL));
    CHECK_EQ(sizes[probes % 2], newer.status.size);
    CHECK_EQ(1, newer.status.source);
    CHECK_EQ(6, newer.status.tag);
    CHECK_EQ(2, newer.status.count);
    CHECK_EQ(nexarInt32, newer.status.datatype);
    for (size_t i = 0; i < sizeof newer.later + sizeof newer.behind; i++) CHECK_EQ(0x5a, bytes[i]);
  }
}

static void nothing_is_written_beyond_the_first_version_of_a_status(void) {
  on_two_and_three(keep_what_is_behind);
}

struct wrong {
  void *recv;
  size_t capacity, size;
  int datatype, peer, tag;
  nexarComm_t comm;
  nexarStream_t stream;
};

/* Both functions are called if the argument is one of both. */
static void refuse(struct wrong w, bool is_of_both, const char *argument) {
  nexarStatus_t status = unset;
  int flag = 7;
  status.size = w.size;
  CHECK_CODE(nexarInvalidArgument,
             nexarRecvTagStatus(w.recv, w.capacity, (nexarDataType_t)w.datatype, w.peer, w.tag,
                                &status, w.comm, w.stream));
  CHECK_TEXT(nexarGetLastError(NULL), "nexarRecvTagStatus: ");
  CHECK_TEXT(nexarGetLastError(NULL), argument);
  if (is_of_both) {
    CHECK_CODE(nexarInvalidArgument, nexarProbeTag(w.peer, w.tag, &flag, &status, w.comm));
    CHECK_TEXT(nexarGetLastError(NULL), "nexarProbeTag: ");
    CHECK_TEXT(nexarGetLastError(NULL), argument);
    CHECK_CODE(nexarInvalidArgument, nexarProbeTag(w.peer, w.tag, NULL, &status, w.comm));
  }
  status.size = unset.size;
  CHECK(is_unset(&status));
  CHECK_EQ(7, flag);
}

static void refuse_all(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  static char in[4];
  const struct wrong good = {.recv = in, .capacity = 4, .size = sizeof(nexarStatus_t), .peer = 1,
                             .comm = comm};
  struct wrong wrong;
  if (rank == 0) {
    const size_t sizes[] = {0, 1, 8, 28, sizeof(nexarStatus_t) - 1};
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
      wrong = good, wrong.size = sizes[i], refuse(wrong, true, "NEXAR_STATUS_INITIALIZER");
    const int peers[] = {-2, n, INT_MAX, INT_MIN};
    for (size_t i = 0; i < COUNT_OF(peers); i++)
      wrong = good, wrong.peer = peers[i], refuse(wrong, true, "peer");
    wrong = good, wrong.tag = -2, refuse(wrong, true, "tag");
    wrong = good, wrong.tag = INT_MIN, refuse(wrong, true, "tag");
    wrong = good, wrong.comm = NULL, refuse(wrong, true, "comm is NULL");
    wrong = good, wrong.datatype = 12, refuse(wrong, false, "datatype");
    wrong = good, wrong.recv = NULL, refuse(wrong, false, "recvbuff is NULL");
    wrong = good, wrong.capacity = SIZE_MAX / 2, wrong.datatype = nexarInt32;
    refuse(wrong, false, "capacity");
    wrong = good, wrong.stream = (nexarStream_t)in, refuse(wrong, false, "stream");
    for (size_t i = 0; i < sizeof in; i++) CHECK_EQ(0, in[i]);
  }
  check_it_works(rank, n, comm);
}

static void a_wrong_argument_is_refused_without_an_effect(void) { on_two_and_three(refuse_all); }

/* On a communicator of its own: another datatype fails it, as for every receive. */
static void mismatch(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  nexarComm_t another = another_with(rank, comm, 0);
  nexarResult_t result = nexarSuccess;
  nexarStatus_t status = unset;
  float sent[3] = {1, 2, 3}, received[8] = {0};
  if (rank == 1) result = nexarSendTag(sent, 3, nexarFloat32, 0, 5, another, NULL);
  if (rank == 0)
    result = nexarRecvTagStatus(received, 2, nexarInt32, 1, 5, &status, another, NULL);
  if (result == nexarSuccess) result = nexarBarrier(another, NULL);
  CHECK_CODE(nexarInvalidUsage, result);
  CHECK_TEXT(nexarGetLastError(another), "rank 1 called Send(3 x float32 to rank 0, tag 5)");
  CHECK_TEXT(nexarGetLastError(another), "Recv(up to 2 x int32 from rank 1, tag 5)");
  CHECK(is_unset(&status));
  CHECK_CODE(nexarSuccess, nexarCommDestroy(another));
  check_it_works(rank, n, comm);
}

static void another_datatype_fails_the_communicator(void) { on_two_and_three(mismatch); }

/* On a communicator whose operations end after half a second. */
static void miss_deadline(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  nexarComm_t another = another_with(rank, comm, 500);
  nexarStatus_t status = unset;
  int32_t data[4] = {7, 7, 7, 7};
  if (rank == 0) {
    CHECK_CODE(nexarTimeout, nexarRecvTagStatus(data, 4, nexarInt32, 1, 5, &status, another, NULL));
    CHECK_TEXT(nexarGetLastError(another), "Recv(up to 4 x int32 from rank 1, tag 5)");
    CHECK(is_unset(&status));
    for (size_t i = 0; i < COUNT_OF(data); i++) CHECK_EQ(7, data[i]);
  }
  CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
  CHECK_CODE(nexarSuccess, nexarCommDestroy(another));
  check_it_works(rank, n, comm);
}

static void a_receive_whose_deadline_passes_writes_no_status(void) {
  on_two_and_three(miss_deadline);
}

/* Threads of rank 0 receive with growing capacities; each message is received once. */
struct receiver {
  pthread_t thread;
  nexarComm_t comm;
  atomic_int *times; /* by tag */
};

static void *receive_some(void *arg) {
  struct receiver *receiver = arg;
  size_t capacity = 1;
  for (int i = 0; i < MESSAGES; i++) {
    nexarStatus_t status = unset;
    nexarResult_t result =
        recv_numbers(capacity, NEXAR_ANY_SOURCE, NEXAR_ANY_TAG, &status, receiver->comm);
    if (result == nexarInvalidArgument) {
      CHECK(is_unset(&status));
      capacity *= 2;
      i--;
      continue;
    }
    CHECK_CODE(nexarSuccess, result);
    if (result != nexarSuccess) return NULL;
    CHECK(status.count <= capacity && status.tag < THREADS * MESSAGES);
    CHECK_EQ(status.tag % 37, status.count);
    atomic_fetch_add(&receiver->times[status.tag % (THREADS * MESSAGES)], 1);
    capacity = 1 + (size_t)i % 5;
    progress();
  }
  return NULL;
}

static void receive_on_threads(int rank, int n, nexarComm_t comm, void *arg) {
  (void)n, (void)arg;
  CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
  if (rank == 1)
    for (int tag = 0; tag < THREADS * MESSAGES; tag++)
      CHECK_CODE(nexarSuccess, send_numbers((size_t)tag % 37, 0, tag, comm));
  if (rank == 0) {
    atomic_int times[THREADS * MESSAGES] = {0};
    struct receiver receivers[THREADS];
    for (int i = 0; i < THREADS; i++) {
      receivers[i] = (struct receiver){.comm = comm, .times = times};
      CHECK_EQ(0, pthread_create(&receivers[i].thread, NULL, receive_some, &receivers[i]));
    }
    for (int i = 0; i < THREADS; i++) CHECK_EQ(0, pthread_join(receivers[i].thread, NULL));
    for (int tag = 0; tag < THREADS * MESSAGES; tag++) CHECK_EQ(1, times[tag]);
  }
  CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
}

static void threads_receive_each_message_once(void) { on_two_and_three(receive_on_threads); }

static const struct test_case cases[] = {
    CASE(a_receive_reports_source_tag_count_and_datatype),
    CASE(a_capacity_of_0_receives_a_message_without_elements),
    CASE(a_message_that_is_too_long_stays_before_later_ones),
    CASE(a_receive_that_waits_fails_alone_when_a_longer_message_arrives),
    CASE(in_a_group_the_other_receives_succeed),
    CASE(nothing_is_written_beyond_the_first_version_of_a_status),
    CASE(a_wrong_argument_is_refused_without_an_effect),
    CASE(another_datatype_fails_the_communicator),
    CASE(a_receive_whose_deadline_passes_writes_no_status),
    CASE(threads_receive_each_message_once),
};

int main(void) { return RUN(cases); }
