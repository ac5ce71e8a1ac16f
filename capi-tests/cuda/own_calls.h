/*
 * The test's own calls of the driver, which are not counted as the library's. Around calls of
 * nexar, what it must leave as it was: the contexts of the thread and its own memory.
 */
#ifndef OWN_CALLS_H
#define OWN_CALLS_H

#include "driver.h"

/* A call of the driver, or a statement with such calls, that is the test's own. */
#define MINE(statement)                                                                            \
  do {                                                                                             \
    int mine_before_ = fakecuda_mine(1);                                                           \
    statement;                                                                                     \
    fakecuda_mine(mine_before_);                                                                   \
  } while (0)

#define DO(call) MINE(OK(call))

/* The most pinned memory that a communicator may have. */
enum { MOST_PINNED = 49 << 20 };

/* A call of nexar, after which the thread has the context it had. */
#define CALL_CODE(expected, call)                                                                  \
  do {                                                                                             \
    unsigned depth_ = fakecuda_context_depth();                                                    \
    CUcontext before_ = NULL, after_ = NULL;                                                       \
    DO(cuCtxGetCurrent(&before_));                                                                 \
    CHECK_CODE(expected, call);                                                                    \
    DO(cuCtxGetCurrent(&after_));                                                                  \
    CHECK_EQ(depth_, fakecuda_context_depth());                                                    \
    CHECK(before_ == after_);                                                                      \
  } while (0)

#define CALL(call) CALL_CODE(nexarSuccess, call)

#endif
