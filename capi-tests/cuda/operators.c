/*
 * Operators that programs create, on device memory: functions reduce in host memory, in rank order;
 * a scalar on a device is read in stream order.
 */
#include "buffers.h"
#include "vectors.h"

/* Composition of maps x -> (2 k + 1) x + b, the left one first, as in collective/redop.c. */
static uint64_t compose(const struct dtype *dtype, uint64_t left, uint64_t right) {
  unsigned half = 4 * (unsigned)dtype->size;
  uint64_t mask = (UINT64_C(1) << half) - 1;
  uint64_t k1 = left >> half & mask, b1 = left & mask, k2 = right >> half & mask, b2 = right & mask;
  uint64_t k = (2 * k1 * k2 + k1 + k2) & mask, b = ((2 * k2 + 1) * b1 + b2) & mask;
  return wrapped(dtype, k << half | b);
}

/* Every reduction, small in every way, and large enough for several pieces. */
static void fold_everywhere(nexarDataType_t datatype, struct operator op) {
  int n = here().n;
  for (size_t c = 0; c < COUNT_OF(folding); c++) {
    struct job job = {.collective = folding[c], .dtype = dtype_of(datatype), .op = op,
                      .count = 1001, .lengths = RAGGED, .buffers = 3};
    run_every_way(n, job);
    bool has_blocks = folding[c] == &reduce_scatter || folding[c] == &reduce_scatter_v;
    job.count = ((17 << 20) / (has_blocks ? (size_t)n : 1) + 8) / job.dtype->size;
    job.root = n - 1;
    job.shift = c % 2;
    job.in_place = c % 3 == 0;
    run_job(n, job);
  }
}

static void functions_of_the_program_reduce_in_the_order_of_ranks(void) {
  fold_everywhere(nexarUint64, (struct operator){.combine = compose, .commutative = false});
}

static void premultiplied_sums_are_right(void) {
  fold_everywhere(nexarInt64, (struct operator){.premultiplied = true,
                                                .residence = nexarScalarHostImmediate});
  fold_everywhere(nexarFloat32, (struct operator){.premultiplied = true,
                                                  .residence = nexarScalarDevice});
  struct job job = {.count = 1001, .buffers = 3, .op = {.premultiplied = true}};
  for (size_t c = 0; c < COUNT_OF(folding); c++) {
    job.collective = folding[c];
    run_every_type(here().n, job);
  }
}

/* The stream writes the scalar before each call and overwrites it after. */
static void scale(struct here h, size_t count, CUstream stream) {
  struct vector vector = new_vector(count), scalar = new_vector(3);
  nexarRedOp_t op;
  CALL(nexarRedOpCreatePreMulSum(&op, pointer(scalar.at + 4), nexarUint32, nexarScalarDevice,
                                 h.comm));
  uint32_t factor = 1;
  fill_vector(&vector, stream, (uint32_t)h.rank + 1, 3);
  for (uint32_t i = 0; i < 3; i++) {
    fill_vector(&scalar, stream, 5 + i, 0);
    CALL(nexarAllReduce(data_of(&vector), data_of(&vector), count, nexarUint32, op, h.comm,
                        stream));
    fill_vector(&scalar, stream, 1000, 0);
    factor *= (5 + i) * (i ? (uint32_t)h.n : 1);
  }
  copy_out(&vector, stream);
  synchronize(stream);
  CHECK_SEEN(&vector, factor * sum_of_ranks(h.n), 3 * factor * (uint32_t)h.n);
  CALL(nexarRedOpDestroy(op, h.comm));
  free_vector(&vector);
  free_vector(&scalar);
}

static void a_scalar_on_the_device_is_read_in_the_order_of_the_stream(void) {
  struct here h = here();
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  scale(h, 1, stream);
  scale(h, 1001, NULL);
  scale(h, (5 << 20) + 1, stream);
  end_stream(stream);
}

/* The data is in host memory, only the scalar on the device. */
static void a_scalar_on_the_device_may_scale_host_memory(void) {
  struct here h = here();
  CUstream streams[] = {new_stream(CU_STREAM_NON_BLOCKING), NULL};
  struct vector scalar = new_vector(1);
  for (size_t s = 0; s < COUNT_OF(streams); s++) {
    nexarRedOp_t op;
    CALL(nexarRedOpCreatePreMulSum(&op, data_of(&scalar), nexarUint32, nexarScalarDevice, h.comm));
    uint32_t numbers[] = {(uint32_t)h.rank + 1, 2};
    fill_vector(&scalar, streams[s], 3 + (uint32_t)h.rank, 0);
    CALL(nexarAllReduce(numbers, numbers, 2, nexarUint32, op, h.comm, streams[s]));
    synchronize(streams[s]);
    uint32_t expected[] = {0, 0};
    for (uint32_t rank = 0; rank < (uint32_t)h.n; rank++) {
      expected[0] += (3 + rank) * (rank + 1);
      expected[1] += (3 + rank) * 2;
    }
    CHECK_EQ(expected[0], numbers[0]);
    CHECK_EQ(expected[1], numbers[1]);
    CALL(nexarRedOpDestroy(op, h.comm));
  }
  end_stream(streams[0]);
  free_vector(&scalar);
}

/* A device can access pinned memory: the scalar's value is the one that the stream reads. */
static void scale_by_pinned(struct here h, size_t count, CUstream stream) {
  struct vector vector = new_vector(count), scalar = new_vector(1);
  nexarRedOp_t op;
  CALL(nexarRedOpCreatePreMulSum(&op, scalar.seen, nexarUint32, nexarScalarDevice, h.comm));
  *scalar.seen = 1000;
  uint64_t hold;
  MINE(hold = fakecuda_hold(stream));
  fill_vector(&vector, stream, (uint32_t)h.rank + 1, 3);
  fill_vector(&scalar, stream, 5, 0);
  copy_out(&scalar, stream);
  CALL(nexarAllReduce(data_of(&vector), data_of(&vector), count, nexarUint32, op, h.comm, stream));
  copy_out(&vector, stream);
  CHECK_EQ(1000, *scalar.seen);
  fakecuda_release(hold);
  synchronize(stream);
  CHECK_SEEN(&vector, 5 * sum_of_ranks(h.n), 3 * 5 * (uint32_t)h.n);
  CALL(nexarRedOpDestroy(op, h.comm));
  free_vector(&vector);
  free_vector(&scalar);
}

static void a_scalar_in_pinned_memory_is_read_in_the_order_of_the_stream(void) {
  struct here h = here();
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  scale_by_pinned(h, 1, stream);
  scale_by_pinned(h, 1001, CU_STREAM_LEGACY);
  scale_by_pinned(h, (5 << 20) + 1, stream);
  end_stream(stream);
}

static void a_scalar_in_pinned_memory_is_read_at_the_call_if_there_is_no_stream(void) {
  struct here h = here();
  struct vector scalar = new_vector(1);
  uint32_t number = (uint32_t)h.rank + 1;
  uint64_t hold;
  nexarRedOp_t op;
  CALL(nexarRedOpCreatePreMulSum(&op, scalar.seen, nexarUint32, nexarScalarDevice, h.comm));
  *scalar.seen = 7;
  /* A call without a CUDA stream does not wait for the default stream. */
  MINE(hold = fakecuda_hold(CU_STREAM_LEGACY));
  fill_vector(&scalar, CU_STREAM_LEGACY, 5, 0);
  copy_out(&scalar, CU_STREAM_LEGACY);
  CALL(nexarAllReduce(&number, &number, 1, nexarUint32, op, h.comm, NULL));
  CHECK_EQ(7 * sum_of_ranks(h.n), number);
  fakecuda_release(hold);
  synchronize(CU_STREAM_LEGACY);
  CALL(nexarRedOpDestroy(op, h.comm));
  free_vector(&scalar);
}

static const struct test_case cases[] = {
    CASE(functions_of_the_program_reduce_in_the_order_of_ranks),
    CASE(premultiplied_sums_are_right),
    CASE(a_scalar_on_the_device_is_read_in_the_order_of_the_stream),
    CASE(a_scalar_on_the_device_may_scale_host_memory),
    CASE(a_scalar_in_pinned_memory_is_read_in_the_order_of_the_stream),
    CASE(a_scalar_in_pinned_memory_is_read_at_the_call_if_there_is_no_stream),
};

int main(void) {
  begin_elsewhere();
  return RUN(cases);
}
