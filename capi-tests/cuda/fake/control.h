/*
 * Functions of the fake driver for tests, besides the driver API: the owner of calls, failures,
 * counters, held streams, kernels, the trace and leaks. A test links the fake libcuda.so.1, so
 * nexar loads the same library.
 *
 * The library's calls and objects are those that fakecuda_mine does not mark as the test's own. The
 * functions here are never counted, failed or forbidden to a thread.
 */
#ifndef FAKE_CONTROL_H
#define FAKE_CONTROL_H

#include "api.h"

/* Sets whether later calls of this thread are the test's own. Returns the previous value. */
CUDA_EXPORT int fakecuda_mine(int mine);

/* Changes the setting FAKECUDA_<name>; NULL: to its default. Existing objects, such as a stream and
   its queue, do not change. An unknown name ends the process. */
CUDA_EXPORT void fakecuda_set(const char *name, const char *value);

/* Arms failures as FAKECUDA_FAIL does, in place of earlier ones, counting from now. NULL: none. */
CUDA_EXPORT void fakecuda_fail(const char *failures);
/* The number of armed failures that have fired. */
CUDA_EXPORT unsigned fakecuda_failed(void);
/* The function that failed last; NULL: no failure has fired. */
CUDA_EXPORT const char *fakecuda_failed_function(void);
/* Breaks the device with a sticky error: drops all work of its streams. */
CUDA_EXPORT void fakecuda_break(CUdevice device, CUresult code);
/* Frees the library's pinned memory of the device, as if the program had reset the device. */
CUDA_EXPORT void fakecuda_drop_pinned(CUdevice device);

/* Calls of a function by the library since the reset; NULL: of all functions that it may call. */
CUDA_EXPORT uint64_t fakecuda_calls(const char *function);
CUDA_EXPORT void fakecuda_reset_calls(void);

/* Kinds of objects of the library that count as live until they are released. */
enum fakecuda_object {
  FAKECUDA_DEVICE_MEMORY, /* allocations of any kind that the processor cannot access */
  FAKECUDA_PINNED_MEMORY,
  FAKECUDA_REGISTERED_MEMORY,
  FAKECUDA_STREAM,
  FAKECUDA_EVENT,
  FAKECUDA_RETAIN,  /* of a primary context */
  FAKECUDA_PUSH,    /* contexts pushed and not popped by threads that have ended */
  FAKECUDA_OBJECTS, /* the number of kinds */
};
CUDA_EXPORT uint64_t fakecuda_live(enum fakecuda_object kind);
/* Bytes of the library's pinned and registered memory, now and at most. */
CUDA_EXPORT size_t fakecuda_pinned_bytes(void);
CUDA_EXPORT size_t fakecuda_most_pinned_bytes(void);
/* Prints the library's live objects to stderr. Returns their number. */
CUDA_EXPORT uint64_t fakecuda_report_leaks(void);

/* The depth of this thread's stack of contexts. */
CUDA_EXPORT unsigned fakecuda_context_depth(void);

/* The number of uncompleted operations of the stream; -1 if it is no stream. */
CUDA_EXPORT int64_t fakecuda_pending(CUstream stream);
/* The stream's number in the trace; -1 if it is no stream. */
CUDA_EXPORT int64_t fakecuda_stream_number(CUstream stream);
/* Enqueues an operation that completes when any thread releases it. 0: the stream refused it. */
CUDA_EXPORT uint64_t fakecuda_hold(CUstream stream);
CUDA_EXPORT void fakecuda_release(uint64_t hold);

/*
 * Enqueues work on device memory, like a kernel: `kernel` runs on a thread of the stream, with
 * addresses of the buffers that it can access. It must make no CUDA call.
 */
enum { FAKECUDA_MOST_BUFFERS = 4 };
struct fakecuda_buffer {
  CUdeviceptr address;
  size_t bytes;
};
typedef void fakecuda_kernel(void *const *buffers, void *argument);
CUDA_EXPORT CUresult fakecuda_launch(CUstream stream, fakecuda_kernel *kernel,
                                     const struct fakecuda_buffer *buffers, unsigned count,
                                     void *argument);
/* Kernels of 32-bit elements: to[i] = first + i * step; to[i] += from[i]; *sum = the sum of all. */
CUDA_EXPORT CUresult fakecuda_fill(CUstream stream, CUdeviceptr to, size_t count, uint32_t first,
                                   uint32_t step);
CUDA_EXPORT CUresult fakecuda_add(CUstream stream, CUdeviceptr to, CUdeviceptr from, size_t count);
CUDA_EXPORT CUresult fakecuda_sum(CUstream stream, CUdeviceptr from, size_t count, uint64_t *sum);
/* An address at which the processor can access these bytes, in no order with streams; NULL if they
   are not within one allocation. */
CUDA_EXPORT void *fakecuda_view(CUdeviceptr address, size_t bytes);

/* The number of operations that were enqueued on captured streams since the process began. */
CUDA_EXPORT uint64_t fakecuda_captured(void);

/* Writes the trace, the last 65536 events, to a file and resets it. 0 is success. */
CUDA_EXPORT int fakecuda_dump_trace(const char *path);
CUDA_EXPORT void fakecuda_reset_trace(void);

#endif
