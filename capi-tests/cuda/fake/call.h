/*
 * The entry of every call of the driver API, and what all files share: the state of the calling
 * thread, the end of the process with a message, the count of live objects.
 */
#ifndef FAKE_CALL_H
#define FAKE_CALL_H

#include <stdbool.h>

#include "control.h"
#include "settings.h"

enum caller { BY_LIBRARY, BY_TESTS };   /* "*" in FAKECUDA_FAIL and fakecuda_calls(NULL) */
enum needs { NOTHING, DRIVER, CONTEXT }; /* a call needs an initialized driver, or a context too */

/* X(function, its callers, needs) */
#define FAKE_FUNCTIONS(X)                                                                          \
  X(cuInit, BY_LIBRARY, NOTHING)                                                                   \
  X(cuDriverGetVersion, BY_LIBRARY, NOTHING)                                                       \
  X(cuGetErrorName, BY_LIBRARY, NOTHING)                                                           \
  X(cuGetErrorString, BY_TESTS, NOTHING)                                                           \
  X(cuDeviceGetCount, BY_LIBRARY, DRIVER)                                                          \
  X(cuDeviceGet, BY_LIBRARY, DRIVER)                                                               \
  X(cuDeviceGetAttribute, BY_TESTS, DRIVER)                                                        \
  X(cuDeviceGetPCIBusId, BY_TESTS, DRIVER)                                                         \
  X(cuDeviceGetName, BY_TESTS, DRIVER)                                                             \
  X(cuDeviceGetUuid, BY_TESTS, DRIVER)                                                             \
  X(cuDeviceGetUuid_v2, BY_TESTS, DRIVER)                                                          \
  X(cuDeviceTotalMem_v2, BY_TESTS, DRIVER)                                                         \
  X(cuDeviceCanAccessPeer, BY_TESTS, DRIVER)                                                       \
  X(cuDevicePrimaryCtxGetState, BY_LIBRARY, DRIVER)                                                \
  X(cuDevicePrimaryCtxRetain, BY_LIBRARY, DRIVER)                                                  \
  X(cuDevicePrimaryCtxRelease_v2, BY_LIBRARY, DRIVER)                                              \
  X(cuCtxGetCurrent, BY_LIBRARY, DRIVER)                                                           \
  X(cuCtxSetCurrent, BY_TESTS, DRIVER)                                                             \
  X(cuCtxGetDevice, BY_LIBRARY, DRIVER)                                                            \
  X(cuCtxPushCurrent_v2, BY_LIBRARY, DRIVER)                                                       \
  X(cuCtxPopCurrent_v2, BY_LIBRARY, DRIVER)                                                        \
  X(cuCtxSynchronize, BY_TESTS, CONTEXT)                                                           \
  X(cuCtxGetStreamPriorityRange, BY_TESTS, CONTEXT)                                                \
  X(cuMemAlloc_v2, BY_TESTS, CONTEXT)                                                              \
  X(cuMemAllocManaged, BY_TESTS, CONTEXT)                                                          \
  X(cuMemAllocAsync, BY_TESTS, CONTEXT)                                                            \
  X(cuMemFree_v2, BY_TESTS, CONTEXT)                                                               \
  X(cuMemFreeAsync, BY_TESTS, CONTEXT)                                                             \
  X(cuMemGetInfo_v2, BY_TESTS, CONTEXT)                                                            \
  X(cuMemAllocHost_v2, BY_TESTS, CONTEXT)                                                          \
  X(cuMemHostAlloc, BY_LIBRARY, CONTEXT)                                                           \
  X(cuMemFreeHost, BY_LIBRARY, CONTEXT)                                                            \
  X(cuMemHostRegister_v2, BY_TESTS, CONTEXT)                                                       \
  X(cuMemHostUnregister, BY_TESTS, CONTEXT)                                                        \
  X(cuMemHostGetDevicePointer_v2, BY_LIBRARY, CONTEXT)                                             \
  X(cuPointerGetAttribute, BY_TESTS, CONTEXT)                                                      \
  X(cuPointerGetAttributes, BY_LIBRARY, CONTEXT)                                                   \
  X(cuMemcpyAsync, BY_LIBRARY, CONTEXT)                                                            \
  X(cuMemcpy, BY_TESTS, CONTEXT)                                                                   \
  X(cuMemcpyDtoD_v2, BY_TESTS, CONTEXT)                                                            \
  X(cuMemcpyDtoDAsync_v2, BY_TESTS, CONTEXT)                                                       \
  X(cuMemcpyPeerAsync, BY_TESTS, CONTEXT)                                                          \
  X(cuMemcpyHtoD_v2, BY_TESTS, CONTEXT)                                                            \
  X(cuMemcpyDtoH_v2, BY_TESTS, CONTEXT)                                                            \
  X(cuMemcpyHtoDAsync_v2, BY_TESTS, CONTEXT)                                                       \
  X(cuMemcpyDtoHAsync_v2, BY_TESTS, CONTEXT)                                                       \
  X(cuMemcpy2DAsync_v2, BY_LIBRARY, CONTEXT)                                                       \
  X(cuMemsetD8_v2, BY_TESTS, CONTEXT)                                                              \
  X(cuMemsetD8Async, BY_TESTS, CONTEXT)                                                            \
  X(cuMemsetD32_v2, BY_TESTS, CONTEXT)                                                             \
  X(cuMemsetD32Async, BY_TESTS, CONTEXT)                                                           \
  X(cuStreamCreate, BY_LIBRARY, CONTEXT)                                                           \
  X(cuStreamCreateWithPriority, BY_TESTS, CONTEXT)                                                 \
  X(cuStreamDestroy_v2, BY_LIBRARY, CONTEXT)                                                       \
  X(cuStreamSynchronize, BY_LIBRARY, CONTEXT)                                                      \
  X(cuStreamQuery, BY_LIBRARY, CONTEXT)                                                            \
  X(cuStreamGetCtx, BY_TESTS, CONTEXT)                                                             \
  X(cuStreamGetPriority, BY_TESTS, CONTEXT)                                                        \
  X(cuStreamWaitEvent, BY_LIBRARY, CONTEXT)                                                        \
  X(cuStreamWriteValue32_v2, BY_LIBRARY, CONTEXT)                                                  \
  X(cuStreamWaitValue32_v2, BY_LIBRARY, CONTEXT)                                                   \
  X(cuLaunchHostFunc, BY_TESTS, CONTEXT)                                                           \
  X(cuEventCreate, BY_LIBRARY, CONTEXT)                                                            \
  X(cuEventDestroy_v2, BY_LIBRARY, CONTEXT)                                                        \
  X(cuEventRecord, BY_LIBRARY, CONTEXT)                                                            \
  X(cuEventQuery, BY_LIBRARY, CONTEXT)                                                             \
  X(cuEventSynchronize, BY_TESTS, CONTEXT)                                                         \
  X(cuEventElapsedTime, BY_TESTS, CONTEXT)                                                         \
  X(cuStreamBeginCapture_v2, BY_TESTS, CONTEXT)                                                    \
  X(cuStreamEndCapture, BY_TESTS, CONTEXT)                                                         \
  X(cuStreamIsCapturing, BY_LIBRARY, CONTEXT)                                                      \
  X(cuThreadExchangeStreamCaptureMode, BY_LIBRARY, DRIVER)

enum function {
#define X(function, caller, needs) CALL_##function,
  FAKE_FUNCTIONS(X) FUNCTIONS
#undef X
};

/* The first line of every function of the API: returns the code of a call that is refused. */
#define BEGIN(function)                                                                            \
  do {                                                                                             \
    CUresult refused_ = begin_call(CALL_##function);                                               \
    if (refused_ != CUDA_SUCCESS) return refused_;                                                 \
  } while (0)

CUresult begin_call(enum function function);
const char *name_of_function(enum function function);
bool library_calls(enum function function);
/* The call that this thread makes, for messages. */
const char *name_of_call(void);
void become_initialized(void);
/* Called when the process exits: from here on every call fails. */
void become_deinitialized(void);

enum { MOST_PUSHED = 64 };

struct thread {
  bool mine, known;
  /* Code of the program that this thread of a stream runs: "host function", "kernel" or NULL. */
  const char *running;
  const char *call; /* for messages */
  CUcontext contexts[MOST_PUSHED];
  unsigned depth;
  int pushed_by_library;
  CUstreamCaptureMode capture_mode;
  CUstream own_streams[MOST_DEVICES]; /* CU_STREAM_PER_THREAD of each device */
};
extern _Thread_local struct thread this_thread;

/* Whether any function was called. */
bool driver_is_used(void);
/* A child of fork does not have the threads of streams, so it cannot use the driver. */
bool is_forked_child(void);

_Noreturn void die(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Counts an object of the caller. Returns whether it is the test's own, for uncount_object. */
bool count_object(enum fakecuda_object kind);
void uncount_object(enum fakecuda_object kind, bool mine);
void count_pinned_bytes(size_t bytes);
void uncount_pinned_bytes(size_t bytes, bool mine);

bool failure_is_armed(enum function function, CUresult *code);
void arm_failures_of_environment(void);

#endif
