/* Refused and failed calls: every stream continues, and no wrong result looks like a right one. */
#include "rank.h"

enum { COUNT = 1003 };

static nexarResult_t all_reduce(size_t count, CUstream stream) {
  return nexarAllReduce(at(me->send.device), at(me->recv.device), count, nexarUint32, nexarSum,
                        me->comm, stream);
}

/* The stream executes new work. */
static void check_goes_on(CUstream stream) {
  uint32_t *back = (uint32_t *)me->send.back;
  memset(back, FILLER, 64);
  CU(cuMemsetD32Async(me->send.device, 77, 16, stream));
  CU(cuMemcpyDtoHAsync_v2(back, me->send.device, 64, stream));
  CU(cuStreamSynchronize(stream));
  for (int i = 0; i < 16; i++)
    if (back[i] != 77) fail("later work of the stream gave %u, not 77", back[i]);
}

void try_capture(void) {
  CUstream stream = me->streams[NON_BLOCKING];
  uint32_t *back = (uint32_t *)me->recv.back, wanted = 0;
  CUgraph graph = NULL;
  doing("an all-reduce on a stream that is captured");
  wait_for_all(); /* calls of other ranks of this process may disturb a capture */
  CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  GIVES(nexarInvalidUsage, all_reduce(COUNT, stream));
  CU(cuStreamEndCapture(stream, &graph));
  if (graph && cuda.cuGraphDestroy) CU(cuGraphDestroy(graph));
  wait_for_all();
  doing("an all-reduce after a capture");
  CU(cuMemsetD32Async(me->send.device, (uint32_t)me->rank, COUNT, stream));
  OK(all_reduce(COUNT, stream));
  CU(cuMemcpyDtoHAsync_v2(back, me->recv.device, COUNT * 4, stream));
  CU(cuStreamSynchronize(stream));
  for (int rank = 0; rank < me->n; rank++) wanted += (uint32_t)rank;
  for (size_t i = 0; i < COUNT; i++)
    if (back[i] != wanted) fail("element %zu is %u, not %u", i, back[i], wanted);
  me->cases++;
}

/* The last rank passes another count: all ranks get the error, and results of 0xff. */
void try_mismatch(void) {
  CUstream stream = me->streams[NON_BLOCKING];
  const char *setting = getenv("NEXAR_CUDA_ON_ERROR");
  if (me->n < 2) {
    skip("there is one rank");
    return;
  }
  if (setting && strcmp(setting, "hold") == 0) {
    skip("NEXAR_CUDA_ON_ERROR is hold");
    return;
  }
  doing("all-reduces of different counts");
  size_t count = COUNT + (me->rank == me->n - 1);
  CU(cuMemsetD32Async(me->send.device, 1, count, stream));
  CU(cuMemsetD32Async(me->recv.device, 2, count, stream));
  nexarResult_t called = all_reduce(count, stream), failed = nexarSuccess;
  CU(cuStreamSynchronize(stream));
  double until = seconds() + 10;
  while (nexarCommGetAsyncError(me->comm, &failed) == nexarSuccess && failed == nexarSuccess &&
         seconds() < until)
    nanosleep(&(struct timespec){0, 1000000}, NULL);
  if (failed != nexarInvalidUsage) fail("the communicator failed with %d, not 5", (int)failed);
  if (called == nexarSuccess) { /* without memory operations the call itself fails */
    CU(cuMemcpyDtoHAsync_v2(me->recv.back, me->recv.device, count * 4, stream));
    CU(cuStreamSynchronize(stream));
    for (size_t i = 0; i < count * 4; i++)
      if (me->recv.back[i] != 0xff) fail("byte %zu is %#x, not 0xff", i, me->recv.back[i]);
  }
  check_goes_on(stream);
  me->cases++;
}

/* The last rank does not call. The others wait in vain, and abort. */
void try_abort(void) {
  CUstream stream = me->streams[NON_BLOCKING];
  if (me->n < 2) {
    skip("there is one rank");
    return;
  }
  if (me->without_memops) {
    skip(me->without_memops);
    return;
  }
  size_t sizes[] = {COUNT, me->room / 4};
  for (int size = 0; size < 2; size++) {
    doing("the abort of an all-reduce of %zu uint32", sizes[size]);
    bool calls = me->rank < me->n - 1;
    if (calls) {
      CU(cuMemsetD32Async(me->send.device, 1, sizes[size], stream));
      OK(all_reduce(sizes[size], stream));
      nanosleep(&(struct timespec){0, 20000000}, NULL);
      if (cuda.cuStreamQuery(stream) != CUDA_ERROR_NOT_READY) fail("the stream does not wait");
    }
    wait_for_all();
    OK(nexarCommAbort(me->comm));
    me->comm = NULL;
    CU(cuStreamSynchronize(stream));
    check_goes_on(stream);
    me->cases++;
    if (size == 0) OK(nexarCommSplit(me->world, 0, me->rank, &me->comm, NULL));
  }
}
