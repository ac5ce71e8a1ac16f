/* Creating and destroying data types, and their invalid uses. */
#define _GNU_SOURCE
#include "support/calls.h"
#include "support/ranks.h"

enum { MOST_BYTES = 4 << 20 };

static nexarDataType_t create(size_t bytes, nexarComm_t comm) {
  nexarDataType_t datatype = nexarMaxDataType;
  CHECK_CODE(nexarSuccess, nexarDataTypeCreate(&datatype, bytes, comm));
  return datatype;
}

static void refused(nexarResult_t result, const char *function, const char *argument) {
  CHECK_CODE(nexarInvalidArgument, result);
  CHECK_TEXT(nexarGetLastError(NULL), function);
  CHECK_TEXT(nexarGetLastError(NULL), argument);
}

static void create_wrongly(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  const char *function = "nexarDataTypeCreate";
  nexarDataType_t datatype = nexarInt64;
  refused(nexarDataTypeCreate(NULL, 12, comm), function, "datatype");
  refused(nexarDataTypeCreate(&datatype, 0, comm), function, "bytes 0");
  refused(nexarDataTypeCreate(&datatype, MOST_BYTES + 1, comm), function, "1 to 4194304 bytes");
  refused(nexarDataTypeCreate(&datatype, SIZE_MAX, comm), function, "bytes");
  refused(nexarDataTypeCreate(&datatype, 12, NULL), function, "comm");
  refused(nexarDataTypeCreate(&datatype, 12, (nexarComm_t)&datatype), function, "comm");
  CHECK_EQ(nexarInt64, datatype);
  check_it_works(rank, n, comm);
}

static void wrong_arguments_create_nothing(void) {
  run_ranks(1, create_wrongly, NULL);
  run_ranks(3, create_wrongly, NULL);
}

/* Each of the ranks sends itself an element. */
static void check_it_moves(nexarDataType_t datatype, size_t bytes, nexarComm_t comm) {
  uint8_t *data = malloc(bytes), *got = calloc(1, bytes);
  int rank = 0;
  CHECK_CODE(nexarSuccess, nexarCommUserRank(comm, &rank));
  for (size_t i = 0; i < bytes; i++) data[i] = (uint8_t)(i * 7 + 1);
  CHECK_CODE(nexarSuccess, nexarSendRecv(data, 1, rank, got, 1, rank, datatype, comm, NULL));
  CHECK(memcmp(data, got, bytes) == 0);
  free(data), free(got);
}

static void create_many(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  enum { NUMBER = 300 };
  nexarDataType_t types[NUMBER];
  for (int i = 0; i < NUMBER; i++) {
    types[i] = create((size_t)(i / 2) + 1, comm);
    CHECK((int)types[i] >= 0x10000 && types[i] < nexarMaxDataType);
    for (int k = 0; k < i; k++) CHECK(types[k] != types[i]);
  }
  for (int i = 0; i < NUMBER; i += 50) check_it_moves(types[i], (size_t)(i / 2) + 1, comm);
  for (int i = 0; i < NUMBER; i++) CHECK_CODE(nexarSuccess, nexarDataTypeDestroy(types[i], comm));
  check_it_moves(create(MOST_BYTES, comm), MOST_BYTES, comm);
  check_it_works(rank, n, comm);
}

static void every_type_has_a_number_of_its_own(void) { run_ranks(2, create_many, NULL); }

/* Every function that takes a type refuses this one, and names it. */
static void check_it_is_no_type(nexarDataType_t datatype, nexarComm_t comm) {
  int32_t send[8] = {1, 2, 3, 4, 5, 6, 7, 8}, recv[8] = {0};
  nexarStatus_t status = NEXAR_STATUS_INITIALIZER;
  nexarRedOp_t op = nexarMin;
  char number[20];
  snprintf(number, sizeof number, (int)datatype < 0x10000 ? "%d" : "%#x", (unsigned)datatype);
  for (enum function f = 0; f < FUNCTIONS; f++) {
    if (!has_buffers(f)) continue;
    struct call call = {.function = f, .send = send, .recv = recv, .count = 1,
                        .datatype = (int)datatype, .comm = comm};
    refused(make_call(call), function_names[f], number);
  }
  refused(nexarSend(send, 1, datatype, 0, comm, NULL), "nexarSend", number);
  refused(nexarRecv(recv, 1, datatype, 0, comm, NULL), "nexarRecv", number);
  refused(nexarSendTag(send, 1, datatype, 0, 0, comm, NULL), "nexarSendTag", number);
  refused(nexarRecvTag(recv, 1, datatype, 0, 0, comm, NULL), "nexarRecvTag", number);
  refused(nexarRecvTagStatus(recv, 1, datatype, 0, 0, &status, comm, NULL), "nexarRecvTagStatus",
          number);
  refused(nexarSendRecv(send, 1, 0, recv, 1, 0, datatype, comm, NULL), "nexarSendRecv", number);
  refused(nexarRedOpCreatePreMulSum(&op, send, datatype, nexarScalarHostImmediate, comm),
          "nexarRedOpCreatePreMulSum", number);
  CHECK(recv[0] == 0 && recv[1] == 0 && op == nexarMin);
}

static void use_destroyed_types(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  nexarDataType_t datatype = create(12, comm);
  check_it_moves(datatype, 12, comm);
  CHECK_CODE(nexarSuccess, nexarDataTypeDestroy(datatype, comm));
  check_it_is_no_type(datatype, comm);
  refused(nexarDataTypeDestroy(datatype, comm), "nexarDataTypeDestroy", "datatype");
  check_it_is_no_type(nexarMaxDataType, comm);
  check_it_is_no_type((nexarDataType_t)12, comm);
  check_it_works(rank, n, comm);
}

static void a_destroyed_type_is_invalid(void) {
  run_ranks(1, use_destroyed_types, NULL);
  run_ranks(3, use_destroyed_types, NULL);
}

static void destroy_what_was_not_created(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  const int types[] = {nexarInt8, nexarUint16, -1, 12, 0x10000 - 1, nexarMaxDataType};
  for (size_t i = 0; i < COUNT_OF(types); i++)
    refused(nexarDataTypeDestroy((nexarDataType_t)types[i], comm), "nexarDataTypeDestroy",
            "datatype");
  refused(nexarDataTypeDestroy(nexarInt8, NULL), "nexarDataTypeDestroy", "comm");
  check_it_works(rank, n, comm);
}

static void only_created_types_can_be_destroyed(void) {
  run_ranks(2, destroy_what_was_not_created, NULL);
}

static void another_communicator_does_not_know_a_type(void) {
  nexarComm_t comms[2], other;
  CHECK_CODE(nexarSuccess, nexarCommInitAll(comms, 2, NULL)); /* each rank has its own handle */
  CHECK_CODE(nexarSuccess, nexarCommInitAll(&other, 1, NULL));
  nexarDataType_t datatype = create(12, comms[0]);
  check_it_is_no_type(datatype, comms[1]);
  check_it_is_no_type(datatype, other);
  CHECK_TEXT(nexarGetLastError(NULL), "another communicator");
  refused(nexarDataTypeDestroy(datatype, other), "nexarDataTypeDestroy", "datatype");
  check_it_moves(datatype, 12, comms[0]); /* still valid there */
  for (int rank = 0; rank < 2; rank++) CHECK_CODE(nexarSuccess, nexarCommDestroy(comms[rank]));
  check_it_is_no_type(datatype, other); /* destroyed with its communicator */
  CHECK_TEXT(nexarGetLastError(NULL), "not a live datatype");
  CHECK_CODE(nexarSuccess, nexarCommDestroy(other));
}

static void split_with_a_type(int rank, int n, nexarComm_t comm, void *arg) {
  (void)n, (void)arg;
  nexarDataType_t datatype = create(12, comm);
  nexarComm_t child = NULL;
  CHECK_CODE(nexarSuccess, nexarCommSplit(comm, 0, rank, &child, NULL));
  check_it_is_no_type(datatype, child);
  CHECK_CODE(nexarSuccess, nexarCommDestroy(child));
  check_it_moves(datatype, 12, comm);
}

static void a_split_does_not_take_types_along(void) { run_ranks(3, split_with_a_type, NULL); }

static void add(const void *in, void *inout, size_t count, nexarDataType_t datatype, void *user) {
  (void)datatype, (void)user;
  for (size_t i = 0; i < 12 * count; i++) ((uint8_t *)inout)[i] += ((const uint8_t *)in)[i];
}

static void reduce_with_every_operator(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  const int ops[] = {nexarSum, nexarProd, nexarMax, nexarMin, nexarAvg, nexarBitAnd, nexarBitOr,
                     nexarBitXor, nexarLogicalAnd, nexarLogicalOr, nexarLogicalXor};
  nexarDataType_t datatype = create(12, comm);
  uint8_t send[12 * 4] = {0}, recv[12 * 4] = {0};
  int32_t one = 1;
  nexarRedOp_t op = nexarMaxRedOp;
  for (enum function f = 0; f < FUNCTIONS; f++)
    for (size_t i = 0; has_op(f) && i < COUNT_OF(ops); i++) {
      struct call call = {.function = f, .send = send, .recv = recv, .count = 1, .op = ops[i],
                          .datatype = (int)datatype, .comm = comm};
      refused(make_call(call), function_names[f],
              "12-byte elements: only operators of nexarRedOpCreate");
    }
  refused(nexarRedOpCreatePreMulSum(&op, send, datatype, nexarScalarHostImmediate, comm),
          "nexarRedOpCreatePreMulSum", "12-byte elements: only operators of nexarRedOpCreate");
  CHECK_CODE(nexarSuccess,
             nexarRedOpCreatePreMulSum(&op, &one, nexarInt32, nexarScalarHostImmediate, comm));
  refused(nexarAllReduce(send, recv, 1, datatype, op, comm, NULL), "nexarAllReduce",
          "was created for int32, not for 12-byte elements");
  CHECK_CODE(nexarSuccess, nexarRedOpCreate(&op, add, NULL, 1, comm));
  memset(send, 1, sizeof send);
  CHECK_CODE(nexarSuccess, nexarAllReduce(send, recv, 4, datatype, op, comm, NULL));
  for (size_t i = 0; i < sizeof recv; i++) CHECK_EQ(n, recv[i]);
  check_it_works(rank, n, comm);
}

static void only_functions_of_the_program_reduce_a_created_type(void) {
  run_ranks(1, reduce_with_every_operator, NULL);
  run_ranks(3, reduce_with_every_operator, NULL);
}

static void count_too_far(int rank, int n, nexarComm_t comm, void *arg) {
  (void)rank, (void)n, (void)arg;
  nexarDataType_t datatype = create(MOST_BYTES, comm);
  uint8_t data[1];
  refused(nexarBcast(data, SIZE_MAX / MOST_BYTES + 1, datatype, 0, comm, NULL), "nexarBcast",
          "of 4194304-byte elements exceeds the address space");
  refused(nexarSend(data, SIZE_MAX / 8, datatype, 0, comm, NULL), "nexarSend",
          "exceeds the address space");
}

static void a_count_that_exceeds_the_address_space_is_refused(void) {
  run_ranks(1, count_too_far, NULL);
}

static const struct test_case cases[] = {
    CASE(wrong_arguments_create_nothing),
    CASE(every_type_has_a_number_of_its_own),
    CASE(a_destroyed_type_is_invalid),
    CASE(only_created_types_can_be_destroyed),
    CASE(another_communicator_does_not_know_a_type),
    CASE(a_split_does_not_take_types_along),
    CASE(only_functions_of_the_program_reduce_a_created_type),
    CASE(a_count_that_exceeds_the_address_space_is_refused),
};

int main(void) { return RUN(cases); }
