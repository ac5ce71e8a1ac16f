/*
 * A call of several pieces is a pipeline: before the stream waits for a piece it has copied in the
 * next ones, so that the network never waits for them; and it copies out a result before it waits
 * for the next. Checked by the order of operations in the driver's trace. Leaves to
 * bench/cuda_overlap.sh whether that saves time.
 *
 * Ranks are processes. Copies are slow, so that the call returns before they are executed.
 */
#include "device_rank.h"

enum { PIECE = 8 << 20, PIECES = 7, BYTES = (PIECES - 1) * PIECE + 4096, SLOTS = 4 };

/* The lines of the trace at which an operation of the stream began and ended. */
struct span {
  long begin, end;
};

/* The operations of the stream for a piece. */
struct piece {
  struct span fetch, write, wait, store;
};

static struct piece pieces[PIECES];

enum { FETCH, WRITE, WAIT, STORE, KINDS };
static const char *const kinds[KINDS] = {"D2H", "write", "wait", "H2D"};

static int kind_of(const char *name) {
  int kind = 0;
  while (kind < KINDS && strcmp(name, kinds[kind]) != 0) kind++;
  return kind;
}

static struct span *span_of(struct piece *piece, int kind) {
  switch (kind) {
    case FETCH: return &piece->fetch;
    case WRITE: return &piece->write;
    case WAIT: return &piece->wait;
    default: return &piece->store;
  }
}

/* The kth operation of each kind belongs to piece k, because a stream keeps its order. */
static void read_pieces(long long stream) {
  char line[300], what[20], name[40];
  int begun[KINDS + 1] = {0}, ended[KINDS + 1] = {0};
  long long on;
  FILE *file = read_trace();
  for (long number_of_line = 1; fgets(line, sizeof line, file); number_of_line++) {
    if (sscanf(line, "%*s %19s %lld %39s", what, &on, name) != 3 || on != stream) continue;
    bool begins = strcmp(what, "begin") == 0;
    int kind = kind_of(name), number = begins ? begun[kind]++ : ended[kind]++;
    if (kind == KINDS || number >= PIECES) continue;
    struct span *span = span_of(&pieces[number], kind);
    *(begins ? &span->begin : &span->end) = number_of_line;
  }
  fclose(file);
  CHECK_EQ(PIECES, ended[FETCH]);
  CHECK_EQ(PIECES + 1, ended[WRITE]); /* the last reports that all pieces are done */
  CHECK_EQ(PIECES, ended[WAIT]);
  CHECK_EQ(PIECES, ended[STORE]);
}

static void check_order(void) {
  for (int k = 0; k < PIECES; k++) {
    const struct piece *piece = &pieces[k];
    CHECK(piece->fetch.end < piece->write.begin && piece->write.end < piece->wait.begin);
    CHECK(piece->wait.end < piece->store.begin);
    for (int next = k + 1; next < PIECES && next < k + SLOTS; next++) {
      /* The next pieces are copied in before the stream waits for this one. */
      CHECK(pieces[next].fetch.end < piece->wait.begin);
      CHECK(pieces[next].write.end < piece->wait.begin);
    }
    /* A slot is reused as soon as its result was stored, before the wait for the next piece. */
    if (k + SLOTS >= PIECES) continue;
    CHECK(piece->store.end < pieces[k + SLOTS].fetch.begin);
    CHECK(pieces[k + SLOTS].fetch.begin < pieces[k + 1].wait.begin);
  }
}

static void call_in_pieces(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  struct device_rank self = take_device(rank, n, 0, BYTES);
  library_calls();
  self.comm = join_another(rank, n, comm);
  own_calls();
  check_it_works_on(&self, self.stream);
  fakecuda_reset_trace();
  library_calls();
  nexarResult_t result =
      nexarAllReduce(device_pointer(self.send), device_pointer(self.recv), BYTES / 4, nexarUint32,
                     nexarSum, self.comm, self.stream);
  own_calls();
  CHECK_CODE(nexarSuccess, result);
  /* The copies alone take longer than the call. */
  CHECK(fakecuda_pending(self.stream) > 0);
  OK(cuStreamSynchronize(self.stream));
  const uint32_t *seen = view(self.recv, BYTES);
  size_t wrong = 0;
  for (size_t i = 0; i < BYTES / 4; i++) {
    uint32_t sum = 0;
    for (int r = 0; r < n; r++) sum += sent(r, i);
    wrong += seen[i] != sum;
  }
  CHECK_EQ(0, wrong);
  read_pieces(fakecuda_stream_number(self.stream));
  check_order();
  library_calls();
  CHECK_CODE(nexarSuccess, nexarCommDestroy(self.comm));
  own_calls();
  give_back_device(&self);
}
static void the_next_pieces_are_fetched_before_the_first_is_awaited(void) {
  CHECK(ranks_are_processes());
  run_ranks(2, call_in_pieces, NULL);
}

int main(void) {
  static const struct test_case cases[] = {
      CASE(the_next_pieces_are_fetched_before_the_first_is_awaited),
  };
  return RUN(cases);
}
