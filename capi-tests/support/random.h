/* Pseudorandom numbers: equal states give equal sequences. */
#ifndef RANDOM_H
#define RANDOM_H

#include <stdint.h>

/* splitmix64 */
static inline uint64_t draw(uint64_t *state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

static inline int below(uint64_t *state, int limit) {
  return (int)(draw(state) % (uint64_t)limit);
}

#endif
