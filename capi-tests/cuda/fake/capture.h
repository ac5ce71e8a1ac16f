/* Streams under capture, and what other calls must not do meanwhile. */
#ifndef FAKE_CAPTURE_H
#define FAKE_CAPTURE_H

#include "engine.h"

/* All with the lock of the engine, besides check_unsafe_call. */

/* Instead of enqueueing: whether the stream takes it into its capture, and with which code. */
bool is_captured(CUstream stream, CUresult *code);
/* Whether the legacy stream is unusable as a blocking stream of its context is captured. */
bool legacy_is_implicated(CUcontext context);
void invalidate_blocking_captures(CUcontext context);
void invalidate_capture(CUstream stream);
/* The stream takes part in the capture of the event that it waits for. */
void join_capture(CUstream stream, struct capture *capture);

/* The stream ends; with it the capture that began there. */
void leave_capture(CUstream stream);
/* NULL: the event was recorded outside of any. */
void set_capture_of_event(CUevent event, struct capture *capture);

/* The first line of calls that a capture elsewhere may forbid to this thread. */
CUresult check_unsafe_call(void);

#endif
