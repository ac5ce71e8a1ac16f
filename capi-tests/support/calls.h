/*
 * The collectives as one table, and a call of any of them as a value. A new collective is a row
 * here and, for the suites that check results, a layout in collectives.h.
 */
#ifndef CALLS_H
#define CALLS_H

#include "check.h"

enum trait {
  HAS_ROOT = 1,
  HAS_ONE_BUFFER = 2,  /* no sendbuff */
  SENDS_BLOCKS = 4,    /* sendbuff has a block for each rank */
  RECEIVES_BLOCKS = 8, /* recvbuff has a block for each rank */
  HAS_ARRAYS = 16,     /* of counts, or of buffers */
  HAS_DISPLACEMENTS = 32,
  HAS_NO_AVERAGE = 64,
};

/* X(enumerator, name, variable and layout of collectives.h, traits, arguments in make_call) */
#define REDUCTIONS(X)                                                                              \
  X(ALL_REDUCE, AllReduce, all_reduce, lay_out_all_reduce, 0,                                      \
    (c.send, c.recv, c.count, datatype, op, c.comm, c.stream))                                     \
  X(REDUCE, Reduce, reduce, lay_out_reduce, HAS_ROOT,                                              \
    (c.send, c.recv, c.count, datatype, op, c.root, c.comm, c.stream))                             \
  X(REDUCE_SCATTER, ReduceScatter, reduce_scatter, lay_out_reduce_scatter, SENDS_BLOCKS,           \
    (c.send, c.recv, c.count, datatype, op, c.comm, c.stream))                                     \
  X(REDUCE_SCATTER_V, ReduceScatterV, reduce_scatter_v, lay_out_reduce_scatter,                    \
    SENDS_BLOCKS | HAS_ARRAYS,                                                                     \
    (c.send, c.recv, a->recvcounts, datatype, op, c.comm, c.stream))                               \
  X(SCAN, Scan, scan, lay_out_scan, HAS_NO_AVERAGE,                                                \
    (c.send, c.recv, c.count, datatype, op, c.comm, c.stream))                                     \
  X(EX_SCAN, ExScan, ex_scan, lay_out_ex_scan, HAS_NO_AVERAGE,                                     \
    (c.send, c.recv, c.count, datatype, op, c.comm, c.stream))                                     \
  X(ALL_REDUCE_BUCKETED, AllReduceBucketed, all_reduce_bucketed, lay_out_all_reduce_bucketed,      \
    HAS_ONE_BUFFER | HAS_ARRAYS | HAS_DISPLACEMENTS,                                               \
    (a->buffs, a->counts, a->nbuffs, datatype, op, c.comm, c.stream))

#define MOVES(X)                                                                                   \
  X(BROADCAST, Broadcast, broadcast, lay_out_broadcast, HAS_ROOT,                                  \
    (c.send, c.recv, c.count, datatype, c.root, c.comm, c.stream))                                 \
  X(BCAST, Bcast, bcast, lay_out_broadcast, HAS_ROOT | HAS_ONE_BUFFER,                             \
    (c.recv, c.count, datatype, c.root, c.comm, c.stream))                                         \
  X(ALL_GATHER, AllGather, all_gather, lay_out_all_gather, RECEIVES_BLOCKS,                        \
    (c.send, c.recv, c.count, datatype, c.comm, c.stream))                                         \
  X(ALL_GATHER_V, AllGatherV, all_gather_v, lay_out_all_gather,                                    \
    RECEIVES_BLOCKS | HAS_ARRAYS | HAS_DISPLACEMENTS,                                              \
    (c.send, c.count, c.recv, a->recvcounts, a->rdispls, datatype, c.comm, c.stream))              \
  X(ALL_TO_ALL, AllToAll, all_to_all, lay_out_all_to_all, SENDS_BLOCKS | RECEIVES_BLOCKS,          \
    (c.send, c.recv, c.count, datatype, c.comm, c.stream))                                         \
  X(ALL_TO_ALL_V, AllToAllV, all_to_all_v, lay_out_all_to_all,                                     \
    SENDS_BLOCKS | RECEIVES_BLOCKS | HAS_ARRAYS | HAS_DISPLACEMENTS,                               \
    (c.send, a->sendcounts, a->sdispls, c.recv, a->recvcounts, a->rdispls, datatype, c.comm,       \
     c.stream))                                                                                    \
  X(GATHER, Gather, gather, lay_out_gather, HAS_ROOT | RECEIVES_BLOCKS,                            \
    (c.send, c.recv, c.count, datatype, c.root, c.comm, c.stream))                                 \
  X(GATHER_V, GatherV, gather_v, lay_out_gather,                                                   \
    HAS_ROOT | RECEIVES_BLOCKS | HAS_ARRAYS | HAS_DISPLACEMENTS,                                   \
    (c.send, c.count, c.recv, a->recvcounts, a->rdispls, datatype, c.root, c.comm, c.stream))      \
  X(SCATTER, Scatter, scatter, lay_out_scatter, HAS_ROOT | SENDS_BLOCKS,                           \
    (c.send, c.recv, c.count, datatype, c.root, c.comm, c.stream))                                 \
  X(SCATTER_V, ScatterV, scatter_v, lay_out_scatter,                                               \
    HAS_ROOT | SENDS_BLOCKS | HAS_ARRAYS | HAS_DISPLACEMENTS,                                      \
    (c.send, a->sendcounts, a->sdispls, c.recv, c.count, datatype, c.root, c.comm, c.stream))

/* All collectives that have buffers. */
#define COLLECTIVES(X) REDUCTIONS(X) MOVES(X)

#define ENUMERATOR(function, ...) function,
enum function { COLLECTIVES(ENUMERATOR) BARRIER, FUNCTIONS };

#define FUNCTION_NAME(function, name, ...) [function] = "nexar" #name,
static const char *const function_names[FUNCTIONS] = {
    COLLECTIVES(FUNCTION_NAME) [BARRIER] = "nexarBarrier"};

#define FUNCTION_TRAITS(function, name, variable, layout, traits, arguments) [function] = (traits),
static const int function_traits[FUNCTIONS] = {COLLECTIVES(FUNCTION_TRAITS)};

/* Arguments that are arrays. */
struct arrays {
  const size_t *sendcounts, *sdispls, *recvcounts, *rdispls;
  void *const *buffs;
  const size_t *counts;
  size_t nbuffs;
};

/* A datatype and an op are ints: tests pass values that are not in the header's enums. */
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

static inline nexarResult_t make_call(struct call c) {
  enum { MOST = 32 };
  size_t counts[MOST];
  for (int i = 0; i < MOST; i++) counts[i] = c.count;
  const struct arrays equal = {.sendcounts = counts, .recvcounts = counts, .buffs = &c.recv,
                               .counts = counts, .nbuffs = 1};
  const struct arrays *a = c.arrays ? c.arrays : &equal;
  nexarDataType_t datatype = (nexarDataType_t)c.datatype;
  nexarRedOp_t op = (nexarRedOp_t)c.op;
  switch (c.function) {
#define CALL_OF(function, name, variable, layout, traits, arguments)                               \
  case function: return nexar##name arguments;
    COLLECTIVES(CALL_OF)
    default: return nexarBarrier(c.comm, c.stream);
  }
}

static inline bool has_buffers(enum function f) { return f != BARRIER; }
static inline bool has_sendbuff(enum function f) {
  return has_buffers(f) && !(function_traits[f] & HAS_ONE_BUFFER);
}
static inline bool has_root(enum function f) { return function_traits[f] & HAS_ROOT; }
static inline bool has_arrays(enum function f) { return function_traits[f] & HAS_ARRAYS; }
static inline bool has_op(enum function f) {
#define IS_FUNCTION(function, ...) || f == function
  return false REDUCTIONS(IS_FUNCTION);
}

/* Which buffers have a block for each rank. */
static inline int blocks_of(enum function f) {
  return function_traits[f] & (SENDS_BLOCKS | RECEIVES_BLOCKS);
}
static inline bool receives_blocks(enum function f) { return blocks_of(f) == RECEIVES_BLOCKS; }
static inline bool sends_blocks(enum function f) { return blocks_of(f) == SENDS_BLOCKS; }
static inline bool exchanges_blocks(enum function f) {
  return blocks_of(f) == (SENDS_BLOCKS | RECEIVES_BLOCKS);
}

/* The text of an error without the name of the function that reported it. */
static inline const char *reason(const char *text) {
  const char *colon = strstr(text, ": ");
  return colon ? colon + 2 : text;
}

#endif
