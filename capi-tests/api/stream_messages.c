/* Messages on host streams: what they wait for, and in which order they match. */
#include "support/status.h"

enum { SHORT = 3, LONG = 300000 };

static const size_t lengths[] = {0, SHORT, LONG};

static nexarStream_t new_stream(void) {
  nexarStream_t stream = NULL;
  CHECK_CODE(nexarSuccess, nexarStreamCreate(&stream));
  return stream;
}

static void end_streams(nexarStream_t *streams, int count) {
  for (int i = 0; i < count; i++) CHECK_CODE(nexarSuccess, nexarStreamSynchronize(streams[i]));
  for (int i = 0; i < count; i++) CHECK_CODE(nexarSuccess, nexarStreamDestroy(streams[i]));
}

static int32_t *numbers(size_t count, int tag) {
  int32_t *data = malloc((count + 1) * sizeof *data);
  for (size_t i = 0; i < count; i++) data[i] = element(i, tag);
  data[count] = -1;
  return data;
}

static int32_t *untouched(size_t count) {
  int32_t *data = malloc((count + 1) * sizeof *data);
  memset(data, 0xff, (count + 1) * sizeof *data);
  return data;
}

/* Each rank first queues the receive, then the send that the other rank waits for. */
static void receive_before_send(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  int next = (rank + 1) % n, before = (rank + n - 1) % n;
  for (size_t l = 0; l < COUNT_OF(lengths); l++) {
    size_t count = lengths[l];
    nexarStream_t streams[2] = {new_stream(), new_stream()};
    int32_t *in = untouched(count), *out = numbers(count, rank);
    CHECK_CODE(nexarSuccess, nexarRecvTag(in, count, nexarInt32, before, 1, comm, streams[0]));
    CHECK_CODE(nexarSuccess, nexarSendTag(out, count, nexarInt32, next, 1, comm, streams[1]));
    end_streams(streams, 2);
    check_numbers(in, count, count + 1, before);
    free(in);
    free(out);
    progress();
  }
}
static void a_receive_and_a_send_on_two_streams_do_not_wait_for_each_other(void) {
  on_two_and_three(receive_before_send);
}

/* Stream 0 is held up; the receives behind it and on stream 1 match in the order of the calls. */
static void match_in_order(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  nexarComm_t other = join_another(rank, n, comm);
  if (rank == 0) {
    nexarStream_t streams[2] = {new_stream(), new_stream()};
    int32_t held = -1, data[2] = {-1, -1};
    CHECK_CODE(nexarSuccess, nexarRecv(&held, 1, nexarInt32, 1, comm, streams[0]));
    for (int i = 0; i < 2; i++)
      CHECK_CODE(nexarSuccess, nexarRecvTag(&data[i], 1, nexarInt32, NEXAR_ANY_SOURCE,
                                            NEXAR_ANY_TAG, comm, streams[i]));
    CHECK_CODE(nexarSuccess, nexarBarrier(other, NULL));
    CHECK_CODE(nexarSuccess, nexarStreamSynchronize(streams[1]));
    CHECK_EQ(2, data[1]);
    CHECK_EQ(-1, data[0]); /* its message has arrived, its stream has not reached it */
    CHECK_CODE(nexarSuccess, nexarBarrier(other, NULL));
    end_streams(streams, 2);
    CHECK_EQ(9, held);
    CHECK_EQ(1, data[0]);
  } else {
    CHECK_CODE(nexarSuccess, nexarBarrier(other, NULL));
    for (int32_t i = 1; i <= 2 && rank == 1; i++)
      CHECK_CODE(nexarSuccess, nexarSendTag(&i, 1, nexarInt32, 0, 7, comm, NULL));
    CHECK_CODE(nexarSuccess, nexarBarrier(other, NULL));
    int32_t nine = 9;
    if (rank == 1) CHECK_CODE(nexarSuccess, nexarSend(&nine, 1, nexarInt32, 0, comm, NULL));
  }
  CHECK_CODE(nexarSuccess, nexarCommDestroy(other));
}
static void receives_on_several_streams_match_in_the_order_of_their_calls(void) {
  on_two_and_three(match_in_order);
}

/* The first send is queued behind a receive; the second, on another stream, does not overtake. */
static void send_in_order(int rank, int n, nexarComm_t comm, void *arg) {
  (void)n, (void)arg;
  for (size_t l = 0; l < COUNT_OF(lengths); l++) {
    size_t count = lengths[l];
    if (rank == 0) {
      nexarStream_t streams[2] = {new_stream(), new_stream()};
      int32_t gate = 0, *out[2] = {numbers(count, 1), numbers(count, 2)};
      CHECK_CODE(nexarSuccess, nexarRecv(&gate, 1, nexarInt32, 1, comm, streams[0]));
      for (int i = 0; i < 2; i++)
        CHECK_CODE(nexarSuccess,
                   nexarSendTag(out[i], count, nexarInt32, 1, i + 1, comm, streams[i]));
      end_streams(streams, 2);
      for (int i = 0; i < 2; i++) free(out[i]);
    } else if (rank == 1) {
      int32_t open = 1;
      int found = 1;
      CHECK_CODE(nexarSuccess, nexarProbeTag(0, 2, &found, NULL, comm));
      CHECK_EQ(0, found);
      CHECK_CODE(nexarSuccess, nexarSend(&open, 1, nexarInt32, 0, comm, NULL));
      for (int tag = 1; tag <= 2; tag++) {
        nexarStatus_t status = unset;
        CHECK_CODE(nexarSuccess, recv_numbers(count, 0, NEXAR_ANY_TAG, &status, comm));
        CHECK_STATUS(status, 0, tag, count, nexarInt32);
      }
    }
    progress();
  }
}
static void sends_to_one_rank_do_not_overtake_each_other_on_any_stream(void) {
  on_two_and_three(send_in_order);
}

/* A collective that waits for its ranks, and a receive that waits, hold up neither the other. */
static void pass_collectives(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  nexarComm_t other = join_another(rank, n, comm);
  int32_t sum = 1, in = -1, late = -1;
  if (rank == 0) {
    nexarStream_t streams[4] = {new_stream(), new_stream(), new_stream(), new_stream()};
    CHECK_CODE(nexarSuccess, nexarRecvTag(&late, 1, nexarInt32, 1, 2, comm, streams[3]));
    CHECK_CODE(nexarSuccess,
               nexarAllReduce(&sum, &sum, 1, nexarInt32, nexarSum, comm, streams[0]));
    CHECK_CODE(nexarSuccess, nexarRecvTag(&in, 1, nexarInt32, 1, 1, comm, streams[1]));
    CHECK_CODE(nexarSuccess, nexarStreamSynchronize(streams[1]));
    CHECK_EQ(5, in);
    CHECK_CODE(nexarInProgress, nexarStreamQuery(streams[0]));
    CHECK_CODE(nexarSuccess, nexarBarrier(other, NULL));
    CHECK_CODE(nexarSuccess, nexarStreamSynchronize(streams[0]));
    CHECK_EQ(n, sum);
    CHECK_CODE(nexarSuccess, nexarBarrier(comm, streams[2]));
    CHECK_CODE(nexarSuccess, nexarStreamSynchronize(streams[2]));
    CHECK_CODE(nexarInProgress, nexarStreamQuery(streams[3]));
    CHECK_CODE(nexarSuccess, nexarBarrier(other, NULL));
    end_streams(streams, 4);
    CHECK_EQ(6, late);
  } else {
    int32_t values[2] = {5, 6};
    if (rank == 1) CHECK_CODE(nexarSuccess, nexarSendTag(values, 1, nexarInt32, 0, 1, comm, NULL));
    CHECK_CODE(nexarSuccess, nexarBarrier(other, NULL));
    CHECK_CODE(nexarSuccess, nexarAllReduce(&sum, &sum, 1, nexarInt32, nexarSum, comm, NULL));
    CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
    CHECK_CODE(nexarSuccess, nexarBarrier(other, NULL));
    if (rank == 1)
      CHECK_CODE(nexarSuccess, nexarSendTag(values + 1, 1, nexarInt32, 0, 2, comm, NULL));
  }
  CHECK_CODE(nexarSuccess, nexarCommDestroy(other));
}
static void messages_and_collectives_on_different_streams_pass_each_other(void) {
  on_two_and_three(pass_collectives);
}

/* The collective of a group releases later ones, although a message of the group still waits. */
static void pass_groups(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  int next = (rank + 1) % n, before = (rank + n - 1) % n;
  nexarStream_t streams[2] = {new_stream(), new_stream()};
  int32_t in[2] = {-1, -1}, out = rank;
  CHECK_CODE(nexarSuccess, nexarGroupStart());
  CHECK_CODE(nexarSuccess, nexarBarrier(comm, streams[0]));
  for (int i = 0; i < 2; i++)
    CHECK_CODE(nexarSuccess, nexarRecvTag(&in[i], 1, nexarInt32, before, i, comm, streams[i]));
  CHECK_CODE(nexarSuccess, nexarSendTag(&out, 1, nexarInt32, next, 1, comm, streams[1]));
  CHECK_CODE(nexarSuccess, nexarGroupEnd());
  CHECK_CODE(nexarSuccess, nexarBarrier(comm, streams[1]));
  CHECK_CODE(nexarSuccess, nexarStreamSynchronize(streams[1]));
  CHECK_EQ(before, in[1]);
  CHECK_CODE(nexarSuccess, nexarSendTag(&out, 1, nexarInt32, next, 0, comm, streams[1]));
  end_streams(streams, 2);
  CHECK_EQ(before, in[0]);
}
static void a_message_of_a_group_holds_up_no_later_collective(void) {
  on_two_and_three(pass_groups);
}

static void wait_on_null(int rank, int n, nexarComm_t comm, void *arg) {
  (void)n, (void)arg;
  nexarStream_t streams[2] = {new_stream(), new_stream()};
  int32_t in[2] = {-1, -1}, out[2] = {3, 4};
  for (int i = 0; i < 2 && rank == 0; i++)
    CHECK_CODE(nexarSuccess, nexarRecvTag(&in[i], 1, nexarInt32, 1, i, comm, streams[i]));
  for (int i = 1; i >= 0 && rank == 1; i--)
    CHECK_CODE(nexarSuccess, nexarSendTag(&out[i], 1, nexarInt32, 0, i, comm, NULL));
  CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
  for (int i = 0; i < 2 && rank == 0; i++) CHECK_EQ(out[i], in[i]);
  end_streams(streams, 2);
}
static void a_call_on_no_stream_waits_for_queued_messages(void) {
  on_two_and_three(wait_on_null);
}

/* Messages that their streams have not reached end with the communicator. Rank 1 sends the second. */
static void abort_queued_messages(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  nexarComm_t other = join_another(rank, n, comm);
  int32_t in[3] = {-1, -1, -1}, out = 7;
  if (rank == 1) CHECK_CODE(nexarSuccess, nexarSendTag(&out, 1, nexarInt32, 0, 1, other, NULL));
  CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
  if (rank == 0) {
    nexarStream_t stream = new_stream();
    for (int i = 0; i < 3; i++)
      CHECK_CODE(nexarSuccess, nexarRecvTag(&in[i], 1, nexarInt32, 1, i, other, stream));
    CHECK_CODE(nexarSuccess, nexarSendTag(&out, 1, nexarInt32, 1, 0, other, stream));
    CHECK_CODE(nexarSuccess, nexarCommAbort(other));
    CHECK_CODE(nexarInvalidUsage, nexarStreamSynchronize(stream));
    CHECK_TEXT(nexarGetLastError(NULL), "aborted");
    CHECK_CODE(nexarSuccess, nexarStreamDestroy(stream));
    for (int i = 0; i < 3; i += 2) CHECK_EQ(-1, in[i]);
  } else {
    CHECK_CODE(nexarRemoteError, nexarBarrier(other, NULL));
    CHECK_CODE(nexarSuccess, nexarCommDestroy(other));
  }
  check_it_works(rank, n, comm);
}
static void an_abort_ends_queued_messages(void) { on_two_and_three(abort_queued_messages); }

/* Destroying the communicator completes what is queued on its streams. */
static void send_on_a_third_stream(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  nexarComm_t other = join_another(rank, n, comm);
  nexarStream_t streams[3] = {new_stream(), new_stream(), new_stream()};
  int next = (rank + 1) % n, before = (rank + n - 1) % n;
  int32_t in[2] = {-1, -1}, out[2] = {rank, n + rank};
  for (int i = 0; i < 2; i++)
    CHECK_CODE(nexarSuccess, nexarRecv(&in[i], 1, nexarInt32, before, other, streams[i]));
  for (int i = 0; i < 2; i++)
    CHECK_CODE(nexarSuccess, nexarSend(&out[i], 1, nexarInt32, next, other, streams[2]));
  CHECK_CODE(nexarSuccess, nexarCommDestroy(other));
  for (int i = 0; i < 2; i++) CHECK_EQ(n * i + before, in[i]);
  end_streams(streams, 3);
}
static void ending_a_communicator_waits_for_queued_messages(void) {
  on_two_and_three(send_on_a_third_stream);
}

/* The deadline of a message counts from when its stream reaches it, and ends those behind it. */
static void be_late(int rank, int n, nexarComm_t comm, void *arg) {
  (void)n, (void)arg;
  nexarComm_t hasty = another_with(rank, comm, 200);
  if (rank == 0) {
    nexarStream_t streams[2] = {new_stream(), new_stream()};
    int32_t in[3] = {-1, -1, -1};
    for (int i = 0; i < 3; i++)
      CHECK_CODE(nexarSuccess, nexarRecvTag(&in[i], 1, nexarInt32, 1, i, hasty, streams[i / 2]));
    CHECK_CODE(nexarTimeout, nexarStreamSynchronize(streams[0]));
    CHECK_TEXT(nexarGetLastError(NULL), "Recv(1 x int32 from rank 1, tag ");
    CHECK_CODE(nexarTimeout, nexarStreamSynchronize(streams[1]));
    for (int i = 0; i < 3; i++) CHECK_EQ(-1, in[i]);
    end_streams(streams, 2);
  } else {
    nexarResult_t error = nexarSuccess;
    while (error == nexarSuccess) CHECK_CODE(nexarSuccess, nexarCommGetAsyncError(hasty, &error));
    CHECK_EQ(nexarTimeout, error);
  }
  CHECK_CODE(nexarSuccess, nexarCommDestroy(hasty));
}
static void a_message_that_is_late_ends_those_behind_it(void) { on_two_and_three(be_late); }

static const struct test_case cases[] = {
    CASE(a_receive_and_a_send_on_two_streams_do_not_wait_for_each_other),
    CASE(receives_on_several_streams_match_in_the_order_of_their_calls),
    CASE(sends_to_one_rank_do_not_overtake_each_other_on_any_stream),
    CASE(messages_and_collectives_on_different_streams_pass_each_other),
    CASE(a_message_of_a_group_holds_up_no_later_collective),
    CASE(a_call_on_no_stream_waits_for_queued_messages),
    CASE(an_abort_ends_queued_messages),
    CASE(ending_a_communicator_waits_for_queued_messages),
    CASE(a_message_that_is_late_ends_those_behind_it),
};

int main(void) { return RUN(cases); }
