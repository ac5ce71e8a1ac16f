/* A CUDA runtime whose device memory is host memory. A stream is a unique address. */
#include "cuda_runtime.h"

#include <stdlib.h>
#include <string.h>

struct CUstream_st {
  int unused;
};

cudaError_t cudaMalloc(void **pointer, size_t size) {
  *pointer = malloc(size);
  return *pointer ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void *pointer) {
  free(pointer);
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t size, cudaMemcpyKind kind) {
  (void)kind;
  memcpy(to, from, size);
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  (void)device;
  return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *stream) {
  *stream = malloc(sizeof **stream);
  return *stream ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  (void)stream;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  free(stream);
  return cudaSuccess;
}
