/* Measures speeds. Only a call that fails makes the check fail. */
#include "rank.h"

enum { ROUND_TRIPS = 200 };

static void print(const char *format, ...) {
  if (me->rank != 0) return;
  va_list arguments;
  va_start(arguments, format);
  vprintf(format, arguments);
  va_end(arguments);
  fflush(stdout);
}

static double rate(CUstream stream, bool to_host, size_t bytes) {
  double best = 1e9;
  for (int i = 0; i < 4; i++) {
    double begin = seconds();
    if (to_host) CU(cuMemcpyDtoHAsync_v2(me->send.back, me->send.device, bytes, stream));
    else CU(cuMemcpyHtoDAsync_v2(me->send.device, me->send.image, bytes, stream));
    CU(cuStreamSynchronize(stream));
    double took = seconds() - begin;
    if (took < best) best = took;
  }
  return (double)bytes / best / 1e9;
}

/* The time from a write of this thread to the write of a stream that waits for it. */
static void print_round_trip(CUstream stream) {
  if (me->without_memops) return;
  _Atomic uint32_t *cells = pinned(128);
  if (!cells) return;
  CUdeviceptr there = address_of_pinned((void *)cells);
  memset((void *)cells, 0, 128);
  double took = 0;
  for (uint32_t i = 1; i <= ROUND_TRIPS; i++) {
    if (!CU(cuStreamWaitValue32_v2(stream, there, i, CU_STREAM_WAIT_VALUE_GEQ))) break;
    CU(cuStreamWriteValue32_v2(stream, there + 64, i, CU_STREAM_WRITE_VALUE_DEFAULT));
    nanosleep(&(struct timespec){0, 200000}, NULL); /* the stream waits by now */
    double begin = seconds(), until = begin + 5;
    atomic_store(&cells[0], i);
    while (atomic_load(&cells[16]) != i && seconds() < until) {}
    took += seconds() - begin;
  }
  CU(cuStreamSynchronize(stream));
  print("  a value to a waiting stream and back    %.1f us\n", took / ROUND_TRIPS * 1e6);
  CU(cuMemFreeHost((void *)cells));
}

/* Times all-reduces of one size. Does not check the data. */
static void print_all_reduce(size_t bytes, CUdeviceptr memory, void *host, CUstream stream) {
  int times = bytes <= 1 << 20 ? 20 : 4;
  double called = 0, done = 0, on_host = 0;
  for (int i = -1; i < times; i++) {
    wait_for_all();
    double begin = seconds();
    OK(nexarAllReduce(at(memory), at(memory), bytes / 4, nexarUint32, nexarSum, me->comm, stream));
    double returned = seconds();
    CU(cuStreamSynchronize(stream));
    double end = seconds();
    if (i < 0) continue; /* warm-up */
    called += returned - begin;
    done += end - begin;
  }
  for (int i = -1; i < times; i++) {
    wait_for_all();
    double begin = seconds();
    OK(nexarAllReduce(host, host, bytes / 4, nexarUint32, nexarSum, me->comm, NULL));
    if (i >= 0) on_host += seconds() - begin;
  }
  called /= times, done /= times, on_host /= times;
  print("  %9zu KiB   %10.1f us   %10.1f us   %8.3f GB/s   %10.1f us\n", bytes >> 10, called * 1e6,
        done * 1e6, (double)bytes / done / 1e9, on_host * 1e6);
}

void print_figures(void) {
  CUstream stream = me->streams[NON_BLOCKING];
  CUdeviceptr memory = 0;
  size_t bytes = me->room < (size_t)64 << 20 ? me->room : (size_t)64 << 20;
  void *host = calloc(1, me->most);
  doing("the figures");
  CU(cuMemAlloc_v2(&memory, me->most));
  CU(cuMemsetD32Async(memory, 0, me->most / 4, stream));
  CU(cuStreamSynchronize(stream));
  print("\nfigures, of rank 0\n");
  double to_host = rate(stream, true, bytes), to_device = rate(stream, false, bytes);
  print("  copies of pinned memory   to the host %.2f GB/s, to the device %.2f GB/s\n", to_host,
        to_device);
  print_round_trip(stream);
  print("  all-reduce      call returns      stream done         of buffer     on host memory\n");
  for (size_t size = 1024; host && size <= me->most; size *= 4)
    print_all_reduce(size, memory, host, stream);
  CU(cuMemFree_v2(memory));
  free(host);
}
