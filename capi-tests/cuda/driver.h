/* The first steps of a program that uses the driver API, checked. */
#ifndef DRIVER_H
#define DRIVER_H

#include "support/check.h"
#include "fake/control.h"
#include "support/scratch.h"

#define OK(call) CHECK_EQ(CUDA_SUCCESS, call)

static inline void begin(void) {
  CUcontext context;
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxPushCurrent_v2(context));
}

static inline CUdeviceptr device_memory(size_t bytes) {
  CUdeviceptr address = 0;
  OK(cuMemAlloc_v2(&address, bytes));
  return address;
}

static inline uint32_t *pinned_memory(size_t bytes) {
  void *address = NULL;
  OK(cuMemHostAlloc(&address, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
  return address;
}

static inline CUdeviceptr address_of(const void *host) { return (CUdeviceptr)(uintptr_t)host; }

static inline CUstream stream_of(unsigned flags) {
  CUstream stream = NULL;
  OK(cuStreamCreate(&stream, flags));
  return stream;
}

/* The driver's trace so far. The caller closes the file. */
static inline FILE *read_trace(void) {
  char path[SCRATCH_PATH];
  FILE *file = scratch_file(path);
  CHECK_EQ(0, fakecuda_dump_trace(path));
  return file;
}

/* Long enough that the stream's work would have completed if nothing held it. */
static inline void check_stays_busy(CUstream stream) {
  for (int i = 0; i < 20; i++) {
    CHECK(fakecuda_pending(stream) > 0);
    usleep(100);
  }
}

#endif
