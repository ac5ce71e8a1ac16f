/*
 * nexar: collective communication for ordinary networks.
 *
 * Generated from doc comments in src/ and from cmake/cbindgen.toml by
 * `NEXAR_BLESS=1 cargo test --test header`. Do not edit.
 *
 * This header is the manual. It begins with the conventions that hold for every call and with two
 * summaries, for readers who know NCCL and for readers who know MPI. Then follow the types, and
 * the functions by family:
 *
 *   VERSION AND ERRORS        version of the library, texts of results and errors
 *   COMMUNICATORS             create, inspect, finalize, destroy, abort
 *   SPLITTING                 communicators of a part of the ranks
 *   COLLECTIVES               AllReduce ... Barrier; blocks of equal size
 *   COLLECTIVES WITH COUNTS   the V forms: a count for each rank
 *   MESSAGES                  send, receive and probe, with and without tags
 *   REQUESTS                  tagged messages that the caller does not wait for at once
 *   DATA TYPES                elements of any size
 *   OPERATORS                 scaled sums, functions of the program
 *   GROUPS                    start calls together
 *   HOST STREAMS              calls that return at once
 *   MEMORY                    buffers that processes of a host share
 *
 * A complete program, started by `nexar-run -n 4 ./program`:
 *
 *   #include <nexar.h>
 *   #include <stdio.h>
 *
 *   int main(void) {
 *     nexarComm_t comm;
 *     float gradient = 1.0f;
 *     nexarResult_t result = nexarCommInitFromEnv(&comm);
 *     if (result == nexarSuccess)
 *       result = nexarAllReduce(&gradient, &gradient, 1, nexarFloat32, nexarSum, comm, NULL);
 *     if (result != nexarSuccess) {
 *       fprintf(stderr, "%s\n", nexarGetLastError(NULL));
 *       return 1;
 *     }
 *     printf("%g ranks\n", gradient);
 *     return nexarCommDestroy(comm) != nexarSuccess;
 *   }
 *
 *
 * CONVENTIONS
 *
 * Results. Every call but nexarGetErrorString and nexarGetLastError returns a nexarResult_t.
 * nexarGetLastError has the text of an error: the function, the cause and the rank to blame, as far
 * as they are known. Out-parameters are written on success, and with nexarInProgress, which is not
 * an error.
 *
 * Arguments. A wrong argument is nexarInvalidArgument on the rank that passes it: nothing has
 * changed, and the communicator still works (in a group, the group is dropped: nexarGroupEnd). No
 * other rank knows of the call: the others wait for this rank, so correct the argument and call
 * again, or call nexarCommAbort. Buffers and arrays that have no meaning on a rank are ignored
 * there.
 *
 * Agreement. All ranks of a communicator make the same calls in the same order, with the same
 * count, datatype, op and root; of a type of nexarDataTypeCreate the size is compared, not the
 * number. Otherwise every rank gets nexarInvalidUsage with both calls in the text (with the number
 * alone, if the calls are long past): from this call, or from its next one if this call has
 * returned already. If two disagreements are found at once and a rank does not learn within a
 * moment which one was chosen, it reports the one that it knows. Functions of nexarRedOpCreate and
 * scalars are not compared. Calls are numbered from 0 in the order in which they are made, and
 * texts name them so (#17). A collective with count 0 sends nothing; a disagreement on such a call
 * is found by the next call that sends something. Messages have no number and agree with their
 * receive only.
 *
 * Buffers. Pointers to host memory or to memory of a CUDA device, of any alignment; each buffer of
 * a call may be either. The caller owns them. Until the operation has completed, the caller does
 * not write a sendbuff and does not touch a recvbuff. An operation on host memory and stream NULL
 * has completed when the call returns, or the outermost nexarGroupEnd for an operation in a group;
 * any other operation when its stream has been synchronized (with device memory, NULL is CUDA's
 * default stream), also in a group. Arrays of counts and displacements are read by the call itself.
 * The comment of each function says when it may be called in place; any other overlap of buffers is
 * nexarInvalidArgument.
 *
 * Completion and streams. With stream NULL and host memory, a call returns when the result is
 * there. With a stream of nexarStreamCreate, it returns at once; the operation takes its sequence
 * number then and runs later, in stream order, on the stream's thread. Its error is returned by
 * nexarStreamSynchronize, and reported by nexarCommGetAsyncError. Operations on one stream run in
 * the order in which they were called, and so do the collectives of one communicator on all its
 * streams (those of one group concurrently). A message on a host stream waits for its own stream
 * alone. A call on stream NULL waits for everything that is queued for its communicator. Operations
 * of different communicators on different streams run concurrently.
 *
 * CUDA. The driver is loaded at run time, if there is one. A CUDA stream can then be passed as
 * stream: the call returns at once, and the operation is executed in the order of that stream (the
 * caller waits if more than 16 MiB must be staged uncut, or if the device's streams cannot wait).
 * Device memory (also managed memory and memory of a pool) needs a CUDA stream; NULL is then CUDA's
 * default stream. The memory must be on the communicator's device, the one that was current when it
 * was created. If an operation fails, its stream continues, every byte of the result that was not
 * yet written is 0xff (NaN in every float type), and nexarCommGetAsyncError and the next call
 * report the error: check it after the stream was synchronized, not the data. With
 * NEXAR_CUDA_ON_ERROR=hold the stream stops until nexarCommAbort or nexarCommDestroy instead. A
 * stream that is being captured is nexarInvalidUsage. CUDA.md has the limits; no GPU was available
 * to test this.
 *
 * Messages. A receive takes the first message that it names by peer and tag: of one sender in the
 * order sent; a receive from any rank takes those of several senders in order of arrival, and ends
 * with an error when the communicator fails or all connected ranks have left. Messages from one
 * rank to another never overtake each other, whatever their sizes. Count and datatype must be the
 * same on both sides, where the count of nexarRecvTagStatus is a capacity; otherwise the receive is
 * nexarInvalidUsage with both calls in the text, the communicator has failed, and the sender gets
 * the same error from this call or its next. A message that exceeds a capacity is no failure: that
 * receive alone is nexarInvalidArgument, and the message stays. A message of at most 16 KiB is sent
 * before its receive is posted (eager protocol), if the sender has credit for it at the receiver:
 * 256 KiB in each communicator, less 128 bytes and the data of each such message that was not
 * received. A message that is longer, or for which the credit does not suffice, waits for its
 * receive (rendezvous) and takes 128 bytes of credit. Credit is returned in steps, so that a sender
 * whose messages were all received has at least half of it. A sender without credit waits, and so
 * do the sends to that rank that come after it. Do not rely on eager messages: a send and a receive
 * that depend on each other belong in nexarSendRecv, in a group or on two host streams. The order
 * of messages is that of their calls, whichever streams they are on: a receive is matched as if it
 * had been posted by its call, and a send waits for earlier sends to that rank, also for those that
 * wait for their streams. Nothing else holds up a message on a host stream, but its stream. Its
 * buffer is not touched before its stream has reached it; until then a short message takes credit.
 * A call on stream NULL that waits for a message blocks no call of another thread but those sends;
 * a message that waits on a stream blocks all that is queued behind it there, those sends, and
 * later calls of that communicator on stream NULL. On CUDA streams, operations of one communicator
 * run one after another in call order, messages included.
 *
 * Requests. nexarIsendTag and nexarIrecvTag begin a message and return at once, with a handle of
 * it. The message has its position among others from this call on, and waits for no stream. It
 * progresses while the caller computes: a thread of the library takes care of messages that no call
 * has waited for within a few milliseconds. The buffer belongs to the operation until a call has
 * consumed the request: nexarRequestTest or nexarRequestWaitAny when it has completed,
 * nexarRequestWait, or nexarRequestCancel of a receive that has matched no message. It is consumed
 * also if its operation has failed; the call then returns that error. status is written for a
 * receive that has succeeded; it may be NULL. One call at a time may wait for a request; another
 * call on it is nexarInvalidUsage, and so is each call of this family inside a group. Buffers in
 * memory of a CUDA device are nexarInvalidArgument. nexarCommFinalize and nexarCommDestroy complete
 * live requests with nexarInvalidUsage, nexarCommAbort too: receives that have matched nothing are
 * withdrawn, any other live request fails the communicator. The handles stay valid until they are
 * consumed, also after the communicator was destroyed.
 *
 * Groups. Operations between nexarGroupStart and nexarGroupEnd, of one thread, are collected and
 * all started before any is waited for. They are numbered in call order but run concurrently, also
 * on one stream: none may touch a buffer that another writes. Of the collectives of one
 * communicator at most four run at once: number n begins when number n - 4 has completed.
 *
 * Deadlines. No call waits for ever (unless a function of nexarRedOpCreate does, or a CUDA stream
 * that NEXAR_CUDA_ON_ERROR=hold has stopped). An operation that has not completed
 * NEXAR_OP_TIMEOUT_MS (600,000 by default) after it began to run, which includes the wait for
 * earlier calls, however much data has arrived, is nexarTimeout; the text names the ranks that are
 * known not to have called it. For a request the time counts from the call that issued it, whether
 * or not a call waits for it. On a host stream the time does not include the wait in the queue; on
 * a CUDA stream it includes the wait for the stream. A call that waits for queued operations waits
 * as long as these may take.
 *
 * Failure. The first operation that fails, also by its deadline, fails its communicator, on all
 * ranks: each further operation returns the first failure that its rank has learned of. Then
 * nexarCommGetAsyncError returns that failure; while it returns nexarSuccess, an error was one of
 * the call alone. nexarCommDestroy and nexarCommAbort still work; there is no shrink, so the
 * survivors create a new communicator from a new id. Communicators that the lost rank is not a
 * member of continue. The receive buffer of a failed operation has undefined contents; other memory
 * is untouched. A rank has left once it has finalized or destroyed the communicator, or has exited
 * in good order; it is lost if it dies or is not heard from. A rank that dies is nexarRemoteError
 * on the others: usually within 30 ms on its host, within half a second between hosts that answer,
 * otherwise soon after NEXAR_PEER_TIMEOUT_MS (5,000 by default). A rank that is stopped for that
 * long (SIGSTOP, a debugger) is lost to the others too: raise the limit to debug. A call that
 * returns an error first waits until the peers know of it, at most 50 ms, so that the program may
 * exit at once. nexarCommFinalize and nexarCommDestroy wait for queued operations, not for their
 * last bytes, which are still sent afterwards (Threads, below); nexarCommAbort fails them.
 *
 * Threads. Any thread may make any call; 128 KiB of stack are enough. Operations of one
 * communicator take their sequence numbers in the order in which they are called; threads that
 * share a rank must call them in the same order as on the other ranks. Several may run at once and
 * complete in any order. A thread that is cancelled (pthread_cancel) ends after its call. The
 * library starts these threads: nexar-io, which drives the network between calls and, where ranks
 * share memory, during collectives, if ranks are processes (more with NEXAR_THREADS); nexar-stream,
 * one for each host stream, one for each communicator that uses device memory, and one for a group
 * that mixes device and host memory; nexar-device-poll, one if device memory is used;
 * nexar-request, one for each communicator that has issued a request which did not complete at once
 * (it sleeps, except while requests are live that no call waits for); nexar-init,
 * one for each communicator while it is created in the background or in a group; nexar-resolve, one
 * while a host name is resolved. They block all signals. The library installs no signal handler,
 * starts no process, and prints nothing unless NEXAR_DEBUG asks for it. When the process exits, it
 * waits until the peers have its last data: at most 2 s after bytes stop flowing, at most 30 s in
 * all.
 *
 * Handles. A handle is a key into a table, not an address. NULL, a destroyed handle and a random
 * one are nexarInvalidArgument. nexarCommFinalize, nexarCommDestroy, nexarCommAbort,
 * nexarStreamSynchronize, nexarStreamQuery, nexarStreamDestroy and nexarMemFree accept NULL and do
 * nothing.
 *
 * Network. Processes are connected by QUIC over one UDP port each, encrypted and authenticated:
 * each process makes a key of its own, and the secret in the unique id admits it. Inside a host,
 * messages use shared memory, and so do the collectives of a communicator on one host; on several
 * hosts, AllReduce and Reduce (if the operator commutes), Broadcast, Barrier and AllToAll of short
 * blocks use it inside each host. All ranks run the same build of nexar; another build is
 * nexarInvalidUsage on all ranks, and the text names both. The README lists the environment
 * variables.
 *
 * Compatibility. Existing signatures and values never change; new needs get new functions.
 *
 * fork. A child of a process that has used nexar cannot use it: every call is nexarInvalidUsage.
 *
 *
 * COMING FROM NCCL
 *
 * Replace the prefix nccl by nexar: names, parameters and values of enums are NCCL's, wherever NCCL
 * has them. Or load the libnccl.so.2 of this library and change nothing. What differs:
 *   - Host memory is a buffer like any other. With it, a call on stream NULL returns when the
 *     result is there; there is nothing to synchronize.
 *   - A failure does not hang a stream (unless NEXAR_CUDA_ON_ERROR=hold asks for NCCL's behaviour).
 *     Every rank gets an error that names the culprit: from the call on a host stream or NULL, so a
 *     watchdog thread is not needed; on a CUDA stream, whose call has returned long before, from
 *     nexarCommGetAsyncError after the stream was synchronized.
 *   - Calls that do not match are found and reported on every rank (Agreement, above).
 *   - Collectives on several streams of one communicator run one after another, in call order.
 *   - nexarMemAlloc gives host memory, and nexarCommRegister has no effect.
 *   - A CUDA stream that is being captured into a graph is refused.
 *   - New: Scan, ExScan, the V forms, Barrier, AllReduceBucketed, tagged messages with status,
 *     probe and requests, elements of any size, operators from functions of the program.
 *
 *
 * COMING FROM MPI
 *
 * There is no MPI_Init and no mpirun: nexarCommInitFromEnv under nexar-run takes the place of
 * MPI_COMM_WORLD, and a 128-byte id creates a communicator anywhere else. What differs:
 *   - Counts are size_t, in elements. nexarDataTypeCreate is MPI_Type_contiguous of bytes: elements
 *     of any size, contiguous. There are no other derived datatypes: no strides and no gaps, and
 *     built-in operators reduce the header's types only.
 *   - MPI_IN_PLACE is written as equal pointers, as each function says.
 *   - Nonblocking collectives: pass a stream of nexarStreamCreate; nexarStreamSynchronize is the
 *     wait. Nonblocking messages: nexarIsendTag, nexarIrecvTag and their requests; or put several
 *     into a group, whose end is MPI_Waitall. A tagged MPI_Sendrecv is a group of nexarSendTag and
 *     nexarRecvTag.
 *   - Threads are as under MPI_THREAD_MULTIPLE. While the program computes, short messages and
 *     envelopes arrive: inside a host in shared memory, else nexar-io receives them, beginning 5 to
 *     10 ms after the last call. The data of a long message begins to move when both ranks are
 *     inside their calls, or their streams are, or have issued requests for it.
 *   - nexarRecv and nexarRecvTag name the exact count; another one fails the communicator.
 *     nexarRecvTagStatus has MPI_Recv's capacity and status, except that a longer message is not
 *     truncated but stays. nexarProbeTag is MPI_Probe, and MPI_Iprobe if flag is not NULL. There is
 *     no MPI_Mprobe, no persistent request, no MPI_Ssend and no MPI_PROC_NULL. nexarRequestTest,
 *     nexarRequestWait and nexarRequestWaitAny are MPI_Test, MPI_Wait and MPI_Waitany;
 *     nexarRequestCancel consumes the request if it is nexarSuccess. Messages without a tag and
 *     messages with one are matched apart. A receive from any source takes messages in order of
 *     arrival.
 *   - nexarRedOpCreate is MPI_Op_create, with the same order of operands. A reduction has the same
 *     bits on every rank, and in every run with the same number and placement of ranks and the same
 *     settings.
 *   - Errors are returned, as with MPI_ERRORS_RETURN; the process is never aborted. After an error
 *     other than nexarInvalidArgument, nexarCommGetAsyncError says whether the communicator has
 *     failed; then it is only good to be destroyed.
 *   - nexarCommSplit is MPI_Comm_split, NEXAR_SPLIT_NOCOLOR is MPI_UNDEFINED, and MPI_Comm_dup is a
 *     split with one color.
 *   - There are no topologies, no one-sided communication and no I/O.
 */


#ifndef NEXAR_H
#define NEXAR_H


#include <limits.h>
#include <stddef.h>

#define NEXAR_MAJOR 0
#define NEXAR_MINOR 1
#define NEXAR_PATCH 0

/* CONSTANTS ------------------------------------------------------------------------------------ */

/**
 * A version as one number.
 */
#define NEXAR_VERSION(major, minor, patch) ((major) * 10000 + (minor) * 100 + (patch))

/**
 * The version of this header; nexarGetVersion gives that of the library.
 */
#define NEXAR_VERSION_CODE NEXAR_VERSION(NEXAR_MAJOR, NEXAR_MINOR, NEXAR_PATCH)

/**
 * Marks a nexarConfig_t that was initialised; set by NEXAR_CONFIG_INITIALIZER.
 */
#define NEXAR_API_MAGIC 0xcafebeef

/**
 * The value of a field of nexarConfig_t that is not set.
 */
#define NEXAR_CONFIG_UNDEF_INT INT_MIN

/**
 * Initialises a nexarConfig_t with no field set: nexarConfig_t config = NEXAR_CONFIG_INITIALIZER;
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
 * Initialises a nexarStatus_t: nexarStatus_t status = NEXAR_STATUS_INITIALIZER;
 */
#define NEXAR_STATUS_INITIALIZER                                                                   \
  {                                                                                                \
    sizeof(nexarStatus_t), /* size */                                                              \
    NEXAR_ANY_SOURCE,      /* source */                                                            \
    NEXAR_ANY_TAG,         /* tag */                                                               \
    0,                     /* count */                                                             \
    nexarInt8              /* datatype */                                                          \
  }


/**
 * Bytes of a nexarUniqueId.
 */
#define NEXAR_UNIQUE_ID_BYTES 128

/**
 * Color in nexarCommSplit of a rank that gets no communicator.
 */
#define NEXAR_SPLIT_NOCOLOR -1

/**
 * Peer in nexarRecvTag, nexarRecvTagStatus, nexarIrecvTag and nexarProbeTag: any rank.
 */
#define NEXAR_ANY_SOURCE -1

/**
 * Tag in nexarRecvTag, nexarRecvTagStatus, nexarIrecvTag and nexarProbeTag: any tag.
 */
#define NEXAR_ANY_TAG -1

/* TYPES ---------------------------------------------------------------------------------------- */

/**
 * Result of a call. Values are NCCL's.
 */
typedef enum {
  nexarSuccess = 0,
  /**
   * A call of the CUDA driver failed.
   */
  nexarUnhandledCudaError = 1,
  /**
   * Sockets, memory or files of a host failed; the text names the rank if it is another's.
   */
  nexarSystemError = 2,
  /**
   * A defect of nexar. Report it with the text of nexarGetLastError.
   */
  nexarInternalError = 3,
  /**
   * An argument is wrong. Nothing has changed; the communicator still works.
   */
  nexarInvalidArgument = 4,
  /**
   * The call is not allowed here, or other ranks made a different call.
   */
  nexarInvalidUsage = 5,
  /**
   * Another rank was lost, aborted, or violated the protocol.
   */
  nexarRemoteError = 6,
  /**
   * The communicator is being created, or the stream is busy. Not an error.
   */
  nexarInProgress = 7,
  /**
   * An operation, or the creation of a communicator, met its deadline.
   */
  nexarTimeout = 8,
} nexarResult_t;

/**
 * Type of the elements of a buffer. Values up to 11 are NCCL's; nexar's own start at 32. Those of
 * nexarDataTypeCreate start at 0x10000.
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
   * OCP E4M3: 4 exponent bits, largest number 448, no infinity. Each reduction step computes in
   * float32 and rounds to nearest even; larger results become 448, as in NCCL. The canonical NaN
   * is 0x7f.
   */
  nexarFloat8e4m3 = 10,
  /**
   * OCP E5M2: 5 exponent bits, largest number 57344. Each reduction step computes in float32 and
   * rounds to nearest even; larger results become infinity. The canonical NaN is 0x7e.
   */
  nexarFloat8e5m2 = 11,
  nexarInt16 = 32,
  nexarUint16 = 33,
  /**
   * Not a type. It gives the enum the range of types created at run time (from 0x10000), which
   * C++ needs.
   */
  nexarMaxDataType = 2147483647,
} nexarDataType_t;

/**
 * Reduction operator. Values up to 4 are NCCL's; nexar's own start at 32 and are for integers.
 * Integers wrap. Each step on floats of 8 and 16 bits computes in float32 and rounds to nearest
 * even. A NaN operand gives the canonical NaN; -0 < +0. The floating-point environment of a thread
 * (rounding mode, flushed subnormals, traps) changes no result; a reduction may raise exception
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
   * Not an operator. It gives the enum the range of operators created at run time (from
   * 0x10000), which C++ needs.
   */
  nexarMaxRedOp = 2147483647,
} nexarRedOp_t;

/**
 * When nexarRedOpCreatePreMulSum reads its scalar. Values are NCCL's.
 */
typedef enum {
  /**
   * By each call that uses the operator: host memory when the operation is called, device and
   * pinned memory in stream order.
   */
  nexarScalarDevice = 0,
  /**
   * By nexarRedOpCreatePreMulSum. Host memory only.
   */
  nexarScalarHostImmediate = 1,
} nexarScalarResidence_t;

/**
 * One rank of a communicator. Opaque; the library never dereferences a pointer to it.
 */
typedef struct nexarComm nexarComm;

/**
 * A send or a receive that was not waited for. Opaque; the library never dereferences a pointer to
 * it.
 */
typedef struct nexarRequest nexarRequest;

/**
 * Handle of one rank of a communicator.
 */
typedef nexarComm *nexarComm_t;

/**
 * Id by which the ranks of one new communicator find each other. Keep it as secret as the data:
 * any process that has it can join.
 */
typedef struct {
  char internal[NEXAR_UNIQUE_ID_BYTES];
} nexarUniqueId;

/**
 * Settings of one communicator. Initialise it with NEXAR_CONFIG_INITIALIZER, then set fields. A
 * field that is not set takes its value from the environment, else the default; in nexarCommSplit
 * from comm. Later versions may add fields at the end.
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
   * 1 (default): calls that create the communicator wait. 0: it is created in the background.
   */
  int blocking;
  /**
   * Milliseconds for all ranks to join; NEXAR_INIT_TIMEOUT_MS, 60,000 by default.
   */
  int initTimeoutMs;
  /**
   * Milliseconds for one operation; NEXAR_OP_TIMEOUT_MS, 600,000 by default.
   */
  int opTimeoutMs;
  /**
   * Milliseconds of silence after which a rank is lost; NEXAR_PEER_TIMEOUT_MS, 5,000 by
   * default.
   */
  int peerTimeoutMs;
  /**
   * 0 or 1. Has no effect: a split always shares connections.
   */
  int splitShare;
  /**
   * Name of the communicator in logs. The library copies it. NULL: a number.
   */
  const char *name;
} nexarConfig_t;

/**
 * Handle of a stream that orders operations: of nexarStreamCreate, or a CUDA stream. NULL: the
 * call returns when the result is there; with device memory, CUDA's default stream. Any
 * other value is nexarInvalidArgument without CUDA; with CUDA, a value that was never a host
 * stream is taken for a CUDA stream.
 */
typedef void *nexarStream_t;

/**
 * A message, as nexarRecvTagStatus, nexarProbeTag and consumed requests report it. Initialise it
 * with NEXAR_STATUS_INITIALIZER. Later versions may add fields at the end: no byte beyond size is
 * written.
 */
typedef struct {
  /**
   * Set by the initialiser: sizeof(nexarStatus_t). No call changes it.
   */
  size_t size;
  /**
   * The rank that has sent the message.
   */
  int source;
  /**
   * Its tag.
   */
  int tag;
  /**
   * The number of its elements.
   */
  size_t count;
  /**
   * The type of its elements.
   */
  nexarDataType_t datatype;
} nexarStatus_t;

/**
 * Handle of a send or a receive that nexarIsendTag or nexarIrecvTag has begun, until a call has
 * consumed it.
 */
typedef nexarRequest *nexarRequest_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/* VERSION AND ERRORS --------------------------------------------------------------------------- */

/**
 * Writes the version of the library to version, as NEXAR_VERSION(major, minor, patch). Compare it
 * with NEXAR_VERSION_CODE, the version of this header.
 */
nexarResult_t nexarGetVersion(int *version);

/**
 * Returns a short sentence for a result, for any int. The text lives as long as the library. It
 * never fails. nexarGetLastError has the details.
 */
const char *nexarGetErrorString(nexarResult_t result);

/**
 * Returns the text of the last error: the function, the cause and the rank to blame. With comm,
 * the last error of a call on comm, or the failure of comm if that is newer; with NULL, the last
 * error of any call of this thread. An empty text means that there was none. The text is never
 * NULL and stays valid until this thread calls nexarGetLastError again. A success does not clear
 * it.
 */
const char *nexarGetLastError(nexarComm_t comm);

/* COMMUNICATORS -------------------------------------------------------------------------------- */

/**
 * Creates a communicator whose ndev ranks are all in this process, and writes their handles to
 * comms[0] ... comms[ndev - 1]. ndev is at most 256. Use each rank in a thread of its own, or put
 * the calls of all ranks into one group.
 *
 * devlist: the CUDA device of each rank, all different (otherwise nexarInvalidUsage, as in NCCL).
 * NULL means 0 ... ndev - 1. Without CUDA the numbers are only stored.
 */
nexarResult_t nexarCommInitAll(nexarComm_t *comms,
                               int ndev,
                               const int *devlist);

/**
 * Creates an id by which the processes of one new communicator find each other. One process calls
 * it and passes the 128 bytes to all ranks by any means, such as a file or another library. This
 * process serves the id until the communicator has been created or the process ends. An id creates
 * one communicator.
 *
 * Keep the id as secret as the data: any process that has it can join. If NEXAR_COMM_SECRET is
 * set, ranks refuse an id that was created without it.
 */
nexarResult_t nexarGetUniqueId(nexarUniqueId *uniqueId);

/**
 * Joins the communicator of commId as rank rank of nranks, and writes its handle to comm. The call
 * returns when all ranks have joined. If some have not after NEXAR_INIT_TIMEOUT_MS, it is
 * nexarTimeout on every rank, at most 500 ms later, and the text names the missing ranks.
 */
nexarResult_t nexarCommInitRank(nexarComm_t *comm,
                                int nranks,
                                nexarUniqueId commId,
                                int rank);

/**
 * As nexarCommInitRank, with settings for this communicator. config may be NULL.
 *
 * With config.blocking == 0 the call returns nexarInProgress at once, and the communicator is
 * created in the background. Until then nexarCommGetAsyncError gives nexarInProgress,
 * nexarCommAbort does not wait for it, nexarCommDestroy does, and any other use of the handle is
 * nexarInvalidArgument. Destroy or abort the handle also if the creation fails.
 */
nexarResult_t nexarCommInitRankConfig(nexarComm_t *comm,
                                      int nranks,
                                      nexarUniqueId commId,
                                      int rank,
                                      const nexarConfig_t *config);

/**
 * Joins the communicator that the environment describes: NEXAR_RANK, NEXAR_NRANKS, NEXAR_COMM_ID
 * and NEXAR_COMM_SECRET or NEXAR_COMM_SECRET_FILE, as nexar-run sets them. Without the first
 * three, or with NEXAR_NRANKS=1, the communicator has one rank. If only some of them are set, it
 * is nexarInvalidUsage.
 */
nexarResult_t nexarCommInitFromEnv(nexarComm_t *comm);

/**
 * Writes the number of ranks of comm to count.
 */
nexarResult_t nexarCommCount(nexarComm_t comm,
                             int *count);

/**
 * Writes this process's rank in comm, 0 ... nranks - 1, to rank.
 */
nexarResult_t nexarCommUserRank(nexarComm_t comm,
                                int *rank);

/**
 * Writes the CUDA device of this rank to device, or -1 if it has none. It is devlist[rank] of
 * nexarCommInitAll (rank if devlist was NULL); otherwise the device that was current when the
 * communicator was created, or the one whose memory was used first. A split keeps the device.
 */
nexarResult_t nexarCommCuDevice(nexarComm_t comm,
                                int *device);

/**
 * Writes the state of comm to asyncError, without waiting for operations: nexarSuccess while it
 * works, nexarInProgress while it is being created, otherwise the failure that all its operations
 * return from then on. If it reports a failure, it first waits until the peers know, at most 50
 * ms.
 */
nexarResult_t nexarCommGetAsyncError(nexarComm_t comm,
                                     nexarResult_t *asyncError);

/**
 * Waits until this rank's operations have completed. Further operations on comm are
 * nexarInvalidUsage; other ranks can go on with theirs. A second call is nexarInvalidArgument.
 * NULL is nexarSuccess.
 */
nexarResult_t nexarCommFinalize(nexarComm_t comm);

/**
 * Finalizes comm if the program has not, and frees it. The handle is invalid from the start of the
 * call. It works on a failed communicator. If comm is being created or split, the call waits for
 * that. It does not wait for operations of other ranks: one that still needs this rank is
 * nexarRemoteError there. What this rank has sent still arrives, so no barrier is needed before. A
 * program that exits without it still delivers what it has sent, for at most 30 s. NULL is
 * nexarSuccess.
 */
nexarResult_t nexarCommDestroy(nexarComm_t comm);

/**
 * Ends this rank's operations on comm at once, in whatever thread they run, and frees comm. Those
 * operations return nexarInvalidUsage; their buffers belong to them until they do. Other ranks get
 * nexarRemoteError that names this rank, unless comm had failed before. The call waits until they
 * know, at most 50 ms, so the program may exit when it returns. A communicator that is being
 * created is aborted once it exists; the call does not wait for that. NULL is nexarSuccess.
 */
nexarResult_t nexarCommAbort(nexarComm_t comm);

/* SPLITTING ------------------------------------------------------------------------------------ */

/**
 * Creates one communicator for each color, from the ranks of comm that pass that color, and writes
 * the handle of this rank's to newcomm. Ranks are numbered by key; equal keys keep their order in
 * comm. color is 0 or more. Every rank of comm calls it; one that passes NEXAR_SPLIT_NOCOLOR gets
 * NULL.
 *
 * A split is an operation of comm. The caller waits for it, whatever config.blocking is. Once all
 * ranks have called it, it takes at most NEXAR_INIT_TIMEOUT_MS. nexarCommAbort of comm in another
 * thread ends it.
 *
 * newcomm shares the connections of comm, and their peerTimeoutMs. Apart from that the two are
 * independent: each fails, is aborted and is destroyed without the other. A lost rank is lost to
 * all communicators that it is a member of. Settings that config does not give (all of them if
 * config is NULL) are those of comm, except its name.
 *
 * Inside a group, newcomm is NULL until the group ends.
 */
nexarResult_t nexarCommSplit(nexarComm_t comm,
                             int color,
                             int key,
                             nexarComm_t *newcomm,
                             const nexarConfig_t *config);

/* COLLECTIVES ---------------------------------------------------------------------------------- */

/**
 * Reduces the count elements of all ranks' sendbuff with op and writes the result to every rank's
 * recvbuff, with the same bits on every rank. In place if sendbuff == recvbuff.
 */
nexarResult_t nexarAllReduce(const void *sendbuff,
                             void *recvbuff,
                             size_t count,
                             nexarDataType_t datatype,
                             nexarRedOp_t op,
                             nexarComm_t comm,
                             nexarStream_t stream);

/**
 * As nexarAllReduce, but only rank root receives the result. recvbuff is ignored on other ranks.
 * In place at the root if sendbuff == recvbuff.
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
 * Copies count elements from the root's sendbuff to every rank's recvbuff. sendbuff is ignored on
 * other ranks. In place at the root if sendbuff == recvbuff.
 */
nexarResult_t nexarBroadcast(const void *sendbuff,
                             void *recvbuff,
                             size_t count,
                             nexarDataType_t datatype,
                             int root,
                             nexarComm_t comm,
                             nexarStream_t stream);

/**
 * As nexarBroadcast, with one buffer: the root sends buff, other ranks receive into buff.
 */
nexarResult_t nexarBcast(void *buff,
                         size_t count,
                         nexarDataType_t datatype,
                         int root,
                         nexarComm_t comm,
                         nexarStream_t stream);

/**
 * Collects sendcount elements from every rank, in rank order, in every rank's recvbuff, which has
 * nranks * sendcount elements. In place if sendbuff == recvbuff + rank * sendcount.
 */
nexarResult_t nexarAllGather(const void *sendbuff,
                             void *recvbuff,
                             size_t sendcount,
                             nexarDataType_t datatype,
                             nexarComm_t comm,
                             nexarStream_t stream);

/**
 * Reduces all ranks' sendbuff, nranks * recvcount elements, with op, and gives block i of the
 * result, recvcount elements, to rank i. In place if recvbuff == sendbuff + rank * recvcount; the
 * other blocks of sendbuff then keep their contents.
 */
nexarResult_t nexarReduceScatter(const void *sendbuff,
                                 void *recvbuff,
                                 size_t recvcount,
                                 nexarDataType_t datatype,
                                 nexarRedOp_t op,
                                 nexarComm_t comm,
                                 nexarStream_t stream);

/**
 * Sends block i of sendbuff, count elements, to rank i, and receives block i of recvbuff from rank
 * i. Both buffers have nranks * count elements. In place if sendbuff == recvbuff.
 */
nexarResult_t nexarAllToAll(const void *sendbuff,
                            void *recvbuff,
                            size_t count,
                            nexarDataType_t datatype,
                            nexarComm_t comm,
                            nexarStream_t stream);

/**
 * Collects count elements from every rank, in rank order, in the root's recvbuff, which has
 * nranks * count elements. recvbuff is ignored on other ranks. In place at the root if
 * sendbuff == recvbuff + root * count.
 */
nexarResult_t nexarGather(const void *sendbuff,
                          void *recvbuff,
                          size_t count,
                          nexarDataType_t datatype,
                          int root,
                          nexarComm_t comm,
                          nexarStream_t stream);

/**
 * Sends block i of the root's sendbuff, count elements, to rank i's recvbuff. sendbuff has
 * nranks * count elements and is ignored on other ranks. In place at the root if
 * recvbuff == sendbuff + root * count.
 */
nexarResult_t nexarScatter(const void *sendbuff,
                           void *recvbuff,
                           size_t count,
                           nexarDataType_t datatype,
                           int root,
                           nexarComm_t comm,
                           nexarStream_t stream);

/**
 * Inclusive prefix reduction: rank i receives the reduction of the count elements of ranks
 * 0 ... i, in rank order. In place if sendbuff == recvbuff. nexarAvg is nexarInvalidArgument.
 */
nexarResult_t nexarScan(const void *sendbuff,
                        void *recvbuff,
                        size_t count,
                        nexarDataType_t datatype,
                        nexarRedOp_t op,
                        nexarComm_t comm,
                        nexarStream_t stream);

/**
 * Exclusive prefix reduction: as nexarScan, but rank i receives the reduction of ranks
 * 0 ... i - 1. Rank 0 receives the identity of op: 0 for a sum, 1 for a product, the largest value
 * of the type for a minimum, the smallest for a maximum (infinities where the type has them). An
 * operator of nexarRedOpCreate has no identity: rank 0's recvbuff keeps its contents. In place if
 * sendbuff == recvbuff.
 */
nexarResult_t nexarExScan(const void *sendbuff,
                          void *recvbuff,
                          size_t count,
                          nexarDataType_t datatype,
                          nexarRedOp_t op,
                          nexarComm_t comm,
                          nexarStream_t stream);

/**
 * nexarAllReduce of nbuffs buffers in one call, in place: buffs[i] has counts[i] elements. It
 * takes about as long as one buffer of the same total size. Every rank passes the same counts.
 */
nexarResult_t nexarAllReduceBucketed(void *const *buffs,
                                     const size_t *counts,
                                     size_t nbuffs,
                                     nexarDataType_t datatype,
                                     nexarRedOp_t op,
                                     nexarComm_t comm,
                                     nexarStream_t stream);

/**
 * Completes when every rank has called it.
 */
nexarResult_t nexarBarrier(nexarComm_t comm,
                           nexarStream_t stream);

/* COLLECTIVES WITH COUNTS ---------------------------------------------------------------------- */

/**
 * As nexarAllGather, with a count for each rank: rank i's recvcounts[i] elements are written at
 * recvbuff + rdispls[i], in elements, on every rank. sendcount is recvcounts[rank]. Every rank
 * passes the same recvcounts. If rdispls is NULL, the blocks are contiguous. In place if
 * sendbuff == recvbuff + rdispls[rank].
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
 * As nexarReduceScatter, with a count for each rank: rank i receives a block of recvcounts[i]
 * elements. The blocks are contiguous in sendbuff. Every rank passes the same recvcounts. In place
 * if recvbuff is this rank's block of sendbuff.
 */
nexarResult_t nexarReduceScatterV(const void *sendbuff,
                                  void *recvbuff,
                                  const size_t *recvcounts,
                                  nexarDataType_t datatype,
                                  nexarRedOp_t op,
                                  nexarComm_t comm,
                                  nexarStream_t stream);

/**
 * As nexarAllToAll, with counts for each pair of ranks: sends sendcounts[i] elements at
 * sendbuff + sdispls[i] to rank i, and receives recvcounts[i] elements at recvbuff + rdispls[i]
 * from rank i. If sdispls or rdispls is NULL, those blocks are contiguous. In place if
 * sendbuff == recvbuff and both sides have the same counts and displacements.
 *
 * Sender and receiver of each block pass the same count. Otherwise every rank gets
 * nexarInvalidUsage; for the block of a rank to itself, that rank alone gets nexarInvalidArgument.
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
 * As nexarGather, with a count for each rank: the root receives sendcount elements from rank i at
 * recvbuff + rdispls[i], and recvcounts[i] must be that count. recvbuff, recvcounts and rdispls
 * are ignored on other ranks. If rdispls is NULL, the blocks are contiguous. In place at the root
 * if sendbuff == recvbuff + rdispls[root].
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
 * As nexarScatter, with a count for each rank: the root sends sendcounts[i] elements at
 * sendbuff + sdispls[i] to rank i, whose recvcount must be that count. sendbuff, sendcounts and
 * sdispls are ignored on other ranks. If sdispls is NULL, the blocks are contiguous. In place at
 * the root if recvbuff == sendbuff + sdispls[root].
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

/* MESSAGES ------------------------------------------------------------------------------------- */

/**
 * Sends count elements to rank peer, which receives them with nexarRecv and the same count and
 * datatype. On stream NULL the call returns when sendbuff may be reused: a short message may still
 * be under way then, a long one has met its receive. A rank may send to itself; unless the message
 * is short, its receive must be in the same group or in another thread.
 */
nexarResult_t nexarSend(const void *sendbuff,
                        size_t count,
                        nexarDataType_t datatype,
                        int peer,
                        nexarComm_t comm,
                        nexarStream_t stream);

/**
 * Receives count elements that rank peer sends with nexarSend. If the sender's count or datatype
 * differs, the call is nexarInvalidUsage and comm has failed; a message is never truncated. A
 * message of 0 elements is received like any other.
 */
nexarResult_t nexarRecv(void *recvbuff,
                        size_t count,
                        nexarDataType_t datatype,
                        int peer,
                        nexarComm_t comm,
                        nexarStream_t stream);

/**
 * As nexarSend, with a tag, 0 ... INT_MAX. nexarRecvTag receives it.
 */
nexarResult_t nexarSendTag(const void *sendbuff,
                           size_t count,
                           nexarDataType_t datatype,
                           int peer,
                           int tag,
                           nexarComm_t comm,
                           nexarStream_t stream);

/**
 * As nexarRecv, for messages of nexarSendTag: receives the first message from rank peer that has
 * this tag. peer may be NEXAR_ANY_SOURCE and tag NEXAR_ANY_TAG. It never receives a message of
 * nexarSend. The call does not report the source and the tag it has matched: nexarRecvTagStatus
 * does.
 */
nexarResult_t nexarRecvTag(void *recvbuff,
                           size_t count,
                           nexarDataType_t datatype,
                           int peer,
                           int tag,
                           nexarComm_t comm,
                           nexarStream_t stream);

/**
 * As nexarRecvTag, for a message whose count is not known: receives up to capacity elements, and
 * writes source, tag and count of the message, and datatype, to status. Elements of recvbuff
 * beyond the count are not written. status may be NULL.
 *
 * A message of more than capacity elements is not received: the call (in a group nexarGroupEnd, on
 * a stream nexarStreamSynchronize) is nexarInvalidArgument, its text has both counts, the source
 * and the tag, and comm still works. It makes no difference whether message or receive was first.
 * The message keeps its place before later ones of its sender: nexarProbeTag finds it, and a
 * receive with the capacity takes it. A message of another datatype is nexarInvalidUsage and comm
 * has failed, as in nexarRecvTag; nexarProbeTag reports the datatype beforehand.
 *
 * status is written when the receive has succeeded, and only then. Like recvbuff, it must stay
 * valid and untouched until the operation has completed: inside a group until the outermost
 * nexarGroupEnd has returned, on a stream until nexarStreamSynchronize has. status->size is read
 * by the call itself; if it is less than in the first version of nexarStatus_t, the call is
 * nexarInvalidArgument.
 *
 * recvbuff must be in host memory, and stream NULL or of nexarStreamCreate: a CUDA stream could
 * report neither the count nor the error of one call. Anything else is nexarInvalidArgument. For
 * device memory, use nexarProbeTag, then nexarRecvTag with the count.
 */
nexarResult_t nexarRecvTagStatus(void *recvbuff,
                                 size_t capacity,
                                 nexarDataType_t datatype,
                                 int peer,
                                 int tag,
                                 nexarStatus_t *status,
                                 nexarComm_t comm,
                                 nexarStream_t stream);

/**
 * Finds the message that nexarRecvTag with this peer and tag would take, and leaves it there: the
 * first that has arrived and that no receive has taken. peer may be NEXAR_ANY_SOURCE and tag
 * NEXAR_ANY_TAG. It never finds a message of nexarSend.
 *
 * If flag is NULL, the call waits for such a message, as nexarRecvTag on stream NULL would: behind
 * the operations that are queued for comm, with the same deadline and the same failures. Otherwise
 * it waits for nothing, and sets flag to 1 if it has found a message, else to 0. A message that
 * was sent may still be under way then; a loop of such calls finds it, or ends with the failure
 * that ends a receive: the loss of all ranks that it could come from, or a failure of comm.
 *
 * Writes source, tag, count and datatype of the message that was found to status, which may be
 * NULL; if none was found, status is not written. If the sender's type is of nexarDataTypeCreate,
 * datatype is the first type of comm with that size, or nexarMaxDataType if comm has none. A
 * receive that follows, with this peer and tag or with those of status, takes this message, unless
 * another thread or a stream receives it in between. status->size is as for nexarRecvTagStatus.
 *
 * The call completes before it returns; inside a group it is nexarInvalidUsage.
 */
nexarResult_t nexarProbeTag(int peer,
                            int tag,
                            int *flag,
                            nexarStatus_t *status,
                            nexarComm_t comm);

/**
 * nexarSend to rank dest and nexarRecv from rank source, concurrently: neither waits for the
 * other. The buffers must not overlap.
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

/* REQUESTS ------------------------------------------------------------------------------------- */

/**
 * As nexarSendTag, but does not wait: begins to send, and writes a request. sendbuff belongs to
 * the operation until the request is consumed, and must not be written before. nexarRecvTag,
 * nexarRecvTagStatus and nexarIrecvTag receive the message. A send is complete when sendbuff may
 * be reused: a short message at once, usually, a long one when its receive has taken it.
 */
nexarResult_t nexarIsendTag(const void *sendbuff,
                            size_t count,
                            nexarDataType_t datatype,
                            int peer,
                            int tag,
                            nexarRequest_t *request,
                            nexarComm_t comm);

/**
 * As nexarRecvTagStatus, but does not wait: the receive is posted, and a request is written. It
 * receives up to capacity elements; the call that consumes the request reports source, tag, count
 * and datatype. recvbuff belongs to the operation until then. A message of more than capacity
 * elements is nexarInvalidArgument for this request alone, and stays.
 */
nexarResult_t nexarIrecvTag(void *recvbuff,
                            size_t capacity,
                            nexarDataType_t datatype,
                            int peer,
                            int tag,
                            nexarRequest_t *request,
                            nexarComm_t comm);

/**
 * Does not wait. If the request has completed, sets done to 1, consumes the request and returns
 * the result of its operation; a receive that has succeeded writes status. Otherwise it sets done
 * to 0 and returns nexarSuccess. Where the call itself is wrong, done is not written and nothing
 * was consumed.
 */
nexarResult_t nexarRequestTest(nexarRequest_t request,
                               int *done,
                               nexarStatus_t *status);

/**
 * Waits until the request has completed, consumes it, and returns the result of its operation. A
 * receive that has succeeded writes status.
 */
nexarResult_t nexarRequestWait(nexarRequest_t request,
                               nexarStatus_t *status);

/**
 * Waits until one of count requests has completed, consumes that one, and sets its entry to NULL
 * and index to its index. Returns the result of its operation; a receive that has succeeded writes
 * status. Entries that are NULL are skipped. If all are, or count is 0, it is nexarSuccess at once
 * and index is count. If several have completed, it takes the first. Where the call itself is
 * wrong, nothing was consumed: an entry is then as before, and index was not written.
 */
nexarResult_t nexarRequestWaitAny(size_t count,
                                  nexarRequest_t *requests,
                                  size_t *index,
                                  nexarStatus_t *status);

/**
 * Withdraws a receive that has matched no message. That consumes the request and is nexarSuccess:
 * recvbuff was not written, and a message that arrives later goes to another receive. If the
 * receive has matched a message or has completed, and for every send, it is nexarInProgress: the
 * request stays, and nexarRequestTest or nexarRequestWait must consume it.
 */
nexarResult_t nexarRequestCancel(nexarRequest_t request);

/* DATA TYPES ----------------------------------------------------------------------------------- */

/**
 * Creates a type of elements of bytes bytes for comm, and writes it to datatype. bytes is 1 ...
 * 4,194,304 (4 MiB: the size travels in 22 bits of each message's header), for example the sizeof
 * of a struct. The library does not look into an element.
 *
 * Every call that takes a datatype takes it; counts and displacements are in elements. In
 * reductions the operator must be one of nexarRedOpCreate: its function gets whole elements, and
 * datatype as it was passed to the call. Any other operator, and nexarRedOpCreatePreMulSum, is
 * nexarInvalidArgument.
 *
 * Ranks agree on the size, not on the number: each creates the type for itself, at any time before
 * its first use. Like an operator, it belongs to comm alone, also if that is split.
 */
nexarResult_t nexarDataTypeCreate(nexarDataType_t *datatype,
                                  size_t bytes,
                                  nexarComm_t comm);

/**
 * Destroys a type of comm. nexarCommDestroy destroys all that are left. Operations that were
 * called before still use it.
 */
nexarResult_t nexarDataTypeDestroy(nexarDataType_t datatype,
                                   nexarComm_t comm);

/* OPERATORS ------------------------------------------------------------------------------------ */

/**
 * Creates an operator for comm and one datatype, and writes it to op: each rank's elements are
 * multiplied by the one element at scalar, then summed. Ranks may pass different scalars.
 * residence says when scalar is read.
 */
nexarResult_t nexarRedOpCreatePreMulSum(nexarRedOp_t *op,
                                        void *scalar,
                                        nexarDataType_t datatype,
                                        nexarScalarResidence_t residence,
                                        nexarComm_t comm);

/**
 * Creates an operator for comm from a function of the program, for any datatype, and writes it to
 * op.
 *
 * fold reduces count whole elements: inout[i] = in[i] op inout[i]. in and inout are aligned to 8
 * bytes, to 16 if that divides the size of an element of nexarDataTypeCreate; datatype is that of
 * the call. fold must be associative. If commutative is 0, operands are reduced in rank order: in
 * comes from lower ranks than inout; if it is 1, in any order. All ranks pass the same
 * commutative. user is passed to fold unchanged.
 *
 * fold runs in the thread of the call, or in a thread nexar-stream (on a stream, and in a group
 * that mixes device and host memory), in that thread's floating-point environment. It must not
 * call nexar, and must not throw.
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
 * Destroys an operator of comm. nexarCommDestroy destroys all that are left. Operations that were
 * called before still use it: fold, user and a scalar that is not immediate must stay valid until
 * they have completed.
 */
nexarResult_t nexarRedOpDestroy(nexarRedOp_t op,
                                nexarComm_t comm);

/* GROUPS --------------------------------------------------------------------------------------- */

/**
 * Begins a group of calls of this thread. Groups nest; only the outermost nexarGroupEnd acts.
 *
 * Operations inside a group return at once and run at its end; their buffers, streams and
 * communicators must stay valid until then. They may be on any communicators and streams, in any
 * order.
 *
 * nexarCommInitRank, nexarCommInitRankConfig (all with the same config.blocking) and
 * nexarCommInitFromEnv write their handles at once, and create the communicators at the end of the
 * group; these cannot be used inside it. nexarCommSplit writes its handle at the end of the group.
 * All other calls act at once.
 */
nexarResult_t nexarGroupStart(void);

/**
 * Ends a group. The outermost end, in this order:
 *  1. creates the communicators of the group, all at once; with config.blocking == 0 it returns
 *     nexarInProgress without waiting for them;
 *  2. executes the splits;
 *  3. starts all operations before it waits for any, and returns when those on stream NULL have
 *     completed and the others are queued on their streams.
 *
 * Operations on one communicator are numbered in the order in which they were called, and run
 * concurrently: none may touch a buffer that another writes.
 *
 * If a call inside the group returned an error, the end returns that error again (the last, if
 * there are several) and starts nothing; communicators that the group would have created have
 * failed. Otherwise it returns the first failure of a creation, of a split or of an operation on
 * stream NULL. Destroy every handle that was written, also if its creation failed. Without
 * nexarGroupStart it is nexarInvalidUsage.
 */
nexarResult_t nexarGroupEnd(void);

/* HOST STREAMS --------------------------------------------------------------------------------- */

/**
 * Creates a host stream: a thread that executes the operations queued on it, in order.
 *
 * An operation on a stream returns at once. It takes its sequence number, or its position among
 * messages, when it is called, and runs when the operations queued before it on this stream have
 * completed; a collective also waits for collectives queued before it on other streams for the
 * same communicator. Those of one group run concurrently. An operation on stream NULL waits for
 * those that are queued for its communicator. Operations of different communicators on different
 * streams run concurrently.
 */
nexarResult_t nexarStreamCreate(nexarStream_t *stream);

/**
 * Waits until all operations queued on stream have completed. Returns the first error among those
 * since the last nexarStreamSynchronize, once; nexarGetLastError(NULL) has its text. NULL is
 * nexarSuccess: operations on host memory and stream NULL have completed. A CUDA stream is
 * nexarInvalidArgument; CUDA's own functions synchronize it.
 */
nexarResult_t nexarStreamSynchronize(nexarStream_t stream);

/**
 * Does not wait. Returns nexarSuccess if all queued operations have completed, nexarInProgress if
 * not, or the error that nexarStreamSynchronize will return.
 */
nexarResult_t nexarStreamQuery(nexarStream_t stream);

/**
 * Waits until all operations queued on stream have completed, and frees it. The handle is invalid
 * from the start of the call. An error that nexarStreamSynchronize has not returned is lost. NULL
 * is nexarSuccess.
 */
nexarResult_t nexarStreamDestroy(nexarStream_t stream);

/* MEMORY --------------------------------------------------------------------------------------- */

/**
 * Allocates size bytes of zeroed, page-aligned host memory and writes its address to ptr: host
 * memory also if a CUDA device is current. Any memory can be a buffer; the other processes of the
 * host map this kind, which saves a copy of a large sendbuff (not in place, and not with the ops
 * Avg of floats and PreMulSum). It belongs to the process, not to a communicator. A forked child
 * does not inherit it: an access there raises SIGSEGV. For a size of 0, ptr is set to NULL.
 */
nexarResult_t nexarMemAlloc(void **ptr,
                            size_t size);

/**
 * Frees memory of nexarMemAlloc. No operation may be using it. NULL is nexarSuccess; any other
 * pointer is nexarInvalidArgument.
 */
nexarResult_t nexarMemFree(void *ptr);

/**
 * Accepts a buffer of size bytes for use with comm, and writes a handle to handle, as NCCL's
 * programs expect. In this version registration has no effect: any memory can be a buffer, and it
 * may be freed at any time. nexarCommDestroy and nexarCommAbort free the handles that are left.
 */
nexarResult_t nexarCommRegister(nexarComm_t comm,
                                void *buff,
                                size_t size,
                                void **handle);

/**
 * Frees a handle of nexarCommRegister. A handle of another communicator, or one that was freed, is
 * nexarInvalidArgument.
 */
nexarResult_t nexarCommDeregister(nexarComm_t comm,
                                  void *handle);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* NEXAR_H */
