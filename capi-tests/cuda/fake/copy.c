/*
 * Copies and fills, both calls and operations. Leaves the map of memory to memory.c.
 *
 * Bytes move on the thread of the stream, never in the call. A call waits for the copy only if
 * memory that CUDA does not know takes part, as a driver must. With FAKECUDA_COPY_MBPS each
 * direction of a device is one copy engine, which executes one copy at a time.
 */
#include <string.h>
#include <time.h>

#include "capture.h"
#include "engine.h"

enum direction { TO_HOST, TO_DEVICE, DIRECTIONS };

static pthread_mutex_t copy_engines[MOST_DEVICES][DIRECTIONS];

static void make_copy_engines(void) {
  for (int i = 0; i < MOST_DEVICES * DIRECTIONS; i++)
    pthread_mutex_init(&copy_engines[i / DIRECTIONS][i % DIRECTIONS], NULL);
}

static const char *kind_of(const struct span *to, const struct span *from) {
  bool to_device = is_on_device(to->range), from_device = is_on_device(from->range);
  return to_device ? from_device ? "D2D" : "H2D" : from_device ? "D2H" : "H2H";
}

static pthread_mutex_t *engine_of(const struct operation *operation) {
  const struct range *to = operation->spans[0].range, *from = operation->spans[1].range;
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  if (is_on_device(to) == is_on_device(from)) return NULL;
  pthread_once(&once, make_copy_engines);
  return is_on_device(to) ? &copy_engines[to->context->device][TO_DEVICE]
                          : &copy_engines[from->context->device][TO_HOST];
}

static void move_bytes(const struct operation *operation) {
  unsigned char *to = operation->spans[0].bytes;
  const unsigned char *from = operation->spans[1].bytes;
  for (size_t row = 0; row < operation->copy.height; row++) {
    memmove(to, from, operation->copy.width);
    to += operation->copy.to_pitch;
    from += operation->copy.from_pitch;
  }
}

static CUresult run_copy(struct operation *operation) {
  long rate = number_setting(SETTING_COPY_MBPS);
  pthread_mutex_t *engine = rate > 0 ? engine_of(operation) : NULL;
  if (!engine) {
    move_bytes(operation);
    return CUDA_SUCCESS;
  }
  struct timespec end;
  pthread_mutex_lock(engine);
  clock_gettime(CLOCK_MONOTONIC, &end);
  move_bytes(operation);
  uint64_t ns = (uint64_t)((double)operation->bytes * 1e3 / (double)rate) + (uint64_t)end.tv_nsec;
  end.tv_sec += (time_t)(ns / 1000000000);
  end.tv_nsec = (long)(ns % 1000000000);
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL);
  pthread_mutex_unlock(engine);
  return CUDA_SUCCESS;
}

/* Bytes from the start of the first row to the end of the last. */
static size_t extent(size_t width, size_t height, size_t pitch) {
  return width && height ? (height - 1) * pitch + width : 0;
}

struct copy {
  CUdeviceptr to, from;
  size_t width, height, to_pitch, from_pitch;
};

static CUresult enqueue_copy(struct copy copy, CUstream stream, bool wait) {
  struct operation *operation = new_operation("copy", run_copy);
  struct span *to = &operation->spans[0], *from = &operation->spans[1];
  CUresult code = find_span(copy.to, extent(copy.width, copy.height, copy.to_pitch), to);
  if (code == CUDA_SUCCESS)
    code = find_span(copy.from, extent(copy.width, copy.height, copy.from_pitch), from);
  if (code != CUDA_SUCCESS) {
    drop_operation(operation);
    return code;
  }
  operation->kind = kind_of(to, from);
  operation->bytes = copy.width * copy.height;
  operation->copy.width = copy.width;
  operation->copy.height = operation->bytes ? copy.height : 0;
  operation->copy.to_pitch = copy.to_pitch;
  operation->copy.from_pitch = copy.from_pitch;
  if (operation->bytes && (!to->range || !from->range)) wait = true;
  return wait ? enqueue_and_wait(stream, operation) : enqueue(stream, operation);
}

static CUresult copy_bytes(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream,
                           bool wait) {
  return enqueue_copy((struct copy){to, from, bytes, 1, bytes, bytes}, stream, wait);
}

/* Functions with a "device" argument accept no host memory there. */
static CUresult check_device_side(CUdeviceptr address, size_t bytes) {
  struct span span;
  CUresult code = find_span(address, bytes, &span);
  if (code == CUDA_SUCCESS && bytes && !span.range) code = CUDA_ERROR_INVALID_VALUE;
  release_span(&span);
  return code;
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  BEGIN(cuMemcpyAsync);
  return copy_bytes(to, from, bytes, stream, false);
}

/* Copies between allocations of one or two devices. */
static CUresult copy_on_devices(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  CUresult code = check_device_side(to, bytes);
  if (code == CUDA_SUCCESS) code = check_device_side(from, bytes);
  return code != CUDA_SUCCESS ? code : copy_bytes(to, from, bytes, stream, false);
}

/* A copy between allocations of devices returns at once, even without a stream. */
CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  BEGIN(cuMemcpyDtoD_v2);
  CUresult code = check_unsafe_call();
  return code != CUDA_SUCCESS ? code : copy_on_devices(to, from, bytes, CU_STREAM_LEGACY);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  BEGIN(cuMemcpyDtoDAsync_v2);
  return copy_on_devices(to, from, bytes, stream);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                           CUcontext from_context, size_t bytes, CUstream stream) {
  BEGIN(cuMemcpyPeerAsync);
  CUresult code = check_context(to_context);
  if (code == CUDA_SUCCESS) code = check_context(from_context);
  return code != CUDA_SUCCESS ? code : copy_on_devices(to, from, bytes, stream);
}

static bool is_on_devices(CUdeviceptr address) {
  struct range *range = find_range(address);
  bool is = is_on_device(range);
  release_range(range);
  return is;
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  BEGIN(cuMemcpy);
  CUresult code = check_unsafe_call();
  if (code != CUDA_SUCCESS) return code;
  bool wait = !is_on_devices(to) || !is_on_devices(from);
  return copy_bytes(to, from, bytes, CU_STREAM_LEGACY, wait);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
  BEGIN(cuMemcpyHtoDAsync_v2);
  CUresult code = check_device_side(to, bytes);
  if (code != CUDA_SUCCESS) return code;
  return copy_bytes(to, (CUdeviceptr)(uintptr_t)from, bytes, stream, false);
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
  BEGIN(cuMemcpyDtoHAsync_v2);
  CUresult code = check_device_side(from, bytes);
  if (code != CUDA_SUCCESS) return code;
  return copy_bytes((CUdeviceptr)(uintptr_t)to, from, bytes, stream, false);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
  BEGIN(cuMemcpyHtoD_v2);
  CUresult code = check_unsafe_call();
  if (code == CUDA_SUCCESS) code = check_device_side(to, bytes);
  if (code != CUDA_SUCCESS) return code;
  return copy_bytes(to, (CUdeviceptr)(uintptr_t)from, bytes, CU_STREAM_LEGACY, true);
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
  BEGIN(cuMemcpyDtoH_v2);
  CUresult code = check_unsafe_call();
  if (code == CUDA_SUCCESS) code = check_device_side(from, bytes);
  if (code != CUDA_SUCCESS) return code;
  return copy_bytes((CUdeviceptr)(uintptr_t)to, from, bytes, CU_STREAM_LEGACY, true);
}

static CUresult check_side(CUmemorytype type, size_t x, size_t pitch, size_t width) {
  if (type != CU_MEMORYTYPE_HOST && type != CU_MEMORYTYPE_DEVICE && type != CU_MEMORYTYPE_UNIFIED)
    return CUDA_ERROR_INVALID_VALUE;
  if (pitch > INT32_MAX || x > pitch || width > pitch - x) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *c, CUstream stream) {
  BEGIN(cuMemcpy2DAsync_v2);
  if (!c) return CUDA_ERROR_INVALID_VALUE;
  /* A copy of one row may omit the pitches. */
  size_t to_pitch = c->dstPitch ? c->dstPitch : c->dstXInBytes + c->WidthInBytes;
  size_t from_pitch = c->srcPitch ? c->srcPitch : c->srcXInBytes + c->WidthInBytes;
  if (c->Height > 1 && (!c->dstPitch || !c->srcPitch)) return CUDA_ERROR_INVALID_VALUE;
  CUresult code = check_side(c->dstMemoryType, c->dstXInBytes, to_pitch, c->WidthInBytes);
  if (code == CUDA_SUCCESS)
    code = check_side(c->srcMemoryType, c->srcXInBytes, from_pitch, c->WidthInBytes);
  if (code != CUDA_SUCCESS) return code;
  CUdeviceptr to = c->dstMemoryType == CU_MEMORYTYPE_HOST ? (CUdeviceptr)(uintptr_t)c->dstHost
                                                          : c->dstDevice;
  CUdeviceptr from = c->srcMemoryType == CU_MEMORYTYPE_HOST ? (CUdeviceptr)(uintptr_t)c->srcHost
                                                            : c->srcDevice;
  to += c->dstY * to_pitch + c->dstXInBytes;
  from += c->srcY * from_pitch + c->srcXInBytes;
  struct copy copy = {to, from, c->WidthInBytes, c->Height, to_pitch, from_pitch};
  return enqueue_copy(copy, stream, false);
}

static CUresult run_set(struct operation *operation) {
  unsigned char *to = operation->spans[0].bytes;
  if (operation->set.unit == 1) memset(to, (int)operation->value, operation->bytes);
  for (size_t i = 0; operation->set.unit == 4 && i < operation->bytes; i += 4)
    memcpy(to + i, &operation->value, 4);
  return CUDA_SUCCESS;
}

static CUresult enqueue_set(CUdeviceptr to, uint32_t value, size_t unit, size_t count,
                            CUstream stream, bool wait) {
  if (to % unit || count > SIZE_MAX / unit) return CUDA_ERROR_INVALID_VALUE;
  CUresult code = check_device_side(to, count * unit);
  if (code != CUDA_SUCCESS) return code;
  struct operation *operation = new_operation("memset", run_set);
  code = find_span(to, count * unit, &operation->spans[0]);
  if (code != CUDA_SUCCESS) {
    drop_operation(operation);
    return code;
  }
  operation->bytes = count * unit;
  operation->value = value;
  operation->set.unit = unit;
  return wait ? enqueue_and_wait(stream, operation) : enqueue(stream, operation);
}

/* A fill without a stream blocks only if its target is pinned or managed memory. */
static CUresult set_without_stream(CUdeviceptr to, uint32_t value, size_t unit, size_t count) {
  CUresult code = check_unsafe_call();
  if (code != CUDA_SUCCESS) return code;
  struct range *range = find_range(to);
  bool wait = range && range->kind >= MANAGED_MEMORY;
  release_range(range);
  return enqueue_set(to, value, unit, count, CU_STREAM_LEGACY, wait);
}

CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
  BEGIN(cuMemsetD8_v2);
  return set_without_stream(to, value, 1, count);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  BEGIN(cuMemsetD8Async);
  return enqueue_set(to, value, 1, count, stream, false);
}

CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count) {
  BEGIN(cuMemsetD32_v2);
  return set_without_stream(to, value, 4, count);
}

CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
  BEGIN(cuMemsetD32Async);
  return enqueue_set(to, value, 4, count, stream, false);
}
