/* A rank: its context, streams and memory, and how its checks fail. */
#include "rank.h"

_Thread_local struct rank *me;

const char *const stream_names[STREAMS] = {"stream NULL", "stream 1", "stream 2",
                                           "a created stream", "a non-blocking stream"};

void fail(const char *format, ...) {
  if (me->status == FAILED) return;
  me->status = FAILED;
  int length = snprintf(me->detail, sizeof me->detail, "rank %d, %s: ", me->rank, me->doing);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(me->detail + length, sizeof me->detail - (size_t)length, format, arguments);
  va_end(arguments);
}

void skip(const char *why) {
  if (me->status != PASSED) return;
  me->status = SKIPPED;
  snprintf(me->detail, sizeof me->detail, "%s", why);
}

void doing(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(me->doing, sizeof me->doing, format, arguments);
  va_end(arguments);
}

bool check_cuda(CUresult code, const char *call) {
  if (code == CUDA_SUCCESS) return true;
  const char *name = NULL;
  cuda.cuGetErrorName(code, &name);
  fail("%s gave %s (%u)", call, name ? name : "an unknown code", (unsigned)code);
  return false;
}

bool check_nexar(nexarResult_t wanted, nexarResult_t result, const char *call) {
  if (result == wanted) return true;
  fail("%.100s gave %d, not %d: %.200s", call, (int)result, (int)wanted,
       result == nexarSuccess ? "no error" : nexarGetLastError(NULL));
  return false;
}

double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

void *pinned(size_t bytes) {
  void *memory = NULL;
  CU(cuMemHostAlloc(&memory, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
  return memory;
}

CUdeviceptr address_of_pinned(void *memory) {
  CUdeviceptr address = 0;
  CU(cuMemHostGetDevicePointer_v2(&address, memory, 0));
  return address;
}

void wait_for_all(void) { OK(nexarBarrier(me->world, NULL)); }

static void make_area(struct area *area, size_t room) {
  size_t bytes = room + 2 * MARGIN;
  CU(cuMemAlloc_v2(&area->device, bytes));
  area->image = pinned(bytes);
  area->back = pinned(bytes);
  area->wanted = malloc(bytes);
  if (!area->wanted) fail("no memory");
}

static void end_area(struct area *area) {
  CU(cuMemFree_v2(area->device));
  CU(cuMemFreeHost(area->image));
  CU(cuMemFreeHost(area->back));
  free(area->wanted);
}

/* A stream writes a value and waits for it, then waits for a value that this thread writes. */
static const char *try_memops(CUstream stream) {
  if (!cuda.cuStreamWaitValue32_v2 || !cuda.cuStreamWriteValue32_v2)
    return "the driver has no memory operations of streams, so calls wait";
  _Atomic uint32_t *cells = pinned(128);
  if (!cells) return "no pinned memory";
  memset((void *)cells, 0, 128);
  CUdeviceptr address = address_of_pinned((void *)cells);
  CUresult code = cuda.cuStreamWriteValue32_v2(stream, address, 1, CU_STREAM_WRITE_VALUE_DEFAULT);
  if (code == CUDA_SUCCESS)
    code = cuda.cuStreamWaitValue32_v2(stream, address, 1, CU_STREAM_WAIT_VALUE_GEQ);
  if (code == CUDA_SUCCESS)
    code = cuda.cuStreamWaitValue32_v2(stream, address + 64, 1, CU_STREAM_WAIT_VALUE_GEQ);
  atomic_store(&cells[16], 1);
  CU(cuStreamSynchronize(stream));
  CU(cuMemFreeHost((void *)cells));
  if (code == CUDA_SUCCESS) return NULL;
  return code == CUDA_ERROR_NOT_SUPPORTED
             ? "memory operations of streams are not supported, so calls wait"
             : "memory operations of streams fail, so calls wait";
}

void begin_rank(struct rank *rank, size_t room, size_t most) {
  me = rank;
  me->room = room;
  me->most = most;
  doing("the beginning");
  CU(cuCtxPushCurrent_v2(me->context));
  make_area(&me->send, room);
  make_area(&me->recv, room);
  me->streams[LEGACY] = CU_STREAM_LEGACY;
  me->streams[PER_THREAD] = CU_STREAM_PER_THREAD;
  CU(cuStreamCreate(&me->streams[BLOCKING], CU_STREAM_DEFAULT));
  CU(cuStreamCreate(&me->streams[NON_BLOCKING], CU_STREAM_NON_BLOCKING));
  if (me->status != FAILED) me->without_memops = try_memops(me->streams[NON_BLOCKING]);
}

void end_rank(void) {
  end_area(&me->send);
  end_area(&me->recv);
  CU(cuStreamDestroy_v2(me->streams[BLOCKING]));
  CU(cuStreamDestroy_v2(me->streams[NON_BLOCKING]));
  CUcontext popped;
  CU(cuCtxPopCurrent_v2(&popped));
  if (popped != me->context) fail("another context is current than before");
}
