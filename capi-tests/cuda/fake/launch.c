/*
 * Code of the program that streams run: host functions, the kernels of tests, and operations that
 * last until a test releases them.
 *
 * Such code must make no CUDA call: begin_call checks what its thread is running.
 */
#include <stdlib.h>

#include "engine.h"

/* With FAKECUDA_SERIAL_HOSTFN host functions run one at a time, as a driver may run them. */
static pthread_mutex_t serial = PTHREAD_MUTEX_INITIALIZER;

static CUresult run_host_function(struct operation *operation) {
  bool alone = number_setting(SETTING_SERIAL_HOSTFN);
  if (alone) pthread_mutex_lock(&serial);
  this_thread.running = "host function";
  operation->host.function(operation->host.argument);
  this_thread.running = NULL;
  if (alone) pthread_mutex_unlock(&serial);
  return CUDA_SUCCESS;
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *argument) {
  BEGIN(cuLaunchHostFunc);
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  struct operation *operation = new_operation("hostfn", run_host_function);
  operation->host.function = function;
  operation->host.argument = argument;
  return enqueue(stream, operation);
}

/* Checks calls of tests that do not pass begin_call. */
static CUresult check_caller(void) {
  if (this_thread.running) die("a launch was made inside a %s", this_thread.running);
  return check_current_context();
}

static CUresult run_kernel(struct operation *operation) {
  void *buffers[FAKECUDA_MOST_BUFFERS];
  for (int i = 0; i < FAKECUDA_MOST_BUFFERS; i++) buffers[i] = operation->spans[i].bytes;
  this_thread.running = "kernel";
  operation->kernel.kernel(buffers, operation->kernel.argument);
  this_thread.running = NULL;
  return CUDA_SUCCESS;
}

CUresult fakecuda_launch(CUstream stream, fakecuda_kernel *kernel,
                         const struct fakecuda_buffer *buffers, unsigned count, void *argument) {
  CUresult code = check_caller();
  if (count > FAKECUDA_MOST_BUFFERS) code = CUDA_ERROR_INVALID_VALUE;
  if (code != CUDA_SUCCESS) return code;
  struct operation *operation = new_operation("kernel", run_kernel);
  operation->kernel.kernel = kernel;
  operation->kernel.argument = argument;
  for (unsigned i = 0; i < count && code == CUDA_SUCCESS; i++) {
    code = find_span(buffers[i].address, buffers[i].bytes, &operation->spans[i]);
    operation->bytes += buffers[i].bytes;
  }
  if (code == CUDA_SUCCESS) return enqueue(stream, operation);
  drop_operation(operation);
  return code;
}

struct elements {
  size_t count;
  uint32_t first, step;
  uint64_t *sum;
};

/* The kernel frees its argument. If the context breaks before, the argument leaks. */
static CUresult launch_on_elements(CUstream stream, fakecuda_kernel *kernel, CUdeviceptr one,
                                   CUdeviceptr other, struct elements elements) {
  size_t bytes = elements.count * sizeof(uint32_t);
  struct fakecuda_buffer buffers[] = {{one, bytes}, {other, bytes}};
  struct elements *argument = malloc(sizeof *argument);
  if (!argument) die("no memory for a kernel");
  *argument = elements;
  CUresult code = fakecuda_launch(stream, kernel, buffers, other ? 2 : 1, argument);
  if (code != CUDA_SUCCESS) free(argument);
  return code;
}

static void fill(void *const *buffers, void *argument) {
  struct elements *elements = argument;
  uint32_t *to = buffers[0];
  for (size_t i = 0; i < elements->count; i++)
    to[i] = elements->first + (uint32_t)i * elements->step;
  free(elements);
}

CUresult fakecuda_fill(CUstream stream, CUdeviceptr to, size_t count, uint32_t first,
                       uint32_t step) {
  return launch_on_elements(stream, fill, to, 0, (struct elements){count, first, step, NULL});
}

static void add(void *const *buffers, void *argument) {
  struct elements *elements = argument;
  uint32_t *to = buffers[0];
  const uint32_t *from = buffers[1];
  for (size_t i = 0; i < elements->count; i++) to[i] += from[i];
  free(elements);
}

CUresult fakecuda_add(CUstream stream, CUdeviceptr to, CUdeviceptr from, size_t count) {
  return launch_on_elements(stream, add, to, from, (struct elements){count, 0, 0, NULL});
}

static void sum(void *const *buffers, void *argument) {
  struct elements *elements = argument;
  const uint32_t *from = buffers[0];
  uint64_t total = 0;
  for (size_t i = 0; i < elements->count; i++) total += from[i];
  *elements->sum = total;
  free(elements);
}

CUresult fakecuda_sum(CUstream stream, CUdeviceptr from, size_t count, uint64_t *total) {
  return launch_on_elements(stream, sum, from, 0, (struct elements){count, 0, 0, total});
}

/* The holds that were not released, under the lock of the engine. */
static struct hold {
  uint64_t number;
  struct hold *next;
} *holds;
static uint64_t last_hold;

static struct hold **find_hold(uint64_t number) {
  struct hold **link = &holds;
  while (*link && (*link)->number != number) link = &(*link)->next;
  return link;
}

static bool is_held(const struct operation *operation) { return *find_hold(operation->hold); }

static CUresult run_hold(struct operation *operation) {
  lock_engine();
  while (*find_hold(operation->hold) && !atomic_load(&operation->stream->context->broken))
    await_progress();
  unlock_engine();
  return CUDA_SUCCESS;
}

uint64_t fakecuda_hold(CUstream stream) {
  if (check_caller() != CUDA_SUCCESS) return 0;
  struct hold *hold = malloc(sizeof *hold);
  if (!hold) die("no memory for a hold");
  struct operation *operation = new_operation("hold", run_hold);
  operation->is_blocked = is_held;
  lock_engine();
  uint64_t number = ++last_hold;
  *hold = (struct hold){number, holds};
  holds = hold;
  unlock_engine();
  operation->hold = number;
  if (enqueue(stream, operation) == CUDA_SUCCESS) return number;
  fakecuda_release(number);
  return 0;
}

void fakecuda_release(uint64_t number) {
  lock_engine();
  struct hold **link = find_hold(number), *hold = *link;
  if (hold) *link = hold->next;
  free(hold);
  announce_progress();
  unlock_engine();
}
