/*
 * nexar: collective communication for ordinary networks.
 *
 * Generated from doc comments in src/ and from cmake/cbindgen.toml by
 * `NEXAR_BLESS=1 cargo test --test header`. Do not edit.
 *
 * CONVENTIONS
 *
 * Results. Calls return a nexarResult_t; nexarGetLastError tells in full what happened: the
 * function, the cause and, if one is to blame, the rank. Out-parameters are written on success
 * only, and with nexarInProgress, which is no failure.
 *
 * Arguments. A wrong argument is nexarInvalidArgument: nothing was changed, no other rank was
 * told, and the communicator still works. A buffer or array that means nothing on this rank is
 * not looked at.
 *
 * Agreement. All ranks of a communicator make the same calls in the same order, with the same
 * count, datatype, op and root. If they do not, every rank gets nexarInvalidUsage with both calls
 * in the text, from this call or, if it had returned already, from its next. Calls are numbered from
 * 0 in the order made, and texts name them so (#17). A count of 0 is a call like any other, but sends
 * nothing; a difference between such calls is found by the next that sends something. Messages have
 * no number and need no agreement beyond their own.
 *
 * Messages. What one rank sends, another or the same rank receives: the first message, of those that
 * its receive names by peer and tag, in the order sent, whatever the sizes. Count and datatype must be
 * the same on both sides; if they are not, the receive is nexarInvalidUsage with both calls in the
 * text and the communicator has failed: the sender gets the same from this call or, if it had
 * returned already, from its next. A short message may be sent before its receive is there: it waits
 * in memory, at most 256 KiB from each sender; beyond that, and for messages of more than 16 KiB, the
 * sender waits. Do not depend on that memory: a short message may have to wait too. A call on stream
 * NULL that waits for a message holds up no call of another thread; on a stream it holds up what comes
 * behind it for that communicator. A send and a receive that depend on each other go into
 * nexarSendRecv or a group.
 *
 * Failure. Once an operation failed the communicator has failed, on all its ranks: each of its
 * operations returns the first failure. nexarCommDestroy and nexarCommAbort still work. The
 * contents of the receive buffer of a failed operation are undefined; other memory is untouched.
 * No call waits for ever: an operation that gets no answer within NEXAR_OP_TIMEOUT_MS is
 * nexarTimeout, and the text names the ranks that are known not to have come. A rank
 * that dies or cannot be reached is nexarRemoteError soon after NEXAR_PEER_TIMEOUT_MS. A call returns
 * an error, and nexarCommGetAsyncError a failure, when the peers know of it, at most 50 ms later: the
 * program may exit at once.
 *
 * Buffers. Plain pointers to host memory, or to memory of a CUDA device, of any alignment; each buffer of a
 * call may be either. The caller owns them and neither
 * writes (sendbuff) nor touches (recvbuff) them until the operation has ended: when the call has
 * returned, or in a group its end, or on a stream nexarStreamSynchronize. Arrays of counts are read
 * by the call itself. A call is in place where its comment says so; any other overlap is
 * nexarInvalidArgument.
 *
 * Streams. With NULL a call returns when the result is there. On a stream of nexarStreamCreate it
 * returns at once; the operation takes its number at once and runs later, in order, on the stream's
 * thread. An error that comes then is returned by nexarStreamSynchronize, and nexarCommGetAsyncError
 * tells of it. NEXAR_OP_TIMEOUT_MS counts from when an operation runs, not from when it was queued; a
 * call that waits for queued ones waits as long as those may take. Finalize and Destroy wait for what
 * is queued; Abort makes it fail.
 *
 * CUDA. Where there is a driver (it is loaded at run time), a CUDA stream may be passed as a stream: the call
 * returns at once, and the operation and what is behind it on that stream are done in its order. Memory of a
 * device (also managed, or of a pool) needs a CUDA stream; NULL is then CUDA's default stream. It must be on
 * the communicator's device, the one that was current when it was made. If an operation fails, its stream
 * goes on with every byte of the result 0xff, and nexarCommGetAsyncError and the next call tell why; with
 * NEXAR_CUDA_ON_ERROR=hold it stands still until nexarCommAbort or nexarCommDestroy. NEXAR_OP_TIMEOUT_MS
 * includes the wait for the stream. A stream that is being captured is nexarInvalidUsage. CUDA.md says more.
 *
 * Groups. Between nexarGroupStart and nexarGroupEnd, operations of a thread are collected; at the
 * end all are started before any is waited for.
 *
 * Threads. Any thread may make any call; 128 KiB of stack are enough. Operations take their numbers
 * in the order in which they start; several may run at once and end in any order. Threads that share
 * a rank must start them in the same order as on the other ranks. A thread that is cancelled ends
 * after its call. The library starts a thread for the network when ranks are processes, one for each
 * stream, one for each communicator that is made in the background or in a group, and one while a host
 * name is resolved; it starts no process, installs no signal handler and prints nothing unless NEXAR_DEBUG asks.
 *
 * Handles. A handle is a number, not an address; NULL, a destroyed or a foreign one is
 * nexarInvalidArgument. nexarCommFinalize, nexarCommDestroy, nexarCommAbort, nexarStreamDestroy and
 * nexarMemFree take NULL and do nothing.
 *
 * Network. Ranks in several processes are joined by QUIC over one UDP port per process, encrypted
 * and authenticated by keys that come with the unique id; nothing has to be set up. All ranks must
 * run one build of nexar: another is nexarInvalidUsage on all ranks, and the text names both.
 *
 * fork. A child of a process that has used nexar cannot use it: every call is nexarInvalidUsage.
 */


#ifndef NEXAR_H
#define NEXAR_H


#include <limits.h>
#include <stddef.h>

#define NEXAR_MAJOR 0
#define NEXAR_MINOR 1
#define NEXAR_PATCH 0

/**
 * A version as one number.
 */
#define NEXAR_VERSION(major, minor, patch) ((major) * 10000 + (minor) * 100 + (patch))

/**
 * The version of this header; nexarGetVersion gives that of the library.
 */
#define NEXAR_VERSION_CODE NEXAR_VERSION(NEXAR_MAJOR, NEXAR_MINOR, NEXAR_PATCH)

/**
 * A field of nexarConfig_t that was not set.
 */
#define NEXAR_CONFIG_UNDEF_INT INT_MIN

/**
 * nexarConfig_t config = NEXAR_CONFIG_INITIALIZER;
 */
#define NEXAR_CONFIG_INITIALIZER                                                                   \
  {                                                                                                \
    sizeof(nexarConfig_t),  /* size */                                                             \
    NEXAR_API_MAGIC,        /* magic */                                                            \
    NEXAR_VERSION_CODE,     /* version */                                                          \
    NEXAR_CONFIG_UNDEF_INT, /* blocking */                                                         \
    NEXAR_CONFIG_UNDEF_INT, /* initTimeoutMs */                                                    \
    NEXAR_CONFIG_UNDEF_INT, /* opTimeoutMs */                                                      \
    NEXAR_CONFIG_UNDEF_INT, /* peerTimeoutMs */                                                    \
    NEXAR_CONFIG_UNDEF_INT, /* splitShare */                                                       \
    NULL                    /* name */                                                             \
  }


/**
 * Bytes of a nexarUniqueId.
 */
#define NEXAR_UNIQUE_ID_BYTES 128

/**
 * The color of a rank that takes part in nexarCommSplit but wants no communicator.
 */
#define NEXAR_SPLIT_NOCOLOR -1

/**
 * The peer of nexarRecvTag that is any rank.
 */
#define NEXAR_ANY_SOURCE -1

/**
 * The tag of nexarRecvTag that is any tag.
 */
#define NEXAR_ANY_TAG -1

/**
 * First field after the size of a nexarConfig_t; set by NEXAR_CONFIG_INITIALIZER.
 */
#define NEXAR_API_MAGIC 3405692655

/**
 * What a call returns. Values are NCCL's.
 */
typedef enum {
  nexarSuccess = 0,
  /**
   * A call of the CUDA driver failed.
   */
  nexarUnhandledCudaError = 1,
  /**
   * Sockets, memory or files of this host failed.
   */
  nexarSystemError = 2,
  /**
   * A defect of nexar. Please report the text of nexarGetLastError.
   */
  nexarInternalError = 3,
  /**
   * An argument is wrong. Nothing was changed; the communicator still works.
   */
  nexarInvalidArgument = 4,
  /**
   * The call is forbidden here, or other ranks made another call.
   */
  nexarInvalidUsage = 5,
  /**
   * Another rank was lost, aborted or broke the protocol.
   */
  nexarRemoteError = 6,
  /**
   * The communicator is still being made, or the stream still busy. Not a failure.
   */
  nexarInProgress = 7,
  /**
   * An operation or initialisation met its deadline.
   */
  nexarTimeout = 8,
} nexarResult_t;

/**
 * Type of the elements of a buffer. Values up to 11 are NCCL's; nexar's own begin at 32.
 */
typedef enum {
  nexarInt8 = 0,
  nexarUint8 = 1,
  nexarInt32 = 2,
  nexarUint32 = 3,
  nexarInt64 = 4,
  nexarUint64 = 5,
  /**
   * IEEE 754 binary16.
   */
  nexarFloat16 = 6,
  nexarFloat32 = 7,
  nexarFloat64 = 8,
  /**
   * The upper half of a float32.
   */
  nexarBfloat16 = 9,
  /**
   * OCP E4M3: 4 exponent bits, largest number 448, no infinity. Computed in float32 and rounded
   * to nearest even at every fold; what is beyond 448 becomes 448, as in NCCL. The canonical NaN
   * is 0x7f.
   */
  nexarFloat8e4m3 = 10,
  /**
   * OCP E5M2: 5 exponent bits, largest number 57344. Computed in float32 and rounded to nearest
   * even at every fold; what is beyond 57344 becomes infinity. The canonical NaN is 0x7e.
   */
  nexarFloat8e5m2 = 11,
  nexarInt16 = 32,
  nexarUint16 = 33,
} nexarDataType_t;

/**
 * Reduction operator. Values up to 4 are NCCL's; nexar's own begin at 32 and take integers only.
 * Integers wrap. Floats of 8 and 16 bits are computed in float32 and rounded to nearest even at
 * every fold. A NaN operand gives the canonical NaN; -0 < +0. The floating-point environment of a
 * thread (rounding, flushed subnormals, traps) changes no result; a reduction may raise exception
 * flags.
 */
typedef enum {
  nexarSum = 0,
  nexarProd = 1,
  nexarMax = 2,
  nexarMin = 3,
  /**
   * Floats are multiplied by 1/n first, then summed; integers are summed, then divided by n,
   * towards zero.
   */
  nexarAvg = 4,
  nexarBitAnd = 32,
  nexarBitOr = 33,
  nexarBitXor = 34,
  /**
   * 1 if all elements are non-zero, else 0.
   */
  nexarLogicalAnd = 35,
  /**
   * 1 if any element is non-zero, else 0.
   */
  nexarLogicalOr = 36,
  /**
   * 1 if an odd number of elements is non-zero, else 0.
   */
  nexarLogicalXor = 37,
  /**
   * Not an operator: makes room for operators created at run time, from 0x10000, in C++.
   */
  nexarMaxRedOp = 2147483647,
} nexarRedOp_t;

/**
 * Where the scalar of nexarRedOpCreatePreMulSum is. Values are NCCL's.
 */
typedef enum {
  /**
   * Read by each call that uses the operator, also in a group or on a stream.
   */
  nexarScalarDevice = 0,
  /**
   * Read by nexarRedOpCreatePreMulSum, at once.
   */
  nexarScalarHostImmediate = 1,
} nexarScalarResidence_t;

/**
 * A member of a communicator: one rank's end of it. Opaque, never dereferenced.
 */
typedef struct nexarComm nexarComm;

/**
 * Handle of a communicator. A destroyed, foreign or random one is nexarInvalidArgument.
 */
typedef nexarComm *nexarComm_t;

/**
 * What the ranks of a future communicator share to find each other. Keep it as secret as the
 * data: who has it may join.
 */
typedef struct {
  char internal[NEXAR_UNIQUE_ID_BYTES];
} nexarUniqueId;

/**
 * Settings of one communicator. Initialise with NEXAR_CONFIG_INITIALIZER, then set fields; a
 * field left at NEXAR_CONFIG_UNDEF_INT or NULL takes its value from the environment or default, in
 * nexarCommSplit from comm.
 * The structure grows at its end in later versions.
 */
typedef struct {
  /**
   * Set by the initialiser.
   */
  size_t size;
  /**
   * Set by the initialiser.
   */
  unsigned int magic;
  /**
   * Set by the initialiser.
   */
  unsigned int version;
  /**
   * 1, the default: initialisation waits. 0: it goes on in the background.
   */
  int blocking;
  /**
   * Longest time for all ranks to come, in milliseconds.
   */
  int initTimeoutMs;
  /**
   * Longest time for one operation, in milliseconds.
   */
  int opTimeoutMs;
  /**
   * A rank not heard from for this long is lost, in milliseconds.
   */
  int peerTimeoutMs;
  /**
   * 0 or 1; has no effect, as communicators made by a split always share connections.
   */
  int splitShare;
  /**
   * Name in logs. Copied; may be NULL.
   */
  const char *name;
} nexarConfig_t;

/**
 * Handle of a stream that orders operations: of nexarStreamCreate, or of CUDA. NULL: the call
 * returns when the result is there; with memory of a device, CUDA's default stream. A destroyed,
 * foreign or random one is nexarInvalidArgument, where there is no CUDA.
 */
typedef void *nexarStream_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Gives the version of the library: NEXAR_VERSION(major, minor, patch).
 * Compare it with NEXAR_VERSION_CODE, the version of this header.
 */
nexarResult_t nexarGetVersion(int *version);

/**
 * A short sentence for a result. Lives as long as the library; any int may be asked about.
 * What happened in full is in nexarGetLastError.
 */
const char *nexarGetErrorString(nexarResult_t result);

/**
 * The full text of the last error: of calls on comm, or of its failure if that came later; with
 * comm NULL, of any call this thread made. Empty if there was none, never NULL. Valid until this
 * thread's next nexarGetLastError. A success does not clear it.
 */
const char *nexarGetLastError(nexarComm_t comm);

/**
 * Makes a communicator of ndev ranks that all live in this process, and writes their handles to
 * comms[0] ... comms[ndev - 1], ndev at most 256. Each rank is to be used by a thread of its own.
 * devlist gives the CUDA device of each rank, all different (else nexarInvalidUsage, as in NCCL);
 * NULL means 0 ... ndev - 1. On host memory the numbers mean nothing.
 */
nexarResult_t nexarCommInitAll(nexarComm_t *comms,
                               int ndev,
                               const int *devlist);

/**
 * Makes an id with which nranks processes find each other. One process calls it and hands the
 * 128 bytes to all ranks by any means; that process serves the id until the communicator is made,
 * or until the process ends. An id makes one communicator. Keep it as secret as the data. If
 * NEXAR_COMM_SECRET is set, a rank refuses an id that was made without it.
 */
nexarResult_t nexarGetUniqueId(nexarUniqueId *uniqueId);

/**
 * Joins the communicator of commId as rank of nranks, and writes its handle to comm. Returns when
 * all ranks have come, or at most 500 ms after NEXAR_INIT_TIMEOUT_MS with an error that names the
 * missing ones.
 */
nexarResult_t nexarCommInitRank(nexarComm_t *comm,
                                int nranks,
                                nexarUniqueId commId,
                                int rank);

/**
 * As nexarCommInitRank, with settings of this communicator; config may be NULL.
 *
 * With config.blocking == 0 it returns nexarInProgress at once. The handle can be asked with
 * nexarCommGetAsyncError, which gives nexarInProgress until the communicator has been made, then
 * nexarSuccess or what it failed with; nexarCommAbort does not wait for it, nexarCommDestroy does.
 * Any other use before that is nexarInvalidArgument. The handle must be destroyed, also if its
 * communicator could not be made.
 */
nexarResult_t nexarCommInitRankConfig(nexarComm_t *comm,
                                      int nranks,
                                      nexarUniqueId commId,
                                      int rank,
                                      const nexarConfig_t *config);

/**
 * Joins the communicator that a launcher such as nexar-run has described in the environment:
 * NEXAR_RANK, NEXAR_NRANKS, NEXAR_COMM_ID and NEXAR_COMM_SECRET. Without any of them, a world of
 * one rank; some but not all of them is an error.
 */
nexarResult_t nexarCommInitFromEnv(nexarComm_t *comm);

/**
 * Gives the number of ranks of the communicator.
 */
nexarResult_t nexarCommCount(nexarComm_t comm,
                             int *count);

/**
 * Gives this rank's number, from 0 to the number of ranks less 1.
 */
nexarResult_t nexarCommUserRank(nexarComm_t comm,
                                int *rank);

/**
 * Gives the CUDA device of this rank: devlist[rank] of nexarCommInitAll, or rank if devlist was
 * NULL; otherwise the one that was current when it was made, or whose memory it was first used on.
 * What is split off keeps it. -1 if there is none.
 */
nexarResult_t nexarCommCuDevice(nexarComm_t comm,
                                int *device);

/**
 * Gives nexarSuccess while the communicator works, or what it failed with: the result its
 * operations return from then on, at most 50 ms after the failure. nexarInProgress while it is
 * being made.
 */
nexarResult_t nexarCommGetAsyncError(nexarComm_t comm,
                                     nexarResult_t *asyncError);

/**
 * Waits for this rank's operations; further ones are nexarInvalidUsage. Peers may still be
 * using theirs. A second time is nexarInvalidArgument. NULL is nexarSuccess.
 */
nexarResult_t nexarCommFinalize(nexarComm_t comm);

/**
 * Finalizes if that was not done, and frees the communicator: its handle is dead from the
 * beginning of the call. Works on a failed one; one that is being made is waited for. NULL is
 * nexarSuccess.
 */
nexarResult_t nexarCommDestroy(nexarComm_t comm);

/**
 * Ends this rank's operations at once, whatever thread is inside them, and frees the communicator.
 * It waits at most 50 ms, until the other ranks know: the program may exit as soon as it returns.
 * The operations return nexarInvalidUsage; other ranks get nexarRemoteError naming this one,
 * unless the communicator had failed before. A communicator that is still being made is aborted as
 * soon as it has been made. NULL is nexarSuccess.
 */
nexarResult_t nexarCommAbort(nexarComm_t comm);

/**
 * Makes a communicator of the ranks that pass the same color, 0 or more, and writes its handle to
 * newcomm: ranks are ordered by key, and by their rank in comm where keys are equal. Every rank of
 * comm must call it; one that passes NEXAR_SPLIT_NOCOLOR gets NULL.
 *
 * The new communicator uses the connections of comm, with their peerTimeoutMs. Otherwise the two
 * are independent: either may fail, be aborted or be destroyed without the other, and each must be
 * destroyed; but a rank that is lost is lost to all communicators it is a member of. Where config
 * is NULL or its fields are not set, it has the settings of comm, but not its name. A split counts
 * as an operation of comm; it is waited for, whatever config.blocking is. Once all ranks have
 * called it, it takes NEXAR_INIT_TIMEOUT_MS at most; nexarCommAbort of comm by another thread ends
 * it, and nexarCommDestroy of comm waits for it.
 *
 * Inside a group, newcomm is NULL until the end of the group.
 */
nexarResult_t nexarCommSplit(nexarComm_t comm,
                             int color,
                             int key,
                             nexarComm_t *newcomm,
                             const nexarConfig_t *config);

/**
 * Folds the count elements of all ranks' sendbuff with op; every rank gets the result in
 * recvbuff, the same bits everywhere. In place when sendbuff == recvbuff.
 */
nexarResult_t nexarAllReduce(const void *sendbuff,
                             void *recvbuff,
                             size_t count,
                             nexarDataType_t datatype,
                             nexarRedOp_t op,
                             nexarComm_t comm,
                             nexarStream_t stream);

/**
 * As nexarAllReduce, but only rank root gets the result. recvbuff is ignored elsewhere.
 */
nexarResult_t nexarReduce(const void *sendbuff,
                          void *recvbuff,
                          size_t count,
                          nexarDataType_t datatype,
                          nexarRedOp_t op,
                          int root,
                          nexarComm_t comm,
                          nexarStream_t stream);

/**
 * Copies root's sendbuff to every rank's recvbuff. sendbuff is ignored elsewhere. In place at
 * the root when sendbuff == recvbuff.
 */
nexarResult_t nexarBroadcast(const void *sendbuff,
                             void *recvbuff,
                             size_t count,
                             nexarDataType_t datatype,
                             int root,
                             nexarComm_t comm,
                             nexarStream_t stream);

/**
 * nexarBroadcast in place: buff is sent by the root and written elsewhere.
 */
nexarResult_t nexarBcast(void *buff,
                         size_t count,
                         nexarDataType_t datatype,
                         int root,
                         nexarComm_t comm,
                         nexarStream_t stream);

/**
 * Gathers sendcount elements of every rank, in rank order, in every rank's recvbuff of
 * nranks * sendcount. In place when sendbuff == recvbuff + rank * sendcount.
 */
nexarResult_t nexarAllGather(const void *sendbuff,
                             void *recvbuff,
                             size_t sendcount,
                             nexarDataType_t datatype,
                             nexarComm_t comm,
                             nexarStream_t stream);

/**
 * Folds all ranks' sendbuff of nranks * recvcount elements with op; rank i gets block i of the
 * result, recvcount elements. In place when recvbuff == sendbuff + rank * recvcount; the other
 * blocks of sendbuff then stay as they are.
 */
nexarResult_t nexarReduceScatter(const void *sendbuff,
                                 void *recvbuff,
                                 size_t recvcount,
                                 nexarDataType_t datatype,
                                 nexarRedOp_t op,
                                 nexarComm_t comm,
                                 nexarStream_t stream);

/**
 * Sends block i of sendbuff, count elements, to rank i, which gets it as block rank of its
 * recvbuff. Both have nranks * count elements. In place when sendbuff == recvbuff.
 */
nexarResult_t nexarAllToAll(const void *sendbuff,
                            void *recvbuff,
                            size_t count,
                            nexarDataType_t datatype,
                            nexarComm_t comm,
                            nexarStream_t stream);

/**
 * Gathers count elements of every rank, in rank order, in root's recvbuff of nranks * count, which
 * is ignored elsewhere. In place at the root when sendbuff == recvbuff + root * count.
 */
nexarResult_t nexarGather(const void *sendbuff,
                          void *recvbuff,
                          size_t count,
                          nexarDataType_t datatype,
                          int root,
                          nexarComm_t comm,
                          nexarStream_t stream);

/**
 * Sends block i of root's sendbuff, count elements, to rank i's recvbuff. sendbuff has nranks *
 * count and is ignored elsewhere. In place at the root when recvbuff == sendbuff + root * count.
 */
nexarResult_t nexarScatter(const void *sendbuff,
                           void *recvbuff,
                           size_t count,
                           nexarDataType_t datatype,
                           int root,
                           nexarComm_t comm,
                           nexarStream_t stream);

/**
 * Rank i gets the fold of the count elements of ranks 0 to i, in rank order. In place when
 * sendbuff == recvbuff. nexarAvg is nexarInvalidArgument.
 */
nexarResult_t nexarScan(const void *sendbuff,
                        void *recvbuff,
                        size_t count,
                        nexarDataType_t datatype,
                        nexarRedOp_t op,
                        nexarComm_t comm,
                        nexarStream_t stream);

/**
 * As nexarScan, without the own elements: rank i gets the fold of ranks 0 to i - 1. Rank 0 gets
 * the identity of op: 0 for a sum, 1 for a product, the largest value of the type for a minimum
 * and the smallest for a maximum (infinities where the type has them). An operator of
 * nexarRedOpCreate has none: rank 0's recvbuff is left alone.
 */
nexarResult_t nexarExScan(const void *sendbuff,
                          void *recvbuff,
                          size_t count,
                          nexarDataType_t datatype,
                          nexarRedOp_t op,
                          nexarComm_t comm,
                          nexarStream_t stream);

/**
 * nexarAllReduce in place of nbuffs buffers at once, buffs[i] with counts[i] elements, in about
 * the time of one buffer of the same total size. Every rank passes the same counts.
 */
nexarResult_t nexarAllReduceBucketed(void *const *buffs,
                                     const size_t *counts,
                                     size_t nbuffs,
                                     nexarDataType_t datatype,
                                     nexarRedOp_t op,
                                     nexarComm_t comm,
                                     nexarStream_t stream);

/**
 * Returns when all ranks have called it.
 */
nexarResult_t nexarBarrier(nexarComm_t comm,
                           nexarStream_t stream);

/**
 * As nexarAllGather, of recvcounts[i] elements of rank i, which every rank gets rdispls[i]
 * elements into its recvbuff. Every rank passes the same recvcounts. rdispls may be NULL: the
 * blocks follow each other. In place when sendbuff == recvbuff + rdispls[rank].
 */
nexarResult_t nexarAllGatherV(const void *sendbuff,
                              size_t sendcount,
                              void *recvbuff,
                              const size_t *recvcounts,
                              const size_t *rdispls,
                              nexarDataType_t datatype,
                              nexarComm_t comm,
                              nexarStream_t stream);

/**
 * As nexarReduceScatter, with blocks of recvcounts[i] elements for rank i, which follow each other
 * in sendbuff. Every rank passes the same recvcounts. In place when recvbuff is this rank's block
 * of sendbuff.
 */
nexarResult_t nexarReduceScatterV(const void *sendbuff,
                                  void *recvbuff,
                                  const size_t *recvcounts,
                                  nexarDataType_t datatype,
                                  nexarRedOp_t op,
                                  nexarComm_t comm,
                                  nexarStream_t stream);

/**
 * As nexarAllToAll, with sendcounts[i] elements for rank i, sdispls[i] elements into sendbuff, and
 * recvcounts[i] from it, rdispls[i] into recvbuff. The counts of each pair of ranks must agree; if
 * not, every rank gets nexarInvalidUsage, or this one nexarInvalidArgument if the pair is itself.
 * sdispls and rdispls may be NULL: the blocks follow each other. In place when sendbuff ==
 * recvbuff and both have the same counts and displacements.
 */
nexarResult_t nexarAllToAllV(const void *sendbuff,
                             const size_t *sendcounts,
                             const size_t *sdispls,
                             void *recvbuff,
                             const size_t *recvcounts,
                             const size_t *rdispls,
                             nexarDataType_t datatype,
                             nexarComm_t comm,
                             nexarStream_t stream);

/**
 * As nexarGather, of sendcount elements of each rank, which root gets rdispls[i] elements into its
 * recvbuff; there recvcounts[i] must be rank i's sendcount. recvbuff, recvcounts and rdispls are
 * ignored elsewhere. rdispls may be NULL: the blocks follow each other. In place at the root when
 * sendbuff == recvbuff + rdispls[root].
 */
nexarResult_t nexarGatherV(const void *sendbuff,
                           size_t sendcount,
                           void *recvbuff,
                           const size_t *recvcounts,
                           const size_t *rdispls,
                           nexarDataType_t datatype,
                           int root,
                           nexarComm_t comm,
                           nexarStream_t stream);

/**
 * As nexarScatter, of sendcounts[i] elements for rank i, sdispls[i] elements into root's sendbuff;
 * they must be rank i's recvcount. sendbuff, sendcounts and sdispls are ignored elsewhere. sdispls
 * may be NULL: the blocks follow each other. In place at the root when recvbuff == sendbuff +
 * sdispls[root].
 */
nexarResult_t nexarScatterV(const void *sendbuff,
                            const size_t *sendcounts,
                            const size_t *sdispls,
                            void *recvbuff,
                            size_t recvcount,
                            nexarDataType_t datatype,
                            int root,
                            nexarComm_t comm,
                            nexarStream_t stream);

/**
 * Sends count elements to rank peer, which receives them with nexarRecv of the same count and
 * datatype. Returns when sendbuff may be changed: a short message is then on its way, a long one
 * has met its receive. Messages to one peer are received in the order sent, whatever their sizes.
 * A rank may send to itself; unless the message is short, its receive must be in the same group or
 * made by another thread.
 */
nexarResult_t nexarSend(const void *sendbuff,
                        size_t count,
                        nexarDataType_t datatype,
                        int peer,
                        nexarComm_t comm,
                        nexarStream_t stream);

/**
 * Receives count elements that rank peer has sent with nexarSend. Another count or datatype than
 * the sender's is nexarInvalidUsage, and the communicator has failed; a message is never cut. A
 * count of 0 is received like any other.
 */
nexarResult_t nexarRecv(void *recvbuff,
                        size_t count,
                        nexarDataType_t datatype,
                        int peer,
                        nexarComm_t comm,
                        nexarStream_t stream);

/**
 * As nexarSend, with a tag from 0 to INT_MAX, by which nexarRecvTag tells messages apart.
 */
nexarResult_t nexarSendTag(const void *sendbuff,
                           size_t count,
                           nexarDataType_t datatype,
                           int peer,
                           int tag,
                           nexarComm_t comm,
                           nexarStream_t stream);

/**
 * As nexarRecv, of a message sent with nexarSendTag: the first from peer with this tag. peer may
 * be NEXAR_ANY_SOURCE and tag NEXAR_ANY_TAG; messages of nexarSend, which have no tag, are not
 * taken. Which rank and tag it was is not told: where that matters, send it in the message.
 */
nexarResult_t nexarRecvTag(void *recvbuff,
                           size_t count,
                           nexarDataType_t datatype,
                           int peer,
                           int tag,
                           nexarComm_t comm,
                           nexarStream_t stream);

/**
 * nexarSend to rank dest and nexarRecv from rank source at once: neither waits for the other. The
 * buffers must not overlap.
 */
nexarResult_t nexarSendRecv(const void *sendbuff,
                            size_t sendcount,
                            int dest,
                            void *recvbuff,
                            size_t recvcount,
                            int source,
                            nexarDataType_t datatype,
                            nexarComm_t comm,
                            nexarStream_t stream);

/**
 * Creates an operator for elements of one datatype: a sum of what each rank has multiplied by the
 * scalar it gave here, one element. Ranks may give different scalars. It can be used with comm
 * alone.
 */
nexarResult_t nexarRedOpCreatePreMulSum(nexarRedOp_t *op,
                                        void *scalar,
                                        nexarDataType_t datatype,
                                        nexarScalarResidence_t residence,
                                        nexarComm_t comm);

/**
 * Creates an operator from a function of the program, for any datatype. The function folds count
 * elements, inout[i] = in[i] op inout[i], and must be associative. commutative is 1 or 0; if it is
 * 0, operands are folded in the order of ranks: in comes from lower ranks than inout. user is
 * passed on to it. It runs in the thread of the call that uses it, or of its stream, in the
 * floating-point environment of that thread, and must neither call nexar nor throw. It can be used
 * with comm alone, whose other ranks must use an operator created with the same value of
 * commutative.
 */
nexarResult_t nexarRedOpCreate(nexarRedOp_t *op,
                               void (*fold)(const void *in,
                                            void *inout,
                                            size_t count,
                                            nexarDataType_t datatype,
                                            void *user),
                               void *user,
                               int commutative,
                               nexarComm_t comm);

/**
 * Destroys an operator that was created for comm, as nexarCommDestroy does with all of them. Calls
 * that use it already are not disturbed: the function, user and a scalar that is not immediate
 * must outlive them.
 */
nexarResult_t nexarRedOpDestroy(nexarRedOp_t op,
                                nexarComm_t comm);

/**
 * Begins a group. Groups nest; only the outermost end acts.
 *
 * Until then operations of this thread return at once, and their buffers, streams and
 * communicators must stay as they are. They may use any communicators and streams, in any order.
 * nexarCommInitRank, nexarCommInitRankConfig (all with the same config.blocking) and
 * nexarCommInitFromEnv write their handles at once; the communicators are made at the end of the
 * group and cannot be used before. nexarCommSplit writes its handle at the end of the
 * group, until when there must be a place for it. Every other call acts at once.
 */
nexarResult_t nexarGroupStart(void);

/**
 * Ends a group. The outermost end first makes the communicators of the group, all at once; with
 * config.blocking == 0 it does not wait for them and returns nexarInProgress. Then it splits
 * communicators, as if that had been called before the operations. Then it starts all operations
 * of the group before it waits for any, and returns when those on stream NULL have their results
 * and the others are queued on their streams. Operations on one communicator count as called in
 * the order in which they were.
 *
 * If an operation, an initialisation or a split inside the group was refused, that error is
 * returned once more (of several, the last), and nothing of the group is begun; the communicators
 * that it would have made have failed. Otherwise the result is the first failure: of an
 * initialisation, of a split, of an operation on stream NULL. A handle that was written must be
 * destroyed, also if its communicator could not be made. Without a nexarGroupStart it is
 * nexarInvalidUsage.
 */
nexarResult_t nexarGroupEnd(void);

/**
 * Creates a host stream: a thread of its own that runs what is queued on it in order.
 *
 * An operation on a stream returns at once. It takes its place among the operations of its
 * communicator then, and runs when all that was queued before it on the stream, and on other
 * streams for the same communicator, has ended. An operation on stream NULL waits for what was
 * queued for its communicator. Different communicators on different streams run side by side.
 */
nexarResult_t nexarStreamCreate(nexarStream_t *stream);

/**
 * Waits until all that was queued on the stream has ended, and returns the first error among it
 * since the last nexarStreamSynchronize: once, and its text is that of nexarGetLastError(NULL).
 * NULL is nexarSuccess: its operations have ended.
 */
nexarResult_t nexarStreamSynchronize(nexarStream_t stream);

/**
 * Without waiting: the error that nexarStreamSynchronize will return if there is one already,
 * nexarInProgress if something queued has not ended, else nexarSuccess.
 */
nexarResult_t nexarStreamQuery(nexarStream_t stream);

/**
 * Waits until all that was queued on the stream has ended, and frees it: its handle is dead from
 * the beginning of the call. An error that nexarStreamSynchronize has not returned is lost. NULL
 * is nexarSuccess.
 */
nexarResult_t nexarStreamDestroy(nexarStream_t stream);

/**
 * Allocates size bytes of zeroed host memory that begins at a page: always of the host, also where
 * a CUDA device is in use. Any memory may be used as a buffer; this kind the other ranks of the
 * host read where it lies, which spares a copy of large buffers. It belongs to the process, not to
 * a communicator. It is not inherited by a child process: a child that reads or writes it gets
 * SIGSEGV. A size of 0 gives NULL.
 */
nexarResult_t nexarMemAlloc(void **ptr,
                            size_t size);

/**
 * Frees what nexarMemAlloc has allocated; no operation may be using it. NULL is nexarSuccess, any
 * other pointer nexarInvalidArgument.
 */
nexarResult_t nexarMemFree(void *ptr);

/**
 * Registers size bytes at buff for use with comm, and gives a handle to end that with. In this
 * version nothing depends on it, and the memory may be freed at any time. nexarCommDestroy and
 * nexarCommAbort end what is left.
 */
nexarResult_t nexarCommRegister(nexarComm_t comm,
                                void *buff,
                                size_t size,
                                void **handle);

/**
 * Ends a registration of comm. The handle of another communicator, or one that was ended, is
 * nexarInvalidArgument.
 */
nexarResult_t nexarCommDeregister(nexarComm_t comm,
                                  void *handle);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* NEXAR_H */
