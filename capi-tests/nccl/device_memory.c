/*
 * ncclMemAlloc on a machine with CUDA devices, on the fake driver: a thread per device allocates
 * its buffer, fills it with the driver, reduces on a stream and compares the result.
 */
#include "cuda/vectors.h"

#include "nccl_names.h"

enum { DEVICES = 4, COUNT = (3 << 20) + 1 };

static CUcontext enter(CUdevice device) {
  CUcontext context = NULL;
  DO(cuInit(0));
  DO(cuDevicePrimaryCtxRetain(&context, device));
  DO(cuCtxSetCurrent(context));
  return context;
}

static void leave(CUdevice device) {
  DO(cuCtxSetCurrent(NULL));
  DO(cuDevicePrimaryCtxRelease_v2(device));
}

static void *device_memory_of(size_t bytes) {
  void *memory = NULL;
  CHECK_NCCL(Success, ncclMemAlloc(&memory, bytes));
  CHECK(memory != NULL);
  return memory;
}

/* An attribute that the driver reports for an address. */
static unsigned attribute_of(void *address, CUpointer_attribute attribute) {
  unsigned value = 77;
  DO(cuPointerGetAttribute(&value, attribute, (CUdeviceptr)(uintptr_t)address));
  return value;
}

static void reduce_on_device(int rank, int n, nexarComm_t unused, void *arg) {
  ncclComm_t comm = ((ncclComm_t *)arg)[rank];
  (void)unused;
  enter(rank);
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  uint32_t *memory = device_memory_of(COUNT * sizeof *memory);
  CUdeviceptr address = (CUdeviceptr)(uintptr_t)memory;
  CHECK_EQ(CU_MEMORYTYPE_DEVICE, attribute_of(memory, CU_POINTER_ATTRIBUTE_MEMORY_TYPE));
  CHECK_EQ(rank, attribute_of(memory, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL));
  DO(cuMemsetD32Async(address, (unsigned)rank + 1, COUNT, stream));
  CHECK_NCCL(Success, ncclAllReduce(memory, memory, COUNT, Int32, Sum, comm, stream));
  DO(cuStreamSynchronize(stream));
  const uint32_t *seen = NULL;
  MINE(seen = fakecuda_view(address, COUNT * sizeof *seen));
  size_t right = 0;
  while (right < COUNT && seen[right] == (uint32_t)(n * (n + 1) / 2)) right++;
  CHECK_EQ(COUNT, right);
  CHECK_NCCL(Success, ncclMemFree(memory));
  CHECK_NCCL(InvalidArgument, ncclMemFree(memory));
  end_stream(stream);
  leave(rank);
}

/* Uses the driver's 4 devices, although NEXAR_FAKE_DEVICES is set to 2. */
static void a_thread_per_device_reduces_what_it_has_allocated(void) {
  ncclComm_t comms[DEVICES + 1];
  CHECK_NCCL(InvalidArgument, ncclCommInitAll(comms, DEVICES + 1, NULL));
  CHECK_TEXT(ncclGetLastError(NULL), "device 4 is beyond the 4 of the CUDA driver");
  CHECK_NCCL(Success, ncclCommInitAll(comms, DEVICES, NULL));
  for (int i = 0; i < DEVICES; i++) {
    int device = 77;
    CHECK_NCCL(Success, ncclCommCuDevice(comms[i], &device));
    CHECK_EQ(i, device);
  }
  run_threads(DEVICES, NULL, reduce_on_device, comms);
  for (int i = 0; i < DEVICES; i++) CHECK_NCCL(Success, ncclCommDestroy(comms[i]));
  CHECK_EQ(0, fakecuda_report_leaks());
}

static void memory_is_host_memory_until_a_device_is_in_use(void) {
  char *host = device_memory_of(1000);
  memset(host, 1, 1000);
  enter(1);
  char *device = device_memory_of(1000);
  CHECK_EQ(1, attribute_of(device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL));
  CHECK_EQ(1, fakecuda_live(FAKECUDA_DEVICE_MEMORY));
  /* Both can be freed on a thread with another device or none. */
  leave(1);
  CHECK_NCCL(Success, ncclMemFree(device));
  CHECK_NCCL(Success, ncclMemFree(host));
  CHECK_NCCL(Success, ncclMemFree(NULL));
  CHECK_EQ(0, fakecuda_report_leaks());
}

static void nothing_is_allocated_for_zero_bytes_or_if_the_driver_fails(void) {
  void *memory = &memory;
  enter(0);
  CHECK_NCCL(Success, ncclMemAlloc(&memory, 0));
  CHECK(memory == NULL);
  CHECK_NCCL(InvalidArgument, ncclMemAlloc(NULL, 1000));
  fakecuda_fail("cuMemAlloc_v2:1:2");
  CHECK_NCCL(CudaError, ncclMemAlloc(&memory, 1000));
  CHECK_TEXT(ncclGetLastError(NULL), "cuMemAlloc_v2 failed: CUDA_ERROR_OUT_OF_MEMORY (2)");
  CHECK(memory == NULL);
  memory = device_memory_of(1000);
  fakecuda_fail("cuMemFree_v2:1:999");
  CHECK_NCCL(CudaError, ncclMemFree(memory));
  fakecuda_fail(NULL);
  CHECK_NCCL(Success, ncclMemFree(memory));
  CHECK_EQ(0, fakecuda_report_leaks());
  leave(0);
}

static const struct test_case cases[] = {
    CASE(memory_is_host_memory_until_a_device_is_in_use),
    CASE(a_thread_per_device_reduces_what_it_has_allocated),
    CASE(nothing_is_allocated_for_zero_bytes_or_if_the_driver_fails),
};

int main(void) { return RUN(cases); }
