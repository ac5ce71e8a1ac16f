/*
 * The engine: threads that run the operations of streams, in order and asynchronously. Leaves to
 * other files which calls create operations, and what their functions do.
 *
 * One lock guards streams, queues, points, events and captures; no thread moves bytes, sleeps or
 * runs code of the program under it. An operation waits only for operations that were enqueued
 * before it, so streams that share a queue never deadlock.
 */
#include "engine.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "capture.h"
#include "trace.h"

/* Operations that run one after another: those of a stream, or of all streams that share it. */
struct queue {
  pthread_cond_t work;
  struct operation *first, *last;
  bool closing;
  uint64_t random;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t progress = PTHREAD_COND_INITIALIZER;
static int64_t last_stream;

void lock_engine(void) { pthread_mutex_lock(&lock); }
void unlock_engine(void) { pthread_mutex_unlock(&lock); }
void announce_progress(void) { pthread_cond_broadcast(&progress); }
void await_progress(void) { pthread_cond_wait(&progress, &lock); }

static void *allocated(void *memory) {
  if (!memory) die("no memory for the engine");
  return memory;
}

/* Points, and references to streams. */

void retain_stream(CUstream stream) { stream->references++; }

void release_stream(CUstream stream) {
  if (stream && --stream->references == 0) free(stream);
}

bool point_is_reached(struct point point) {
  return !point.stream || point.stream->completed >= point.number;
}

static void describe(CUstream stream, char *text, size_t size) {
  const struct operation *first = stream->first;
  snprintf(text, size, "stream %lld, which is at %s %u and has %llu operations left",
           (long long)stream->id, first ? first->kind : "nothing", first ? first->value : 0,
           (unsigned long long)(stream->enqueued - stream->completed));
}

static struct timespec stall_from_now(void) {
  struct timespec time;
  long ms = number_setting(SETTING_STALL_MS);
  clock_gettime(CLOCK_REALTIME, &time);
  time.tv_nsec += ms % 1000 * 1000000;
  time.tv_sec += ms / 1000 + time.tv_nsec / 1000000000;
  time.tv_nsec %= 1000000000;
  return time;
}

/* Waits until the point is reached; every FAKECUDA_STALL_MS it reports or dies. */
static void wait_patiently(struct point point, enum patience patience) {
  struct timespec stall = stall_from_now();
  while (!point_is_reached(point)) {
    if (pthread_cond_timedwait(&progress, &lock, &stall) != ETIMEDOUT) continue;
    if (point_is_reached(point)) return;
    char what[200];
    describe(point.stream, what, sizeof what);
    if (patience == WAIT_OR_DIE)
      die("%s has waited %ld ms for %s", name_of_call(), number_setting(SETTING_STALL_MS), what);
    fprintf(stderr, "fake libcuda: %s still waits for %s\n", name_of_call(), what);
    stall = stall_from_now();
  }
}

CUresult wait_for_point(struct point point, enum patience patience) {
  if (!point.stream) return CUDA_SUCCESS;
  CUcontext context = point.stream->context;
  retain_stream(point.stream);
  wait_patiently(point, patience);
  release_stream(point.stream);
  return atomic_load(&context->broken);
}

static bool queue_is_blocked(const struct queue *queue) {
  const struct operation *first = queue->first;
  if (!first) return false;
  if (first->is_blocked && first->is_blocked(first)) return true;
  for (size_t i = 0; i < first->after_count; i++) {
    struct point point = first->after[i];
    if (!point_is_reached(point) && queue_is_blocked(point.stream->queue)) return true;
  }
  return false;
}

void settle(CUstream stream) {
  struct point end = {stream, stream->enqueued};
  retain_stream(stream);
  while (!point_is_reached(end) && !queue_is_blocked(stream->queue)) await_progress();
  release_stream(stream);
}

static CUresult wait_for_streams_of(CUcontext context, enum patience patience) {
  size_t count = 0, i = 0;
  for (CUstream stream = context->streams; stream; stream = stream->next) count++;
  struct point *points = allocated(calloc(count + 1, sizeof *points));
  for (CUstream stream = context->streams; stream; stream = stream->next) {
    points[i++] = (struct point){stream, stream->enqueued};
    retain_stream(stream);
  }
  for (i = 0; i < count; i++) {
    wait_for_point(points[i], patience);
    release_stream(points[i].stream);
  }
  free(points);
  return atomic_load(&context->broken);
}

CUresult wait_for_context(CUcontext context, enum patience patience) {
  if (context) return wait_for_streams_of(context, patience);
  for (CUdevice device = 0; (context = context_of_device(device)); device++)
    wait_for_streams_of(context, patience);
  return CUDA_SUCCESS;
}

void wait_as_a_driver_may(CUcontext context) {
  const char *waits = text_setting(SETTING_ALLOC_SYNC);
  if (strcmp(waits, "off") == 0 || (strcmp(waits, "library") == 0 && this_thread.mine)) return;
  bool all = strcmp(text_setting(SETTING_ALLOC_SYNC_DEVICES), "all") == 0;
  wait_for_context(all ? NULL : context, WAIT_OR_DIE);
}

/* Operations. */

CUresult run_nothing(struct operation *operation) {
  (void)operation;
  return CUDA_SUCCESS;
}

struct operation *new_operation(const char *kind, CUresult (*run)(struct operation *)) {
  struct operation *operation = allocated(calloc(1, sizeof *operation));
  operation->kind = kind;
  operation->run = run;
  return operation;
}

void drop_operation(struct operation *operation) {
  for (int i = 0; i < FAKECUDA_MOST_BUFFERS; i++) release_span(&operation->spans[i]);
  free(operation->after);
  free(operation);
}

void add_after(struct operation *operation, struct point point) {
  if (point_is_reached(point)) return;
  size_t bytes = (operation->after_count + 1) * sizeof *operation->after;
  operation->after = allocated(realloc(operation->after, bytes));
  operation->after[operation->after_count++] = point;
  retain_stream(point.stream);
}

/* The legacy stream waits for all blocking streams of its context, and they for it. */
static void add_implicit_order(CUstream stream, struct operation *operation) {
  CUcontext context = stream->context;
  if (stream == context->legacy) {
    for (CUstream other = context->streams; other; other = other->next)
      if (other->blocking && other != stream)
        add_after(operation, (struct point){other, other->enqueued});
  } else if (stream->blocking && context->legacy) {
    add_after(operation, (struct point){context->legacy, context->legacy->enqueued});
  }
}

/* Threads. */

static void sleep_us(unsigned long microseconds) {
  struct timespec time = {(time_t)(microseconds / 1000000), (long)(microseconds % 1000000 * 1000)};
  nanosleep(&time, NULL);
}

/* Sleeps as FAKECUDA_LATENCY_US says: "most" or "least-most". */
static void delay(struct queue *queue) {
  const char *setting = text_setting(SETTING_LATENCY_US);
  char *rest;
  unsigned long least = strtoul(setting, &rest, 10), most = least;
  if (*rest == '-') most = strtoul(rest + 1, NULL, 10);
  if (most > least) {
    queue->random ^= queue->random << 13;
    queue->random ^= queue->random >> 7;
    queue->random ^= queue->random << 17;
    least += queue->random % (most - least + 1);
  }
  if (least) sleep_us(least);
}

static bool uses_freed_memory(const struct operation *operation) {
  for (int i = 0; i < FAKECUDA_MOST_BUFFERS; i++) {
    const struct range *range = operation->spans[i].range;
    if (range && atomic_load(&range->freed)) return true;
  }
  return false;
}

static void run(struct queue *queue, struct operation *operation) {
  CUcontext context = operation->stream->context;
  int64_t stream = operation->stream->id;
  if (atomic_load(&context->broken)) return;
  delay(queue);
  if (uses_freed_memory(operation)) {
    fprintf(stderr, "fake libcuda: %s on stream %lld uses memory that was freed\n", operation->kind,
            (long long)stream);
    break_context(context, CUDA_ERROR_ILLEGAL_ADDRESS);
    return;
  }
  trace_operation("begin", stream, operation->kind, operation->bytes, operation->value);
  CUresult code = operation->run(operation);
  trace_operation("end", stream, operation->kind, operation->bytes, operation->value);
  if (is_sticky(code)) break_context(context, code);
}

static void remove_from_context(CUstream stream) {
  CUstream *link = &stream->context->streams;
  while (*link != stream) link = &(*link)->next;
  *link = stream->next;
}

static const struct operation *next_of_stream(const struct operation *operation) {
  const struct operation *next = operation->next;
  while (next && next->stream != operation->stream) next = next->next;
  return next;
}

static void complete(struct queue *queue, struct operation *operation) {
  CUstream stream = operation->stream;
  queue->first = operation->next;
  if (!queue->first) queue->last = NULL;
  stream->first = next_of_stream(operation);
  stream->completed++;
  if (!stream->alive && stream->completed == stream->enqueued) remove_from_context(stream);
  release_stream(stream);
  announce_progress();
}

/* Holds the lock, except while the operation runs. */
static void run_first(struct queue *queue) {
  struct operation *operation = queue->first;
  for (size_t i = 0; i < operation->after_count; i++) {
    struct point point = operation->after[i];
    while (!point_is_reached(point)) await_progress();
    operation->after[i].stream = NULL; /* may be freed now */
    release_stream(point.stream);
  }
  unlock_engine();
  run(queue, operation);
  lock_engine();
  complete(queue, operation);
  unlock_engine();
  drop_operation(operation);
  lock_engine();
}

static void *queue_main(void *argument) {
  struct queue *queue = argument;
  pthread_setname_np(pthread_self(), "fake-cuda");
  prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL); /* else short sleeps take longer */
  lock_engine();
  for (;;) {
    while (!queue->first && !queue->closing) pthread_cond_wait(&queue->work, &lock);
    if (!queue->first) break;
    run_first(queue);
  }
  unlock_engine();
  pthread_cond_destroy(&queue->work);
  free(queue);
  return NULL;
}

static struct queue *new_queue(void) {
  static uint64_t created;
  struct queue *queue = allocated(calloc(1, sizeof *queue));
  pthread_cond_init(&queue->work, NULL);
  queue->random = ((uint64_t)number_setting(SETTING_SEED) + ++created) * 0x9E3779B97F4A7C15u | 1;
  sigset_t all, before;
  pthread_attr_t attributes;
  pthread_t thread;
  sigfillset(&all);
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  if (pthread_create(&thread, &attributes, queue_main, queue) != 0) die("no thread for a stream");
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  return queue;
}

/* A new queue, or one of the FAKECUDA_HWQ queues that the streams of the context share. */
static struct queue *queue_for(CUcontext context, int64_t stream) {
  unsigned count = (unsigned)number_setting(SETTING_HWQ);
  if (!count) return new_queue();
  if (!context->queues) {
    context->queues = allocated(calloc(count, sizeof *context->queues));
    context->queue_count = count;
    for (unsigned i = 0; i < count; i++) context->queues[i] = new_queue();
  }
  return context->queues[(uint64_t)stream % context->queue_count];
}

static bool is_shared(CUcontext context, const struct queue *queue) {
  for (unsigned i = 0; i < context->queue_count; i++)
    if (context->queues[i] == queue) return true;
  return false;
}

/* Streams. */

CUstream new_stream(CUcontext context, bool blocking) {
  CUstream stream = allocated(calloc(1, sizeof *stream));
  stream->id = ++last_stream;
  stream->context = context;
  stream->blocking = blocking;
  stream->alive = true;
  stream->references = 1;
  stream->queue = queue_for(context, stream->id);
  stream->next = context->streams;
  context->streams = stream;
  return stream;
}

/* Ends a stream. Its work still completes. */
void retire_stream(CUstream stream) {
  stream->alive = false;
  if (!is_shared(stream->context, stream->queue)) {
    stream->queue->closing = true;
    pthread_cond_signal(&stream->queue->work);
  }
  if (stream->completed == stream->enqueued) remove_from_context(stream);
  release_stream(stream);
}

void retire_own_streams(void) {
  lock_engine();
  for (int i = 0; i < MOST_DEVICES; i++) {
    if (this_thread.own_streams[i]) retire_stream(this_thread.own_streams[i]);
    this_thread.own_streams[i] = NULL;
  }
  unlock_engine();
}

static CUstream default_stream(CUstream *stream, CUcontext context) {
  if (!*stream) *stream = new_stream(context, true);
  return *stream;
}

CUresult find_stream(CUstream handle, CUstream *stream) {
  CUcontext context = current_context();
  if (!handle || handle == CU_STREAM_LEGACY) {
    *stream = default_stream(&context->legacy, context);
    return CUDA_SUCCESS;
  }
  if (handle == CU_STREAM_PER_THREAD) {
    *stream = default_stream(&this_thread.own_streams[context->device], context);
    return CUDA_SUCCESS;
  }
  for (CUdevice device = 0; (context = context_of_device(device)); device++) {
    for (*stream = context->streams; *stream; *stream = (*stream)->next)
      if (*stream == handle && handle->alive) return atomic_load(&context->broken);
  }
  return CUDA_ERROR_INVALID_HANDLE;
}

/* Enqueueing. */

static void append(CUstream stream, struct operation *operation) {
  struct queue *queue = stream->queue;
  operation->stream = stream;
  operation->number = ++stream->enqueued;
  retain_stream(stream);
  if (!stream->first) stream->first = operation;
  if (queue->last) queue->last->next = operation;
  else queue->first = operation;
  queue->last = operation;
  pthread_cond_signal(&queue->work);
}

CUresult enqueue_locked(CUstream stream, struct operation *operation, struct point *point) {
  CUresult code = CUDA_SUCCESS;
  CUcontext context = stream->context;
  *point = (struct point){NULL, 0};
  if (stream == context->legacy && legacy_is_implicated(context)) {
    invalidate_blocking_captures(context);
    code = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  } else if (!is_captured(stream, &code)) {
    uint64_t depth = (uint64_t)number_setting(SETTING_QUEUE_DEPTH);
    if (stream->enqueued >= depth)
      code = wait_for_point((struct point){stream, stream->enqueued + 1 - depth}, WAIT_OR_DIE);
    if (code == CUDA_SUCCESS) {
      add_implicit_order(stream, operation);
      append(stream, operation);
      *point = (struct point){stream, operation->number};
      return CUDA_SUCCESS;
    }
  }
  for (size_t i = 0; i < operation->after_count; i++) release_stream(operation->after[i].stream);
  drop_operation(operation);
  return code;
}

static CUresult find_and_enqueue(CUstream handle, struct operation *operation, bool wait) {
  CUstream stream;
  struct point point;
  lock_engine();
  CUresult code = find_stream(handle, &stream);
  if (code != CUDA_SUCCESS) drop_operation(operation);
  else code = enqueue_locked(stream, operation, &point);
  if (code == CUDA_SUCCESS && wait) code = wait_for_point(point, WAIT_FOR_EVER);
  unlock_engine();
  return code;
}

CUresult enqueue(CUstream handle, struct operation *operation) {
  return find_and_enqueue(handle, operation, false);
}

CUresult enqueue_and_wait(CUstream handle, struct operation *operation) {
  return find_and_enqueue(handle, operation, true);
}
