"""Golden tapes of the reductions, ARGMAX, ARGMIN and the gradients of PROD, REDUCE_MAX, REDUCE_MIN.

Inputs lie on a coarse grid, so sums are exact in float64 and rounded once: `==`. Whatever divides, takes roots or
logarithms is compared with the default tolerance of its dtype.
"""
import numpy as np

from golden import FLOATS, HALVES, INTS, Golden, cast, sample

rng = np.random.default_rng(41)
NUMBERS = FLOATS + INTS
# shape, axes (None: all)
CASES = [((), None), ((1,), None), ((7,), (0,)), ((31,), None), ((33,), (-1,)), ((255,), None), ((1025,), (0,)),
         ((2, 3), (0,)), ((2, 3), (1,)), ((32, 5), (0,)), ((3, 33), (1,)), ((2, 3, 4), (1,)), ((2, 3, 4), (0, 2)),
         ((2, 3, 4), (0, 1)), ((2, 1, 4), (1,)), ((2, 3, 2, 2, 3), (1, 3)), ((2, 3, 2, 2, 3), (0, 2, 4)),
         ((2, 3, 2, 2, 3), (4, -5)), ((1, 1, 1, 1, 1), (2,))]
EMPTY = [((0,), None), ((3, 0), (1,)), ((0, 3), (0,)), ((2, 0, 3), (0, 1)), ((0, 3), (1,)), ((3, 0), (0,))]
SPECIAL = np.array([[1, np.nan, 2], [np.inf, 1, -np.inf], [-np.inf, -1, -2], [np.inf, 5, 1], [-np.inf] * 3,
                    [-0.0, -0.0, -0.0], [0.0, -0.0, 0.0]])


def wide(values):
    """float64 for floats, the type itself for integers and bools."""
    return values.astype(np.float64) if values.dtype.kind == "f" else values


def axes_text(axes, keep=False):
    text = "" if axes is None else f", axes=[{', '.join(map(str, axes))}]"
    return text + (", keepdims=1" if keep else "")


def all_axes(values, axes):
    return tuple(range(values.ndim)) if axes is None else axes


def reduction(mnemonic, about, function, dtypes, values_of=sample, exact=False, empty=True, special=True, halves=True,
              accumulate=True, cases=CASES, attrs=""):
    """function(values in float64 or integer, axes, keepdims) -> the exact result."""
    name = mnemonic.lower()
    g = Golden(name, f"{name}: {about}")

    def one(values, dtype, axes, keep=False, out=None, before=None):
        out = out or dtype
        with np.errstate(all="ignore"):
            wanted = function(wide(values), all_axes(values, axes), keep)
        x = g.input(values, dtype)
        text = axes_text(axes, keep) + attrs
        if before is None:
            y = g.fresh("y")
            g.add(f"{mnemonic} {y}, {x}{text}" + (f", dtype={out}" if out != dtype else ""))
        else:
            start = cast(np.full(np.shape(wanted), before), out)
            y = g.declare("state", start, out)
            g.add(f"{mnemonic} {y}, {x}{text}, acc=1")
            with np.errstate(all="ignore"):
                wanted = wide(start) + wanted
        with np.errstate(all="ignore"):
            g.expect(y, cast(wanted, out), out, "==" if exact or dtype not in FLOATS else "~")

    for i, (shape, axes) in enumerate(cases):
        for dtype in dict.fromkeys([dtypes[i % len(dtypes)], dtypes[0]]):
            one(values_of(rng, shape, dtype), dtype, axes, keep=i % 3 == 1)
    for dtype in dtypes:
        one(values_of(rng, (3, 5), dtype), dtype, (1,))
        one(values_of(rng, (5, 3), dtype), dtype, (0,), keep=True)
    if empty:
        for i, (shape, axes) in enumerate(EMPTY):
            one(values_of(rng, shape, dtypes[i % len(dtypes)]), dtypes[i % len(dtypes)], axes)
    if special:
        for dtype in [d for d in dtypes if d in FLOATS]:
            one(cast(SPECIAL, dtype), dtype, (1,))
            one(cast(SPECIAL.T, dtype), dtype, (0,))
    if halves:
        for dtype in [d for d in HALVES if d in dtypes]:
            one(values_of(rng, (4, 9), dtype), dtype, (1,), out="f32")
    if accumulate:
        for dtype in dtypes:
            one(values_of(rng, (4, 3), dtype), dtype, (0,), before=3)
            if dtype in HALVES and halves:
                one(values_of(rng, (4, 3), dtype), dtype, (1,), out="f32", before=-2)
    g.write()


def small_factors(generator, shape, dtype):
    """Factors whose products stay exact: powers of two and a few threes."""
    values = generator.choice([1, 1, 1, 2, 0.5] if dtype in FLOATS else [1, 1, 2, 3, 127 if dtype == "i8" else 255], shape)
    if dtype != "u8":
        values = values * generator.choice([1, -1], shape)
    return cast(values, dtype)


def with_negative_zero_sum(values, axes, keep):
    """NumPy starts a sum at +0 on some paths; a sum of -0 alone is -0 here, and so is NumPy's own since 1.25."""
    total = np.sum(values, axes, keepdims=keep, dtype=values.dtype)
    if values.dtype.kind != "f":
        return total
    minus = np.all((values == 0) & np.signbit(values), axes, keepdims=keep)
    count = int(np.prod([values.shape[axis] for axis in axes]))
    return np.where(minus & (count > 0), -0.0, total + 0.0)


def maximum(values, axes, keep, sign=1):
    """IEEE 754-2019: NaN wins, -0 < +0 (np.max leaves the sign of zero open)."""
    best = (np.max if sign > 0 else np.min)(values, axes, keepdims=keep)
    if values.dtype.kind != "f":
        return best
    zero = values == 0
    positive = np.any(zero & ~np.signbit(values), axes, keepdims=keep)
    negative = np.any(zero & np.signbit(values), axes, keepdims=keep)
    return np.where(best == 0, np.where(positive if sign > 0 else ~negative, 0.0, -0.0), best)


def logsumexp(values, axes, keep):
    if any(values.shape[axis] == 0 for axis in axes):
        return np.full(np.sum(values, axes, keepdims=keep).shape, -np.inf)
    top = np.max(values, axes, keepdims=True)
    total = top + np.log(np.sum(np.exp(values - top), axes, keepdims=True))
    total = np.where(np.isinf(top), top, total)
    return total if keep else np.squeeze(total, axes)


def reductions():
    reduction("SUM", "over axes=, all when not given; integers wrap; -0 alone sums to -0; 0 over nothing",
              with_negative_zero_sum, NUMBERS, exact=True)
    reduction("MEAN", "over axes=; halves divide in f32 and round once", lambda v, a, k: np.mean(v, a, keepdims=k),
              FLOATS, empty=False)
    reduction("PROD", "over axes=; integers wrap; 1 over nothing",
              lambda v, a, k: np.prod(v, a, keepdims=k, dtype=v.dtype), NUMBERS, values_of=small_factors, exact=True)
    reduction("REDUCE_MAX", "NaN wins, -0 < +0", maximum, NUMBERS, exact=True, empty=False, halves=False,
              accumulate=False)
    reduction("REDUCE_MIN", "NaN wins, -0 < +0", lambda v, a, k: maximum(v, a, k, -1), NUMBERS, exact=True, empty=False,
              halves=False, accumulate=False)
    reduction("ANY", "whether any element is true; false over nothing", lambda v, a, k: np.any(v, a, keepdims=k),
              ["bool"], special=False, accumulate=False)
    reduction("ALL", "whether every element is true; true over nothing", lambda v, a, k: np.all(v, a, keepdims=k),
              ["bool"], special=False, accumulate=False,
              values_of=lambda r, shape, _: r.random(shape) < 0.9)
    reduction("LOGSUMEXP", "without overflow; -inf over nothing and over -inf alone", logsumexp, FLOATS)
    reduction("NORM2", "root of the sum of squares; 0 over nothing",
              lambda v, a, k: np.sqrt(np.sum(v * v, a, keepdims=k)), FLOATS)
    reduction("VAR", "divided by n", lambda v, a, k: np.var(v, a, keepdims=k), FLOATS, empty=False)


def variance_corrections():
    g = Golden("var-correction", "var: divided by max(0, n - correction)")
    for dtype in FLOATS:
        for correction in (1, 0.5, 3, 4):
            values = sample(rng, (2, 3), dtype)
            squares = np.sum((wide(values) - np.mean(wide(values), 1, keepdims=True)) ** 2, 1)
            y = g.fresh("y")
            g.add(f"VAR {y}, {g.input(values, dtype)}, axes=1, correction={correction}")
            with np.errstate(all="ignore"):
                g.expect(y, cast(squares / max(0.0, 3 - correction), dtype), dtype, "~")
    values = cast([1e6 + 1, 1e6 + 2, 1e6 + 3, 1e6 + 4], "f32")  # two passes: E[x^2] - E[x]^2 would lose all digits
    g.add(f"VAR shifted, {g.input(values, 'f32')}")
    g.expect("shifted", [1.25], "f32", "==")
    g.write()


def arg_reductions():
    for mnemonic, function, sign in (("ARGMAX", np.argmax, 1), ("ARGMIN", np.argmin, -1)):
        g = Golden(mnemonic.lower(), f"{mnemonic.lower()}: the first wins, the first NaN wins, zeros of both signs tie")

        def one(values, dtype, axis, keep=False, out="i32"):
            y = g.fresh("y")
            text = f", axis={axis}" + (", keepdims=1" if keep else "") + (f", dtype={out}" if out != "i32" else "")
            g.add(f"{mnemonic} {y}, {g.input(values, dtype)}{text}")
            wanted = function(wide(values), axis)
            g.expect(y, np.expand_dims(wanted, axis) if keep else wanted, out)

        shapes = [((1,), 0), ((7,), 0), ((31,), -1), ((33,), 0), ((255,), 0), ((1025,), 0), ((2, 3), 0), ((2, 3), 1),
                  ((3, 70), 0), ((0, 3), 1), ((2, 3, 4), 1), ((2, 3, 2, 2, 3), 2), ((2, 3, 2, 2, 3), -5), ((4, 1), 1)]
        for i, (shape, axis) in enumerate(shapes):
            for dtype in (NUMBERS[i % len(NUMBERS)], "f32"):
                one(sample(rng, shape, dtype), dtype, axis, i % 3 == 0, ("i32", "i64")[i % 2])
        for dtype in NUMBERS:
            one(cast(rng.integers(0, 3, (4, 9)), dtype), dtype, 1)  # ties
        special = np.array([[1, np.nan, np.nan], [-0.0, 0.0, -0.0], [np.inf, 1, np.inf], [-np.inf, -np.inf, np.inf],
                            [np.nan, np.inf, -np.inf]])
        for dtype in FLOATS:
            one(cast(special, dtype), dtype, 1)
            one(cast(special.T, dtype), dtype, 0)
        g.write()


def others_product(values, axes):
    """For each element the product of the other elements of its group."""
    axes = tuple(sorted(axis % values.ndim for axis in axes))
    kept = [axis for axis in range(values.ndim) if axis not in axes]
    moved = np.transpose(values, kept + list(axes))
    flat = moved.reshape([values.shape[axis] for axis in kept] + [int(np.prod([values.shape[axis] for axis in axes]))])
    n = flat.shape[-1]
    result = np.stack([np.prod(np.delete(flat, i, -1), -1) for i in range(n)], -1) if n else flat
    inverse = np.argsort(kept + list(axes))
    return np.transpose(result.reshape(moved.shape), inverse)


def first_extremum(values, axes, sign):
    """1 at the first extremum of each group in row-major order over the reduced axes."""
    axes = tuple(sorted(axis % values.ndim for axis in axes))
    kept = [axis for axis in range(values.ndim) if axis not in axes]
    moved = np.transpose(values, kept + list(axes))
    flat = moved.reshape([values.shape[axis] for axis in kept] + [int(np.prod([values.shape[axis] for axis in axes]))])
    if flat.shape[-1] == 0 or flat.size == 0:
        return np.zeros(values.shape, np.bool_)
    at = (np.argmax if sign > 0 else np.argmin)(flat, -1)
    mask = np.arange(flat.shape[-1]) == at[..., None]
    return np.transpose(mask.reshape(moved.shape), np.argsort(kept + list(axes)))


def gradient(mnemonic, about, local, values_of, exact):
    name = mnemonic.lower()
    g = Golden(name, f"{name}: {about}")
    wide_g = mnemonic == "PROD_GRAD"

    def one(values, dtype, axes, keep=False, before=None, g_dtype=None):
        g_dtype = g_dtype or dtype
        reduced = np.sum(wide(values), all_axes(values, axes), keepdims=keep)
        upstream = cast(rng.integers(-8, 9, np.shape(reduced)) / 4, g_dtype)
        full = np.sum(wide(values), all_axes(values, axes), keepdims=True)
        with np.errstate(all="ignore"):
            spread = wide(np.asarray(upstream)).reshape(full.shape)
            result = np.where(local(wide(values), all_axes(values, axes)), spread, 0.0) if not wide_g else \
                spread * local(wide(values), all_axes(values, axes))
        x, up = g.input(values, dtype), g.input(upstream, g_dtype)
        text = axes_text(axes, keep)
        if before is None:
            y = g.fresh("y")
            g.add(f"{mnemonic} {y}, {x}, {up}{text}")
        else:
            start = cast(np.full(values.shape, before), dtype)
            y = g.declare("state", start, dtype)
            g.add(f"{mnemonic} {y}, {x}, {up}{text}, acc=1")
            result = wide(start) + result
        g.expect(y, cast(result, dtype), dtype, "==" if exact else "~")

    for i, (shape, axes) in enumerate(CASES + [((0, 3), (1,)), ((3, 70), (0,))]):
        dtype = FLOATS[i % 4]
        one(values_of(rng, shape, dtype), dtype, axes, i % 3 == 1, before=None if i % 2 else 1)
    for dtype in FLOATS:
        one(values_of(rng, (3, 4), dtype), dtype, (1,))
        one(values_of(rng, (3, 4), dtype), dtype, (0,), before=2)
    return g, one


def gradients():
    def factors(generator, shape, dtype):
        return cast(generator.choice([0, 1, 1, -1, 2, 0.5, -0.5, 4], shape), dtype)

    g, one = gradient("PROD_GRAD", "g times the product of the other elements, exact where elements are zero",
                      others_product, lambda r, s, d: np.abs(factors(r, s, d)) + 0.0, True)
    for dtype in FLOATS:
        one(cast([[0, 2, 3], [0, 0, 5], [1, np.inf, 2]], dtype), dtype, (1,))
    for dtype in HALVES:
        one(cast([[0.5, 2, 3], [1, 3, 5]], dtype), dtype, (1,), g_dtype="f32")
    g.write()
    ties = lambda generator, shape, dtype: cast(generator.integers(-2, 3, shape), dtype)
    for mnemonic, sign, what in (("REDUCE_MAX_GRAD", 1, "maximum"), ("REDUCE_MIN_GRAD", -1, "minimum")):
        g, one = gradient(mnemonic, f"g at the first {what} of each group, NaN first, 0 elsewhere",
                          lambda v, a, s=sign: first_extremum(v, a, s), ties, True)
        for dtype in FLOATS:
            one(cast([[1, np.nan, np.nan], [-0.0, 0.0, 0.0], [np.inf, np.inf, 0], [-np.inf, 1, -np.inf]], dtype), dtype,
                (1,))
        g.write()


reductions()
variance_corrections()
arg_reductions()
gradients()
