/*
 * The part of the CUDA driver API that nexar and its tests use: exported names, arguments and
 * constants. Tests include it too, so that they build without a CUDA toolkit. Leaves the behaviour
 * to the other files of this folder.
 *
 * Every name and constant here is one of the real driver.
 */
#ifndef FAKE_API_H
#define FAKE_API_H

#include <stddef.h>
#include <stdint.h>

#define CUDA_EXPORT __attribute__((visibility("default")))

/* Numbers rather than an enum: a driver may return codes that are newer than this header. */
typedef uint32_t CUresult;
enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_DEINITIALIZED = 4,
  CUDA_ERROR_STUB_LIBRARY = 34,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_ECC_UNCORRECTABLE = 214,
  CUDA_ERROR_INVALID_HANDLE = 400,
  CUDA_ERROR_ILLEGAL_STATE = 401,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_ILLEGAL_ADDRESS = 700,
  CUDA_ERROR_LAUNCH_TIMEOUT = 702,
  CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
  CUDA_ERROR_ASSERT = 710,
  CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
  CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
  CUDA_ERROR_HARDWARE_STACK_ERROR = 714,
  CUDA_ERROR_ILLEGAL_INSTRUCTION = 715,
  CUDA_ERROR_MISALIGNED_ADDRESS = 716,
  CUDA_ERROR_INVALID_ADDRESS_SPACE = 717,
  CUDA_ERROR_INVALID_PC = 718,
  CUDA_ERROR_LAUNCH_FAILED = 719,
  CUDA_ERROR_NOT_PERMITTED = 800,
  CUDA_ERROR_NOT_SUPPORTED = 801,
  CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
  CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
  CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
  CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = 903,
  CUDA_ERROR_STREAM_CAPTURE_UNJOINED = 904,
  CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905,
  CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
  CUDA_ERROR_CAPTURED_EVENT = 907,
  CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908,
  CUDA_ERROR_UNKNOWN = 999,
};

typedef uint64_t CUdeviceptr;
typedef int32_t CUdevice;
typedef uint32_t cuuint32_t;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef void (*CUhostFn)(void *argument);

#define CU_STREAM_LEGACY ((CUstream)0x1)
#define CU_STREAM_PER_THREAD ((CUstream)0x2)

enum { CU_STREAM_DEFAULT = 0, CU_STREAM_NON_BLOCKING = 1 };
enum {
  CU_EVENT_DEFAULT = 0,
  CU_EVENT_BLOCKING_SYNC = 1,
  CU_EVENT_DISABLE_TIMING = 2,
  CU_EVENT_INTERPROCESS = 4,
};
enum { CU_STREAM_WRITE_VALUE_DEFAULT = 0, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER = 1 };
enum {
  CU_STREAM_WAIT_VALUE_GEQ = 0,
  CU_STREAM_WAIT_VALUE_EQ = 1,
  CU_STREAM_WAIT_VALUE_AND = 2,
  CU_STREAM_WAIT_VALUE_NOR = 3,
  CU_STREAM_WAIT_VALUE_FLUSH = 1 << 30,
};
enum {
  CU_MEMHOSTALLOC_PORTABLE = 1,
  CU_MEMHOSTALLOC_DEVICEMAP = 2,
  CU_MEMHOSTALLOC_WRITECOMBINED = 4,
};
enum { CU_MEM_ATTACH_GLOBAL = 1, CU_MEM_ATTACH_HOST = 2, CU_MEM_ATTACH_SINGLE = 4 };

typedef uint32_t CUmemorytype;
enum {
  CU_MEMORYTYPE_HOST = 1,
  CU_MEMORYTYPE_DEVICE = 2,
  CU_MEMORYTYPE_ARRAY = 3,
  CU_MEMORYTYPE_UNIFIED = 4,
};

typedef uint32_t CUpointer_attribute;
enum {
  CU_POINTER_ATTRIBUTE_CONTEXT = 1,
  CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
  CU_POINTER_ATTRIBUTE_DEVICE_POINTER = 3,
  CU_POINTER_ATTRIBUTE_HOST_POINTER = 4,
  CU_POINTER_ATTRIBUTE_BUFFER_ID = 7,
  CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
  CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
  CU_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
  CU_POINTER_ATTRIBUTE_RANGE_SIZE = 12,
  CU_POINTER_ATTRIBUTE_MAPPED = 13,
};

typedef uint32_t CUdevice_attribute;
enum {
  CU_DEVICE_ATTRIBUTE_MAX_PITCH = 11,
  CU_DEVICE_ATTRIBUTE_INTEGRATED = 18,
  CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY = 19,
  CU_DEVICE_ATTRIBUTE_PCI_BUS_ID = 33,
  CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID = 34,
  CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT = 40,
  CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING = 41,
  CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID = 50,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY = 83,
  CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS = 89,
  CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM = 91,
  CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1 = 92,
  CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED = 99,
  CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED = 115,
  CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR = 123,
};

typedef uint32_t CUstreamCaptureMode;
enum {
  CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
  CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
  CU_STREAM_CAPTURE_MODE_RELAXED = 2,
};
typedef uint32_t CUstreamCaptureStatus;
enum {
  CU_STREAM_CAPTURE_STATUS_NONE = 0,
  CU_STREAM_CAPTURE_STATUS_ACTIVE = 1,
  CU_STREAM_CAPTURE_STATUS_INVALIDATED = 2,
};

typedef struct {
  size_t srcXInBytes, srcY;
  CUmemorytype srcMemoryType;
  const void *srcHost;
  CUdeviceptr srcDevice;
  void *srcArray;
  size_t srcPitch;
  size_t dstXInBytes, dstY;
  CUmemorytype dstMemoryType;
  void *dstHost;
  CUdeviceptr dstDevice;
  void *dstArray;
  size_t dstPitch;
  size_t WidthInBytes, Height;
} CUDA_MEMCPY2D;

typedef struct {
  char bytes[16];
} CUuuid;

CUDA_EXPORT CUresult cuInit(unsigned flags);
CUDA_EXPORT CUresult cuDriverGetVersion(int *version);
CUDA_EXPORT CUresult cuGetErrorName(CUresult code, const char **name);
CUDA_EXPORT CUresult cuGetErrorString(CUresult code, const char **text);

CUDA_EXPORT CUresult cuDeviceGetCount(int *count);
CUDA_EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal);
CUDA_EXPORT CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute,
                                          CUdevice device);
CUDA_EXPORT CUresult cuDeviceGetPCIBusId(char *id, int length, CUdevice device);
CUDA_EXPORT CUresult cuDeviceGetName(char *name, int length, CUdevice device);
CUDA_EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device);
CUDA_EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device);
CUDA_EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device);
CUDA_EXPORT CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer);
CUDA_EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active);
CUDA_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
CUDA_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);

CUDA_EXPORT CUresult cuCtxGetCurrent(CUcontext *context);
CUDA_EXPORT CUresult cuCtxSetCurrent(CUcontext context);
CUDA_EXPORT CUresult cuCtxGetDevice(CUdevice *device);
CUDA_EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context);
CUDA_EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *context);
CUDA_EXPORT CUresult cuCtxSynchronize(void);
CUDA_EXPORT CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest);

CUDA_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes);
CUDA_EXPORT CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned flags);
CUDA_EXPORT CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream);
CUDA_EXPORT CUresult cuMemFree_v2(CUdeviceptr address);
CUDA_EXPORT CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream);
CUDA_EXPORT CUresult cuMemGetInfo_v2(size_t *unused, size_t *total);
CUDA_EXPORT CUresult cuMemAllocHost_v2(void **address, size_t bytes);
CUDA_EXPORT CUresult cuMemHostAlloc(void **address, size_t bytes, unsigned flags);
CUDA_EXPORT CUresult cuMemFreeHost(void *address);
CUDA_EXPORT CUresult cuMemHostRegister_v2(void *address, size_t bytes, unsigned flags);
CUDA_EXPORT CUresult cuMemHostUnregister(void *address);
CUDA_EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *host, unsigned flags);
CUDA_EXPORT CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute,
                                           CUdeviceptr address);
CUDA_EXPORT CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes,
                                            void **values, CUdeviceptr address);

CUDA_EXPORT CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);
CUDA_EXPORT CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes);
CUDA_EXPORT CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes);
CUDA_EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                          CUstream stream);
CUDA_EXPORT CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                                       CUcontext from_context, size_t bytes, CUstream stream);
CUDA_EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes);
CUDA_EXPORT CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes);
CUDA_EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes,
                                          CUstream stream);
CUDA_EXPORT CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes,
                                          CUstream stream);
CUDA_EXPORT CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *copy, CUstream stream);
CUDA_EXPORT CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count);
CUDA_EXPORT CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count,
                                     CUstream stream);
CUDA_EXPORT CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count);
CUDA_EXPORT CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count,
                                      CUstream stream);

CUDA_EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned flags);
CUDA_EXPORT CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority);
CUDA_EXPORT CUresult cuStreamDestroy_v2(CUstream stream);
CUDA_EXPORT CUresult cuStreamSynchronize(CUstream stream);
CUDA_EXPORT CUresult cuStreamQuery(CUstream stream);
CUDA_EXPORT CUresult cuStreamGetCtx(CUstream stream, CUcontext *context);
CUDA_EXPORT CUresult cuStreamGetPriority(CUstream stream, int *priority);
CUDA_EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags);
CUDA_EXPORT CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address,
                                             cuuint32_t value, unsigned flags);
CUDA_EXPORT CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                            unsigned flags);
CUDA_EXPORT CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *argument);

CUDA_EXPORT CUresult cuEventCreate(CUevent *event, unsigned flags);
CUDA_EXPORT CUresult cuEventDestroy_v2(CUevent event);
CUDA_EXPORT CUresult cuEventRecord(CUevent event, CUstream stream);
CUDA_EXPORT CUresult cuEventQuery(CUevent event);
CUDA_EXPORT CUresult cuEventSynchronize(CUevent event);
CUDA_EXPORT CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end);

CUDA_EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode);
CUDA_EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph);
CUDA_EXPORT CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status);
CUDA_EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode);

#endif
