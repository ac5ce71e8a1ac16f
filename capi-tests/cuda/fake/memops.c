/*
 * Memory operations of streams: writing a value, and waiting for one. A driver without them is
 * this library without this file (FAKE_WITHOUT_MEMOPS), or with FAKECUDA_NO_MEMOPS.
 *
 * A write becomes visible after all earlier work of its stream. A wait blocks its queue, and so all
 * streams that share it, until the word has reached the value or the context breaks.
 */
#include <sched.h>
#include <time.h>

#include "engine.h"

#ifndef FAKE_WITHOUT_MEMOPS

static _Atomic(uint32_t) *word_of(const struct operation *operation) {
  return (_Atomic(uint32_t) *)(void *)operation->spans[0].bytes;
}

static CUresult run_write(struct operation *operation) {
  atomic_store(word_of(operation), operation->value);
  return CUDA_SUCCESS;
}

static bool is_satisfied(uint32_t seen, uint32_t value, unsigned flags) {
  switch (flags & ~(unsigned)CU_STREAM_WAIT_VALUE_FLUSH) {
    case CU_STREAM_WAIT_VALUE_GEQ:
      return (int32_t)(seen - value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
      return seen == value;
    case CU_STREAM_WAIT_VALUE_AND:
      return (seen & value) != 0;
    default:
      return ~(seen | value) != 0;
  }
}

static bool is_unsatisfied(const struct operation *operation) {
  uint32_t seen = atomic_load(word_of(operation));
  return !is_satisfied(seen, operation->value, operation->memop.flags);
}

/* Polls often, then rarely: the thread that will write the word needs a processor. */
static CUresult run_wait(struct operation *operation) {
  enum { SPINS = 200, YIELDS = 20, SLEEP_NS = 30000 };
  CUcontext context = operation->stream->context;
  for (int polls = 0;; polls++) {
    if (!is_unsatisfied(operation)) return CUDA_SUCCESS;
    if (atomic_load(&context->broken)) return CUDA_SUCCESS;
    if (polls < SPINS) continue;
    if (polls < SPINS + YIELDS) sched_yield();
    else nanosleep(&(struct timespec){0, SLEEP_NS}, NULL);
  }
}

static CUresult enqueue_memop(CUstream stream, CUdeviceptr address, uint32_t value, unsigned flags,
                              struct operation *operation) {
  struct span *word = &operation->spans[0];
  CUresult code = find_span(address, sizeof value, word);
  bool fits = code == CUDA_SUCCESS && word->range && word->range->kind != MANAGED_MEMORY;
  if (number_setting(SETTING_NO_MEMOPS)) code = CUDA_ERROR_NOT_SUPPORTED;
  else if (!fits || address % sizeof value) code = CUDA_ERROR_INVALID_VALUE;
  if (code != CUDA_SUCCESS) {
    drop_operation(operation);
    return code;
  }
  operation->bytes = sizeof value;
  operation->value = value;
  operation->memop.flags = flags;
  return enqueue(stream, operation);
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                 unsigned flags) {
  BEGIN(cuStreamWriteValue32_v2);
  if (flags > CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER) return CUDA_ERROR_INVALID_VALUE;
  return enqueue_memop(stream, address, value, flags, new_operation("write", run_write));
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                unsigned flags) {
  BEGIN(cuStreamWaitValue32_v2);
  unsigned known = CU_STREAM_WAIT_VALUE_NOR | (unsigned)CU_STREAM_WAIT_VALUE_FLUSH;
  if (flags & ~known) return CUDA_ERROR_INVALID_VALUE;
  struct operation *operation = new_operation("wait", run_wait);
  operation->is_blocked = is_unsatisfied;
  return enqueue_memop(stream, address, value, flags, operation);
}

#endif
