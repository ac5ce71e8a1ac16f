/*
 * Values that are compiled into programs and so can never change. They equal NCCL's where NCCL has
 * the value; nexar's own begin at 32.
 */
#include <nexar.h>
#include <stddef.h>
#include <stdio.h>

#define SAME(name, value) _Static_assert((name) == (value), #name " must be " #value)

SAME(nexarSuccess, 0);
SAME(nexarUnhandledCudaError, 1);
SAME(nexarSystemError, 2);
SAME(nexarInternalError, 3);
SAME(nexarInvalidArgument, 4);
SAME(nexarInvalidUsage, 5);
SAME(nexarRemoteError, 6);
SAME(nexarInProgress, 7);
SAME(nexarTimeout, 8);

SAME(nexarInt8, 0);
SAME(nexarUint8, 1);
SAME(nexarInt32, 2);
SAME(nexarUint32, 3);
SAME(nexarInt64, 4);
SAME(nexarUint64, 5);
SAME(nexarFloat16, 6);
SAME(nexarFloat32, 7);
SAME(nexarFloat64, 8);
SAME(nexarBfloat16, 9);
SAME(nexarFloat8e4m3, 10);
SAME(nexarFloat8e5m2, 11);
SAME(nexarInt16, 32);
SAME(nexarUint16, 33);
SAME(nexarMaxDataType, 0x7fffffff);

SAME(nexarSum, 0);
SAME(nexarProd, 1);
SAME(nexarMax, 2);
SAME(nexarMin, 3);
SAME(nexarAvg, 4);
SAME(nexarBitAnd, 32);
SAME(nexarBitOr, 33);
SAME(nexarBitXor, 34);
SAME(nexarLogicalAnd, 35);
SAME(nexarLogicalOr, 36);
SAME(nexarLogicalXor, 37);
SAME(nexarMaxRedOp, 0x7fffffff);

SAME(nexarScalarDevice, 0);
SAME(nexarScalarHostImmediate, 1);

/* Enums are passed as ints. */
SAME(sizeof(nexarResult_t), sizeof(int));
SAME(sizeof(nexarDataType_t), sizeof(int));
SAME(sizeof(nexarRedOp_t), sizeof(int));
SAME(sizeof(nexarScalarResidence_t), sizeof(int));

SAME(NEXAR_UNIQUE_ID_BYTES, 128);
SAME(sizeof(nexarUniqueId), 128);
SAME(_Alignof(nexarUniqueId), 1);
SAME(NEXAR_SPLIT_NOCOLOR, -1);
SAME(NEXAR_CONFIG_UNDEF_INT, INT_MIN);
SAME(NEXAR_ANY_SOURCE, -1);
SAME(NEXAR_ANY_TAG, -1);
SAME(NEXAR_API_MAGIC, 0xcafebeef);
SAME(NEXAR_VERSION(1, 2, 3), 10203);
SAME(NEXAR_VERSION_CODE, NEXAR_VERSION(NEXAR_MAJOR, NEXAR_MINOR, NEXAR_PATCH));

/* Offsets on 64-bit targets. New fields are added at the end. */
SAME(offsetof(nexarConfig_t, size), 0);
SAME(offsetof(nexarConfig_t, magic), 8);
SAME(offsetof(nexarConfig_t, version), 12);
SAME(offsetof(nexarConfig_t, blocking), 16);
SAME(offsetof(nexarConfig_t, initTimeoutMs), 20);
SAME(offsetof(nexarConfig_t, opTimeoutMs), 24);
SAME(offsetof(nexarConfig_t, peerTimeoutMs), 28);
SAME(offsetof(nexarConfig_t, splitShare), 32);
SAME(offsetof(nexarConfig_t, name), 40);
SAME(sizeof(nexarConfig_t), 48);

/* A new field begins at 32 or later, not in the padding: older programs have this size too. */
SAME(offsetof(nexarStatus_t, size), 0);
SAME(offsetof(nexarStatus_t, source), 8);
SAME(offsetof(nexarStatus_t, tag), 12);
SAME(offsetof(nexarStatus_t, count), 16);
SAME(offsetof(nexarStatus_t, datatype), 24);
SAME(sizeof(nexarStatus_t), 32);

int main(void) {
  int version = 0;
  nexarResult_t result = nexarGetVersion(&version);
  if (result != nexarSuccess || version != NEXAR_VERSION_CODE) {
    printf("nexarGetVersion: result %d, version %d; the header is %d\n", result, version,
           NEXAR_VERSION_CODE);
    return 1;
  }
  return 0;
}
