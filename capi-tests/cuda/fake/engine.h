/*
 * Streams, the queues they run on, and operations. Everything that happens on a device is an
 * operation of a stream; what it does is a function of the file that enqueues it.
 */
#ifndef FAKE_ENGINE_H
#define FAKE_ENGINE_H

#include <pthread.h>
#include <time.h>

#include "context.h"
#include "memory.h"

/* The first `number` operations of a stream have ended. */
struct point {
  CUstream stream;
  uint64_t number;
};

struct operation {
  const char *kind; /* for the trace, as the two below */
  size_t bytes;
  uint32_t value;
  /* Runs without the lock. A code that is sticky breaks the context. */
  CUresult (*run)(struct operation *operation);
  /* With the lock: whether it cannot go on before the program does something. NULL: it always can. */
  bool (*is_blocked)(const struct operation *operation);
  struct place places[FAKECUDA_MOST_BUFFERS]; /* dropped with the operation */
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
  int priority; /* a hint, which nothing here heeds */
  unsigned holders;
  uint64_t enqueued, completed;
  const struct operation *first; /* that has not ended */
  struct queue *queue;
  struct capture *capture;
  CUstream next; /* of the context */
};

struct CUevent_st {
  CUcontext context;
  unsigned flags;
  bool mine;
  struct point point;      /* of the last record; no stream before the first */
  struct timespec time;    /* when the stream was there, once the point is reached */
  struct capture *capture; /* that the last record was part of */
  CUevent next;
};

void lock_engine(void);
void unlock_engine(void);
/* With the lock: */

/* Something has happened that somebody may wait for. */
void announce_progress(void);
/* Until the next announcement. */
void await_progress(void);

/* NULL and CU_STREAM_LEGACY are the legacy stream of the current context. */
CUresult find_stream(CUstream handle, CUstream *stream);
CUstream new_stream(CUcontext context, bool blocking);
void retire_stream(CUstream stream);
void hold_stream(CUstream stream);
void drop_stream(CUstream stream);
bool point_is_reached(struct point point);
/* The code of the context that broke meanwhile. Says after a while that it still waits, or dies. */
enum patience { WAIT_FOR_EVER, WAIT_OR_DIE };
CUresult wait_for_point(struct point point, enum patience patience);
/* Until all that is on the stream has ended, or cannot go on before the program does something. */
void settle(CUstream stream);
/* For all that is on the streams of a context; NULL: of all contexts. */
CUresult wait_for_context(CUcontext context, enum patience patience);
/* The same, if FAKECUDA_ALLOC_SYNC means this caller. For those of all contexts if
   FAKECUDA_ALLOC_SYNC_DEVICES says so. */
void wait_as_a_driver_may(CUcontext context);
/* The operation waits for it too. */
void add_after(struct operation *operation, struct point point);
/* Takes the operation, also when it fails. The point is of no stream if it was captured. */
CUresult enqueue_locked(CUstream stream, struct operation *operation, struct point *point);

/* With or without it: */

struct operation *new_operation(const char *kind, CUresult (*run)(struct operation *));
void drop_operation(struct operation *operation);
CUresult run_nothing(struct operation *operation);

/* Without it: */

/* Take the operation, also when they fail. */
CUresult enqueue(CUstream handle, struct operation *operation);
CUresult enqueue_and_wait(CUstream handle, struct operation *operation);
/* Streams of CU_STREAM_PER_THREAD, as their thread ends. */
void retire_own_streams(void);

#endif
