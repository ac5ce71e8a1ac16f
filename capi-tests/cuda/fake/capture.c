/*
 * Capture of streams: work that is enqueued meanwhile is counted and never runs, and calls that
 * would disturb a capture are refused. The resulting graph is empty.
 *
 * A capture that was disturbed is invalid, and its end fails.
 */
#include "capture.h"

#include <stdlib.h>

struct capture {
  CUstream origin;
  CUstreamCaptureMode mode;
  pthread_t thread;
  bool invalid;
  bool ended;
  unsigned references; /* streams and events */
  struct capture *next;
};

static struct capture *captures;
static uint64_t captured;

static void drop_capture(struct capture **capture) {
  struct capture *dropped = *capture;
  *capture = NULL;
  if (dropped && --dropped->references == 0) free(dropped);
}

void join_capture(CUstream stream, struct capture *capture) {
  if (stream->capture || capture->ended) return;
  stream->capture = capture;
  capture->references++;
}

void set_capture_of_event(CUevent event, struct capture *capture) {
  if (capture) capture->references++;
  drop_capture(&event->capture);
  event->capture = capture;
}

bool is_captured(CUstream stream, CUresult *code) {
  if (!stream->capture) return false;
  captured++;
  *code = stream->capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
  return true;
}

bool legacy_is_implicated(CUcontext context) {
  for (CUstream stream = context->streams; stream; stream = stream->next)
    if (stream->blocking && stream->capture) return true;
  return false;
}

void invalidate_capture(CUstream stream) { stream->capture->invalid = true; }

void invalidate_blocking_captures(CUcontext context) {
  for (CUstream stream = context->streams; stream; stream = stream->next)
    if (stream->blocking && stream->capture) invalidate_capture(stream);
}

/* The thread's own capture, or a global one of another thread, unless one of them is relaxed. */
static bool forbids(const struct capture *capture, CUstreamCaptureMode mode) {
  if (mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  if (pthread_equal(capture->thread, pthread_self()))
    return capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
  return mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult check_unsafe_call(void) {
  CUresult code = CUDA_SUCCESS;
  lock_engine();
  for (struct capture *capture = captures; capture; capture = capture->next) {
    if (!forbids(capture, this_thread.capture_mode)) continue;
    capture->invalid = true;
    code = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  unlock_engine();
  return code;
}

static CUresult begin_capture(CUstream handle, CUstreamCaptureMode mode) {
  CUstream stream;
  CUresult code = find_stream(handle, &stream);
  if (code != CUDA_SUCCESS) return code;
  if (stream == stream->context->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
  struct capture *capture = calloc(1, sizeof *capture);
  if (!capture) die("no memory for a capture");
  *capture = (struct capture){stream, mode, pthread_self(), false, false, 0, captures};
  captures = capture;
  join_capture(stream, capture);
  return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  BEGIN(cuStreamBeginCapture_v2);
  if (mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  lock_engine();
  CUresult code = begin_capture(stream, mode);
  unlock_engine();
  return code;
}

/* Ends a capture on all its streams. Events keep their reference: they stay captured events. */
static void end(struct capture *capture) {
  struct capture **link = &captures;
  CUcontext context;
  while (*link != capture) link = &(*link)->next;
  *link = capture->next;
  capture->ended = true;
  capture->references++;
  for (CUdevice device = 0; (context = context_of_device(device)); device++)
    for (CUstream stream = context->streams; stream; stream = stream->next)
      if (stream->capture == capture) drop_capture(&stream->capture);
  drop_capture(&capture);
}

void leave_capture(CUstream stream) {
  if (!stream->capture) return;
  stream->capture->invalid = true;
  if (stream->capture->origin == stream) end(stream->capture);
  else drop_capture(&stream->capture);
}

static CUresult end_capture(CUstream handle) {
  CUstream stream;
  CUresult code = find_stream(handle, &stream);
  if (code != CUDA_SUCCESS) return code;
  struct capture *capture = stream->capture;
  if (!capture) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != stream) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
      !pthread_equal(capture->thread, pthread_self()))
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  code = capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
  end(capture);
  return code;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
  BEGIN(cuStreamEndCapture);
  static char empty_graph;
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  lock_engine();
  CUresult code = end_capture(stream);
  unlock_engine();
  *graph = code == CUDA_SUCCESS ? (CUgraph)&empty_graph : NULL;
  return code;
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status) {
  BEGIN(cuStreamIsCapturing);
  CUstream stream;
  if (!status) return CUDA_ERROR_INVALID_VALUE;
  lock_engine();
  CUresult code = find_stream(handle, &stream);
  if (code == CUDA_SUCCESS) {
    if (stream == stream->context->legacy && legacy_is_implicated(stream->context))
      code = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    else
      *status = !stream->capture          ? CU_STREAM_CAPTURE_STATUS_NONE
                : stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                           : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  }
  unlock_engine();
  return code;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
  BEGIN(cuThreadExchangeStreamCaptureMode);
  if (!mode || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  CUstreamCaptureMode before = this_thread.capture_mode;
  this_thread.capture_mode = *mode;
  *mode = before;
  return CUDA_SUCCESS;
}

uint64_t fakecuda_captured(void) {
  lock_engine();
  uint64_t number = captured;
  unlock_engine();
  return number;
}
