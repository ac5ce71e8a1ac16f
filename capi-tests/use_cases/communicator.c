/*
 * Use case: numr's Communicator. Its send and recv do not wait before its sync: they map to a
 * group, and sync to the end of the group.
 */
#define _GNU_SOURCE
#include "support/elements.h"
#include "support/ranks.h"

enum { COUNT = 5 };

static void query_rank_and_size(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  int world_size = -1, own = -1;
  CHECK_CODE(nexarSuccess, nexarCommCount(comm, &world_size));
  CHECK_CODE(nexarSuccess, nexarCommUserRank(comm, &own));
  CHECK_EQ(n, world_size);
  CHECK_EQ(rank, own);
}

/* All-reduce in place, with each of numr's types that nexar has. */
static void all_reduce(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  const nexarDataType_t types[] = {nexarFloat32, nexarFloat64,  nexarFloat16, nexarBfloat16,
                                   nexarInt8,    nexarInt32,    nexarInt64,   nexarUint8,
                                   nexarUint32,  nexarUint64};
  const struct { nexarRedOp_t op; int result; } operators[] = {
      {nexarSum, n * (n + 1) / 2}, {nexarMin, 1}, {nexarMax, n}};
  for (size_t t = 0; t < COUNT_OF(types); t++)
    for (size_t f = 0; f < COUNT_OF(operators); f++) {
      const struct dtype *dtype = dtype_of(types[t]);
      unsigned char data[8 * COUNT], expected[8 * COUNT];
      for (size_t i = 0; i < COUNT; i++)
        if (dtype->kind == REAL) {
          put_real(dtype, data, i, rank + 1);
          put_real(dtype, expected, i, operators[f].result);
        } else {
          put_integer(dtype, data, i, (uint64_t)(rank + 1));
          put_integer(dtype, expected, i, (uint64_t)operators[f].result);
        }
      CHECK_CODE(nexarSuccess,
                 nexarAllReduce(data, data, COUNT, types[t], operators[f].op, comm, NULL));
      CHECK_SAME(expected, data, COUNT * dtype->size, dtype->name);
    }
  float product[COUNT] = {2, 2, 2, 2, 2};
  CHECK_CODE(nexarSuccess,
             nexarAllReduce(product, product, COUNT, nexarFloat32, nexarProd, comm, NULL));
  for (int i = 0; i < COUNT; i++) CHECK(product[i] == (float)(1 << n));
}

/* Messages match by tag, not in the order sent. */
static void send_and_recv(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  int next = (rank + 1) % n, before = (rank + n - 1) % n;
  int64_t late[COUNT] = {-1}, mine[COUNT] = {rank, 7, 2, 3, 4};
  CHECK_CODE(nexarSuccess, nexarGroupStart());
  CHECK_CODE(nexarSuccess, nexarRecvTag(late, COUNT, nexarInt64, before, 7, comm, NULL));
  CHECK_CODE(nexarSuccess, nexarSendTag(mine, COUNT, nexarInt64, next, 7, comm, NULL));
  CHECK_CODE(nexarSuccess, nexarGroupEnd()); /* sync */
  CHECK_EQ(before, late[0]);
  CHECK_EQ(7, late[1]);
  for (int tag = 0; tag < 3; tag++) {
    int64_t data[COUNT] = {rank, tag, 2, 3, 4};
    CHECK_CODE(nexarSuccess, nexarSendTag(data, COUNT, nexarInt64, next, tag, comm, NULL));
  }
  for (int tag = 2; tag >= 0; tag--) {
    int64_t data[COUNT] = {-1, -1, -1, -1, -1};
    CHECK_CODE(nexarSuccess, nexarRecvTag(data, COUNT, nexarInt64, before, tag, comm, NULL));
    CHECK_EQ(before, data[0]);
    CHECK_EQ(tag, data[1]);
    for (int i = 2; i < COUNT; i++) CHECK_EQ(i, data[i]);
  }
}

static void broadcast(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  for (int root = 0; root < n; root++) {
    int64_t data[COUNT];
    for (int i = 0; i < COUNT; i++) data[i] = rank == root ? 100 * root + i : -1;
    CHECK_CODE(nexarSuccess, nexarBcast(data, COUNT, nexarInt64, root, comm, NULL));
    for (int i = 0; i < COUNT; i++) CHECK_EQ(100 * root + i, data[i]);
  }
}

/* `count` is one rank's. */
static void all_gather(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  float send[COUNT], recv[MOST_RANKS * COUNT];
  for (int i = 0; i < COUNT; i++) send[i] = (float)(10 * rank + i);
  CHECK_CODE(nexarSuccess, nexarAllGather(send, recv, COUNT, nexarFloat32, comm, NULL));
  for (int i = 0; i < n * COUNT; i++) CHECK(recv[i] == (float)(10 * (i / COUNT) + i % COUNT));
}

/* `count` is one rank's, and rank i receives chunk i. */
static void reduce_scatter(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  float send[MOST_RANKS * COUNT] = {0}, recv[COUNT];
  for (int i = 0; i < n * COUNT; i++) send[i] = (float)(1000 * (i / COUNT) + i % COUNT + rank);
  CHECK_CODE(nexarSuccess,
             nexarReduceScatter(send, recv, COUNT, nexarFloat32, nexarSum, comm, NULL));
  for (int i = 0; i < COUNT; i++)
    CHECK(recv[i] == (float)(n * (1000 * rank + i) + n * (n - 1) / 2));
}

static void barrier(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  for (int i = 0; i < 100; i++) CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
  check_it_works(rank, n, comm);
}

/* Splits even and odd ranks; the keys order the last rank first. */
static void split(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  nexarComm_t part = NULL;
  int size = -1, own = -1, others = rank % 2 ? n / 2 : (n + 1) / 2;
  CHECK_CODE(nexarSuccess, nexarCommSplit(comm, rank % 2, -rank, &part, NULL));
  CHECK_CODE(nexarSuccess, nexarCommCount(part, &size));
  CHECK_CODE(nexarSuccess, nexarCommUserRank(part, &own));
  CHECK_EQ(others, size);
  CHECK_EQ(others - 1 - rank / 2, own);
  send_and_recv(own, size, part, NULL);
  check_it_works(own, size, part);
  CHECK_CODE(nexarSuccess, nexarCommDestroy(part));
  check_it_works(rank, n, comm);
}

static void in_every_world(rank_function *function) {
  for (size_t i = 0; i < COUNT_OF(sizes); i++) run_ranks(sizes[i], function, NULL);
}

static void world_size_and_rank_are_known(void) { in_every_world(query_rank_and_size); }
static void all_reduce_takes_every_type_in_place(void) { in_every_world(all_reduce); }
static void broadcast_copies_the_data_of_the_root(void) { in_every_world(broadcast); }
static void all_gather_collects_in_rank_order(void) { in_every_world(all_gather); }
static void reduce_scatter_gives_rank_i_chunk_i(void) { in_every_world(reduce_scatter); }
static void messages_are_received_by_peer_and_tag(void) { in_every_world(send_and_recv); }
static void split_creates_a_communicator_of_each_color(void) { in_every_world(split); }
static void all_ranks_leave_a_barrier(void) { in_every_world(barrier); }

static const struct test_case cases[] = {
    CASE(world_size_and_rank_are_known),
    CASE(all_reduce_takes_every_type_in_place),
    CASE(broadcast_copies_the_data_of_the_root),
    CASE(all_gather_collects_in_rank_order),
    CASE(reduce_scatter_gives_rank_i_chunk_i),
    CASE(messages_are_received_by_peer_and_tag),
    CASE(split_creates_a_communicator_of_each_color),
    CASE(all_ranks_leave_a_barrier),
};

int main(void) { return RUN(cases); }
