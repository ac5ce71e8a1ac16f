/*
 * Calls of the fake CUDA driver that programs make and nexar does not: setting the current context,
 * queries of devices and memory, priorities, times, copies between devices.
 */
#include <pthread.h>

#include "driver.h"
#include "processes.h"

enum { ELEMENTS = 1000, BYTES = 4 * ELEMENTS };

static CUcontext context_of(CUdevice device) {
  CUcontext context = NULL;
  OK(cuDevicePrimaryCtxRetain(&context, device));
  return context;
}

static void check_current(CUcontext expected, unsigned depth) {
  CUcontext current = (CUcontext)77;
  OK(cuCtxGetCurrent(&current));
  CHECK(current == expected);
  CHECK_EQ(depth, fakecuda_context_depth());
}

static void set_current_contexts(void) {
  OK(cuInit(0));
  CUcontext first = context_of(0), second = context_of(1), popped = NULL;
  OK(cuCtxSetCurrent(NULL)); /* allowed in a thread without a context */
  check_current(NULL, 0);
  OK(cuCtxSetCurrent(first));
  check_current(first, 1);
  OK(cuCtxSetCurrent(second));
  check_current(second, 1);
  OK(cuCtxPushCurrent_v2(first));
  OK(cuCtxSetCurrent(second));
  check_current(second, 2);
  OK(cuCtxSetCurrent(NULL));
  check_current(second, 1);
  CHECK_EQ(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetCurrent((CUcontext)&popped));
  check_current(second, 1);
  OK(cuDevicePrimaryCtxRelease_v2(0));
  CHECK_EQ(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxSetCurrent(first));
  OK(cuCtxPopCurrent_v2(&popped));
  CHECK(popped == second);
  check_current(NULL, 0);
}
static void *set_in_thread(void *context) {
  check_current(NULL, 0);
  OK(cuCtxSetCurrent(context));
  CUdeviceptr memory = device_memory(1);
  OK(cuMemFree_v2(memory));
  return NULL;
}
static void set_in_a_thread_that_ends(void) {
  pthread_t thread;
  OK(cuInit(0));
  CUcontext context = context_of(1);
  CHECK_EQ(0, pthread_create(&thread, NULL, set_in_thread, context));
  CHECK_EQ(0, pthread_join(thread, NULL));
  check_current(NULL, 0);
  CHECK_EQ(0, fakecuda_live(FAKECUDA_PUSH));
}
static void a_thread_sets_its_current_context(void) {
  in_a_process("", set_current_contexts);
  in_a_process("", set_in_a_thread_that_ends);
}

static void ask_about_devices(void) {
  char name[100] = "", shorter[5] = "";
  CUuuid first, second, again;
  size_t total = 0, unused = 0, whole = 0;
  int can = 77;
  CHECK_EQ(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetName(name, sizeof name, 0));
  OK(cuInit(0));
  OK(cuDeviceGetName(name, sizeof name, 1));
  CHECK_TEXT(name, "Fake CUDA device");
  OK(cuDeviceGetName(shorter, sizeof shorter, 0));
  CHECK_EQ(0, strcmp(shorter, "Fake"));
  CHECK_EQ(CUDA_ERROR_INVALID_VALUE, cuDeviceGetName(name, 0, 0));
  CHECK_EQ(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetName(name, sizeof name, 2));
  OK(cuDeviceGetUuid(&first, 0));
  OK(cuDeviceGetUuid_v2(&again, 0));
  OK(cuDeviceGetUuid_v2(&second, 1));
  CHECK_EQ(0, memcmp(&first, &again, sizeof first));
  CHECK(memcmp(&first, &second, sizeof first) != 0);
  CHECK_EQ(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetUuid_v2(&second, 2));
  OK(cuDeviceTotalMem_v2(&total, 1));
  CHECK_EQ((size_t)100 << 20, total);
  CHECK_EQ(CUDA_ERROR_INVALID_DEVICE, cuDeviceTotalMem_v2(&total, -1));
  OK(cuDeviceCanAccessPeer(&can, 0, 1));
  CHECK_EQ(0, can);
  CHECK_EQ(CUDA_ERROR_INVALID_DEVICE, cuDeviceCanAccessPeer(&can, 0, 2));
  CHECK_EQ(CUDA_ERROR_INVALID_CONTEXT, cuMemGetInfo_v2(&unused, &whole));
  begin();
  OK(cuMemGetInfo_v2(&unused, &whole));
  CHECK_EQ(total, whole);
  CHECK_EQ(total, unused);
  CUdeviceptr memory = device_memory(1 << 20);
  OK(cuMemGetInfo_v2(&unused, &whole));
  CHECK_EQ(total - (1 << 20), unused);
  OK(cuMemFree_v2(memory));
  OK(cuMemGetInfo_v2(&unused, &whole));
  CHECK_EQ(total, unused);
}
static void device_queries_are_answered(void) { in_a_process("MEMORY_MB=100", ask_about_devices); }

static void make_streams_with_priorities(void) {
  int least = 77, greatest = 77, priority = 77;
  CUstream stream;
  begin();
  OK(cuCtxGetStreamPriorityRange(&least, &greatest));
  OK(cuCtxGetStreamPriorityRange(NULL, NULL));
  CHECK_EQ(0, least);
  CHECK(greatest < least);
  const int asked[] = {least, greatest, least + 3, greatest - 3};
  for (size_t i = 0; i < COUNT_OF(asked); i++) {
    OK(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, asked[i]));
    OK(cuStreamGetPriority(stream, &priority));
    CHECK_EQ(i % 2 ? greatest : least, priority);
    OK(cuStreamDestroy_v2(stream));
  }
  CHECK_EQ(CUDA_ERROR_INVALID_VALUE, cuStreamCreateWithPriority(&stream, 2, 0));
  OK(cuStreamGetPriority(NULL, &priority));
  CHECK_EQ(0, priority);
}
static void streams_have_priorities(void) { in_a_process("", make_streams_with_priorities); }

/* Calls without a stream wait for writes to host memory, and not for writes to device memory. */
static void copy_without_streams(void) {
  begin();
  CUstream blocking = stream_of(CU_STREAM_DEFAULT);
  CUdeviceptr one = device_memory(BYTES), other = device_memory(BYTES);
  void *pinned = NULL;
  OK(cuMemAllocHost_v2(&pinned, BYTES));
  CHECK_EQ(CUDA_ERROR_INVALID_VALUE, cuMemAllocHost_v2(&pinned, 0));
  uint32_t plain[ELEMENTS], *seen = fakecuda_view(other, BYTES);
  uint64_t hold = fakecuda_hold(blocking);
  OK(cuMemsetD32_v2(one, 7, ELEMENTS));
  OK(cuMemcpyDtoD_v2(other, one, BYTES));
  OK(cuMemcpy(one, other, BYTES));
  CHECK_EQ(0xA5A5A5A5, seen[0]);
  check_stays_busy(NULL);
  fakecuda_release(hold);
  OK(cuMemcpy(address_of(pinned), other, BYTES));
  CHECK_EQ(7, ((uint32_t *)pinned)[ELEMENTS - 1]);
  OK(cuMemcpy(address_of(plain), address_of(pinned), BYTES));
  CHECK_EQ(7, plain[ELEMENTS - 1]);
  OK(cuMemsetD32_v2(address_of(pinned), 8, ELEMENTS));
  CHECK_EQ(8, ((uint32_t *)pinned)[ELEMENTS - 1]);
  CHECK_EQ(CUDA_ERROR_INVALID_VALUE, cuMemsetD32_v2(one + 2, 8, 1));
  CHECK_EQ(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoD_v2(one, address_of(plain), 1));
  CHECK_EQ(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoD_v2(one, other + 1, BYTES));
  OK(cuMemFreeHost(pinned));
}
static void calls_without_a_stream_wait_for_host_memory_alone(void) {
  in_a_process("", copy_without_streams);
  in_a_process("LATENCY_US=0-300", copy_without_streams);
}

static void copy_from_device_to_device(void) {
  begin();
  CUcontext first = NULL, second = context_of(1);
  OK(cuCtxGetCurrent(&first));
  CUstream stream = stream_of(CU_STREAM_NON_BLOCKING);
  CUdeviceptr here = device_memory(BYTES);
  OK(cuCtxSetCurrent(second));
  CUdeviceptr there = device_memory(BYTES), copy = device_memory(BYTES);
  OK(cuMemsetD32Async(here, 5, ELEMENTS, stream));
  OK(cuMemcpyPeerAsync(there, second, here, first, BYTES, stream));
  OK(cuMemcpyDtoDAsync_v2(copy, there, BYTES, stream));
  OK(cuStreamSynchronize(stream));
  CHECK_EQ(5, ((uint32_t *)fakecuda_view(copy, BYTES))[ELEMENTS - 1]);
  CHECK_EQ(CUDA_ERROR_INVALID_CONTEXT, cuMemcpyPeerAsync(there, NULL, here, first, 1, stream));
  CHECK_EQ(CUDA_ERROR_INVALID_VALUE,
           cuMemcpyPeerAsync(there + 1, second, here, first, BYTES, stream));
  CHECK_EQ(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoDAsync_v2(copy + 1, there, BYTES, stream));
}
static void streams_copy_from_device_to_device(void) {
  in_a_process("", copy_from_device_to_device);
}

static void measure_times(void) {
  float ms = -1;
  CUevent start, end, without, of_other;
  begin();
  CUstream stream = stream_of(CU_STREAM_NON_BLOCKING);
  OK(cuEventCreate(&start, CU_EVENT_DEFAULT));
  OK(cuEventCreate(&end, CU_EVENT_DEFAULT));
  OK(cuEventCreate(&without, CU_EVENT_DISABLE_TIMING));
  OK(cuEventRecord(start, stream));
  CHECK_EQ(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, start, end));
  uint64_t hold = fakecuda_hold(stream);
  OK(cuEventRecord(end, stream));
  OK(cuEventRecord(without, stream));
  OK(cuEventSynchronize(start));
  CHECK_EQ(CUDA_ERROR_NOT_READY, cuEventElapsedTime(&ms, start, end));
  usleep(20000);
  fakecuda_release(hold);
  OK(cuStreamSynchronize(stream));
  OK(cuEventElapsedTime(&ms, start, end));
  CHECK(ms >= 15 && ms < 40000);
  OK(cuEventElapsedTime(&ms, end, start));
  CHECK(ms <= -15);
  CHECK_EQ(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, start, without));
  CHECK_EQ(CUDA_ERROR_INVALID_VALUE, cuEventElapsedTime(NULL, start, end));
  OK(cuEventRecord(start, stream)); /* recorded again: the time is that of the last record */
  OK(cuEventSynchronize(start));
  OK(cuEventElapsedTime(&ms, end, start));
  CHECK(ms >= 0);
  OK(cuCtxSetCurrent(context_of(1)));
  OK(cuEventCreate(&of_other, CU_EVENT_DEFAULT));
  OK(cuEventRecord(of_other, NULL));
  OK(cuEventSynchronize(of_other));
  CHECK_EQ(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, start, of_other));
}
static void events_tell_the_time_between_them(void) {
  in_a_process("", measure_times);
  in_a_process("HWQ=1 LATENCY_US=0-300", measure_times);
}

/* Device 0 is busy; the thread works on device 1. */
static void allocate_beside_a_busy_device(void) {
  begin();
  CUstream stream = stream_of(CU_STREAM_NON_BLOCKING);
  OK(cuCtxSetCurrent(context_of(1)));
  uint64_t hold = fakecuda_hold(stream);
  CHECK(hold != 0);
  OK(cuMemFree_v2(device_memory(1)));
  pinned_memory(1);
  stream_of(CU_STREAM_NON_BLOCKING);
  fakecuda_release(hold);
}
static void an_allocation_waits_for_its_device_or_for_all(void) {
  in_a_process("", allocate_beside_a_busy_device);
  in_a_process("ALLOC_SYNC_DEVICES=own", allocate_beside_a_busy_device);
  in_a_process("ALLOC_SYNC_DEVICES=all ALLOC_SYNC=off", allocate_beside_a_busy_device);
  dies("ALLOC_SYNC_DEVICES=all STALL_MS=300", allocate_beside_a_busy_device, SIGABRT,
       "cuMemAlloc_v2 has waited 300 ms for stream");
}

static const struct test_case cases[] = {
    CASE(a_thread_sets_its_current_context),
    CASE(device_queries_are_answered),
    CASE(streams_have_priorities),
    CASE(calls_without_a_stream_wait_for_host_memory_alone),
    CASE(streams_copy_from_device_to_device),
    CASE(events_tell_the_time_between_them),
    CASE(an_allocation_waits_for_its_device_or_for_all),
};

int main(void) { return RUN(cases); }
