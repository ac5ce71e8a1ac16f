/*
 * Every collective has the right result in memory of every kind: every type and operator, counts
 * around the sizes of pieces, every root and layout, in place and with separate buffers.
 */
#include "buffers.h"
#include "processes.h"

enum { PIECE = 8 << 20 };

/* The number of ranks; without nexar-run, 1. */
static int size_here(void) {
  int n = 1;
  if (ranks_are_processes()) CHECK_CODE(nexarSuccess, nexarCommCount(world, &n));
  return n;
}

#define FOR_COLLECTIVES(collective_)                                                               \
  for (size_t c_ = 0; c_ < COUNT_OF(every_collective); c_++)                                       \
    for (const struct collective *collective_ = every_collective[c_]; collective_;                 \
         collective_ = NULL)

static bool folds(const struct collective *collective) {
  for (size_t i = 0; i < COUNT_OF(folding); i++)
    if (folding[i] == collective) return true;
  return false;
}

static struct job job_of(const struct collective *collective, nexarDataType_t datatype,
                         size_t count) {
  return (struct job){.collective = collective, .dtype = dtype_of(datatype), .count = count,
                      .buffers = 3};
}

static void every_type_and_operator_is_right_on_a_device(void) {
  int n = size_here();
  FOR_COLLECTIVES(collective) {
    struct job job = job_of(collective, nexarInt32, 1001);
    if (folds(collective))
      run_every_operator(n, job);
    else
      run_every_type(n, job);
  }
}

static void no_elements_and_one_are_right_on_a_device(void) {
  FOR_COLLECTIVES(collective)
    for (size_t count = 0; count < 2; count++)
      run_every_way(size_here(), job_of(collective, nexarFloat16, count));
}

static void every_root_and_layout_is_right_on_a_device(void) {
  int n = size_here();
  FOR_COLLECTIVES(collective) {
    struct job job = job_of(collective, nexarInt16, 1001);
    for (job.lengths = EQUAL; job.lengths <= LONELY; job.lengths++)
      for (job.places = PACKED; job.places <= REVERSED; job.places++) {
        if (job.lengths != EQUAL && !collective->has_lengths) continue;
        if (job.places != PACKED && !collective->has_displacements) continue;
        run_every_way(n, job);
      }
  }
}

/* Elements of each block that a piece takes. */
static size_t piece_of(const struct collective *collective, int n, size_t size) {
  bool pairs = collective == &all_to_all || collective == &all_to_all_v;
  bool blocks = collective->has_blocks || (collective->has_lengths && !collective->has_one_buffer);
  size_t copies = !blocks ? 1 : pairs ? 2 * (size_t)n : (size_t)n + 1;
  return PIECE / copies / 512 * 512 / size;
}

static void run_large(const struct collective *collective, nexarDataType_t datatype, size_t count,
                      int number) {
  struct job job = job_of(collective, datatype, count);
  job.root = number % size_here();
  job.in_place = number % 2;
  job.shift = (size_t)number % 3;
  job.lengths = number % 4 == 3 ? RAGGED : EQUAL;
  job.places = (enum places)(number / 2 % 3);
  run_job(size_here(), job);
}

static void counts_around_a_piece_are_right_on_a_device(void) {
  int number = 0;
  FOR_COLLECTIVES(collective) {
    size_t piece = piece_of(collective, size_here(), 8);
    if (collective == &all_reduce_bucketed) piece /= 3;
    for (size_t count = piece - 1; count <= piece + 1; count++)
      run_large(collective, nexarInt64, count, number++);
  }
}

static void several_pieces_and_a_rest_are_right_on_a_device(void) {
  int number = 1;
  FOR_COLLECTIVES(collective) {
    size_t piece = piece_of(collective, size_here(), 4);
    run_large(collective, nexarInt32, 2 * piece + 1, number++);
    number++; /* every other collective is in place */
  }
}

/* The ring has four slots. */
static void more_pieces_than_slots_are_right_on_a_device(void) {
  int number = 2;
  FOR_COLLECTIVES(collective) {
    size_t piece = piece_of(collective, size_here(), 8);
    if (collective == &all_reduce_bucketed) piece /= 3;
    run_large(collective, nexarUint64, 4 * piece + 3, number++);
  }
}

static void the_pinned_memory_of_a_communicator_is_bounded(void) {
  CHECK(size_here() > 0);
  if (!getenv("ODD_RANKS")) CHECK(fakecuda_most_pinned_bytes() > 0);
  CHECK(fakecuda_most_pinned_bytes() <= MOST_PINNED);
}

static const struct test_case cases[] = {
    CASE(every_type_and_operator_is_right_on_a_device),
    CASE(no_elements_and_one_are_right_on_a_device),
    CASE(every_root_and_layout_is_right_on_a_device),
    CASE(counts_around_a_piece_are_right_on_a_device),
    CASE(several_pieces_and_a_rest_are_right_on_a_device),
    CASE(more_pieces_than_slots_are_right_on_a_device),
    CASE(the_pinned_memory_of_a_communicator_is_bounded),
};

/* ODD_RANKS: settings of the driver of every other rank. They may disable the driver. */
int main(void) {
  const char *settings = getenv("ODD_RANKS"), *rank = getenv("NEXAR_RANK");
  if (settings && rank && atoi(rank) % 2) put_settings(settings);
  if (cuInit(0) == CUDA_SUCCESS) begin_elsewhere();
  return RUN(cases);
}
