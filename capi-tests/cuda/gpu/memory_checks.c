/*
 * Kinds of memory: of a device, managed, pinned, registered, of a pool, of the program; memory of
 * another device is refused. Also calls of a thread without a current context.
 */
#include "rank.h"

#include <pthread.h>
#include <unistd.h>

enum kind { ON_DEVICE, MANAGED, PINNED, REGISTERED, PLAIN, KINDS };

static const char *const names[KINDS] = {"device", "managed", "pinned", "registered", "plain"};

struct memory {
  enum kind kind;
  CUdeviceptr address; /* as it is passed to nexar */
  void *host;          /* NULL: the processor must not access the memory */
};

static int attribute(CUdevice_attribute name) {
  int value = 0;
  CU(cuDeviceGetAttribute(&value, name, me->device));
  return value;
}

static struct memory make(enum kind kind, size_t bytes) {
  struct memory memory = {kind, 0, NULL};
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  switch (kind) {
    case ON_DEVICE:
      CU(cuMemAlloc_v2(&memory.address, bytes));
      return memory;
    case MANAGED:
      CU(cuMemAllocManaged(&memory.address, bytes, CU_MEM_ATTACH_GLOBAL));
      return memory;
    case PINNED:
      memory.host = pinned(bytes);
      break;
    default:
      memory.host = aligned_alloc(page, (bytes + page - 1) / page * page);
      if (kind == REGISTERED) CU(cuMemHostRegister_v2(memory.host, bytes, 0));
  }
  memory.address = (CUdeviceptr)(uintptr_t)memory.host;
  return memory;
}

static void end(struct memory memory) {
  if (!memory.host) CU(cuMemFree_v2(memory.address));
  if (memory.kind == PINNED) CU(cuMemFreeHost(memory.host));
  if (memory.kind == REGISTERED) CU(cuMemHostUnregister(memory.host));
  if (memory.kind == REGISTERED || memory.kind == PLAIN) free(memory.host);
}

/* Copies through device memory, so that the copy is in stream order for every kind of memory. */
static void put(struct memory to, uint32_t number, size_t count, CUstream stream) {
  if (to.kind == PLAIN) {
    for (size_t i = 0; i < count; i++) ((uint32_t *)to.host)[i] = number;
    return;
  }
  CU(cuMemsetD32Async(me->send.device, number, count, stream));
  CU(cuMemcpyAsync(to.address, me->send.device, count * 4, stream));
}

static void get(struct memory from, uint32_t *back, size_t count, CUstream stream) {
  if (!from.host) CU(cuMemcpyDtoHAsync_v2(back, from.address, count * 4, stream));
  CU(cuStreamSynchronize(stream));
  if (from.host) memcpy(back, from.host, count * 4);
}

static void compare_sum(const uint32_t *back, size_t count, uint32_t base) {
  uint32_t wanted = 0;
  for (int rank = 0; rank < me->n; rank++) wanted += base + (uint32_t)rank;
  for (size_t i = 0; i < count; i++) {
    if (back[i] == wanted) continue;
    fail("element %zu of %zu is %u, not %u", i, count, back[i], wanted);
    return;
  }
}

static void try_pair(enum kind from, enum kind to, size_t count) {
  CUstream stream = me->streams[NON_BLOCKING];
  doing("an all-reduce of %zu uint32 from %s to %s memory", count, names[from], names[to]);
  struct memory send = make(from, count * 4), recv = make(to, count * 4);
  wait_for_all();
  put(send, 11 + (uint32_t)me->rank, count, stream);
  OK(nexarAllReduce(at(send.address), at(recv.address), count, nexarUint32, nexarSum, me->comm,
                    stream));
  get(recv, (uint32_t *)me->recv.back, count, stream);
  compare_sum((uint32_t *)me->recv.back, count, 11);
  end(send);
  end(recv);
  me->cases++;
}

/* This kind with device, pinned and plain memory, either way, and alone in several pieces. */
static void try_kind(enum kind kind) {
  static const enum kind others[] = {ON_DEVICE, PINNED, PLAIN};
  for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
    try_pair(kind, others[i], 1003);
    if (kind != others[i]) try_pair(others[i], kind, 1003);
  }
  try_pair(kind, kind, me->room / 4);
}

void try_memory_kinds(void) {
  try_kind(ON_DEVICE);
  try_kind(PINNED);
  try_kind(PLAIN);
}

void try_managed(void) {
  if (attribute(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY)) try_kind(MANAGED);
  else skip("the device has no managed memory");
}

void try_registered(void) {
  if (attribute(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED)) try_kind(REGISTERED);
  else skip("memory of this host cannot be registered");
}

void try_pool(void) {
  enum { COUNT = 1003 };
  CUstream stream = me->streams[NON_BLOCKING];
  if (!cuda.cuMemAllocAsync || !cuda.cuMemFreeAsync ||
      !attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)) {
    skip("the driver or the device has no memory pools");
    return;
  }
  doing("an all-reduce in memory of a pool");
  CUdeviceptr memory = 0;
  CU(cuMemAllocAsync(&memory, COUNT * 4, stream));
  CU(cuMemsetD32Async(memory, 21 + (uint32_t)me->rank, COUNT, stream));
  OK(nexarAllReduce(at(memory), at(memory), COUNT, nexarUint32, nexarSum, me->comm, stream));
  CU(cuMemcpyDtoHAsync_v2(me->recv.back, memory, COUNT * 4, stream));
  CU(cuMemFreeAsync(memory, stream));
  CU(cuStreamSynchronize(stream));
  compare_sum((uint32_t *)me->recv.back, COUNT, 21);
  me->cases++;
}

static void *call_without_context(void *rank) {
  enum { COUNT = 1003 };
  me = rank;
  doing("an all-reduce by a thread without a context");
  CUcontext current = me->context;
  CU(cuCtxGetCurrent(&current));
  if (current) fail("a new thread has a context");
  OK(nexarAllReduce(at(me->send.device), at(me->send.device), COUNT, nexarUint32, nexarSum,
                    me->comm, me->streams[NON_BLOCKING]));
  current = me->context;
  CU(cuCtxGetCurrent(&current));
  if (current) fail("the thread has a context now");
  return NULL;
}

void try_thread_without_context(void) {
  enum { COUNT = 1003 };
  CUstream stream = me->streams[NON_BLOCKING];
  pthread_t thread;
  CU(cuMemsetD32Async(me->send.device, 31 + (uint32_t)me->rank, COUNT, stream));
  if (pthread_create(&thread, NULL, call_without_context, me) != 0) {
    fail("no thread");
    return;
  }
  pthread_join(thread, NULL);
  CU(cuMemcpyDtoHAsync_v2(me->recv.back, me->send.device, COUNT * 4, stream));
  CU(cuStreamSynchronize(stream));
  compare_sum((uint32_t *)me->recv.back, COUNT, 31);
  me->cases++;
}

/* Memory of another device is refused, and the communicator still works. */
void try_other_device(void) {
  enum { COUNT = 1003 };
  if (cuda.devices < 2) {
    skip("there is one device");
    return;
  }
  CUdevice other = 0;
  CUcontext context = NULL, popped;
  CUdeviceptr memory = 0;
  CUstream stream = me->streams[NON_BLOCKING];
  doing("an all-reduce in memory of another device");
  CU(cuDeviceGet(&other, (me->device + 1) % cuda.devices));
  if (!CU(cuDevicePrimaryCtxRetain(&context, other))) return;
  CU(cuCtxPushCurrent_v2(context));
  CU(cuMemAlloc_v2(&memory, COUNT * 4));
  CU(cuCtxPopCurrent_v2(&popped));
  GIVES(nexarInvalidArgument, nexarAllReduce(at(memory), at(memory), COUNT, nexarUint32, nexarSum,
                                             me->comm, stream));
  CU(cuMemFree_v2(memory));
  CU(cuDevicePrimaryCtxRelease_v2(other));
  wait_for_all();
  doing("an all-reduce after one that was refused");
  CU(cuMemsetD32Async(me->send.device, 41 + (uint32_t)me->rank, COUNT, stream));
  OK(nexarAllReduce(at(me->send.device), at(me->recv.device), COUNT, nexarUint32, nexarSum,
                    me->comm, stream));
  CU(cuMemcpyDtoHAsync_v2(me->recv.back, me->recv.device, COUNT * 4, stream));
  CU(cuStreamSynchronize(stream));
  compare_sum((uint32_t *)me->recv.back, COUNT, 41);
  me->cases++;
}
