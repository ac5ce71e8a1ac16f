/* Streams under capture, and the calls that a capture forbids. */
#ifndef FAKE_CAPTURE_H
#define FAKE_CAPTURE_H

#include "engine.h"

/* All but check_unsafe_call need the lock of the engine. */

/* Called before an enqueue: whether the stream is captured, and the code to return then. */
bool is_captured(CUstream stream, CUresult *code);
/* Whether the legacy stream is unusable, because a blocking stream of its context is captured. */
bool legacy_is_implicated(CUcontext context);
void invalidate_blocking_captures(CUcontext context);
void invalidate_capture(CUstream stream);
/* Adds the stream to the capture of the event that it waits for. */
void join_capture(CUstream stream, struct capture *capture);

/* Removes a stream that ends from its capture; ends the capture if it began on this stream. */
void leave_capture(CUstream stream);
/* capture: NULL if the event was recorded outside of any. */
void set_capture_of_event(CUevent event, struct capture *capture);

/* Called first by functions that a capture of another stream may forbid to this thread. */
CUresult check_unsafe_call(void);

#endif
