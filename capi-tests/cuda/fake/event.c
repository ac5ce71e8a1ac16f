/*
 * Events: points of streams for which other streams can wait. Leaves the order between streams to
 * the engine.
 *
 * An event stands for its last record. A wait is for the record at the time of the call, even if
 * the event is recorded again or destroyed later.
 */
#include <stdlib.h>

#include "capture.h"
#include "engine.h"

static CUevent events; /* under the lock of the engine */

static CUresult find_event(CUevent handle) {
  for (CUevent event = events; event; event = event->next)
    if (event == handle) return atomic_load(&event->context->broken);
  return CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuEventCreate(CUevent *created, unsigned flags) {
  BEGIN(cuEventCreate);
  unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
  if (!created || flags & ~known) return CUDA_ERROR_INVALID_VALUE;
  if (flags & CU_EVENT_INTERPROCESS && !(flags & CU_EVENT_DISABLE_TIMING))
    return CUDA_ERROR_INVALID_VALUE;
  CUevent event = calloc(1, sizeof *event);
  if (!event) die("no memory for an event");
  event->context = current_context();
  event->flags = flags;
  event->mine = count_object(FAKECUDA_EVENT);
  lock_engine();
  event->next = events;
  events = event;
  unlock_engine();
  *created = event;
  return CUDA_SUCCESS;
}

static void move_event(CUevent event, struct point point, struct capture *capture) {
  if (point.stream) retain_stream(point.stream);
  if (event->point.stream) release_stream(event->point.stream);
  event->point = point;
  set_capture_of_event(event, capture);
}

CUresult cuEventDestroy_v2(CUevent event) {
  BEGIN(cuEventDestroy_v2);
  lock_engine();
  CUresult code = find_event(event);
  if (code == CUDA_SUCCESS) {
    CUevent *link = &events;
    while (*link != event) link = &(*link)->next;
    *link = event->next;
    move_event(event, (struct point){NULL, 0}, NULL);
    uncount_object(FAKECUDA_EVENT, event->mine);
    free(event);
  }
  unlock_engine();
  return code;
}

/* Sets the time of the events of this record. An event that was recorded again has a new point. */
static CUresult run_record(struct operation *operation) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  lock_engine();
  for (CUevent event = events; event; event = event->next) {
    struct point point = event->point;
    if (point.stream == operation->stream && point.number == operation->number) event->time = now;
  }
  unlock_engine();
  return CUDA_SUCCESS;
}

static CUresult record(CUevent event, CUstream handle, struct operation *operation) {
  CUstream stream;
  struct point point;
  CUresult code = find_event(event);
  if (code == CUDA_SUCCESS) code = find_stream(handle, &stream);
  if (code == CUDA_SUCCESS && stream->context != event->context) code = CUDA_ERROR_INVALID_HANDLE;
  if (code != CUDA_SUCCESS) {
    drop_operation(operation);
    return code;
  }
  code = enqueue_locked(stream, operation, &point);
  if (code == CUDA_SUCCESS) move_event(event, point, stream->capture);
  return code;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  BEGIN(cuEventRecord);
  struct operation *operation = new_operation("record", run_record);
  lock_engine();
  CUresult code = record(event, stream, operation);
  unlock_engine();
  return code;
}

static CUresult wait_event(CUstream handle, CUevent event, struct operation *operation) {
  CUstream stream;
  struct point point;
  CUresult code = find_event(event);
  if (code == CUDA_SUCCESS) code = find_stream(handle, &stream);
  if (code == CUDA_SUCCESS && stream->capture && event->point.stream && !event->capture) {
    invalidate_capture(stream);
    code = CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  if (code != CUDA_SUCCESS) {
    drop_operation(operation);
    return code;
  }
  if (event->capture) join_capture(stream, event->capture);
  add_after(operation, event->point);
  return enqueue_locked(stream, operation, &point);
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  BEGIN(cuStreamWaitEvent);
  if (flags > 1) return CUDA_ERROR_INVALID_VALUE;
  struct operation *operation = new_operation("event", run_nothing);
  lock_engine();
  CUresult code = wait_event(stream, event, operation);
  unlock_engine();
  return code;
}

/* With the lock. */
static CUresult find_for_query(CUevent event) {
  CUresult code = find_event(event);
  return code == CUDA_SUCCESS && event->capture ? CUDA_ERROR_CAPTURED_EVENT : code;
}

CUresult cuEventQuery(CUevent event) {
  BEGIN(cuEventQuery);
  CUresult code = check_unsafe_call();
  if (code != CUDA_SUCCESS) return code;
  lock_engine();
  code = find_for_query(event);
  if (code == CUDA_SUCCESS && !point_is_reached(event->point)) code = CUDA_ERROR_NOT_READY;
  unlock_engine();
  return code;
}

CUresult cuEventSynchronize(CUevent event) {
  BEGIN(cuEventSynchronize);
  CUresult code = check_unsafe_call();
  if (code != CUDA_SUCCESS) return code;
  lock_engine();
  code = find_for_query(event);
  if (code == CUDA_SUCCESS) code = wait_for_point(event->point, WAIT_FOR_EVER);
  unlock_engine();
  return code;
}

/* With the lock. */
static CUresult find_for_timing(CUevent event) {
  CUresult code = find_for_query(event);
  if (code != CUDA_SUCCESS) return code;
  bool has_time = event->point.stream && !(event->flags & CU_EVENT_DISABLE_TIMING);
  return has_time ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult elapsed_time(float *milliseconds, CUevent start, CUevent end) {
  CUresult code = find_for_timing(start);
  if (code == CUDA_SUCCESS) code = find_for_timing(end);
  if (code != CUDA_SUCCESS) return code;
  if (start->context != end->context) return CUDA_ERROR_INVALID_HANDLE;
  if (!point_is_reached(start->point) || !point_is_reached(end->point)) return CUDA_ERROR_NOT_READY;
  double seconds = (double)(end->time.tv_sec - start->time.tv_sec);
  double nanoseconds = (double)(end->time.tv_nsec - start->time.tv_nsec);
  *milliseconds = (float)(seconds * 1e3 + nanoseconds / 1e6);
  return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
  BEGIN(cuEventElapsedTime);
  if (!milliseconds) return CUDA_ERROR_INVALID_VALUE;
  lock_engine();
  CUresult code = elapsed_time(milliseconds, start, end);
  unlock_engine();
  return code;
}
