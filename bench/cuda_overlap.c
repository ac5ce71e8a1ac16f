/*
 * How well an all-reduce of device memory overlaps copies and network: compared with the copies
 * alone, in both directions, and with the same all-reduce of host memory. The driver is the fake
 * one, whose copies take the time that FAKECUDA_COPY_MBPS sets. bench/cuda_overlap.sh builds and
 * runs it.
 */
#include <stdint.h>

#include "measure.h"

#include "fake/control.h"

#define BYTES ((size_t)256 << 20)
#define COUNT (BYTES / sizeof(float))
#define PIECE ((size_t)8 << 20)
#define ROUNDS 5

#define DRIVER(call)                                                                               \
  do {                                                                                             \
    CUresult code_ = (call);                                                                       \
    if (code_ != CUDA_SUCCESS) {                                                                   \
      fprintf(stderr, "%s: %d\n", #call, (int)code_);                                              \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)

static nexarComm_t comm;
static CUstream stream;
static CUdeviceptr device;
static void *pinned;

/* Returns the time since `start` of the slowest rank. */
static double slowest(double start) {
  double time = now_us() - start;
  CHECK(nexarAllReduce(&time, &time, 1, nexarFloat64, nexarMax, comm, NULL));
  return time;
}

static double begin(void) {
  CHECK(nexarBarrier(comm, NULL));
  return now_us();
}

/* Copies to and from the host in pieces through the same pinned memory, as a call does. */
static double copies(void) {
  double start = begin();
  CUdeviceptr host = (CUdeviceptr)(uintptr_t)pinned;
  for (size_t at = 0; at < BYTES; at += PIECE) {
    DRIVER(cuMemcpyAsync(host, device + at, PIECE, stream));
    DRIVER(cuMemcpyAsync(device + at, host, PIECE, stream));
  }
  DRIVER(cuStreamSynchronize(stream));
  return slowest(start);
}

static double all_reduce(void *buffer, CUstream on) {
  double start = begin();
  CHECK(nexarAllReduce(buffer, buffer, COUNT, nexarFloat32, nexarSum, comm, on));
  DRIVER(cuStreamSynchronize(stream));
  return slowest(start);
}

/* Every call multiplies the ones by the number of ranks. */
static void check_result(const float *result, double calls, int nranks) {
  float expected = 1;
  for (int i = 0; i < (int)calls; i++) expected *= (float)nranks;
  for (size_t i = 0; i < COUNT; i += 997)
    if (result[i] != expected) {
      fprintf(stderr, "element %zu is %g, not %g\n", i, (double)result[i], (double)expected);
      exit(1);
    }
}

int main(void) {
  CUcontext context;
  int rank, nranks;
  fakecuda_mine(1);
  DRIVER(cuInit(0));
  DRIVER(cuDevicePrimaryCtxRetain(&context, 0));
  DRIVER(cuCtxPushCurrent_v2(context));
  DRIVER(cuMemAlloc_v2(&device, BYTES));
  DRIVER(cuMemHostAlloc(&pinned, PIECE, CU_MEMHOSTALLOC_PORTABLE));
  DRIVER(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK(nexarCommInitFromEnv(&comm));
  CHECK(nexarCommUserRank(comm, &rank));
  CHECK(nexarCommCount(comm, &nranks));
  float *host = malloc(BYTES), *seen = fakecuda_view(device, BYTES);
  if (!host || !seen) return 1;
  for (size_t i = 0; i < COUNT; i++) host[i] = seen[i] = 1;

  double copied[ROUNDS], on_host[ROUNDS], on_device[ROUNDS], ratios[ROUNDS];
  for (int round = -1; round < ROUNDS; round++) {
    double c = copies(), h = all_reduce(host, NULL);
    double d = all_reduce((void *)(uintptr_t)device, stream);
    if (rank == 0)
      printf("%s: copies %.0f ms, host memory %.0f ms, device memory %.0f ms, ratio %.2f\n",
             round < 0 ? "warm-up" : "round", c / 1e3, h / 1e3, d / 1e3, d / (c > h ? c : h));
    if (round < 0) continue;
    copied[round] = c;
    on_host[round] = h;
    on_device[round] = d;
    ratios[round] = d / (c > h ? c : h);
  }
  check_result(host, ROUNDS + 1, nranks);
  check_result(seen, ROUNDS + 1, nranks);
  if (rank == 0)
    printf("%d ranks, %zu MiB: copies in both directions %.0f ms, host memory %.0f ms, "
           "device memory %.0f ms, ratio to the longer %.2f (medians of %d rounds; "
           "wanted: at most 1.25)\n",
           nranks, BYTES >> 20, median(copied, ROUNDS) / 1e3, median(on_host, ROUNDS) / 1e3,
           median(on_device, ROUNDS) / 1e3, median(ratios, ROUNDS), ROUNDS);
  CHECK(nexarCommDestroy(comm));
  return 0;
}
