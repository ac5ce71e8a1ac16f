/*
 * Every function that takes a handle, to be called with numbers that are none. Each must refuse it as an
 * argument; nexarCommFinalize, nexarCommDestroy, nexarCommAbort, nexarStreamDestroy and nexarMemFree
 * take NULL.
 */
#ifndef HANDLES_H
#define HANDLES_H

#include "calls.h"

/* What calls with wrong handles must leave alone. */
static struct memory {
  int number;
  nexarResult_t error;
  nexarRedOp_t op;
  void *handle;
  nexarComm_t comm;
  int data[64];
} untouched;

static inline bool is_untouched(void) {
  static const struct memory at_first;
  return memcmp(&untouched, &at_first, sizeof untouched) == 0;
}

/* A communicator, for functions that take a handle of something else beside it. */
static nexarComm_t live_comm;

/* No number of the header's operators. */
static inline nexarRedOp_t operator_of(void *handle) {
  return (nexarRedOp_t)(((uintptr_t)handle & 0x3fffffff) | 0x40000000);
}

#define TAKER(name, call)                                                                          \
  static nexarResult_t name##_with(void *handle) { return call; }

TAKER(nexarCommCount, nexarCommCount(handle, &untouched.number))
TAKER(nexarCommUserRank, nexarCommUserRank(handle, &untouched.number))
TAKER(nexarCommCuDevice, nexarCommCuDevice(handle, &untouched.number))
TAKER(nexarCommGetAsyncError, nexarCommGetAsyncError(handle, &untouched.error))
TAKER(nexarCommFinalize, nexarCommFinalize(handle))
TAKER(nexarCommDestroy, nexarCommDestroy(handle))
TAKER(nexarCommAbort, nexarCommAbort(handle))
TAKER(nexarCommSplit, nexarCommSplit(handle, 0, 0, &untouched.comm, NULL))
TAKER(nexarCommRegister, nexarCommRegister(handle, untouched.data, 4, &untouched.handle))
TAKER(nexarCommDeregister, nexarCommDeregister(handle, &untouched))
TAKER(nexarRedOpDestroy, nexarRedOpDestroy((nexarRedOp_t)0x10000, handle))
TAKER(nexarSend, nexarSend(untouched.data, 1, nexarInt32, 0, handle, NULL))
TAKER(nexarRecv, nexarRecv(untouched.data, 1, nexarInt32, 0, handle, NULL))
TAKER(nexarSendTag, nexarSendTag(untouched.data, 1, nexarInt32, 0, 0, handle, NULL))
TAKER(nexarRecvTag, nexarRecvTag(untouched.data, 1, nexarInt32, 0, 0, handle, NULL))
TAKER(nexarSendRecv, nexarSendRecv(untouched.data, 1, 0, untouched.data + 1, 1, 0, nexarInt32,
                                   handle, NULL))
TAKER(nexarStreamSynchronize, nexarStreamSynchronize(handle))
TAKER(nexarStreamQuery, nexarStreamQuery(handle))
TAKER(nexarStreamDestroy, nexarStreamDestroy(handle))
TAKER(nexarMemFree, nexarMemFree(handle))
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

/* Returns no code, but says what the others would. */
static nexarResult_t nexarGetLastError_with(void *handle) {
  const char *text = nexarGetLastError(handle);
  if (strstr(text, "forked")) return nexarInvalidUsage;
  return strstr(text, "not a live communicator") ? nexarInvalidArgument : nexarSuccess;
}

static const struct taker {
  const char *name;
  nexarResult_t (*call)(void *handle);
} takers[] = {
#define NAMED(name) {#name, name##_with}
    NAMED(nexarCommCount),
    NAMED(nexarCommUserRank),
    NAMED(nexarCommCuDevice),
    NAMED(nexarCommGetAsyncError),
    NAMED(nexarCommFinalize),
    NAMED(nexarCommDestroy),
    NAMED(nexarCommAbort),
    NAMED(nexarCommSplit),
    NAMED(nexarCommRegister),
    NAMED(nexarCommDeregister),
    NAMED(nexarRedOpCreatePreMulSum),
    NAMED(nexarRedOpCreate),
    NAMED(nexarRedOpDestroy),
    NAMED(nexarSend),
    NAMED(nexarRecv),
    NAMED(nexarSendTag),
    NAMED(nexarRecvTag),
    NAMED(nexarSendRecv),
    NAMED(nexarStreamSynchronize),
    NAMED(nexarStreamQuery),
    NAMED(nexarStreamDestroy),
    NAMED(nexarMemFree),
    NAMED(nexarGetLastError),
    {"nexarCommDeregister, the registration", registration_with},
    {"nexarRedOpDestroy, the operator", operator_to_destroy_with},
    {"nexarAllReduce, the operator", operator_to_fold_with},
};

/* As a communicator, and as the stream of one that lives. */
static inline struct call call_of(enum function function, nexarComm_t comm, void *stream) {
  return (struct call){.function = function, .send = untouched.data, .recv = untouched.data + 32,
                       .count = 1, .datatype = nexarInt32, .comm = comm, .stream = stream};
}

enum { WAYS_TO_TAKE = COUNT_OF(takers) + 2 * FUNCTIONS };

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
