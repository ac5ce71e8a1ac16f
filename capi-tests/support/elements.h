/*
 * Elements of every datatype, the expected result of a reduction (the oracle), and buffers with
 * guard bytes around them.
 *
 * Integers take values from the whole range of their type, so sums and products wrap. Floats take
 * values whose results are exact in every type and in every order of reduction (small integers;
 * powers of two for products; n times those for averages), so results are compared bit by bit.
 * An operator that a test creates from a function treats elements of all types as bits.
 */
#ifndef ELEMENTS_H
#define ELEMENTS_H

#include <math.h>

#include "check.h"

enum kind { SIGNED, UNSIGNED, REAL };

struct dtype {
  nexarDataType_t code;
  const char *name;
  size_t size;
  enum kind kind;
};

static const struct dtype dtypes[] = {
    {nexarInt8, "int8", 1, SIGNED},       {nexarUint8, "uint8", 1, UNSIGNED},
    {nexarInt16, "int16", 2, SIGNED},     {nexarUint16, "uint16", 2, UNSIGNED},
    {nexarInt32, "int32", 4, SIGNED},     {nexarUint32, "uint32", 4, UNSIGNED},
    {nexarInt64, "int64", 8, SIGNED},     {nexarUint64, "uint64", 8, UNSIGNED},
    {nexarFloat16, "float16", 2, REAL},   {nexarBfloat16, "bfloat16", 2, REAL},
    {nexarFloat32, "float32", 4, REAL},   {nexarFloat64, "float64", 8, REAL},
    {nexarFloat8e4m3, "float8e4m3", 1, REAL}, {nexarFloat8e5m2, "float8e5m2", 1, REAL},
};

static const nexarRedOp_t ops[] = {
    nexarSum,    nexarProd,  nexarMax,    nexarMin,        nexarAvg,       nexarBitAnd,
    nexarBitOr,  nexarBitXor, nexarLogicalAnd, nexarLogicalOr, nexarLogicalXor,
};

static inline const struct dtype *dtype_of(nexarDataType_t code) {
  const struct dtype *dtype = dtypes;
  while (dtype->code != code) dtype++;
  return dtype;
}

static inline bool is_defined(nexarRedOp_t op, const struct dtype *dtype) {
  return op <= nexarAvg || dtype->kind != REAL;
}

/* The function behind a created operator. `left` comes from the lower ranks. */
typedef uint64_t combine_function(const struct dtype *dtype, uint64_t left, uint64_t right);

struct operator {
  nexarRedOp_t known; /* the header's operator, unless a test creates one */
  bool premultiplied; /* created by nexarRedOpCreatePreMulSum */
  nexarScalarResidence_t residence;
  combine_function *combine; /* not NULL: created by nexarRedOpCreate */
  bool commutative;
};

static inline uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

/* To nearest, ties to even. */
static inline uint16_t to_float16(float value) {
  uint32_t sign = bits_of(value) >> 16 & 0x8000, magnitude = bits_of(value) & 0x7fffffff;
  if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00);
  if (magnitude >= bits_of(65536)) return (uint16_t)(sign | 0x7c00);
  if (magnitude < bits_of(0x1p-14f)) {
    /* Subnormal: a multiple of 2^-24, which is the last bit of 0.5, so the addition rounds. */
    float positive = value < 0 ? -value : value;
    return (uint16_t)(sign | (bits_of(positive + 0.5f) - bits_of(0.5f)));
  }
  uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
  return (uint16_t)(sign | (rounded - ((127 - 15) << 23)) >> 13);
}

/* To nearest, ties to even. */
static inline uint16_t to_bfloat16(float value) {
  uint32_t bits = bits_of(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 & 0x8000) | 0x7fc0;
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* To nearest, ties to even; larger values become `most`. `mantissa`: bits after the point. */
static inline uint8_t to_float8(float value, int mantissa, int bias, uint8_t most, uint8_t nan) {
  uint8_t sign = signbit(value) ? 0x80 : 0;
  float magnitude = fabsf(value);
  if (isnan(value)) return sign | nan;
  if (magnitude >= 0x1p16f) return sign | most;
  int exponent = magnitude > 0 ? ilogbf(magnitude) : 1 - bias;
  if (exponent < 1 - bias) exponent = 1 - bias; /* subnormal */
  /* In units of the last bit. A one before the point, or a carry, raises the exponent. */
  int units = (int)lrintf(ldexpf(magnitude, mantissa - exponent));
  int bits = ((exponent + bias - 1) << mantissa) + units;
  return sign | (uint8_t)(bits < most ? bits : most);
}

static inline void put_real(const struct dtype *dtype, void *at, size_t index, double value) {
  unsigned char *element = (unsigned char *)at + index * dtype->size;
  float single = (float)value;
  uint16_t half;
  switch (dtype->code) {
    case nexarFloat64:
      memcpy(element, &value, 8);
      return;
    case nexarFloat32:
      memcpy(element, &single, 4);
      return;
    case nexarFloat8e4m3:
      *element = to_float8(single, 3, 7, 0x7e, 0x7f); /* 448, as there is no infinity */
      return;
    case nexarFloat8e5m2:
      *element = to_float8(single, 2, 15, 0x7c, 0x7e);
      return;
    default:
      half = dtype->code == nexarFloat16 ? to_float16(single) : to_bfloat16(single);
      memcpy(element, &half, 2);
  }
}

/* The compiler inlines copies of constant size: tests copy many millions of elements. */
static inline void copy_element(void *to, const void *from, size_t size) {
  switch (size) {
    case 1: memcpy(to, from, 1); return;
    case 2: memcpy(to, from, 2); return;
    case 4: memcpy(to, from, 4); return;
    default: memcpy(to, from, 8);
  }
}

/* The low bytes of the number: x86-64 and AArch64 are little-endian. */
static inline void put_integer(const struct dtype *dtype, void *at, size_t index, uint64_t value) {
  copy_element((unsigned char *)at + index * dtype->size, &value, dtype->size);
}

/* Truncates to the width of the type and extends the sign. */
static inline uint64_t wrapped(const struct dtype *dtype, uint64_t value) {
  unsigned unused = 64 - 8 * (unsigned)dtype->size;
  value <<= unused;
  return dtype->kind == SIGNED ? (uint64_t)((int64_t)value >> unused) : value >> unused;
}

/* A pseudorandom function of two numbers. */
static inline uint64_t mixed(uint64_t rank, uint64_t index) {
  uint64_t x = (rank + 1) * UINT64_C(0x9e3779b97f4a7c15) + index * UINT64_C(0xd1b54a32d192ed03);
  x = (x ^ x >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
  return x ^ x >> 32;
}

/* A rank's element: any integer of the type. One in eight is 0, for logical operators. */
static inline uint64_t integer_element(const struct dtype *dtype, int rank, size_t index) {
  uint64_t value = mixed((uint64_t)rank, index);
  return value >> 61 == 0 ? 0 : wrapped(dtype, value);
}

/* A rank's element: a float whose reduction over n ranks is exact, also in 8 bits. */
static inline double real_element(const struct dtype *dtype, nexarRedOp_t op, int n, int rank,
                                  size_t index) {
  uint64_t random = mixed((uint64_t)rank, index) >> 40;
  if (op == nexarProd) {
    const double factors[] = {0.5, 1, 2, -0.5, -1, -2};
    return factors[random % 6];
  }
  if (op == nexarAvg) {
    const double parts[] = {0, 1, -1, 2, -2, 4, -4, 8, -8};
    return n * parts[random % (dtype->size == 1 ? 3 : 9)];
  }
  return dtype->size == 1 ? (double)(random % 3) - 1 : (double)(random % 31) - 15;
}

/* The scalar of a rank's premultiplied sum; every rank has another one. */
static inline uint64_t integer_scalar(const struct dtype *dtype, int rank) {
  return wrapped(dtype, mixed(1000, (uint64_t)rank));
}

static inline double real_scalar(const struct dtype *dtype, int rank) {
  const double scalars[] = {2, -1, 1, -2};
  return scalars[dtype->size == 1 ? rank % 2 * 3 : rank % 4];
}

static inline bool is_real(const struct dtype *dtype, const struct operator *op) {
  return dtype->kind == REAL && !op->combine;
}

/* Writes a rank's elements from index `first` on. */
static inline void fill(const struct dtype *dtype, const struct operator *op, int n, int rank,
                        size_t first, void *at, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (is_real(dtype, op))
      put_real(dtype, at, i, real_element(dtype, op->known, n, rank, first + i));
    else
      put_integer(dtype, at, i, integer_element(dtype, rank, first + i));
  }
}

static inline bool is_less(const struct dtype *dtype, uint64_t a, uint64_t b) {
  return dtype->kind == SIGNED ? (int64_t)a < (int64_t)b : a < b;
}

static inline uint64_t folded_integer(const struct dtype *dtype, const struct operator *op,
                                      uint64_t a, uint64_t b) {
  if (op->combine) return op->combine(dtype, a, b);
  switch (op->known) {
    case nexarSum:
    case nexarAvg: return wrapped(dtype, a + b);
    case nexarProd: return wrapped(dtype, a * b);
    case nexarMax: return is_less(dtype, a, b) ? b : a;
    case nexarMin: return is_less(dtype, b, a) ? b : a;
    case nexarBitAnd: return a & b;
    case nexarBitOr: return a | b;
    case nexarBitXor: return a ^ b;
    case nexarLogicalAnd: return a && b;
    case nexarLogicalOr: return a || b;
    default: return !a != !b;
  }
}

static inline double folded_real(nexarRedOp_t op, double a, double b) {
  switch (op) {
    case nexarProd: return a * b;
    case nexarMax: return a > b ? a : b;
    case nexarMin: return a < b ? a : b;
    default: return a + b;
  }
}

static inline double real_fold(const struct dtype *dtype, const struct operator *op, int n,
                               int ranks, size_t index) {
  double result = 0;
  for (int r = 0; r < ranks; r++) {
    double next = real_element(dtype, op->known, n, r, index);
    if (op->premultiplied) next *= real_scalar(dtype, r);
    result = r == 0 ? next : folded_real(op->known, result, next);
  }
  return !op->premultiplied && op->known == nexarAvg ? result / n : result;
}

static inline uint64_t integer_fold(const struct dtype *dtype, const struct operator *op, int n,
                                    int ranks, size_t index) {
  uint64_t result = 0;
  for (int r = 0; r < ranks; r++) {
    uint64_t next = integer_element(dtype, r, index);
    if (op->premultiplied) next = wrapped(dtype, next * integer_scalar(dtype, r));
    result = r == 0 ? next : folded_integer(dtype, op, result, next);
  }
  if (op->combine || op->premultiplied) return result;
  if (op->known >= nexarLogicalAnd) result = result != 0; /* also of a single rank */
  if (op->known == nexarAvg)
    result = dtype->kind == SIGNED ? (uint64_t)((int64_t)result / n) : result / (uint64_t)n;
  return result;
}

/* The oracle: reduces what `fill` writes for the first `ranks` of n ranks, in rank order. */
static inline void fold(const struct dtype *dtype, const struct operator *op, int n, int ranks,
                        size_t first, void *at, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (is_real(dtype, op))
      put_real(dtype, at, i, real_fold(dtype, op, n, ranks, first + i));
    else
      put_integer(dtype, at, i, integer_fold(dtype, op, n, ranks, first + i));
  }
}

static inline double real_identity(nexarRedOp_t op) {
  switch (op) {
    case nexarProd: return 1;
    case nexarMax: return -INFINITY;
    case nexarMin: return INFINITY;
    default: return 0;
  }
}

static inline uint64_t integer_identity(const struct dtype *dtype, nexarRedOp_t op) {
  uint64_t sign = dtype->kind == SIGNED ? UINT64_C(1) << (8 * dtype->size - 1) : 0;
  switch (op) {
    case nexarProd:
    case nexarLogicalAnd: return 1;
    case nexarMax: return sign;
    case nexarMin: return ~sign;
    case nexarBitAnd: return UINT64_MAX;
    default: return 0;
  }
}

/* Writes the identity of the operator. */
static inline void put_identity(const struct dtype *dtype, const struct operator *op, void *at,
                                size_t count) {
  nexarRedOp_t known = op->premultiplied ? nexarSum : op->known;
  for (size_t i = 0; i < count; i++) {
    if (dtype->kind == REAL)
      put_real(dtype, at, i, real_identity(known));
    else
      put_integer(dtype, at, i, integer_identity(dtype, known));
  }
}

/* Memory with guard bytes before and after it. */
struct guarded {
  unsigned char *block, *at;
  size_t bytes;
  bool is_shared; /* allocated by nexarMemAlloc, so ranks of the host map it */
};

enum { GUARD = 64, GUARD_BYTE = 0xa5 };

static inline struct guarded guarded_in(void *block, size_t bytes, size_t shift) {
  struct guarded memory = {block, NULL, bytes, false};
  if (!memory.block) abort();
  memory.at = memory.block + GUARD + shift;
  memset(memory.at - GUARD, GUARD_BYTE, GUARD);
  memset(memory.at, 0x11, bytes);
  memset(memory.at + bytes, GUARD_BYTE, GUARD);
  return memory;
}

/* Allocates `bytes`, `shift` bytes off the alignment of malloc. */
static inline struct guarded guarded(size_t bytes, size_t shift) {
  return guarded_in(malloc(2 * GUARD + shift + bytes), bytes, shift);
}

/* As `guarded`, in memory of nexarMemAlloc. */
static inline struct guarded guarded_and_shared(size_t bytes, size_t shift) {
  void *block = NULL;
  CHECK_CODE(nexarSuccess, nexarMemAlloc(&block, 2 * GUARD + shift + bytes));
  struct guarded memory = guarded_in(block, bytes, shift);
  memory.is_shared = true;
  return memory;
}

/* Checks the guard bytes and frees the memory. */
static inline void check_guards(struct guarded memory) {
  bool untouched = true;
  for (int i = 0; i < GUARD; i++) {
    untouched &= memory.at[i - GUARD] == GUARD_BYTE;
    untouched &= memory.at[memory.bytes + (size_t)i] == GUARD_BYTE;
  }
  CHECK(untouched);
  if (memory.is_shared) CHECK_CODE(nexarSuccess, nexarMemFree(memory.block));
  else free(memory.block);
}

static inline size_t first_difference(const void *one, const void *other, size_t bytes) {
  size_t at = 0;
  while (at < bytes && ((const char *)one)[at] == ((const char *)other)[at]) at++;
  return at;
}

#define CHECK_SAME(expected, actual, bytes, what)                                                  \
  do {                                                                                             \
    const void *expected_ = (expected), *actual_ = (actual);                                       \
    size_t bytes_ = (bytes);                                                                       \
    if (bytes_ && memcmp(expected_, actual_, bytes_) != 0)                                         \
      check_failed(__FILE__, __LINE__, "%s differs from %s at byte %zu of %zu: %s", #actual,       \
                   #expected, first_difference(expected_, actual_, bytes_), bytes_, what);         \
    progress();                                                                                    \
  } while (0)

/* Numbers of ranks. */
static const int sizes[] = {1, 2, 3, 4, 7, 8};

/* Counts around the number of ranks, small ones and large ones; SIZE_MAX ends the list. */
static inline size_t count_number(size_t i, int n) {
  const size_t counts[] = {0, 1, 4, (size_t)n - 1, (size_t)n, (size_t)n + 1, 1000, 65537,
                           (1 << 18) + 3};
  return i < COUNT_OF(counts) ? counts[i] : SIZE_MAX;
}

#define FOR_COUNTS(count, n)                                                                       \
  for (size_t i_ = 0, count; (count = count_number(i_, n)) != SIZE_MAX; i_++)

#endif
