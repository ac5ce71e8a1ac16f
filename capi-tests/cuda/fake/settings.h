/* The settings of the driver, from the environment. ../fake_libcuda.c documents them. */
#ifndef FAKE_SETTINGS_H
#define FAKE_SETTINGS_H

/* X(name, default) */
#define FAKE_NUMBERS(X)                                                                            \
  X(INIT, "0")                                                                                     \
  X(DRIVER_VERSION, "12040")                                                                       \
  X(DEVICES, "2")                                                                                  \
  X(MEMORY_MB, "8192")                                                                             \
  X(MANAGED_HOST, "0")                                                                             \
  X(MANAGED_TYPE, "2")                                                                             \
  X(REGISTERED_ALIAS, "0")                                                                         \
  X(COPY_MBPS, "0")                                                                                \
  X(SEED, "1")                                                                                     \
  X(HWQ, "0")                                                                                      \
  X(SERIAL_HOSTFN, "0")                                                                            \
  X(QUEUE_DEPTH, "1000")                                                                           \
  X(NO_MEMOPS, "0")                                                                                \
  X(STALL_MS, "60000")                                                                             \
  X(SETTLE, "0")                                                                                   \
  X(EXIT_WAIT, "0")

#define FAKE_TEXTS(X)                                                                              \
  X(LATENCY_US, "0")                                                                               \
  X(ALLOC_SYNC, "all")                                                                             \
  X(ALLOC_SYNC_DEVICES, "own")                                                                     \
  X(FORBID_THREADS, "nexar")                                                                       \
  X(ALLOW_THREADS, "nexar-init")                                                                   \
  X(FAIL, "")                                                                                      \
  X(TRACE, "")                                                                                     \
  X(LEAKS, "")

enum number_setting {
#define X(name, standard) SETTING_##name,
  FAKE_NUMBERS(X) NUMBER_SETTINGS
#undef X
};

enum text_setting {
#define X(name, standard) SETTING_##name,
  FAKE_TEXTS(X) TEXT_SETTINGS
#undef X
};

enum { MOST_DEVICES = 16 };

long number_setting(enum number_setting setting);
/* The returned text stays valid, even if the setting changes. */
const char *text_setting(enum text_setting setting);
/* Returns false if no setting has the name. */
int change_setting(const char *name, const char *value);

#endif
