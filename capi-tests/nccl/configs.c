/* ncclConfig_t is read in the layout of the version in it, from 2.14 on. */
#include <sys/mman.h>

#include "nccl_names.h"

/* The newest structure. Older ones are prefixes of it. */
struct config {
  size_t size;
  unsigned magic, version;
  int blocking, cgaClusterSize, minCTAs, maxCTAs;
  const char *netName;
  int splitShare, trafficClass;
  const char *commName;
  int collnetEnable, CTAPolicy, shrinkShare, nvlsCTAs;
  int nChannelsPerNetPeer, nvlinkCentricSched;
  int graphUsageMode, numRmaCtx;
  int maxP2pPeers, graphStreamOrdering;
  int launchOrderImplicit, numRmaSig, rmaEagerInit, hostCftMode;
  int nvlsHostMode;
};

static const struct {
  unsigned version;
  size_t size, used; /* with and without the padding at the end */
} versions[] = {
    {21400, 24, 20},  {21700, 40, 40},  {21800, 48, 44},  {22500, 48, 44},
    {22600, 48, 48},  {22700, 72, 72},  {22800, 80, 80},  {22900, 88, 88},
    {23003, 96, 92},  {23007, 96, 96},  {23102, 112, 112}, {23203, 120, 116},
    {24000, 200, 120}, /* one that does not exist yet */
};

/* Writes what the initializer of that version gives. Padding and the bytes behind it are not 0. */
static void initialise(void *memory, size_t i) {
  static const struct config initial = {
      0,     MAGIC, 0,     UNDEF, UNDEF, UNDEF, UNDEF, NULL,  UNDEF, UNDEF, NULL,  UNDEF, UNDEF,
      UNDEF, UNDEF, UNDEF, UNDEF, UNDEF, UNDEF, UNDEF, UNDEF, UNDEF, UNDEF, UNDEF, UNDEF, UNDEF,
  };
  struct config config = initial;
  config.size = versions[i].size;
  config.version = versions[i].version;
  memset(memory, 0x5a, 256);
  memcpy(memory, &config, versions[i].used < sizeof config ? versions[i].used : sizeof config);
}

static int init(void *config) {
  ncclUniqueId id;
  ncclComm_t comm = NULL;
  CHECK_NCCL(Success, ncclGetUniqueId(&id));
  int result = ncclCommInitRankConfig(&comm, 1, id, 0, config);
  int error = InProgress;
  while (result == InProgress && error == InProgress)
    if (ncclCommGetAsyncError(comm, &error) != Success) break;
  CHECK_NCCL(Success, ncclCommDestroy(comm));
  return result;
}

/* Every config ends at a page boundary, behind which reads fault. */
static void every_version_is_accepted_with_garbage_in_its_padding(void) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK_EQ(0, mprotect(pages + page, page, PROT_NONE));
  for (size_t i = 0; i < COUNT_OF(versions); i++) {
    char memory[256], *exact = pages + page - versions[i].size;
    initialise(memory, i);
    memcpy(exact, memory, versions[i].size);
    CHECK_EQ(Success, init(exact));
  }
  CHECK_EQ(0, munmap(pages, 2 * page));
}

static void blocking_0_is_honoured_in_every_version(void) {
  for (size_t i = 0; i < COUNT_OF(versions); i++) {
    char memory[256];
    initialise(memory, i);
    int blocking = 0;
    memcpy(memory + offsetof(struct config, blocking), &blocking, sizeof blocking);
    CHECK_EQ(InProgress, init(memory));
  }
}

/* An invalid value is refused if the version has the field, and ignored if not. */
static void a_field_counts_from_its_version_on(void) {
  static const struct {
    size_t offset;
    int wrong;
    unsigned since;
  } fields[] = {
      {offsetof(struct config, blocking), 2, 21400},
      {offsetof(struct config, cgaClusterSize), -1, 21700},
      {offsetof(struct config, minCTAs), 0, 21700},
      {offsetof(struct config, splitShare), 2, 21800},
      {offsetof(struct config, collnetEnable), -1, 22700},
      {offsetof(struct config, nvlsCTAs), -7, 22700},
      {offsetof(struct config, nvlinkCentricSched), 3, 22800},
      {offsetof(struct config, numRmaCtx), -1, 22900},
      {offsetof(struct config, maxP2pPeers), 0, 23000},
      {offsetof(struct config, graphStreamOrdering), 5, 23005},
      {offsetof(struct config, hostCftMode), 4, 23100},
      {offsetof(struct config, nvlsHostMode), -1, 23200},
  };
  for (size_t i = 0; i < COUNT_OF(versions); i++) {
    for (size_t f = 0; f < COUNT_OF(fields); f++) {
      char memory[256];
      initialise(memory, i);
      memcpy(memory + fields[f].offset, &fields[f].wrong, sizeof(int));
      int expected = versions[i].version >= fields[f].since ? InvalidArgument : Success;
      int actual = init(memory);
      if (expected != actual)
        check_failed(__FILE__, __LINE__, "version %u, field at %zu: %d, not %d",
                     versions[i].version, fields[f].offset, actual, expected);
      CHECK_EQ(expected == InvalidArgument, fields[f].offset < versions[i].used);
    }
  }
}

static void a_config_without_its_initializer_is_refused(void) {
  char memory[256];
  initialise(memory, COUNT_OF(versions) - 2);
  unsigned magic = 1;
  memcpy(memory + offsetof(struct config, magic), &magic, sizeof magic);
  CHECK_EQ(InvalidArgument, init(memory));
  CHECK_TEXT(ncclGetLastError(NULL), "ncclCommInitRankConfig: config was not initialised");

  initialise(memory, COUNT_OF(versions) - 2);
  int least = 9, most = 8;
  memcpy(memory + offsetof(struct config, minCTAs), &least, sizeof least);
  memcpy(memory + offsetof(struct config, maxCTAs), &most, sizeof most);
  CHECK_EQ(InvalidArgument, init(memory));
  CHECK_EQ(Success, init(NULL));
}

static const struct test_case cases[] = {
    CASE(every_version_is_accepted_with_garbage_in_its_padding),
    CASE(blocking_0_is_honoured_in_every_version),
    CASE(a_field_counts_from_its_version_on),
    CASE(a_config_without_its_initializer_is_refused),
};

int main(void) {
  return RUN(cases);
}
