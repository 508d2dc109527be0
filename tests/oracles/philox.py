"""Philox 4x32-10, written from the paper (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) and checked
against the known answers published with it when it is imported."""

M32 = 0xFFFFFFFF


def philox(counter, key):
    c, k = list(counter), list(key)
    for _ in range(10):
        first, second = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(second >> 32) ^ c[1] ^ k[0], second & M32, (first >> 32) ^ c[3] ^ k[1], first & M32]
        k = [(k[0] + 0x9E3779B9) & M32, (k[1] + 0xBB67AE85) & M32]
    return c


KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((M32,) * 4, (M32,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
     (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
]
for counter, key, answer in KNOWN_ANSWERS:
    assert tuple(philox(counter, key)) == answer


def words(seed, counter, n):
    """The words of a draw of n values."""
    seed &= (1 << 64) - 1
    result = []
    for block in range((n + 3) // 4):
        at = (counter + block) & ((1 << 64) - 1)
        result += philox((at & M32, at >> 32, 0, 0), (seed & M32, seed >> 32))
    return result[:n]


def blocks(n):
    return (n + 3) // 4
