/*
 * The memory that messages inside a host take: nothing between ranks that exchange none, a few
 * pages after a short one, and at most PAIR_KIB for each rank that another one sends to.
 *
 * Ranks are processes of nexar-run. Each counts the pages of its own segment, which no other rank
 * writes. A page that only others have read would be missing there: the shares of all ranks in all
 * segments (a page of n processes counts 1/n in each) must not be more, but for one page of each
 * segment, whose counts the others poll.
 */
#define _GNU_SOURCE
#include "support/ranks.h"

enum {
  PAIR_KIB = 256,
  SHORT_KIB = 16, /* of a pair after one short message */
  PAGE_KIB = 4,
  LONGEST = 1 << 20,
};

static const size_t lengths[] = {0, 8, 32, 33, 16384, 16384, 16384, 16384, 16385, LONGEST};

struct memory {
  int64_t own_kib, shares_kib;
};

static struct memory count_memory(void) {
  struct memory memory = {0, 0};
  FILE *maps = fopen("/proc/self/smaps", "r");
  char line[512], access[5];
  bool is_segment = false, is_own = false;
  long kib;
  CHECK(maps != NULL);
  while (maps && fgets(line, sizeof line, maps))
    if (sscanf(line, "%*x-%*x %4s", access) == 1) {
      is_segment = strstr(line, "/memfd:nexar-segment") != NULL;
      is_own = access[1] == 'w';
    } else if (is_segment && is_own && sscanf(line, "Rss: %ld", &kib) == 1) {
      memory.own_kib += kib;
    } else if (is_segment && sscanf(line, "Pss: %ld", &kib) == 1) {
      memory.shares_kib += kib;
    }
  if (maps) fclose(maps);
  return memory;
}

/* A call of all ranks: the memory of all. No rank changes it while another one counts. */
static int64_t all_kib(int n, nexarComm_t comm) {
  CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
  struct memory sum = count_memory();
  CHECK(sum.own_kib > 0);
  CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
  CHECK_CODE(nexarSuccess, nexarAllReduce(&sum, &sum, 2, nexarInt64, nexarSum, comm, NULL));
  CHECK(sum.shares_kib <= sum.own_kib + n * PAGE_KIB);
  return sum.own_kib;
}

/* Every rank sends to the rank at this distance. */
static void shift(int rank, int n, int distance, size_t bytes, nexarComm_t comm) {
  static char out[LONGEST], in[LONGEST];
  CHECK_CODE(nexarSuccess,
             nexarSendRecv(out, bytes, (rank + distance) % n, in, bytes, (rank + n - distance) % n,
                           nexarInt8, comm, NULL));
}

static void exchange(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  /* Collectives use every descriptor of each lane. */
  for (int i = 0; i < 300; i++) CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
  int64_t used[5] = {all_kib(n, comm)};
  shift(rank, n, 1, 8, comm);
  used[1] = all_kib(n, comm);
  for (size_t i = 0; i < COUNT_OF(lengths); i++) shift(rank, n, 1, lengths[i], comm);
  used[2] = all_kib(n, comm);
  for (int distance = 2; distance < n; distance++) shift(rank, n, distance, 8, comm);
  used[3] = all_kib(n, comm);
  for (int distance = 2; distance < n; distance++) {
    for (size_t i = 0; i < COUNT_OF(lengths); i++) shift(rank, n, distance, lengths[i], comm);
    progress();
  }
  used[4] = all_kib(n, comm);
  const int64_t all = (int64_t)n * (n - 1);
  CHECK(used[1] - used[0] <= (int64_t)n * SHORT_KIB);
  CHECK(used[2] - used[0] <= (int64_t)n * PAIR_KIB);
  CHECK(used[3] - used[2] <= (all - n) * SHORT_KIB);
  CHECK(used[4] - used[0] <= all * PAIR_KIB);
  if (rank != 0) return;
  const char *after[] = {"no message", "8 B to a neighbour", "all lengths to a neighbour",
                         "8 B to all", "all lengths to all"};
  for (size_t i = 0; i < COUNT_OF(after); i++)
    printf("%d ranks, %s: %ld KiB a rank\n", n, after[i], (long)(used[i] / n));
}

static void messages_take_memory_only_where_they_travel(void) {
  run_ranks(size_of_job(2), exchange, NULL);
}

static const struct test_case cases[] = {CASE(messages_take_memory_only_where_they_travel)};

int main(void) {
  setenv("CHECK_ANY_SIZE", "1", 1);
  return ranks_are_processes() ? RUN(cases) : 0;
}
