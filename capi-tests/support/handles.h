/*
 * Calls of every function that takes a handle, for invalid handles. Each must return
 * nexarInvalidArgument; nexarCommFinalize, nexarCommDestroy, nexarCommAbort, nexarStreamDestroy and
 * nexarMemFree accept NULL.
 */
#ifndef HANDLES_H
#define HANDLES_H

#include "calls.h"

/* The output parameters of the calls, which a refused call must not write. */
static struct memory {
  int number;
  nexarResult_t error;
  nexarRedOp_t op;
  nexarDataType_t datatype;
  void *handle;
  nexarComm_t comm;
  nexarRequest_t request;
  nexarStatus_t status;
  int data[64];
} untouched;

static inline bool is_untouched(void) {
  static const struct memory at_first;
  return memcmp(&untouched, &at_first, sizeof untouched) == 0;
}

/* A valid communicator, for functions that take another handle beside it. */
static nexarComm_t live_comm;

/* The handle as an operator that is none of the header's. */
static inline nexarRedOp_t operator_of(void *handle) {
  return (nexarRedOp_t)(((uintptr_t)handle & 0x3fffffff) | 0x40000000);
}

/* X(function, a call of it with `handle`) */
#define HANDLE_TAKERS(X)                                                                           \
  X(nexarCommCount, nexarCommCount(handle, &untouched.number))                                     \
  X(nexarCommUserRank, nexarCommUserRank(handle, &untouched.number))                               \
  X(nexarCommCuDevice, nexarCommCuDevice(handle, &untouched.number))                               \
  X(nexarCommGetAsyncError, nexarCommGetAsyncError(handle, &untouched.error))                      \
  X(nexarCommFinalize, nexarCommFinalize(handle))                                                  \
  X(nexarCommDestroy, nexarCommDestroy(handle))                                                    \
  X(nexarCommAbort, nexarCommAbort(handle))                                                        \
  X(nexarCommSplit, nexarCommSplit(handle, 0, 0, &untouched.comm, NULL))                           \
  X(nexarCommRegister, nexarCommRegister(handle, untouched.data, 4, &untouched.handle))            \
  X(nexarCommDeregister, nexarCommDeregister(handle, &untouched))                                  \
  X(nexarRedOpDestroy, nexarRedOpDestroy((nexarRedOp_t)0x10000, handle))                           \
  X(nexarDataTypeDestroy, nexarDataTypeDestroy((nexarDataType_t)0x10000, handle))                  \
  X(nexarSend, nexarSend(untouched.data, 1, nexarInt32, 0, handle, NULL))                          \
  X(nexarRecv, nexarRecv(untouched.data, 1, nexarInt32, 0, handle, NULL))                          \
  X(nexarSendTag, nexarSendTag(untouched.data, 1, nexarInt32, 0, 0, handle, NULL))                 \
  X(nexarRecvTag, nexarRecvTag(untouched.data, 1, nexarInt32, 0, 0, handle, NULL))                 \
  X(nexarRecvTagStatus, nexarRecvTagStatus(untouched.data, 1, nexarInt32, 0, 0, &untouched.status, \
    handle, NULL))                                                                                 \
  X(nexarProbeTag, nexarProbeTag(0, 0, &untouched.number, &untouched.status, handle))              \
  X(nexarIsendTag, nexarIsendTag(untouched.data, 1, nexarInt32, 0, 0, &untouched.request, handle)) \
  X(nexarIrecvTag, nexarIrecvTag(untouched.data, 1, nexarInt32, 0, 0, &untouched.request, handle)) \
  X(nexarRequestTest, nexarRequestTest(handle, &untouched.number, &untouched.status))              \
  X(nexarRequestWait, nexarRequestWait(handle, &untouched.status))                                 \
  X(nexarRequestCancel, nexarRequestCancel(handle))                                                \
  X(nexarSendRecv, nexarSendRecv(untouched.data, 1, 0, untouched.data + 1, 1, 0, nexarInt32,       \
    handle, NULL))                                                                                 \
  X(nexarStreamSynchronize, nexarStreamSynchronize(handle))                                        \
  X(nexarStreamQuery, nexarStreamQuery(handle))                                                    \
  X(nexarStreamDestroy, nexarStreamDestroy(handle))                                                \
  X(nexarMemFree, nexarMemFree(handle))

#define TAKER(name, call)                                                                          \
  static nexarResult_t name##_with(void *handle) { return call; }
HANDLE_TAKERS(TAKER)
TAKER(registration, nexarCommDeregister(live_comm, handle))
TAKER(operator_to_destroy, nexarRedOpDestroy(operator_of(handle), live_comm))
TAKER(operator_to_fold, nexarAllReduce(untouched.data, untouched.data + 1, 1, nexarInt32,
                                       operator_of(handle), live_comm, NULL))

static nexarResult_t nexarRedOpCreatePreMulSum_with(void *handle) {
  return nexarRedOpCreatePreMulSum(&untouched.op, untouched.data, nexarInt32,
                                   nexarScalarHostImmediate, handle);
}

static void never_called(const void *in, void *inout, size_t count, nexarDataType_t datatype,
                         void *user) {
  (void)in, (void)inout, (void)count, (void)datatype, (void)user;
  abort();
}

static nexarResult_t nexarRedOpCreate_with(void *handle) {
  return nexarRedOpCreate(&untouched.op, never_called, NULL, 1, handle);
}

static nexarResult_t nexarDataTypeCreate_with(void *handle) {
  return nexarDataTypeCreate(&untouched.datatype, 12, handle);
}

/* nexarGetLastError returns a text: this is the code that the text stands for. */
static nexarResult_t nexarGetLastError_with(void *handle) {
  const char *text = nexarGetLastError(handle);
  if (strstr(text, "forked")) return nexarInvalidUsage;
  return strstr(text, "not a live communicator") ? nexarInvalidArgument : nexarSuccess;
}

static const struct taker {
  const char *name;
  nexarResult_t (*call)(void *handle);
} takers[] = {
#define NAMED(name, ...) {#name, name##_with},
    HANDLE_TAKERS(NAMED)
    NAMED(nexarRedOpCreatePreMulSum)
    NAMED(nexarRedOpCreate)
    NAMED(nexarDataTypeCreate)
    NAMED(nexarGetLastError)
    {"nexarCommDeregister, the registration", registration_with},
    {"nexarRedOpDestroy, the operator", operator_to_destroy_with},
    {"nexarAllReduce, the operator", operator_to_fold_with},
};

/* A call with these handles. */
static inline struct call call_of(enum function function, nexarComm_t comm, void *stream) {
  return (struct call){.function = function, .send = untouched.data, .recv = untouched.data + 32,
                       .count = 1, .datatype = nexarInt32, .comm = comm, .stream = stream};
}

/* A handle is passed to each taker, to each collective as communicator, and as stream. */
enum { WAYS_TO_PASS = COUNT_OF(takers) + 2 * FUNCTIONS };

static inline const char *way_name(size_t way) {
  if (way < COUNT_OF(takers)) return takers[way].name;
  return function_names[(way - COUNT_OF(takers)) % FUNCTIONS];
}

static inline nexarResult_t pass_handle(size_t way, void *handle) {
  if (way < COUNT_OF(takers)) return takers[way].call(handle);
  size_t function = way - COUNT_OF(takers);
  if (function < FUNCTIONS) return make_call(call_of((enum function)function, handle, NULL));
  return make_call(call_of((enum function)(function - FUNCTIONS), live_comm, handle));
}

#endif
