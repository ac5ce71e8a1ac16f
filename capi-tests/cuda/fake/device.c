/*
 * The driver and its devices: initialization, version, attributes, names. Leaves contexts to
 * context.c.
 *
 * Nothing here changes after initialization.
 */
#include <stdio.h>
#include <string.h>

#include "context.h"
#include "memory.h"

enum { NEWEST_ATTRIBUTE = 200 };

static const char name_of_all[] = "Fake CUDA device";

CUresult cuInit(unsigned flags) {
  BEGIN(cuInit);
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  CUresult code = (CUresult)number_setting(SETTING_INIT);
  if (code == CUDA_SUCCESS && number_setting(SETTING_DEVICES) == 0) code = CUDA_ERROR_NO_DEVICE;
  if (code == CUDA_SUCCESS) become_initialized();
  return code;
}

CUresult cuDriverGetVersion(int *version) {
  BEGIN(cuDriverGetVersion);
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  *version = (int)number_setting(SETTING_DRIVER_VERSION);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
  BEGIN(cuDeviceGetCount);
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  *count = (int)number_setting(SETTING_DEVICES);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  BEGIN(cuDeviceGet);
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  if (!context_of_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

/* An attribute that is not named here is 0: these devices do not support it. */
static int attribute_of(CUdevice_attribute attribute, CUdevice device) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH:
      return INT32_MAX;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      return device + 1;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
      return 2;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return 8;
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
      return number_setting(SETTING_MANAGED_HOST) != 0;
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
      return number_setting(SETTING_REGISTERED_ALIAS) == 0;
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR:
      return 1;
    default:
      /* Also CAN_USE_STREAM_MEM_OPS_V1, which does not concern the _v2 memory operations. */
      return 0;
  }
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
  BEGIN(cuDeviceGetAttribute);
  if (!context_of_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (!value || attribute == 0 || attribute > NEWEST_ATTRIBUTE) return CUDA_ERROR_INVALID_VALUE;
  *value = attribute_of(attribute, device);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *id, int length, CUdevice device) {
  BEGIN(cuDeviceGetPCIBusId);
  if (!context_of_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (!id || length < 13) return CUDA_ERROR_INVALID_VALUE;
  snprintf(id, (size_t)length, "0000:%02X:00.0", (unsigned)device + 1);
  return CUDA_SUCCESS;
}

/* Truncates the name to `length`, including its terminating zero. */
CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
  BEGIN(cuDeviceGetName);
  if (!context_of_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (!name || length < 1) return CUDA_ERROR_INVALID_VALUE;
  snprintf(name, (size_t)length, "%s", name_of_all);
  return CUDA_SUCCESS;
}

/* The same in every process, and different for each device. */
static CUresult get_uuid(CUuuid *uuid, CUdevice device) {
  if (!context_of_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (!uuid) return CUDA_ERROR_INVALID_VALUE;
  memset(uuid->bytes, 0x5A, sizeof uuid->bytes);
  uuid->bytes[sizeof uuid->bytes - 1] = (char)device;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
  BEGIN(cuDeviceGetUuid);
  return get_uuid(uuid, device);
}

/* Differs from the first version only on partitioned devices. */
CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
  BEGIN(cuDeviceGetUuid_v2);
  return get_uuid(uuid, device);
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
  BEGIN(cuDeviceTotalMem_v2);
  if (!context_of_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  *bytes = memory_of_device();
  return CUDA_SUCCESS;
}

/* These devices cannot access each other's memory. */
CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
  BEGIN(cuDeviceCanAccessPeer);
  if (!context_of_device(device) || !context_of_device(peer)) return CUDA_ERROR_INVALID_DEVICE;
  if (!can) return CUDA_ERROR_INVALID_VALUE;
  *can = 0;
  return CUDA_SUCCESS;
}
