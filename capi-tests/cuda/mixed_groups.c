/*
 * Groups on CUDA streams whose operations take a different route on each rank: the ring of pieces,
 * whole, host memory, or while the caller waits. All operations of a rank are on one stream, where
 * each wait delays everything behind it: ranks that enqueue their waits in different orders, or
 * that block before others have the data they need, would deadlock.
 */
#include "vectors.h"

enum {
  FEW = 1001,
  MANY = (5 << 20) + 1, /* elements: three pieces */
  LARGE = (5 << 20) / 4, /* sent and received: more than a piece; one fits the route Whole */
  COMMS = 2,
  MOST_TIMES = 3,
};

/* An operation for which the rank `odd` takes another route than the others. */
struct mixed {
  const struct way *way;
  int rank, n, odd;
  nexarComm_t comm;
  void *stream; /* NULL: in memory of the host */
  struct vector sent, got;
  uint32_t *sent_host, *got_host;
};

struct way {
  const char *name;
  bool (*is_on_host)(const struct mixed *mixed);
  /* Elements that one rank sends to another or to itself. */
  size_t (*count)(const struct mixed *mixed, int from, int to);
  nexarResult_t (*call)(const struct mixed *mixed, const void *sent, void *got);
  void (*check)(const struct mixed *mixed, const uint32_t *got);
};

/* Rank r sends the elements 1000 * r, 1000 * r + (r + 1), ... */
static uint32_t element(int rank, size_t i) {
  return 1000 * (uint32_t)rank + (uint32_t)i * ((uint32_t)rank + 1);
}

static size_t count(const struct mixed *m, int from, int to) { return m->way->count(m, from, to); }

/* Elements that a rank sends to the ranks before another. */
static size_t sent_before(const struct mixed *m, int from, int to) {
  size_t before = 0;
  for (int r = 0; r < to; r++) before += count(m, from, r);
  return before;
}

static size_t got_before(const struct mixed *m, int from, int to) {
  size_t before = 0;
  for (int r = 0; r < from; r++) before += count(m, r, to);
  return before;
}

/* Each received block is part of what another rank has sent. */
static void check_blocks(const struct mixed *m, const uint32_t *got) {
  for (int r = 0; r < m->n; r++)
    CHECK_PROGRESSION(got + got_before(m, r, m->rank), count(m, r, m->rank),
                      element(r, sent_before(m, r, m->rank)), r + 1);
}

struct lists {
  size_t sent[MOST_RANKS], got[MOST_RANKS];
};

static struct lists lists_of(const struct mixed *m) {
  struct lists lists = {{0}, {0}};
  for (int r = 0; r < m->n; r++) {
    lists.sent[r] = count(m, m->rank, r);
    lists.got[r] = count(m, r, m->rank);
  }
  return lists;
}

/* The odd rank has more than fits a piece, the others little. Each knows only its own counts. */
static size_t large_at_the_odd_one(const struct mixed *m, int from, int to) {
  return from == m->odd && to == m->odd ? LARGE : FEW;
}
static size_t gathered(const struct mixed *m, int from, int to) {
  return to == m->odd ? large_at_the_odd_one(m, from, to) : 0;
}
static size_t scattered(const struct mixed *m, int from, int to) {
  return from == m->odd ? large_at_the_odd_one(m, from, to) : 0;
}

/* The third rank, if it exists, takes a third route. */
static bool is_the_third(const struct mixed *m) { return m->rank == 2; }

static nexarResult_t gather_v(const struct mixed *m, const void *sent, void *got) {
  struct lists lists = lists_of(m);
  return nexarGatherV(sent, lists.sent[m->odd], got, lists.got, NULL, nexarUint32, m->odd, m->comm,
                      m->stream);
}

static nexarResult_t scatter_v(const struct mixed *m, const void *sent, void *got) {
  struct lists lists = lists_of(m);
  return nexarScatterV(sent, lists.sent, NULL, got, lists.got[m->odd], nexarUint32, m->odd,
                       m->comm, m->stream);
}

static nexarResult_t all_to_all_v(const struct mixed *m, const void *sent, void *got) {
  struct lists lists = lists_of(m);
  return nexarAllToAllV(sent, lists.sent, NULL, got, lists.got, NULL, nexarUint32, m->comm,
                        m->stream);
}

static bool is_odd(const struct mixed *m) { return m->rank == m->odd; }
static size_t none(const struct mixed *m, int from, int to) { return (void)m, 0 * (from + to); }

static nexarResult_t barrier(const struct mixed *m, const void *sent, void *got) {
  return (void)sent, (void)got, nexarBarrier(m->comm, m->stream);
}

static nexarResult_t all_reduce_nothing(const struct mixed *m, const void *sent, void *got) {
  return nexarAllReduce(sent, got, 0, nexarUint32, nexarSum, m->comm, m->stream);
}

/* Several pieces: a rank with host memory must take as many turns as the others. */
static size_t many(const struct mixed *m, int from, int to) {
  return (void)m, (void)from, to == 0 ? MANY : 0;
}
static size_t few(const struct mixed *m, int from, int to) {
  return (void)m, (void)from, to == 0 ? FEW : 0;
}

static nexarResult_t all_reduce(const struct mixed *m, const void *sent, void *got) {
  return nexarAllReduce(sent, got, count(m, 0, 0), nexarUint32, nexarSum, m->comm, m->stream);
}

static void check_sums(const struct mixed *m, const uint32_t *got) {
  uint32_t first = 0;
  for (int r = 0; r < m->n; r++) first += element(r, 0);
  CHECK_PROGRESSION(got, count(m, 0, 0), first, sum_of_ranks(m->n));
}

static const struct way v_forms[] = {
    {"GatherV", is_the_third, gathered, gather_v, check_blocks},
    {"ScatterV", is_the_third, scattered, scatter_v, check_blocks},
    {"AllToAllV", is_the_third, large_at_the_odd_one, all_to_all_v, check_blocks},
};
static const struct way without_data[] = {
    {"Barrier", is_odd, none, barrier, check_blocks},
    {"AllReduce of nothing", is_odd, none, all_reduce_nothing, check_blocks},
};
static const struct way reductions[] = {
    {"AllReduce of many", is_odd, many, all_reduce, check_sums},
    {"AllReduce of few", is_odd, few, all_reduce, check_sums},
};

/* Creates the buffers of an operation, with one element more than it uses. */
static struct mixed new_mixed(const struct way *way, int odd, CUstream stream, nexarComm_t comm) {
  struct mixed m = {.way = way, .odd = odd, .comm = comm, .stream = stream};
  CHECK_CODE(nexarSuccess, nexarCommUserRank(comm, &m.rank));
  CHECK_CODE(nexarSuccess, nexarCommCount(comm, &m.n));
  size_t sends = sent_before(&m, m.rank, m.n), gets = got_before(&m, m.n, m.rank);
  if (way->check == check_sums) gets = sends;
  m.sent = new_vector(sends + 1);
  m.got = new_vector(gets + 1);
  if (!way->is_on_host(&m)) return m;
  m.stream = NULL;
  m.sent_host = malloc(4 * m.sent.count);
  m.got_host = malloc(4 * m.got.count);
  if (!m.sent_host || !m.got_host) abort();
  return m;
}

enum { UNTOUCHED = 77 };

static void fill_mixed(const struct mixed *m) {
  if (!m->sent_host) {
    fill_vector(&m->sent, m->stream, element(m->rank, 0), (uint32_t)m->rank + 1);
    fill_vector(&m->got, m->stream, UNTOUCHED, 0);
    return;
  }
  for (size_t i = 0; i < m->sent.count; i++) m->sent_host[i] = element(m->rank, i);
  for (size_t i = 0; i < m->got.count; i++) m->got_host[i] = UNTOUCHED;
}

/* In host memory an empty buffer is NULL. */
static void call_mixed(const struct mixed *m) {
  bool on_host = m->sent_host;
  void *sent = on_host ? m->sent_host : data_of(&m->sent);
  void *got = on_host ? m->got_host : data_of(&m->got);
  if (on_host && m->sent.count == 1) sent = NULL;
  if (on_host && m->got.count == 1) got = NULL;
  CALL(m->way->call(m, sent, got));
}

static void copy_out_mixed(const struct mixed *m) {
  if (!m->got_host) copy_out(&m->got, m->stream);
}

/* Checks the result and frees the buffers. */
static void check_mixed(struct mixed *m) {
  const uint32_t *got = m->got_host ? m->got_host : m->got.seen;
  int before = check_failures;
  m->way->check(m, got);
  CHECK_EQ(UNTOUCHED, got[m->got.count - 1]);
  if (check_failures > before)
    fprintf(stderr, "    of %s on rank %d, where %d is the odd one\n", m->way->name, m->rank,
            m->odd);
  free_vector(&m->sent);
  free_vector(&m->got);
  free(m->sent_host);
  free(m->got_host);
}

/* Elements of the all-reduces after the mixed operations of each communicator. */
static const size_t reduced_counts[] = {FEW, MANY, FEW};
enum { REDUCED = COUNT_OF(reduced_counts) };

/* The calls on one communicator: mixed operations, several of each way, then all-reduces. */
struct work {
  nexarComm_t comm;
  struct mixed mixed[MOST_TIMES * COUNT_OF(v_forms)];
  int number;
  struct vector reduced[REDUCED];
};

static void call_all(const struct work *work, CUstream stream) {
  for (int i = 0; i < work->number; i++) call_mixed(&work->mixed[i]);
  for (int i = 0; i < REDUCED; i++) CALL(reduce_vector(&work->reduced[i], work->comm, stream));
}

static nexarComm_t join_alone(void) {
  nexarUniqueId id;
  nexarComm_t comm = NULL;
  CHECK_CODE(nexarSuccess, nexarGetUniqueId(&id));
  CHECK_CODE(nexarSuccess, nexarCommInitRank(&comm, 1, id, 0));
  return comm;
}

/* On every other rank a communicator may reuse the memory of a destroyed one, and so have a lower
   address than the one before it: the library then locks the two in another order. */
static void make_comms(nexarComm_t *comms, struct here here) {
  nexarComm_t passing = here.rank % 2 ? join_alone() : NULL;
  comms[0] = join_another(here.rank, here.n, here.comm);
  CALL(nexarCommDestroy(passing));
  comms[1] = join_another(here.rank, here.n, here.comm);
}

/* Each communicator has another odd rank. Ranks that counted their turns differently would be ahead
   on one communicator and behind on the other. */
static void mix(const struct way *ways, size_t number, int times) {
  struct here h = here();
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  nexarComm_t comms[COMMS];
  struct work works[COMMS];
  make_comms(comms, h);
  for (int c = 0; c < COMMS; c++) {
    struct work *work = &works[c];
    *work = (struct work){.comm = comms[c]};
    for (size_t w = 0; w < number; w++)
      for (int t = 0; t < times; t++)
        work->mixed[work->number++] = new_mixed(&ways[w], c, stream, comms[c]);
    for (int i = 0; i < REDUCED; i++) work->reduced[i] = new_vector(reduced_counts[i]);
  }
  for (int c = 0; c < COMMS; c++) {
    for (int i = 0; i < works[c].number; i++) fill_mixed(&works[c].mixed[i]);
    for (int i = 0; i < REDUCED; i++)
      fill_vector(&works[c].reduced[i], stream, (uint32_t)(h.rank + 1 + i + c), 5);
  }
  CALL(nexarGroupStart());
  for (int c = 0; c < COMMS; c++) call_all(&works[(c + h.rank) % COMMS], stream);
  CALL(nexarGroupEnd());
  for (int c = 0; c < COMMS; c++) {
    for (int i = 0; i < works[c].number; i++) copy_out_mixed(&works[c].mixed[i]);
    for (int i = 0; i < REDUCED; i++) copy_out(&works[c].reduced[i], stream);
  }
  synchronize(stream);
  for (int c = 0; c < COMMS; c++) {
    for (int i = 0; i < works[c].number; i++) check_mixed(&works[c].mixed[i]);
    for (int i = 0; i < REDUCED; i++) {
      CHECK_SEEN(&works[c].reduced[i], sum_of_ranks(h.n) + (uint32_t)((i + c) * h.n), 5 * h.n);
      free_vector(&works[c].reduced[i]);
    }
    CALL(nexarCommDestroy(comms[c]));
  }
  end_stream(stream);
}

/* Sets after how many operations on a stream the driver blocks the caller. NULL: the default. */
static void set_queue_depth(const char *depth) {
  fakecuda_set("QUEUE_DEPTH", depth ? depth : getenv("FAKECUDA_QUEUE_DEPTH"));
}

static void mix_with_any_queue(const struct way *ways, size_t number, int times) {
  mix(ways, number, times);
  set_queue_depth("24");
  mix(ways, number, times);
  set_queue_depth(NULL);
}

static void v_forms_are_in_pieces_on_one_rank_and_whole_on_another(void) {
  for (size_t i = 0; i < COUNT_OF(v_forms); i++) mix_with_any_queue(&v_forms[i], 1, 1);
}

/* Only one of them fits the route Whole. */
static void v_forms_are_in_pieces_on_one_rank_and_blocking_on_another(void) {
  for (size_t i = 0; i < COUNT_OF(v_forms); i++) mix_with_any_queue(&v_forms[i], 1, 2);
  mix(v_forms, COUNT_OF(v_forms), 1);
}

static void barriers_and_empty_calls_are_on_a_stream_on_one_rank_and_on_none_on_another(void) {
  for (size_t i = 0; i < COUNT_OF(without_data); i++)
    mix_with_any_queue(&without_data[i], 1, MOST_TIMES);
}

static void buffers_are_on_the_device_on_one_rank_and_on_the_host_on_another(void) {
  mix_with_any_queue(reductions, COUNT_OF(reductions), 2);
}

/* A v-form and a message that do not fit the route Whole, beside a call that fills the queue. While
   the caller is blocked there, it cannot execute the two, for which other ranks wait. */
static void wait_beside_a_long_call(const char *depth) {
  progress();
  enum { SOME = 1 << 20 /* too much to be sent before it is received */, HUGE = (17 << 20) / 4 };
  enum { LONG = 26 << 20 /* thirteen pieces */ };
  struct here h = here();
  int next = (h.rank + 1) % h.n, previous = (h.rank + h.n - 1) % h.n;
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  struct vector sent = new_vector(HUGE), got = new_vector(HUGE), reduced = new_vector(LONG),
                gathered_ = new_vector(HUGE + (size_t)h.n * SOME);
  size_t counts[MOST_RANKS] = {HUGE};
  for (int r = 1; r < h.n; r++) counts[r] = SOME;
  set_queue_depth(depth);
  fill_vector(&sent, stream, element(h.rank, 0), (uint32_t)h.rank + 1);
  fill_vector(&reduced, stream, (uint32_t)h.rank + 1, 3);
  CALL(nexarGroupStart());
  CALL(nexarGatherV(data_of(&sent), counts[h.rank], data_of(&gathered_), counts, NULL, nexarUint32,
                    0, h.comm, stream));
  CALL(reduce_vector(&reduced, h.comm, stream));
  CALL(nexarSend(data_of(&sent), HUGE, nexarUint32, next, h.comm, stream));
  CALL(nexarRecv(data_of(&got), HUGE, nexarUint32, previous, h.comm, stream));
  CALL(nexarGroupEnd());
  copy_out(&reduced, stream);
  copy_out(&got, stream);
  copy_out(&gathered_, stream);
  synchronize(stream);
  set_queue_depth(NULL);
  CHECK_SEEN(&reduced, sum_of_ranks(h.n), 3 * h.n);
  CHECK_SEEN(&got, element(previous, 0), previous + 1);
  size_t at = 0;
  for (int r = 0; h.rank == 0 && r < h.n; at += counts[r++])
    CHECK_PROGRESSION(gathered_.seen + at, counts[r], element(r, 0), r + 1);
  end_stream(stream);
  free_vector(&sent);
  free_vector(&got);
  free_vector(&reduced);
  free_vector(&gathered_);
}

static void the_caller_waits_beside_a_long_call_that_fills_the_queue(void) {
  wait_beside_a_long_call("24");
  wait_beside_a_long_call("40");
  wait_beside_a_long_call(NULL);
}

/* Joins a communicator that rank 0 aborts. Returns NULL there. */
static nexarComm_t join_one_that_fails(struct here here) {
  nexarComm_t failed = join_another(here.rank, here.n, here.comm);
  nexarResult_t error = nexarSuccess;
  if (here.rank == 0) {
    CALL(nexarCommAbort(failed));
    return NULL;
  }
  while (error == nexarSuccess) {
    CHECK_CODE(nexarSuccess, nexarCommGetAsyncError(failed, &error));
    usleep(100);
  }
  CHECK_CODE(nexarRemoteError, error);
  return failed;
}

/* Calls of a group on a failed communicator are refused and leave their buffers unchanged. */
static void group_with_a_failed_one(size_t elements, size_t message) {
  enum { OTHERS = 2 };
  struct here h = here();
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  nexarComm_t failed = join_one_that_fails(h);
  nexarComm_t comms[OTHERS] = {h.comm, join_another(h.rank, h.n, h.comm)};
  struct vector refused = new_vector(elements), reduced[OTHERS];
  struct vector sent = new_vector(message), got = new_vector(message);
  int next = (h.rank + 1) % h.n, previous = (h.rank + h.n - 1) % h.n;
  uint32_t on_host = (uint32_t)h.rank + 1;
  for (int c = 0; c < OTHERS; c++) reduced[c] = new_vector(elements);
  fill_vector(&refused, stream, 3, 1);
  fill_vector(&sent, stream, element(h.rank, 0), (uint32_t)h.rank + 1);
  for (int c = 0; c < OTHERS; c++) fill_vector(&reduced[c], stream, (uint32_t)h.rank + 1, 7);
  CALL(nexarGroupStart());
  CALL(reduce_vector(&reduced[0], comms[0], stream));
  if (failed) CALL(reduce_vector(&refused, failed, stream));
  CALL(reduce_vector(&reduced[1], comms[1], stream));
  if (failed) CALL(nexarBarrier(failed, NULL));
  CALL(nexarAllReduce(&on_host, &on_host, 1, nexarUint32, nexarSum, comms[0], NULL));
  CALL(nexarSendRecv(data_of(&sent), message, next, data_of(&got), message, previous, nexarUint32,
                     comms[1], stream));
  CALL_CODE(failed ? nexarRemoteError : nexarSuccess, nexarGroupEnd());
  CHECK_EQ(sum_of_ranks(h.n), on_host);
  copy_out(&refused, stream);
  copy_out(&got, stream);
  for (int c = 0; c < OTHERS; c++) copy_out(&reduced[c], stream);
  synchronize(stream);
  CHECK_SEEN(&refused, 3, 1);
  CHECK_SEEN(&got, element(previous, 0), previous + 1);
  for (int c = 0; c < OTHERS; c++) {
    nexarResult_t error = nexarInternalError;
    CHECK_SEEN(&reduced[c], sum_of_ranks(h.n), 7 * h.n);
    CHECK_CODE(nexarSuccess, nexarCommGetAsyncError(comms[c], &error));
    CHECK_CODE(nexarSuccess, error);
    free_vector(&reduced[c]);
  }
  check_device_works((struct here){h.rank, h.n, comms[1]});
  if (failed) CALL(nexarCommDestroy(failed));
  CALL(nexarCommDestroy(comms[1]));
  free_vector(&refused);
  free_vector(&sent);
  free_vector(&got);
  end_stream(stream);
}

static void calls_of_a_group_execute_beside_those_of_a_communicator_that_has_failed(void) {
  group_with_a_failed_one(FEW, FEW);
  group_with_a_failed_one(MANY, LARGE);
}

/* The message does not fit the route Whole; without memory operations nothing does. */
static void a_blocking_message_arrives_beside_a_communicator_that_has_failed(void) {
  group_with_a_failed_one(FEW, (17 << 20) / 4);
}

static const struct test_case cases[] = {
    CASE(v_forms_are_in_pieces_on_one_rank_and_whole_on_another),
    CASE(v_forms_are_in_pieces_on_one_rank_and_blocking_on_another),
    CASE(barriers_and_empty_calls_are_on_a_stream_on_one_rank_and_on_none_on_another),
    CASE(buffers_are_on_the_device_on_one_rank_and_on_the_host_on_another),
    CASE(the_caller_waits_beside_a_long_call_that_fills_the_queue),
    CASE(calls_of_a_group_execute_beside_those_of_a_communicator_that_has_failed),
    CASE(a_blocking_message_arrives_beside_a_communicator_that_has_failed),
};

int main(void) {
  begin_with_device();
  return RUN(cases);
}
