/* The fake CUDA driver under capture: work that it records, calls that it refuses, and calls that
   invalidate a capture. */
#include <pthread.h>

#include "driver.h"
#include "processes.h"

static CUstream captured, other;
static CUdeviceptr memory;

static void begin_capture(unsigned flags, CUstreamCaptureMode mode) {
  begin();
  memory = device_memory(8);
  captured = stream_of(flags);
  other = stream_of(CU_STREAM_NON_BLOCKING);
  OK(cuStreamBeginCapture_v2(captured, mode));
}

static void check_status(CUstreamCaptureStatus expected) {
  CUstreamCaptureStatus status = 77;
  OK(cuStreamIsCapturing(captured, &status));
  CHECK_EQ(expected, status);
}

static void end_capture(CUresult expected) {
  CUgraph graph = (CUgraph)77;
  CHECK_EQ(expected, cuStreamEndCapture(captured, &graph));
  CHECK_EQ(expected == CUDA_SUCCESS, graph != NULL);
  check_status(CU_STREAM_CAPTURE_STATUS_NONE);
}

static void capture_work(void) {
  CUstreamCaptureStatus status = 77;
  begin_capture(CU_STREAM_NON_BLOCKING, CU_STREAM_CAPTURE_MODE_GLOBAL);
  check_status(CU_STREAM_CAPTURE_STATUS_ACTIVE);
  OK(cuStreamIsCapturing(NULL, &status));
  CHECK_EQ(CU_STREAM_CAPTURE_STATUS_NONE, status);
  CHECK_EQ(0, fakecuda_captured());
  OK(cuMemsetD32Async(memory, 1, 1, captured));
  OK(cuMemcpyAsync(memory, memory + 4, 4, captured));
  CHECK_EQ(2, fakecuda_captured());
  OK(cuMemsetD32Async(memory, 3, 1, other)); /* not captured */
  CHECK_EQ(2, fakecuda_captured());
  check_status(CU_STREAM_CAPTURE_STATUS_ACTIVE);
  end_capture(CUDA_SUCCESS);
  CHECK_EQ(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(captured, &(CUgraph){NULL}));
  OK(cuStreamSynchronize(other));
  OK(cuStreamSynchronize(captured));
  CHECK_EQ(3, *(uint32_t *)fakecuda_view(memory, 4));
  CHECK_EQ(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamBeginCapture_v2(NULL, 0));
}
static void work_enqueued_under_capture_is_counted_and_does_not_run(void) {
  in_a_process("", capture_work);
}

static void use_legacy(void) {
  CUstreamCaptureStatus status;
  begin_capture(CU_STREAM_DEFAULT, CU_STREAM_CAPTURE_MODE_GLOBAL);
  CHECK_EQ(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuStreamIsCapturing(NULL, &status));
  check_status(CU_STREAM_CAPTURE_STATUS_ACTIVE); /* the query does not invalidate it */
  CHECK_EQ(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuMemcpyAsync(memory, memory, 1, NULL));
  check_status(CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  end_capture(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  OK(cuStreamIsCapturing(NULL, &status));
}
static void the_legacy_stream_is_unusable_while_a_blocking_stream_is_captured(void) {
  in_a_process("", use_legacy);
}

static void ask_a_captured_stream(void) {
  begin_capture(CU_STREAM_NON_BLOCKING, CU_STREAM_CAPTURE_MODE_RELAXED);
  CHECK_EQ(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamQuery(captured));
  CHECK_EQ(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuMemcpyAsync(memory, memory, 1, captured));
  end_capture(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}
static void a_captured_stream_cannot_be_waited_for(void) {
  in_a_process("", ask_a_captured_stream);
}

/* Calls that a capture may forbid. */

struct caller {
  CUstreamCaptureMode mode;
  CUresult expected;
};
static void make_unsafe_calls(CUresult expected) {
  CUevent event;
  CUdeviceptr address = 0;
  void *host = NULL;
  OK(cuEventCreate(&event, 0)); /* a safe one */
  CHECK_EQ(expected, cuMemHostAlloc(&host, 1, 0));
  CHECK_EQ(expected, cuMemAlloc_v2(&address, 1));
  CHECK_EQ(expected, cuStreamSynchronize(other));
  CHECK_EQ(expected, cuStreamQuery(other));
  CHECK_EQ(expected, cuEventQuery(event));
  CHECK_EQ(expected, cuMemFree_v2(address));
}
static void *call_from_another_thread(void *argument) {
  const struct caller *caller = argument;
  CUcontext context;
  CUstreamCaptureMode mode = caller->mode;
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxPushCurrent_v2(context));
  OK(cuThreadExchangeStreamCaptureMode(&mode));
  CHECK_EQ(CU_STREAM_CAPTURE_MODE_GLOBAL, mode);
  make_unsafe_calls(caller->expected);
  return NULL;
}
static void elsewhere(CUstreamCaptureMode mode, CUresult expected) {
  struct caller caller = {mode, expected};
  pthread_t thread;
  CHECK_EQ(0, pthread_create(&thread, NULL, call_from_another_thread, &caller));
  CHECK_EQ(0, pthread_join(thread, NULL));
}

static void capture_globally(void) {
  begin_capture(CU_STREAM_NON_BLOCKING, CU_STREAM_CAPTURE_MODE_GLOBAL);
  elsewhere(CU_STREAM_CAPTURE_MODE_RELAXED, CUDA_SUCCESS);
  elsewhere(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CUDA_SUCCESS);
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  OK(cuThreadExchangeStreamCaptureMode(&mode));
  make_unsafe_calls(CUDA_SUCCESS);
  OK(cuThreadExchangeStreamCaptureMode(&mode));
  CHECK_EQ(CU_STREAM_CAPTURE_MODE_RELAXED, mode);
  check_status(CU_STREAM_CAPTURE_STATUS_ACTIVE);
  elsewhere(CU_STREAM_CAPTURE_MODE_GLOBAL, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  check_status(CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  end_capture(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  make_unsafe_calls(CUDA_SUCCESS);
}
static void capture_in_a_thread(void) {
  begin_capture(CU_STREAM_NON_BLOCKING, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  elsewhere(CU_STREAM_CAPTURE_MODE_GLOBAL, CUDA_SUCCESS);
  check_status(CU_STREAM_CAPTURE_STATUS_ACTIVE);
  make_unsafe_calls(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  end_capture(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}
static void a_capture_forbids_unsafe_calls_to_threads_that_are_not_relaxed(void) {
  in_a_process("", capture_globally);
  in_a_process("", capture_in_a_thread);
}

static void *end_elsewhere(void *context) {
  CUgraph graph;
  OK(cuCtxPushCurrent_v2(context));
  CHECK_EQ(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, cuStreamEndCapture(captured, &graph));
  return NULL;
}
static void end_in_another_thread(void) {
  CUcontext context;
  pthread_t thread;
  begin_capture(CU_STREAM_NON_BLOCKING, CU_STREAM_CAPTURE_MODE_GLOBAL);
  OK(cuCtxGetCurrent(&context));
  CHECK_EQ(0, pthread_create(&thread, NULL, end_elsewhere, context));
  CHECK_EQ(0, pthread_join(thread, NULL));
  end_capture(CUDA_SUCCESS);
}
static void the_thread_that_began_a_capture_ends_it(void) {
  in_a_process("", end_in_another_thread);
}

static void capture_events(void) {
  CUevent inside, outside;
  CUstreamCaptureStatus status = 77;
  begin_capture(CU_STREAM_NON_BLOCKING, CU_STREAM_CAPTURE_MODE_RELAXED);
  OK(cuEventCreate(&inside, CU_EVENT_DISABLE_TIMING));
  OK(cuEventCreate(&outside, CU_EVENT_DISABLE_TIMING));
  OK(cuEventRecord(inside, captured));
  CHECK_EQ(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(inside));
  OK(cuStreamWaitEvent(other, inside, 0)); /* joins the capture */
  OK(cuStreamIsCapturing(other, &status));
  CHECK_EQ(CU_STREAM_CAPTURE_STATUS_ACTIVE, status);
  CHECK_EQ(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, cuStreamEndCapture(other, &(CUgraph){NULL}));
  OK(cuEventRecord(outside, NULL));
  CHECK_EQ(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(captured, outside, 0));
  end_capture(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  OK(cuStreamIsCapturing(other, &status));
  CHECK_EQ(CU_STREAM_CAPTURE_STATUS_NONE, status);
  OK(cuEventDestroy_v2(inside));
  OK(cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cuStreamDestroy_v2(captured));
  make_unsafe_calls(CUDA_SUCCESS); /* the capture ended with its stream */
}
static void events_belong_to_their_capture(void) { in_a_process("", capture_events); }

static const struct test_case cases[] = {
    CASE(work_enqueued_under_capture_is_counted_and_does_not_run),
    CASE(the_legacy_stream_is_unusable_while_a_blocking_stream_is_captured),
    CASE(a_captured_stream_cannot_be_waited_for),
    CASE(a_capture_forbids_unsafe_calls_to_threads_that_are_not_relaxed),
    CASE(the_thread_that_began_a_capture_ends_it),
    CASE(events_belong_to_their_capture),
};

int main(void) { return RUN(cases); }
