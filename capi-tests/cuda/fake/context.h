/* The primary contexts of devices, and the stack of contexts of each thread. */
#ifndef FAKE_CONTEXT_H
#define FAKE_CONTEXT_H

#include <stdatomic.h>

#include "call.h"

struct CUctx_st {
  CUdevice device;
  atomic_uint retains;
  atomic_uint broken;   /* the code that every later call returns, or 0 */
  CUstream streams;     /* streams with a handle or with work; under the lock of the engine */
  CUstream legacy;      /* also under that lock */
  struct queue **queues; /* FAKECUDA_HWQ of them, or NULL */
  unsigned queue_count;
};

bool is_context(CUcontext context);
/* The code of a call with this argument: INVALID_CONTEXT or CONTEXT_IS_DESTROYED if not usable. */
CUresult check_context(CUcontext context);
CUcontext context_of_device(CUdevice device);
/* NULL if the thread has no current context. */
CUcontext current_context(void);
/* The code of a call that needs a current context. */
CUresult check_current_context(void);

/* Whether the code breaks its context. */
bool is_sticky(CUresult code);
void break_context(CUcontext context, CUresult code);
bool a_context_is_broken(void);
/* The context that a sticky failure breaks: the current one, or that of device 0. */
CUcontext context_to_break(void);

#endif
