/* Memory that CUDA knows: the range of an address, and where the engine accesses its bytes. */
#ifndef FAKE_MEMORY_H
#define FAKE_MEMORY_H

#include <stdatomic.h>

#include "call.h"

enum memory_kind { DEVICE_MEMORY, POOL_MEMORY, MANAGED_MEMORY, PINNED_MEMORY, REGISTERED_MEMORY };

struct range {
  enum memory_kind kind;
  CUdeviceptr device_base; /* for the device; usually equal to host_base if that is set */
  unsigned char *host_base; /* for the program; NULL if it cannot access the memory */
  unsigned char *bytes;    /* for the engine */
  size_t size;
  CUcontext context;
  uint64_t id;
  bool mine;
  atomic_bool freed; /* while operations may still have references */
  atomic_uint references;
};

/* Bytes that an operation works on. range: NULL for memory that CUDA does not know. */
struct span {
  struct range *range;
  size_t offset;
  unsigned char *bytes;
};

bool is_on_device(const struct range *range);

/* Bytes of memory of each device, and the bytes in use on one. */
size_t memory_of_device(void);
size_t memory_in_use(CUdevice device);

/* Returns a reference; NULL if CUDA does not know the address. */
struct range *find_range(CUdeviceptr address);
void release_range(struct range *range);

/* The span takes a reference. INVALID_VALUE: beyond the end of an allocation, or a device address
   in no allocation. */
CUresult find_span(CUdeviceptr address, size_t bytes, struct span *span);
void release_span(struct span *span);

/* Creates a range and adds it to the map, or returns OUT_OF_MEMORY. */
CUresult create_range(enum memory_kind kind, size_t bytes, struct range **created);
CUresult register_range(void *address, size_t bytes);
/* Removes a range from the map; operations with references may use it until free_range. */
struct range *unlink_range(CUdeviceptr base, bool (*is_right)(const struct range *));
/* Frees a range: operations that still use it fail. */
void free_range(struct range *range);

#endif
