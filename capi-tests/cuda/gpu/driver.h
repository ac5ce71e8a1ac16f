/*
 * The CUDA driver of this machine, loaded by name at run time, as programs without a toolkit do.
 *
 * Functions are called as cuda.cuInit(0). Functions of GPU_MAY_LACK are NULL if the driver lacks
 * them.
 */
#ifndef GPU_DRIVER_H
#define GPU_DRIVER_H

#include "../fake/api.h"

/* Functions that api.h does not declare; headers.py compares them too. */
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
  int is_fake; /* whether it is the fake driver of the tests */
};

extern struct driver cuda;

/* Returns NULL, or why there is no CUDA on this machine. */
const char *load_driver(void);

#endif
