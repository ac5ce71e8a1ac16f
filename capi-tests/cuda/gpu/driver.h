/*
 * The CUDA driver of this machine, loaded as a program without a toolkit does: by name, at run
 * time.
 *
 * Functions are called as cuda.cuInit(0). Those that a driver may lack are NULL then.
 */
#ifndef GPU_DRIVER_H
#define GPU_DRIVER_H

#include "../fake/api.h"

/* Besides those of api.h; headers.py compares them too. */
CUresult cuDeviceGetName(char *name, int length, CUdevice device);
CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device);
CUresult cuGraphDestroy(CUgraph graph);

#define GPU_FUNCTIONS(X)                                                                           \
  X(cuInit)                                                                                        \
  X(cuDriverGetVersion)                                                                            \
  X(cuGetErrorName)                                                                                \
  X(cuDeviceGetCount)                                                                              \
  X(cuDeviceGet)                                                                                   \
  X(cuDeviceGetAttribute)                                                                          \
  X(cuDeviceGetPCIBusId)                                                                           \
  X(cuDevicePrimaryCtxRetain)                                                                      \
  X(cuDevicePrimaryCtxRelease_v2)                                                                  \
  X(cuCtxGetCurrent)                                                                               \
  X(cuCtxPushCurrent_v2)                                                                           \
  X(cuCtxPopCurrent_v2)                                                                            \
  X(cuMemAlloc_v2)                                                                                 \
  X(cuMemAllocManaged)                                                                             \
  X(cuMemFree_v2)                                                                                  \
  X(cuMemHostAlloc)                                                                                \
  X(cuMemFreeHost)                                                                                 \
  X(cuMemHostRegister_v2)                                                                          \
  X(cuMemHostUnregister)                                                                           \
  X(cuMemHostGetDevicePointer_v2)                                                                  \
  X(cuMemcpyAsync)                                                                                 \
  X(cuMemcpyHtoDAsync_v2)                                                                          \
  X(cuMemcpyDtoHAsync_v2)                                                                          \
  X(cuMemsetD8Async)                                                                               \
  X(cuMemsetD32Async)                                                                              \
  X(cuStreamCreate)                                                                                \
  X(cuStreamDestroy_v2)                                                                            \
  X(cuStreamSynchronize)                                                                           \
  X(cuStreamQuery)                                                                                 \
  X(cuStreamBeginCapture_v2)                                                                       \
  X(cuStreamEndCapture)

#define GPU_MAY_LACK(X)                                                                            \
  X(cuDeviceGetName)                                                                               \
  X(cuDeviceTotalMem_v2)                                                                           \
  X(cuGraphDestroy)                                                                                \
  X(cuMemAllocAsync)                                                                               \
  X(cuMemFreeAsync)                                                                                \
  X(cuStreamWriteValue32_v2)                                                                       \
  X(cuStreamWaitValue32_v2)

struct driver {
#define X(name) __typeof__(name) *name;
  GPU_FUNCTIONS(X) GPU_MAY_LACK(X)
#undef X
  int devices;
  int is_fake; /* it is the one of our tests */
};

extern struct driver cuda;

/* NULL, or why there is no CUDA here. */
const char *load_driver(void);

#endif
