#!/usr/bin/env python3
"""The encodings INT8, INT4 and E3M0 in numpy, after docs/protocol.md, and their golden bytes.

Run it again, from anywhere, to make block_scaled.golden beside it again:

    apt-get install -y --no-install-recommends python3-numpy
    /usr/bin/python3 tests/golden/block_scaled_reference.py

The file has a line for each case: the encoding, the rounding (NEAREST, or STOCHASTIC with the
worker's rank, the iteration and the index of the first element), the values as little-endian
float32 and the encoded bytes, both in hexadecimal.
"""

import pathlib

import numpy as np

GOLDEN = pathlib.Path(__file__).with_name('block_scaled.golden')
BLOCK = {'INT8': 256, 'INT4': 64, 'E3M0': 64}
LARGEST = {'INT8': 127, 'INT4': 7, 'E3M0': 1}
POWERS = np.array([0] + [2.0 ** (e - 7) for e in range(1, 8)], np.float32)


def random_bits(counter):
    """lowbias32 of an array of uint32."""
    counter = counter ^ (counter >> np.uint32(16))
    counter = counter * np.uint32(0x7feb352d)
    counter = counter ^ (counter >> np.uint32(15))
    counter = counter * np.uint32(0x846ca68b)
    return counter ^ (counter >> np.uint32(16))


def rounding_key(worker, iteration):
    key = random_bits(np.array([worker], np.uint32))
    key = random_bits(key + np.uint32(iteration & 0xffffffff))
    return random_bits(key + np.uint32(iteration >> 32))


def quotients(values, scale, largest):
    inverse = np.float32(1) / scale
    return np.clip(values * inverse, np.float32(-largest), np.float32(largest))


def integer_codes(quotient, bits, largest):
    if bits is None:
        return np.rint(quotient).astype(np.int32)
    uniform = (bits >> np.uint32(16)).astype(np.float32) * np.float32(2.0 ** -16)
    offset = np.float32(largest + 1)
    return np.floor((quotient + offset) + uniform).astype(np.int32) - (largest + 1)


def power_codes(quotient, bits):
    magnitude = np.abs(quotient)
    lower = np.searchsorted(POWERS, magnitude, side='right') - 1  # e of the power below
    upper = np.minimum(lower + 1, 7)
    # Where `magnitude` lies between the two powers, from 0 to 1; exact, but for the last division.
    gap = np.where(upper > lower, POWERS[upper] - POWERS[lower], np.float32(1))
    part = (magnitude - POWERS[lower]) / gap
    if bits is None:
        up = (part > 0.5) | ((part == 0.5) & (lower % 2 == 1))
    else:
        # Below the smallest power a random number has 16 bits, above it 23.
        few = (bits >> np.uint32(16)).astype(np.float64) / 2 ** 16
        many = (bits >> np.uint32(9)).astype(np.float64) / 2 ** 23
        # float32 rounds this sum.
        small = np.float32(magnitude * np.float32(64)) + few.astype(np.float32) >= 1
        up = np.where(lower == 0, small, part + many >= 1)
    code = np.where(up, upper, lower).astype(np.int32)
    return code | (np.signbit(quotient).astype(np.int32) << 3)


def encode_block(encoding, values, bits):
    magnitude = np.abs(values)
    too_large = ~(magnitude < np.float32(2.0 ** 127))
    if too_large.any():
        scale, codes = np.uint32(0x7fc00000), too_large.astype(np.int32)
    elif magnitude.max() < np.float32(2.0 ** -119):
        scale = np.uint32(0)
        codes = np.zeros(len(values), np.int32)
        if encoding == 'E3M0':
            codes = np.signbit(values).astype(np.int32) << 3
    else:
        largest = LARGEST[encoding]
        exact = np.float32(magnitude.max() / np.float32(largest)).view(np.uint32)
        scale = (exact + np.uint32(0xffff)) & np.uint32(0xffff0000)
        quotient = quotients(values, scale.view(np.float32), largest)
        codes = (power_codes(quotient, bits) if encoding == 'E3M0' else
                 integer_codes(quotient, bits, largest))
    head = np.uint16(scale >> 16).tobytes()
    if encoding == 'INT8':
        return head + (codes & 255).astype(np.uint8).tobytes()
    half = (len(codes) + 1) // 2
    low, high = codes[:half] & 15, np.zeros(half, np.int32)
    high[:len(codes) - half] = codes[half:] & 15
    return head + (low | high << 4).astype(np.uint8).tobytes()


def encode(encoding, values, chance=None):
    """Returns the bytes of float32 values. `chance`: worker, iteration, index of the first."""
    bits = None
    if chance is not None:
        worker, iteration, first = chance
        indices = (first + np.arange(len(values))).astype(np.uint32)
        bits = random_bits(indices + rounding_key(worker, iteration))
    block = BLOCK[encoding]
    return b''.join(
        encode_block(encoding, values[i:i + block], None if bits is None else bits[i:i + block])
        for i in range(0, len(values), block))


def cases():
    random = np.random.RandomState(20130)

    def normal(n):
        return random.standard_normal(n).astype(np.float32)
    mixed = normal(600) * np.float32(2) ** random.randint(-12, 12, 600).astype(np.float32)
    arrays = [
        np.array([1.5], np.float32),
        np.array([0, -0.0, 1e-45, -1e-38, 1e-37], np.float32),
        np.array([2.0 ** -119, -2.0 ** -120, 3e-36], np.float32),
        np.array([1.7e38, -1.7e38, 1, 0], np.float32),
        np.array([1, 2, np.nan, -np.inf, 4] + [0.5] * 64, np.float32),
        np.array([2.0 ** 127, 1, 3.4e38], np.float32),
        # Ties of the integers, with a scale of 1, and of the powers.
        np.array([0.5, 1.5, 2.5, -3.5, 7], np.float32),
        np.array([0.5, 1.5, 2.5, -125.5, -126.5, 127], np.float32),
        np.array([1, 0.75, 0.375, -0.1875, 2.0 ** -7, 1.5 * 2.0 ** -6, -2.0 ** -8], np.float32),
        normal(63),
        normal(65) * np.float32(1e-3),
        mixed.astype(np.float32),
    ]
    for encoding in BLOCK:
        for values in arrays:
            yield encoding, values, None
        for chance in [(0, 0, 0), (5, 2 ** 33 + 7, 2 ** 32 - 100)]:
            for values in (arrays[1], arrays[4], arrays[-2], arrays[-1]):
                yield encoding, values, chance


def golden_lines():
    for encoding, values, chance in cases():
        rounding = 'NEAREST' if chance is None else 'STOCHASTIC {} {} {}'.format(*chance)
        yield ' '.join([encoding, rounding, values.tobytes().hex(),
                        encode(encoding, values, chance).hex()])


if __name__ == '__main__':
    GOLDEN.write_text('\n'.join(golden_lines()) + '\n', encoding='ascii')
