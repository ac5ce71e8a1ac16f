/*
 * The fake driver: a CUDA driver without a device, for tests. Its libcuda.so.1 has device memory
 * that no processor can access and streams that run asynchronously, and does what is inconvenient
 * but allowed. It shows that the right threads make calls in the right order and that errors are
 * handled. It shows neither speed, nor undocumented behaviour of a real driver.
 *
 * This file is the map, and the end of the process. The rest is in fake/. Nothing is installed:
 *
 *     api.h        the driver API          control.h    functions for tests
 *     call.c       the entry of all calls  failure.c    injected failures
 *     settings.c   the environment         objects.c    counts of live objects
 *     device.c     devices                 context.c    contexts and their stacks
 *     memory.c     memory and addresses    allocate.c   allocating and freeing
 *     pointer.c    queries of addresses    copy.c       copies and fills
 *     engine.c     execution of streams    stream.c     calls on streams
 *     event.c      events                  memops.c     writing and awaiting values
 *     launch.c     code run by streams     capture.c    streams under capture
 *     trace.c      the trace of events     error.c      names of codes
 *
 * The settings in the environment with their defaults (each name begins with FAKECUDA_):
 *
 *     DEVICES=2            number of devices, up to 16; 0: cuInit finds none
 *     INIT=0               result of cuInit: 34 a stub, 100 no device, 803 mismatched versions
 *     DRIVER_VERSION=12040
 *     MEMORY_MB=8192       of each device
 *     MANAGED_HOST=0       1: the processor can access managed memory
 *     MANAGED_TYPE=2       the memory type of managed memory: 1 host, 2 device
 *     REGISTERED_ALIAS=0   1: registered memory has another address for the device
 *     LATENCY_US=0         before each operation; 50-500: at random between these
 *     SEED=1               of all random choices
 *     COPY_MBPS=0          speed of copies between host and device, each way; 0: unlimited
 *     HWQ=0                hardware queues that the streams of a device share; 0: one for each
 *     SERIAL_HOSTFN=0      1: host functions of all streams run one at a time
 *     QUEUE_DEPTH=1000     uncompleted operations of a stream; the next enqueue blocks
 *     SETTLE=0             1: cuStreamQuery returns when the stream is idle or waits for a value
 *                          or a hold, so that the number of its calls does not depend on timing
 *     ALLOC_SYNC=all       whose calls that allocate, free or create streams wait for the work of
 *                          the device: all, library (not the test's own), off
 *     ALLOC_SYNC_DEVICES=own   all: these calls wait for the work of every device, as calls that
 *                          free or unregister host memory always do
 *     STALL_MS=60000       how long such a call waits before it ends the process with a message
 *     NO_MEMOPS=0          1: memory operations are not supported (801)
 *     FORBID_THREADS=nexar      a list of prefixes: threads with such names must make no CUDA call
 *     ALLOW_THREADS=nexar-init  except these
 *     FAIL=                a list of function:nth:code; * is any function of the library's, nth+
 *                          means all later calls too
 *     TRACE=               file for the trace at the end; %p in it is the process id
 *     LEAKS=               at the end: report prints the objects that the library has leaked,
 *                          abort also makes the process fail
 *     EXIT_WAIT=0          1: the end of the process waits for all streams, as a driver may
 *
 * After the end of the process every call returns DEINITIALIZED.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fake/engine.h"
#include "fake/trace.h"

enum { EXIT_LEAKED = 97 };

__attribute__((destructor)) static void end_of_process(void) {
  if (!driver_is_used() || is_forked_child()) return;
  if (number_setting(SETTING_EXIT_WAIT)) {
    this_thread.call = NULL;
    lock_engine();
    wait_for_context(NULL, WAIT_OR_DIE);
    unlock_engine();
  }
  become_deinitialized();
  dump_trace_of_environment();
  const char *leaks = text_setting(SETTING_LEAKS);
  if (!*leaks || !fakecuda_report_leaks() || strcmp(leaks, "abort") != 0) return;
  fflush(NULL);
  _exit(EXIT_LEAKED);
}
