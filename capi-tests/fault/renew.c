/*
 * Creates a communicator, uses and destroys it, over and over:
 *
 *     renew WARM_UPS TRIES
 *
 * Prints the growth of this process by the tries: files, threads, KiB of memory. The tries are
 * repeated three times and the least growth counts: a leak grows each time, while the allocator's
 * high-water mark grows only now and then.
 */
#include <dirent.h>

#include "clock.h"
#include "support/ranks.h"

struct size {
  int files, threads, kib;
};

static int entries_of(const char *path) {
  DIR *directory = opendir(path);
  int entries = 0;
  CHECK(directory != NULL);
  while (directory && readdir(directory)) entries++;
  if (directory) closedir(directory);
  return entries;
}

static struct size measure(void) {
  long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  CHECK(file && fscanf(file, "%*d %ld", &pages) == 1);
  if (file) fclose(file);
  return (struct size){entries_of("/proc/self/fd"), entries_of("/proc/self/task"),
                       (int)(pages * sysconf(_SC_PAGESIZE) / 1024)};
}

static int smaller(int a, int b) { return a < b ? a : b; }

static void renew(int rank, int n, int times) {
  for (int i = 0; i < times && !check_failures; i++) {
    nexarComm_t comm = join_another(rank, n, world);
    check_it_works(rank, n, comm);
    CHECK_CODE(nexarSuccess, nexarCommDestroy(comm));
    progress();
  }
}

/* Waits until all ranks have closed the links of the last communicator, in the background. */
static struct size measure_settled(struct size at_first) {
  long long deadline = now_ns() + 5000000000LL;
  for (;;) {
    struct size now = measure();
    bool settled = now.files <= at_first.files && now.threads <= at_first.threads;
    int8_t done = settled || now_ns() > deadline;
    nexarResult_t all = nexarAllReduce(&done, &done, 1, nexarInt8, nexarMin, world, NULL);
    CHECK_CODE(nexarSuccess, all);
    if (done || all != nexarSuccess) return now;
  }
}

int main(int argc, char **argv) {
  int rank = 0, n = 0;
  begin_watch();
  if (argc != 3 || !ranks_are_processes()) return 2;
  CHECK_CODE(nexarSuccess, nexarCommUserRank(world, &rank));
  CHECK_CODE(nexarSuccess, nexarCommCount(world, &n));
  struct size at_first = measure();
  renew(rank, n, atoi(argv[1]));
  struct size before = measure_settled(at_first), least = {INT_MAX, INT_MAX, INT_MAX};
  for (int i = 0; i < 3; i++) {
    renew(rank, n, atoi(argv[2]));
    struct size after = measure_settled(at_first);
    least.files = smaller(least.files, after.files - before.files);
    least.threads = smaller(least.threads, after.threads - before.threads);
    least.kib = smaller(least.kib, after.kib - before.kib);
    before = after;
  }
  printf("%d|%d|%d\n", least.files, least.threads, least.kib);
  return check_failures != 0;
}
