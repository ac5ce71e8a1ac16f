/*
 * Calls that allocate, free and register memory. Leaves the memory itself to memory.c.
 *
 * They wait for all work of the device, as a driver may at any time: a program that allocates while
 * its own work cannot continue hangs, and is ended with a message.
 */
#include "capture.h"
#include "engine.h"

/* Waits for the work of a context. NULL: of all contexts. */
static void synchronize(CUcontext context) {
  lock_engine();
  wait_as_a_driver_may(context);
  unlock_engine();
}

static bool is_device_memory(const struct range *range) { return is_on_device(range); }
static bool is_of_pool(const struct range *range) { return range->kind == POOL_MEMORY; }
static bool is_pinned(const struct range *range) { return range->kind == PINNED_MEMORY; }
static bool is_registered(const struct range *range) { return range->kind == REGISTERED_MEMORY; }

/* CUDA_SUCCESS: the call may continue, and the device is idle. */
static CUresult begin_allocation(const void *out, size_t bytes) {
  if (!out || !bytes) return CUDA_ERROR_INVALID_VALUE;
  CUresult code = check_unsafe_call();
  if (code == CUDA_SUCCESS) synchronize(current_context());
  return code;
}

static CUresult allocate(CUdeviceptr *address, size_t bytes, enum memory_kind kind) {
  struct range *range;
  CUresult code = create_range(kind, bytes, &range);
  if (code == CUDA_SUCCESS) *address = range->device_base;
  return code;
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
  BEGIN(cuMemAlloc_v2);
  CUresult code = begin_allocation(address, bytes);
  return code != CUDA_SUCCESS ? code : allocate(address, bytes, DEVICE_MEMORY);
}

CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned flags) {
  BEGIN(cuMemAllocManaged);
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) return CUDA_ERROR_INVALID_VALUE;
  CUresult code = begin_allocation(address, bytes);
  return code != CUDA_SUCCESS ? code : allocate(address, bytes, MANAGED_MEMORY);
}

/* The memory can be used at once: the operation exists only for the trace and the queue. */
CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream) {
  BEGIN(cuMemAllocAsync);
  if (!address || !bytes) return CUDA_ERROR_INVALID_VALUE;
  CUresult code = enqueue(stream, new_operation("alloc", run_nothing));
  return code != CUDA_SUCCESS ? code : allocate(address, bytes, POOL_MEMORY);
}

CUresult cuMemFree_v2(CUdeviceptr address) {
  BEGIN(cuMemFree_v2);
  CUresult code = check_unsafe_call();
  if (code != CUDA_SUCCESS || !address) return code;
  struct range *range = find_range(address);
  if (!range) return CUDA_ERROR_INVALID_VALUE;
  synchronize(range->context);
  release_range(range);
  range = unlink_range(address, is_device_memory);
  if (!range) return CUDA_ERROR_INVALID_VALUE;
  free_range(range);
  return CUDA_SUCCESS;
}

static CUresult run_free(struct operation *operation) {
  struct range *range = operation->spans[0].range;
  operation->spans[0].range = NULL;
  free_range(range);
  return CUDA_SUCCESS;
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  BEGIN(cuMemFreeAsync);
  CUstream found;
  lock_engine();
  CUresult code = find_stream(stream, &found);
  unlock_engine();
  if (code != CUDA_SUCCESS) return code; /* frees nothing */
  struct range *range = unlink_range(address, is_of_pool);
  if (!range) return CUDA_ERROR_INVALID_VALUE;
  struct operation *operation = new_operation("free", run_free);
  operation->spans[0].range = range;
  return enqueue(stream, operation);
}

CUresult cuMemGetInfo_v2(size_t *unused, size_t *total) {
  BEGIN(cuMemGetInfo_v2);
  if (!unused || !total) return CUDA_ERROR_INVALID_VALUE;
  *total = memory_of_device();
  *unused = *total - memory_in_use(current_context()->device);
  return CUDA_SUCCESS;
}

static CUresult allocate_pinned(void **address, size_t bytes) {
  struct range *range;
  CUresult code = begin_allocation(address, bytes);
  if (code == CUDA_SUCCESS) code = create_range(PINNED_MEMORY, bytes, &range);
  if (code == CUDA_SUCCESS) *address = range->host_base;
  return code;
}

CUresult cuMemAllocHost_v2(void **address, size_t bytes) {
  BEGIN(cuMemAllocHost_v2);
  return allocate_pinned(address, bytes);
}

CUresult cuMemHostAlloc(void **address, size_t bytes, unsigned flags) {
  BEGIN(cuMemHostAlloc);
  unsigned known = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP |
                   CU_MEMHOSTALLOC_WRITECOMBINED;
  return flags & ~known ? CUDA_ERROR_INVALID_VALUE : allocate_pinned(address, bytes);
}

CUresult cuMemFreeHost(void *address) {
  BEGIN(cuMemFreeHost);
  CUresult code = check_unsafe_call();
  if (code != CUDA_SUCCESS) return code;
  synchronize(NULL);
  struct range *range = unlink_range((CUdeviceptr)(uintptr_t)address, is_pinned);
  if (!range) return CUDA_ERROR_INVALID_VALUE;
  free_range(range);
  return CUDA_SUCCESS;
}

CUresult cuMemHostRegister_v2(void *address, size_t bytes, unsigned flags) {
  BEGIN(cuMemHostRegister_v2);
  unsigned known = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP;
  if (flags & ~known) return CUDA_ERROR_INVALID_VALUE;
  CUresult code = begin_allocation(address, bytes);
  return code != CUDA_SUCCESS ? code : register_range(address, bytes);
}

CUresult cuMemHostUnregister(void *address) {
  BEGIN(cuMemHostUnregister);
  CUresult code = check_unsafe_call();
  if (code != CUDA_SUCCESS) return code;
  synchronize(NULL);
  struct range *range = unlink_range((CUdeviceptr)(uintptr_t)address, is_registered);
  if (!range) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  free_range(range);
  return CUDA_SUCCESS;
}
