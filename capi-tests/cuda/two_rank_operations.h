/*
 * Every operation between two ranks, as a value. The same call on host memory gives the expected
 * result of the call on device memory.
 */
#ifndef TWO_RANK_OPERATIONS_H
#define TWO_RANK_OPERATIONS_H

#include "device_rank.h"

enum {
  COUNT = 1000,              /* elements of a block */
  SMALL = 8 * COUNT * 4,     /* bytes of a buffer */
  LARGE = (5 * 8 + 2) << 20, /* bytes, in more pieces than the ring has slots */
};

struct buffers {
  int rank;
  nexarComm_t comm;
  char *send, *recv;
  nexarStream_t stream, other;
};

struct operation {
  const char *name;
  nexarResult_t (*call)(const struct buffers *b);
  size_t bytes;
};

/* In the names of operations, "it" is rank 0. */

#define AT(buffer, elements) ((buffer) + (size_t)(elements)*4)
#define END b->comm, b->stream

static const size_t counts[] = {COUNT, COUNT / 2}, places[] = {2 * COUNT, 10};
static const size_t pairs[2][2] = {{300, 1}, {COUNT, 0}}, turned[2][2] = {{300, COUNT}, {1, 0}};

#define OPERATION(name, call_)                                                                     \
  static nexarResult_t name(const struct buffers *b) { return call_; }

OPERATION(all_reduce,
          nexarAllReduce(b->send, b->recv, COUNT, nexarUint32, nexarSum, END))
OPERATION(all_reduce_in_place,
          nexarAllReduce(b->send, b->send, COUNT, nexarUint32, nexarSum, END))
OPERATION(large_all_reduce,
          nexarAllReduce(b->send, b->recv, LARGE / 4, nexarUint32, nexarSum, END))
OPERATION(reduce_to_it, nexarReduce(b->send, b->recv, COUNT, nexarUint32, nexarSum, 0, END))
OPERATION(reduce_from_it, nexarReduce(b->send, b->recv, COUNT, nexarUint32, nexarSum, 1, END))
OPERATION(broadcast_from_it, nexarBroadcast(b->send, b->recv, COUNT, nexarUint32, 0, END))
OPERATION(broadcast_to_it, nexarBroadcast(b->send, b->recv, COUNT, nexarUint32, 1, END))
OPERATION(bcast_to_it, nexarBcast(b->send, COUNT, nexarUint32, 1, END))
OPERATION(all_gather, nexarAllGather(b->send, b->recv, COUNT, nexarUint32, END))
OPERATION(large_all_gather, nexarAllGather(b->send, b->recv, 3 << 20, nexarUint32, END))
OPERATION(reduce_scatter,
          nexarReduceScatter(b->send, b->recv, COUNT, nexarUint32, nexarSum, END))
OPERATION(all_to_all, nexarAllToAll(b->send, b->recv, COUNT, nexarUint32, END))
OPERATION(gather_to_it, nexarGather(b->send, b->recv, COUNT, nexarUint32, 0, END))
OPERATION(gather_from_it, nexarGather(b->send, b->recv, COUNT, nexarUint32, 1, END))
OPERATION(scatter_from_it, nexarScatter(b->send, b->recv, COUNT, nexarUint32, 0, END))
OPERATION(scatter_to_it, nexarScatter(b->send, b->recv, COUNT, nexarUint32, 1, END))
OPERATION(scan, nexarScan(b->send, b->recv, COUNT, nexarUint32, nexarSum, END))
OPERATION(ex_scan, nexarExScan(b->send, b->recv, COUNT, nexarUint32, nexarSum, END))
OPERATION(barrier, nexarBarrier(END))
OPERATION(all_gather_v, nexarAllGatherV(b->send, counts[b->rank], b->recv, counts, places,
                                        nexarUint32, END))
OPERATION(reduce_scatter_v,
          nexarReduceScatterV(b->send, b->recv, counts, nexarUint32, nexarSum, END))
OPERATION(all_to_all_v, nexarAllToAllV(b->send, pairs[b->rank], places, b->recv, turned[b->rank],
                                       places, nexarUint32, END))
OPERATION(gather_v_to_it, nexarGatherV(b->send, counts[b->rank], b->recv, counts, places,
                                       nexarUint32, 0, END))
OPERATION(gather_v_from_it, nexarGatherV(b->send, counts[b->rank], b->recv, counts, places,
                                         nexarUint32, 1, END))
OPERATION(scatter_v_from_it, nexarScatterV(b->send, counts, places, b->recv, counts[b->rank],
                                           nexarUint32, 0, END))
OPERATION(scatter_v_to_it, nexarScatterV(b->send, counts, places, b->recv, counts[b->rank],
                                         nexarUint32, 1, END))
OPERATION(send, b->rank == 0 ? nexarSend(b->send, COUNT, nexarUint32, 1, END)
                             : nexarRecv(b->recv, COUNT, nexarUint32, 0, END))
OPERATION(recv, b->rank == 1 ? nexarSend(b->send, COUNT, nexarUint32, 0, END)
                             : nexarRecv(b->recv, COUNT, nexarUint32, 1, END))
OPERATION(tagged, b->rank == 0 ? nexarSendTag(b->send, COUNT, nexarUint32, 1, 7, END)
                               : nexarRecvTag(b->recv, COUNT, nexarUint32, 0, 7, END))
/* More elements than fit pinned memory: the caller waits. */
enum { WAITING_COUNT = (17 << 20) / 4 };
OPERATION(large_send, b->rank == 0 ? nexarSend(b->send, WAITING_COUNT, nexarUint32, 1, END)
                                   : nexarRecv(b->recv, WAITING_COUNT, nexarUint32, 0, END))
OPERATION(large_recv, b->rank == 1 ? nexarSend(b->send, WAITING_COUNT, nexarUint32, 0, END)
                                   : nexarRecv(b->recv, WAITING_COUNT, nexarUint32, 1, END))
OPERATION(send_recv, nexarSendRecv(b->send, COUNT, 1 - b->rank, b->recv, COUNT, 1 - b->rank,
                                   nexarUint32, END))

static nexarResult_t bucketed(const struct buffers *b) {
  void *const buffs[] = {AT(b->send, 0), AT(b->send, 2 * COUNT), AT(b->recv, 0)};
  const size_t lengths[] = {COUNT, COUNT / 2, 1};
  return nexarAllReduceBucketed(buffs, lengths, 3, nexarUint32, nexarSum, END);
}

/* nexarGroupEnd returns the failure of a call inside. */
static nexarResult_t group(const struct buffers *b) {
  int peer = 1 - b->rank;
  nexarGroupStart();
  nexarAllReduce(b->send, b->recv, COUNT, nexarUint32, nexarSum, END);
  nexarSend(b->send, COUNT, nexarUint32, peer, END);
  nexarAllToAll(b->send, AT(b->recv, COUNT), COUNT, nexarUint32, b->comm, b->other);
  nexarRecv(AT(b->recv, 3 * COUNT), COUNT, nexarUint32, peer, END);
  nexarAllGather(b->send, AT(b->recv, 4 * COUNT), COUNT, nexarUint32, END);
  return nexarGroupEnd();
}

#define ENTRY(function, bytes) {#function, function, bytes}
static const struct operation operations[] = {
    ENTRY(all_reduce, SMALL),        ENTRY(all_reduce_in_place, SMALL),
    ENTRY(reduce_to_it, SMALL),      ENTRY(reduce_from_it, SMALL),
    ENTRY(broadcast_from_it, SMALL), ENTRY(broadcast_to_it, SMALL),
    ENTRY(bcast_to_it, SMALL),       ENTRY(all_gather, SMALL),
    ENTRY(reduce_scatter, SMALL),    ENTRY(all_to_all, SMALL),
    ENTRY(gather_to_it, SMALL),      ENTRY(gather_from_it, SMALL),
    ENTRY(scatter_from_it, SMALL),   ENTRY(scatter_to_it, SMALL),
    ENTRY(scan, SMALL),              ENTRY(ex_scan, SMALL),
    ENTRY(barrier, SMALL),           ENTRY(all_gather_v, SMALL),
    ENTRY(reduce_scatter_v, SMALL),  ENTRY(all_to_all_v, SMALL),
    ENTRY(gather_v_to_it, SMALL),    ENTRY(gather_v_from_it, SMALL),
    ENTRY(scatter_v_from_it, SMALL), ENTRY(scatter_v_to_it, SMALL),
    ENTRY(bucketed, SMALL),          ENTRY(send, SMALL),
    ENTRY(recv, SMALL),              ENTRY(tagged, SMALL),
    ENTRY(send_recv, SMALL),         ENTRY(group, SMALL),
};
static const struct operation large_operations[] = {
    ENTRY(large_all_reduce, LARGE),
    ENTRY(large_all_gather, LARGE),
    ENTRY(large_send, LARGE),
    ENTRY(large_recv, LARGE),
};

/* An operation of a rank, with the contents of its buffers before and after it. */
struct plan {
  const struct operation *operation;
  struct device_rank *self;
  char *send, *recv, *send_after, *recv_after;
};

static inline void put_before(const struct plan *plan) {
  memcpy(view(plan->self->send, plan->operation->bytes), plan->send, plan->operation->bytes);
  memcpy(view(plan->self->recv, plan->operation->bytes), plan->recv, plan->operation->bytes);
}

static inline bool is_as_planned(const struct plan *plan) {
  size_t bytes = plan->operation->bytes;
  return memcmp(view(plan->self->send, bytes), plan->send_after, bytes) == 0 &&
         memcmp(view(plan->self->recv, bytes), plan->recv_after, bytes) == 0;
}

/* Collective: executes the operation on host memory, for the expected result. */
static inline struct plan plan_on_host(const struct operation *operation,
                                       struct device_rank *self) {
  struct plan made = {.operation = operation, .self = self}, *plan = &made;
  size_t bytes = operation->bytes;
  char **all[] = {&plan->send, &plan->recv, &plan->send_after, &plan->recv_after};
  for (int i = 0; i < 4; i++) *all[i] = malloc(bytes);
  put_sent(self->rank, plan->send, bytes);
  memset(plan->recv, UNTOUCHED, bytes);
  memcpy(plan->send_after, plan->send, bytes);
  memcpy(plan->recv_after, plan->recv, bytes);
  struct buffers b = {self->rank, self->comm, plan->send_after, plan->recv_after, NULL, NULL};
  CHECK_CODE(nexarSuccess, operation->call(&b));
  return made;
}

static inline void forget(const struct plan *plan) {
  char *all[] = {plan->send, plan->recv, plan->send_after, plan->recv_after};
  for (int i = 0; i < 4; i++) free(all[i]);
}

static inline nexarResult_t call(const struct plan *plan) {
  struct device_rank *self = plan->self;
  struct buffers b = {self->rank, self->comm,
                      device_pointer(self->send), device_pointer(self->recv),
                      self->stream, self->other};
  return plan->operation->call(&b);
}

#endif
