"""Golden tapes of RANDOM_UNIFORM, RANDOM_NORMAL, DROPOUT, DROPOUT_GRAD from Philox words."""
import numpy as np

from golden import FLOATS, Golden, cast, sample, shape_text
from philox import blocks, words

def unit(seed, counter, n):
    return np.array([(w >> 8) for w in words(seed, counter, n)], dtype=np.float32) * np.float32(2.0 ** -24)


def uniform(seed, counter, n, lo, hi, dtype):
    lo, hi = np.float32(lo), np.float32(hi)
    drawn = lo + unit(seed, counter, n) * (hi - lo)
    rounded = cast(drawn, dtype)
    assert (rounded < hi).all() and (rounded >= cast(lo, dtype)).all()
    return rounded


def normal(seed, counter, n, mean, std, dtype):
    w = words(seed, counter, 4 * blocks(n))
    values = []
    pi = np.longdouble("3.14159265358979323846264338327950288")
    for a, b in zip(w[0::2], w[1::2]):
        radius = np.sqrt(-2 * np.log((np.longdouble(a) + 1) / 2 ** 32))
        angle = 2 * pi * np.longdouble(b) / 2 ** 32
        values += [radius * np.cos(angle), radius * np.sin(angle)]
    z = np.array(values[:n], dtype=np.longdouble)
    return cast((np.longdouble(np.float32(mean)) + np.longdouble(np.float32(std)) * z).astype(np.float32), dtype)


SEEDS = [(0, 0), (7, 0), (7, 1), (-3, 12345678901), (2 ** 40 + 5, 2 ** 32 - 1), (-(2 ** 63), 2 ** 62)]
SHAPES = [(8,), (), (1,), (3,), (5,), (2, 3), (0,), (2, 1, 3, 2), (1, 2, 1, 3, 2), (33,), (7, 9)]


def draw(op, values_of, attributes):
    """`attributes`: (text, two numbers). Draws twice from each generator, so that the counter is seen to move."""
    g = Golden(op.lower(), f"{op.lower()}: ceil(n / 4) Philox blocks a draw, whatever the dtype")
    for i, shape in enumerate(SHAPES + [(6,)] * 8):
        dtype, (seed, counter) = FLOATS[i % 4], SEEDS[i % len(SEEDS)]
        text, a, b = attributes[i % len(attributes)]
        rng = g.declare("state", np.array([seed, counter]), "i64", g.fresh("rng"))
        n = int(np.prod(shape))
        for draw_number in range(2):
            y = g.fresh("y")
            g.add(f"{op} {y}, {rng}, dtype={dtype}, shape={shape_text(shape)}{text}")
            g.expect(y, values_of(seed, counter + draw_number * blocks(n), n, a, b, dtype), dtype)
        g.expect(rng, np.array([seed, counter + 2 * blocks(n)]), "i64")
    g.write()


def generator():
    """A generator declared by `.rng` starts at (seed, 0)."""
    g = Golden("rng", "rng: a declared generator starts with its seed and counter 0; commands share it in order")
    g.lines.append(".rng noise seed=42")
    for name, n, at in (("a", 5, 0), ("b", 2, 2), ("c", 4, 3)):
        g.add(f"RANDOM_UNIFORM {name}, noise, dtype=f32, shape=[{n}]")
        g.expect(name, uniform(42, at, n, 0, 1, "f32"), "f32")
    g.expect("noise", np.array([42, 4]), "i64")
    g.write()


def compute(dtype):
    return np.float64 if dtype == "f64" else np.float32


def dropout():
    g = Golden("dropout", "dropout: kept where a uniform draw is at or above p, scaled by 1 / (1 - p)")
    values = np.random.default_rng(3)
    for i, (shape, p) in enumerate(zip(SHAPES + [(10,)] * 8, [0.5, 0.25, 0, 0.9, 0.5, 0.1, 0.5] * 3)):
        dtype, (seed, counter) = FLOATS[i % 4], SEEDS[i % len(SEEDS)]
        n = int(np.prod(shape))
        rng = g.declare("state", np.array([seed, counter]), "i64", g.fresh("rng"))
        source = sample(values, shape, dtype)
        x, y, mask = g.input(source, dtype), g.fresh("y"), g.fresh("mask")
        c = compute(dtype)
        kept = unit(seed, counter, n).astype(c).reshape(shape) >= c(p)
        scaled = source.astype(c) / (c(1) - c(p))
        g.add(f"DROPOUT {y}, {mask}, {x}, {rng}" + (f", p={p}" if p != 0.5 else ""))
        g.expect(mask, kept, "bool")
        g.expect(y, cast(np.where(kept, scaled, c(0)), dtype), dtype, "~", "rtol=1e-6" if dtype == "f32" else "")
        g.expect(rng, np.array([seed, counter + blocks(n)]), "i64")
    g.write()


def dropout_grad():
    g = Golden("dropout_grad", "dropout_grad: g / (1 - p) where the mask is set, else 0; acc=1 adds to dst")
    values = np.random.default_rng(4)
    for i, (shape, p) in enumerate(zip(SHAPES + [(10,)] * 8, [0.5, 0.75, 0, 0.5, 0.5, 0.875, 0.5] * 3)):
        dtype = FLOATS[i % 4]
        grad, kept = sample(values, shape, dtype), sample(values, shape, "bool")
        x, mask, y = g.input(grad, dtype), g.input(kept, "bool"), g.fresh("y")
        text = f", p={p}" if p != 0.5 else ""
        result = np.where(kept, grad.astype(np.float64) / (1 - p), 0)  # p is exact: so is the quotient
        g.add(f"DROPOUT_GRAD {y}, {mask}, {x}{text}")
        g.expect(y, cast(result, dtype), dtype)
        before = sample(values, shape, dtype)
        total = g.declare("state", before, dtype, g.fresh("total"))
        g.add(f"DROPOUT_GRAD {total}, {mask}, {x}{text}, acc=1")
        g.expect(total, cast(before.astype(np.float64) + result, dtype), dtype)
    g.write()


draw("RANDOM_UNIFORM", uniform, [("", 0, 1), (", lo=-2.5, hi=3", -2.5, 3), (", lo=0.1, hi=0.7", 0.1, 0.7), (", lo=-8, hi=-4", -8, -4)])
draw("RANDOM_NORMAL", normal, [("", 0, 1), (", mean=1.5, std=0.25", 1.5, 0.25), (", std=0", 0, 0), (", mean=-3, std=10", -3, 10)])
generator()
dropout()
dropout_grad()
