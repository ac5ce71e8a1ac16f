/*
 * Groups with operations on CUDA streams: on one or several streams and communicators, in any order
 * of these, beside operations on host memory.
 */
#include "vectors.h"

enum { FEW = 1001, MANY = (9 << 20) + 1 /* elements: five pieces */, CALLS = 6 };

struct calls {
  struct vector vectors[CALLS];
};

/* Creates a vector for each call and fills it on its stream, with values that differ by call. */
static struct calls new_calls(size_t count, CUstream const *streams, int number,
                              struct here here) {
  struct calls calls;
  for (int i = 0; i < CALLS; i++) calls.vectors[i] = new_vector(i % 2 ? count : FEW);
  for (int i = 0; i < CALLS; i++)
    fill_vector(&calls.vectors[i], streams[i % number], (uint32_t)(here.rank + 1 + i), 5);
  return calls;
}

static void copy_out_and_check(struct calls *calls, CUstream const *streams, int number,
                          struct here here) {
  for (int i = 0; i < CALLS; i++) copy_out(&calls->vectors[i], streams[i % number]);
  for (int i = 0; i < CALLS; i++) {
    synchronize(streams[i % number]);
    CHECK_SEEN(&calls->vectors[i], sum_of_ranks(here.n) + (uint32_t)(i * here.n), 5 * here.n);
    free_vector(&calls->vectors[i]);
  }
}

static void group_on(CUstream const *streams, int number, size_t count) {
  struct here h = here();
  struct calls calls = new_calls(count, streams, number, h);
  CALL(nexarGroupStart());
  for (int i = 0; i < CALLS; i++)
    CALL(reduce_vector(&calls.vectors[i], h.comm, streams[i % number]));
  CALL(nexarGroupEnd());
  copy_out_and_check(&calls, streams, number, h);
}

static void a_group_of_one_stream_gives_its_results_in_order(void) {
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING), legacy = NULL;
  group_on(&stream, 1, FEW);
  group_on(&stream, 1, MANY);
  group_on(&legacy, 1, MANY);
  end_stream(stream);
}

static void a_group_may_have_several_streams(void) {
  CUstream streams[] = {new_stream(CU_STREAM_NON_BLOCKING), CU_STREAM_PER_THREAD,
                        new_stream(CU_STREAM_DEFAULT), NULL};
  group_on(streams, COUNT_OF(streams), FEW);
  group_on(streams, COUNT_OF(streams), MANY);
  end_stream(streams[0]);
  end_stream(streams[2]);
}

/* nexarGroupEnd waits for no operation on a stream. */
static void the_end_of_a_group_returns_before_the_data_is_there(void) {
  if (!can_hold_streams()) return;
  struct here h = here();
  CUstream streams[] = {new_stream(CU_STREAM_NON_BLOCKING), new_stream(CU_STREAM_NON_BLOCKING)};
  struct calls calls = new_calls(MANY, streams, 2, h);
  uint64_t holds[2];
  for (int i = 0; i < 2; i++) {
    synchronize(streams[i]);
    MINE(holds[i] = fakecuda_hold(streams[i]));
  }
  CALL(nexarGroupStart());
  for (int i = 0; i < CALLS; i++) CALL(reduce_vector(&calls.vectors[i], h.comm, streams[i % 2]));
  CALL(nexarGroupEnd());
  for (int i = 0; i < 2; i++) check_stays_busy(streams[i]);
  for (int i = 0; i < 2; i++) fakecuda_release(holds[i]);
  copy_out_and_check(&calls, streams, 2, h);
  end_stream(streams[0]);
  end_stream(streams[1]);
}

/* Rank 0 names the first communicator first, rank 1 the second, and so on. */
static void name_in_another_order(size_t count, bool on_one_stream) {
  enum { COMMS = 3 };
  struct here h = here();
  nexarComm_t comms[COMMS] = {h.comm, join_another(h.rank, h.n, h.comm), NULL};
  CALL(nexarCommSplit(h.comm, 0, h.rank, &comms[2], NULL));
  CUstream streams[COMMS];
  for (int i = 0; i < COMMS; i++)
    streams[i] = on_one_stream && i ? streams[0] : new_stream(CU_STREAM_NON_BLOCKING);
  struct calls calls = new_calls(count, streams, COMMS, h);
  for (int i = 0; i < COMMS; i++) synchronize(streams[i]);
  CALL(nexarGroupStart());
  for (int i = 0; i < COMMS; i++) {
    int which = (i + h.rank) % COMMS;
    for (int j = which; j < CALLS; j += COMMS)
      CALL(reduce_vector(&calls.vectors[j], comms[which], streams[which]));
  }
  CALL(nexarGroupEnd());
  copy_out_and_check(&calls, streams, COMMS, h);
  for (int i = 0; i < (on_one_stream ? 1 : COMMS); i++) end_stream(streams[i]);
  CALL(nexarCommDestroy(comms[1]));
  CALL(nexarCommDestroy(comms[2]));
}

static void ranks_may_name_communicators_in_any_order_in_a_group(void) {
  name_in_another_order(FEW, false);
  name_in_another_order(MANY, false);
}
static void ranks_may_name_communicators_in_any_order_on_one_stream(void) {
  name_in_another_order(FEW, true);
  name_in_another_order(MANY, true);
}

/* Collectives, messages, host memory with and without a stream. */
static void a_group_may_have_calls_of_every_kind(void) {
  struct here h = here();
  int next = (h.rank + 1) % h.n, previous = (h.rank + h.n - 1) % h.n;
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  nexarStream_t of_host;
  CHECK_CODE(nexarSuccess, nexarStreamCreate(&of_host));
  struct vector reduced = new_vector(MANY), mine = new_vector(FEW), theirs = new_vector(FEW),
                all = new_vector((size_t)h.n * FEW);
  uint32_t on_host = (uint32_t)h.rank + 1, queued = 10 * on_host, ordered = 100 * on_host;
  fill_vector(&reduced, stream, on_host, 2 * on_host);
  fill_vector(&mine, stream, 1000 * (uint32_t)h.rank, 1);
  CALL(nexarGroupStart());
  CALL(nexarSend(data_of(&mine), FEW, nexarUint32, next, h.comm, stream));
  CALL(reduce_vector(&reduced, h.comm, stream));
  CALL(nexarAllReduce(&on_host, &on_host, 1, nexarUint32, nexarSum, h.comm, NULL));
  CALL(nexarAllGather(data_of(&mine), data_of(&all), FEW, nexarUint32, h.comm, stream));
  CALL(nexarAllReduce(&queued, &queued, 1, nexarUint32, nexarSum, h.comm, of_host));
  CALL(nexarRecv(data_of(&theirs), FEW, nexarUint32, previous, h.comm, stream));
  CALL(nexarAllReduce(&ordered, &ordered, 1, nexarUint32, nexarSum, h.comm, stream));
  CALL(nexarGroupEnd());
  CHECK_EQ(sum_of_ranks(h.n), on_host);
  copy_out(&reduced, stream);
  copy_out(&theirs, stream);
  copy_out(&all, stream);
  synchronize(stream);
  CHECK_CODE(nexarSuccess, nexarStreamSynchronize(of_host));
  CHECK_EQ(10 * sum_of_ranks(h.n), queued);
  CHECK_EQ(100 * sum_of_ranks(h.n), ordered);
  CHECK_SEEN(&reduced, sum_of_ranks(h.n), 2 * sum_of_ranks(h.n));
  CHECK_SEEN(&theirs, 1000 * previous, 1);
  for (int i = 0; i < h.n; i++) CHECK_PROGRESSION(all.seen + i * FEW, FEW, 1000 * i, 1);
  CHECK_CODE(nexarSuccess, nexarStreamDestroy(of_host));
  end_stream(stream);
  free_vector(&reduced);
  free_vector(&mine);
  free_vector(&theirs);
  free_vector(&all);
}

/* Rank 0 sends in the group, rank 1 receives after its group: the collective does not wait for the
   message. */
static void a_message_of_a_group_may_be_received_after_the_group(void) {
  enum { FEW_PIECES = 2 << 20 };
  struct here h = here();
  const size_t sizes_[] = {FEW, FEW_PIECES, MANY};
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  for (size_t s = 0; s < COUNT_OF(sizes_); s++) {
    struct vector reduced = new_vector(sizes_[s]), message = new_vector(1 << 20);
    fill_vector(&reduced, stream, (uint32_t)h.rank + 1, 1);
    fill_vector(&message, stream, h.rank ? 0 : 77, 3);
    CALL(nexarGroupStart());
    CALL(reduce_vector(&reduced, h.comm, stream));
    if (h.rank == 0)
      CALL(nexarSend(data_of(&message), message.count, nexarUint32, 1, h.comm, stream));
    CALL(nexarGroupEnd());
    if (h.rank == 1)
      CALL(nexarRecv(data_of(&message), message.count, nexarUint32, 0, h.comm, stream));
    copy_out(&reduced, stream);
    copy_out(&message, stream);
    synchronize(stream);
    CHECK_SEEN(&reduced, sum_of_ranks(h.n), h.n);
    CHECK_SEEN(&message, h.rank < 2 ? 77 : 0, 3);
    free_vector(&reduced);
    free_vector(&message);
  }
  end_stream(stream);
}

/* The caller waits for the message, while the collectives execute on their streams. */
static void a_group_may_have_collectives_and_a_message_beyond_pinned_memory(void) {
  enum { LARGE = (17 << 20) / 4 };
  struct here h = here();
  int next = (h.rank + 1) % h.n, previous = (h.rank + h.n - 1) % h.n;
  CUstream streams[] = {new_stream(CU_STREAM_NON_BLOCKING), new_stream(CU_STREAM_NON_BLOCKING)};
  struct vector sent = new_vector(LARGE), got = new_vector(LARGE);
  for (int apart = 0; apart < 2; apart++) {
    CUstream of_message = streams[apart];
    struct calls calls = new_calls(MANY, streams, 1, h);
    fill_vector(&sent, of_message, (uint32_t)h.rank, 1);
    CALL(nexarGroupStart());
    for (int i = 0; i < CALLS; i++) {
      CALL(reduce_vector(&calls.vectors[i], h.comm, streams[0]));
      if (i != CALLS / 2) continue;
      CALL(nexarSend(data_of(&sent), LARGE, nexarUint32, next, h.comm, of_message));
      CALL(nexarRecv(data_of(&got), LARGE, nexarUint32, previous, h.comm, of_message));
    }
    CALL(nexarGroupEnd());
    copy_out(&got, of_message);
    copy_out_and_check(&calls, streams, 1, h);
    synchronize(of_message);
    CHECK_SEEN(&got, previous, 1);
  }
  end_stream(streams[0]);
  end_stream(streams[1]);
  free_vector(&sent);
  free_vector(&got);
}

static const struct test_case cases[] = {
    CASE(a_group_of_one_stream_gives_its_results_in_order),
    CASE(a_group_may_have_several_streams),
    CASE(the_end_of_a_group_returns_before_the_data_is_there),
    CASE(ranks_may_name_communicators_in_any_order_in_a_group),
    CASE(ranks_may_name_communicators_in_any_order_on_one_stream),
    CASE(a_group_may_have_calls_of_every_kind),
    CASE(a_message_of_a_group_may_be_received_after_the_group),
    CASE(a_group_may_have_collectives_and_a_message_beyond_pinned_memory),
};

int main(void) {
  begin_with_device();
  return RUN(cases);
}
