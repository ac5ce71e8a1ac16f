/*
 * Calls that create, destroy, query and wait for streams. Leaves the work of streams to the engine
 * and to the files of the operations.
 *
 * Only the calls that wait block, and those that create a stream, which may wait for the device as
 * allocations do.
 */
#include "capture.h"
#include "engine.h"

/* A smaller number is a higher priority. */
enum { LEAST_PRIORITY = 0, GREATEST_PRIORITY = -5 };

static CUresult create(CUstream *created, unsigned flags, int priority) {
  if (!created || flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  lock_engine();
  wait_as_a_driver_may(current_context());
  *created = new_stream(current_context(), flags == CU_STREAM_DEFAULT);
  (*created)->priority = priority;
  (*created)->mine = count_object(FAKECUDA_STREAM);
  unlock_engine();
  return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *created, unsigned flags) {
  BEGIN(cuStreamCreate);
  return create(created, flags, LEAST_PRIORITY);
}

/* A priority outside the range becomes the nearest one inside. */
CUresult cuStreamCreateWithPriority(CUstream *created, unsigned flags, int priority) {
  BEGIN(cuStreamCreateWithPriority);
  if (priority > LEAST_PRIORITY) priority = LEAST_PRIORITY;
  if (priority < GREATEST_PRIORITY) priority = GREATEST_PRIORITY;
  return create(created, flags, priority);
}

/* Either may be NULL. */
CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  BEGIN(cuCtxGetStreamPriorityRange);
  if (least) *least = LEAST_PRIORITY;
  if (greatest) *greatest = GREATEST_PRIORITY;
  return CUDA_SUCCESS;
}

static bool is_handle(CUstream stream) {
  return stream && stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD;
}

CUresult cuStreamDestroy_v2(CUstream handle) {
  BEGIN(cuStreamDestroy_v2);
  CUstream stream;
  if (!is_handle(handle)) return CUDA_ERROR_INVALID_HANDLE;
  lock_engine();
  CUresult code = find_stream(handle, &stream);
  if (code == CUDA_SUCCESS) {
    uncount_object(FAKECUDA_STREAM, stream->mine);
    leave_capture(stream);
    retire_stream(stream);
  }
  unlock_engine();
  return code;
}

/* With the lock. Also refuses calls that a capture of this stream forbids. */
static CUresult find_for_waiting(CUstream handle, CUstream *stream) {
  CUresult code = find_stream(handle, stream);
  if (code != CUDA_SUCCESS) return code;
  if ((*stream)->capture) {
    invalidate_capture(*stream);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  CUcontext context = (*stream)->context;
  if (*stream != context->legacy || !legacy_is_implicated(context)) return CUDA_SUCCESS;
  invalidate_blocking_captures(context);
  return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

/* The legacy stream is done when all blocking streams of its context are. */
static CUresult synchronize(CUstream stream) {
  if (stream == stream->context->legacy) {
    for (CUstream other = stream->context->streams; other;) {
      struct point point = {other, other->enqueued};
      if (!other->blocking || point_is_reached(point)) {
        other = other->next;
        continue;
      }
      wait_for_point(point, WAIT_FOR_EVER);
      other = stream->context->streams; /* the list may have changed */
    }
  }
  return wait_for_point((struct point){stream, stream->enqueued}, WAIT_FOR_EVER);
}

CUresult cuStreamSynchronize(CUstream handle) {
  BEGIN(cuStreamSynchronize);
  CUstream stream;
  CUresult code = check_unsafe_call();
  if (code != CUDA_SUCCESS) return code;
  lock_engine();
  code = find_for_waiting(handle, &stream);
  if (code == CUDA_SUCCESS) code = synchronize(stream);
  unlock_engine();
  return code;
}

static bool is_idle(CUstream stream) {
  if (stream->completed != stream->enqueued) return false;
  if (stream != stream->context->legacy) return true;
  for (CUstream other = stream->context->streams; other; other = other->next)
    if (other->blocking && other->completed != other->enqueued) return false;
  return true;
}

CUresult cuStreamQuery(CUstream handle) {
  BEGIN(cuStreamQuery);
  CUstream stream;
  CUresult code = check_unsafe_call();
  if (code != CUDA_SUCCESS) return code;
  lock_engine();
  code = find_for_waiting(handle, &stream);
  if (code == CUDA_SUCCESS && number_setting(SETTING_SETTLE)) settle(stream);
  if (code == CUDA_SUCCESS && !is_idle(stream)) code = CUDA_ERROR_NOT_READY;
  unlock_engine();
  return code;
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext *context) {
  BEGIN(cuStreamGetCtx);
  CUstream stream;
  if (!context) return CUDA_ERROR_INVALID_VALUE;
  lock_engine();
  CUresult code = find_stream(handle, &stream);
  if (code == CUDA_SUCCESS) *context = stream->context;
  unlock_engine();
  return code;
}

CUresult cuStreamGetPriority(CUstream handle, int *priority) {
  BEGIN(cuStreamGetPriority);
  CUstream stream;
  if (!priority) return CUDA_ERROR_INVALID_VALUE;
  lock_engine();
  CUresult code = find_stream(handle, &stream);
  if (code == CUDA_SUCCESS) *priority = stream->priority;
  unlock_engine();
  return code;
}

CUresult cuCtxSynchronize(void) {
  BEGIN(cuCtxSynchronize);
  CUresult code = check_unsafe_call();
  if (code != CUDA_SUCCESS) return code;
  lock_engine();
  code = wait_for_context(current_context(), WAIT_FOR_EVER);
  unlock_engine();
  return code;
}

int64_t fakecuda_pending(CUstream handle) {
  CUstream stream;
  int64_t pending = -1;
  if (!current_context() && !is_handle(handle)) return -1;
  lock_engine();
  if (find_stream(handle, &stream) != CUDA_ERROR_INVALID_HANDLE)
    pending = (int64_t)(stream->enqueued - stream->completed);
  unlock_engine();
  return pending;
}

int64_t fakecuda_stream_number(CUstream handle) {
  CUstream stream;
  int64_t number = -1;
  if (!current_context() && !is_handle(handle)) return -1;
  lock_engine();
  if (find_stream(handle, &stream) != CUDA_ERROR_INVALID_HANDLE) number = stream->id;
  unlock_engine();
  return number;
}
