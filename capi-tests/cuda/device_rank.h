/*
 * Ranks with memory of a device: each has a context that is current, two streams, and a buffer to
 * send from and one to receive into.
 *
 * Ranks are threads, each with a device of its own, or, if nexar-run has started the program,
 * processes, each with a driver of its own. Calls of the driver are the test's own, besides those
 * between library_calls and own_calls: these are the library's.
 */
#ifndef DEVICE_RANK_H
#define DEVICE_RANK_H

#include <time.h>

#include "driver.h"
#include "support/ranks.h"

struct side {
  int rank, n;
  nexarComm_t comm;
  CUcontext context;
  CUstream stream, other;
  CUdeviceptr send, recv, small;
  size_t bytes; /* of the first two */
};

/* After so long the end of a communicator gives up waiting for its device, and leaves memory there. */
enum { END_GIVES_UP_S = 30 };

enum { UNTOUCHED = 0xCC, SMALL_COUNT = 1000 };

static inline void library_calls(void) { fakecuda_mine(0); }
static inline void own_calls(void) { fakecuda_mine(1); }

static inline void *view(CUdeviceptr address, size_t bytes) {
  void *seen = fakecuda_view(address, bytes);
  if (!seen) {
    fprintf(stderr, "there is no device memory of %zu bytes at %llx\n", bytes,
            (unsigned long long)address);
    abort();
  }
  return seen;
}

/* What element i of a rank's send buffer is. */
static inline uint32_t sent(int rank, size_t i) {
  return (uint32_t)(rank + 1) * 1000003u + (uint32_t)i * 7u;
}

static inline void put_sent(int rank, void *buffer, size_t bytes) {
  uint32_t *to = buffer;
  for (size_t i = 0; i < bytes / 4; i++) to[i] = sent(rank, i);
}

/* This thread becomes a rank with a device. */
static inline struct side take_device(int rank, int n, CUdevice device, size_t bytes) {
  struct side side = {.rank = rank, .n = n, .bytes = bytes};
  own_calls();
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&side.context, device));
  OK(cuCtxPushCurrent_v2(side.context));
  side.stream = stream_of(CU_STREAM_NON_BLOCKING);
  side.other = stream_of(CU_STREAM_NON_BLOCKING);
  side.send = device_memory(bytes);
  side.recv = device_memory(bytes);
  side.small = device_memory(SMALL_COUNT * 4);
  put_sent(rank, view(side.send, bytes), bytes);
  memset(view(side.recv, bytes), UNTOUCHED, bytes);
  return side;
}

static inline void give_back_device(const struct side *side) {
  CUdevice device = 0;
  OK(cuMemFree_v2(side->send));
  OK(cuMemFree_v2(side->recv));
  OK(cuMemFree_v2(side->small));
  OK(cuStreamDestroy_v2(side->stream));
  OK(cuStreamDestroy_v2(side->other));
  OK(cuCtxGetDevice(&device));
  OK(cuCtxPopCurrent_v2(NULL));
  OK(cuDevicePrimaryCtxRelease_v2(device));
}

static inline void check_drained(const struct side *side) {
  OK(cuStreamSynchronize(side->stream));
  OK(cuStreamSynchronize(side->other));
  CHECK_EQ(0, fakecuda_pending(side->stream));
  CHECK_EQ(0, fakecuda_pending(side->other));
}

static inline nexarResult_t async_error(nexarComm_t comm) {
  nexarResult_t error = nexarInternalError;
  CHECK_CODE(nexarSuccess, nexarCommGetAsyncError(comm, &error));
  return error;
}

static inline void *device_pointer(CUdeviceptr address) { return (void *)(uintptr_t)address; }

/* All ranks together: an all-reduce of device memory on a stream gives the right result. */
static inline void check_it_works_on(const struct side *side, CUstream stream) {
  uint32_t *data = view(side->small, SMALL_COUNT * 4), wrong = 0;
  void *buffer = device_pointer(side->small);
  put_sent(side->rank, data, SMALL_COUNT * 4);
  library_calls();
  nexarResult_t called =
      nexarAllReduce(buffer, buffer, SMALL_COUNT, nexarUint32, nexarSum, side->comm, stream);
  own_calls();
  CHECK_CODE(nexarSuccess, called);
  OK(cuStreamSynchronize(stream));
  for (size_t i = 0; i < SMALL_COUNT; i++) {
    uint32_t sum = 0;
    for (int rank = 0; rank < side->n; rank++) sum += sent(rank, i);
    wrong += data[i] != sum;
  }
  CHECK_EQ(0, wrong);
  progress();
}

#endif
