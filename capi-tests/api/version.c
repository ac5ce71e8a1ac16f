/* nexarGetVersion, nexarGetErrorString, nexarGetLastError. */
#define _GNU_SOURCE
#include "support/ranks.h"

static void the_last_error_is_empty_at_first(void) {
  CHECK(nexarGetLastError(NULL) != NULL);
  CHECK_EQ(0, strlen(nexarGetLastError(NULL)));
}

static void the_library_has_the_version_of_its_header(void) {
  int version = -1;
  CHECK_CODE(nexarSuccess, nexarGetVersion(&version));
  CHECK_EQ(NEXAR_VERSION_CODE, version);
  CHECK_EQ(NEXAR_VERSION(NEXAR_MAJOR, NEXAR_MINOR, NEXAR_PATCH), version);
}

static void a_null_output_for_the_version_is_refused(void) {
  CHECK_CODE(nexarInvalidArgument, nexarGetVersion(NULL));
  CHECK_TEXT(nexarGetLastError(NULL), "nexarGetVersion");
  CHECK_TEXT(nexarGetLastError(NULL), "version is NULL");
}

static void every_result_has_a_text_of_its_own(void) {
  for (int one = nexarSuccess; one <= nexarTimeout; one++) {
    const char *text = nexarGetErrorString((nexarResult_t)one);
    CHECK(text && strlen(text) > 3);
    CHECK(text == nexarGetErrorString((nexarResult_t)one));
    for (int other = 0; other < one; other++)
      CHECK(strcmp(text, nexarGetErrorString((nexarResult_t)other)) != 0);
  }
}

static void a_number_that_is_no_result_has_a_text_too(void) {
  const int numbers[] = {-1, 9, 100, INT_MIN, INT_MAX};
  for (size_t i = 0; i < COUNT_OF(numbers); i++) {
    const char *text = nexarGetErrorString((nexarResult_t)numbers[i]);
    CHECK(text && strlen(text) > 3);
    CHECK(strcmp(text, nexarGetErrorString(nexarSuccess)) != 0);
  }
}

static void a_success_does_not_clear_the_last_error(void) {
  int version;
  CHECK_CODE(nexarInvalidArgument, nexarGetVersion(NULL));
  CHECK_CODE(nexarSuccess, nexarGetVersion(&version));
  CHECK_TEXT(nexarGetLastError(NULL), "version is NULL");
}

static void a_text_is_valid_until_the_next_query_of_this_thread(void) {
  CHECK_CODE(nexarInvalidArgument, nexarGetVersion(NULL));
  const char *text = nexarGetLastError(NULL);
  CHECK_CODE(nexarInvalidArgument, nexarCommInitAll(NULL, 0, NULL));
  CHECK_TEXT(text, "version is NULL");
  CHECK_TEXT(nexarGetLastError(NULL), "nexarCommInitAll");
}

static void fail_in_a_thread_of_its_own(int rank, int n, nexarComm_t comm, void *barrier) {
  (void)n, (void)comm;
  CHECK_EQ(0, strlen(nexarGetLastError(NULL)));
  if (rank == 0) CHECK_CODE(nexarInvalidArgument, nexarGetVersion(NULL));
  pthread_barrier_wait(barrier);
  CHECK_EQ(rank == 0, strlen(nexarGetLastError(NULL)) > 0);
}

static void the_last_error_belongs_to_the_thread_that_failed(void) {
  pthread_barrier_t barrier;
  pthread_barrier_init(&barrier, NULL, 2);
  run_threads(2, NULL, fail_in_a_thread_of_its_own, &barrier);
  pthread_barrier_destroy(&barrier);
}

static void *ask_about(void *comm) {
  CHECK_EQ(0, strlen(nexarGetLastError(NULL)));
  CHECK_TEXT(nexarGetLastError(comm), "count is NULL");
  return NULL;
}

static void the_last_error_of_a_communicator_is_seen_by_every_thread_but_not_by_other_ranks(void) {
  nexarComm_t comms[2];
  pthread_t thread;
  CHECK_CODE(nexarSuccess, nexarCommInitAll(comms, 2, NULL));
  CHECK_EQ(0, strlen(nexarGetLastError(comms[0])));
  CHECK_CODE(nexarInvalidArgument, nexarCommCount(comms[0], NULL));
  CHECK_CODE(nexarInvalidArgument, nexarGetVersion(NULL));
  CHECK_TEXT(nexarGetLastError(comms[0]), "nexarCommCount: count is NULL");
  CHECK_EQ(0, strlen(nexarGetLastError(comms[1])));
  CHECK_TEXT(nexarGetLastError(NULL), "nexarGetVersion");
  pthread_create(&thread, NULL, ask_about, comms[0]);
  pthread_join(thread, NULL);
  for (int i = 0; i < 2; i++) CHECK_CODE(nexarSuccess, nexarCommDestroy(comms[i]));
}

static void the_last_error_of_a_dead_handle_has_a_text(void) {
  nexarComm_t comm;
  CHECK_CODE(nexarSuccess, nexarCommInitAll(&comm, 1, NULL));
  CHECK_CODE(nexarSuccess, nexarCommDestroy(comm));
  CHECK_TEXT(nexarGetLastError(comm), "not a live communicator");
  CHECK_TEXT(nexarGetLastError((nexarComm_t)&comm), "not a live communicator");
}

static void a_failure_replaces_the_error_of_an_earlier_call(void) {
  nexarComm_t comms[2];
  CHECK_CODE(nexarSuccess, nexarCommInitAll(comms, 2, NULL));
  CHECK_CODE(nexarInvalidArgument, nexarCommCount(comms[0], NULL));
  CHECK_CODE(nexarSuccess, nexarCommAbort(comms[1]));
  CHECK_TEXT(nexarGetLastError(comms[0]), "rank 1 aborted the communicator");
  CHECK_CODE(nexarInvalidArgument, nexarCommCount(comms[0], NULL));
  CHECK_TEXT(nexarGetLastError(comms[0]), "nexarCommCount: count is NULL");
  CHECK_CODE(nexarSuccess, nexarCommDestroy(comms[0]));
}

static const struct test_case cases[] = {
    CASE(the_last_error_is_empty_at_first),
    CASE(the_library_has_the_version_of_its_header),
    CASE(a_null_output_for_the_version_is_refused),
    CASE(every_result_has_a_text_of_its_own),
    CASE(a_number_that_is_no_result_has_a_text_too),
    CASE(a_success_does_not_clear_the_last_error),
    CASE(a_text_is_valid_until_the_next_query_of_this_thread),
    CASE(the_last_error_belongs_to_the_thread_that_failed),
    CASE(the_last_error_of_a_communicator_is_seen_by_every_thread_but_not_by_other_ranks),
    CASE(the_last_error_of_a_dead_handle_has_a_text),
    CASE(a_failure_replaces_the_error_of_an_earlier_call),
};

int main(void) { return RUN(cases); }
