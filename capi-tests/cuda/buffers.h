/*
 * Jobs whose buffers are in memory of every kind, on streams of every kind, which each rank takes
 * in turn. The stream fills the buffer, executes the call and copies the result out; nothing but
 * the stream orders these steps.
 */
#ifndef BUFFERS_H
#define BUFFERS_H

#include <malloc.h>

#include "support/collectives.h"
#include "own_calls.h"

enum memory {
  DEVICE,
  PLAIN,
  POOL,
  PINNED,
  MANAGED,
  ARENA,      /* of nexarMemAlloc */
  REGISTERED, /* by the device's address, which may differ from the host's */
  MEMORIES
};
static const char *const memory_names[] = {"device",  "plain", "pool",      "pinned",
                                           "managed", "arena", "registered"};
/* Half are device memory. Their number is prime, so that each kind is combined with all others. */
static const enum memory memories_in_turn[] = {DEVICE, PLAIN, DEVICE, POOL,  PINNED, DEVICE,
                                               MANAGED, DEVICE, POOL, ARENA, DEVICE,
                                               REGISTERED, DEVICE};

enum { OF_NULL, OF_LEGACY, OF_THREAD, BLOCKING, NON_BLOCKING, STREAMS };

static inline bool is_on_device(enum memory memory) {
  const char *alias = getenv("FAKECUDA_REGISTERED_ALIAS");
  bool has_other_address = alias && atoi(alias);
  return memory == DEVICE || memory == POOL || memory == MANAGED ||
         (memory == REGISTERED && has_other_address);
}

/* Memory that jobs reuse one after another. */
struct arena {
  unsigned char *at;
  size_t bytes;
};

/* The memory of a job's buffer: filled from one pinned arena, copied out to another. */
struct lent {
  enum memory memory;
  size_t bytes; /* including the guards around the buffer */
  unsigned char *at;
  struct arena arenas[MEMORIES], filled_from, copied_to;
};

static struct {
  struct lent lent[2];
  CUstream streams[STREAMS];
  unsigned jobs;
  unsigned depth;
  uint64_t allocations;
} borrowed;

static inline CUdeviceptr register_memory(size_t bytes) {
  CUdeviceptr address = 0;
  void *host = NULL;
  if (posix_memalign(&host, 4096, bytes)) abort();
  DO(cuMemHostRegister_v2(host, bytes, CU_MEMHOSTALLOC_DEVICEMAP));
  DO(cuMemHostGetDevicePointer_v2(&address, host, 0));
  return address;
}

static inline void unregister_memory(CUdeviceptr address) {
  void *host = fakecuda_view(address, 1);
  DO(cuMemHostUnregister(host));
  free(host);
}

static inline void free_arena(struct arena *arena, enum memory memory) {
  CUdeviceptr address = address_of(arena->at);
  if (!arena->bytes) return;
  switch (memory) {
    case PLAIN: free(arena->at); break;
    case ARENA: CHECK_CODE(nexarSuccess, nexarMemFree(arena->at)); break;
    case PINNED: DO(cuMemFreeHost(arena->at)); break;
    case REGISTERED: unregister_memory(address); break;
    case POOL: DO(cuMemFreeAsync(address, borrowed.streams[NON_BLOCKING])); break;
    default: DO(cuMemFree_v2(address));
  }
  *arena = (struct arena){NULL, 0};
}

static inline void get_arena(struct arena *arena, enum memory memory, size_t bytes) {
  CUdeviceptr address = 0;
  void *host = NULL;
  if (bytes <= arena->bytes) return;
  free_arena(arena, memory);
  switch (memory) {
    case PLAIN: host = malloc(bytes); break;
    case ARENA: CHECK_CODE(nexarSuccess, nexarMemAlloc(&host, bytes)); break;
    case PINNED: MINE(host = pinned_memory(bytes)); break;
    case DEVICE: MINE(address = device_memory(bytes)); break;
    case REGISTERED: address = register_memory(bytes); break;
    case MANAGED: DO(cuMemAllocManaged(&address, bytes, CU_MEM_ATTACH_GLOBAL)); break;
    default: DO(cuMemAllocAsync(&address, bytes, borrowed.streams[NON_BLOCKING])); break;
  }
  if (!host && !address) abort();
  *arena = (struct arena){host ? host : (void *)(uintptr_t)address, bytes};
}

struct host_copy {
  void *to;
  const void *from;
  size_t bytes;
};

static inline void run_host_copy(void *argument) {
  struct host_copy *copy = argument;
  memcpy(copy->to, copy->from, copy->bytes);
  free(copy);
}

/* Enqueues a copy. For memory where a copy of the driver would block, enqueues a host function. */
static inline void copy_on_stream(void *to, const void *from, size_t bytes, enum memory memory,
                                  CUstream stream) {
  if (memory != PLAIN && memory != ARENA) {
    DO(cuMemcpyAsync(address_of(to), address_of(from), bytes, stream));
    return;
  }
  struct host_copy *copy = malloc(sizeof *copy);
  if (!copy) abort();
  *copy = (struct host_copy){to, from, bytes};
  DO(cuLaunchHostFunc(stream, run_host_copy, copy));
}

static inline size_t shift_of(const struct guarded *image) {
  return (size_t)(image->at - image->block) - GUARD;
}

static inline void lend_one(struct lent *lent, const struct guarded *image, enum memory memory,
                            CUstream stream) {
  size_t shift = shift_of(image);
  lent->memory = memory;
  lent->bytes = 2 * GUARD + image->bytes;
  get_arena(&lent->arenas[memory], memory, shift + lent->bytes);
  get_arena(&lent->filled_from, PINNED, lent->bytes);
  get_arena(&lent->copied_to, PINNED, lent->bytes);
  lent->at = lent->arenas[memory].at + shift;
  memcpy(lent->filled_from.at, image->at - GUARD, lent->bytes);
  memset(lent->copied_to.at, 0x22, lent->bytes);
  copy_on_stream(lent->at, lent->filled_from.at, lent->bytes, memory, stream);
}

/* The library ignores a buffer without elements, wherever it is. */
static inline bool has_elements(const struct layout *layout) {
  size_t elements = 0;
  for (int i = 0; i < layout->number; i++) elements += layout->blocks[i].count;
  return elements > 0;
}

/* Whether the call is in stream order. On stream NULL a call on host memory is not. */
static inline bool is_in_order(const struct share *share, int number) {
  if (share->stream) return true;
  bool used[] = {has_elements(&share->send), has_elements(&share->recv)};
  bool first = is_on_device(borrowed.lent[0].memory);
  bool last = is_on_device(borrowed.lent[number - 1].memory);
  return (used[0] && first) || (used[1] && last);
}

static inline void lend(struct share *share, const struct guarded *images, int number,
                        unsigned char **at) {
  unsigned turn = borrowed.jobs++ + 3 * (unsigned)share->rank;
  unsigned stream = (turn + turn / 7) % STREAMS;
  share->stream = borrowed.streams[stream];
  for (int i = 0; i < number; i++) {
    size_t all = COUNT_OF(memories_in_turn), which = (turn + (size_t)i * (1 + turn / all)) % all;
    lend_one(&borrowed.lent[i], &images[i], memories_in_turn[which], share->stream);
    at[i] = borrowed.lent[i].at + GUARD;
  }
  size_t length = strlen(share->what);
  snprintf(share->what + length, sizeof share->what - length, ", job %u, stream %u, %s %s",
           borrowed.jobs - 1, stream, memory_names[borrowed.lent[0].memory],
           number > 1 ? memory_names[borrowed.lent[1].memory] : "");
  if (!is_in_order(share, number)) DO(cuStreamSynchronize(NULL));
  share->operator.by_any_thread = true;
  borrowed.depth = fakecuda_context_depth();
  borrowed.allocations = fakecuda_calls("cuMemHostAlloc");
}

static inline void give_back(struct share *share, const struct guarded *images, int number) {
  CHECK_EQ(borrowed.depth, fakecuda_context_depth());
  CHECK_EQ(borrowed.allocations, fakecuda_calls("cuMemHostAlloc"));
  for (int i = 0; i < number; i++) {
    struct lent *lent = &borrowed.lent[i];
    copy_on_stream(lent->copied_to.at, lent->at, lent->bytes, lent->memory, share->stream);
  }
  DO(cuStreamSynchronize(share->stream));
  for (int i = 0; i < number; i++) {
    struct lent *lent = &borrowed.lent[i];
    memcpy(images[i].at - GUARD, lent->copied_to.at, lent->bytes);
    /* Keeps large memory only on the device, where most jobs need it. */
    if (lent->bytes > 1 << 20 && lent->memory != DEVICE)
      free_arena(&lent->arenas[lent->memory], lent->memory);
  }
}

static const struct elsewhere on_streams = {lend, give_back};

/* From here on run_job uses memory and streams of CUDA. */
static inline void begin_elsewhere(void) {
  int before = fakecuda_mine(1);
  begin();
  borrowed.streams[OF_LEGACY] = CU_STREAM_LEGACY;
  borrowed.streams[OF_THREAD] = CU_STREAM_PER_THREAD;
  borrowed.streams[BLOCKING] = stream_of(CU_STREAM_DEFAULT);
  borrowed.streams[NON_BLOCKING] = stream_of(CU_STREAM_NON_BLOCKING);
  fakecuda_mine(before);
  /* Images are allocated again and again: page faults would take most of the time. */
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  elsewhere = &on_streams;
}

#endif
