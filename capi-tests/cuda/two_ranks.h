/*
 * Two ranks in one process and one thread, each with a device. Calls on streams do not wait, so
 * most tests of two ranks need no second thread.
 */
#ifndef TWO_RANKS_H
#define TWO_RANKS_H

#include "device_rank.h"

enum { SOON_S = 8 };

static struct device_rank ranks[2];
static nexarComm_t comms[2];

static inline void make_pair(void) {
  library_calls();
  CHECK_CODE(nexarSuccess, nexarCommInitAll(comms, 2, NULL));
  own_calls();
  for (int i = 0; i < 2; i++) ranks[i].comm = comms[i];
}

static inline void begin_pair(size_t bytes) {
  for (int i = 0; i < 2; i++) ranks[i] = take_device(i, 2, i, bytes);
  make_pair();
}

/* An all-reduce of a rank, with its device's context current. */
static inline nexarResult_t all_reduce(int rank) {
  const struct device_rank *self = &ranks[rank];
  OK(cuCtxPushCurrent_v2(self->context));
  library_calls();
  nexarResult_t result =
      nexarAllReduce(device_pointer(self->send), device_pointer(self->recv), self->bytes / 4,
                     nexarUint32, nexarSum, self->comm, self->stream);
  own_calls();
  OK(cuCtxPopCurrent_v2(NULL));
  return result;
}

static inline bool is_right(int rank) {
  const uint32_t *result = view(ranks[rank].recv, ranks[rank].bytes);
  for (size_t i = 0; i < ranks[rank].bytes / 4; i++)
    if (result[i] != sent(0, i) + sent(1, i)) return false;
  return true;
}

/* Ends the rank's communicator, which must not take long. */
static inline void end(int rank, nexarResult_t (*how)(nexarComm_t)) {
  double before = seconds_now();
  library_calls();
  CHECK_CODE(nexarSuccess, how(comms[rank]));
  own_calls();
  CHECK_TIME(SOON_S, END_GIVES_UP_S, seconds_now() - before);
}

static inline void in_another_thread(void *(*function)(void *)) {
  pthread_t thread;
  CHECK_EQ(0, pthread_create(&thread, NULL, function, NULL));
  CHECK_EQ(0, pthread_join(thread, NULL));
}

/* Two new communicators work, after others have ended. */
static inline void go_on_with_another(void) {
  for (int i = 0; i < 2; i++) check_drained(&ranks[i]);
  make_pair();
  for (int i = 0; i < 2; i++) CHECK_CODE(nexarSuccess, all_reduce(i));
  for (int i = 0; i < 2; i++) {
    OK(cuStreamSynchronize(ranks[i].stream));
    CHECK(is_right(i));
  }
  for (int i = 0; i < 2; i++) end(i, nexarCommDestroy);
}

/* The same, and nothing has leaked. */
static inline void end_pair_and_go_on(void) {
  go_on_with_another();
  CHECK_EQ(0, fakecuda_report_leaks());
}

#endif
