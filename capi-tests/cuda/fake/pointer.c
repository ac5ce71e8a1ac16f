/*
 * Queries of the attributes of an address. Leaves the map of memory to memory.c.
 *
 * For memory that CUDA does not know, a query of one attribute fails, and of several returns zeros.
 */
#include <string.h>

#include "engine.h"

/* The values of attributes, which have different widths. */
union value {
  CUcontext context;
  uint32_t number;
  int32_t ordinal;
  uint64_t wide;
  CUdeviceptr address;
  void *pointer;
};

static size_t width_of(CUpointer_attribute attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return 8;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: /* documented as "a boolean": the widest possible */
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return 4;
    default:
      return 0;
  }
}

static CUmemorytype type_of(const struct range *range) {
  if (range->kind == MANAGED_MEMORY) return (CUmemorytype)number_setting(SETTING_MANAGED_TYPE);
  return is_on_device(range) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
}

static bool is_in_device_addresses(const struct range *range, CUdeviceptr address) {
  return address >= range->device_base && address - range->device_base < range->size;
}

/* False: memory of this kind has no such attribute. */
static bool attribute_of(const struct range *range, CUdeviceptr address,
                         CUpointer_attribute attribute, union value *value) {
  CUdeviceptr host = (CUdeviceptr)(uintptr_t)range->host_base;
  CUdeviceptr base = is_in_device_addresses(range, address) ? range->device_base : host;
  CUdeviceptr offset = address - base;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      value->context = range->kind == POOL_MEMORY ? NULL : range->context;
      return true;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      value->number = type_of(range);
      return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      value->address = range->device_base + offset;
      return true;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      value->address = host ? host + offset : 0;
      return host != 0;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      value->wide = range->id;
      return true;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      value->number = range->kind == MANAGED_MEMORY;
      return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      value->ordinal = range->context->device;
      return true;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      value->address = range->device_base;
      return true;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      value->wide = range->size;
      return true;
    default: /* MAPPED */
      value->number = 1;
      return true;
  }
}

CUresult cuPointerGetAttribute(void *to, CUpointer_attribute attribute, CUdeviceptr address) {
  BEGIN(cuPointerGetAttribute);
  if (!to || !width_of(attribute)) return CUDA_ERROR_INVALID_VALUE;
  struct range *range = find_range(address);
  if (!range) return CUDA_ERROR_INVALID_VALUE;
  union value value = {.wide = 0};
  bool has = attribute_of(range, address, attribute, &value);
  if (has) memcpy(to, &value, width_of(attribute));
  release_range(range);
  return has ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **to,
                                CUdeviceptr address) {
  BEGIN(cuPointerGetAttributes);
  if (!count || !attributes || !to) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; i++)
    if (!to[i] || !width_of(attributes[i])) return CUDA_ERROR_INVALID_VALUE;
  struct range *range = find_range(address);
  for (unsigned i = 0; i < count; i++) {
    union value value = {.wide = 0};
    if (range) attribute_of(range, address, attributes[i], &value);
    memcpy(to[i], &value, width_of(attributes[i]));
  }
  release_range(range);
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *host, unsigned flags) {
  BEGIN(cuMemHostGetDevicePointer_v2);
  CUdeviceptr address = (CUdeviceptr)(uintptr_t)host;
  if (!device || !host || flags) return CUDA_ERROR_INVALID_VALUE;
  struct range *range = find_range(address);
  if (!range) return CUDA_ERROR_INVALID_VALUE;
  CUresult code = is_on_device(range) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  if (code == CUDA_SUCCESS)
    *device = range->device_base + (address - (CUdeviceptr)(uintptr_t)range->host_base);
  release_range(range);
  return code;
}
