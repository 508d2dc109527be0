"""Initial values from first principles: Philox 4x32-10 in integers (Salmon et al. 2011) and NumPy in float64.

Prints the first values of a few (seed, name) pairs as C++ literals, for tests/machine/init_test.cpp. The key is the
seed; the counter is (block, XXH3-64 of the name with its lowest bit set).
"""
import math

import numpy as np
import xxhash

MASK = 0xFFFFFFFF


def philox(counter, key):
    c, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & MASK, (p0 >> 32) ^ c[3] ^ k[1], p0 & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return c


def words(seed, name, count):
    stream = xxhash.xxh3_64_intdigest(name.encode()) | 1
    out = []
    for block in range((count + 3) // 4):
        out += philox([block & MASK, block >> 32, stream & MASK, stream >> 32], [seed & MASK, (seed >> 32) & MASK])
    return out[:count]


def uniform(seed, name, count, lo, hi):
    lo, hi = np.float32(lo), np.float32(hi)
    return [lo + np.float32((w >> 8) * 2.0**-24) * (hi - lo) for w in words(seed, name, count)]


def normal(seed, name, count, std):
    w = words(seed, name, (count + 3) // 4 * 4)
    values = []
    for a, b in zip(w[0::2], w[1::2]):
        radius = math.sqrt(-2 * math.log((a + 1) * 2.0**-32))
        angle = 2 * math.pi * b * 2.0**-32
        values += [radius * math.cos(angle), radius * math.sin(angle)]
    return [np.float32(np.float64(np.float32(std)) * v) for v in values[:count]]


def show(label, values):
    print(label, "{" + ", ".join("%sf" % float(v).hex().replace("0" * 7 + "p", "p") for v in values) + "}")


if __name__ == "__main__":
    assert philox([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]  # Random123's known answer
    show("uniform seed 1 w", uniform(1, "w", 6, -1, 3))
    show("uniform seed -2 w1", uniform(-2 & (2**64 - 1), "w1", 6, 0, 1))
    show("kaiming_uniform seed 1 w [2,3]", uniform(1, "w", 6, -math.sqrt(3), math.sqrt(3)))
    show("normal seed 1 w", normal(1, "w", 6, 1))
    show("kaiming_normal seed 7 k [4,2,3]", normal(7, "k", 6, math.sqrt(2 / 6)))
