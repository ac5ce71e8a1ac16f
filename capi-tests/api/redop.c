/* Creating and destroying operators, and their invalid uses. */
#define _GNU_SOURCE
#include "support/calls.h"
#include "support/ranks.h"

static void add(const void *in, void *inout, size_t count, nexarDataType_t datatype, void *user) {
  (void)datatype, (void)user;
  for (size_t i = 0; i < count; i++) ((int32_t *)inout)[i] += ((const int32_t *)in)[i];
}

static nexarRedOp_t create(nexarComm_t comm, int commutative) {
  nexarRedOp_t op = nexarMaxRedOp;
  CHECK_CODE(nexarSuccess, nexarRedOpCreate(&op, add, NULL, commutative, comm));
  return op;
}

static nexarRedOp_t create_premulsum(nexarComm_t comm) {
  nexarRedOp_t op = nexarMaxRedOp;
  int32_t one = 1;
  CHECK_CODE(nexarSuccess,
             nexarRedOpCreatePreMulSum(&op, &one, nexarInt32, nexarScalarHostImmediate, comm));
  return op;
}

/* A call of all ranks: the operator gives the right result. */
static void check_it_adds(nexarRedOp_t op, int rank, int n, nexarComm_t comm) {
  int32_t data[2] = {rank, 1};
  CHECK_CODE(nexarSuccess, nexarAllReduce(data, data, 2, nexarInt32, op, comm, NULL));
  CHECK(data[0] == n * (n - 1) / 2 && data[1] == n);
}

static void refused(nexarResult_t result, const char *function, const char *argument) {
  CHECK_CODE(nexarInvalidArgument, result);
  CHECK_TEXT(nexarGetLastError(NULL), function);
  CHECK_TEXT(nexarGetLastError(NULL), argument);
}

static void create_wrongly(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  const char *premulsum = "nexarRedOpCreatePreMulSum", *function = "nexarRedOpCreate";
  const int datatypes[] = {-1, 12, 31, 34, INT_MAX}, residences[] = {-1, 2, INT_MAX};
  nexarScalarResidence_t immediate = nexarScalarHostImmediate;
  nexarRedOp_t op = nexarMin;
  int32_t scalar = 3;
  refused(nexarRedOpCreatePreMulSum(NULL, &scalar, nexarInt32, immediate, comm), premulsum, "op");
  refused(nexarRedOpCreatePreMulSum(&op, NULL, nexarInt32, immediate, comm), premulsum, "scalar");
  refused(nexarRedOpCreatePreMulSum(&op, NULL, nexarInt32, nexarScalarDevice, comm), premulsum,
          "scalar");
  refused(nexarRedOpCreatePreMulSum(&op, &scalar, nexarInt32, immediate, NULL), premulsum, "comm");
  for (size_t i = 0; i < COUNT_OF(datatypes); i++)
    refused(nexarRedOpCreatePreMulSum(&op, &scalar, (nexarDataType_t)datatypes[i], immediate, comm),
            premulsum, "datatype");
  for (size_t i = 0; i < COUNT_OF(residences); i++)
    refused(nexarRedOpCreatePreMulSum(&op, &scalar, nexarInt32,
                                      (nexarScalarResidence_t)residences[i], comm),
            premulsum, "residence");
  refused(nexarRedOpCreate(NULL, add, NULL, 1, comm), function, "op");
  refused(nexarRedOpCreate(&op, NULL, NULL, 1, comm), function, "fold");
  refused(nexarRedOpCreate(&op, add, NULL, 1, NULL), function, "comm");
  refused(nexarRedOpCreate(&op, add, NULL, 1, (nexarComm_t)&op), function, "comm");
  CHECK_EQ(nexarMin, op);
  check_it_works(rank, n, comm);
}

static void wrong_arguments_create_nothing(void) {
  run_ranks(1, create_wrongly, NULL);
  run_ranks(3, create_wrongly, NULL);
}

static void create_a_thousand(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  enum { NUMBER = 1000 };
  nexarRedOp_t ops[NUMBER];
  for (int i = 0; i < NUMBER; i++) {
    ops[i] = i % 2 ? create(comm, i % 4 == 1) : create_premulsum(comm);
    CHECK(ops[i] >= 0x10000 && ops[i] < nexarMaxRedOp);
    for (int k = 0; k < i; k++) CHECK(ops[k] != ops[i]);
  }
  for (int i = 0; i < NUMBER; i += 100) check_it_adds(ops[i], rank, n, comm);
  for (int i = 0; i < NUMBER; i++) CHECK_CODE(nexarSuccess, nexarRedOpDestroy(ops[i], comm));
}

static void every_operator_has_a_number_of_its_own(void) { run_ranks(2, create_a_thousand, NULL); }

/* Every function that takes an operator refuses this one. */
static void check_it_is_no_operator(nexarRedOp_t op, nexarDataType_t datatype, nexarComm_t comm) {
  int32_t send[8] = {1, 2, 3, 4, 5, 6, 7, 8}, recv[8] = {0};
  for (enum function f = 0; f < FUNCTIONS; f++) {
    if (!has_op(f)) continue;
    struct call call = {.function = f, .send = send, .recv = recv, .count = 2, .op = (int)op,
                        .datatype = (int)datatype, .comm = comm};
    refused(make_call(call), function_names[f], "op");
    CHECK(recv[0] == 0 && recv[1] == 0);
  }
}

static void use_destroyed_operators(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  const nexarRedOp_t ops[] = {create(comm, 0), create(comm, 1), create_premulsum(comm)};
  for (size_t i = 0; i < COUNT_OF(ops); i++) {
    check_it_adds(ops[i], rank, n, comm);
    CHECK_CODE(nexarSuccess, nexarRedOpDestroy(ops[i], comm));
    check_it_is_no_operator(ops[i], nexarInt32, comm);
    refused(nexarRedOpDestroy(ops[i], comm), "nexarRedOpDestroy", "op");
    check_it_works(rank, n, comm);
  }
}

static void a_destroyed_operator_is_invalid(void) {
  run_ranks(1, use_destroyed_operators, NULL);
  run_ranks(3, use_destroyed_operators, NULL);
}

static void destroy_what_was_not_created(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  const int ops[] = {nexarSum, nexarAvg, nexarLogicalXor, -1, 5, 0x10000 - 1, nexarMaxRedOp};
  for (size_t i = 0; i < COUNT_OF(ops); i++)
    refused(nexarRedOpDestroy((nexarRedOp_t)ops[i], comm), "nexarRedOpDestroy", "op");
  refused(nexarRedOpDestroy(nexarSum, NULL), "nexarRedOpDestroy", "comm");
  check_it_works(rank, n, comm);
}

static void only_created_operators_can_be_destroyed(void) {
  run_ranks(2, destroy_what_was_not_created, NULL);
}

static void another_communicator_does_not_know_an_operator(void) {
  nexarComm_t comms[2], other;
  CHECK_CODE(nexarSuccess, nexarCommInitAll(comms, 2, NULL)); /* each rank has its own handle */
  CHECK_CODE(nexarSuccess, nexarCommInitAll(&other, 1, NULL));
  const nexarRedOp_t ops[] = {create(comms[0], 0), create_premulsum(comms[0])};
  for (size_t i = 0; i < COUNT_OF(ops); i++) {
    check_it_is_no_operator(ops[i], nexarInt32, comms[1]);
    check_it_is_no_operator(ops[i], nexarInt32, other);
    refused(nexarRedOpDestroy(ops[i], comms[1]), "nexarRedOpDestroy", "op");
    refused(nexarRedOpDestroy(ops[i], other), "nexarRedOpDestroy", "op");
  }
  check_it_works(0, 1, other);
  run_threads(2, comms, it_works, NULL);
  CHECK_CODE(nexarSuccess, nexarRedOpDestroy(ops[0], comms[0])); /* still valid there */
  for (int rank = 0; rank < 2; rank++) CHECK_CODE(nexarSuccess, nexarCommDestroy(comms[rank]));
  check_it_is_no_operator(ops[1], nexarInt32, other); /* destroyed with its communicator */
  CHECK_CODE(nexarSuccess, nexarCommDestroy(other));
}

static void use_another_type(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  const nexarDataType_t others[] = {nexarUint32, nexarInt64, nexarFloat32, nexarFloat8e4m3};
  nexarRedOp_t op = create_premulsum(comm);
  for (size_t i = 0; i < COUNT_OF(others); i++) check_it_is_no_operator(op, others[i], comm);
  check_it_adds(op, rank, n, comm);
  CHECK_CODE(nexarSuccess, nexarRedOpDestroy(op, comm));
}

static void a_premultiplied_sum_takes_its_own_type_only(void) {
  run_ranks(1, use_another_type, NULL);
  run_ranks(3, use_another_type, NULL);
}

/* The last rank uses another operator than the others. */
struct mismatch {
  const char *text, *other_text;
  nexarRedOp_t (*operators[2])(nexarComm_t comm);
};

static nexarRedOp_t in_rank_order(nexarComm_t comm) { return create(comm, 0); }
static nexarRedOp_t in_any_order(nexarComm_t comm) { return create(comm, 1); }
static nexarRedOp_t known(nexarComm_t comm) {
  (void)comm;
  return nexarSum;
}

static void use_other_operators(int rank, int n, nexarComm_t comm, void *arg) {
  const struct mismatch *mismatch = arg;
  int32_t data[2] = {0};
  nexarRedOp_t op = mismatch->operators[rank == n - 1](comm);
  CHECK_CODE(nexarInvalidUsage, nexarAllReduce(data, data, 2, nexarInt32, op, comm, NULL));
  CHECK_TEXT(nexarGetLastError(comm), mismatch->text);
  CHECK_TEXT(nexarGetLastError(comm), mismatch->other_text);
}

static void ranks_with_operators_of_other_kinds_disagree(void) {
  struct mismatch mismatches[] = {
      {"user", "sum", {in_any_order, known}},
      {"user", "user in rank order", {in_any_order, in_rank_order}},
      {"premulsum", ", sum", {create_premulsum, known}},
      {"user", "premulsum", {in_rank_order, create_premulsum}},
  };
  for (size_t i = 0; i < COUNT_OF(mismatches); i++)
    for (int n = 2; n <= 4; n++) run_ranks(n, use_other_operators, &mismatches[i]);
}

/* The number of an operator may differ between ranks. */
static void create_another_first(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  nexarRedOp_t before[5];
  for (int i = 0; i < rank; i++) before[i] = create(comm, 1);
  nexarRedOp_t op = create(comm, 0);
  check_it_adds(op, rank, n, comm);
  for (int i = 0; i < rank; i++) CHECK_CODE(nexarSuccess, nexarRedOpDestroy(before[i], comm));
  check_it_adds(op, rank, n, comm);
  CHECK_CODE(nexarSuccess, nexarRedOpDestroy(op, comm));
}

static void the_number_of_an_operator_may_differ_between_ranks(void) {
  run_ranks(4, create_another_first, NULL);
}

static const struct test_case cases[] = {
    CASE(wrong_arguments_create_nothing),
    CASE(every_operator_has_a_number_of_its_own),
    CASE(a_destroyed_operator_is_invalid),
    CASE(only_created_operators_can_be_destroyed),
    CASE(another_communicator_does_not_know_an_operator),
    CASE(a_premultiplied_sum_takes_its_own_type_only),
    CASE(ranks_with_operators_of_other_kinds_disagree),
    CASE(the_number_of_an_operator_may_differ_between_ranks),
};

int main(void) { return RUN(cases); }
