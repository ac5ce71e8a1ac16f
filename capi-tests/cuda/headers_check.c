/*
 * Our declarations of the CUDA driver API agree with NVIDIA's cuda.h: names, arguments, constants,
 * layouts.
 *
 * headers.py compiles and runs this file with a cuda.h that it has downloaded, which is never part
 * of this repository. It generates lists.h from our own sources, so the lists are complete:
 *
 *     OURS THEIRS            rename the declarations of fake/api.h, and undo that, so that both
 *                            headers fit into one file
 *     FUNCTIONS CONSTANTS    the names to compare; a type is a handle, an integer or a structure
 *     TYPES HANDLES          with members
 *     INTEGERS MEMBERS
 *     COMPARED               declares all functions again, as fake/api.h, gpu/driver.h and the
 *                            library's driver.rs do: the compiler rejects any difference to cuda.h
 *     NUMBERS OFFSETS SIZES  the values with which the library is compiled, from a crate
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

/* Every function is declared in cuda.h: checked before COMPARED declares it again. */
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

/* Handles are pointers to the same structures, and integers have the same signedness. */
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
  printf("CUDA %d.%d: %d functions, %d constants, %d types and %d values of the library agree\n",
         CUDA_VERSION / 1000, CUDA_VERSION % 1000 / 10, 0 FUNCTIONS, 2 CONSTANTS, 0 TYPES,
         0 NUMBERS OFFSETS SIZES);
  return 0;
}
