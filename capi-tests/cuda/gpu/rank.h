/*
 * What every check works with: the rank that it runs as, streams, memory, and how it fails.
 *
 * A rank is a thread; what belongs to it is in `me`. Buffers are laid out as
 *
 *     | filler | elements | filler |      of a block of device memory, and of three images in host
 *                                         memory: what goes in, what is wanted, what comes back
 *
 * and compared as a whole, so that a byte written beside an element is seen too.
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

/* In the order in which the worst of all ranks counts. */
enum status { PASSED, SKIPPED, FAILED };

enum { NULL_STREAM, LEGACY, PER_THREAD, BLOCKING, NON_BLOCKING, STREAMS };

struct area {
  CUdeviceptr device;
  unsigned char *image, *wanted, *back; /* the first and the last are pinned */
};

struct rank {
  int rank, n, device;
  CUcontext context;
  nexarComm_t world; /* for the checks' own needs, on host memory alone */
  nexarComm_t comm;  /* of the check; NULL if it has ended it */
  CUstream streams[STREAMS];
  struct area send, recv;
  const char *without_memops; /* why streams cannot wait for numbers; NULL: they can */
  size_t room; /* bytes of each of them, for elements */
  size_t most; /* bytes that a call of the figures may have */
  enum status status;
  int cases;
  char doing[200], detail[DETAIL];
};

extern _Thread_local struct rank *me;
extern const char *const stream_names[STREAMS];

/* The first failure of a check is told. */
void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
void skip(const char *why);
/* What is being tried, for the text of a failure. */
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

/* All ranks have come here. What gets or frees memory may wait for the work of a device, and that
   for other ranks: so it is between two of these, or no rank has work. */
void wait_for_all(void);

/* Element i of what a rank sends, below the modulus. */
static inline uint32_t number_of(int rank, size_t i, uint32_t modulus) {
  uint32_t mixed = ((uint32_t)i + 1) * 2654435761u + (uint32_t)rank * 0x9E3779B9u;
  return (mixed ^ mixed >> 15) % modulus;
}

/* The rank begins and ends: context, streams, memory. */
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

/* Not checked: figures. */
void print_figures(void);

#endif
