/*
 * In the place of the CUDA toolkit's cuda.h, for programs of users that are built here: the names
 * that it gives to the functions of fake/api.h. make cuda-headers builds them with the real one.
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
