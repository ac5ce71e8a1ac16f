/*
 * A collective call as a value, so that a table of calls can be made on every function alike.
 */
#ifndef CALLS_H
#define CALLS_H

#include "check.h"

enum function {
  ALL_REDUCE,
  REDUCE,
  BROADCAST,
  BCAST,
  ALL_GATHER,
  REDUCE_SCATTER,
  ALL_TO_ALL,
  GATHER,
  SCATTER,
  SCAN,
  EX_SCAN,
  ALL_REDUCE_BUCKETED,
  ALL_GATHER_V,
  REDUCE_SCATTER_V,
  ALL_TO_ALL_V,
  GATHER_V,
  SCATTER_V,
  BARRIER,
  FUNCTIONS
};

static const char *const function_names[FUNCTIONS] = {
    "nexarAllReduce",      "nexarReduce",     "nexarBroadcast",
    "nexarBcast",          "nexarAllGather",  "nexarReduceScatter",
    "nexarAllToAll",       "nexarGather",     "nexarScatter",
    "nexarScan",           "nexarExScan",     "nexarAllReduceBucketed",
    "nexarAllGatherV",     "nexarReduceScatterV", "nexarAllToAllV",
    "nexarGatherV",        "nexarScatterV",   "nexarBarrier",
};

/* The arrays of a v-form, or of a list of buffers. */
struct arrays {
  const size_t *sendcounts, *sdispls, *recvcounts, *rdispls;
  void *const *buffs;
  const size_t *counts;
  size_t nbuffs;
};

/* Numbers where the header has enums: tests pass values that are none of theirs. */
struct call {
  enum function function;
  const void *send;
  void *recv;
  size_t count;
  int datatype, op, root;
  nexarComm_t comm;
  nexarStream_t stream;
  const struct arrays *arrays; /* NULL: count elements for and from each rank; one buffer, recv */
};

static inline nexarResult_t make_call_with_arrays(struct call c, const struct arrays *a) {
  nexarDataType_t datatype = (nexarDataType_t)c.datatype;
  nexarRedOp_t op = (nexarRedOp_t)c.op;
  switch (c.function) {
    case ALL_REDUCE_BUCKETED:
      return nexarAllReduceBucketed(a->buffs, a->counts, a->nbuffs, datatype, op, c.comm, c.stream);
    case ALL_GATHER_V:
      return nexarAllGatherV(c.send, c.count, c.recv, a->recvcounts, a->rdispls, datatype, c.comm,
                             c.stream);
    case REDUCE_SCATTER_V:
      return nexarReduceScatterV(c.send, c.recv, a->recvcounts, datatype, op, c.comm, c.stream);
    case ALL_TO_ALL_V:
      return nexarAllToAllV(c.send, a->sendcounts, a->sdispls, c.recv, a->recvcounts, a->rdispls,
                            datatype, c.comm, c.stream);
    case GATHER_V:
      return nexarGatherV(c.send, c.count, c.recv, a->recvcounts, a->rdispls, datatype, c.root,
                          c.comm, c.stream);
    default:
      return nexarScatterV(c.send, a->sendcounts, a->sdispls, c.recv, c.count, datatype, c.root,
                           c.comm, c.stream);
  }
}

static inline nexarResult_t make_call_with_equal_arrays(struct call c) {
  enum { MOST = 32 };
  size_t counts[MOST];
  for (int i = 0; i < MOST; i++) counts[i] = c.count;
  struct arrays equal = {.sendcounts = counts, .recvcounts = counts, .buffs = &c.recv,
                         .counts = counts, .nbuffs = 1};
  return make_call_with_arrays(c, &equal);
}

static inline nexarResult_t make_call(struct call c) {
  nexarDataType_t datatype = (nexarDataType_t)c.datatype;
  nexarRedOp_t op = (nexarRedOp_t)c.op;
  switch (c.function) {
    case ALL_REDUCE:
      return nexarAllReduce(c.send, c.recv, c.count, datatype, op, c.comm, c.stream);
    case REDUCE:
      return nexarReduce(c.send, c.recv, c.count, datatype, op, c.root, c.comm, c.stream);
    case BROADCAST:
      return nexarBroadcast(c.send, c.recv, c.count, datatype, c.root, c.comm, c.stream);
    case BCAST:
      return nexarBcast(c.recv, c.count, datatype, c.root, c.comm, c.stream);
    case ALL_GATHER:
      return nexarAllGather(c.send, c.recv, c.count, datatype, c.comm, c.stream);
    case REDUCE_SCATTER:
      return nexarReduceScatter(c.send, c.recv, c.count, datatype, op, c.comm, c.stream);
    case ALL_TO_ALL:
      return nexarAllToAll(c.send, c.recv, c.count, datatype, c.comm, c.stream);
    case GATHER:
      return nexarGather(c.send, c.recv, c.count, datatype, c.root, c.comm, c.stream);
    case SCATTER:
      return nexarScatter(c.send, c.recv, c.count, datatype, c.root, c.comm, c.stream);
    case SCAN:
      return nexarScan(c.send, c.recv, c.count, datatype, op, c.comm, c.stream);
    case EX_SCAN:
      return nexarExScan(c.send, c.recv, c.count, datatype, op, c.comm, c.stream);
    case BARRIER:
      return nexarBarrier(c.comm, c.stream);
    default:
      return c.arrays ? make_call_with_arrays(c, c.arrays) : make_call_with_equal_arrays(c);
  }
}

static inline bool has_buffers(enum function f) { return f != BARRIER; }
static inline bool has_sendbuff(enum function f) {
  return f != BARRIER && f != BCAST && f != ALL_REDUCE_BUCKETED;
}
static inline bool has_root(enum function f) {
  return f == REDUCE || f == BROADCAST || f == BCAST || f == GATHER || f == SCATTER ||
         f == GATHER_V || f == SCATTER_V;
}
static inline bool has_op(enum function f) {
  return f == ALL_REDUCE || f == REDUCE || f == REDUCE_SCATTER || f == SCAN || f == EX_SCAN ||
         f == ALL_REDUCE_BUCKETED || f == REDUCE_SCATTER_V;
}

/* A buffer of it has a block for each rank: the one that is received, or the one that is sent. */
static inline bool receives_blocks(enum function f) {
  return f == ALL_GATHER || f == ALL_GATHER_V || f == GATHER || f == GATHER_V;
}
static inline bool sends_blocks(enum function f) {
  return f == REDUCE_SCATTER || f == REDUCE_SCATTER_V || f == SCATTER || f == SCATTER_V;
}
static inline bool exchanges_blocks(enum function f) {
  return f == ALL_TO_ALL || f == ALL_TO_ALL_V;
}

/* What went wrong, without the name of the function that says so. */
static inline const char *reason(const char *text) {
  const char *colon = strstr(text, ": ");
  return colon ? colon + 2 : text;
}

#endif
