/*
 * The difficulties that the fake CUDA driver injects: streams share queues, calls wait where a
 * driver may, calls fail, processes end whose threads or functions make forbidden calls, and leaks
 * are reported.
 */
#include <dlfcn.h>
#include <pthread.h>

#include "driver.h"
#include "processes.h"

static uint32_t number_at(CUdeviceptr address) { return *(uint32_t *)fakecuda_view(address, 4); }

static void on_a_thread(void *(*function)(void *), void *argument) {
  pthread_t thread;
  CHECK_EQ(0, pthread_create(&thread, NULL, function, argument));
  CHECK_EQ(0, pthread_join(thread, NULL));
}

/* Queues. */

static uint64_t sum_before_release(void) {
  begin();
  CUstream one = stream_of(CU_STREAM_NON_BLOCKING), other = stream_of(CU_STREAM_NON_BLOCKING);
  CUdeviceptr cell = device_memory(4);
  uint64_t hold = fakecuda_hold(one), sum = 0;
  OK(fakecuda_sum(one, cell, 1, &sum));
  OK(cuMemsetD32Async(cell, 1, 1, other));
  if (!getenv("FAKECUDA_HWQ")) OK(cuStreamSynchronize(other));
  fakecuda_release(hold);
  OK(cuCtxSynchronize());
  CHECK_EQ(1, number_at(cell));
  return sum;
}
static void share_a_queue(void) { CHECK_EQ(0xA5A5A5A5, sum_before_release()); }
static void share_none(void) { CHECK_EQ(1, sum_before_release()); }
static void streams_that_share_a_queue_wait_for_each_other(void) {
  in_a_process("HWQ=1", share_a_queue);
  in_a_process("", share_none);
}

static atomic_int inside, most_inside, arrived;
static void wait_for_others(void *expected) {
  int now = atomic_fetch_add(&inside, 1) + 1;
  if (now > atomic_load(&most_inside)) atomic_store(&most_inside, now);
  atomic_fetch_add(&arrived, 1);
  while (atomic_load(&arrived) < (int)(intptr_t)expected) usleep(10);
  atomic_fetch_sub(&inside, 1);
}
static void run_host_functions(intptr_t at_once) {
  begin();
  CUstream streams[] = {stream_of(1), stream_of(1)};
  for (int i = 0; i < 2; i++) OK(cuLaunchHostFunc(streams[i], wait_for_others, (void *)at_once));
  OK(cuCtxSynchronize());
  CHECK_EQ(2, arrived);
  CHECK_EQ(at_once, most_inside);
}
static void run_host_functions_together(void) { run_host_functions(2); }
static void run_host_functions_alone(void) { run_host_functions(1); }
static void host_functions_may_be_run_one_at_a_time(void) {
  in_a_process("", run_host_functions_together);
  in_a_process("SERIAL_HOSTFN=1 LATENCY_US=100", run_host_functions_alone);
}

static CUstream full;
static CUdeviceptr counted;
static void *enqueue_many(void *context) {
  OK(cuCtxPushCurrent_v2(context));
  for (int i = 0; i < 50; i++) OK(fakecuda_add(full, counted, counted + 4, 1));
  OK(cuCtxPopCurrent_v2(NULL));
  return NULL;
}
static void fill_a_queue(void) {
  begin();
  pthread_t thread;
  CUcontext context;
  OK(cuCtxGetCurrent(&context));
  counted = device_memory(8);
  full = stream_of(0);
  OK(fakecuda_fill(full, counted, 2, 0, 1));
  OK(cuStreamSynchronize(full));
  uint64_t hold = fakecuda_hold(full);
  CHECK_EQ(0, pthread_create(&thread, NULL, enqueue_many, context));
  while (fakecuda_pending(full) < 10) usleep(10);
  for (int i = 0; i < 20; i++) {
    usleep(100);
    CHECK_EQ(10, fakecuda_pending(full));
  }
  fakecuda_release(hold);
  CHECK_EQ(0, pthread_join(thread, NULL));
  OK(cuStreamSynchronize(full));
  CHECK_EQ(50, number_at(counted));
}
static void fill_a_queue_for_ever(void) {
  begin();
  full = stream_of(0);
  CUdeviceptr memory = device_memory(1);
  fakecuda_hold(full);
  for (int i = 0; i < 10; i++) OK(cuMemsetD8Async(memory, 1, 1, full));
}
static void a_full_queue_blocks_the_caller(void) {
  in_a_process("QUEUE_DEPTH=10", fill_a_queue);
  dies("QUEUE_DEPTH=10 STALL_MS=100", fill_a_queue_for_ever, SIGABRT,
       "cuMemsetD8Async has waited 100 ms for stream 1, which is at hold 0 and has 10 operations");
}

/* Queries. */

static void query_a_stream(void) {
  begin();
  CUstream one = stream_of(CU_STREAM_NON_BLOCKING), other = stream_of(CU_STREAM_NON_BLOCKING);
  CUevent event;
  _Atomic(uint32_t) *cell = (void *)pinned_memory(4);
  CUdeviceptr device = device_memory(8);
  atomic_store(cell, 0);
  for (int i = 0; i < 20; i++) OK(cuMemsetD32Async(device, (unsigned)i, 1, one));
  OK(cuStreamQuery(one));
  CHECK_EQ(19, number_at(device));
  /* Stream one runs up to its wait for the value, and the other up to its wait for stream one. */
  OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  OK(cuMemsetD32Async(device, 20, 1, one));
  OK(cuStreamWaitValue32_v2(one, address_of((void *)cell), 1, CU_STREAM_WAIT_VALUE_GEQ));
  OK(cuMemsetD32Async(device, 21, 1, one));
  OK(cuEventRecord(event, one));
  OK(cuStreamWaitEvent(other, event, 0));
  OK(cuMemsetD32Async(device + 4, 22, 1, other));
  CHECK_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(other));
  CHECK_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(one));
  CHECK_EQ(20, number_at(device));
  atomic_store(cell, 1);
  OK(cuStreamQuery(other));
  CHECK_EQ(21, number_at(device));
  CHECK_EQ(22, number_at(device + 4));
  uint64_t hold = fakecuda_hold(one);
  CHECK_EQ(CUDA_ERROR_NOT_READY, cuStreamQuery(one));
  fakecuda_release(hold);
  OK(cuStreamQuery(one));
}
static void a_query_need_not_depend_on_timing(void) {
  in_a_process("SETTLE=1", query_a_stream);
  in_a_process("SETTLE=1 LATENCY_US=0-2000", query_a_stream);
}

/* Calls that wait for the device. */

static void *pinned_before;
static CUdeviceptr device_before;
static void hold_the_device(void) {
  begin();
  pinned_before = pinned_memory(100);
  device_before = device_memory(100);
  CUstream stream = stream_of(CU_STREAM_NON_BLOCKING);
  CHECK(fakecuda_hold(stream) != 0);
  OK(cuMemcpyAsync(address_of(pinned_before), device_before, 100, stream));
}
static void pin(void) {
  hold_the_device();
  pinned_memory(1);
}
static void allocate(void) {
  hold_the_device();
  device_memory(1);
}
static void create(void) {
  hold_the_device();
  stream_of(0);
}
static void unpin(void) {
  hold_the_device();
  OK(cuMemFreeHost(pinned_before));
}
static void give_back(void) {
  hold_the_device();
  OK(cuMemFree_v2(device_before));
}
static void pin_as_test(void) {
  hold_the_device();
  CHECK_EQ(0, fakecuda_mine(1));
  pinned_memory(1);
  CHECK_EQ(1, fakecuda_mine(0));
}
static void allocating_may_wait_for_the_device(void) {
  static const struct {
    void (*function)(void);
    const char *name;
  } calls[] = {{pin, "cuMemHostAlloc"}, {allocate, "cuMemAlloc_v2"}, {create, "cuStreamCreate"},
               {unpin, "cuMemFreeHost"}, {give_back, "cuMemFree_v2"}};
  for (size_t i = 0; i < COUNT_OF(calls); i++) {
    dies("STALL_MS=50", calls[i].function, SIGABRT, calls[i].name);
    in_a_process("ALLOC_SYNC=off", calls[i].function);
  }
  in_a_process("ALLOC_SYNC=library", pin_as_test);
}

static void free_under_a_copy(void) {
  begin();
  CUstream stream = stream_of(CU_STREAM_NON_BLOCKING);
  void *memory = pinned_memory(100);
  uint64_t hold = fakecuda_hold(stream);
  OK(cuMemcpyAsync(device_memory(100), address_of(memory), 100, stream));
  OK(cuMemFreeHost(memory));
  fakecuda_release(hold);
  CHECK_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
  CHECK_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamQuery(stream));
}
static void work_on_freed_memory_breaks_the_context(void) {
  in_a_process("ALLOC_SYNC=off", free_under_a_copy);
}

/* Threads and functions that must not call the driver. */

static void call_cuda(void *unused) {
  (void)unused;
  int count;
  cuDeviceGetCount(&count);
}
static void call_in_a_host_function(void) {
  begin();
  OK(cuLaunchHostFunc(NULL, call_cuda, NULL));
  OK(cuCtxSynchronize());
}
static void call_in_kernel(void *const *buffers, void *argument) {
  (void)buffers;
  call_cuda(argument);
}
static void call_in_a_kernel(void) {
  begin();
  OK(fakecuda_launch(NULL, call_in_kernel, NULL, 0, NULL));
  OK(cuCtxSynchronize());
}
static void host_functions_must_not_call(void) {
  dies("", call_in_a_host_function, SIGABRT, "cuDeviceGetCount was called inside a host function");
  dies("", call_in_a_kernel, SIGABRT, "cuDeviceGetCount was called inside a kernel");
}

static void *call_as(void *name) {
  int count;
  pthread_setname_np(pthread_self(), name);
  OK(cuDeviceGetCount(&count));
  return NULL;
}
static void call_in_a_thread_of_nexar(void) {
  begin();
  on_a_thread(call_as, "nexar-io");
}
static void call_in_an_allowed_thread(void) {
  begin();
  on_a_thread(call_as, "nexar-init-3");
  on_a_thread(call_as, "trainer");
  pthread_setname_np(pthread_self(), "nexar-bench"); /* a program may set such a name */
  on_a_thread(call_as, "nexar-bench");
}
static void threads_of_the_library_must_not_call(void) {
  dies("", call_in_a_thread_of_nexar, SIGABRT,
       "cuDeviceGetCount was called by the thread nexar-io");
  in_a_process("", call_in_an_allowed_thread);
  in_a_process("FORBID_THREADS=other,more", call_in_a_thread_of_nexar);
}

/* Failures. */

static void fail_the_nth(void) {
  begin();
  CUdeviceptr memory = device_memory(4);
  for (int i = 1; i <= 3; i++) {
    fakecuda_mine(1); /* the test's own calls are not counted */
    OK(cuMemcpyAsync(memory, memory, 1, NULL));
    fakecuda_mine(0);
    CHECK_EQ(i == 2 ? 12345 : CUDA_SUCCESS, cuMemcpyAsync(memory, memory, 1, NULL));
  }
  CHECK_EQ(1, fakecuda_failed());
  CHECK_TEXT(fakecuda_failed_function(), "cuMemcpyAsync");
  CHECK_EQ(3, fakecuda_calls("cuMemcpyAsync"));
  CHECK_EQ(6, fakecuda_calls(NULL)); /* with cuInit, retain and push; without cuMemAlloc */
  OK(cuCtxSynchronize());
  fakecuda_reset_calls();
  fakecuda_fail("*:3:1,cuStreamQuery:2+:4");
  OK(cuStreamQuery(NULL));
  CHECK_EQ(CUDA_ERROR_DEINITIALIZED, cuStreamQuery(NULL));
  CHECK_EQ(CUDA_ERROR_INVALID_VALUE, cuMemcpyAsync(memory, memory, 1, NULL));
  CHECK_EQ(CUDA_ERROR_DEINITIALIZED, cuStreamQuery(NULL));
  CHECK_EQ(3, fakecuda_failed());
  CHECK_EQ(4, fakecuda_calls(NULL));
  fakecuda_fail(NULL);
  OK(cuStreamSynchronize(NULL));
}
static void an_armed_failure_hits_the_nth_call_of_the_library(void) {
  in_a_process("FAIL=cuMemcpyAsync:2:12345", fail_the_nth);
}
static void arm_before_the_first_call(void) {
  fakecuda_fail("cuInit:1:999");
  CHECK_EQ(CUDA_ERROR_UNKNOWN, cuInit(0));
  begin();
  fakecuda_set("NO_MEMOPS", "1");
  CHECK_EQ(CUDA_ERROR_NOT_SUPPORTED, cuStreamWriteValue32_v2(NULL, device_memory(4), 1, 0));
  fakecuda_set("NO_MEMOPS", NULL);
  OK(cuStreamWriteValue32_v2(NULL, device_memory(4), 1, 0));
}
static void a_test_may_change_settings_of_the_environment(void) {
  in_a_process("FAIL=cuInit:2:1", arm_before_the_first_call);
}
static void arm_nonsense(void) { fakecuda_fail("cuNothing:1:1"); }
static void a_failure_of_an_unknown_function_ends_the_process(void) {
  dies("", arm_nonsense, SIGABRT, "cuNothing, which is no function");
}

static void never(void *called) { *(bool *)called = true; }
static void break_a_context(void) {
  begin();
  bool called = false;
  uint32_t *cell = pinned_memory(4);
  CUstream stream = stream_of(0), other;
  CUdeviceptr memory = device_memory(4);
  CUcontext context;
  *cell = 0;
  OK(cuStreamWaitValue32_v2(stream, address_of(cell), 1, 0));
  OK(cuLaunchHostFunc(stream, never, &called));
  CHECK_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemcpyAsync(memory, memory, 1, NULL));
  CHECK_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
  CHECK_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemFreeHost(cell));
  CHECK_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamCreate(&other, 0));
  CHECK(!called);
  CHECK_EQ(0, fakecuda_report_leaks() - fakecuda_live(FAKECUDA_RETAIN));
  OK(cuCtxPopCurrent_v2(&context));
  OK(cuDevicePrimaryCtxRetain(&context, 1)); /* the other device works */
  OK(cuCtxPushCurrent_v2(context));
  stream_of(0);
  CHECK_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamQuery(stream));
}
static void an_error_of_the_device_is_sticky_and_stops_its_streams(void) {
  in_a_process("FAIL=cuMemcpyAsync:1:700", break_a_context);
}
static void break_at_once(void) {
  begin();
  CUstream stream = stream_of(0);
  fakecuda_hold(stream);
  fakecuda_break(0, CUDA_ERROR_LAUNCH_FAILED);
  CHECK_EQ(CUDA_ERROR_LAUNCH_FAILED, cuStreamSynchronize(stream));
  OK(cuDevicePrimaryCtxRelease_v2(0));
  begin(); /* a new context, after the last release */
  stream_of(0);
}
static void a_test_may_break_a_device(void) { in_a_process("", break_at_once); }

static void drop_pinned(void) {
  begin();
  uint32_t *librarys = pinned_memory(4);
  fakecuda_mine(1);
  uint32_t *own = pinned_memory(4);
  fakecuda_drop_pinned(1);
  CHECK_EQ(1, fakecuda_live(FAKECUDA_PINNED_MEMORY));
  fakecuda_drop_pinned(0);
  CHECK_EQ(0, fakecuda_live(FAKECUDA_PINNED_MEMORY));
  CHECK_EQ(0, fakecuda_pinned_bytes());
  CHECK_EQ(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(librarys));
  OK(cuMemFreeHost(own));
}
static void a_test_may_free_pinned_memory_of_the_library(void) { in_a_process("", drop_pinned); }

static void fail_to_begin(void) {
  int version = 0;
  CHECK_EQ(atoi(getenv("WANTED")), cuInit(0));
  CHECK_EQ(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&version));
  OK(cuDriverGetVersion(&version));
  CHECK_EQ(11040, version);
}
static void initialization_may_fail(void) {
  setenv("WANTED", "34", 1);
  in_a_process("INIT=34 DRIVER_VERSION=11040", fail_to_begin);
  setenv("WANTED", "100", 1);
  in_a_process("DEVICES=0 DRIVER_VERSION=11040", fail_to_begin);
}

static void ask_for_names(void) {
  const char *text = "";
  OK(cuGetErrorName(906, &text));
  CHECK_EQ(0, strcmp(text, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"));
  OK(cuGetErrorString(2, &text));
  CHECK_EQ(0, strcmp(text, "out of memory"));
  CHECK_EQ(CUDA_ERROR_INVALID_VALUE, cuGetErrorName(12345, &text));
  CHECK(text == NULL);
}
static void codes_have_names_unless_they_are_unknown(void) { in_a_process("", ask_for_names); }

static void *symbol(void *library, const char *name) {
  return library ? dlsym(library, name) : NULL;
}
static void a_driver_may_lack_memory_operations(void) {
  const char *path = getenv("DRIVER_WITHOUT_MEMOPS");
  path ? check_parts++ : check_parts_skipped++;
  if (!path) return;
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  CHECK(symbol(library, "cuMemcpyAsync") != NULL);
  CHECK(symbol(library, "cuStreamWaitValue32_v2") == NULL);
  CHECK(symbol(library, "cuStreamWriteValue32_v2") == NULL);
}

/* Leaks. */

static void leave_all(void) {
  CUevent event;
  begin();
  stream_of(0);
  OK(cuEventCreate(&event, 0));
  pinned_memory(5000);
  device_memory(1);
}
static void *push_in_a_thread(void *context) {
  OK(cuCtxPushCurrent_v2(context));
  return NULL;
}
static void leave_nothing(void) {
  CUevent event;
  CUcontext context;
  fakecuda_mine(1);
  leave_all(); /* the test's own objects are not reported */
  fakecuda_mine(0);
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  CUstream stream = stream_of(0);
  OK(cuEventCreate(&event, 0));
  uint32_t *pinned = pinned_memory(5000);
  CHECK_EQ(1, fakecuda_live(FAKECUDA_STREAM));
  CHECK_EQ(1, fakecuda_live(FAKECUDA_PINNED_MEMORY));
  CHECK_EQ(5000, fakecuda_pinned_bytes());
  OK(cuMemFreeHost(pinned));
  OK(cuEventDestroy_v2(event));
  OK(cuStreamDestroy_v2(stream));
  OK(cuDevicePrimaryCtxRelease_v2(0));
  CHECK_EQ(0, fakecuda_pinned_bytes());
  CHECK_EQ(5000, fakecuda_most_pinned_bytes());
  CHECK_EQ(0, fakecuda_report_leaks());
}
static void push_and_not_pop(void) {
  CUcontext context;
  begin();
  OK(cuCtxGetCurrent(&context));
  on_a_thread(push_in_a_thread, context);
  CHECK_EQ(1, fakecuda_live(FAKECUDA_PUSH));
}
static void leaks_of_the_library_are_reported_at_exit(void) {
  struct ended ended = run_child("LEAKS=abort", leave_all);
  CHECK_EQ(97, WEXITSTATUS(ended.status));
  CHECK_TEXT(ended.stderr_text, "leaked: 1 streams");
  CHECK_TEXT(ended.stderr_text, "leaked: 1 events");
  CHECK_TEXT(ended.stderr_text, "leaked: 1 retains of primary contexts");
  CHECK_TEXT(ended.stderr_text, "leaked: 1 allocations of pinned memory");
  in_a_process("LEAKS=report", leave_all);
  in_a_process("LEAKS=abort", leave_nothing);
  in_a_process("", push_and_not_pop);
}

static void end_with_a_held_stream(void) {
  begin();
  fakecuda_hold(NULL);
}
static void the_end_of_a_process_may_wait_for_its_streams(void) {
  in_a_process("", end_with_a_held_stream);
  dies("EXIT_WAIT=1 STALL_MS=50", end_with_a_held_stream, SIGABRT, "the end of the process");
}

static void call_in_a_child(void) {
  begin();
  int count;
  pid_t child = fork();
  if (child == 0) _exit((int)cuDeviceGetCount(&count));
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK_EQ(CUDA_ERROR_NOT_INITIALIZED, WEXITSTATUS(status));
}
static void a_forked_child_has_no_driver(void) { in_a_process("", call_in_a_child); }

/* The trace, compared without times. */

static void write_a_trace(void) {
  begin();
  char line[200], text[2000] = "";
  CUdeviceptr memory = device_memory(64), host = address_of(pinned_memory(64));
  CUstream stream = stream_of(CU_STREAM_NON_BLOCKING);
  fakecuda_reset_trace();
  uint64_t hold = fakecuda_hold(stream);
  OK(cuMemcpyAsync(host, memory, 64, stream));
  OK(cuStreamWriteValue32_v2(stream, host, 9, 0));
  fakecuda_release(hold);
  fakecuda_mine(1);
  OK(cuStreamSynchronize(stream));
  FILE *file = read_trace();
  while (fgets(line, sizeof line, file)) strcat(text, strchr(line, ' '));
  fclose(file);
  /* A stream may begin its first operation at any time. */
  char *begins = strstr(text, " begin 1 hold 0 0\n");
  CHECK(begins != NULL);
  if (begins) memmove(begins, begins + 18, strlen(begins + 18) + 1);
  CHECK_TEXT(text, " call - cuMemcpyAsync 0 0\n call - cuStreamWriteValue32_v2 0 0\n"
                   " end 1 hold 0 0\n begin 1 D2H 64 0\n end 1 D2H 64 0\n"
                   " begin 1 write 4 9\n end 1 write 4 9\n");
}
static char *trace_path(char *path, size_t size, int process) {
  snprintf(path, size, "/tmp/fake_cuda_trace.%d", process);
  return path;
}
static void find_a_trace(void) {
  char path[100];
  int status;
  pid_t child = fork();
  if (child == 0) {
    begin();
    exit(check_failures != 0);
  }
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK_EQ(0, unlink(trace_path(path, sizeof path, (int)child)));
}
static void the_trace_records_events_in_order(void) {
  in_a_process("", write_a_trace);
  in_a_process("TRACE=/tmp/fake_cuda_trace.%p", find_a_trace);
}

static const struct test_case cases[] = {
    CASE(streams_that_share_a_queue_wait_for_each_other),
    CASE(host_functions_may_be_run_one_at_a_time),
    CASE(a_full_queue_blocks_the_caller),
    CASE(a_query_need_not_depend_on_timing),
    CASE(allocating_may_wait_for_the_device),
    CASE(work_on_freed_memory_breaks_the_context),
    CASE(host_functions_must_not_call),
    CASE(threads_of_the_library_must_not_call),
    CASE(an_armed_failure_hits_the_nth_call_of_the_library),
    CASE(a_test_may_change_settings_of_the_environment),
    CASE(a_failure_of_an_unknown_function_ends_the_process),
    CASE(an_error_of_the_device_is_sticky_and_stops_its_streams),
    CASE(a_test_may_break_a_device),
    CASE(a_test_may_free_pinned_memory_of_the_library),
    CASE(initialization_may_fail),
    CASE(codes_have_names_unless_they_are_unknown),
    CASE(a_driver_may_lack_memory_operations),
    CASE(leaks_of_the_library_are_reported_at_exit),
    CASE(the_end_of_a_process_may_wait_for_its_streams),
    CASE(a_forked_child_has_no_driver),
    CASE(the_trace_records_events_in_order),
};

int main(void) { return RUN(cases); }
