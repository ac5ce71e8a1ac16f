"""Elements of every type whose reductions are exact, and buffers for them.

All values are small integers, so floats are exact in every order of reduction, and results are
compared as bytes. Elements repeat after a prime number: 64 MB take no time, and a misplaced block
is found.
"""

import ctypes
import functools
import struct

PERIOD = 2039
GUARD = b"\xee" * 64  # behind every buffer; also the content of a blank buffer
SUM, PROD, MAX, MIN, AVG = OPS = ("sum", "prod", "max", "min", "avg")


class Type:
    """An element type. Integers from -limit (unsigned: 0) to limit are exact."""

    def __init__(self, name, size, limit, encode, signed=True, integer=False):
        self.name, self.size, self.limit, self.encode = name, size, limit, encode
        self.signed, self.integer = signed, integer

    def has(self, op, n):
        # Floats are multiplied by 1/n, which is exact only for powers of two.
        return op != AVG or self.integer or n & (n - 1) == 0


def packed(code):
    return lambda values: struct.pack(f"<{len(values)}{code}", *values)


def bfloat16(values):
    """The upper halves of floats."""
    floats = struct.pack(f"<{len(values)}f", *values)
    return b"".join(floats[at + 2 : at + 4] for at in range(0, len(floats), 4))


def float8e4m3(values):
    """Encodes a sign, four bits of the exponent plus 7, and three bits after the leading one."""

    def bits(value):
        sign, value = (0x80, -value) if value < 0 else (0, value)
        exponent = value.bit_length() - 1
        return sign | (exponent + 7) << 3 | (value << 3 >> exponent & 7) if value else 0

    return bytes(map(bits, values))


def integer(name, size, code, signed=True):
    return Type(name, size, (1 << 8 * size - signed) - 1, packed(code), signed, integer=True)


TYPES = {
    type.name: type
    for type in (
        integer("int8", 1, "b"),
        integer("uint8", 1, "B", signed=False),
        integer("int32", 4, "i"),
        integer("uint32", 4, "I", signed=False),
        integer("int64", 8, "q"),
        integer("uint64", 8, "Q", signed=False),
        Type("float16", 2, 1 << 11, packed("e")),
        Type("float32", 4, 1 << 24, packed("f")),
        Type("float64", 8, 1 << 53, packed("d")),
        Type("bfloat16", 2, 1 << 8, bfloat16),
        Type("float8e4m3", 1, 1 << 4, float8e4m3),
    )
}


def contribution(type, op, rank, n, i):
    """Element i of a rank's buffer."""
    draw = i * 2654435761 >> 9  # neighbours differ, and so do the same elements of two chunks
    most = min(type.limit // n, 1000)  # so that the sum of n is exact
    least = -most if type.signed else 0
    if op == PROD:  # the product over all ranks is from -6 to 6
        sign = -1 if type.signed and draw % 2 else 1
        return {draw // 2 % n: 2, draw // 16 % n: sign, draw // 128 % n: draw % 3 + 1}.get(rank, 1)
    if op == AVG:  # equal on all ranks, except for offsets whose sum is 0
        place = (draw + rank) % n
        spread = 0 if place >= n - n % 2 else 1 - place % 2 * 2
        return least + 1 + draw % (most - least - 1) + spread
    return least + (draw + rank * 17) % (most - least + 1)


def fold(op, values):
    if op == PROD:
        result = 1
        for value in values:
            result *= value
        return result
    total = sum(values)
    return {SUM: total, MAX: max(values), MIN: min(values), AVG: total // len(values)}[op]


@functools.lru_cache(maxsize=None)
def elements(type, op, rank, n):
    return [contribution(type, op, rank, n, i) for i in range(PERIOD)]


@functools.lru_cache(maxsize=None)
def encoded_input(type, op, rank, n):
    return type.encode(elements(type, op, rank, n))


@functools.lru_cache(maxsize=None)
def encoded_result(type, op, n):
    return type.encode(
        [fold(op, values) for values in zip(*(elements(type, op, rank, n) for rank in range(n)))]
    )


def repeated(period, length):
    return (period * (length // len(period) + 1))[:length]


def input_of(rank, n, type, op, count):
    """The input of a rank for a reduction."""
    return repeated(encoded_input(type, op, rank, n), count * type.size)


def result_of(n, type, op, count):
    """The result of the reduction."""
    return repeated(encoded_result(type, op, n), count * type.size)


class Mismatch(Exception):
    """A buffer has unexpected content."""


class Buffer:
    """Bytes at an address, followed by guard bytes."""

    def __init__(self, content):
        self.memory = bytearray(content + GUARD)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    @classmethod
    def blank(cls, length):
        return cls(repeated(GUARD, length))

    def must_be(self, expected, what):
        expected += GUARD
        if self.memory == expected:
            return
        wrong = [i for i, pair in enumerate(zip(self.memory, expected)) if pair[0] != pair[1]]
        at = wrong[0]
        raise Mismatch(
            f"{what}: {len(wrong)} of {len(expected) - len(GUARD)} bytes are wrong; from "
            f"byte {at} on there is {self.memory[at : at + 16].hex()} instead of "
            f"{expected[at : at + 16].hex()}"
        )

    def must_be_blank(self, what):
        self.must_be(repeated(GUARD, len(self.memory) - len(GUARD)), what)
