/*
 * Names and texts of codes. Leaves to the other files which function returns which code.
 *
 * A code that is not in the table has neither, as in a driver that is older than its program.
 */
#include "call.h"

static const struct {
  CUresult code;
  const char *name, *text;
} errors[] = {
#define X(name, text) {name, #name, text}
    X(CUDA_SUCCESS, "no error"),
    X(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    X(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    X(CUDA_ERROR_NOT_INITIALIZED, "driver not initialized"),
    X(CUDA_ERROR_DEINITIALIZED, "driver is being shut down"),
    X(CUDA_ERROR_STUB_LIBRARY, "this libcuda is a stub"),
    X(CUDA_ERROR_NO_DEVICE, "no CUDA device was found"),
    X(CUDA_ERROR_INVALID_DEVICE, "there is no such device"),
    X(CUDA_ERROR_INVALID_CONTEXT, "no context, or one that is not valid"),
    X(CUDA_ERROR_ECC_UNCORRECTABLE, "memory error that could not be corrected"),
    X(CUDA_ERROR_INVALID_HANDLE, "invalid handle"),
    X(CUDA_ERROR_ILLEGAL_STATE, "not possible in this state"),
    X(CUDA_ERROR_NOT_READY, "work has not ended"),
    X(CUDA_ERROR_ILLEGAL_ADDRESS, "illegal memory access"),
    X(CUDA_ERROR_LAUNCH_TIMEOUT, "kernel took too long"),
    X(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
    X(CUDA_ERROR_ASSERT, "assertion of a kernel failed"),
    X(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "memory is registered already"),
    X(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, "memory is not registered"),
    X(CUDA_ERROR_HARDWARE_STACK_ERROR, "stack error of a kernel"),
    X(CUDA_ERROR_ILLEGAL_INSTRUCTION, "illegal instruction of a kernel"),
    X(CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address"),
    X(CUDA_ERROR_INVALID_ADDRESS_SPACE, "wrong address space"),
    X(CUDA_ERROR_INVALID_PC, "invalid program counter"),
    X(CUDA_ERROR_LAUNCH_FAILED, "kernel failed"),
    X(CUDA_ERROR_NOT_PERMITTED, "not permitted"),
    X(CUDA_ERROR_NOT_SUPPORTED, "not supported"),
    X(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "kernel module and library are of different versions"),
    X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "not possible while a stream is captured"),
    X(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "an earlier error ended the capture"),
    X(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "capture did not begin on this stream"),
    X(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capture has streams that were not joined"),
    X(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "dependency on work outside the capture"),
    X(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "legacy stream would depend on a capture"),
    X(CUDA_ERROR_CAPTURED_EVENT, "event was recorded in a capture"),
    X(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "capture began in another thread"),
    X(CUDA_ERROR_UNKNOWN, "unknown error"),
#undef X
};

enum { ERRORS = sizeof errors / sizeof errors[0] };

static int index_of(CUresult code) {
  for (int i = 0; i < ERRORS; i++)
    if (errors[i].code == code) return i;
  return -1;
}

CUresult cuGetErrorName(CUresult code, const char **name) {
  BEGIN(cuGetErrorName);
  if (!name) return CUDA_ERROR_INVALID_VALUE;
  int index = index_of(code);
  *name = index < 0 ? NULL : errors[index].name;
  return index < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult code, const char **text) {
  BEGIN(cuGetErrorString);
  if (!text) return CUDA_ERROR_INVALID_VALUE;
  int index = index_of(code);
  *text = index < 0 ? NULL : errors[index].text;
  return index < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
