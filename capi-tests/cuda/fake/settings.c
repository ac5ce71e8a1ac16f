/*
 * The settings: read once from the environment, and changed by tests later. Leaves their meaning to
 * the files that read them.
 *
 * A reader never waits: a replaced text is never freed, because another thread may be reading it.
 */
#include "settings.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct named {
  const char *name, *standard;
};

static const struct named number_names[NUMBER_SETTINGS] = {
#define X(name, standard) {#name, standard},
    FAKE_NUMBERS(X)
#undef X
};

static const struct named text_names[TEXT_SETTINGS] = {
#define X(name, standard) {#name, standard},
    FAKE_TEXTS(X)
#undef X
};

static atomic_long numbers[NUMBER_SETTINGS];
static char *_Atomic texts[TEXT_SETTINGS];

static void set_number(int setting, const char *value) {
  long number = strtol(value ? value : number_names[setting].standard, NULL, 10);
  if (setting == SETTING_DEVICES && (number < 0 || number > MOST_DEVICES)) number = MOST_DEVICES;
  atomic_store(&numbers[setting], number);
}

static void set_text(int setting, const char *value) {
  char *copy = strdup(value ? value : text_names[setting].standard);
  if (!copy) abort();
  atomic_store(&texts[setting], copy);
}

static const char *from_environment(const char *name) {
  char variable[64];
  snprintf(variable, sizeof variable, "FAKECUDA_%s", name);
  return getenv(variable);
}

static void read_environment(void) {
  for (int i = 0; i < NUMBER_SETTINGS; i++) set_number(i, from_environment(number_names[i].name));
  for (int i = 0; i < TEXT_SETTINGS; i++) set_text(i, from_environment(text_names[i].name));
}

static void ensure_read(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, read_environment);
}

long number_setting(enum number_setting setting) {
  ensure_read();
  return atomic_load(&numbers[setting]);
}

const char *text_setting(enum text_setting setting) {
  ensure_read();
  return atomic_load(&texts[setting]);
}

int change_setting(const char *name, const char *value) {
  ensure_read();
  for (int i = 0; i < NUMBER_SETTINGS; i++) {
    if (strcmp(name, number_names[i].name) == 0) return set_number(i, value), 1;
  }
  for (int i = 0; i < TEXT_SETTINGS; i++) {
    if (strcmp(name, text_names[i].name) == 0) return set_text(i, value), 1;
  }
  return 0;
}
