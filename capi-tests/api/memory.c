/* Memory for buffers, and its registration. */
#include "support/ranks.h"

static void memory_begins_at_a_page_and_is_zeroed(void) {
  const size_t sizes[] = {1, 4096, 100000, (size_t)64 << 20};
  for (size_t i = 0; i < COUNT_OF(sizes); i++) {
    unsigned char *memory = NULL;
    CHECK_CODE(nexarSuccess, nexarMemAlloc((void **)&memory, sizes[i]));
    CHECK_EQ(0, (uintptr_t)memory % (uintptr_t)sysconf(_SC_PAGESIZE));
    CHECK(memory[0] == 0 && memory[sizes[i] - 1] == 0);
    memset(memory, 7, sizes[i]);
    CHECK_CODE(nexarSuccess, nexarMemFree(memory));
  }
}

static void an_allocation_of_zero_bytes_is_null(void) {
  void *memory = &memory;
  CHECK_CODE(nexarSuccess, nexarMemAlloc(&memory, 0));
  CHECK(memory == NULL);
  CHECK_CODE(nexarSuccess, nexarMemFree(NULL));
}

static void memory_that_was_not_allocated_is_not_freed(void) {
  char *memory = NULL;
  CHECK_CODE(nexarSuccess, nexarMemAlloc((void **)&memory, 10000));
  CHECK_CODE(nexarInvalidArgument, nexarMemFree(memory + 1));
  CHECK_CODE(nexarInvalidArgument, nexarMemFree(memory + 4096));
  CHECK_CODE(nexarInvalidArgument, nexarMemFree(&memory));
  CHECK_TEXT(nexarGetLastError(NULL), "nexarMemFree: ptr was not allocated");
  memory[9999] = 1;
  CHECK_CODE(nexarSuccess, nexarMemFree(memory));
  CHECK_CODE(nexarInvalidArgument, nexarMemFree(memory));
}

static void more_memory_than_available_is_a_system_error(void) {
  void *memory = &memory;
  CHECK_CODE(nexarSystemError, nexarMemAlloc(&memory, SIZE_MAX / 2));
  CHECK(memory == &memory);
  CHECK_CODE(nexarInvalidArgument, nexarMemAlloc(NULL, 8));
}

static void use_it(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  int32_t *data = NULL;
  void *handle = NULL;
  CHECK_CODE(nexarSuccess, nexarMemAlloc((void **)&data, 1000 * sizeof *data));
  CHECK_CODE(nexarSuccess, nexarCommRegister(comm, data, 1000 * sizeof *data, &handle));
  for (int i = 0; i < 1000; i++) data[i] = rank;
  CHECK_CODE(nexarSuccess, nexarAllReduce(data, data, 1000, nexarInt32, nexarSum, comm, NULL));
  for (int i = 0; i < 1000; i++) CHECK_EQ(n * (n - 1) / 2, data[i]);
  CHECK_CODE(nexarSuccess, nexarCommDeregister(comm, handle));
  CHECK_CODE(nexarSuccess, nexarMemFree(data));
}
static void allocated_memory_can_be_used_as_a_buffer(void) { run_ranks(3, use_it, NULL); }

static void registrations_belong_to_their_communicator(void) {
  nexarComm_t comms[2];
  int data[4];
  void *handle = NULL, *stale = NULL;
  CHECK_CODE(nexarSuccess, nexarCommInitAll(comms, 2, NULL));
  CHECK_CODE(nexarInvalidArgument, nexarCommRegister(comms[0], data, sizeof data, NULL));
  CHECK_CODE(nexarInvalidArgument, nexarCommRegister(comms[0], NULL, sizeof data, &handle));
  CHECK_CODE(nexarInvalidArgument, nexarCommRegister(comms[0], data, 0, &handle));
  CHECK_CODE(nexarInvalidArgument, nexarCommRegister(NULL, data, sizeof data, &handle));
  CHECK(handle == NULL);
  CHECK_CODE(nexarSuccess, nexarCommRegister(comms[0], data, sizeof data, &handle));
  CHECK_CODE(nexarInvalidArgument, nexarCommDeregister(comms[1], handle));
  CHECK_CODE(nexarInvalidArgument, nexarCommDeregister(comms[0], NULL));
  CHECK_CODE(nexarInvalidArgument, nexarCommDeregister(comms[0], data));
  CHECK_CODE(nexarInvalidArgument, nexarCommDeregister(comms[0], comms[0]));
  CHECK_CODE(nexarInvalidArgument, nexarCommDestroy(handle));
  CHECK_CODE(nexarSuccess, nexarCommDeregister(comms[0], handle));
  CHECK_CODE(nexarInvalidArgument, nexarCommDeregister(comms[0], handle));
  CHECK_CODE(nexarSuccess, nexarCommRegister(comms[0], data, sizeof data, &stale));
  for (int rank = 0; rank < 2; rank++) CHECK_CODE(nexarSuccess, nexarCommDestroy(comms[rank]));
  CHECK_CODE(nexarInvalidArgument, nexarCommDeregister(comms[0], stale));
}

static const struct test_case cases[] = {
    CASE(memory_begins_at_a_page_and_is_zeroed),
    CASE(an_allocation_of_zero_bytes_is_null),
    CASE(memory_that_was_not_allocated_is_not_freed),
    CASE(more_memory_than_available_is_a_system_error),
    CASE(allocated_memory_can_be_used_as_a_buffer),
    CASE(registrations_belong_to_their_communicator),
};

int main(void) { return RUN(cases); }
