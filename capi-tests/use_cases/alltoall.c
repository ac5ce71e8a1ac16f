/*
 * Use case: all-to-all. Rank i's block j becomes rank j's block i. Equal send and receive buffers,
 * which work in other libraries if their algorithm is staged, are part of the API here.
 */
#define _GNU_SOURCE
#include "support/elements.h"
#include "support/ranks.h"

enum { COUNT = 3 };

/* Element k of the block that rank `from` sends to rank `to`. */
static int32_t element(int from, int to, int k) { return 10000 * from + 100 * to + k; }

static void exchange(int rank, int n, nexarComm_t comm, void *arg) {
  const bool in_place = *(const bool *)arg;
  int32_t send[MOST_RANKS * COUNT] = {0}, other[MOST_RANKS * COUNT];
  int32_t *recv = in_place ? send : other;
  for (int i = 0; i < n * COUNT; i++) send[i] = element(rank, i / COUNT, i % COUNT);
  CHECK_CODE(nexarSuccess, nexarAllToAll(send, recv, COUNT, nexarInt32, comm, NULL));
  for (int i = 0; i < n * COUNT; i++) {
    CHECK_EQ(element(i / COUNT, rank, i % COUNT), recv[i]);
    if (!in_place) CHECK_EQ(element(rank, i / COUNT, i % COUNT), send[i]);
  }
}

static void in_every_world(bool in_place) {
  for (size_t i = 0; i < COUNT_OF(sizes); i++) run_ranks(sizes[i], exchange, &in_place);
}

static void block_j_of_rank_i_becomes_block_i_of_rank_j(void) { in_every_world(false); }

static void send_and_receive_buffer_may_be_equal(void) { in_every_world(true); }

static void exchange_twice(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  float data[MOST_RANKS * COUNT] = {0}, before[MOST_RANKS * COUNT] = {0};
  for (int i = 0; i < n * COUNT; i++) before[i] = data[i] = (float)(100 * rank + i);
  for (int i = 0; i < 2; i++)
    CHECK_CODE(nexarSuccess, nexarAllToAll(data, data, COUNT, nexarFloat32, comm, NULL));
  CHECK(memcmp(before, data, (size_t)(n * COUNT) * sizeof *data) == 0);
}

static void two_exchanges_restore_the_data(void) {
  for (size_t i = 0; i < COUNT_OF(sizes); i++) run_ranks(sizes[i], exchange_twice, NULL);
}

static const struct test_case cases[] = {
    CASE(block_j_of_rank_i_becomes_block_i_of_rank_j),
    CASE(send_and_receive_buffer_may_be_equal),
    CASE(two_exchanges_restore_the_data),
};

int main(void) { return RUN(cases); }
