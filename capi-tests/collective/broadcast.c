/* nexarBroadcast and nexarBcast: every rank ends with the root's bytes. */
#define _GNU_SOURCE
#include "elements.h"
#include "ranks.h"

enum form { APART, IN_PLACE, BCAST, FORMS };

struct job {
  nexarDataType_t datatype;
  size_t count, size, shift;
  enum form form;
  int root;
};

static void fill_bytes(unsigned char *at, size_t bytes, int root) {
  for (size_t i = 0; i < bytes; i++) at[i] = (unsigned char)mixed((uint64_t)root, i);
}

static nexarResult_t broadcast(const struct job *job, bool at_root, void *send, void *recv,
                               nexarComm_t comm) {
  switch (job->form) {
    case BCAST:
      return nexarBcast(recv, job->count, job->datatype, job->root, comm, NULL);
    case IN_PLACE:
      return nexarBroadcast(recv, recv, job->count, job->datatype, job->root, comm, NULL);
    default:
      return nexarBroadcast(at_root ? send : NULL, recv, job->count, job->datatype, job->root, comm,
                            NULL);
  }
}

static void receive_and_compare(int rank, int n, nexarComm_t comm, void *arg) {
  const struct job *job = arg;
  size_t bytes = job->count * job->size;
  bool at_root = rank == job->root;
  char what[100];
  snprintf(what, sizeof what, "type %d, %zu elements, form %d, rank %d of %d, root %d",
           (int)job->datatype, job->count, (int)job->form, rank, n, job->root);

  struct guarded send = guarded(bytes, job->shift), recv = guarded(bytes, job->shift);
  struct guarded expected = guarded(bytes, 0);
  fill_bytes(expected.at, bytes, job->root);
  if (at_root) memcpy(send.at, expected.at, bytes);
  if (at_root && job->form != APART) memcpy(recv.at, expected.at, bytes);
  CHECK_CODE(nexarSuccess, broadcast(job, at_root, send.at, recv.at, comm));
  CHECK_SAME(expected.at, recv.at, bytes, what);
  if (at_root) CHECK_SAME(expected.at, send.at, bytes, what);
  check_guards(send);
  check_guards(recv);
  check_guards(expected);
}

static void everybody_gets_the_bytes_of_every_root(void) {
  for (size_t i = 0; i < COUNT_OF(sizes); i++)
    FOR_COUNTS(count, sizes[i])
      for (int root = 0; root < sizes[i]; root++)
        for (enum form form = 0; form < FORMS; form++) {
          struct job job = {nexarInt32, count, 4, (size_t)(root % 2), form, root};
          run_ranks(sizes[i], receive_and_compare, &job);
        }
}

static void every_type_is_moved_8_bit_floats_included(void) {
  for (size_t d = 0; d < COUNT_OF(dtypes) + 2; d++) {
    struct job job = {nexarFloat8e4m3, 1001, 1, 1, APART, 1};
    if (d == 1) job.datatype = nexarFloat8e5m2;
    if (d >= 2) job.datatype = dtypes[d - 2].code, job.size = dtypes[d - 2].size;
    for (int n = 2; n <= 4; n++) run_ranks(n, receive_and_compare, &job);
  }
}

static void large_buffers_arrive_whole(void) {
  struct job job = {nexarFloat32, (4 << 20) + 3, 4, 1, APART, 1};
  run_ranks(3, receive_and_compare, &job);
  job.form = BCAST;
  run_ranks(3, receive_and_compare, &job);
  job.count = 16 << 20; /* 64 MiB */
  run_ranks(2, receive_and_compare, &job);
}

static const struct test_case cases[] = {
    CASE(everybody_gets_the_bytes_of_every_root),
    CASE(every_type_is_moved_8_bit_floats_included),
    CASE(large_buffers_arrive_whole),
};

int main(void) { return RUN(cases); }
