/*
 * Streams, their queues, and operations. All work of a device is an operation of a stream; the file
 * that enqueues an operation has its function.
 */
#ifndef FAKE_ENGINE_H
#define FAKE_ENGINE_H

#include <pthread.h>
#include <time.h>

#include "context.h"
#include "memory.h"

/* The point at which the first `number` operations of a stream have completed. */
struct point {
  CUstream stream;
  uint64_t number;
};

struct operation {
  const char *kind; /* kind, bytes and value are for the trace */
  size_t bytes;
  uint32_t value;
  /* Runs without the lock. A code that is sticky breaks the context. */
  CUresult (*run)(struct operation *operation);
  /* With the lock: whether it waits for an action of the program. NULL: it never does. */
  bool (*is_blocked)(const struct operation *operation);
  struct span spans[FAKECUDA_MOST_BUFFERS]; /* released with the operation */
  union {
    struct {
      size_t width, height, to_pitch, from_pitch;
    } copy;
    struct {
      size_t unit;
    } set;
    struct {
      unsigned flags;
    } memop;
    struct {
      CUhostFn function;
      void *argument;
    } host;
    struct {
      fakecuda_kernel *kernel;
      void *argument;
      unsigned count;
    } kernel;
    uint64_t hold;
  };

  CUstream stream;
  uint64_t number;
  struct point *after;
  size_t after_count;
  struct operation *next;
};

struct CUstream_st {
  int64_t id;
  CUcontext context;
  bool blocking, alive, mine;
  int priority; /* a hint, which the engine ignores */
  unsigned references;
  uint64_t enqueued, completed;
  const struct operation *first; /* the first that has not completed */
  struct queue *queue;
  struct capture *capture;
  CUstream next; /* of the context */
};

struct CUevent_st {
  CUcontext context;
  unsigned flags;
  bool mine;
  struct point point;      /* of the last record; no stream before the first */
  struct timespec time;    /* when the stream reached the point */
  struct capture *capture; /* of the last record */
  CUevent next;
};

void lock_engine(void);
void unlock_engine(void);
/* With the lock: */

/* Wakes all threads in await_progress. */
void announce_progress(void);
/* Waits for the next announce_progress. */
void await_progress(void);

/* NULL and CU_STREAM_LEGACY are the legacy stream of the current context. */
CUresult find_stream(CUstream handle, CUstream *stream);
CUstream new_stream(CUcontext context, bool blocking);
void retire_stream(CUstream stream);
void retain_stream(CUstream stream);
void release_stream(CUstream stream);
bool point_is_reached(struct point point);
/* Waits for a point. Returns the code of the context if it broke meanwhile. After FAKECUDA_STALL_MS
   prints that it still waits, or dies. */
enum patience { WAIT_FOR_EVER, WAIT_OR_DIE };
CUresult wait_for_point(struct point point, enum patience patience);
/* Waits until all work of the stream has completed, or waits for an action of the program. */
void settle(CUstream stream);
/* Waits for the work of all streams of a context; NULL: of all contexts. */
CUresult wait_for_context(CUcontext context, enum patience patience);
/* The same if FAKECUDA_ALLOC_SYNC includes this caller; for all contexts if
   FAKECUDA_ALLOC_SYNC_DEVICES is "all". */
void wait_as_a_driver_may(CUcontext context);
/* Makes the operation wait for the point too. */
void add_after(struct operation *operation, struct point point);
/* Takes ownership of the operation, also on failure. The point has no stream if it was captured. */
CUresult enqueue_locked(CUstream stream, struct operation *operation, struct point *point);

/* With or without it: */

struct operation *new_operation(const char *kind, CUresult (*run)(struct operation *));
void drop_operation(struct operation *operation);
CUresult run_nothing(struct operation *operation);

/* Without it: */

/* Take ownership of the operation, also on failure. */
CUresult enqueue(CUstream handle, struct operation *operation);
CUresult enqueue_and_wait(CUstream handle, struct operation *operation);
/* Ends the per-thread default streams of a thread that ends. */
void retire_own_streams(void);

#endif
