/*
 * A nexarStatus_t, and messages of int32 elements for tests of nexarRecvTagStatus and
 * nexarProbeTag.
 */
#ifndef STATUS_H
#define STATUS_H

#include "ranks.h"

static const nexarStatus_t unset = NEXAR_STATUS_INITIALIZER;

static inline bool is_unset(const nexarStatus_t *status) {
  return status->size == unset.size && status->source == unset.source &&
         status->tag == unset.tag && status->count == unset.count &&
         status->datatype == unset.datatype;
}

#define CHECK_STATUS(status, source_, tag_, count_, datatype_)                                     \
  do {                                                                                             \
    CHECK_EQ(sizeof(nexarStatus_t), (status).size);                                                \
    CHECK_EQ(source_, (status).source);                                                            \
    CHECK_EQ(tag_, (status).tag);                                                                  \
    CHECK_EQ(count_, (status).count);                                                              \
    CHECK_EQ(datatype_, (status).datatype);                                                        \
  } while (0)

static inline void on_two_and_three(rank_function *function) {
  run_ranks(2, function, NULL);
  run_ranks(3, function, NULL);
}

/* A call of all ranks: a communicator of the same ranks, with another deadline if it is not 0. */
static inline nexarComm_t another_with(int rank, nexarComm_t comm, int op_timeout_ms) {
  nexarConfig_t config = NEXAR_CONFIG_INITIALIZER;
  nexarComm_t another = NULL;
  if (op_timeout_ms) config.opTimeoutMs = op_timeout_ms;
  CHECK_CODE(nexarSuccess, nexarCommSplit(comm, 0, rank, &another, &config));
  return another;
}

static inline void check_has_not_failed(nexarComm_t comm) {
  nexarResult_t error = nexarTimeout;
  CHECK_CODE(nexarSuccess, nexarCommGetAsyncError(comm, &error));
  CHECK_EQ(nexarSuccess, error);
}

/* Element i of a message with this tag. */
static inline int32_t element(size_t i, int tag) {
  return (int32_t)(3 * (uint32_t)i + (uint32_t)tag);
}

static inline nexarResult_t send_numbers(size_t count, int to, int tag, nexarComm_t comm) {
  int32_t *data = malloc((count + 1) * sizeof *data);
  for (size_t i = 0; i < count; i++) data[i] = element(i, tag);
  nexarResult_t sent = nexarSendTag(data, count, nexarInt32, to, tag, comm, NULL);
  free(data);
  return sent;
}

static inline void check_numbers(const int32_t *data, size_t count, size_t capacity, int tag) {
  size_t right = 0;
  while (right < count && data[right] == element(right, tag)) right++;
  while (right >= count && right < capacity && data[right] == -1) right++;
  CHECK_EQ(capacity, right);
}

/* Receives into a buffer of -1 and checks the elements, also those behind the message. */
static inline nexarResult_t recv_numbers(size_t capacity, int peer, int tag, nexarStatus_t *status,
                                  nexarComm_t comm) {
  int32_t *data = malloc((capacity + 1) * sizeof *data);
  memset(data, 0xff, (capacity + 1) * sizeof *data);
  nexarStatus_t own = unset, *reported = status ? status : &own;
  nexarResult_t result =
      nexarRecvTagStatus(data, capacity, nexarInt32, peer, tag, reported, comm, NULL);
  if (result == nexarSuccess)
    check_numbers(data, reported->count, capacity + 1, reported->tag);
  else
    check_numbers(data, 0, capacity + 1, 0);
  free(data);
  return result;
}

#endif
