/*
 * Replaces the CUDA toolkit's cuda.h for example programs: maps its function names to those of
 * fake/api.h. make cuda-headers builds the programs with the real cuda.h.
 */
#ifndef TOOLKIT_CUDA_H
#define TOOLKIT_CUDA_H

#include "../fake/api.h"

#define cuCtxPushCurrent cuCtxPushCurrent_v2
#define cuCtxPopCurrent cuCtxPopCurrent_v2
#define cuDevicePrimaryCtxRelease cuDevicePrimaryCtxRelease_v2
#define cuMemAlloc cuMemAlloc_v2
#define cuMemFree cuMemFree_v2
#define cuMemcpyDtoHAsync cuMemcpyDtoHAsync_v2
#define cuMemcpyHtoDAsync cuMemcpyHtoDAsync_v2
#define cuStreamDestroy cuStreamDestroy_v2

#endif
