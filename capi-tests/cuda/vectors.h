/*
 * Processes that nexar-run has started, each a rank with a device, and vectors of 32-bit elements
 * in device memory, which streams fill and copy out.
 *
 * A vector is a progression, first + i * step, so that the sum over ranks is one too.
 */
#ifndef VECTORS_H
#define VECTORS_H

#include "own_calls.h"
#include "support/ranks.h"

struct here {
  int rank, n;
  nexarComm_t comm;
};

static inline struct here here(void) {
  struct here here = {0, 1, NULL};
  if (!ranks_are_processes()) abort();
  here.comm = world;
  CHECK_CODE(nexarSuccess, nexarCommUserRank(world, &here.rank));
  CHECK_CODE(nexarSuccess, nexarCommCount(world, &here.n));
  return here;
}

/* The sum of rank + 1 over the ranks 0 to n - 1. */
static inline uint32_t sum_of_ranks(int n) { return (uint32_t)(n * (n + 1) / 2); }

struct vector {
  CUdeviceptr at;
  size_t count;
  uint32_t *seen; /* the copy in pinned memory */
};

static inline void *pointer(CUdeviceptr address) { return (void *)(uintptr_t)address; }
static inline void *data_of(const struct vector *vector) { return pointer(vector->at); }

static inline struct vector new_vector(size_t count) {
  struct vector vector = {0, count, NULL};
  MINE(vector.at = device_memory(4 * count); vector.seen = pinned_memory(4 * count));
  return vector;
}

/* No stream may use the vector any more. */
static inline void free_vector(struct vector *vector) {
  DO(cuMemFree_v2(vector->at));
  DO(cuMemFreeHost(vector->seen));
}

static inline void fill_vector(const struct vector *vector, CUstream stream, uint32_t first,
                               uint32_t step) {
  DO(fakecuda_fill(stream, vector->at, vector->count, first, step));
}

/* Enqueues a copy of the vector to `seen`. */
static inline void copy_out(const struct vector *vector, CUstream stream) {
  DO(cuMemcpyDtoHAsync_v2(vector->seen, vector->at, 4 * vector->count, stream));
}

#define CHECK_PROGRESSION(data, count, first, step)                                                \
  do {                                                                                             \
    const uint32_t *data_ = (data);                                                                \
    uint32_t first_ = (uint32_t)(first), step_ = (uint32_t)(step);                                 \
    size_t count_ = (count), at_ = 0;                                                              \
    while (at_ < count_ && data_[at_] == first_ + (uint32_t)at_ * step_) at_++;                    \
    if (at_ < count_)                                                                              \
      check_failed(__FILE__, __LINE__, "%s[%zu of %zu] is %u, not %u", #data, at_, count_,         \
                   data_[at_], first_ + (uint32_t)at_ * step_);                                    \
  } while (0)

/* Checks the copy. The stream must have executed copy_out. */
#define CHECK_SEEN(vector, first, step)                                                            \
  CHECK_PROGRESSION((vector)->seen, (vector)->count, first, step)

static inline void synchronize(CUstream stream) { DO(cuStreamSynchronize(stream)); }

static inline CUstream new_stream(unsigned flags) {
  CUstream stream;
  MINE(stream = stream_of(flags));
  return stream;
}

static inline void end_stream(CUstream stream) {
  synchronize(stream);
  DO(cuStreamDestroy_v2(stream));
}

/* An all-reduce in place. */
static inline nexarResult_t reduce_vector(const struct vector *vector, nexarComm_t comm,
                                          void *stream) {
  return nexarAllReduce(data_of(vector), data_of(vector), vector->count, nexarUint32, nexarSum,
                        comm, stream);
}

/* Collective: the communicator works on the device and on the host. */
static inline void check_device_works(struct here here) {
  struct vector vector = new_vector(1001);
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  fill_vector(&vector, stream, (uint32_t)here.rank + 1, (uint32_t)here.rank + 1);
  CALL(reduce_vector(&vector, here.comm, stream));
  copy_out(&vector, stream);
  synchronize(stream);
  CHECK_SEEN(&vector, sum_of_ranks(here.n), sum_of_ranks(here.n));
  end_stream(stream);
  free_vector(&vector);
  check_it_works(here.rank, here.n, here.comm);
}

/* Whether all streams share one hardware queue: a wait on one then delays all. */
static inline bool streams_share_a_queue(void) {
  const char *queues = getenv("FAKECUDA_HWQ");
  return queues && atoi(queues) == 1;
}

/* Whether calls return while their stream is held. Without memory operations they wait. */
static inline bool can_hold_streams(void) {
  bool can = !getenv("FAKECUDA_NO_MEMOPS");
  (can ? check_parts++ : check_parts_skipped++);
  return can;
}

/* Called before `world` is created, so that it has a device from its beginning. */
static inline void begin_with_device(void) { MINE(begin()); }

#endif
