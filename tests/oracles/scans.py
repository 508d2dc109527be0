"""Golden tapes of CUMSUM, CUMPROD, CUMPROD_GRAD, SORT, ARGSORT, TOPK, OUTER, DOT, computed by NumPy."""
import numpy as np

from golden import FLOATS, HALVES, INTS, NUMPY, Golden, cast, sample, shape_text

rng = np.random.default_rng(12)
NUMBERS = FLOATS + INTS
# shape, axis
LINES = [((7,), 0), ((1,), 0), ((0,), 0), ((2, 5), -1), ((5, 2), 0), ((2, 3, 4), 1), ((2, 3, 4), 2), ((2, 3, 4), 0),
         ((3, 0), 0), ((0, 3), 1), ((2, 3, 1, 2, 3), 1), ((33,), -1), ((65, 3), 0)]


def axis_text(shape, axis):
    return f", axis={axis}" if axis % len(shape) != len(shape) - 1 or axis >= 0 and len(shape) > 2 else ""


def integers_wrap(dtype):
    return NUMPY[dtype] if dtype in INTS else np.float64


def reversed_along(function, values, axis):
    return np.flip(function(np.flip(values, axis), axis), axis)


def scan(name, about, function, combine, identity, values_of):
    g = Golden(name, about)
    for i, (shape, axis) in enumerate(LINES + [((2, 6), 1)] * (2 * len(NUMBERS))):
        dtype, reverse = NUMBERS[i % len(NUMBERS)], i // len(NUMBERS) % 2
        values = values_of(shape, dtype)
        exact = lambda v, a: function(v.astype(integers_wrap(dtype)), a, dtype=integers_wrap(dtype))
        result = reversed_along(exact, values, axis) if reverse else exact(values, axis)
        x, y = g.input(values, dtype), g.fresh("y")
        text = axis_text(shape, axis) + (", reverse=1" if reverse else "")
        g.add(f"{name.upper()} {y}, {x}{text}")
        g.expect(y, cast(result, dtype), dtype)
        before = sample(rng, shape, dtype)
        total = g.declare("state", before, dtype, g.fresh("total"))
        g.add(f"{name.upper()} {total}, {x}{text}, acc=1")
        g.expect(total, cast(before.astype(integers_wrap(dtype)) + result.astype(integers_wrap(dtype)), dtype), dtype)
        if dtype in HALVES:
            wide = g.fresh("wide")
            g.add(f"{name.upper()} {wide}, {x}{text}, dtype=f32")
            g.expect(wide, result, "f32")
    # The order: runs of 32 one by one, runs within chunks of 1,024, chunks; whatever the rounding, bit for bit. In f64,
    # where the oracle adds as every backend does.
    values = rng.standard_normal(1100) if name == "cumsum" else 1 + rng.standard_normal(1100) / 64
    chunks = identity
    result = []
    for chunk in range(0, len(values), 1024):
        runs = identity
        for run in range(chunk, min(chunk + 1024, len(values)), 32):
            own = identity
            for value in values[run:min(run + 32, chunk + 1024)]:
                own = combine(own, value)
                result.append(combine(chunks, combine(runs, own)))
            runs = combine(runs, own)
        chunks = combine(chunks, runs)
    x = g.input(values, "f64", "long")
    g.add(f"{name.upper()} order, {x}")
    g.expect("order", np.array(result), "f64")
    g.write()


def cumulative():
    scan("cumsum", "cumsum: the running sum along axis=, from the end with reverse=1", np.cumsum, lambda a, b: a + b, -0.0,
         lambda shape, dtype: sample(rng, shape, dtype))

    def powers(shape, dtype):  # products that every dtype holds
        if dtype in INTS:
            return rng.integers(0, 4, shape).astype(NUMPY[dtype])
        return cast(rng.choice([-2.0, -1.0, 0.5, 1.0, 2.0], shape), dtype)
    scan("cumprod", "cumprod: the running product along axis=, from the end with reverse=1", np.cumprod, lambda a, b: a * b,
         1.0, powers)


def cumprod_grad():
    g = Golden("cumprod_grad", "cumprod_grad: products of the other elements, without a division; zeros are exact")
    for i, (shape, axis) in enumerate(LINES + [((2, 5), 1)] * (2 * len(FLOATS))):
        dtype, reverse = FLOATS[i % len(FLOATS)], i // len(FLOATS) % 2
        values = cast(rng.choice([-2.0, -1.0, 0.0, 0.5, 1.0, 2.0], shape), dtype)
        upstream = cast(rng.integers(-4, 5, shape), dtype)
        x = np.moveaxis(values.astype(np.float64), axis, -1)
        u = np.moveaxis(upstream.astype(np.float64), axis, -1)
        if reverse:
            x, u = x[..., ::-1], u[..., ::-1]
        result, n = np.zeros(x.shape), x.shape[-1]
        for j in range(n):
            for k in range(j, n):
                others = np.delete(x[..., :k + 1], j, -1).prod(-1)
                result[..., j] += u[..., k] * others
        if reverse:
            result = result[..., ::-1]
        result = np.moveaxis(result, -1, axis)
        a, b, y = g.input(values, dtype), g.input(upstream, dtype), g.fresh("y")
        text = axis_text(shape, axis) + (", reverse=1" if reverse else "")
        tolerance = {"f16": "rtol=2e-3 atol=1e-2", "bf16": "rtol=1e-2 atol=1e-2"}.get(dtype, "")
        g.add(f"CUMPROD_GRAD {y}, {a}, {b}{text}")
        g.expect(y, result, dtype, "~", tolerance)
        before = sample(rng, shape, dtype)
        total = g.declare("state", before, dtype, g.fresh("total"))
        g.add(f"CUMPROD_GRAD {total}, {a}, {b}{text}, acc=1")
        g.expect(total, cast(before.astype(np.float64) + result, dtype), dtype, "~", tolerance)
    g.write()


def with_ties(shape, dtype):
    if dtype in INTS:
        return cast(rng.integers(0, 5, shape), dtype)
    values = rng.integers(-3, 4, shape) / 2
    return cast(np.where(rng.random(shape) < 0.15, np.nan, np.where(rng.random(shape) < 0.1, -0.0, values)), dtype)


def order_of(values, axis, descending, nan_first=False):
    """Stable; NumPy sorts by keys, NaN last (or first)."""
    keys = values.astype(np.float64) if values.dtype != np.int64 else values
    if values.dtype.kind in "iu":
        keys = values.astype(object) * (-1 if descending else 1)
        return np.argsort(keys.astype(np.int64), axis, kind="stable")
    keys = -keys if descending else keys
    keys = np.where(np.isnan(keys), -np.inf if nan_first else np.inf, keys)
    return np.argsort(keys, axis, kind="stable")


def sorts():
    value, position = Golden("sort", "sort: rising or falling along axis=, stable, NaN last"), Golden("argsort", "argsort: where the elements of sort were")
    for i, (shape, axis) in enumerate(LINES + [((2, 9), 1)] * (2 * len(NUMBERS))):
        dtype, descending, index = NUMBERS[i % len(NUMBERS)], i % 2, ("i32", "i64")[i // 2 % 2]
        values = with_ties(shape, dtype)
        order = order_of(values, axis, descending)
        text = axis_text(shape, axis) + (", descending=1" if descending else "")
        x, y = value.input(values, dtype), value.fresh("y")
        value.add(f"SORT {y}, {x}{text}")
        value.expect(y, np.take_along_axis(values, order, axis), dtype)
        x, y = position.input(values, dtype), position.fresh("y")
        position.add(f"ARGSORT {y}, {x}{text}" + (", dtype=i64" if index == "i64" else ""))
        position.expect(y, order, index)
    value.write()
    position.write()


def top_k():
    g = Golden("topk", "topk: the k largest along axis=, falling; the first of equal ones first, NaN is the largest")
    cases = [((7,), 0, 3), ((7,), 0, 7), ((7,), 0, 0), ((2, 5), -1, 1), ((5, 2), 0, 4), ((2, 3, 4), 1, 2), ((1, 1), 0, 1),
             ((3, 0), 0, 2), ((2, 3, 1, 2, 3), 1, 2), ((33,), -1, 31), ((65, 3), 0, 2)]
    for i, (shape, axis, k) in enumerate(cases + [((2, 9), 1, 4)] * (2 * len(NUMBERS))):
        dtype, index = NUMBERS[i % len(NUMBERS)], ("i32", "i64")[i // 2 % 2]
        values = with_ties(shape, dtype)
        if dtype in FLOATS:  # infinities would tie with the keys of NaN
            assert not np.isinf(values).any()
        order = np.take(order_of(values, axis, True, nan_first=True), range(k), axis)
        x, y, at = g.input(values, dtype), g.fresh("y"), g.fresh("at")
        if index == "i64":
            g.lines.append(f".local {at} i64{shape_text(order.shape)}")
        g.add(f"TOPK {y}, {at}, {x}, k={k}" + axis_text(shape, axis))
        g.expect(y, np.take_along_axis(values, order, axis), dtype)
        g.expect(at, order, index)
    g.write()


def outer():
    g = Golden("outer", "outer: dst[i, j] = a[i] * b[j]")
    for i, (m, n) in enumerate([(2, 3), (1, 1), (0, 3), (3, 0), (33, 2)] + [(3, 2)] * len(NUMBERS)):
        dtype = NUMBERS[i % len(NUMBERS)]
        a, b = sample(rng, (m,), dtype), sample(rng, (n,), dtype)
        wide = integers_wrap(dtype)
        product = np.outer(a.astype(wide), b.astype(wide))
        x, z, y = g.input(a, dtype), g.input(b, dtype), g.fresh("y")
        g.add(f"OUTER {y}, {x}, {z}")
        g.expect(y, cast(product, dtype), dtype)
        before = sample(rng, (m, n), dtype)
        total = g.declare("state", before, dtype, g.fresh("total"))
        g.add(f"OUTER {total}, {x}, {z}, acc=1")
        g.expect(total, cast(before.astype(wide) + product, dtype), dtype)
    g.write()


def dot():
    g = Golden("dot", "dot: the sum of a * b over the last axis")
    cases = [(5,), (1,), (0,), (2, 3), (2, 0), (0, 3), (2, 1, 3, 2), (33,), (3, 65)]
    for i, shape in enumerate(cases + [(7,)] * len(NUMBERS)):
        dtype = NUMBERS[i % len(NUMBERS)]
        a, b = sample(rng, shape, dtype), sample(rng, shape, dtype)
        wide = integers_wrap(dtype)
        result = np.array((a.astype(wide) * b.astype(wide)).sum(-1, dtype=wide))  # exact: 1/64 of integers
        x, z, y = g.input(a, dtype), g.input(b, dtype), g.fresh("y")
        g.add(f"DOT {y}, {x}, {z}")
        g.expect(y, cast(result, dtype), dtype)
        if dtype in HALVES:
            y = g.fresh("wide")
            g.add(f"DOT {y}, {x}, {z}, dtype=f32")
            g.expect(y, result, "f32")
        before = sample(rng, result.shape, dtype)
        total = g.declare("state", before, dtype, g.fresh("total"))
        g.add(f"DOT {total}, {x}, {z}, acc=1")
        g.expect(total, cast(before.astype(wide) + result, dtype), dtype)
    g.write()


with np.errstate(over="ignore"):
    for write in (cumulative, cumprod_grad, sorts, top_k, outer, dot):
        write()
