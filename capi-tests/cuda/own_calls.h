/*
 * The test's own calls of the driver, which the fake driver does not count as the library's, and
 * calls of nexar, which must leave the thread's context and its stack of contexts unchanged.
 */
#ifndef OWN_CALLS_H
#define OWN_CALLS_H

#include "driver.h"

/* A statement whose calls of the driver are the test's own. */
#define MINE(statement)                                                                            \
  do {                                                                                             \
    int mine_before_ = fakecuda_mine(1);                                                           \
    statement;                                                                                     \
    fakecuda_mine(mine_before_);                                                                   \
  } while (0)

#define DO(call) MINE(OK(call))

/* The most pinned memory that a communicator may have. */
enum { MOST_PINNED = 49 << 20 };

/* A call of nexar. Checks its code, and that the contexts of the thread are unchanged. */
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
