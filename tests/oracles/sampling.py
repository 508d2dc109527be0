"""Golden tapes of RANDOM_BERNOULLI, RANDOM_PERMUTATION, CATEGORICAL from Philox words and NumPy in f64."""
import numpy as np

from golden import ALL, FLOATS, Golden, cast, shape_text
from philox import blocks, words

SEEDS = [(0, 0), (7, 0), (7, 1), (-3, 12345678901), (2 ** 40 + 5, 2 ** 32 - 1), (-(2 ** 63), 2 ** 62)]
values_of = np.random.default_rng(13)


def bernoulli():
    g = Golden("random_bernoulli", "random_bernoulli: 1 where a uniform draw is below p")
    shapes = [(8,), (), (1,), (5,), (2, 3), (0,), (2, 1, 3, 2), (33,)]
    for i, shape in enumerate(shapes + [(6,)] * len(ALL)):
        dtype, (seed, counter), p = ALL[i % len(ALL)], SEEDS[i % len(SEEDS)], [0.5, 0.25, 0.9, 0, 1][i % 5]
        n = int(np.prod(shape))
        rng, y = g.declare("state", np.array([seed, counter]), "i64", g.fresh("rng")), g.fresh("y")
        draw = np.array([w >> 8 for w in words(seed, counter, n)], dtype=np.float32) * np.float32(2.0 ** -24)
        g.add(f"RANDOM_BERNOULLI {y}, {rng}, dtype={dtype}, shape={shape_text(shape)}" + (f", p={p}" if p != 0.5 else ""))
        g.expect(y, (draw < np.float32(p)).astype(int), dtype)
        g.expect(rng, np.array([seed, counter + blocks(n)]), "i64")
    g.write()


def permutation():
    g = Golden("random_permutation", "random_permutation: the positions of each row ordered by their Philox words")
    for i, shape in enumerate([(8,), (1,), (0,), (5,), (3, 4), (2, 0), (0, 3), (2, 3, 7), (33,), (300,)]):
        index, (seed, counter) = ("i32", "i64")[i % 2], SEEDS[i % len(SEEDS)]
        n = int(np.prod(shape))
        rng, y = g.declare("state", np.array([seed, counter]), "i64", g.fresh("rng")), g.fresh("y")
        keys = np.array(words(seed, counter, n), dtype=np.uint64).reshape(shape)
        order = np.argsort(keys, -1, kind="stable")
        assert (np.sort(order, -1) == np.arange(shape[-1])).all()
        g.add(f"RANDOM_PERMUTATION {y}, {rng}, shape={shape_text(shape)}" + (", dtype=i64" if index == "i64" else ""))
        g.expect(y, order, index)
        g.expect(rng, np.array([seed, counter + blocks(n)]), "i64")
    g.write()


def chosen(row, u, temperature, top_k, top_p):
    """The class, and how far u was from choosing another one."""
    row = row.astype(np.float64)
    if temperature == 0:
        return int(np.argmax(row)), 1.0
    weight = np.exp((row - row.max()) / temperature)
    order = np.argsort(-row, kind="stable")[:top_k or None]
    reached = np.cumsum(weight[order]) / weight[order].sum()
    count = 1 + int((reached[:-1] < top_p).sum())
    margin = np.abs(reached - top_p).min() if top_p != 1 else 1.0
    kept = np.zeros(len(row))
    kept[order[:count]] = weight[order[:count]]
    running = np.cumsum(kept) / kept.sum()
    return int((running <= u).sum()), min(margin, np.abs(running - u).min())


def categorical():
    g = Golden("categorical", "categorical: by inverse distribution function, one Philox word a row")
    filters = [(1, 0, 1), (0.5, 0, 1), (2, 0, 1), (0, 0, 1), (1, 3, 1), (1, 0, 0.7), (0.7, 4, 0.8), (1, 1, 1), (1, 0, 0.01),
               (1, 100, 1)]
    shapes = [(5,), (1,), (4, 6), (2, 3, 5), (0, 3), (9, 1), (3, 33), (2, 1100)]
    cases = [(shape, filters[i % len(filters)]) for i, shape in enumerate(shapes)]
    cases += [((6, 7), at) for at in filters]
    for i, (shape, (temperature, top_k, top_p)) in enumerate(cases):
        dtype, index, (seed, counter) = FLOATS[i % 4], ("i32", "i64")[i // 2 % 2], SEEDS[i % len(SEEDS)]
        logits = cast(values_of.integers(-16, 17, shape) / 8, dtype)
        if shape[-1] > 3:
            logits[..., 1] = -np.inf
        rows = int(np.prod(shape[:-1]))
        draws = np.array(words(seed, counter, rows), dtype=np.float64) * 2.0 ** -32
        found = [chosen(row, u, temperature, top_k, top_p) for row, u in zip(logits.reshape(-1, shape[-1]), draws)]
        assert all(margin > 1e-6 for _, margin in found), found  # weights are rounded to f32
        x = g.input(logits, dtype)
        rng, y = g.declare("state", np.array([seed, counter]), "i64", g.fresh("rng")), g.fresh("y")
        text = (f", temperature={temperature}" if temperature != 1 else "") + (f", top_k={top_k}" if top_k else "")
        text += f", top_p={top_p}" if top_p != 1 else ""
        g.add(f"CATEGORICAL {y}, {x}, {rng}{text}" + (", dtype=i64" if index == "i64" else ""))
        g.expect(y, np.array([place for place, _ in found], dtype=np.int64), index)
        g.expect(rng, np.array([seed, counter + blocks(rows)]), "i64")
    g.write()


def fault():
    g = Golden("categorical-fault", "categorical: a row without a finite largest logit has no distribution")
    g.input(np.array([[0, 1], [-np.inf, -np.inf]]), "f32", "logits")
    g.declare("state", np.array([3, 4]), "i64", "rng")
    g.declare("state", np.array([7, 8]), "i32", "dst")
    g.add("CATEGORICAL dst, logits, rng")
    g.expect_fault("CATEGORICAL", "the classes from logits[1,0] on have no finite largest logit")
    g.expect("dst", np.array([7, 8]), "i32")
    g.expect("rng", np.array([3, 4]), "i64")
    g.write()


if __name__ == "__main__":
    for write in (bernoulli, permutation, categorical, fault):
        write()
