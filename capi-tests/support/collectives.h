/*
 * The collectives as jobs.h sees them: which blocks a rank sends and which it must get, where a
 * call is in place, and the call. A plain form is the v-form with equal blocks, packed.
 */
#ifndef COLLECTIVES_H
#define COLLECTIVES_H

#include "jobs.h"

/* Arguments of a v-form. */
struct lists {
  size_t counts[MOST_BLOCKS], displs_[MOST_BLOCKS];
  const size_t *displs; /* NULL if the blocks are packed */
};

static inline enum places places_of(const struct job *job) {
  return job->collective->has_displacements ? job->places : PACKED;
}

static inline void get_lists(struct lists *lists, const struct share *share,
                             const struct layout *layout) {
  for (int i = 0; i < layout->number; i++) {
    lists->counts[i] = layout->blocks[i].count;
    lists->displs_[i] = layout->blocks[i].at;
  }
  lists->displs = places_of(share->job) == PACKED ? NULL : lists->displs_;
}

/* Moves the blocks to their places. */
static inline void spread(const struct job *job, struct layout *layout) {
  const enum places places = places_of(job);
  const size_t gap = places == PACKED ? 0 : 3;
  layout->extent = 0;
  for (int i = 0; i < layout->number; i++) {
    struct block *block = &layout->blocks[places == REVERSED ? layout->number - 1 - i : i];
    block->at = layout->extent + gap;
    layout->extent = block->at + block->count;
  }
}

/* Elements that one rank sends another; in calls with one list, those of a rank and itself. */
static inline size_t length(const struct share *share, int from, int to) {
  const struct job *job = share->job;
  if (job->in_place && from > to) return length(share, to, from); /* both ways the same */
  switch (job->collective->has_lengths ? job->lengths : EQUAL) {
    case RAGGED: return job->count * (mixed((uint64_t)from, (uint64_t)to) % 5) / 2;
    case LONELY: return to == share->n - 1 && (from == 0 || from == to) ? job->count : 0;
    default: return job->count;
  }
}

/* The bytes that one rank sends another; those of a rank for all, if they are the same. */
static inline int stream(int from, int to) { return from * MOST_RANKS + to; }

static inline void one_block_of_each(struct share *share, struct layout *layout) {
  for (int i = 0; i < share->n; i++)
    add_block(layout, length(share, i, i), BYTES_OF_STREAM, stream(i, i));
  spread(share->job, layout);
}

/* A buffer that means nothing on this rank. */
static inline void no_blocks(struct layout *layout) { layout->number = 0; }

#define SIZE(share) (share)->job->count, (share)->job->dtype->code
#define OP(share) (share)->operator.code
#define ROOT(share) (share)->job->root
#define END(share) (share)->comm, (share)->stream

static inline void lay_out_all_reduce(struct share *share) {
  add_block(&share->send, share->job->count, ELEMENTS_OF_RANK, share->rank);
  add_block(&share->recv, share->job->count, FOLD_OF_FIRST_RANKS, share->n);
}

static inline nexarResult_t call_all_reduce(const struct share *s, const void *send, void *recv) {
  return nexarAllReduce(send, recv, SIZE(s), OP(s), END(s));
}

static const struct collective all_reduce = {
    .name = "AllReduce", .lay_out = lay_out_all_reduce, .call = call_all_reduce};

static inline void lay_out_reduce(struct share *share) {
  lay_out_all_reduce(share);
  if (share->rank != share->job->root) no_blocks(&share->recv);
}

static inline nexarResult_t call_reduce(const struct share *s, const void *send, void *recv) {
  return nexarReduce(send, recv, SIZE(s), OP(s), ROOT(s), END(s));
}

static const struct collective reduce = {
    .name = "Reduce", .lay_out = lay_out_reduce, .call = call_reduce, .has_root = true};

static inline void lay_out_broadcast(struct share *share) {
  int root = share->job->root;
  add_block(&share->send, share->job->count, BYTES_OF_STREAM, root);
  add_block(&share->recv, share->job->count, BYTES_OF_STREAM, root);
  if (share->rank != root) no_blocks(&share->send);
}

static inline nexarResult_t call_broadcast(const struct share *s, const void *send, void *recv) {
  return nexarBroadcast(send, recv, SIZE(s), ROOT(s), END(s));
}

static inline nexarResult_t call_bcast(const struct share *s, const void *send, void *recv) {
  (void)send;
  return nexarBcast(recv, SIZE(s), ROOT(s), END(s));
}

static const struct collective broadcast = {
    .name = "Broadcast", .lay_out = lay_out_broadcast, .call = call_broadcast, .has_root = true};
static const struct collective bcast = {
    .name = "Bcast", .lay_out = lay_out_broadcast, .call = call_bcast, .has_root = true,
    .has_one_buffer = true};

static inline void lay_out_all_gather(struct share *share) {
  int rank = share->rank;
  add_block(&share->send, length(share, rank, rank), BYTES_OF_STREAM, stream(rank, rank));
  one_block_of_each(share, &share->recv);
  share->inside = (long long)share->recv.blocks[rank].at;
}

static inline nexarResult_t call_all_gather(const struct share *s, const void *send, void *recv) {
  return nexarAllGather(send, recv, SIZE(s), END(s));
}

static inline nexarResult_t call_all_gather_v(const struct share *s, const void *send, void *recv) {
  struct lists to;
  get_lists(&to, s, &s->recv);
  return nexarAllGatherV(send, s->send.extent, recv, to.counts, to.displs, s->job->dtype->code,
                         END(s));
}

static const struct collective all_gather = {
    .name = "AllGather", .lay_out = lay_out_all_gather, .call = call_all_gather,
    .has_blocks = true};
static const struct collective all_gather_v = {
    .name = "AllGatherV", .lay_out = lay_out_all_gather, .call = call_all_gather_v,
    .has_lengths = true, .has_displacements = true};

static inline void lay_out_reduce_scatter(struct share *share) {
  size_t all = 0, before = 0;
  for (int i = 0; i < share->n; i++) {
    if (i == share->rank) before = all;
    all += length(share, i, i);
  }
  add_block(&share->send, all, ELEMENTS_OF_RANK, share->rank);
  struct block *own = add_block(&share->recv, length(share, share->rank, share->rank),
                                FOLD_OF_FIRST_RANKS, share->n);
  own->first = before;
  share->inside = (long long)before;
}

static inline nexarResult_t call_reduce_scatter(const struct share *s, const void *send,
                                                void *recv) {
  return nexarReduceScatter(send, recv, SIZE(s), OP(s), END(s));
}

static inline nexarResult_t call_reduce_scatter_v(const struct share *s, const void *send,
                                                  void *recv) {
  size_t counts[MOST_RANKS];
  for (int i = 0; i < s->n; i++) counts[i] = length(s, i, i);
  return nexarReduceScatterV(send, recv, counts, s->job->dtype->code, OP(s), END(s));
}

static const struct collective reduce_scatter = {
    .name = "ReduceScatter", .lay_out = lay_out_reduce_scatter, .call = call_reduce_scatter,
    .has_blocks = true};
static const struct collective reduce_scatter_v = {
    .name = "ReduceScatterV", .lay_out = lay_out_reduce_scatter, .call = call_reduce_scatter_v,
    .has_lengths = true};

static inline void lay_out_all_to_all(struct share *share) {
  int rank = share->rank;
  for (int peer = 0; peer < share->n; peer++) {
    add_block(&share->send, length(share, rank, peer), BYTES_OF_STREAM, stream(rank, peer));
    add_block(&share->recv, length(share, peer, rank), BYTES_OF_STREAM, stream(peer, rank));
  }
  spread(share->job, &share->send);
  spread(share->job, &share->recv);
}

static inline nexarResult_t call_all_to_all(const struct share *s, const void *send, void *recv) {
  return nexarAllToAll(send, recv, SIZE(s), END(s));
}

static inline nexarResult_t call_all_to_all_v(const struct share *s, const void *send, void *recv) {
  struct lists from, to;
  get_lists(&from, s, &s->send);
  get_lists(&to, s, &s->recv);
  return nexarAllToAllV(send, from.counts, from.displs, recv, to.counts, to.displs,
                        s->job->dtype->code, END(s));
}

static const struct collective all_to_all = {
    .name = "AllToAll", .lay_out = lay_out_all_to_all, .call = call_all_to_all,
    .has_blocks = true};
static const struct collective all_to_all_v = {
    .name = "AllToAllV", .lay_out = lay_out_all_to_all, .call = call_all_to_all_v,
    .has_lengths = true, .has_displacements = true};

/* In place at the root alone. */
static inline void lay_out_gather(struct share *share) {
  lay_out_all_gather(share);
  if (share->rank == share->job->root) return;
  no_blocks(&share->recv);
  share->inside = APART;
}

static inline nexarResult_t call_gather(const struct share *s, const void *send, void *recv) {
  return nexarGather(send, recv, SIZE(s), ROOT(s), END(s));
}

static inline nexarResult_t call_gather_v(const struct share *s, const void *send, void *recv) {
  struct lists to = {.displs = NULL};
  bool at_root = s->rank == s->job->root;
  get_lists(&to, s, &s->recv);
  return nexarGatherV(send, s->send.extent, recv, at_root ? to.counts : NULL, to.displs,
                      s->job->dtype->code, ROOT(s), END(s));
}

static const struct collective gather = {
    .name = "Gather", .lay_out = lay_out_gather, .call = call_gather,
    .has_root = true, .has_blocks = true};
static const struct collective gather_v = {
    .name = "GatherV", .lay_out = lay_out_gather, .call = call_gather_v, .has_root = true,
    .has_lengths = true, .has_displacements = true};

static inline void lay_out_scatter(struct share *share) {
  int rank = share->rank;
  one_block_of_each(share, &share->send);
  add_block(&share->recv, length(share, rank, rank), BYTES_OF_STREAM, stream(rank, rank));
  share->inside = (long long)share->send.blocks[rank].at;
  if (rank == share->job->root) return;
  no_blocks(&share->send);
  share->inside = APART;
}

static inline nexarResult_t call_scatter(const struct share *s, const void *send, void *recv) {
  return nexarScatter(send, recv, SIZE(s), ROOT(s), END(s));
}

static inline nexarResult_t call_scatter_v(const struct share *s, const void *send, void *recv) {
  struct lists from = {.displs = NULL};
  bool at_root = s->rank == s->job->root;
  get_lists(&from, s, &s->send);
  return nexarScatterV(send, at_root ? from.counts : NULL, from.displs, recv, s->recv.extent,
                       s->job->dtype->code, ROOT(s), END(s));
}

static const struct collective scatter = {
    .name = "Scatter", .lay_out = lay_out_scatter, .call = call_scatter,
    .has_root = true, .has_blocks = true};
static const struct collective scatter_v = {
    .name = "ScatterV", .lay_out = lay_out_scatter, .call = call_scatter_v, .has_root = true,
    .has_lengths = true, .has_displacements = true};

static inline void lay_out_scan(struct share *share) {
  add_block(&share->send, share->job->count, ELEMENTS_OF_RANK, share->rank);
  add_block(&share->recv, share->job->count, FOLD_OF_FIRST_RANKS, share->rank + 1);
}

static inline nexarResult_t call_scan(const struct share *s, const void *send, void *recv) {
  return nexarScan(send, recv, SIZE(s), OP(s), END(s));
}

static const struct collective scan = {
    .name = "Scan", .lay_out = lay_out_scan, .call = call_scan, .has_no_average = true};

/* A function of the program has no identity: rank 0 gets nothing. */
static inline void lay_out_ex_scan(struct share *share) {
  int rank = share->rank;
  add_block(&share->send, share->job->count, ELEMENTS_OF_RANK, rank);
  add_block(&share->recv, share->job->count, rank ? FOLD_OF_FIRST_RANKS : IDENTITY, rank);
  if (rank == 0 && share->job->op.combine) no_blocks(&share->recv);
}

static inline nexarResult_t call_ex_scan(const struct share *s, const void *send, void *recv) {
  return nexarExScan(send, recv, SIZE(s), OP(s), END(s));
}

static const struct collective ex_scan = {
    .name = "ExScan", .lay_out = lay_out_ex_scan, .call = call_ex_scan, .has_no_average = true};

static inline void lay_out_all_reduce_bucketed(struct share *share) {
  for (int i = 0; i < share->job->buffers; i++)
    add_block(&share->send, length(share, i, i), ELEMENTS_OF_RANK, share->rank);
  spread(share->job, &share->send);
  share->recv = share->send;
  for (int i = 0; i < share->job->buffers; i++) {
    struct block *block = &share->recv.blocks[i];
    block->content = FOLD_OF_FIRST_RANKS;
    block->number = share->n;
    block->first = share->send.blocks[i].first = block->at;
  }
}

static inline nexarResult_t call_all_reduce_bucketed(const struct share *s, const void *send,
                                                     void *recv) {
  (void)send;
  struct lists to;
  void *buffs[MOST_BLOCKS];
  get_lists(&to, s, &s->recv);
  for (int i = 0; i < s->recv.number; i++)
    buffs[i] = (unsigned char *)recv + to.displs_[i] * s->job->dtype->size;
  return nexarAllReduceBucketed(buffs, to.counts, (size_t)s->recv.number, s->job->dtype->code,
                                OP(s), END(s));
}

static const struct collective all_reduce_bucketed = {
    .name = "AllReduceBucketed", .lay_out = lay_out_all_reduce_bucketed,
    .call = call_all_reduce_bucketed, .has_lengths = true, .has_displacements = true,
    .has_one_buffer = true};

/* All of them that fold. */
static const struct collective *const folding[] = {
    &all_reduce, &reduce, &reduce_scatter, &reduce_scatter_v, &scan, &ex_scan, &all_reduce_bucketed,
};

static const struct collective *const every_collective[] = {
    &all_reduce,     &reduce,           &reduce_scatter, &reduce_scatter_v, &scan,   &ex_scan,
    &all_to_all,     &all_to_all_v,     &all_gather,     &all_gather_v,     &gather, &gather_v,
    &scatter,        &scatter_v,        &broadcast,      &bcast,            &all_reduce_bucketed,
};

/* A call of any kind. Everything about it follows from the two numbers, alike on every rank. */
static inline struct job any_job(int row, int i, int n) {
  uint64_t random = mixed((uint64_t)row, (uint64_t)i);
  struct job job = {.collective = every_collective[(random >> 8) % COUNT_OF(every_collective)],
                    .dtype = &dtypes[(random >> 16) % COUNT_OF(dtypes)],
                    .op.known = ops[(random >> 24) % COUNT_OF(ops)],
                    .count = (random >> 32) % (i % 50 ? 200 : 12000),
                    .root = (int)(random >> 56) % n,
                    .lengths = i % 3,
                    .places = i % 4 % 3,
                    .buffers = i % 10,
                    .in_place = i % 5 == 0,
                    .shift = (size_t)i % 7};
  bool average = job.op.known == nexarAvg && job.collective->has_no_average;
  if (average || !is_defined(job.op.known, job.dtype)) job.op.known = nexarSum;
  return job;
}

#endif
