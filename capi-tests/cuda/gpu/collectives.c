/*
 * Every call on device memory: types, in place and not, sizes, streams.
 *
 * Elements are small integers whose sums are exact in every type, so the expected result is known
 * to the last bit. Copies in and out are on the stream of the call, without a wait in between, so
 * every case checks stream order too.
 */
#include "rank.h"

struct dtype {
  nexarDataType_t type;
  const char *name;
  size_t size;
  uint32_t limit; /* integers up to it are exact */
  int mantissa;   /* its bits, for floating point types */
  int bias;
};

static const struct dtype dtypes[] = {
    {nexarUint32, "uint32", 4, 100000, 0, 0},      {nexarInt8, "int8", 1, 127, 0, 0},
    {nexarUint8, "uint8", 1, 255, 0, 0},           {nexarInt16, "int16", 2, 32767, 0, 0},
    {nexarUint16, "uint16", 2, 65535, 0, 0},       {nexarInt32, "int32", 4, 100000, 0, 0},
    {nexarInt64, "int64", 8, 100000, 0, 0},        {nexarUint64, "uint64", 8, 100000, 0, 0},
    {nexarFloat16, "float16", 2, 2048, 10, 15},    {nexarBfloat16, "bfloat16", 2, 256, 7, 127},
    {nexarFloat32, "float32", 4, 100000, 23, 127}, {nexarFloat64, "float64", 8, 100000, 52, 1023},
    {nexarFloat8e4m3, "float8e4m3", 1, 16, 3, 7},  {nexarFloat8e5m2, "float8e5m2", 1, 8, 2, 15},
};

/* The bits of an integer that is exact in the type. */
static uint64_t bits_of(const struct dtype *dtype, uint64_t number) {
  if (!dtype->mantissa || !number) return number;
  int exponent = 63 - __builtin_clzll(number);
  uint64_t fraction = number ^ (uint64_t)1 << exponent;
  fraction = exponent <= dtype->mantissa ? fraction << (dtype->mantissa - exponent)
                                         : fraction >> (exponent - dtype->mantissa);
  return (uint64_t)(exponent + dtype->bias) << dtype->mantissa | fraction;
}

struct shape {
  const struct dtype *dtype;
  size_t count;
  int rank, n, root;
  bool in_place;
};

static uint32_t sent(const struct shape *shape, int rank, size_t i) {
  return number_of(rank, i, shape->dtype->limit / (uint32_t)shape->n + 1);
}

/* The sum of element i over the ranks before `end`. */
static uint64_t sum(const struct shape *shape, int end, size_t i) {
  uint64_t all = 0;
  for (int rank = 0; rank < end; rank++) all += sent(shape, rank, i);
  return all;
}

/* Block lengths and displacements of the v-forms: blocks differ, and each follows a gap. */
enum { GAP = 3 };
static size_t length(const struct shape *shape, int owner) {
  return owner % 4 == 3 ? 0 : shape->count + (size_t)owner % 3;
}
static size_t place(const struct shape *shape, int owner) {
  size_t at = GAP;
  for (int i = 0; i < owner; i++) at += length(shape, i) + GAP;
  return at;
}
static size_t packed(const struct shape *shape, int owner) {
  return place(shape, owner) - GAP * ((size_t)owner + 1);
}
/* The same for blocks between two ranks, symmetric in the two. */
static size_t pair(const struct shape *shape, int one, int other) {
  return shape->count + (size_t)(one + other) % 3;
}
static size_t pair_place(const struct shape *shape, int one, int other) {
  size_t at = GAP;
  for (int i = 0; i < other; i++) at += pair(shape, one, i) + GAP;
  return at;
}

struct lists {
  size_t lengths[MOST_RANKS], places[MOST_RANKS];
};
static struct lists lists_of(const struct shape *shape, bool pairs) {
  struct lists lists;
  for (int i = 0; i < shape->n; i++) {
    lists.lengths[i] = pairs ? pair(shape, shape->rank, i) : length(shape, i);
    lists.places[i] = pairs ? pair_place(shape, shape->rank, i) : place(shape, i);
  }
  return lists;
}

/* A call: the elements of its buffers on this rank, the offset of the smaller buffer in the larger
   if in place, element i of the result (false: unchanged), and the function. */
struct form {
  const char *name;
  size_t (*sends)(const struct shape *shape), (*receives)(const struct shape *shape);
  size_t (*inside)(const struct shape *shape); /* NULL: both begin at the same address */
  bool (*result)(const struct shape *shape, size_t i, uint64_t *number);
  nexarResult_t (*call)(const struct shape *shape, const void *send, void *recv, CUstream stream);
  enum { EITHER, ALWAYS_IN_PLACE, NEVER_IN_PLACE } where;
  bool in_blocks; /* a buffer is count * n */
};

#define SHAPE const struct shape *s
#define CALL SHAPE, const void *send, void *recv, CUstream stream
#define RESULT SHAPE, size_t i, uint64_t *number
#define HOW s->dtype->type, nexarSum
#define END me->comm, stream

static size_t one(SHAPE) { return s->count; }
static size_t all(SHAPE) { return s->count * (size_t)s->n; }
static size_t none(SHAPE) { return (void)s, 0; }
static size_t one_at_root(SHAPE) { return s->rank == s->root ? s->count : 0; }
static size_t all_at_root(SHAPE) { return s->rank == s->root ? all(s) : 0; }
static size_t own(SHAPE) { return s->count * (size_t)s->rank; }
static size_t own_length(SHAPE) { return length(s, s->rank); }
static size_t own_place(SHAPE) { return place(s, s->rank); }
static size_t own_packed(SHAPE) { return packed(s, s->rank); }
static size_t spread(SHAPE) { return place(s, s->n); }
static size_t spread_at_root(SHAPE) { return s->rank == s->root ? spread(s) : 0; }
static size_t dense(SHAPE) { return packed(s, s->n); }
static size_t spread_pairs(SHAPE) { return pair_place(s, s->rank, s->n); }

static bool sum_of_all(RESULT) { return *number = sum(s, s->n, i), true; }
static bool sum_up_to(RESULT) { return *number = sum(s, s->rank + 1, i), true; }
static bool sum_before(RESULT) { return *number = sum(s, s->rank, i), true; }
static bool of_root(RESULT) { return *number = sent(s, s->root, i), true; }
static bool of_previous(RESULT) { return *number = sent(s, (s->rank + s->n - 1) % s->n, i), true; }
static bool nothing(RESULT) { return (void)s, (void)i, (void)number, false; }
static bool own_sum(RESULT) { return *number = sum(s, s->n, own(s) + i), true; }
static bool own_packed_sum(RESULT) { return *number = sum(s, s->n, own_packed(s) + i), true; }
static bool own_of_root(RESULT) { return *number = sent(s, s->root, own(s) + i), true; }
static bool own_place_of_root(RESULT) {
  return *number = sent(s, s->root, own_place(s) + i), true;
}
static bool of_each(RESULT) {
  return *number = sent(s, (int)(i / s->count), i % s->count), true;
}
static bool crossed(RESULT) {
  return *number = sent(s, (int)(i / s->count), own(s) + i % s->count), true;
}
static bool of_each_spread(RESULT) {
  for (int owner = 0; owner < s->n; owner++) {
    size_t begin = place(s, owner);
    if (i < begin || i >= begin + length(s, owner)) continue;
    return *number = sent(s, owner, i - begin), true;
  }
  return false;
}
static bool crossed_spread(RESULT) {
  for (int other = 0; other < s->n; other++) {
    size_t begin = pair_place(s, s->rank, other);
    if (i < begin || i >= begin + pair(s, s->rank, other)) continue;
    return *number = sent(s, other, pair_place(s, other, s->rank) + i - begin), true;
  }
  return false;
}

static nexarResult_t all_reduce(CALL) { return nexarAllReduce(send, recv, s->count, HOW, END); }
static nexarResult_t reduce(CALL) { return nexarReduce(send, recv, s->count, HOW, s->root, END); }
static nexarResult_t broadcast(CALL) {
  return nexarBroadcast(send, recv, s->count, s->dtype->type, s->root, END);
}
static nexarResult_t bcast(CALL) {
  (void)send;
  return nexarBcast(recv, s->count, s->dtype->type, s->root, END);
}
static nexarResult_t all_gather(CALL) {
  return nexarAllGather(send, recv, s->count, s->dtype->type, END);
}
static nexarResult_t reduce_scatter(CALL) {
  return nexarReduceScatter(send, recv, s->count, HOW, END);
}
static nexarResult_t all_to_all(CALL) {
  return nexarAllToAll(send, recv, s->count, s->dtype->type, END);
}
static nexarResult_t gather(CALL) {
  return nexarGather(send, recv, s->count, s->dtype->type, s->root, END);
}
static nexarResult_t scatter(CALL) {
  return nexarScatter(send, recv, s->count, s->dtype->type, s->root, END);
}
static nexarResult_t scan(CALL) { return nexarScan(send, recv, s->count, HOW, END); }
static nexarResult_t ex_scan(CALL) { return nexarExScan(send, recv, s->count, HOW, END); }
static nexarResult_t bucketed(CALL) {
  size_t third = s->count / 3;
  void *buffers[3] = {recv, (char *)recv + third * s->dtype->size,
                      (char *)recv + 2 * third * s->dtype->size};
  size_t counts[3] = {third, third, s->count - 2 * third};
  (void)send;
  return nexarAllReduceBucketed(buffers, counts, 3, HOW, END);
}
static nexarResult_t all_gather_v(CALL) {
  struct lists l = lists_of(s, false);
  return nexarAllGatherV(send, own_length(s), recv, l.lengths, l.places, s->dtype->type, END);
}
static nexarResult_t reduce_scatter_v(CALL) {
  return nexarReduceScatterV(send, recv, lists_of(s, false).lengths, HOW, END);
}
static nexarResult_t all_to_all_v(CALL) {
  struct lists l = lists_of(s, true);
  return nexarAllToAllV(send, l.lengths, l.places, recv, l.lengths, l.places, s->dtype->type, END);
}
static nexarResult_t gather_v(CALL) {
  struct lists l = lists_of(s, false);
  return nexarGatherV(send, own_length(s), recv, l.lengths, l.places, s->dtype->type, s->root, END);
}
static nexarResult_t scatter_v(CALL) {
  struct lists l = lists_of(s, false);
  return nexarScatterV(send, l.lengths, l.places, recv, own_length(s), s->dtype->type, s->root,
                       END);
}
static nexarResult_t around(CALL) {
  int next = (s->rank + 1) % s->n, previous = (s->rank + s->n - 1) % s->n;
  return nexarSendRecv(send, s->count, next, recv, s->count, previous, s->dtype->type, END);
}
static nexarResult_t in_group(CALL, bool tagged) {
  int next = (s->rank + 1) % s->n, previous = (s->rank + s->n - 1) % s->n;
  nexarDataType_t type = s->dtype->type;
  nexarResult_t first = nexarGroupStart();
  nexarResult_t second = tagged ? nexarSendTag(send, s->count, type, next, 7, END)
                                : nexarSend(send, s->count, type, next, END);
  nexarResult_t third = tagged ? nexarRecvTag(recv, s->count, type, previous, 7, END)
                               : nexarRecv(recv, s->count, type, previous, END);
  nexarResult_t last = nexarGroupEnd();
  return first ? first : second ? second : third ? third : last;
}
static nexarResult_t messages(CALL) { return in_group(s, send, recv, stream, false); }
static nexarResult_t tagged(CALL) { return in_group(s, send, recv, stream, true); }
static nexarResult_t barrier(CALL) {
  (void)s, (void)send, (void)recv;
  return nexarBarrier(END);
}

static const struct form forms[] = {
    {"AllReduce", one, one, NULL, sum_of_all, all_reduce, EITHER, false},
    {"Reduce", one, one_at_root, NULL, sum_of_all, reduce, EITHER, false},
    {"Broadcast", one_at_root, one, NULL, of_root, broadcast, EITHER, false},
    {"Bcast", one, one, NULL, of_root, bcast, ALWAYS_IN_PLACE, false},
    {"AllGather", one, all, own, of_each, all_gather, EITHER, true},
    {"ReduceScatter", all, one, own, own_sum, reduce_scatter, EITHER, true},
    {"AllToAll", all, all, NULL, crossed, all_to_all, EITHER, true},
    {"Gather", one, all_at_root, own, of_each, gather, EITHER, true},
    {"Scatter", all_at_root, one, own, own_of_root, scatter, EITHER, true},
    {"Scan", one, one, NULL, sum_up_to, scan, EITHER, false},
    {"ExScan", one, one, NULL, sum_before, ex_scan, EITHER, false},
    {"AllReduceBucketed", one, one, NULL, sum_of_all, bucketed, ALWAYS_IN_PLACE, false},
    {"AllGatherV", own_length, spread, own_place, of_each_spread, all_gather_v, EITHER, true},
    {"ReduceScatterV", dense, own_length, own_packed, own_packed_sum, reduce_scatter_v, EITHER,
     true},
    {"AllToAllV", spread_pairs, spread_pairs, NULL, crossed_spread, all_to_all_v, EITHER, true},
    {"GatherV", own_length, spread_at_root, own_place, of_each_spread, gather_v, EITHER, true},
    {"ScatterV", spread_at_root, own_length, own_place, own_place_of_root, scatter_v, EITHER,
     true},
    {"Send, Recv", one, one, NULL, of_previous, messages, NEVER_IN_PLACE, false},
    {"SendTag, RecvTag", one, one, NULL, of_previous, tagged, NEVER_IN_PLACE, false},
    {"SendRecv", one, one, NULL, of_previous, around, NEVER_IN_PLACE, false},
    {"Barrier", none, none, NULL, nothing, barrier, NEVER_IN_PLACE, false},
};

/* The elements of a case in an area, from byte `lead` on. */
struct buffer {
  struct area *area;
  size_t lead, elements;
};

static size_t bytes_of(const struct buffer *buffer, size_t size) {
  return buffer->lead + buffer->elements * size + MARGIN;
}

static void put(unsigned char *at, const struct dtype *dtype, uint64_t number) {
  uint64_t bits = bits_of(dtype, number); /* little endian, like all hosts with CUDA */
  memcpy(at, &bits, dtype->size);
}

/* Writes the elements that this rank sends to the image, from element `from` on. */
static void fill(const struct buffer *buffer, const struct shape *s, size_t from, size_t count) {
  unsigned char *to = buffer->area->image + buffer->lead + from * s->dtype->size;
  for (size_t i = 0; i < count; i++, to += s->dtype->size) put(to, s->dtype, sent(s, s->rank, i));
}

/* Writes the expected result over the image, from element `from` on. */
static void want(const struct buffer *buffer, const struct shape *s, const struct form *form,
                 size_t from, size_t count) {
  unsigned char *to = buffer->area->wanted + buffer->lead + from * s->dtype->size;
  uint64_t number;
  for (size_t i = 0; i < count; i++, to += s->dtype->size)
    if (form->result(s, i, &number)) put(to, s->dtype, number);
}

static void compare(const struct buffer *buffer, const struct shape *s, const char *name) {
  size_t bytes = bytes_of(buffer, s->dtype->size), at = 0;
  const unsigned char *wanted = buffer->area->wanted, *back = buffer->area->back;
  if (memcmp(wanted, back, bytes) == 0) return;
  while (wanted[at] == back[at]) at++;
  long long element = ((long long)at - (long long)buffer->lead) / (long long)s->dtype->size;
  fail("%s: byte %zu, of element %lld of %zu, is %#x, not %#x", name, at, element,
       buffer->elements, back[at], wanted[at]);
}

static void try_case(const struct form *form, const struct shape *s, int stream_kind) {
  size_t size = s->dtype->size, sends = form->sends(s), receives = form->receives(s);
  size_t lead = MARGIN - (stream_kind % 2 ? size : 0); /* aligned to the element or to MARGIN */
  CUstream stream = me->streams[stream_kind];
  doing("%s of %zu %s, %s, %s", form->name, s->count, s->dtype->name,
        s->in_place ? "in place" : "apart", stream_names[stream_kind]);
  bool shared = s->in_place && sends && receives;
  struct buffer send = {&me->send, lead, sends}, recv = {&me->recv, lead, receives};
  size_t inside = shared && form->inside ? form->inside(s) : 0;
  if (shared) send.elements = sends > receives ? sends : receives;
  struct buffer *buffers[2] = {sends ? &send : NULL, shared || !receives ? NULL : &recv};

  for (int i = 0; i < 2; i++)
    if (buffers[i]) memset(buffers[i]->area->image, FILLER, bytes_of(buffers[i], size));
  size_t send_at = sends < receives ? inside : 0, recv_at = receives < sends ? inside : 0;
  if (sends) fill(&send, s, shared ? send_at : 0, sends);
  for (int i = 0; i < 2; i++)
    if (buffers[i])
      memcpy(buffers[i]->area->wanted, buffers[i]->area->image, bytes_of(buffers[i], size));
  if (receives) want(shared ? &send : &recv, s, form, shared ? recv_at : 0, receives);

  CUdeviceptr first = me->send.device + lead, second = shared ? first : me->recv.device + lead;
  for (int i = 0; i < 2; i++)
    if (buffers[i])
      CU(cuMemcpyHtoDAsync_v2(buffers[i]->area->device, buffers[i]->area->image,
                              bytes_of(buffers[i], size), stream));
  const void *sendbuff = sends ? at(first + (shared ? send_at * size : 0)) : NULL;
  void *recvbuff = receives ? at(second + (shared ? recv_at * size : 0)) : NULL;
  OK(form->call(s, sendbuff, recvbuff, stream));
  for (int i = 0; i < 2; i++)
    if (buffers[i])
      CU(cuMemcpyDtoHAsync_v2(buffers[i]->area->back, buffers[i]->area->device,
                              bytes_of(buffers[i], size), stream));
  CU(cuStreamSynchronize(stream));
  if (sends) compare(&send, s, shared ? "buffer" : "sendbuff");
  if (receives && !shared) compare(&recv, s, "recvbuff");
  CUcontext current = NULL;
  CU(cuCtxGetCurrent(&current));
  if (current != me->context) fail("another context is current than before");
  me->cases++;
}

/* Continues after a failure, because the other ranks make these calls too. */
static void try_places(const struct form *form, struct shape shape, int stream) {
  for (int in_place = 0; in_place < 2; in_place++) {
    if (form->where == ALWAYS_IN_PLACE && !in_place) continue;
    if (form->where == NEVER_IN_PLACE && in_place) continue;
    shape.in_place = in_place;
    shape.root = (int)((shape.count + (size_t)stream) % (size_t)shape.n);
    try_case(form, &shape, stream);
  }
}

void try_collectives(const char *name) {
  const struct form *form = forms;
  while (strcmp(form->name, name) != 0) form++;
  struct shape shape = {.rank = me->rank, .n = me->n};
  static const size_t small[] = {1, 1003};
  for (size_t type = 0; type < sizeof dtypes / sizeof dtypes[0]; type++) {
    shape.dtype = &dtypes[type];
    for (size_t size = 0; size < 2; size++) {
      shape.count = small[size];
      for (int stream = 0; stream < STREAMS; stream++) try_places(form, shape, stream);
    }
    if (form->sends == none) return;
  }
  /* About half a piece; then as many pieces as fit, with an odd number of elements. */
  for (int large = 0; large < 2; large++) {
    size_t bytes = large ? me->room - 4096 : 5000000;
    shape.dtype = &dtypes[large ? 0 : 10];
    size_t most = (bytes < me->room - 4096 ? bytes : me->room - 4096) / shape.dtype->size;
    shape.count = ((form->in_blocks ? most / (size_t)me->n : most) - 8) | 1;
    try_places(form, shape, large ? NON_BLOCKING : NULL_STREAM);
  }
}
