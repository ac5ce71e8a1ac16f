/*
 * A CUDA driver without a device, for tests: libcuda.so.1 whose device memory no processor can
 * touch, whose streams run in their own time, and which does whatever is inconvenient and allowed.
 * It shows that calls are made in the right order by the right threads and that errors are handled.
 * It does not show how fast anything is, nor what a real driver does that its documentation does
 * not say.
 *
 * This file is the map, and the end of the process. The rest is in fake/, and none of it is
 * installed:
 *
 *     api.h        the driver API          control.h    what only tests call
 *     call.c       the door of all calls   failure.c    calls that fail on purpose
 *     settings.c   the environment         objects.c    what was not given back
 *     device.c     devices                 context.c    contexts and their stacks
 *     memory.c     memory and addresses    allocate.c   getting and freeing it
 *     pointer.c    what an address is      copy.c       copies and fills
 *     engine.c     streams at work         stream.c     calls on streams
 *     event.c      events                  memops.c     writing and awaiting numbers
 *     launch.c     code run by streams     capture.c    streams under capture
 *     trace.c      what happened when      error.c      names of codes
 *
 * The environment, and what holds without it (each name begins with FAKECUDA_):
 *
 *     DEVICES=2            how many there are, up to 16; 0: cuInit finds none
 *     INIT=0               what cuInit returns: 34 a stub, 100 no device, 803 versions that differ
 *     DRIVER_VERSION=12040
 *     MEMORY_MB=8192       of each device
 *     MANAGED_HOST=0       1: the processor can touch managed memory
 *     MANAGED_TYPE=2       the memory type of managed memory: 1 host, 2 device
 *     REGISTERED_ALIAS=0   1: registered memory has another address for the device
 *     LATENCY_US=0         before each operation; 50-500: at random between these
 *     SEED=1               of what is random
 *     COPY_MBPS=0          of copies between host and device, each way; 0: as fast as can be
 *     HWQ=0                streams of a device share so many queues; 0: each has its own
 *     SERIAL_HOSTFN=0      1: host functions of all streams run one at a time
 *     QUEUE_DEPTH=1000     operations of a stream that have not ended; one more has to wait
 *     SETTLE=0             1: cuStreamQuery answers when the stream is idle or waits for a number or a
 *                          hold, so that how often it is called does not depend on timing
 *     ALLOC_SYNC=all       whose calls that allocate, free or make streams wait for the work of the
 *                          device: all, library (not the test's own), off
 *     ALLOC_SYNC_DEVICES=own   all: they wait for the work of every device, as the calls that free
 *                          or unregister host memory do in any case
 *     STALL_MS=60000       how long such a call waits before the process is ended with a message
 *     NO_MEMOPS=0          1: memory operations are not supported (801)
 *     FORBID_THREADS=nexar      names of threads that must make no CUDA call begin so: a list
 *     ALLOW_THREADS=nexar-init  but these may
 *     FAIL=                function:nth:code, a list; * is any function of the library's, nth+ also
 *                          all after it
 *     TRACE=               file for the trace at the end; %p in it is the process
 *     LEAKS=               at the end: report prints what the library has not given back,
 *                          abort makes that the failure of the process
 *     EXIT_WAIT=0          1: the end of the process waits for all streams, as a driver may
 *
 * The end of the process is the last thing: after it every call returns DEINITIALIZED.
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
