/*
 * Primary contexts, their retains, and the current context of a thread. Leaves the streams of a
 * context to stream.c, and its memory to memory.c.
 *
 * A context has a fixed address and is never freed: a stale handle is refused, never dereferenced.
 * A broken context stays broken until its last release.
 */
#include "context.h"

#include "engine.h"

static struct CUctx_st contexts[MOST_DEVICES] = {
    {.device = 0},  {.device = 1},  {.device = 2},  {.device = 3},
    {.device = 4},  {.device = 5},  {.device = 6},  {.device = 7},
    {.device = 8},  {.device = 9},  {.device = 10}, {.device = 11},
    {.device = 12}, {.device = 13}, {.device = 14}, {.device = 15},
};

bool is_context(CUcontext context) {
  for (CUdevice device = 0; device < number_setting(SETTING_DEVICES); device++)
    if (context == &contexts[device]) return true;
  return false;
}

CUcontext context_of_device(CUdevice device) {
  return device >= 0 && device < number_setting(SETTING_DEVICES) ? &contexts[device] : NULL;
}

CUcontext current_context(void) {
  return this_thread.depth ? this_thread.contexts[this_thread.depth - 1] : NULL;
}

CUresult check_current_context(void) {
  CUcontext context = current_context();
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  if (!atomic_load(&context->retains)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return atomic_load(&context->broken);
}

bool is_sticky(CUresult code) {
  return code == CUDA_ERROR_ECC_UNCORRECTABLE || code == CUDA_ERROR_ILLEGAL_ADDRESS ||
         code == CUDA_ERROR_LAUNCH_TIMEOUT || code == CUDA_ERROR_ASSERT ||
         (code >= CUDA_ERROR_HARDWARE_STACK_ERROR && code <= CUDA_ERROR_LAUNCH_FAILED);
}

void break_context(CUcontext context, CUresult code) {
  unsigned intact = CUDA_SUCCESS;
  lock_engine();
  atomic_compare_exchange_strong(&context->broken, &intact, code); /* keeps the first code */
  announce_progress();
  unlock_engine();
}

bool a_context_is_broken(void) {
  for (int i = 0; i < MOST_DEVICES; i++)
    if (atomic_load(&contexts[i].broken)) return true;
  return false;
}

CUcontext context_to_break(void) {
  CUcontext context = current_context();
  return context ? context : &contexts[0];
}

void fakecuda_break(CUdevice device, CUresult code) {
  CUcontext context = context_of_device(device);
  if (!context) die("there is no device %d to break", device);
  break_context(context, code);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
  BEGIN(cuDevicePrimaryCtxGetState);
  CUcontext context = context_of_device(device);
  if (!context) return CUDA_ERROR_INVALID_DEVICE;
  if (!flags || !active) return CUDA_ERROR_INVALID_VALUE;
  *flags = 0;
  *active = atomic_load(&context->retains) != 0;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *created, CUdevice device) {
  BEGIN(cuDevicePrimaryCtxRetain);
  CUcontext context = context_of_device(device);
  if (!context) return CUDA_ERROR_INVALID_DEVICE;
  if (!created) return CUDA_ERROR_INVALID_VALUE;
  atomic_fetch_add(&context->retains, 1);
  count_object(FAKECUDA_RETAIN);
  *created = context;
  return CUDA_SUCCESS;
}

/* The last release waits for the work of the context and ends it. Its objects count as leaked. */
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  BEGIN(cuDevicePrimaryCtxRelease_v2);
  CUcontext context = context_of_device(device);
  if (!context) return CUDA_ERROR_INVALID_DEVICE;
  unsigned retains = atomic_load(&context->retains);
  do {
    if (!retains) return CUDA_ERROR_INVALID_CONTEXT;
  } while (!atomic_compare_exchange_weak(&context->retains, &retains, retains - 1));
  uncount_object(FAKECUDA_RETAIN, this_thread.mine);
  if (retains > 1) return CUDA_SUCCESS;
  lock_engine();
  wait_for_context(context, WAIT_OR_DIE);
  atomic_store(&context->broken, CUDA_SUCCESS);
  unlock_engine();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context) {
  BEGIN(cuCtxGetCurrent);
  if (!context) return CUDA_ERROR_INVALID_VALUE;
  *context = current_context();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device) {
  BEGIN(cuCtxGetDevice);
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  if (!current_context()) return CUDA_ERROR_INVALID_CONTEXT;
  *device = current_context()->device;
  return CUDA_SUCCESS;
}

CUresult check_context(CUcontext context) {
  if (!is_context(context)) return CUDA_ERROR_INVALID_CONTEXT;
  return atomic_load(&context->retains) ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
  BEGIN(cuCtxPushCurrent_v2);
  CUresult code = check_context(context);
  if (code != CUDA_SUCCESS) return code;
  if (this_thread.depth == MOST_PUSHED) die("a thread has pushed %d contexts", MOST_PUSHED);
  this_thread.contexts[this_thread.depth++] = context;
  if (!this_thread.mine) this_thread.pushed_by_library++;
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context) {
  BEGIN(cuCtxPopCurrent_v2);
  if (!this_thread.depth) return CUDA_ERROR_INVALID_CONTEXT;
  if (context) *context = current_context();
  this_thread.depth--;
  if (!this_thread.mine) this_thread.pushed_by_library--;
  return CUDA_SUCCESS;
}

/* Replaces the top of the stack, or pops it if the context is NULL. Unlike a push it needs no
   counterpart, so a context that is still set when its thread ends is no leak. */
CUresult cuCtxSetCurrent(CUcontext context) {
  BEGIN(cuCtxSetCurrent);
  if (!context) {
    if (this_thread.depth) this_thread.depth--;
    return CUDA_SUCCESS;
  }
  CUresult code = check_context(context);
  if (code != CUDA_SUCCESS) return code;
  if (!this_thread.depth) this_thread.depth = 1;
  this_thread.contexts[this_thread.depth - 1] = context;
  return CUDA_SUCCESS;
}

unsigned fakecuda_context_depth(void) { return this_thread.depth; }
