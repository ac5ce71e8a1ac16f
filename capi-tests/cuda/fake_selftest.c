/*
 * The fake CUDA driver behaves as the driver API specifies: memory, contexts, streams, events and
 * memory operations. Leaves its injected difficulties to fake_selftest_faults.c.
 */
#include <pthread.h>

#include "driver.h"
#include "processes.h"

enum { ELEMENTS = 1000, BYTES = 4 * ELEMENTS };

/* Memory. */

static void read_device_memory(void) {
  begin();
  *(volatile char *)(uintptr_t)device_memory(1);
}
static void read_managed_memory(void) {
  CUdeviceptr address;
  begin();
  OK(cuMemAllocManaged(&address, 100, CU_MEM_ATTACH_GLOBAL));
  *(volatile char *)(uintptr_t)address;
}
static void read_freed_memory(void) {
  begin();
  CUdeviceptr address = device_memory(1);
  OK(cuMemFree_v2(address));
  *(volatile char *)(uintptr_t)address;
}
static void the_processor_cannot_access_device_memory(void) {
  dies("", read_device_memory, SIGSEGV, "");
  dies("", read_managed_memory, SIGSEGV, "");
  dies("", read_freed_memory, SIGSEGV, "");
  in_a_process("MANAGED_HOST=1", read_managed_memory);
}

static void copy_there_and_back(void) {
  begin();
  CUdeviceptr there = device_memory(BYTES), elsewhere = device_memory(BYTES);
  uint32_t data[ELEMENTS], back[ELEMENTS];
  OK(cuMemcpyDtoH_v2(back, there, BYTES));
  CHECK_EQ(0xA5A5A5A5, back[ELEMENTS - 1]);
  for (int i = 0; i < ELEMENTS; i++) data[i] = (uint32_t)i * 7;
  OK(cuMemcpyHtoD_v2(there, data, BYTES));
  OK(cuMemcpyAsync(elsewhere, there, BYTES, NULL));
  OK(cuMemcpyDtoH_v2(back, elsewhere, BYTES));
  CHECK_EQ(0, memcmp(data, back, BYTES));
  OK(cuMemsetD32Async(there, 3, ELEMENTS, NULL));
  OK(cuMemsetD8_v2(there + 4, 0xFF, 4));
  OK(cuMemcpyDtoH_v2(back, there + 4, BYTES - 4));
  CHECK_EQ(0xFFFFFFFF, back[0]);
  CHECK_EQ(3, back[1]);
  CHECK_EQ(3, back[ELEMENTS - 2]);
}
static void bytes_are_copied_to_device_memory_and_back(void) {
  in_a_process("", copy_there_and_back);
  in_a_process("HWQ=1 LATENCY_US=0-200", copy_there_and_back);
}

static void copy_a_column(void) {
  begin();
  enum { ROWS = 10, PITCH = 40, WIDTH = 8 };
  unsigned char *host = (unsigned char *)pinned_memory(ROWS * WIDTH);
  CUdeviceptr table = device_memory(ROWS * PITCH);
  unsigned char *view = fakecuda_view(table, ROWS * PITCH);
  for (int i = 0; i < ROWS * PITCH; i++) view[i] = (unsigned char)i;
  CUDA_MEMCPY2D copy = {.srcXInBytes = 16, .srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                        .srcDevice = table, .srcPitch = PITCH,
                        .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = host, .dstPitch = WIDTH,
                        .WidthInBytes = WIDTH, .Height = ROWS};
  OK(cuMemcpy2DAsync_v2(&copy, NULL));
  OK(cuStreamSynchronize(NULL));
  for (int i = 0; i < ROWS * WIDTH; i++)
    CHECK_EQ((unsigned char)(i / WIDTH * PITCH + 16 + i % WIDTH), host[i]);
  copy.Height++;
  CHECK_EQ(CUDA_ERROR_INVALID_VALUE, cuMemcpy2DAsync_v2(&copy, NULL));
  copy.Height = ROWS;
  copy.srcPitch = WIDTH;
  CHECK_EQ(CUDA_ERROR_INVALID_VALUE, cuMemcpy2DAsync_v2(&copy, NULL));
}
static void a_copy_of_two_dimensions_takes_a_column(void) { in_a_process("", copy_a_column); }

static void copy_too_much(void) {
  begin();
  CUdeviceptr one = device_memory(100), other = device_memory(50);
  CHECK_EQ(CUDA_ERROR_INVALID_VALUE, cuMemcpyAsync(one, other, 51, NULL));
  CHECK_EQ(CUDA_ERROR_INVALID_VALUE, cuMemcpyAsync(one + 51, other, 50, NULL));
  OK(cuMemcpyAsync(one + 50, other, 50, NULL));
  CHECK_EQ(CUDA_ERROR_INVALID_VALUE, cuMemcpyAsync(0, other, 1, NULL));
  OK(cuMemcpyAsync(0, 0, 0, NULL));
  OK(cuCtxSynchronize());
  OK(cuMemFree_v2(other));
  CHECK_EQ(CUDA_ERROR_INVALID_VALUE, cuMemcpyAsync(one, other, 1, NULL));
  CHECK_EQ(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(other));
  CHECK_EQ(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(one + 1));
  OK(cuMemFree_v2(0));
}
static void a_copy_beyond_an_allocation_is_refused(void) { in_a_process("", copy_too_much); }

static void check_attributes(CUdeviceptr address, CUmemorytype type, bool managed,
                             CUcontext context, int ordinal) {
  CUmemorytype seen_type = 77;
  uint32_t seen_managed = 77;
  int seen_ordinal = 77;
  CUcontext seen_context = (CUcontext)77;
  CUpointer_attribute attributes[] = {
      CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_CONTEXT};
  void *values[] = {&seen_type, &seen_managed, &seen_ordinal, &seen_context};
  OK(cuPointerGetAttributes(COUNT_OF(values), attributes, values, address));
  CHECK_EQ(type, seen_type);
  CHECK_EQ(managed, seen_managed);
  CHECK_EQ(ordinal, seen_ordinal);
  CHECK(context == seen_context);
  CHECK_EQ(type ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE,
           cuPointerGetAttribute(&seen_type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
}

static void query_pointers(void) {
  CUcontext first, second;
  CUdeviceptr managed, pool, device;
  static char plain[100], registered[100];
  begin();
  OK(cuCtxGetCurrent(&first));
  OK(cuDevicePrimaryCtxRetain(&second, 1));
  CHECK(first != second);
  check_attributes(device_memory(100) + 99, CU_MEMORYTYPE_DEVICE, false, first, 0);
  check_attributes(address_of(plain), 0, false, NULL, 0);
  char *pinned = (char *)pinned_memory(100);
  check_attributes(address_of(pinned + 99), CU_MEMORYTYPE_HOST, false, first, 0);
  check_attributes(address_of(registered), 0, false, NULL, 0);
  OK(cuMemHostRegister_v2(registered, sizeof registered, 0));
  check_attributes(address_of(registered + 50), CU_MEMORYTYPE_HOST, false, first, 0);
  CHECK_EQ(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister_v2(registered, 1, 0));
  OK(cuMemHostGetDevicePointer_v2(&device, registered + 50, 0));
  CHECK_EQ(getenv("FAKECUDA_REGISTERED_ALIAS") == NULL, device == address_of(registered + 50));
  OK(cuMemHostUnregister(registered));
  CHECK_EQ(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(registered));
  check_attributes(address_of(registered), 0, false, NULL, 0);
  OK(cuCtxPushCurrent_v2(second));
  OK(cuMemAllocManaged(&managed, 100, CU_MEM_ATTACH_GLOBAL));
  check_attributes(managed, CU_MEMORYTYPE_DEVICE, true, second, 1);
  OK(cuMemAllocAsync(&pool, 100, NULL));
  check_attributes(pool, CU_MEMORYTYPE_DEVICE, false, NULL, 1);
  OK(cuMemFreeAsync(pool, NULL));
  CHECK_EQ(CUDA_ERROR_INVALID_VALUE, cuMemcpyAsync(pool, pool, 1, NULL));
  OK(cuCtxPopCurrent_v2(NULL));
  OK(cuMemcpyAsync(managed, device_memory(100), 100, NULL));
}
static void pointer_queries_are_answered(void) {
  in_a_process("", query_pointers);
  in_a_process("REGISTERED_ALIAS=1", query_pointers);
}

static void use_addresses_again(void) {
  begin();
  CUdeviceptr first = device_memory(5000);
  device_memory(1);
  OK(cuMemFree_v2(first));
  CUdeviceptr again;
  OK(cuMemAllocManaged(&again, 100, CU_MEM_ATTACH_GLOBAL));
  CHECK(again == first);
  CHECK_EQ(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&again, (size_t)1 << 34));
}
static void an_address_may_soon_be_that_of_other_memory(void) {
  in_a_process("", use_addresses_again);
}

/* Contexts. */

static void need_a_context(void) {
  CUstream stream;
  CUcontext context, popped;
  CUdeviceptr address;
  unsigned flags;
  int active = 77;
  CHECK_EQ(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&active));
  OK(cuInit(0));
  CHECK_EQ(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc_v2(&address, 1));
  CHECK_EQ(CUDA_ERROR_INVALID_CONTEXT, cuStreamCreate(&stream, 0));
  CHECK_EQ(CUDA_ERROR_INVALID_CONTEXT, cuCtxPopCurrent_v2(&popped));
  OK(cuCtxGetCurrent(&context));
  CHECK(context == NULL);
  OK(cuDevicePrimaryCtxRetain(&context, 1));
  OK(cuDevicePrimaryCtxRetain(&context, 1));
  OK(cuCtxPushCurrent_v2(context));
  OK(cuStreamCreate(&stream, 0));
  OK(cuStreamDestroy_v2(stream));
  CHECK_EQ(1, fakecuda_context_depth());
  OK(cuDevicePrimaryCtxRelease_v2(1));
  OK(cuDevicePrimaryCtxGetState(1, &flags, &active));
  CHECK_EQ(1, active);
  OK(cuDevicePrimaryCtxRelease_v2(1));
  OK(cuDevicePrimaryCtxGetState(1, &flags, &active));
  CHECK_EQ(0, active);
  CHECK_EQ(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuStreamCreate(&stream, 0));
  CHECK_EQ(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease_v2(1));
  OK(cuCtxPopCurrent_v2(&popped));
  CHECK(popped == context);
  CHECK_EQ(CUDA_ERROR_INVALID_DEVICE, cuDevicePrimaryCtxRetain(&context, 2));
}
static void calls_need_a_context_of_their_thread(void) { in_a_process("", need_a_context); }

static void use_a_stream_of_another_device(void) {
  CUcontext second, seen;
  CUevent event;
  begin();
  CUstream stream = stream_of(CU_STREAM_NON_BLOCKING);
  OK(cuDevicePrimaryCtxRetain(&second, 1));
  OK(cuCtxPushCurrent_v2(second));
  CUdeviceptr here = device_memory(BYTES);
  OK(cuMemsetD32Async(here, 9, ELEMENTS, stream));
  OK(cuStreamSynchronize(stream));
  CHECK_EQ(9, *(uint32_t *)fakecuda_view(here, BYTES));
  OK(cuStreamGetCtx(stream, &seen));
  CHECK(seen != second);
  OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  CHECK_EQ(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(event, stream));
  OK(cuStreamWaitEvent(stream, event, 0));
}
static void a_stream_carries_its_context(void) { in_a_process("", use_a_stream_of_another_device); }

/* Streams. */

static void return_before_the_work(void) {
  begin();
  uint32_t *pinned = pinned_memory(BYTES), plain[ELEMENTS];
  CUdeviceptr device = device_memory(BYTES);
  CUstream stream = stream_of(CU_STREAM_NON_BLOCKING);
  uint64_t hold = fakecuda_hold(stream), sum = 0;
  OK(fakecuda_fill(stream, device, ELEMENTS, 1, 1));
  OK(cuMemcpyAsync(address_of(pinned), device, BYTES, stream));
  OK(fakecuda_add(stream, device, address_of(pinned), ELEMENTS));
  OK(fakecuda_sum(stream, device, ELEMENTS, &sum));
  CHECK_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
  CHECK_EQ(5, fakecuda_pending(stream));
  CHECK_EQ(0xA5A5A5A5, pinned[0]);
  fakecuda_release(hold);
  OK(cuStreamSynchronize(stream));
  OK(cuStreamQuery(stream));
  CHECK_EQ(ELEMENTS, pinned[ELEMENTS - 1]);
  CHECK_EQ(ELEMENTS * (ELEMENTS + 1), sum);
  /* A copy to memory that CUDA does not know has waited. */
  OK(cuMemcpyAsync(address_of(plain), device, BYTES, stream));
  CHECK_EQ(2, plain[0]);
  OK(cuStreamDestroy_v2(stream));
  CHECK_EQ(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(stream));
}
static void calls_return_before_their_work_is_done_and_streams_keep_the_order(void) {
  in_a_process("", return_before_the_work);
  in_a_process("HWQ=1 LATENCY_US=0-500 SEED=3", return_before_the_work);
  in_a_process("COPY_MBPS=10", return_before_the_work);
}

static void destroy_a_busy_stream(void) {
  begin();
  CUdeviceptr device = device_memory(4);
  CUstream stream = stream_of(0);
  uint64_t hold = fakecuda_hold(stream);
  OK(cuMemsetD32Async(device, 5, 1, stream));
  OK(cuStreamDestroy_v2(stream));
  CHECK_EQ(0xA5A5A5A5, *(uint32_t *)fakecuda_view(device, 4));
  fakecuda_release(hold);
  OK(cuCtxSynchronize());
  CHECK_EQ(5, *(uint32_t *)fakecuda_view(device, 4));
}
static void a_destroyed_stream_ends_its_work(void) { in_a_process("", destroy_a_busy_stream); }

static void order_against_legacy(void) {
  begin();
  CUstream blocking = stream_of(CU_STREAM_DEFAULT), other = stream_of(CU_STREAM_NON_BLOCKING);
  CUdeviceptr device = device_memory(4);
  uint64_t hold = fakecuda_hold(other);
  OK(cuMemsetD32Async(device, 1, 1, NULL));
  OK(cuStreamSynchronize(NULL)); /* does not wait for the non-blocking stream */
  fakecuda_release(hold);
  CUstream legacy[] = {NULL, CU_STREAM_LEGACY};
  for (int i = 0; i < 2; i++) {
    hold = fakecuda_hold(blocking);
    OK(cuMemsetD32Async(device, 2, 1, legacy[i]));
    CHECK_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(legacy[i]));
    check_stays_busy(legacy[i]);
    CHECK_EQ(1, fakecuda_pending(legacy[1 - i]));
    OK(cuMemsetD32Async(device, 3, 1, blocking));
    CHECK_EQ(1, *(uint32_t *)fakecuda_view(device, 4));
    fakecuda_release(hold);
    OK(cuStreamSynchronize(blocking));
    CHECK_EQ(0, fakecuda_pending(legacy[i])); /* its work preceded the last of the other */
    CHECK_EQ(3, *(uint32_t *)fakecuda_view(device, 4));
    hold = fakecuda_hold(legacy[i]);
    OK(cuMemsetD32Async(device, 1, 1, blocking));
    OK(cuStreamSynchronize(other));
    CHECK_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(blocking));
    check_stays_busy(blocking);
    fakecuda_release(hold);
    OK(cuStreamSynchronize(blocking));
  }
}
static void the_legacy_stream_and_blocking_streams_wait_for_each_other(void) {
  in_a_process("", order_against_legacy);
}

static void *number_of_own_stream(void *context) {
  OK(cuCtxPushCurrent_v2(context));
  OK(cuCtxPushCurrent_v2(context));
  OK(cuCtxPopCurrent_v2(NULL));
  int64_t number = fakecuda_stream_number(CU_STREAM_PER_THREAD);
  OK(cuCtxPopCurrent_v2(NULL));
  return (void *)(intptr_t)number;
}
static void use_own_streams(void) {
  begin();
  CUcontext context;
  pthread_t thread;
  void *number;
  OK(cuCtxGetCurrent(&context));
  OK(cuMemsetD8Async(device_memory(1), 1, 1, CU_STREAM_PER_THREAD));
  CHECK_EQ(0, pthread_create(&thread, NULL, number_of_own_stream, context));
  CHECK_EQ(0, pthread_join(thread, &number));
  CHECK((intptr_t)number > 0);
  CHECK((intptr_t)number != fakecuda_stream_number(CU_STREAM_PER_THREAD));
  uint64_t hold = fakecuda_hold(CU_STREAM_LEGACY);
  OK(cuMemsetD8Async(device_memory(1), 1, 1, CU_STREAM_PER_THREAD));
  CHECK_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(CU_STREAM_PER_THREAD));
  fakecuda_release(hold);
}
static void every_thread_has_a_default_stream_of_its_own(void) {
  in_a_process("ALLOC_SYNC=off", use_own_streams);
}

static void overlap_copies(void) {
  begin();
  enum { MIB = 1 << 20, ROUNDS = 4 };
  CUdeviceptr one = device_memory(MIB), other = device_memory(MIB);
  CUdeviceptr host = address_of(pinned_memory(MIB)), second = address_of(pinned_memory(MIB));
  CUstream streams[2] = {stream_of(CU_STREAM_NON_BLOCKING), stream_of(CU_STREAM_NON_BLOCKING)};
  struct timespec begins, ends;
  double ms[2];
  for (int both_ways = 0; both_ways < 2; both_ways++) {
    clock_gettime(CLOCK_MONOTONIC, &begins);
    for (int i = 0; i < ROUNDS; i++) {
      OK(cuMemcpyAsync(host, one, MIB, streams[0]));
      if (both_ways) OK(cuMemcpyAsync(other, second, MIB, streams[1]));
      else OK(cuMemcpyAsync(second, other, MIB, streams[1]));
    }
    for (int i = 0; i < 2; i++) OK(cuStreamSynchronize(streams[i]));
    clock_gettime(CLOCK_MONOTONIC, &ends);
    ms[both_ways] = (double)(ends.tv_sec - begins.tv_sec) * 1e3 +
                    (double)(ends.tv_nsec - begins.tv_nsec) / 1e6;
  }
  CHECK(ms[0] > 160); /* eight copies of 21 ms on one engine */
  CHECK(ms[1] > 80);  /* four on each of two */
}
static void a_direction_is_one_engine_with_a_rate(void) {
  in_a_process("COPY_MBPS=50", overlap_copies);
}

/* Events. */

static void use_events(void) {
  begin();
  CUstream one = stream_of(CU_STREAM_NON_BLOCKING), other = stream_of(CU_STREAM_NON_BLOCKING);
  CUdeviceptr device = device_memory(4);
  CUevent event;
  CHECK_EQ(CUDA_ERROR_INVALID_VALUE, cuEventCreate(&event, 8));
  OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  OK(cuEventQuery(event)); /* an event that was never recorded counts as completed */
  OK(cuEventSynchronize(event));
  OK(cuStreamWaitEvent(other, event, 0));
  OK(cuStreamSynchronize(other));
  uint64_t hold = fakecuda_hold(one);
  OK(cuMemsetD32Async(device, 1, 1, one));
  OK(cuEventRecord(event, one));
  CHECK_EQ(CUDA_ERROR_NOT_READY, cuEventQuery(event));
  OK(cuStreamWaitEvent(other, event, 0));
  OK(cuMemsetD32Async(device, 2, 1, other));
  CHECK_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(other));
  check_stays_busy(other);
  /* Later records of the event do not affect the stream that waits. */
  uint64_t later = fakecuda_hold(one);
  OK(cuEventRecord(event, one));
  fakecuda_release(hold);
  OK(cuStreamSynchronize(other));
  CHECK_EQ(2, *(uint32_t *)fakecuda_view(device, 4));
  CHECK_EQ(CUDA_ERROR_NOT_READY, cuEventQuery(event));
  OK(cuStreamWaitEvent(other, event, 0));
  OK(cuEventDestroy_v2(event));
  CHECK_EQ(CUDA_ERROR_INVALID_HANDLE, cuEventDestroy_v2(event));
  CHECK_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(other));
  check_stays_busy(other);
  fakecuda_release(later);
  OK(cuStreamSynchronize(other));
}
static void an_event_is_a_point_of_a_stream(void) {
  in_a_process("", use_events);
  in_a_process("LATENCY_US=0-300", use_events);
}

/* Memory operations. */

static void write_and_wait(void) {
  begin();
  CUstream one = stream_of(CU_STREAM_NON_BLOCKING), other = stream_of(CU_STREAM_NON_BLOCKING);
  _Atomic(uint32_t) *cells = (void *)pinned_memory(BYTES);
  CUdeviceptr cell, device = device_memory(BYTES);
  OK(cuMemHostGetDevicePointer_v2(&cell, (void *)cells, 0));
  atomic_store(&cells[0], 0);
  atomic_store(&cells[1], 0xFFFFFFF0);
  OK(cuStreamWriteValue32_v2(one, cell, 1, 0));
  OK(cuStreamWaitValue32_v2(one, cell + 4, 5, CU_STREAM_WAIT_VALUE_GEQ));
  OK(cuMemsetD32Async(device, 6, 1, one));
  while (atomic_load(&cells[0]) != 1) usleep(10);
  CHECK_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(one));
  CHECK_EQ(0xA5A5A5A5, *(uint32_t *)fakecuda_view(device, 4));
  OK(cuStreamWriteValue32_v2(other, device, 1, 0)); /* runs meanwhile */
  OK(cuStreamSynchronize(other));
  atomic_store(&cells[1], 7); /* past 5, modulo 2^32 */
  OK(cuStreamSynchronize(one));
  CHECK_EQ(6, *(uint32_t *)fakecuda_view(device, 4));
  OK(cuStreamWaitValue32_v2(one, cell + 4, 6, CU_STREAM_WAIT_VALUE_EQ));
  CHECK_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(one));
  atomic_store(&cells[1], 6);
  OK(cuStreamSynchronize(one));
}
static void refuse_cells(void) {
  begin();
  static uint32_t plain[4];
  CUdeviceptr managed, device = device_memory(6);
  OK(cuMemAllocManaged(&managed, 100, CU_MEM_ATTACH_GLOBAL));
  CUdeviceptr wrong[] = {0, address_of(plain), managed, device + 2, device + 4, device + 100000};
  for (size_t i = 0; i < COUNT_OF(wrong); i++) {
    CHECK_EQ(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue32_v2(NULL, wrong[i], 1, 0));
    CHECK_EQ(CUDA_ERROR_INVALID_VALUE, cuStreamWaitValue32_v2(NULL, wrong[i], 1, 0));
  }
  CHECK_EQ(CUDA_ERROR_INVALID_VALUE, cuStreamWaitValue32_v2(NULL, device, 1, 4));
  OK(cuMemHostRegister_v2(plain, sizeof plain, CU_MEMHOSTALLOC_DEVICEMAP));
  OK(cuMemHostGetDevicePointer_v2(&device, plain, 0));
  OK(cuStreamWriteValue32_v2(NULL, device + 4, 8, 0));
  OK(cuStreamSynchronize(NULL));
  CHECK_EQ(8, plain[1]);
}
static void find_no_memops(void) {
  int v1 = 77;
  begin();
  OK(cuDeviceGetAttribute(&v1, CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1, 0));
  CHECK_EQ(0, v1);
  CHECK_EQ(CUDA_ERROR_NOT_SUPPORTED, cuStreamWriteValue32_v2(NULL, device_memory(4), 1, 0));
  CHECK_EQ(CUDA_ERROR_NOT_SUPPORTED, cuStreamWaitValue32_v2(NULL, device_memory(4), 1, 0));
}
static void streams_write_values_and_wait_for_them(void) {
  in_a_process("", write_and_wait);
  in_a_process("LATENCY_US=0-300", write_and_wait);
  in_a_process("", refuse_cells);
  in_a_process("REGISTERED_ALIAS=1", refuse_cells);
  in_a_process("NO_MEMOPS=1", find_no_memops);
}

static const struct test_case cases[] = {
    CASE(the_processor_cannot_access_device_memory),
    CASE(bytes_are_copied_to_device_memory_and_back),
    CASE(a_copy_of_two_dimensions_takes_a_column),
    CASE(a_copy_beyond_an_allocation_is_refused),
    CASE(pointer_queries_are_answered),
    CASE(an_address_may_soon_be_that_of_other_memory),
    CASE(calls_need_a_context_of_their_thread),
    CASE(a_stream_carries_its_context),
    CASE(calls_return_before_their_work_is_done_and_streams_keep_the_order),
    CASE(a_destroyed_stream_ends_its_work),
    CASE(the_legacy_stream_and_blocking_streams_wait_for_each_other),
    CASE(every_thread_has_a_default_stream_of_its_own),
    CASE(a_direction_is_one_engine_with_a_rate),
    CASE(an_event_is_a_point_of_a_stream),
    CASE(streams_write_values_and_wait_for_them),
};

int main(void) { return RUN(cases); }
