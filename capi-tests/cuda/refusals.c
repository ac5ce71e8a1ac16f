/*
 * Calls on CUDA streams and device memory that are refused have no effect: the communicator works,
 * and the thread's contexts and captures are unchanged.
 */
#include <sched.h>

#include "vectors.h"

enum { COUNT = 1001 };

static void *run_on_a_thread(void *(*function)(void *), void *argument) {
  pthread_t thread;
  void *result = NULL;
  CHECK_EQ(0, pthread_create(&thread, NULL, function, argument));
  CHECK_EQ(0, pthread_join(thread, &result));
  return result;
}

static void device_memory_on_a_host_stream_is_refused(void) {
  struct here h = here();
  struct vector vector = new_vector(COUNT);
  uint32_t number = 1;
  nexarStream_t stream;
  CHECK_CODE(nexarSuccess, nexarStreamCreate(&stream));
  CALL_CODE(nexarInvalidArgument, reduce_vector(&vector, h.comm, stream));
  CHECK_TEXT(nexarGetLastError(h.comm), "CUDA stream");
  CALL_CODE(nexarInvalidArgument,
            nexarSend(data_of(&vector), COUNT, nexarUint32, 0, h.comm, stream));
  CALL_CODE(nexarInvalidArgument, nexarReduce(&number, data_of(&vector), 1, nexarUint32, nexarSum,
                                              h.rank, h.comm, stream));
  CHECK_CODE(nexarSuccess, nexarStreamQuery(stream));
  CALL(nexarAllReduce(&number, &number, 1, nexarUint32, nexarSum, h.comm, stream));
  CHECK_CODE(nexarSuccess, nexarStreamSynchronize(stream));
  CHECK_EQ(h.n, number);
  CHECK_CODE(nexarSuccess, nexarStreamDestroy(stream));
  free_vector(&vector);
  check_device_works(h);
}

/* The driver would dereference any handle, also one that is not its own. */
static void a_destroyed_host_stream_is_refused_and_never_passed_to_the_driver(void) {
  struct here h = here();
  struct vector vector = new_vector(COUNT);
  uint32_t number = 1;
  nexarStream_t stream;
  CHECK_CODE(nexarSuccess, nexarStreamCreate(&stream));
  CHECK_CODE(nexarSuccess, nexarStreamDestroy(stream));
  fakecuda_reset_calls();
  CALL_CODE(nexarInvalidArgument,
            nexarAllReduce(&number, &number, 1, nexarUint32, nexarSum, h.comm, stream));
  CHECK_TEXT(nexarGetLastError(h.comm), "stream");
  CALL_CODE(nexarInvalidArgument, reduce_vector(&vector, h.comm, stream));
  CALL_CODE(nexarInvalidArgument, nexarBarrier(h.comm, stream));
  CALL_CODE(nexarInvalidArgument, nexarSend(&number, 1, nexarUint32, 0, h.comm, stream));
  CHECK_EQ(0, fakecuda_calls("cuStreamIsCapturing") + fakecuda_calls("cuStreamQuery") +
                  fakecuda_calls("cuStreamWaitEvent") + fakecuda_calls("cuStreamWriteValue32_v2"));
  CHECK_EQ(1, number);
  free_vector(&vector);
  check_device_works(h);
}

static CUcontext context_of(CUdevice device) {
  CUcontext context = NULL;
  DO(cuDevicePrimaryCtxRetain(&context, device));
  return context;
}

/* Memory of device 1, which is not the communicator's. */
static struct vector vector_elsewhere(void) {
  DO(cuCtxPushCurrent_v2(context_of(1)));
  struct vector vector = new_vector(COUNT);
  DO(cuCtxPopCurrent_v2(NULL));
  return vector;
}

static void check_names_both(nexarComm_t comm, const char *buffer) {
  CHECK_TEXT(nexarGetLastError(comm), "device 0");
  CHECK_TEXT(nexarGetLastError(comm), "device 1");
  CHECK_TEXT(nexarGetLastError(comm), buffer);
}

static void memory_of_another_device_is_refused(void) {
  struct here h = here();
  struct vector own = new_vector(COUNT), foreign = vector_elsewhere();
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  size_t count = COUNT;
  void *buffers[] = {data_of(&own), data_of(&foreign)};
  size_t counts[] = {count, count};
  CALL_CODE(nexarInvalidArgument, nexarAllReduce(data_of(&foreign), data_of(&own), count,
                                                 nexarUint32, nexarSum, h.comm, stream));
  check_names_both(h.comm, "sendbuff");
  CALL_CODE(nexarInvalidArgument, nexarAllReduce(data_of(&own), data_of(&foreign), count,
                                                 nexarUint32, nexarSum, h.comm, NULL));
  check_names_both(h.comm, "recvbuff");
  CALL_CODE(nexarInvalidArgument, reduce_vector(&foreign, h.comm, NULL));
  CALL_CODE(nexarInvalidArgument,
            nexarSend(data_of(&foreign), count, nexarUint32, 0, h.comm, stream));
  CALL_CODE(nexarInvalidArgument,
            nexarRecv(data_of(&foreign), count, nexarUint32, 0, h.comm, stream));
  CALL_CODE(nexarInvalidArgument, nexarAllReduceBucketed(buffers, counts, 2, nexarUint32, nexarSum,
                                                         h.comm, stream));
  check_names_both(h.comm, "buffs");
  CHECK_EQ(0, fakecuda_pending(stream));
  /* The buffer may be anywhere on ranks that ignore it. */
  CALL(nexarReduce(data_of(&own), h.rank ? data_of(&foreign) : data_of(&own), count, nexarUint32,
                   nexarSum, 0, h.comm, stream));
  end_stream(stream);
  free_vector(&own);
  free_vector(&foreign);
  DO(cuDevicePrimaryCtxRelease_v2(1));
  check_device_works(h);
}

/* A buffer that begins in an allocation and ends outside of it. */
static void memory_of_two_kinds_is_refused(void) {
  struct here h = here();
  struct vector vector = new_vector(COUNT);
  size_t beyond = 1 << 24;
  CALL_CODE(nexarInvalidArgument, nexarAllReduce(data_of(&vector), data_of(&vector), beyond,
                                                 nexarUint32, nexarSum, h.comm, NULL));
  CHECK_TEXT(nexarGetLastError(h.comm), "memory of device 0");
  free_vector(&vector);
  check_device_works(h);
}

static void begin_capture(CUstream stream, CUstreamCaptureMode mode) {
  DO(cuStreamBeginCapture_v2(stream, mode));
}

static void check_still_captured(CUstream stream) {
  CUstreamCaptureStatus status = 77;
  DO(cuStreamIsCapturing(stream, &status));
  CHECK_EQ(CU_STREAM_CAPTURE_STATUS_ACTIVE, status);
}

static void end_capture(CUstream stream) {
  CUgraph graph = NULL;
  check_still_captured(stream);
  DO(cuStreamEndCapture(stream, &graph));
  CHECK(graph != NULL);
}

static void call_under_capture(struct here h, CUstreamCaptureMode mode) {
  CUstream captured = new_stream(CU_STREAM_NON_BLOCKING);
  CUstream other = new_stream(CU_STREAM_NON_BLOCKING);
  struct vector vector = new_vector(COUNT);
  begin_capture(captured, mode);
  uint64_t before = fakecuda_captured();
  CALL_CODE(nexarInvalidUsage, reduce_vector(&vector, h.comm, captured));
  CHECK_TEXT(nexarGetLastError(h.comm), "captur");
  CALL_CODE(nexarInvalidUsage, nexarBarrier(h.comm, captured));
  CALL_CODE(nexarInvalidUsage,
            nexarSend(data_of(&vector), COUNT, nexarUint32, 0, h.comm, captured));
  /* In a group, none of whose operations begins. */
  CALL(nexarGroupStart());
  CALL(reduce_vector(&vector, h.comm, other));
  nexarResult_t inside = reduce_vector(&vector, h.comm, captured);
  CHECK(inside == nexarSuccess || inside == nexarInvalidUsage);
  CALL_CODE(nexarInvalidUsage, nexarGroupEnd());
  CHECK_EQ(0, fakecuda_pending(other));
  CHECK_EQ(before, fakecuda_captured());
  /* Calls on other streams and on host memory work. */
  check_it_works(h.rank, h.n, h.comm);
  fill_vector(&vector, other, 1, 1);
  CALL(reduce_vector(&vector, h.comm, other));
  copy_out(&vector, other);
  while (fakecuda_pending(other) > 0) sched_yield();
  CHECK_SEEN(&vector, h.n, h.n);
  CHECK_EQ(before, fakecuda_captured());
  end_capture(captured);
  end_stream(captured);
  end_stream(other);
  free_vector(&vector);
  check_device_works(h);
}

static void a_captured_stream_is_refused_and_its_capture_goes_on(void) {
  call_under_capture(here(), CU_STREAM_CAPTURE_MODE_GLOBAL);
  call_under_capture(here(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  call_under_capture(here(), CU_STREAM_CAPTURE_MODE_RELAXED);
}

static void the_default_stream_is_refused_while_it_would_disturb_a_capture(void) {
  struct here h = here();
  CUstream captured = new_stream(CU_STREAM_DEFAULT);
  struct vector vector = new_vector(COUNT);
  begin_capture(captured, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  CALL_CODE(nexarInvalidUsage, reduce_vector(&vector, h.comm, NULL));
  CALL_CODE(nexarInvalidUsage, reduce_vector(&vector, h.comm, CU_STREAM_LEGACY));
  end_capture(captured);
  end_stream(captured);
  free_vector(&vector);
  check_device_works(h);
}

/* The message is too large for pinned memory, so the call waits for its stream. */
static void large_messages_leave_the_capture_of_another_stream_alone(void) {
  struct here h = here();
  enum { LARGE = (17 << 20) / 4 };
  CUstream captured = new_stream(CU_STREAM_NON_BLOCKING);
  CUstream other = new_stream(CU_STREAM_NON_BLOCKING);
  struct vector sent = new_vector(LARGE), got = new_vector(LARGE);
  int next = (h.rank + 1) % h.n, previous = (h.rank + h.n - 1) % h.n;
  begin_capture(captured, CU_STREAM_CAPTURE_MODE_GLOBAL);
  fill_vector(&sent, other, (uint32_t)h.rank, 1);
  CALL(nexarSendRecv(data_of(&sent), LARGE, next, data_of(&got), LARGE, previous, nexarUint32,
                     h.comm, other));
  copy_out(&got, other);
  while (fakecuda_pending(other) > 0) sched_yield();
  CHECK_SEEN(&got, previous, 1);
  end_capture(captured);
  end_stream(captured);
  end_stream(other);
  free_vector(&sent);
  free_vector(&got);
}

static void communicators_are_created_and_destroyed_while_a_stream_is_captured(void) {
  struct here h = here();
  CUstream captured = new_stream(CU_STREAM_NON_BLOCKING);
  begin_capture(captured, CU_STREAM_CAPTURE_MODE_GLOBAL);
  nexarComm_t other = join_another(h.rank, h.n, h.comm), part = NULL;
  CALL(nexarCommSplit(other, 0, 0, &part, NULL));
  check_it_works(h.rank, h.n, part);
  CALL(nexarCommDestroy(part));
  CALL(nexarCommDestroy(other));
  end_capture(captured);
  end_stream(captured);
}

struct thread_call {
  struct here here;
  struct vector vector;
  CUstream stream;
  CUdevice device; /* its context is current; -1: no context is */
};

static void *reduce_on_a_thread(void *argument) {
  struct thread_call *call = argument;
  if (call->device >= 0) DO(cuCtxPushCurrent_v2(context_of(call->device)));
  unsigned depth = fakecuda_context_depth();
  CHECK_CODE(nexarSuccess, reduce_vector(&call->vector, call->here.comm, call->stream));
  CHECK_CODE(nexarInvalidArgument, nexarAllReduce(data_of(&call->vector), NULL, COUNT,
                                                  nexarUint32, nexarSum, call->here.comm,
                                                  call->stream));
  CHECK_EQ(depth, fakecuda_context_depth());
  if (call->device >= 0) DO(cuCtxPopCurrent_v2(NULL));
  if (call->device >= 0) DO(cuDevicePrimaryCtxRelease_v2(call->device));
  return NULL;
}

static void a_thread_needs_no_context_of_the_device(void) {
  struct here h = here();
  CUstream streams[] = {new_stream(CU_STREAM_NON_BLOCKING), NULL};
  for (CUdevice device = -1; device < 2; device++)
    for (size_t s = 0; s < COUNT_OF(streams); s++) {
      struct thread_call call = {h, new_vector(COUNT), streams[s], device};
      fill_vector(&call.vector, streams[s], (uint32_t)h.rank + 1, 0);
      run_on_a_thread(reduce_on_a_thread, &call);
      copy_out(&call.vector, streams[s]);
      synchronize(streams[s]);
      CHECK_SEEN(&call.vector, sum_of_ranks(h.n), 0);
      free_vector(&call.vector);
    }
  end_stream(streams[0]);
}

/* Each rank sends itself a message and receives as many elements as it has capacity for. */
static void a_receive_with_a_capacity_needs_host_memory_and_no_cuda_stream(void) {
  struct here h = here();
  struct vector vector = new_vector(COUNT);
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  nexarStream_t host;
  nexarStatus_t status = NEXAR_STATUS_INITIALIZER;
  uint32_t sent[2] = {7, 8}, received[3] = {0};
  CHECK_CODE(nexarSuccess, nexarStreamCreate(&host));
  const struct {
    void *recv;
    nexarStream_t stream;
  } refused[] = {{data_of(&vector), NULL}, {data_of(&vector), stream},
                 {data_of(&vector), host}, {received, stream}};
  for (size_t i = 0; i < COUNT_OF(refused); i++) {
    CALL_CODE(nexarInvalidArgument,
              nexarRecvTagStatus(refused[i].recv, 2, nexarUint32, h.rank, 1, &status, h.comm,
                                 refused[i].stream));
    CHECK_TEXT(nexarGetLastError(h.comm), "a receive with a capacity needs a recvbuff in host");
  }
  CHECK_EQ(0, fakecuda_pending(stream));
  nexarRequest_t request = NULL;
  CALL_CODE(nexarInvalidArgument, nexarIsendTag(data_of(&vector), 2, nexarUint32, h.rank, 1,
                                                &request, h.comm));
  CHECK_TEXT(nexarGetLastError(h.comm), "a request needs a buffer in host memory");
  CALL_CODE(nexarInvalidArgument, nexarIrecvTag(data_of(&vector), 2, nexarUint32, h.rank, 1,
                                                &request, h.comm));
  CHECK_TEXT(nexarGetLastError(h.comm), "a request needs a buffer in host memory");
  CHECK(request == NULL);
  nexarStream_t accepted[] = {NULL, host};
  for (size_t i = 0; i < COUNT_OF(accepted); i++) {
    CALL(nexarSendTag(sent, 2, nexarUint32, h.rank, 1, h.comm, NULL));
    CALL(nexarProbeTag(h.rank, 1, NULL, &status, h.comm));
    CHECK_EQ(2, status.count);
    status.count = 0;
    CALL(nexarRecvTagStatus(received, 3, nexarUint32, h.rank, 1, &status, h.comm, accepted[i]));
    CALL(nexarStreamSynchronize(accepted[i]));
    CHECK_EQ(2, status.count);
    CHECK(received[0] == 7 && received[1] == 8 && received[2] == 0);
  }
  /* In a group with a call on a CUDA stream, which completes. */
  CALL(nexarSendTag(sent, 2, nexarUint32, h.rank, 1, h.comm, NULL));
  fill_vector(&vector, stream, (uint32_t)h.rank + 1, 0);
  CALL(nexarGroupStart());
  CALL(reduce_vector(&vector, h.comm, stream));
  CALL(nexarRecvTagStatus(received, 1, nexarUint32, h.rank, 1, &status, h.comm, NULL));
  CALL_CODE(nexarInvalidArgument, nexarGroupEnd());
  CHECK_TEXT(nexarGetLastError(NULL), "too long for Recv(up to 1 x uint32");
  copy_out(&vector, stream);
  synchronize(stream);
  CHECK_SEEN(&vector, sum_of_ranks(h.n), 0);
  CALL(nexarRecvTag(received, 2, nexarUint32, h.rank, 1, h.comm, NULL));
  CHECK_CODE(nexarSuccess, nexarStreamDestroy(host));
  end_stream(stream);
  free_vector(&vector);
  check_device_works(h);
}

static const struct test_case cases[] = {
    CASE(device_memory_on_a_host_stream_is_refused),
    CASE(a_destroyed_host_stream_is_refused_and_never_passed_to_the_driver),
    CASE(memory_of_another_device_is_refused),
    CASE(memory_of_two_kinds_is_refused),
    CASE(a_captured_stream_is_refused_and_its_capture_goes_on),
    CASE(the_default_stream_is_refused_while_it_would_disturb_a_capture),
    CASE(large_messages_leave_the_capture_of_another_stream_alone),
    CASE(communicators_are_created_and_destroyed_while_a_stream_is_captured),
    CASE(a_thread_needs_no_context_of_the_device),
    CASE(a_receive_with_a_capacity_needs_host_memory_and_no_cuda_stream),
};

int main(void) {
  begin_with_device();
  return RUN(cases);
}
