/*
 * A typical NCCL program, compiled with NVIDIA's nccl.h: one process, a device for each rank,
 * buffers of ncclMemAlloc, filled and read by the (fake) CUDA driver.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <nccl.h>

#include "cuda/fake/control.h"

enum { DEVICES = 3, COUNT = 5000011 };

#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      fprintf(stderr, "line %d: %s\n    %s\n", __LINE__, #condition, ncclGetLastError(NULL));      \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)
#define NCCL(call) CHECK((call) == ncclSuccess)
#define CUDA(call) CHECK((call) == CUDA_SUCCESS)

int main(void) {
  static uint32_t sums[COUNT];
  ncclComm_t comms[DEVICES];
  CUcontext contexts[DEVICES];
  CUstream streams[DEVICES];
  void *buffers[DEVICES];
  CUDA(cuInit(0));
  NCCL(ncclCommInitAll(comms, DEVICES, NULL));
  for (int i = 0; i < DEVICES; i++) {
    CUDA(cuDevicePrimaryCtxRetain(&contexts[i], i));
    CUDA(cuCtxSetCurrent(contexts[i]));
    CUDA(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    NCCL(ncclMemAlloc(&buffers[i], COUNT * sizeof *sums));
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)buffers[i];
    CUDA(cuMemsetD32Async(address, 10u + (unsigned)i, COUNT, streams[i]));
  }
  uint64_t allocated = fakecuda_live(FAKECUDA_DEVICE_MEMORY);
  CHECK(allocated == DEVICES);
  NCCL(ncclGroupStart());
  for (int i = 0; i < DEVICES; i++)
    NCCL(ncclAllReduce(buffers[i], buffers[i], COUNT, ncclUint32, ncclSum, comms[i],
                       (cudaStream_t)streams[i]));
  NCCL(ncclGroupEnd());
  for (int i = 0; i < DEVICES; i++) {
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)buffers[i];
    CUDA(cuCtxSetCurrent(contexts[i]));
    CUDA(cuMemcpyDtoHAsync_v2(sums, address, sizeof sums, streams[i]));
    CUDA(cuStreamSynchronize(streams[i]));
    for (int k = 0; k < COUNT; k++) CHECK(sums[k] == 10 + 11 + 12);
    NCCL(ncclMemFree(buffers[i]));
    CHECK(fakecuda_live(FAKECUDA_DEVICE_MEMORY) == (uint64_t)(DEVICES - 1 - i));
    CUDA(cuStreamDestroy_v2(streams[i]));
  }
  for (int i = 0; i < DEVICES; i++) {
    NCCL(ncclCommDestroy(comms[i]));
    CUDA(cuDevicePrimaryCtxRelease_v2(i));
  }
  CHECK(fakecuda_pinned_bytes() == 0);
  printf("%d devices, %d sums each: all correct, all memory freed\n", DEVICES, COUNT);
  return 0;
}
