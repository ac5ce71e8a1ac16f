/*
 * Shared by all checks: the rank of a check, its streams and memory, and how a check fails.
 *
 * A rank is a thread; its state is in `me`. A block of device memory, and its three images in host
 * memory (input, expected result, actual result), have the layout
 *
 *     | filler | elements | filler |
 *
 * and are compared as a whole, so that a byte written beside the elements is found too.
 */
#ifndef GPU_RANK_H
#define GPU_RANK_H

#include <nexar.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "driver.h"

enum { MOST_RANKS = 32, FILLER = 0xA5, MARGIN = 256, DETAIL = 400 };

/* From best to worst: the outcome of a check is that of the worst rank. */
enum status { PASSED, SKIPPED, FAILED };

enum { NULL_STREAM, LEGACY, PER_THREAD, BLOCKING, NON_BLOCKING, STREAMS };

struct area {
  CUdeviceptr device;
  unsigned char *image, *wanted, *back; /* the first and the last are pinned */
};

struct rank {
  int rank, n, device;
  CUcontext context;
  nexarComm_t world; /* for calls of gpu_check itself, on host memory alone */
  nexarComm_t comm;  /* of the check; NULL if the check has ended it */
  CUstream streams[STREAMS];
  struct area send, recv;
  const char *without_memops; /* why streams cannot await values; NULL: they can */
  size_t room; /* bytes for elements in each area */
  size_t most; /* most bytes of a call of the figures */
  enum status status;
  int cases;
  char doing[200], detail[DETAIL];
};

extern _Thread_local struct rank *me;
extern const char *const stream_names[STREAMS];

/* Records the failure of a check, unless it has failed before. */
void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
void skip(const char *why);
/* Sets the text of the current step, for failure messages. */
void doing(const char *format, ...) __attribute__((format(printf, 1, 2)));

bool check_cuda(CUresult code, const char *call);
bool check_nexar(nexarResult_t wanted, nexarResult_t result, const char *call);
#define CU(call) check_cuda(cuda.call, #call)
#define OK(call) check_nexar(nexarSuccess, call, #call)
#define GIVES(wanted, call) check_nexar(wanted, call, #call)

double seconds(void);
static inline void *at(CUdeviceptr address) { return (void *)(uintptr_t)address; }
void *pinned(size_t bytes);
CUdeviceptr address_of_pinned(void *memory);

/* Collective: a barrier. Calls that allocate or free memory may wait for the work of a device, and
   that for other ranks: so they must be between two barriers, or no rank may have work. */
void wait_for_all(void);

/* Element i that a rank sends; less than the modulus. */
static inline uint32_t number_of(int rank, size_t i, uint32_t modulus) {
  uint32_t mixed = ((uint32_t)i + 1) * 2654435761u + (uint32_t)rank * 0x9E3779B9u;
  return (mixed ^ mixed >> 15) % modulus;
}

/* Create and destroy the context, streams and memory of a rank. */
void begin_rank(struct rank *rank, size_t room, size_t most);
void end_rank(void);

/* The checks. */
void try_collectives(const char *name);
void try_operators(void);
void try_order(void);
void try_two_streams(void);
void try_group(void);
void try_return_before(void);
void try_memory_kinds(void);
void try_managed(void);
void try_registered(void);
void try_pool(void);
void try_thread_without_context(void);
void try_other_device(void);
void try_capture(void);
void try_mismatch(void);
void try_abort(void);

/* Prints the figures, which are not checked. */
void print_figures(void);

#endif
