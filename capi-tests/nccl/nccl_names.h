/*
 * Declarations of the NCCL functions that the tests use, because NVIDIA's header needs CUDA's. The
 * tests nccl.program and nccl.device_program are compiled with NVIDIA's header.
 */
#ifndef NCCL_NAMES_H
#define NCCL_NAMES_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include "support/check.h"

enum { Success, CudaError, SystemError, InternalError, InvalidArgument, InvalidUsage, RemoteError,
       InProgress };
enum { Int32 = 2, Float32 = 7 };
enum { Sum, Prod, Max, Min, Avg };

#define MAGIC 0xcafebeefu
#define UNDEF INT_MIN

typedef struct ncclComm *ncclComm_t;
typedef struct ncclWindow *ncclWindow_t;
typedef struct { char internal[128]; } ncclUniqueId;
typedef struct { int nRanks, rank, stride; } ncclTeam_t;

int ncclGetVersion(int *version);
int ncclGetUniqueId(ncclUniqueId *id);
const char *ncclGetErrorString(int result);
const char *ncclGetLastError(ncclComm_t comm);
int ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank);
int ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank, void *config);
int ncclCommInitRankScalable(ncclComm_t *comm, int nranks, int rank, int nId, ncclUniqueId *ids,
                             void *config);
int ncclCommInitAll(ncclComm_t *comms, int ndev, const int *devlist);
int ncclCommFinalize(ncclComm_t comm);
int ncclCommDestroy(ncclComm_t comm);
int ncclCommAbort(ncclComm_t comm);
int ncclCommRevoke(ncclComm_t comm, int flags);
int ncclCommShrink(ncclComm_t comm, int *excluded, int count, ncclComm_t *newcomm, void *config,
                   int flags);
int ncclCommGrow(ncclComm_t comm, int nranks, const ncclUniqueId *id, int rank,
                 ncclComm_t *newcomm, void *config);
int ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *id);
int ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, void *config);
int ncclCommCount(ncclComm_t comm, int *count);
int ncclCommUserRank(ncclComm_t comm, int *rank);
int ncclCommCuDevice(ncclComm_t comm, int *device);
int ncclCommGetAsyncError(ncclComm_t comm, int *error);
int ncclCommQueryProperties(ncclComm_t comm, void *properties);
int ncclCommSuspend(ncclComm_t comm, int flags);
int ncclCommResume(ncclComm_t comm);
int ncclCommMemStats(ncclComm_t comm, int stat, uint64_t *value);
int ncclCommRegister(ncclComm_t comm, void *buff, size_t size, void **handle);
int ncclCommDeregister(ncclComm_t comm, void *handle);
int ncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int flags);
int ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win);
int ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t win, void **pointer);
int ncclMemAlloc(void **pointer, size_t size);
int ncclMemFree(void *pointer);
int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclGroupSimulateEnd(void *info);
int ncclAllReduce(const void *send, void *recv, size_t count, int type, int op, ncclComm_t comm,
                  void *stream);
int ncclAllReduceConfig(const void *send, void *recv, size_t count, int type, int op,
                        ncclComm_t comm, void *stream, const void *config);
int ncclAlltoAll(const void *send, void *recv, size_t count, int type, ncclComm_t comm,
                 void *stream);
int ncclGather(const void *send, void *recv, size_t count, int type, int root, ncclComm_t comm,
               void *stream);
int ncclScatter(const void *send, void *recv, size_t count, int type, int root, ncclComm_t comm,
                void *stream);
int ncclSetEncryption(const void *config);
int ncclDevCommCreate(ncclComm_t comm, const void *requirements, void *out);
int ncclPutSignal(const void *local, size_t count, int type, int peer, ncclWindow_t win,
                  size_t offset, int signal, int context, unsigned flags, ncclComm_t comm,
                  void *stream);
int ncclParamGetI32(void *handle, int32_t *value);
ncclTeam_t ncclTeamWorld(ncclComm_t comm);
int ncclTeamRankToWorld(ncclComm_t comm, ncclTeam_t team, int rank);
int pncclGetVersion(int *version);
int pncclAllReduce(const void *send, void *recv, size_t count, int type, int op, ncclComm_t comm,
                   void *stream);

#define CHECK_NCCL(expected, call)                                                                 \
  do {                                                                                             \
    int expected_ = (expected), actual_ = (call);                                                  \
    if (expected_ != actual_)                                                                      \
      check_failed(__FILE__, __LINE__, "%s returned %d, not %d\n    of NCCL: %s", #call, actual_,  \
                   expected_, ncclGetLastError(NULL));                                             \
  } while (0)

/* Creates a communicator of one rank. */
static inline ncclComm_t alone(void) {
  ncclUniqueId id;
  ncclComm_t comm = NULL;
  CHECK_NCCL(Success, ncclGetUniqueId(&id));
  CHECK_NCCL(Success, ncclCommInitRank(&comm, 1, id, 0));
  return comm;
}

#endif
