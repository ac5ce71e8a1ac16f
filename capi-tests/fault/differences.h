/*
 * The ways in which one rank makes another call than the others: `usual` is the call of the others,
 * `odd` is the call of the one rank.
 */
#ifndef DIFFERENCES_H
#define DIFFERENCES_H

#include "support/calls.h"

enum { FEW = 5, MANY = 60001 };

enum difference {
  KIND,
  OPPOSITE_KIND,
  SPLIT, /* the others split the communicator */
  ORDER,
  DATATYPE,
  OP,
  ROOT,
  COUNT,
  COUNT_OF_ZERO,
  DIFFERENCES
};

static const char *const difference_names[] = {
    "kind", "opposite kind", "split", "order", "datatype", "op", "root", "count", "count of 0"};

/* Another call that moves few elements along the same paths. GATHER_V and SCATTER_V have none. */
static const enum function alike[FUNCTIONS] = {
    [ALL_REDUCE] = BARRIER,
    [REDUCE] = GATHER,
    [BROADCAST] = SCATTER,
    [BCAST] = SCATTER,
    [ALL_GATHER] = ALL_REDUCE,
    [REDUCE_SCATTER] = ALL_REDUCE,
    [ALL_TO_ALL] = BARRIER,
    [GATHER] = REDUCE,
    [SCATTER] = BROADCAST,
    [SCAN] = EX_SCAN,
    [EX_SCAN] = SCAN,
    [ALL_REDUCE_BUCKETED] = ALL_REDUCE,
    [ALL_GATHER_V] = BARRIER,
    [REDUCE_SCATTER_V] = REDUCE_SCATTER,
    [ALL_TO_ALL_V] = ALL_TO_ALL,
    [GATHER_V] = GATHER,
    [SCATTER_V] = SCATTER,
    [BARRIER] = ALL_REDUCE,
};

/* One combination of the table of tries. */
struct cell {
  enum difference difference;
  enum function function;
  size_t count;
  int odd;
};

static bool sends_down(enum function f) {
  return f == BROADCAST || f == BCAST || f == SCATTER || f == SCATTER_V;
}

static bool exists(struct cell cell) {
  switch (cell.difference) {
    case DATATYPE:
    case COUNT:
    case COUNT_OF_ZERO:
      return has_buffers(cell.function);
    case OP:
      return has_op(cell.function);
    case ROOT:
    case OPPOSITE_KIND:
      return has_root(cell.function);
    default:
      return true;
  }
}

/* Whether the two calls move data along the same paths, so that it meets. ALL_TO_ALL_V uses the
   network where ALL_TO_ALL uses shared memory. */
static inline bool meets(struct cell cell) {
  switch (cell.difference) {
    case KIND:
    case ORDER:
      return cell.count == FEW && cell.function != GATHER_V && cell.function != SCATTER_V &&
             cell.function != ALL_TO_ALL_V;
    case OPPOSITE_KIND:
    case SPLIT:
    case ROOT:
    case COUNT_OF_ZERO:
      return false;
    default:
      return true;
  }
}

static struct call usual(struct cell cell, const void *send, void *recv, nexarComm_t comm) {
  return (struct call){.function = cell.function, .send = send, .recv = recv, .count = cell.count,
                       .datatype = nexarInt32, .op = nexarSum, .comm = comm};
}

static struct call odd(struct cell cell, const void *send, void *recv, nexarComm_t comm) {
  struct call call = usual(cell, send, recv, comm);
  switch (cell.difference) {
    case KIND:
    case ORDER:
      call.function = alike[cell.function];
      break;
    case OPPOSITE_KIND:
      call.function = sends_down(cell.function) ? REDUCE : BROADCAST;
      break;
    case SPLIT:
      break;
    case DATATYPE:
      call.datatype = nexarUint32;
      break;
    case OP:
      call.op = nexarMax;
      break;
    case ROOT:
      call.root = 1;
      break;
    case COUNT:
      call.count++;
      break;
    default:
      call.count = 0;
  }
  return call;
}

/* The first two calls of a rank. */
static void calls_of(struct cell cell, bool is_odd, const void *send, void *recv, nexarComm_t comm,
                     struct call sequence[2]) {
  struct call calls[] = {usual(cell, send, recv, comm), odd(cell, send, recv, comm)};
  sequence[0] = calls[is_odd];
  sequence[1] = (struct call){.function = BARRIER, .comm = comm};
  if (cell.difference == ORDER) sequence[1] = calls[!is_odd];
}

/* Makes these calls and then a barrier, until one fails. `completed`: the calls that succeeded. */
static nexarResult_t disagree(struct cell cell, bool is_odd, const struct call sequence[2],
                              int *completed) {
  nexarComm_t comm = sequence[0].comm, part = NULL;
  bool splits = cell.difference == SPLIT && !is_odd;
  nexarResult_t result =
      splits ? nexarCommSplit(comm, 0, 0, &part, NULL) : make_call(sequence[0]);
  *completed = 0;
  if (result == nexarSuccess) {
    ++*completed;
    result = make_call(sequence[1]);
  }
  if (result == nexarSuccess) {
    ++*completed;
    result = nexarBarrier(comm, NULL);
  }
  return result;
}

#endif
