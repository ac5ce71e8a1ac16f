/*
 * What a test may ask of the fake driver besides the driver API: whose calls are whose, failures,
 * counters, streams that are held, work like that of kernels, the trace and the leaks. A test links
 * the fake libcuda.so.1, which is then the one that nexar loads.
 *
 * "The library's" are all calls and objects that are not the test's own: fakecuda_mine tells them
 * apart. None of these functions is itself counted, failed or forbidden to a thread.
 */
#ifndef FAKE_CONTROL_H
#define FAKE_CONTROL_H

#include "api.h"

/* From here on calls of this thread are the test's own, or no longer. Returns what was before. */
CUDA_EXPORT int fakecuda_mine(int mine);

/* As FAKECUDA_<name>=<value> in the environment, but now; NULL: the default. What exists already,
   as a stream with its queue, stays as it is. An unknown name ends the process. */
CUDA_EXPORT void fakecuda_set(const char *name, const char *value);

/* As FAKECUDA_FAIL, in place of what was armed before, counting from now. NULL: nothing fails. */
CUDA_EXPORT void fakecuda_fail(const char *failures);
/* How many of the failures that are armed have happened. */
CUDA_EXPORT unsigned fakecuda_failed(void);
/* The function whose call was the last of these; NULL: none has happened. */
CUDA_EXPORT const char *fakecuda_failed_function(void);
/* An error that stays, as if the device had run into it: whatever is on its streams is dropped. */
CUDA_EXPORT void fakecuda_break(CUdevice device, CUresult code);
/* Frees what the library has of pinned memory on the device, as if the program had reset it. */
CUDA_EXPORT void fakecuda_drop_pinned(CUdevice device);

/* Calls of a function by the library since the reset; NULL: of all functions that it may call. */
CUDA_EXPORT uint64_t fakecuda_calls(const char *function);
CUDA_EXPORT void fakecuda_reset_calls(void);

/* What the library has and has not given back. */
enum fakecuda_object {
  FAKECUDA_DEVICE_MEMORY, /* allocations of any kind that the processor cannot reach */
  FAKECUDA_PINNED_MEMORY,
  FAKECUDA_REGISTERED_MEMORY,
  FAKECUDA_STREAM,
  FAKECUDA_EVENT,
  FAKECUDA_RETAIN,  /* of a primary context */
  FAKECUDA_PUSH,    /* contexts pushed and not popped by threads that have ended */
  FAKECUDA_OBJECTS, /* how many kinds there are */
};
CUDA_EXPORT uint64_t fakecuda_live(enum fakecuda_object kind);
/* Bytes of its pinned and registered memory, and the most there have been. */
CUDA_EXPORT size_t fakecuda_pinned_bytes(void);
CUDA_EXPORT size_t fakecuda_most_pinned_bytes(void);
/* Prints to stderr what the library has and returns how much: 0 is clean. */
CUDA_EXPORT uint64_t fakecuda_report_leaks(void);

/* How many contexts this thread has on its stack. */
CUDA_EXPORT unsigned fakecuda_context_depth(void);

/* Operations of the stream that have not ended; -1 if it is none. */
CUDA_EXPORT int64_t fakecuda_pending(CUstream stream);
/* Its number in the trace; -1 if it is none. */
CUDA_EXPORT int64_t fakecuda_stream_number(CUstream stream);
/* Enqueues an operation that ends when it is released, by any thread. 0: the stream refused it. */
CUDA_EXPORT uint64_t fakecuda_hold(CUstream stream);
CUDA_EXPORT void fakecuda_release(uint64_t hold);

/*
 * Enqueues work on device memory, as a kernel: `kernel` runs on a thread of the stream with
 * addresses that it can reach, of as many bytes as asked for. It must make no CUDA call.
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
/* Where the processor reaches these bytes, with no regard to any stream; NULL if they are no one
   allocation's. */
CUDA_EXPORT void *fakecuda_view(CUdeviceptr address, size_t bytes);

/* What was enqueued on streams while they were captured, by anybody, since the process began. */
CUDA_EXPORT uint64_t fakecuda_captured(void);

/* Writes the trace, of the last 65536 events, to a file; 0 is success. Then forgets it. */
CUDA_EXPORT int fakecuda_dump_trace(const char *path);
CUDA_EXPORT void fakecuda_reset_trace(void);

#endif
