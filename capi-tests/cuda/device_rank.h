/*
 * Ranks with device memory: each has a current context, two streams, a send buffer and a receive
 * buffer.
 *
 * Ranks are threads, each with its own device, or, if nexar-run has started the program, processes,
 * each with its own driver. Between library_calls and own_calls the fake driver counts calls as the
 * library's; all others are the test's own.
 */
#ifndef DEVICE_RANK_H
#define DEVICE_RANK_H

#include <time.h>

#include "driver.h"
#include "support/ranks.h"

struct device_rank {
  int rank, n;
  nexarComm_t comm;
  CUcontext context;
  CUstream stream, other;
  CUdeviceptr send, recv, small;
  size_t bytes; /* of send and of recv */
};

/* How long the end of a communicator waits for its device before it leaks its memory. */
enum { END_GIVES_UP_S = 30 };

enum { UNTOUCHED = 0xCC, SMALL_COUNT = 1000 };

static inline void library_calls(void) { fakecuda_mine(0); }
static inline void own_calls(void) { fakecuda_mine(1); }

static inline void *view(CUdeviceptr address, size_t bytes) {
  void *memory = fakecuda_view(address, bytes);
  if (!memory) {
    fprintf(stderr, "there is no device memory of %zu bytes at %llx\n", bytes,
            (unsigned long long)address);
    abort();
  }
  return memory;
}

/* Element i of a rank's send buffer. */
static inline uint32_t sent(int rank, size_t i) {
  return (uint32_t)(rank + 1) * 1000003u + (uint32_t)i * 7u;
}

static inline void put_sent(int rank, void *buffer, size_t bytes) {
  uint32_t *to = buffer;
  for (size_t i = 0; i < bytes / 4; i++) to[i] = sent(rank, i);
}

/* Makes this thread a rank with a device. */
static inline struct device_rank take_device(int rank, int n, CUdevice device, size_t bytes) {
  struct device_rank self = {.rank = rank, .n = n, .bytes = bytes};
  own_calls();
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&self.context, device));
  OK(cuCtxPushCurrent_v2(self.context));
  self.stream = stream_of(CU_STREAM_NON_BLOCKING);
  self.other = stream_of(CU_STREAM_NON_BLOCKING);
  self.send = device_memory(bytes);
  self.recv = device_memory(bytes);
  self.small = device_memory(SMALL_COUNT * 4);
  put_sent(rank, view(self.send, bytes), bytes);
  memset(view(self.recv, bytes), UNTOUCHED, bytes);
  return self;
}

static inline void give_back_device(const struct device_rank *self) {
  CUdevice device = 0;
  OK(cuMemFree_v2(self->send));
  OK(cuMemFree_v2(self->recv));
  OK(cuMemFree_v2(self->small));
  OK(cuStreamDestroy_v2(self->stream));
  OK(cuStreamDestroy_v2(self->other));
  OK(cuCtxGetDevice(&device));
  OK(cuCtxPopCurrent_v2(NULL));
  OK(cuDevicePrimaryCtxRelease_v2(device));
}

static inline void check_drained(const struct device_rank *self) {
  OK(cuStreamSynchronize(self->stream));
  OK(cuStreamSynchronize(self->other));
  CHECK_EQ(0, fakecuda_pending(self->stream));
  CHECK_EQ(0, fakecuda_pending(self->other));
}

static inline nexarResult_t async_error(nexarComm_t comm) {
  nexarResult_t error = nexarInternalError;
  CHECK_CODE(nexarSuccess, nexarCommGetAsyncError(comm, &error));
  return error;
}

static inline void *device_pointer(CUdeviceptr address) { return (void *)(uintptr_t)address; }

/* Collective: an all-reduce of device memory on a stream has the right result. */
static inline void check_it_works_on(const struct device_rank *self, CUstream stream) {
  uint32_t *data = view(self->small, SMALL_COUNT * 4), wrong = 0;
  void *buffer = device_pointer(self->small);
  put_sent(self->rank, data, SMALL_COUNT * 4);
  library_calls();
  nexarResult_t called =
      nexarAllReduce(buffer, buffer, SMALL_COUNT, nexarUint32, nexarSum, self->comm, stream);
  own_calls();
  CHECK_CODE(nexarSuccess, called);
  OK(cuStreamSynchronize(stream));
  for (size_t i = 0; i < SMALL_COUNT; i++) {
    uint32_t sum = 0;
    for (int rank = 0; rank < self->n; rank++) sum += sent(rank, i);
    wrong += data[i] != sum;
  }
  CHECK_EQ(0, wrong);
  progress();
}

#endif
