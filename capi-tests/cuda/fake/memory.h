/* Memory that CUDA knows: what an address belongs to, and where the engine reaches its bytes. */
#ifndef FAKE_MEMORY_H
#define FAKE_MEMORY_H

#include <stdatomic.h>

#include "call.h"

enum memory_kind { DEVICE_MEMORY, POOL_MEMORY, MANAGED_MEMORY, PINNED_MEMORY, REGISTERED_MEMORY };

struct range {
  enum memory_kind kind;
  CUdeviceptr device_base; /* for the device; of host memory the same as host_base, mostly */
  unsigned char *host_base; /* for the program; NULL if it cannot be reached */
  unsigned char *bytes;    /* for the engine */
  size_t size;
  CUcontext context;
  uint64_t id;
  bool mine;
  atomic_bool gone; /* given back while an operation still holds it */
  atomic_uint holders;
};

/* Bytes that an operation works on. range: NULL for memory that CUDA does not know. */
struct place {
  struct range *range;
  size_t offset;
  unsigned char *bytes;
};

bool is_on_device(const struct range *range);

/* Bytes that each device has, and those of a device that are in use. */
size_t memory_of_device(void);
size_t memory_in_use(CUdevice device);

/* Held; NULL if CUDA does not know the address. */
struct range *find_range(CUdeviceptr address);
void drop_range(struct range *range);

/* Held by the place. INVALID_VALUE: beyond the end of an allocation, or in none of a device. */
CUresult find_place(CUdeviceptr address, size_t bytes, struct place *place);
void drop_place(struct place *place);

/* OUT_OF_MEMORY, or a range that is found from now on. */
CUresult make_range(enum memory_kind kind, size_t bytes, struct range **made);
CUresult register_range(void *address, size_t bytes);
/* From now on it is not found; operations that hold it may still use it until it is gone. */
struct range *take_range(CUdeviceptr base, bool (*is_right)(const struct range *));
/* Operations that still hold it are in error. */
void end_range(struct range *range);

#endif
