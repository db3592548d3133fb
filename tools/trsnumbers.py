# SPDX-License-Identifier: BSD-3-Clause
"""Numbers of text without a loop over rows: its digits, and its hash."""
import numpy as np

from trscolumns import fail

MINUS = 45


def numbers_of(block, begin, end, base, place, limit, hint=""):
    """(value as int64, whether the field is empty) of each field, read digit by digit in base 10 (with sign) or 16.

    limit  bytes of a field: at most 18 in base 10 and 16 in base 16, where the upper half of numbers becomes negative
    place  function: row of begin -> its place in the input, for messages
    hint   the end of the message about a field that is not a number
    """
    length = end - begin
    longest = int(length.max(initial=0))
    if longest > limit:
        bad = int(np.argmax((length > limit).reshape(len(length), -1).any(axis=1)))
        fail(f"{place(bad)}: a number of {int(length[bad].max())} digits, expected {limit} at most", 65)
    value = np.zeros(begin.shape, np.int64)
    negative = np.zeros(begin.shape, bool)
    last = len(block) - 1
    for i in range(longest):
        inside = i < length
        byte = block[np.minimum(begin + i, last)].astype(np.int64)
        digit = byte - 48
        if base == 16:
            letter = (byte | 32) - 97
            digit = np.where((letter >= 0) & (letter < 6), letter + 10, np.where(digit < 10, digit, -1))
        elif i == 0:
            negative = inside & (byte == MINUS) & (length > 1)
            digit = np.where(negative, 0, digit)
        wrong = inside & ((digit < 0) | (digit >= base))
        if wrong.any():
            where = tuple(np.argwhere(wrong)[0])
            field = bytes(block[begin[where]:end[where]]).decode("ascii", "replace")
            fail(f"{place(int(where[0]))}: {field!r} is not a number in base {base}{hint}", 65)
        value = np.where(inside, value * base + digit, value)
    return np.where(negative, -value, value), length == 0


# --- the hash of text ---

PRIMES = tuple(np.uint64(prime) for prime in (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5))


def rotated(word, bits):
    return (word << np.uint64(bits)) | (word >> np.uint64(64 - bits))


def xxhash64_of(words):
    """XXH64 with seed 0 of each row of words, uint8 [n, length]."""
    one, two, three, four, five = PRIMES
    n, length = words.shape
    lane = lambda at, dtype: np.ascontiguousarray(words[:, at:at + np.dtype(dtype).itemsize]).view(dtype)[:, 0].astype(np.uint64)
    turn = lambda state, word: rotated(state + word * two, 31) * one
    at = 0
    if length >= 32:
        states = [np.full(n, start, np.uint64) for start in (0x60EA27EEADC0B5D6, 0xC2B2AE3D27D4EB4F, 0, 0x61C8864E7A143579)]
        while at + 32 <= length:
            states = [turn(state, lane(at + 8 * i, "<u8")) for i, state in enumerate(states)]
            at += 32
        total = rotated(states[0], 1) + rotated(states[1], 7) + rotated(states[2], 12) + rotated(states[3], 18)
        for state in states:
            total = (total ^ turn(np.uint64(0), state)) * one + four
    else:
        total = np.full(n, five, np.uint64)
    total = total + np.uint64(length)
    while at + 8 <= length:
        total = rotated(total ^ turn(np.uint64(0), lane(at, "<u8")), 27) * one + four
        at += 8
    if at + 4 <= length:
        total = rotated(total ^ (lane(at, "<u4") * one), 23) * two + three
        at += 4
    for i in range(at, length):
        total = rotated(total ^ (lane(i, "u1") * five), 11) * one
    total = (total ^ (total >> np.uint64(33))) * two
    total = (total ^ (total >> np.uint64(29))) * three
    return total ^ (total >> np.uint64(32))


def xxhash64(block, begin, end):
    """XXH64 with seed 0 of the bytes of each field, its bit pattern as int64. All texts of one length are hashed at once."""
    out = np.zeros(len(begin), np.uint64)
    length = end - begin
    at_once = 1 << 22  # bytes
    with np.errstate(over="ignore"):
        for size in np.unique(length):
            which = np.flatnonzero(length == size)
            step = max(1, at_once // max(1, int(size)))
            for first in range(0, len(which), step):
                part = which[first:first + step]
                out[part] = xxhash64_of(block[begin[part, None] + np.arange(size)])
    return out.view(np.int64)
