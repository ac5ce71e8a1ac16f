/*
 * nexarDataTypeCreate: elements of any size through every collective and message. Each rank knows a
 * type by another number; the operator fails on a part of an element.
 */
#define _GNU_SOURCE
#include "support/calls.h"
#include "support/status.h"

/* A type of this rank, and what the function that reduces it expects. */
struct type {
  size_t bytes;
  nexarDataType_t number;
};

/* A call of all ranks: rank r first creates r types, so that the numbers of processes differ. */
static struct type type_of(size_t bytes, int rank, nexarComm_t comm) {
  struct type type = {bytes, nexarMaxDataType};
  for (int i = 0; i <= rank; i++)
    CHECK_CODE(nexarSuccess, nexarDataTypeCreate(&type.number, i < rank ? 1 : bytes, comm));
  return type;
}

/*
 * Each two bytes of an element are a map x -> a x + b, mixed with their position; maps are
 * composed, the left one first. A byte that is left over is added.
 */
static void compose_bytes(const uint8_t *left, uint8_t *right, size_t count, size_t bytes) {
  for (size_t i = 0; i < count; i++, left += bytes, right += bytes) {
    for (size_t at = 0; at + 1 < bytes; at += 2) {
      uint8_t mix = (uint8_t)(at / 2), a = left[at] ^ mix, b = left[at + 1] ^ mix;
      uint8_t c = right[at] ^ mix, d = right[at + 1] ^ mix;
      right[at] = (uint8_t)(a * c) ^ mix;
      right[at + 1] = (uint8_t)(b * c + d) ^ mix;
    }
    if (bytes % 2) right[bytes - 1] = (uint8_t)(right[bytes - 1] + left[bytes - 1]);
  }
}

static void compose(const void *in, void *inout, size_t count, nexarDataType_t datatype,
                    void *user) {
  const struct type *type = user;
  size_t alignment = type->bytes % 16 == 0 ? 16 : 8;
  CHECK_EQ(type->number, datatype);
  CHECK((uintptr_t)in % alignment == 0 && (uintptr_t)inout % alignment == 0);
  compose_bytes(in, inout, count, type->bytes);
}

/* What a rank sends; the factors of maps are odd, so that every operand affects the result. */
static void fill(uint8_t *data, size_t bytes, size_t element, int rank) {
  for (size_t i = 0; i < bytes; i++) {
    size_t at = i % element;
    data[i] = (uint8_t)(i * 7 + i / 251 + (size_t)rank * 31);
    if (at % 2 == 0) data[i] = (uint8_t)((data[i] | 1) ^ (uint8_t)(at / 2));
  }
}

struct job {
  size_t bytes, count;
};

/* The expected result, of `block` bytes or a block of each rank. False if the call writes none. */
static bool expect(enum function f, int rank, int n, int root, size_t block, struct type type,
                   uint8_t *into) {
  size_t all = block * (size_t)n, own = block * (size_t)rank;
  uint8_t *share = malloc(all);
  bool is_prefix = f == SCAN || f == EX_SCAN;
  bool scatters = f == REDUCE_SCATTER || f == REDUCE_SCATTER_V;
  bool gathers = f == GATHER || f == GATHER_V || f == ALL_GATHER || f == ALL_GATHER_V;
  bool is_written = !((f == REDUCE || f == GATHER || f == GATHER_V) && rank != root) &&
                    !(f == EX_SCAN && rank == 0);
  if (has_op(f)) {
    int end = !is_prefix ? n : f == SCAN ? rank + 1 : rank;
    for (int r = 0; r < end; r++) {
      fill(share, all, type.bytes, r);
      uint8_t *mine = scatters ? share + own : share;
      if (r > 0) compose_bytes(into, mine, block / type.bytes, type.bytes);
      memcpy(into, mine, block);
    }
  } else if (gathers || exchanges_blocks(f)) {
    for (int r = 0; r < n; r++) {
      fill(share, all, type.bytes, r);
      memcpy(into + block * (size_t)r, gathers ? share : share + own, block);
    }
  } else {
    fill(share, all, type.bytes, root);
    memcpy(into, sends_blocks(f) ? share + own : share, block);
  }
  free(share);
  return is_written;
}

static void call_everything(int rank, int n, nexarComm_t comm, void *arg) {
  const struct job *job = arg;
  struct type type = type_of(job->bytes, rank, comm);
  size_t block = job->bytes * job->count, all = block * (size_t)n;
  nexarRedOp_t op = nexarMaxRedOp;
  CHECK_CODE(nexarSuccess, nexarRedOpCreate(&op, compose, &type, 0, comm));
  uint8_t *send = malloc(all), *recv = malloc(all), *expected = malloc(all);
  int first_root = block > 4096 ? n - 1 : 0;
  for (enum function f = 0; f < FUNCTIONS; f++) {
    if (!has_buffers(f)) continue;
    for (int root = has_root(f) ? first_root : 0; root < (has_root(f) ? n : 1); root++) {
      progress();
      fill(send, all, type.bytes, rank);
      memset(recv, 0xaa, all);
      if (!has_sendbuff(f)) memcpy(recv, send, block);
      struct call call = {.function = f, .send = send, .recv = recv, .count = job->count,
                          .datatype = (int)type.number, .op = (int)op, .root = root, .comm = comm};
      CHECK_CODE(nexarSuccess, make_call(call));
      bool is_written = expect(f, rank, n, root, block, type, expected);
      size_t length = receives_blocks(f) || exchanges_blocks(f) ? all : block;
      if (is_written && memcmp(recv, expected, length) != 0)
        check_failed(__FILE__, __LINE__, "%s of %zu elements of %zu bytes, root %d, rank %d of %d",
                     function_names[f], job->count, job->bytes, root, rank, n);
    }
  }
  CHECK_CODE(nexarSuccess, nexarRedOpDestroy(op, comm));
  CHECK_CODE(nexarSuccess, nexarDataTypeDestroy(type.number, comm));
  free(send), free(recv), free(expected);
}

static const size_t sizes_of_elements[] = {1, 12, 24, 280, 4094};

static void elements_of_any_size_go_through_every_collective(void) {
  const int numbers_of_ranks[] = {1, 2, 3, 4, 7};
  for (size_t r = 0; r < COUNT_OF(numbers_of_ranks); r++)
    for (size_t i = 0; i < COUNT_OF(sizes_of_elements); i++) {
      size_t bytes = sizes_of_elements[i];
      const size_t counts[] = {1, 7, 70000 / bytes + 1}; /* the last exceeds a buffer of 64 KiB */
      for (size_t c = 0; c < COUNT_OF(counts); c++) {
        struct job job = {bytes, counts[c]};
        run_ranks(numbers_of_ranks[r], call_everything, &job);
      }
    }
}

static void many_elements_go_through_every_collective(void) {
  for (int n = 2; n <= 4; n++) {
    struct job small = {12, 60001}, large = {4094, 170};
    run_ranks(n, call_everything, &small);
    run_ranks(n, call_everything, &large);
  }
}

static void an_element_may_be_longer_than_every_buffer_of_the_library(void) {
  for (int n = 2; n <= 4; n++) {
    struct job one = {100000, 1}, few = {300000, 2};
    run_ranks(n, call_everything, &one);
    run_ranks(n, call_everything, &few);
  }
  struct job longest = {4 << 20, 1};
  run_ranks(2, call_everything, &longest);
}

static void send_messages(int rank, int n, nexarComm_t comm, void *arg) {
  const struct job *job = arg;
  struct type type = type_of(job->bytes, rank, comm);
  size_t bytes = job->bytes * job->count;
  uint8_t *data = malloc(bytes), *got = malloc(bytes), *expected = malloc(bytes);
  int next = (rank + 1) % n, before = (rank + n - 1) % n;
  fill(data, bytes, job->bytes, rank);
  fill(expected, bytes, job->bytes, before);
  memset(got, 0, bytes);
  CHECK_CODE(nexarSuccess, nexarSendRecv(data, job->count, next, got, job->count, before,
                                         type.number, comm, NULL));
  CHECK(memcmp(got, expected, bytes) == 0);
  for (int tagged = 0; tagged < 2; tagged++) {
    memset(got, 0, bytes);
    CHECK_CODE(nexarSuccess, nexarGroupStart());
    if (tagged) {
      CHECK_CODE(nexarSuccess, nexarSendTag(data, job->count, type.number, next, 5, comm, NULL));
      CHECK_CODE(nexarSuccess, nexarRecvTag(got, job->count, type.number, before, 5, comm, NULL));
    } else {
      CHECK_CODE(nexarSuccess, nexarSend(data, job->count, type.number, next, comm, NULL));
      CHECK_CODE(nexarSuccess, nexarRecv(got, job->count, type.number, before, comm, NULL));
    }
    CHECK_CODE(nexarSuccess, nexarGroupEnd());
    CHECK(memcmp(got, expected, bytes) == 0);
  }
  memset(got, 0, bytes);
  if (rank == 0)
    CHECK_CODE(nexarSuccess,
               nexarSendTag(data, job->count - 1, type.number, 1, 6, comm, NULL));
  if (rank == 1) {
    nexarStatus_t status = unset;
    CHECK_CODE(nexarSuccess, nexarProbeTag(0, 6, NULL, &status, comm));
    CHECK_STATUS(status, 0, 6, job->count - 1, type.number);
    status = unset;
    CHECK_CODE(nexarSuccess, nexarRecvTagStatus(got, job->count, type.number, NEXAR_ANY_SOURCE, 6,
                                                &status, comm, NULL));
    CHECK_STATUS(status, 0, 6, job->count - 1, type.number);
    CHECK(memcmp(got, expected, bytes - job->bytes) == 0);
  }
  CHECK_CODE(nexarSuccess, nexarDataTypeDestroy(type.number, comm));
  free(data), free(got), free(expected);
}

static void messages_have_elements_of_any_size(void) {
  for (int n = 2; n <= 4; n++)
    for (size_t i = 1; i < COUNT_OF(sizes_of_elements); i++) {
      size_t bytes = sizes_of_elements[i];
      const size_t counts[] = {1, 3, 200000 / bytes};
      for (size_t c = 0; c < COUNT_OF(counts); c++) {
        struct job job = {bytes, counts[c]};
        run_ranks(n, send_messages, &job);
      }
    }
}

static void probe_without_a_type(int rank, int n, nexarComm_t comm, void *arg) {
  (void)n, (void)arg;
  nexarComm_t another = another_with(rank, comm, 0);
  struct type type = {30, nexarMaxDataType};
  uint8_t data[30] = {0};
  if (rank == 0) {
    CHECK_CODE(nexarSuccess, nexarDataTypeCreate(&type.number, 30, another));
    CHECK_CODE(nexarSuccess, nexarSendTag(data, 1, type.number, 1, 0, another, NULL));
  }
  if (rank == 1) {
    nexarStatus_t status = unset;
    nexarDataType_t later = nexarMaxDataType;
    CHECK_CODE(nexarSuccess, nexarProbeTag(0, 0, NULL, &status, another));
    CHECK_STATUS(status, 0, 0, 1, nexarMaxDataType);
    CHECK_CODE(nexarSuccess, nexarDataTypeCreate(&type.number, 30, another));
    CHECK_CODE(nexarSuccess, nexarDataTypeCreate(&later, 30, another));
    CHECK_CODE(nexarSuccess, nexarProbeTag(0, 0, NULL, &status, another));
    CHECK_STATUS(status, 0, 0, 1, type.number);
    CHECK_CODE(nexarSuccess, nexarRecvTagStatus(data, 1, later, 0, 0, &status, another, NULL));
    CHECK_STATUS(status, 0, 0, 1, later);
  }
  CHECK_CODE(nexarSuccess, nexarCommDestroy(another));
}

static void a_probe_reports_the_first_type_of_the_size_if_there_is_one(void) {
  for (int n = 2; n <= 4; n++) run_ranks(n, probe_without_a_type, NULL);
}

/* Rank 0 has elements of 12 bytes, all others have elements of 24. */
static void disagree(int rank, int n, nexarComm_t comm, void *arg) {
  bool on_message = *(bool *)arg;
  nexarComm_t another = another_with(rank, comm, 0);
  struct type type = type_of(rank == 0 ? 12 : 24, rank, another);
  uint8_t data[24] = {0}, got[24 * 8];
  nexarResult_t result = nexarSuccess;
  if (!on_message) {
    result = nexarAllGather(data, got, 2 - (size_t)(rank != 0), type.number, another, NULL);
  } else {
    if (rank == 0) result = nexarSend(data, 2, type.number, 1, another, NULL);
    if (rank == 1) result = nexarRecv(got, 1, type.number, 0, another, NULL);
    if (result == nexarSuccess) result = nexarBarrier(another, NULL);
  }
  (void)n;
  CHECK_CODE(nexarInvalidUsage, result);
  CHECK_TEXT(nexarGetLastError(another), "2 x 12-byte elements");
  CHECK_TEXT(nexarGetLastError(another), "1 x 24-byte elements");
  CHECK_CODE(nexarSuccess, nexarCommDestroy(another));
}

static void elements_of_other_sizes_are_a_mismatch_that_names_both(void) {
  for (int n = 2; n <= 4; n++)
    for (int on_message = 0; on_message < 2; on_message++)
      run_ranks(n, disagree, &(bool){on_message});
}

static void destroy_behind_a_call(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  nexarStream_t queue = NULL;
  CHECK_CODE(nexarSuccess, nexarStreamCreate(&queue));
  struct type type = type_of(12, rank, comm);
  nexarRedOp_t op = nexarMaxRedOp;
  CHECK_CODE(nexarSuccess, nexarRedOpCreate(&op, compose, &type, 0, comm));
  uint8_t data[24], result[24], expected[24];
  fill(data, 24, 12, rank);
  CHECK_CODE(nexarSuccess, nexarAllReduce(data, result, 2, type.number, op, comm, queue));
  CHECK_CODE(nexarSuccess, nexarDataTypeDestroy(type.number, comm));
  CHECK_CODE(nexarSuccess, nexarStreamSynchronize(queue));
  expect(ALL_REDUCE, rank, n, 0, 24, type, expected);
  CHECK(memcmp(result, expected, 24) == 0);
  CHECK_CODE(nexarSuccess, nexarStreamDestroy(queue));
  CHECK_CODE(nexarSuccess, nexarRedOpDestroy(op, comm));
}

static void a_call_keeps_a_type_that_is_destroyed_behind_it(void) {
  for (int n = 1; n <= 4; n++) run_ranks(n, destroy_behind_a_call, NULL);
}

static const struct test_case cases[] = {
    CASE(elements_of_any_size_go_through_every_collective),
    CASE(many_elements_go_through_every_collective),
    CASE(an_element_may_be_longer_than_every_buffer_of_the_library),
    CASE(messages_have_elements_of_any_size),
    CASE(a_probe_reports_the_first_type_of_the_size_if_there_is_one),
    CASE(elements_of_other_sizes_are_a_mismatch_that_names_both),
    CASE(a_call_keeps_a_type_that_is_destroyed_behind_it),
};

int main(void) { return RUN(cases); }
