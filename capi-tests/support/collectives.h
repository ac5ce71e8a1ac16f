/*
 * The collectives for jobs.h: the blocks that a rank sends and must receive, where a call is in
 * place, and the call. A plain form is laid out as the v-form with equal, packed blocks.
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

/* Sets the offset of every block. */
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

/* Elements that rank `from` sends to rank `to`; with one list of counts both are the same rank. */
static inline size_t length(const struct share *share, int from, int to) {
  const struct job *job = share->job;
  if (job->in_place && from > to) return length(share, to, from); /* symmetric */
  switch (job->collective->has_lengths ? job->lengths : EQUAL) {
    case RAGGED: return job->count * (mixed((uint64_t)from, (uint64_t)to) % 5) / 2;
    case LONELY: return to == share->n - 1 && (from == 0 || from == to) ? job->count : 0;
    default: return job->count;
  }
}

/* The stream of bytes that one rank sends to another, or from a rank to itself: to all. */
static inline int stream(int from, int to) { return from * MOST_RANKS + to; }

static inline void add_block_of_every_rank(struct share *share, struct layout *layout) {
  for (int i = 0; i < share->n; i++)
    add_block(layout, length(share, i, i), BYTES_OF_STREAM, stream(i, i));
  spread(share->job, layout);
}

/* For a buffer that the call ignores on this rank. */
static inline void no_blocks(struct layout *layout) { layout->number = 0; }

static inline void lay_out_all_reduce(struct share *share) {
  add_block(&share->send, share->job->count, ELEMENTS_OF_RANK, share->rank);
  add_block(&share->recv, share->job->count, FOLD_OF_FIRST_RANKS, share->n);
}

static inline void lay_out_reduce(struct share *share) {
  lay_out_all_reduce(share);
  if (share->rank != share->job->root) no_blocks(&share->recv);
}

static inline void lay_out_broadcast(struct share *share) {
  int root = share->job->root;
  add_block(&share->send, share->job->count, BYTES_OF_STREAM, root);
  add_block(&share->recv, share->job->count, BYTES_OF_STREAM, root);
  if (share->rank != root) no_blocks(&share->send);
}

static inline void lay_out_all_gather(struct share *share) {
  int rank = share->rank;
  add_block(&share->send, length(share, rank, rank), BYTES_OF_STREAM, stream(rank, rank));
  add_block_of_every_rank(share, &share->recv);
  share->inside = (long long)share->recv.blocks[rank].at;
}

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

static inline void lay_out_all_to_all(struct share *share) {
  int rank = share->rank;
  for (int peer = 0; peer < share->n; peer++) {
    add_block(&share->send, length(share, rank, peer), BYTES_OF_STREAM, stream(rank, peer));
    add_block(&share->recv, length(share, peer, rank), BYTES_OF_STREAM, stream(peer, rank));
  }
  spread(share->job, &share->send);
  spread(share->job, &share->recv);
}

/* Only the root's call can be in place. */
static inline void lay_out_gather(struct share *share) {
  lay_out_all_gather(share);
  if (share->rank == share->job->root) return;
  no_blocks(&share->recv);
  share->inside = APART;
}

static inline void lay_out_scatter(struct share *share) {
  int rank = share->rank;
  add_block_of_every_rank(share, &share->send);
  add_block(&share->recv, length(share, rank, rank), BYTES_OF_STREAM, stream(rank, rank));
  share->inside = (long long)share->send.blocks[rank].at;
  if (rank == share->job->root) return;
  no_blocks(&share->send);
  share->inside = APART;
}

static inline void lay_out_scan(struct share *share) {
  add_block(&share->send, share->job->count, ELEMENTS_OF_RANK, share->rank);
  add_block(&share->recv, share->job->count, FOLD_OF_FIRST_RANKS, share->rank + 1);
}

/* A function of the program has no identity, so rank 0 receives nothing. */
static inline void lay_out_ex_scan(struct share *share) {
  int rank = share->rank;
  add_block(&share->send, share->job->count, ELEMENTS_OF_RANK, rank);
  add_block(&share->recv, share->job->count, rank ? FOLD_OF_FIRST_RANKS : IDENTITY, rank);
  if (rank == 0 && share->job->op.combine) no_blocks(&share->recv);
}

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

/* Makes the call of a job with the lists of its layout. */
static inline nexarResult_t call_function(const struct share *s, const void *send, void *recv) {
  const struct collective *collective = s->job->collective;
  const enum function function = collective->function;
  struct lists from = {.displs = NULL}, to = {.displs = NULL};
  void *buffs[MOST_BLOCKS] = {NULL};
  get_lists(&from, s, &s->send);
  get_lists(&to, s, &s->recv);
  for (int i = 0; i < s->recv.number; i++)
    buffs[i] = (unsigned char *)recv + s->recv.blocks[i].at * s->job->dtype->size;
  /* The call needs the counts of all ranks; the layout has only this rank's block. */
  for (int i = 0; i < s->n && function == REDUCE_SCATTER_V; i++) to.counts[i] = length(s, i, i);
  const struct arrays arrays = {.sendcounts = s->send.number ? from.counts : NULL,
                                .sdispls = from.displs,
                                .recvcounts = s->recv.number ? to.counts : NULL,
                                .rdispls = to.displs,
                                .buffs = buffs,
                                .counts = to.counts,
                                .nbuffs = (size_t)s->recv.number};
  const struct layout *own = sends_blocks(function) ? &s->recv : &s->send;
  return make_call((struct call){.function = function,
                                 .send = send,
                                 .recv = recv,
                                 .count = collective->has_lengths ? own->extent : s->job->count,
                                 .datatype = (int)s->job->dtype->code,
                                 .op = (int)s->operator.code,
                                 .root = s->job->root,
                                 .comm = s->comm,
                                 .stream = s->stream,
                                 .arrays = &arrays});
}

#define COLLECTIVE(function_, name_, variable, layout, traits, arguments)                          \
  static const struct collective variable = {                                                      \
      .name = #name_,                                                                              \
      .function = function_,                                                                       \
      .lay_out = layout,                                                                           \
      .call = call_function,                                                                       \
      .has_root = ((traits) & HAS_ROOT) != 0,                                                      \
      .has_blocks = ((traits) & (SENDS_BLOCKS | RECEIVES_BLOCKS)) && !((traits) & HAS_ARRAYS),     \
      .has_lengths = ((traits) & HAS_ARRAYS) != 0,                                                 \
      .has_displacements = ((traits) & HAS_DISPLACEMENTS) != 0,                                    \
      .has_one_buffer = ((traits) & HAS_ONE_BUFFER) != 0,                                          \
      .has_no_average = ((traits) & HAS_NO_AVERAGE) != 0};
COLLECTIVES(COLLECTIVE)

#define ADDRESS(function, name, variable, ...) &variable,
static const struct collective *const folding[] = {REDUCTIONS(ADDRESS)};
static const struct collective *const every_collective[] = {COLLECTIVES(ADDRESS)};

/* A pseudorandom job, a function of `row`, `i` and `n`: all ranks draw the same one. */
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
