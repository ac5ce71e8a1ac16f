/*
 * Order: a call executes in the order of its stream, after earlier work and before later work, and
 * returns without waiting. All elements are 32-bit integers.
 */
#include "rank.h"

#include <pthread.h>

enum { COUNT = 1003 };

static void compare_all(const uint32_t *back, size_t count, uint32_t wanted) {
  for (size_t i = 0; i < count; i++) {
    if (back[i] == wanted) continue;
    fail("element %zu of %zu is %u, not %u", i, count, back[i], wanted);
    return;
  }
}

/* The sum over ranks k of base + k. */
static uint32_t sum_from(uint32_t base) {
  uint32_t sum = 0;
  for (int rank = 0; rank < me->n; rank++) sum += base + (uint32_t)rank;
  return sum;
}

static nexarResult_t all_reduce(CUdeviceptr from, CUdeviceptr to, size_t count, CUstream stream) {
  return nexarAllReduce(at(from), at(to), count, nexarUint32, nexarSum, me->comm, stream);
}

/* Several rounds of a fill, a call, a copy of the result, and fills of both buffers. */
void try_order(void) {
  enum { ROUNDS = 4 };
  uint32_t *back = (uint32_t *)me->recv.back;
  size_t sizes[] = {COUNT, me->room / 4 / ROUNDS};
  for (int size = 0; size < 2; size++) {
    for (int kind = 0; kind < STREAMS; kind++) {
      size_t count = sizes[size];
      CUstream stream = me->streams[kind];
      doing("%d all-reduces of %zu uint32, %s", ROUNDS, count, stream_names[kind]);
      memset(back, FILLER, ROUNDS * count * 4);
      for (uint32_t round = 0; round < ROUNDS; round++) {
        CU(cuMemsetD32Async(me->send.device, 1000 * round + (uint32_t)me->rank, count, stream));
        OK(all_reduce(me->send.device, me->recv.device, count, stream));
        CU(cuMemcpyDtoHAsync_v2(back + round * count, me->recv.device, count * 4, stream));
        CU(cuMemsetD32Async(me->send.device, 7, count, stream));
        CU(cuMemsetD32Async(me->recv.device, 8, count, stream));
      }
      CU(cuStreamSynchronize(stream));
      for (uint32_t round = 0; round < ROUNDS; round++)
        compare_all(back + round * count, count, sum_from(1000 * round));
      me->cases++;
    }
  }
}

/* The second call reads the result of the first, on another stream. */
void try_two_streams(void) {
  uint32_t *back = (uint32_t *)me->recv.back;
  CUdeviceptr last = me->send.device;
  size_t sizes[] = {COUNT, me->room / 4};
  for (int size = 0; size < 2; size++) {
    size_t count = sizes[size];
    for (int kind = 0; kind < STREAMS; kind++) {
      CUstream one = me->streams[kind], other = me->streams[(kind + 1) % STREAMS];
      doing("two all-reduces of %zu uint32, %s and %s", count, stream_names[kind],
            stream_names[(kind + 1) % STREAMS]);
      CU(cuMemsetD32Async(me->send.device, 5 + (uint32_t)me->rank, count, one));
      OK(all_reduce(me->send.device, me->recv.device, count, one));
      OK(all_reduce(me->recv.device, last, count, other));
      CU(cuMemcpyDtoHAsync_v2(back, last, count * 4, other));
      CU(cuStreamSynchronize(other));
      compare_all(back, count, (uint32_t)me->n * sum_from(5));
      me->cases++;
    }
  }
}

/* A group of two communicators and of messages, on two streams. */
void try_group(void) {
  int next = (me->rank + 1) % me->n, previous = (me->rank + me->n - 1) % me->n;
  CUstream one = me->streams[BLOCKING], other = me->streams[NON_BLOCKING];
  nexarComm_t second = NULL;
  doing("the split of a communicator");
  if (!OK(nexarCommSplit(me->comm, 0, me->rank, &second, NULL))) return;
  uint32_t *back = (uint32_t *)me->recv.back;
  size_t sizes[] = {COUNT, me->room / 16};
  for (int size = 0; size < 2; size++) {
    size_t count = sizes[size], bytes = count * 4;
    CUdeviceptr in = me->send.device, out = me->recv.device;
    doing("a group of two all-reduces and two messages of %zu uint32", count);
    CU(cuMemsetD32Async(in, 1 + (uint32_t)me->rank, count, one));
    CU(cuMemsetD32Async(in + bytes, 100 + (uint32_t)me->rank, count, other));
    CU(cuMemsetD32Async(in + 2 * bytes, 1000 + (uint32_t)me->rank, count, one));
    OK(nexarGroupStart());
    OK(all_reduce(in, out, count, one));
    OK(nexarAllReduce(at(in + bytes), at(out + bytes), count, nexarUint32, nexarSum, second,
                      other));
    OK(nexarSend(at(in + 2 * bytes), count, nexarUint32, next, me->comm, one));
    OK(nexarRecv(at(out + 2 * bytes), count, nexarUint32, previous, me->comm, one));
    OK(nexarGroupEnd());
    CU(cuMemcpyDtoHAsync_v2(back, out, bytes, one));
    CU(cuMemcpyDtoHAsync_v2(back + count, out + bytes, bytes, other));
    CU(cuMemcpyDtoHAsync_v2(back + 2 * count, out + 2 * bytes, bytes, one));
    CU(cuStreamSynchronize(one));
    CU(cuStreamSynchronize(other));
    compare_all(back, count, sum_from(1));
    compare_all(back + count, count, sum_from(100));
    compare_all(back + 2 * count, count, 1000 + (uint32_t)previous);
    me->cases++;
  }
  OK(nexarCommDestroy(second));
}

/* A thread that releases a stream when requested, or after 5 s if the call waits for the stream. */
struct releaser {
  pthread_t thread;
  _Atomic uint32_t *cell;
  atomic_bool requested;
  bool was_late;
};

static void *release(void *argument) {
  struct releaser *self = argument;
  double until = seconds() + 5;
  while (!atomic_load(&self->requested) && seconds() < until)
    nanosleep(&(struct timespec){0, 1000000}, NULL);
  self->was_late = !atomic_load(&self->requested);
  atomic_store(self->cell, 1);
  return NULL;
}

static void try_blocked(size_t count, CUstream stream, _Atomic uint32_t *cell) {
  uint32_t *back = (uint32_t *)me->recv.back;
  struct releaser releaser = {.cell = cell};
  doing("an all-reduce of %zu uint32 on a stream that waits", count);
  memset(back, FILLER, count * 4);
  atomic_store(cell, 0);
  CUdeviceptr address = address_of_pinned((void *)cell);
  CU(cuStreamWaitValue32_v2(stream, address, 1, CU_STREAM_WAIT_VALUE_GEQ));
  if (pthread_create(&releaser.thread, NULL, release, &releaser) != 0) {
    atomic_store(cell, 1);
    fail("no thread");
    return;
  }
  CU(cuMemsetD32Async(me->send.device, 3 + (uint32_t)me->rank, count, stream));
  OK(all_reduce(me->send.device, me->recv.device, count, stream));
  CU(cuMemcpyDtoHAsync_v2(back, me->recv.device, count * 4, stream));
  CUresult busy = cuda.cuStreamQuery(stream);
  bool is_untouched = back[0] == 0x01010101u * FILLER;
  atomic_store(&releaser.requested, true);
  pthread_join(releaser.thread, NULL);
  if (releaser.was_late) fail("the call returned only when the stream continued");
  else if (busy != CUDA_ERROR_NOT_READY) fail("cuStreamQuery gave %u, not 600", (unsigned)busy);
  else if (!is_untouched) fail("there is a result before the stream continued");
  CU(cuStreamSynchronize(stream));
  compare_all(back, count, sum_from(3));
  me->cases++;
}

void try_return_before(void) {
  if (me->without_memops) {
    skip(me->without_memops);
    return;
  }
  _Atomic uint32_t *cell = pinned(64);
  wait_for_all();
  if (!cell) return;
  try_blocked(COUNT, me->streams[NON_BLOCKING], cell);
  try_blocked(COUNT, me->streams[BLOCKING], cell);
  try_blocked(me->room / 4, me->streams[NON_BLOCKING], cell);
  CU(cuMemFreeHost((void *)cell));
}

void try_operators(void) {
  static const struct {
    nexarRedOp_t op;
    const char *name;
  } operators[] = {{nexarSum, "sum"}, {nexarProd, "prod"}, {nexarMax, "max"},
                   {nexarMin, "min"}, {nexarAvg, "avg"},   {nexarBitXor, "xor"}};
  uint32_t *image = (uint32_t *)me->send.image, *back = (uint32_t *)me->send.back;
  CUstream stream = me->streams[NON_BLOCKING];
  for (size_t i = 0; i < COUNT; i++) image[i] = number_of(me->rank, i, 1000);
  for (size_t op = 0; op < sizeof operators / sizeof operators[0]; op++) {
    doing("an all-reduce by %s", operators[op].name);
    CU(cuMemcpyHtoDAsync_v2(me->send.device, image, COUNT * 4, stream));
    OK(nexarAllReduce(at(me->send.device), at(me->send.device), COUNT, nexarUint32,
                      operators[op].op, me->comm, stream));
    CU(cuMemcpyDtoHAsync_v2(back, me->send.device, COUNT * 4, stream));
    CU(cuStreamSynchronize(stream));
    for (size_t i = 0; i < COUNT; i++) {
      uint32_t wanted = number_of(0, i, 1000);
      for (int rank = 1; rank < me->n; rank++) {
        uint32_t next = number_of(rank, i, 1000);
        switch (operators[op].op) {
          case nexarProd: wanted *= next; break;
          case nexarMax: wanted = next > wanted ? next : wanted; break;
          case nexarMin: wanted = next < wanted ? next : wanted; break;
          case nexarBitXor: wanted ^= next; break;
          default: wanted += next;
        }
      }
      if (operators[op].op == nexarAvg) wanted /= (uint32_t)me->n;
      if (back[i] == wanted) continue;
      fail("element %zu is %u, not %u", i, back[i], wanted);
      break;
    }
    me->cases++;
  }
}
