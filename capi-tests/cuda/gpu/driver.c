/* Loads and initializes the driver. */
#include "driver.h"

#include <dlfcn.h>
#include <stdio.h>

struct driver cuda;

static char reason[300];

static const char *begin(void) {
  CUresult code = cuda.cuInit(0);
  if (code == CUDA_SUCCESS) code = cuda.cuDeviceGetCount(&cuda.devices);
  if (code != CUDA_SUCCESS) {
    const char *name = NULL;
    cuda.cuGetErrorName(code, &name);
    snprintf(reason, sizeof reason, "cuInit: %s (%u)", name ? name : "unknown", (unsigned)code);
    return reason;
  }
  return cuda.devices > 0 ? NULL : "there is no device";
}

const char *load_driver(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    snprintf(reason, sizeof reason, "%s", dlerror());
    return reason;
  }
  const char *missing = NULL;
#define X(name)                                                                                    \
  if (!(*(void **)&cuda.name = dlsym(library, #name))) missing = #name;
  GPU_FUNCTIONS(X)
#undef X
#define X(name) *(void **)&cuda.name = dlsym(library, #name);
  GPU_MAY_LACK(X)
#undef X
  cuda.is_fake = dlsym(library, "fakecuda_mine") != NULL;
  if (!missing) return begin();
  snprintf(reason, sizeof reason, "libcuda.so.1 has no %s", missing);
  return reason;
}
