/*
 * What we say of the CUDA driver API is what NVIDIA's cuda.h says: names, arguments, numbers,
 * layout.
 *
 * Compiled and run by headers.py beside a cuda.h that it has fetched, which is never part of this
 * repository. It also writes lists.h, from our own sources, so that nothing can be left out here:
 *
 *     OURS THEIRS            gives other names to what fake/api.h declares, and takes them back, so
 *                            that both fit into one file
 *     FUNCTIONS CONSTANTS    what is compared; a type is a handle, an integer or a structure with
 *     TYPES HANDLES          members
 *     INTEGERS MEMBERS
 *     COMPARED               all functions once more, as fake/api.h, gpu/driver.h and the library's
 *                            driver.rs have them: the compiler refuses what differs from cuda.h
 *     NUMBERS OFFSETS SIZES  as the library is compiled with them, which takes them from a crate
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define OURS
#include "lists.h"
#include "fake/api.h"
static const uintptr_t our_legacy = (uintptr_t)CU_STREAM_LEGACY;
static const uintptr_t our_per_thread = (uintptr_t)CU_STREAM_PER_THREAD;
#undef OURS
#undef CU_STREAM_LEGACY
#undef CU_STREAM_PER_THREAD
#define THEIRS
#include "lists.h"
#undef THEIRS

#include <cuda.h>

/* Of an undeclared function the size is not known; said before we declare it ourselves. */
#define X(name) _Static_assert(sizeof(&(name)) == sizeof(void *), #name);
FUNCTIONS
#undef X

#define COMPARED
#include "lists.h"

#define X(name) _Static_assert((long long)(our_##name) == (long long)(name), #name);
CONSTANTS
#undef X

#define X(name)                                                                                    \
  _Static_assert(sizeof(our_##name) == sizeof(name), "size of " #name);                            \
  _Static_assert(_Alignof(our_##name) == _Alignof(name), "alignment of " #name);
TYPES
#undef X

/* Handles are pointers to the same structures, and of numbers the sign matters too. */
#define X(name) _Static_assert(__builtin_types_compatible_p(our_##name, name), #name);
HANDLES
#undef X
#define X(name) _Static_assert(((our_##name)-1 > 1) == ((name)-1 > 1), "sign of " #name);
INTEGERS
#undef X

#define X(type, member)                                                                            \
  _Static_assert(offsetof(our_##type, member) == offsetof(type, member), #type "." #member);       \
  _Static_assert(sizeof(((our_##type *)0)->member) == sizeof(((type *)0)->member),                 \
                 "size of " #type "." #member);
MEMBERS
#undef X

#define X(name, value) _Static_assert((long long)(name) == (value), #name " in the library");
NUMBERS
#undef X

#define X(type, member, offset)                                                                    \
  _Static_assert(offsetof(type, member) == (offset), #type "." #member " in the library");
OFFSETS
#undef X

#define X(type, size) _Static_assert(sizeof(type) == (size), #type " in the library");
SIZES
#undef X

#define X(...) +1
int main(void) {
  if (our_legacy != (uintptr_t)CU_STREAM_LEGACY) return puts("CU_STREAM_LEGACY differs"), 1;
  if (our_per_thread != (uintptr_t)CU_STREAM_PER_THREAD)
    return puts("CU_STREAM_PER_THREAD differs"), 1;
  printf("CUDA %d.%d: %d functions, %d numbers, %d types and %d numbers of the library agree\n",
         CUDA_VERSION / 1000, CUDA_VERSION % 1000 / 10, 0 FUNCTIONS, 2 CONSTANTS, 0 TYPES,
         0 NUMBERS OFFSETS SIZES);
  return 0;
}
