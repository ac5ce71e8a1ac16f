/*
 * Messages between devices, and between devices and hosts: alone, in groups, with tags, and of any
 * size, also larger than the pinned memory for them.
 */
#include "vectors.h"

/* In elements. The last message is larger than the 16 MiB of pinned memory for messages. */
static const size_t counts[] = {0, 1, 1001, 5000, 1 << 20, (17 << 18) + 1};

static void *data_or_null(const struct vector *vector) {
  return vector->count ? data_of(vector) : NULL;
}

static struct vector vector_or_none(size_t count) {
  return count ? new_vector(count) : (struct vector){0, 0, NULL};
}

static void free_if_any(struct vector *vector) {
  if (vector->count) free_vector(vector);
}

/* Fills the vector with the values that a rank sends. */
static void fill_of_rank(const struct vector *vector, CUstream stream, int rank) {
  if (vector->count) fill_vector(vector, stream, 1000 * (uint32_t)rank, (uint32_t)rank + 1);
}

static void check_of_rank(const struct vector *vector, CUstream stream, int rank) {
  if (!vector->count) return;
  copy_out(vector, stream);
  synchronize(stream);
  CHECK_SEEN(vector, 1000 * rank, rank + 1);
}

static void pass_around(size_t count, bool in_group, CUstream stream) {
  struct here h = here();
  int next = (h.rank + 1) % h.n, previous = (h.rank + h.n - 1) % h.n;
  struct vector mine = vector_or_none(count), theirs = vector_or_none(count);
  fill_of_rank(&mine, stream, h.rank);
  if (in_group) {
    CALL(nexarGroupStart());
    CALL(nexarRecv(data_or_null(&theirs), count, nexarUint32, previous, h.comm, stream));
    CALL(nexarSend(data_or_null(&mine), count, nexarUint32, next, h.comm, stream));
    CALL(nexarGroupEnd());
  } else {
    CALL(nexarSendRecv(data_or_null(&mine), count, next, data_or_null(&theirs), count, previous,
                       nexarUint32, h.comm, stream));
  }
  if (count) fill_vector(&mine, stream, 7, 7); /* the stream overwrites it after the send */
  check_of_rank(&theirs, stream, previous);
  free_if_any(&mine);
  free_if_any(&theirs);
}

static void messages_pass_around_in_groups_and_by_sendrecv(void) {
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  for (size_t i = 0; i < COUNT_OF(counts); i++)
    for (int in_group = 0; in_group < 2; in_group++)
      pass_around(counts[i], in_group, i % 2 ? stream : NULL);
  end_stream(stream);
}

static void write_late(void *data) {
  usleep(20000);
  *(uint32_t *)data = 5;
}

/* One call, of which one half is on host memory and the other on the device. */
static void both_halves_of_a_sendrecv_are_in_the_order_of_stream_null(void) {
  struct here h = here();
  int next = (h.rank + 1) % h.n, previous = (h.rank + h.n - 1) % h.n;
  uint32_t number = 1;
  struct vector vector = new_vector(1);
  DO(cuLaunchHostFunc(NULL, write_late, &number));
  CALL(nexarSendRecv(&number, 1, next, data_of(&vector), 1, previous, nexarUint32, h.comm, NULL));
  copy_out(&vector, NULL);
  synchronize(NULL);
  CHECK_EQ(5, vector.seen[0]);
  number = 1;
  CALL(nexarSendRecv(data_of(&vector), 1, next, &number, 1, previous, nexarUint32, h.comm, NULL));
  synchronize(NULL);
  CHECK_EQ(5, number);
  free_vector(&vector);
}

/* From rank 0 to all other ranks, between every two kinds of memory. */
static void a_message_passes_from_any_memory_to_any(void) {
  struct here h = here();
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  enum { COUNT = 40001 };
  struct vector vector = new_vector(COUNT);
  uint32_t *host = malloc(4 * COUNT), *pinned;
  MINE(pinned = pinned_memory(4 * COUNT));
  void *const memories[] = {data_of(&vector), host, pinned};
  for (size_t from = 0; from < COUNT_OF(memories); from++)
    for (size_t to = 0; to < COUNT_OF(memories); to++) {
      void *own = memories[h.rank == 0 ? from : to];
      if (h.rank == 0) fill_of_rank(&vector, stream, 5);
      if (h.rank == 0 && own != data_of(&vector)) {
        copy_out(&vector, stream);
        synchronize(stream);
        memcpy(own, vector.seen, 4 * COUNT);
      }
      if (h.rank > 0) CALL(nexarRecv(own, COUNT, nexarUint32, 0, h.comm, stream));
      for (int peer = 1; h.rank == 0 && peer < h.n; peer++)
        CALL(nexarSend(own, COUNT, nexarUint32, peer, h.comm, stream));
      if (own == data_of(&vector)) copy_out(&vector, stream);
      synchronize(stream);
      CHECK_PROGRESSION(own == data_of(&vector) ? vector.seen : own, COUNT, 5000, 6);
    }
  free(host);
  DO(cuMemFreeHost(pinned));
  end_stream(stream);
  free_vector(&vector);
}

/* The receives are in another order than the sends, and match by tag. */
static void tags_match_messages(void) {
  enum { MESSAGES = 6 };
  struct here h = here();
  int next = (h.rank + 1) % h.n, previous = (h.rank + h.n - 1) % h.n;
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  struct vector sent[MESSAGES], got[MESSAGES];
  for (size_t i = 0; i < MESSAGES; i++) {
    sent[i] = new_vector(3 + 2000 * i);
    got[i] = new_vector(3 + 2000 * i);
  }
  for (int i = 0; i < MESSAGES; i++)
    fill_vector(&sent[i], stream, 10 * (uint32_t)i + (uint32_t)h.rank, 3);
  CALL(nexarGroupStart());
  for (int i = 0; i < MESSAGES; i++)
    CALL(nexarSendTag(data_of(&sent[i]), sent[i].count, nexarUint32, next, 100 + i, h.comm,
                      stream));
  for (int i = MESSAGES - 1; i >= 0; i--)
    CALL(nexarRecvTag(data_of(&got[i]), got[i].count, nexarUint32, previous, 100 + i, h.comm,
                      stream));
  CALL(nexarGroupEnd());
  for (int i = 0; i < MESSAGES; i++) copy_out(&got[i], stream);
  synchronize(stream);
  for (int i = 0; i < MESSAGES; i++) {
    CHECK_SEEN(&got[i], 10 * i + previous, 3);
    free_vector(&sent[i]);
    free_vector(&got[i]);
  }
  end_stream(stream);
}

/* Every rank sends to every rank, itself included, on two streams. */
static void every_rank_sends_to_every_rank(void) {
  struct here h = here();
  const size_t sizes_[] = {1, 1001, 1 << 20};
  CUstream streams[] = {new_stream(CU_STREAM_NON_BLOCKING), new_stream(CU_STREAM_DEFAULT)};
  for (size_t s = 0; s < COUNT_OF(sizes_); s++) {
    struct vector sent[MOST_RANKS], got[MOST_RANKS];
    for (int peer = 0; peer < h.n; peer++) {
      sent[peer] = new_vector(sizes_[s]);
      got[peer] = new_vector(sizes_[s]);
    }
    for (int peer = 0; peer < h.n; peer++)
      fill_vector(&sent[peer], streams[0], (uint32_t)(100 * h.rank + peer), 9);
    CALL(nexarGroupStart());
    for (int peer = 0; peer < h.n; peer++) {
      CALL(nexarSend(data_of(&sent[peer]), sizes_[s], nexarUint32, peer, h.comm, streams[0]));
      CALL(nexarRecv(data_of(&got[peer]), sizes_[s], nexarUint32, peer, h.comm, streams[1]));
    }
    CALL(nexarGroupEnd());
    for (int peer = 0; peer < h.n; peer++) copy_out(&got[peer], streams[1]);
    synchronize(streams[0]);
    synchronize(streams[1]);
    for (int peer = 0; peer < h.n; peer++) {
      CHECK_SEEN(&got[peer], 100 * peer + h.rank, 9);
      free_vector(&sent[peer]);
      free_vector(&got[peer]);
    }
  }
  end_stream(streams[0]);
  end_stream(streams[1]);
}

/* Small messages, and one too large for pinned memory, for which the caller waits. */
static void large_messages_and_small_ones_are_in_one_group(void) {
  enum { SMALL = 4, LARGE = (20 << 20) / 4 };
  struct here h = here();
  int next = (h.rank + 1) % h.n, previous = (h.rank + h.n - 1) % h.n;
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  struct vector sent[SMALL + 1], got[SMALL + 1];
  for (size_t i = 0; i <= SMALL; i++) {
    sent[i] = new_vector(i == 2 ? LARGE : 1001 * (i + 1));
    got[i] = new_vector(i == 2 ? LARGE : 1001 * (i + 1));
  }
  for (int i = 0; i <= SMALL; i++) fill_of_rank(&sent[i], stream, h.rank + i);
  CALL(nexarGroupStart());
  for (int i = 0; i <= SMALL; i++) {
    CALL(nexarSend(data_of(&sent[i]), sent[i].count, nexarUint32, next, h.comm, stream));
    CALL(nexarRecv(data_of(&got[i]), got[i].count, nexarUint32, previous, h.comm, stream));
  }
  CALL(nexarGroupEnd());
  for (int i = 0; i <= SMALL; i++) {
    check_of_rank(&got[i], stream, previous + i);
    free_vector(&sent[i]);
    free_vector(&got[i]);
  }
  end_stream(stream);
  CHECK(fakecuda_most_pinned_bytes() <= MOST_PINNED);
}

/* A send returns at once, although it has no receive yet and its data is not written yet. */
static void a_send_returns_before_its_data_is_there(void) {
  if (!can_hold_streams()) return;
  struct here h = here();
  enum { COUNT = 1 << 20 };
  nexarComm_t other = join_another(h.rank, h.n, h.comm);
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  struct vector vector = new_vector(COUNT);
  uint64_t hold = 0;
  if (h.rank == 0) {
    MINE(hold = fakecuda_hold(stream));
    fill_of_rank(&vector, stream, 3);
  }
  if (h.rank == 0) CALL(nexarSend(data_of(&vector), COUNT, nexarUint32, 1, h.comm, stream));
  if (h.rank == 1) CALL(nexarRecv(data_of(&vector), COUNT, nexarUint32, 0, h.comm, stream));
  CHECK_CODE(nexarSuccess, nexarBarrier(other, NULL));
  if (h.rank < 2) check_stays_busy(stream);
  CHECK_CODE(nexarSuccess, nexarBarrier(other, NULL));
  if (h.rank == 0) fakecuda_release(hold);
  if (h.rank == 1) check_of_rank(&vector, stream, 3);
  end_stream(stream);
  free_vector(&vector);
  CALL(nexarCommDestroy(other));
}

static const struct test_case cases[] = {
    CASE(messages_pass_around_in_groups_and_by_sendrecv),
    CASE(both_halves_of_a_sendrecv_are_in_the_order_of_stream_null),
    CASE(a_message_passes_from_any_memory_to_any),
    CASE(tags_match_messages),
    CASE(every_rank_sends_to_every_rank),
    CASE(large_messages_and_small_ones_are_in_one_group),
    CASE(a_send_returns_before_its_data_is_there),
};

int main(void) {
  begin_with_device();
  return RUN(cases);
}
