/*
 * The map from addresses to memory that CUDA knows, and the memory itself. Leaves the calls that
 * allocate to allocate.c, and queries of addresses to pointer.c.
 *
 * Device addresses are in one region that the processor can never access, except managed memory
 * with FAKECUDA_MANAGED_HOST; the engine maps the same bytes elsewhere. An address is reused as
 * soon as it has no references. New memory is not zeroed: each MiB begins with bytes of 0xA5.
 */
#include "memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "context.h"

enum { NEW_BYTE = 0xA5 };
static const size_t REGION_BYTES = (size_t)1 << 38;

/* Used addresses of the region, in order; a gap between two blocks is free. */
struct block {
  CUdeviceptr start;
  size_t size;
  struct block *next;
};

/* The map, in order; a range has two entries if its host and device addresses differ. */
struct entry {
  CUdeviceptr start;
  struct range *range;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry *entries;
static size_t entry_count, entry_space;
static struct block *blocks;
static CUdeviceptr region;
static size_t in_use[MOST_DEVICES];
static uint64_t last_id;

static size_t in_pages(size_t bytes) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  return (bytes + page - 1) / page * page;
}

static void *map(void *address, size_t bytes, int protection, int flags, int file) {
  void *mapped = mmap(address, in_pages(bytes), protection, flags, file, 0);
  if (mapped == MAP_FAILED) die("cannot map %zu bytes", bytes);
  return mapped;
}

static bool is_in_region(CUdeviceptr address) {
  return region && address >= region && address - region < REGION_BYTES;
}

bool is_on_device(const struct range *range) {
  return range && range->kind <= MANAGED_MEMORY;
}

/* Takes the first gap, so that freed addresses are soon reused. */
static CUdeviceptr take_addresses(size_t bytes) {
  if (!region) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    region = (CUdeviceptr)(uintptr_t)map(NULL, REGION_BYTES, PROT_NONE, flags, -1);
  }
  CUdeviceptr start = region;
  struct block **link = &blocks;
  for (; *link && (*link)->start - start < bytes; link = &(*link)->next)
    start = (*link)->start + (*link)->size;
  if (start + bytes > region + REGION_BYTES) die("all addresses of devices are in use");
  struct block *block = malloc(sizeof *block);
  if (!block) die("no memory for a block");
  *block = (struct block){start, bytes, *link};
  *link = block;
  return start;
}

static void return_addresses(CUdeviceptr start) {
  struct block **link = &blocks;
  while ((*link)->start != start) link = &(*link)->next;
  struct block *block = *link;
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  map((void *)(uintptr_t)start, block->size, PROT_NONE, flags, -1);
  *link = block->next;
  free(block);
}

static void map_on_device(struct range *range) {
  bool reachable = range->kind == MANAGED_MEMORY && number_setting(SETTING_MANAGED_HOST);
  range->device_base = take_addresses(in_pages(range->size));
  int file = memfd_create("fake-cuda", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, (off_t)in_pages(range->size)) != 0) die("no device memory");
  range->bytes = map(NULL, range->size, PROT_READ | PROT_WRITE, MAP_SHARED, file);
  map((void *)(uintptr_t)range->device_base, range->size,
      reachable ? PROT_READ | PROT_WRITE : PROT_NONE, MAP_SHARED | MAP_FIXED, file);
  close(file);
  if (range->kind == MANAGED_MEMORY)
    range->host_base = (unsigned char *)(uintptr_t)range->device_base;
}

static void map_on_host(struct range *range) {
  range->bytes = map(NULL, range->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  range->host_base = range->bytes;
  range->device_base = (CUdeviceptr)(uintptr_t)range->bytes;
}

/* The number of entries that start at or before the address. */
static size_t entries_until(CUdeviceptr address) {
  size_t low = 0, high = entry_count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (entries[middle].start <= address) low = middle + 1;
    else high = middle;
  }
  return low;
}

static struct entry *entry_of(CUdeviceptr address) {
  size_t number = entries_until(address);
  if (!number) return NULL;
  struct entry *entry = &entries[number - 1];
  return address - entry->start < entry->range->size ? entry : NULL;
}

static void insert(CUdeviceptr start, struct range *range) {
  if (entry_count == entry_space) {
    entry_space = entry_space ? 2 * entry_space : 64;
    entries = realloc(entries, entry_space * sizeof *entries);
    if (!entries) die("no memory for the map of memory");
  }
  size_t number = entries_until(start);
  memmove(&entries[number + 1], &entries[number], (entry_count - number) * sizeof *entries);
  entries[number] = (struct entry){start, range};
  entry_count++;
}

static void erase(struct range *range) {
  size_t kept = 0;
  for (size_t i = 0; i < entry_count; i++)
    if (entries[i].range != range) entries[kept++] = entries[i];
  entry_count = kept;
}

struct range *find_range(CUdeviceptr address) {
  pthread_mutex_lock(&lock);
  struct entry *entry = entry_of(address);
  struct range *range = entry ? entry->range : NULL;
  if (range) atomic_fetch_add(&range->references, 1);
  pthread_mutex_unlock(&lock);
  return range;
}

void release_range(struct range *range) {
  if (!range || atomic_fetch_sub(&range->references, 1) != 1) return;
  pthread_mutex_lock(&lock);
  if (range->kind != REGISTERED_MEMORY) munmap(range->bytes, in_pages(range->size));
  if (is_in_region(range->device_base)) return_addresses(range->device_base);
  pthread_mutex_unlock(&lock);
  free(range);
}

CUresult find_span(CUdeviceptr address, size_t bytes, struct span *span) {
  CUresult code = CUDA_SUCCESS;
  *span = (struct span){NULL, 0, NULL};
  if (!bytes) return CUDA_SUCCESS;
  pthread_mutex_lock(&lock);
  struct entry *entry = entry_of(address);
  if (!entry) {
    span->bytes = (unsigned char *)(uintptr_t)address;
    if (!address || is_in_region(address)) code = CUDA_ERROR_INVALID_VALUE;
  } else if (bytes > entry->range->size - (address - entry->start)) {
    code = CUDA_ERROR_INVALID_VALUE;
  } else {
    size_t offset = address - entry->start;
    *span = (struct span){entry->range, offset, entry->range->bytes + offset};
    atomic_fetch_add(&entry->range->references, 1);
  }
  pthread_mutex_unlock(&lock);
  return code;
}

void release_span(struct span *span) {
  release_range(span->range);
  span->range = NULL;
}

size_t memory_of_device(void) { return (size_t)number_setting(SETTING_MEMORY_MB) << 20; }

size_t memory_in_use(CUdevice device) {
  pthread_mutex_lock(&lock);
  size_t bytes = in_use[device];
  pthread_mutex_unlock(&lock);
  return bytes;
}

static bool fits(enum memory_kind kind, CUdevice device, size_t bytes) {
  size_t total = memory_of_device();
  if (kind > MANAGED_MEMORY) return bytes < REGION_BYTES;
  return bytes <= total && in_use[device] <= total - bytes;
}

/* New memory is not zeroed, so that code that relies on zeros fails. Fills a part of each MiB only:
   all of it would take most of the time of tests that create many communicators. */
static void fill_with_garbage(const struct range *range) {
  const size_t part = 1 << 20, most = part / 32;
  for (size_t at = 0; at < range->size; at += part)
    memset(range->bytes + at, NEW_BYTE, range->size - at < most ? range->size - at : most);
}

CUresult create_range(enum memory_kind kind, size_t bytes, struct range **created) {
  CUcontext context = current_context();
  struct range *range = calloc(1, sizeof *range);
  if (!range) die("no memory for a range");
  range->kind = kind;
  range->size = bytes;
  range->context = context;
  range->references = 1;
  pthread_mutex_lock(&lock);
  if (!fits(kind, context->device, bytes)) {
    pthread_mutex_unlock(&lock);
    free(range);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (is_on_device(range)) {
    map_on_device(range);
    in_use[context->device] += bytes;
  } else {
    map_on_host(range);
  }
  fill_with_garbage(range);
  range->id = ++last_id;
  range->mine = count_object(is_on_device(range) ? FAKECUDA_DEVICE_MEMORY : FAKECUDA_PINNED_MEMORY);
  if (!is_on_device(range)) count_pinned_bytes(bytes);
  insert(range->device_base, range);
  pthread_mutex_unlock(&lock);
  *created = range;
  return CUDA_SUCCESS;
}

CUresult register_range(void *address, size_t bytes) {
  CUdeviceptr start = (CUdeviceptr)(uintptr_t)address;
  struct range *range = calloc(1, sizeof *range);
  if (!range) die("no memory for a range");
  pthread_mutex_lock(&lock);
  size_t before = entries_until(start);
  bool runs_into_next = before < entry_count && entries[before].start < start + bytes;
  bool overlaps = entry_of(start) || runs_into_next;
  if (overlaps || is_in_region(start)) {
    pthread_mutex_unlock(&lock);
    free(range);
    return overlaps ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED : CUDA_ERROR_INVALID_VALUE;
  }
  *range = (struct range){.kind = REGISTERED_MEMORY, .device_base = start, .host_base = address,
                          .bytes = address, .size = bytes, .context = current_context(),
                          .id = ++last_id, .references = 1};
  insert(start, range);
  if (number_setting(SETTING_REGISTERED_ALIAS)) {
    range->device_base = take_addresses(in_pages(bytes));
    insert(range->device_base, range);
  }
  range->mine = count_object(FAKECUDA_REGISTERED_MEMORY);
  count_pinned_bytes(bytes);
  pthread_mutex_unlock(&lock);
  return CUDA_SUCCESS;
}

struct range *unlink_range(CUdeviceptr base, bool (*is_right)(const struct range *)) {
  pthread_mutex_lock(&lock);
  struct entry *entry = entry_of(base);
  struct range *range = entry && entry->start == base ? entry->range : NULL;
  if (range && !is_right(range)) range = NULL;
  if (range) {
    bool device = is_on_device(range), pinned = range->kind == PINNED_MEMORY;
    erase(range);
    if (device) in_use[range->context->device] -= range->size;
    else uncount_pinned_bytes(range->size, range->mine);
    uncount_object(device   ? FAKECUDA_DEVICE_MEMORY
                  : pinned ? FAKECUDA_PINNED_MEMORY
                           : FAKECUDA_REGISTERED_MEMORY,
                  range->mine);
  }
  pthread_mutex_unlock(&lock);
  return range;
}

void free_range(struct range *range) {
  atomic_store(&range->freed, true);
  release_range(range);
}

static bool is_pinned_by_library(const struct range *range) {
  return range->kind == PINNED_MEMORY && !range->mine;
}

/* The start of a pinned range of the library; 0: it has none. */
static CUdeviceptr find_pinned_by_library(CUdevice device) {
  CUdeviceptr found = 0;
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < entry_count && !found; i++) {
    const struct range *range = entries[i].range;
    if (is_pinned_by_library(range) && range->context->device == device) found = entries[i].start;
  }
  pthread_mutex_unlock(&lock);
  return found;
}

void fakecuda_drop_pinned(CUdevice device) {
  for (CUdeviceptr start; (start = find_pinned_by_library(device));) {
    struct range *range = unlink_range(start, is_pinned_by_library);
    if (range) free_range(range);
  }
}

void *fakecuda_view(CUdeviceptr address, size_t bytes) {
  struct span span;
  if (find_span(address, bytes ? bytes : 1, &span) != CUDA_SUCCESS || !span.range) return NULL;
  release_span(&span);
  return span.bytes;
}
