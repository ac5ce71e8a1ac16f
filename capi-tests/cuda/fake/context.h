/* Devices' primary contexts, and the stack of contexts that each thread has. */
#ifndef FAKE_CONTEXT_H
#define FAKE_CONTEXT_H

#include <stdatomic.h>

#include "call.h"

struct CUctx_st {
  CUdevice device;
  atomic_uint retains;
  atomic_uint broken;   /* the code that every call returns from then on, or 0 */
  CUstream streams;     /* those with a handle or with work; under the lock of the engine */
  CUstream legacy;      /* as well */
  struct queue **queues; /* FAKECUDA_HWQ of them, or NULL */
  unsigned queue_count;
};

bool is_context(CUcontext context);
/* Whether a call may name it: INVALID_CONTEXT or CONTEXT_IS_DESTROYED if not. */
CUresult check_context(CUcontext context);
CUcontext context_of_device(CUdevice device);
/* NULL without one. */
CUcontext current_context(void);
/* As every call that needs one finds it. */
CUresult check_current_context(void);

/* Codes after which a context is lost. */
bool is_sticky(CUresult code);
void break_context(CUcontext context, CUresult code);
bool a_context_is_broken(void);
/* The current one, or that of device 0. */
CUcontext context_to_blame(void);

#endif
