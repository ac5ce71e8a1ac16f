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
  BARRIER,
  FUNCTIONS
};

static const char *const function_names[FUNCTIONS] = {
    "nexarAllReduce", "nexarReduce",        "nexarBroadcast", "nexarBcast",
    "nexarAllGather", "nexarReduceScatter", "nexarBarrier",
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
};

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
    default:
      return nexarBarrier(c.comm, c.stream);
  }
}

static inline bool has_buffers(enum function f) { return f != BARRIER; }
static inline bool has_sendbuff(enum function f) { return f != BARRIER && f != BCAST; }
static inline bool has_root(enum function f) { return f == REDUCE || f == BROADCAST || f == BCAST; }
static inline bool has_op(enum function f) {
  return f == ALL_REDUCE || f == REDUCE || f == REDUCE_SCATTER;
}

/* What went wrong, without the name of the function that says so. */
static inline const char *reason(const char *text) {
  const char *colon = strstr(text, ": ");
  return colon ? colon + 2 : text;
}

#endif
