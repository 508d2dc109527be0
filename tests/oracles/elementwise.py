"""Golden tapes of the elementwise rows: exact rows by NumPy, functions by mpmath at 60 digits, rounded to the dtype."""
import mpmath
import numpy as np

from golden import FLOATS, INTS, NUMPY, Golden, cast, f64, quiet, sample, shape_text

mpmath.mp.dps = 60
rng = np.random.default_rng(3)
NUMBERS = FLOATS + INTS
SHAPES = [(), (1,), (0,), (7,), (2, 3), (3, 0, 2), (2, 3, 4), (2, 1, 3, 2), (2, 3, 1, 2, 3), (33,)]
PAIRS = [((), ()), ((5,), ()), ((), (5,)), ((0,), (1,)), ((2, 3), (3,)), ((2, 1), (1, 3)), ((3,), (2, 3)), ((2, 3, 1), (2, 1, 4)),
         ((1, 2, 1, 3), (2, 1, 2, 1)), ((2, 1, 3, 1, 2), (1, 3, 1, 2)), ((33,), (33,)), ((3, 1), (3, 5))]
EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, -7.25, 100.0, -100.0, 1e-45, -1e-45, 6e-8, -6e-8, 1e-30, 65504.0, -65504.0,
         3e38, -3e38, np.inf, -np.inf, np.nan]
# One unit in the last place of the dtype, relative and at the bottom of its range.
TOLERANCE = {"f64": "rtol=4e-15 atol=1e-322", "f32": "rtol=1.2e-7 atol=1.5e-45", "f16": "rtol=1e-3 atol=6e-8",
             "bf16": "rtol=8e-3 atol=1e-40"}


def edges(dtype):
    with np.errstate(over="ignore"):
        return cast(np.array(EDGES), dtype) if dtype != "f64" else np.array(EDGES)


def compute(function, dtype, *values):
    """An exact function in the row's compute type, rounded to the dtype."""
    if dtype in FLOATS:
        wide = np.float64 if dtype == "f64" else np.float32
        return quiet(lambda: cast(function(*[np.asarray(v, dtype=wide) for v in values]), dtype))
    return quiet(lambda: np.asarray(function(*values)).astype(NUMPY[dtype]))


# ---- unary ----
def sign(x):
    return np.where(np.isnan(x) | (x == 0), x, np.sign(x))


def relu(x):
    return np.where(x > 0, x, np.where(np.isnan(x), x, np.zeros_like(x)))


EXACT_UNARY = {
    "neg": (np.negative, NUMBERS, "dst = -src; integers wrap"),
    "abs": (np.abs, NUMBERS, "dst = |src|; the smallest integer wraps to itself"),
    "sign": (sign, NUMBERS, "-1, 0 or 1; -0 and NaN keep themselves"),
    "square": (np.square, NUMBERS, "src * src; integers wrap"),
    "sqrt": (np.sqrt, FLOATS, "correctly rounded; NaN below zero"),
    "recip": (lambda x: x.dtype.type(1) / x, FLOATS, "1 / src"),
    "floor": (np.floor, FLOATS, "the largest integer not above src"),
    "ceil": (np.ceil, FLOATS, "the smallest integer not below src"),
    "round": (np.rint, FLOATS, "halves to even; -0 stays -0"),
    "trunc": (np.trunc, FLOATS, "src without its fraction"),
    "relu": (relu, FLOATS, "src > 0 ? src : (NaN ? src : +0)"),
    "leaky_relu": (lambda x: np.where(x > 0, x, x.dtype.type(0.01) * x), FLOATS, "alpha= is 0.01 rounded to the compute type"),
    "hardtanh": (lambda x: np.clip(x, x.dtype.type(-1), x.dtype.type(1)), FLOATS, "limited to [-1, 1]; NaN stays NaN"),
}


def int_edges(dtype):
    info = np.iinfo(NUMPY[dtype])
    return np.array([info.min, info.max, 0, 1, info.max // 2 + 1, info.max - 1], dtype=NUMPY[dtype])


def exact_unary():
    for name, (function, dtypes, about) in EXACT_UNARY.items():
        g = Golden(name, f"{name}: {about}")
        inputs = [(dtype, sample(rng, shape, dtype)) for dtype, shape in zip(dtypes * 5, SHAPES)]
        inputs += [(dtype, edges(dtype) if dtype in FLOATS else int_edges(dtype)) for dtype in dtypes]
        for dtype, values in inputs:
            x, y = g.input(values, dtype), g.fresh("y")
            g.add(f"{name.upper()} {y}, {x}")
            g.expect(y, compute(function, dtype, values), dtype)
        in_place_and_acc(g, name, function, dtypes)
        g.write()


def in_place_and_acc(g, name, function, dtypes):
    """dst equal to the source, and acc=1 on values whose sums are exact."""
    for dtype in dtypes:
        values = cast(np.array([4, 16, 1, 64, 0.25]), dtype)
        x, y = g.input(values, dtype), g.fresh("y")
        result = compute(function, dtype, values)
        g.add(f"COPY {y}, {x}")
        g.add(f"{name.upper()} {y}, {y}")
        g.expect(y, result, dtype)
        old = cast(np.array([8, -2, 0, 1, 3]), dtype)
        total = compute(lambda r, o: r + o, dtype, result, old)
        z, start = g.fresh("z"), g.input(old, dtype)
        g.add(f"COPY {z}, {start}")
        g.add(f"{name.upper()} {z}, {x}, acc=1")
        if name == "leaky_relu" or dtype in INTS or name != "recip":
            g.expect(z, total, dtype)
        else:
            g.expect(z, total, dtype, "~", TOLERANCE[dtype])


def predicates():
    for name, function in [("isnan", np.isnan), ("isfinite", np.isfinite)]:
        g = Golden(name, f"{name}: bool[...] of every float dtype")
        for dtype, shape in zip(FLOATS * 3, SHAPES):
            values = sample(rng, shape, dtype)
            x, y = g.input(values, dtype), g.fresh("y")
            g.add(f"{name.upper()} {y}, {x}")
            g.expect(y, function(values), "bool")
        for dtype in FLOATS:
            x, y = g.input(edges(dtype), dtype), g.fresh("y")
            g.add(f"{name.upper()} {y}, {x}")
            g.expect(y, function(edges(dtype)), "bool")
        g.write()
    g = Golden("not", "not: bools logically, integers bit by bit")
    for dtype, shape in zip((INTS + ["bool"]) * 3, SHAPES):
        values = sample(rng, shape, dtype)
        x, y = g.input(values, dtype), g.fresh("y")
        g.add(f"NOT {y}, {x}")
        g.expect(y, np.logical_not(values) if dtype == "bool" else np.invert(values), dtype)
    g.write()


def clip():
    g = Golden("clip", "clip: a bound that is not given does not limit; NaN stays NaN")
    cases = [(dtype, lo, hi) for dtype in NUMBERS for lo, hi in [(1, 5), (None, 3), (2, None), (None, None)]]
    for i, (dtype, lo, hi) in enumerate(cases):
        values = sample(rng, SHAPES[i % len(SHAPES)], dtype) if i % 3 else (edges(dtype) if dtype in FLOATS else int_edges(dtype))
        x, y = g.input(values, dtype), g.fresh("y")
        g.add(f"CLIP {y}, {x}" + (f", lo={lo}" if lo is not None else "") + (f", hi={hi}" if hi is not None else ""))
        low = values if lo is None else np.where(values < lo, cast(np.array(lo), dtype), values)
        g.expect(y, low if hi is None else np.where(low > hi, cast(np.array(hi), dtype), low), dtype)
    x, y = g.input(cast(np.array([-3.0, 0.1, 0.5]), "f32"), "f32"), g.fresh("y")
    g.add(f"CLIP {y}, {x}, lo=0.1, hi=0.3")  # 0.1 and 0.3 as f32
    g.expect(y, cast(np.array([0.1, 0.1, 0.3]), "f32"), "f32")
    g.write()


# ---- functions ----
def mp(function):
    """A function of mpmath numbers as one of floats, infinities and NaN handled by `limits`."""
    def call(*values):
        return float(function(*[mpmath.mpf(float(v)) for v in values]))
    return call


def sigmoid(x):
    return 1 / (1 + mpmath.exp(-x))


def half_erfc(x):
    return mpmath.erfc(-x / mpmath.sqrt(2)) / 2


# name: function of a finite mpf, value at -inf, value at +inf, extra inputs
FUNCTIONS = {
    "exp": (mpmath.exp, 0.0, np.inf, [88.7, 88.8, -103.9, -104.0, 11.0, 11.1]),
    "expm1": (mpmath.expm1, -1.0, np.inf, [1e-6, -1e-6, 88.8, -17.0, -25.0]),
    "log": (mpmath.log, np.nan, np.inf, [0.999, 1.001, 2.0, 10.0]),
    "log1p": (mpmath.log1p, np.nan, np.inf, [1e-6, -1e-6, -0.999, -1.5, 10.0]),
    "sin": (mpmath.sin, np.nan, np.nan, [3.1415927, 1e4, 1e10, 1e22, 16367173.0 * 2.0**72, 1048576.5]),
    "cos": (mpmath.cos, np.nan, np.nan, [1.5707964, 1e4, 1e10, 1e22, 16367173.0 * 2.0**72, 1048576.5]),
    "tan": (mpmath.tan, np.nan, np.nan, [1.5707964, 1e4, 1e10, 1e22, 16367173.0 * 2.0**72, 0.78539816]),
    "tanh": (mpmath.tanh, -1.0, 1.0, [1e-5, 8.0, 9.5, -20.0]),
    "sigmoid": (sigmoid, 0.0, 1.0, [16.0, 17.5, -16.0, -88.0, -103.0, -104.5]),
    "erf": (mpmath.erf, -1.0, 1.0, [1e-6, 0.49, 0.51, 3.9, 4.0, 6.5]),
    "gelu": (lambda x: x * half_erfc(x), np.nan, np.inf, [1e-6, -5.0, -10.0, -13.5, -14.5, 6.0]),
    "gelu_tanh": (lambda x: x * sigmoid(2 * mpmath.sqrt(2 / mpmath.pi) * (x + mpmath.mpf(0.044715) * x**3)), np.nan, np.inf,
                  [1e-6, -5.0, -8.0, -10.5, 6.0]),
    "silu": (lambda x: x * sigmoid(x), np.nan, np.inf, [1e-6, -16.0, -90.0, -105.0, 20.0]),
    "mish": (lambda x: x * mpmath.tanh(mpmath.log1p(mpmath.exp(x))), np.nan, np.inf, [1e-6, -16.0, -90.0, -105.0, 20.0]),
    "softplus": (lambda x: mpmath.log1p(mpmath.exp(x)), 0.0, np.inf, [1e-6, -16.0, -90.0, -104.5, 20.0]),
    "rsqrt": (lambda x: 1 / mpmath.sqrt(x), np.nan, 0.0, [4.0, 16.0, 0.25, 2.0]),
    "elu": (mpmath.expm1, -1.0, np.inf, [1e-6, -16.0, -0.001]),
}
POLES = {("log", 0.0): -np.inf, ("log1p", -1.0): -np.inf}


def evaluate(name, value):
    function, low, high, _ = FUNCTIONS[name]
    x = float(value)
    if np.isnan(x):
        return x
    if np.isinf(x):
        return high if x > 0 else low
    if (name, x) in POLES:
        return POLES[name, x]
    if name == "rsqrt" and x == 0:
        return float(np.copysign(np.inf, x))
    if (name in ("log", "rsqrt") and x < 0) or (name == "log1p" and x < -1):
        return np.nan
    if name == "elu" and x > 0:
        return x
    if x == 0 and float(function(mpmath.mpf(0))) == 0:
        return x  # the odd ones keep the sign of zero
    with mpmath.workdps(60 if abs(x) < 1e6 else 400):
        return float(function(mpmath.mpf(x)))


def functions():
    for name, (_, _, _, extra) in FUNCTIONS.items():
        g = Golden(name, f"{name}: within one unit in the last place of mpmath's value at 60 digits")
        inputs = [(dtype, cast(rng.normal(0, 3, shape), dtype)) for dtype, shape in zip(FLOATS * 3, SHAPES)]
        for dtype in FLOATS:
            with np.errstate(over="ignore"):
                wide = np.array(EDGES + extra) if dtype in ("f64", "f32") else np.array(EDGES + [v for v in extra if abs(v) < 6e4])
                inputs.append((dtype, cast(wide, dtype)))
        for dtype, values in inputs:
            if dtype == "f64" and name in ("tan", "gelu_tanh"):
                values = values[np.abs(values) < 1e15] if values.ndim == 1 else values
            x, y = g.input(values, dtype), g.fresh("y")
            g.add(f"{name.upper()} {y}, {x}")
            result = np.vectorize(lambda v: evaluate(name, v), otypes=[np.float64])(f64(values)) if values.size else f64(values)
            with np.errstate(over="ignore"):
                # e^x turns the last bit of an f64 argument near 100 into 100 last bits of the result.
                tolerance = "rtol=3e-14 atol=1e-322" if dtype == "f64" and name == "gelu_tanh" else TOLERANCE[dtype]
                g.expect(y, cast(result, dtype), dtype, "~", tolerance)
        values, old = cast(np.array([1, 2, 0.5]), "f32"), cast(np.array([10, -20, 4]), "f32")
        x, start, z = g.input(values, "f32"), g.input(old, "f32"), g.fresh("z")
        result = cast(np.array([evaluate(name, v) for v in values]), "f32")
        g.add(f"COPY {z}, {start}")
        g.add(f"{name.upper()} {z}, {x}, acc=1")
        g.expect(z, result + old, "f32", "~", "rtol=1.2e-7 atol=1e-6")
        if name == "elu":
            x, y = g.input(cast(np.array([-1, 1, -0.5]), "f32"), "f32"), g.fresh("y")
            g.add(f"ELU {y}, {x}, alpha=0.1")
            alpha = float(np.float32(0.1))
            g.expect(y, cast(np.array([alpha * np.expm1(-1.0), 1, alpha * np.expm1(-0.5)]), "f32"), "f32", "~", TOLERANCE["f32"])
        g.write()


# ---- binary ----
def minimum(a, b):
    r = np.where(a < b, a, np.where(b < a, b, np.where(np.signbit(a) if a.dtype.kind == "f" else False, a, b)))
    return np.where(np.isnan(a), a, np.where(np.isnan(b), b, r)) if a.dtype.kind == "f" else r


def maximum(a, b):
    r = np.where(a > b, a, np.where(b > a, b, np.where(np.signbit(a) if a.dtype.kind == "f" else False, b, a)))
    return np.where(np.isnan(a), a, np.where(np.isnan(b), b, r)) if a.dtype.kind == "f" else r


EXACT_BINARY = {
    "add": (np.add, NUMBERS, "NumPy broadcasting; integers wrap"),
    "sub": (np.subtract, NUMBERS, "NumPy broadcasting; integers wrap"),
    "mul": (np.multiply, NUMBERS, "NumPy broadcasting; integers wrap"),
    "div": (np.divide, FLOATS, "floats; a zero divisor as IEEE"),
    "floor_div": (np.floor_divide, NUMBERS, "NumPy's floor_divide; the smallest integer by -1 wraps"),
    "mod": (np.remainder, NUMBERS, "the sign of the divisor"),
    "rem": (np.fmod, NUMBERS, "truncating: the sign of the dividend"),
    "min": (minimum, NUMBERS, "IEEE 754-2019 minimum: -0 < +0, NaN wins"),
    "max": (maximum, NUMBERS, "IEEE 754-2019 maximum: -0 < +0, NaN wins"),
}
DIVISIONS = ("floor_div", "mod", "rem")
COMPARISONS = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}


def corner_pairs(dtype):
    with np.errstate(over="ignore"):
        some = cast(np.array([0.0, -0.0, 1.0, -1.0, 2.5, -7.25, 65504.0, 6e-8, np.inf, -np.inf, np.nan]), dtype)
    a, b = np.meshgrid(some, some)
    return a.reshape(-1), b.reshape(-1)


def int_pairs(dtype, divisor):
    a, b = np.meshgrid(int_edges(dtype), int_edges(dtype))
    a, b = a.reshape(-1), b.reshape(-1)
    if dtype != "u8":
        a, b = np.append(a, a[:6]), np.append(b, np.full(6, -1, dtype=b.dtype))
    return (a[b != 0], b[b != 0]) if divisor else (a, b)


def nonzero(values):
    return np.where(values == 0, values.dtype.type(3), values)


def exact_binary():
    for name, (function, dtypes, about) in EXACT_BINARY.items():
        g = Golden(name, f"{name}: {about}")
        cases = []
        for (left, right), dtype in zip(PAIRS * 3, dtypes * 4):
            a, b = sample(rng, left, dtype), sample(rng, right, dtype)
            cases.append((dtype, a, nonzero(b) if dtype in INTS and name in DIVISIONS else b))
        for dtype in dtypes:
            cases.append((dtype, *(corner_pairs(dtype) if dtype in FLOATS else int_pairs(dtype, name in DIVISIONS))))
        for dtype, a, b in cases:
            x, z, y = g.input(a, dtype), g.input(b, dtype), g.fresh("y")
            g.add(f"{name.upper()} {y}, {x}, {z}")
            g.expect(y, compute(function, dtype, a, b), dtype)
        binary_extras(g, name, function, dtypes)
        g.write()


def binary_extras(g, name, function, dtypes):
    """Immediates, in place over a and over b, acc=1."""
    for dtype in dtypes:
        a = cast(np.array([[6, 12, 2], [4, 8, 10]]), dtype)
        immediate = cast(np.array(2), dtype)
        x, y = g.input(a, dtype), g.fresh("y")
        g.add(f"{name.upper()} {y}, {x}, 2")
        g.expect(y, compute(function, dtype, a, immediate), dtype)
        b = cast(np.array([[2, 4, 1], [1, 2, 5]]), dtype)
        z, left, right, total = g.input(b, dtype), g.fresh("left"), g.fresh("right"), g.fresh("total")
        result = compute(function, dtype, a, b)
        g.add(f"COPY {left}, {x}")
        g.add(f"{name.upper()} {left}, {left}, {z}")
        g.expect(left, result, dtype)
        g.add(f"COPY {right}, {z}")
        g.add(f"{name.upper()} {right}, {x}, {right}")
        g.expect(right, result, dtype)
        old = cast(np.array([[1, 2, 3], [4, 5, 6]]), dtype)
        start = g.input(old, dtype)
        g.add(f"COPY {total}, {start}")
        g.add(f"{name.upper()} {total}, {x}, {z}, acc=1")
        g.expect(total, compute(lambda r, o: r + o, dtype, result, old), dtype)
    if name in ("add", "mul"):  # a constant is rounded to the compute type first
        a = cast(np.array([1, 3, -7]), "f32")
        x, y = g.input(a, "f32"), g.fresh("y")
        g.add(f"{name.upper()} {y}, {x}, 0.1")
        g.expect(y, function(a, np.float32(0.1)), "f32")


def comparisons():
    for name, function in COMPARISONS.items():
        g = Golden(name, f"{name}: bool[...] of every dtype; NaN compares false but for NE")
        dtypes = NUMBERS + ["bool"]
        cases = [(dtype, sample(rng, left, dtype), sample(rng, right, dtype)) for (left, right), dtype in zip(PAIRS * 2, dtypes * 3)]
        cases += [(dtype, *(corner_pairs(dtype) if dtype in FLOATS else int_pairs(dtype, False))) for dtype in NUMBERS]
        cases.append(("bool", np.array([0, 0, 1, 1], dtype=bool), np.array([0, 1, 0, 1], dtype=bool)))
        for dtype, a, b in cases:
            x, z, y = g.input(a, dtype), g.input(b, dtype), g.fresh("y")
            g.add(f"{name.upper()} {y}, {x}, {z}")
            g.expect(y, function(a, b), "bool")
        for dtype in dtypes:
            a = sample(rng, (5,), dtype)
            x, y = g.input(a, dtype), g.fresh("y")
            g.add(f"{name.upper()} {y}, {x}, 1")
            g.expect(y, function(a, cast(np.array(1), dtype)), "bool")
        g.write()


def bitwise():
    rows = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
    for name, function in rows.items():
        g = Golden(name, f"{name}: bools logically, integers bit by bit")
        dtypes = INTS + ["bool"]
        cases = [(dtype, sample(rng, left, dtype), sample(rng, right, dtype)) for (left, right), dtype in zip(PAIRS, dtypes * 3)]
        cases.append(("bool", np.array([0, 0, 1, 1], dtype=bool), np.array([0, 1, 0, 1], dtype=bool)))
        cases += [(dtype, *int_pairs(dtype, False)) for dtype in INTS]
        for dtype, a, b in cases:
            x, z, y = g.input(a, dtype), g.input(b, dtype), g.fresh("y")
            g.add(f"{name.upper()} {y}, {x}, {z}")
            g.expect(y, function(a, b), dtype)
        for dtype in dtypes:
            a = sample(rng, (2, 3), dtype)
            x, y = g.input(a, dtype), g.fresh("y")
            g.add(f"COPY {y}, {x}")
            g.add(f"{name.upper()} {y}, {y}, 1")
            g.expect(y, function(a, cast(np.array(1), dtype)), dtype)
        g.write()


def shift(name, value, count, bits):
    """Exact: Python integers; counts outside the width give 0, SHR of a negative -1."""
    if not 0 <= count < bits:
        return -1 if name == "shr" and value < 0 else 0
    return value << count if name == "shl" else value >> count


def wrap(value, dtype):
    info = np.iinfo(NUMPY[dtype])
    return (value - int(info.min)) % (1 << info.bits) + int(info.min)


def shifts():
    for name in ("shl", "shr"):
        g = Golden(name, f"{name}: counts outside the width give 0, of a negative SHR -1")
        for i, (left, right) in enumerate(PAIRS + [((6, 1), (1, 9))] * len(INTS)):
            dtype = INTS[i % len(INTS)]
            a = sample(rng, left, dtype)
            b = rng.integers(0, 12, right).astype(NUMPY[dtype])
            if i >= len(PAIRS):
                bits = np.iinfo(NUMPY[dtype]).bits
                counts = [0, 1, bits - 1, bits, bits + 1, 100, 2, 3, -1 if dtype != "u8" else 255]
                a, b = int_edges(dtype).reshape(6, 1), np.array(counts, dtype=NUMPY[dtype]).reshape(1, 9)
            x, z, y = g.input(a, dtype), g.input(b, dtype), g.fresh("y")
            g.add(f"{name.upper()} {y}, {x}, {z}")
            aa, bb = np.broadcast_arrays(a, b)
            bits = np.iinfo(NUMPY[dtype]).bits
            result = [wrap(shift(name, int(v), int(c), bits), dtype) for v, c in zip(aa.reshape(-1), bb.reshape(-1))]
            g.expect(y, np.array(result, dtype=NUMPY[dtype]).reshape(aa.shape), dtype)
        x, y = g.input(np.array([-9, 9, 1000], dtype=np.int32), "i32"), g.fresh("y")
        g.add(f"{name.upper()} {y}, {x}, 3")
        g.expect(y, [wrap(shift(name, v, 3, 32), "i32") for v in (-9, 9, 1000)], "i32")
        g.write()


def power():
    g = Golden("pow", "pow: floats as IEEE 754, pow(0, 0) = 1; integers by repeated multiplication, wrapping")
    for (left, right), dtype in zip(PAIRS, FLOATS * 3):
        a, b = cast(rng.uniform(0.1, 5, left), dtype), cast(rng.normal(0, 2, right), dtype)
        x, z, y = g.input(a, dtype), g.input(b, dtype), g.fresh("y")
        g.add(f"POW {y}, {x}, {z}")
        g.expect(y, cast(np.vectorize(mp(mpmath.power), otypes=[np.float64])(f64(a), f64(b)) if (a + b).size else f64(a), dtype), dtype, "~", TOLERANCE[dtype])
    for dtype in FLOATS:
        with np.errstate(all="ignore"):
            some = cast(np.array([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 0.5, 1e30, 16777217.0, np.inf, -np.inf, np.nan]), dtype)
            a, b = [v.reshape(-1) for v in np.meshgrid(some, some)]
            result = cast(np.power(f64(a), f64(b)), dtype)  # C99 Annex F's table
        x, z, y = g.input(a, dtype), g.input(b, dtype), g.fresh("y")
        g.add(f"POW {y}, {x}, {z}")
        g.expect(y, result, dtype, "~", TOLERANCE[dtype])
    for dtype in INTS:
        a, b = [v.reshape(-1) for v in np.meshgrid(np.append(int_edges(dtype), [2, 3, 7]), np.array([0, 1, 2, 3, 7, 63, 100], dtype=NUMPY[dtype]))]
        a = a.astype(NUMPY[dtype])
        x, z, y = g.input(a, dtype), g.input(b, dtype), g.fresh("y")
        g.add(f"POW {y}, {x}, {z}")
        g.expect(y, np.array([wrap(int(v) ** int(e), dtype) for v, e in zip(a, b)], dtype=NUMPY[dtype]), dtype)
    a = cast(np.array([1, 2, 3, -4]), "f32")
    x, y, z = g.input(a, "f32"), g.fresh("y"), g.fresh("z")
    g.add(f"POW {y}, {x}, 3")
    g.expect(y, a**3, "f32", "~", TOLERANCE["f32"])
    g.add(f"COPY {z}, {x}")
    g.add(f"POW {z}, {x}, 2, acc=1")
    g.expect(z, a**2 + a, "f32", "~", TOLERANCE["f32"])
    g.write()


def atan2():
    g = Golden("atan2", "atan2: the angle of the point (b, a)")
    for (left, right), dtype in zip(PAIRS, FLOATS * 3):
        a, b = cast(rng.normal(0, 2, left), dtype), cast(rng.normal(0, 2, right), dtype)
        x, z, y = g.input(a, dtype), g.input(b, dtype), g.fresh("y")
        g.add(f"ATAN2 {y}, {x}, {z}")
        g.expect(y, cast(np.vectorize(mp(mpmath.atan2), otypes=[np.float64])(f64(a), f64(b)) if (a + b).size else f64(a), dtype), dtype, "~", TOLERANCE[dtype])
    for dtype in FLOATS:
        a, b = corner_pairs(dtype)
        x, z, y = g.input(a, dtype), g.input(b, dtype), g.fresh("y")
        g.add(f"ATAN2 {y}, {x}, {z}")
        g.expect(y, cast(np.arctan2(f64(a), f64(b)), dtype), dtype, "~", TOLERANCE[dtype])
    a = cast(np.array([1, -2, 0.5]), "f32")
    x, y, z = g.input(a, "f32"), g.fresh("y"), g.fresh("z")
    g.add(f"ATAN2 {y}, {x}, -1")
    g.expect(y, cast(np.arctan2(f64(a), -1.0), "f32"), "f32", "~", TOLERANCE["f32"])
    g.add(f"COPY {z}, {x}")
    g.add(f"ATAN2 {z}, {x}, 2, acc=1")
    g.expect(z, cast(np.arctan2(f64(a), 2.0) + f64(a), "f32"), "f32", "~", TOLERANCE["f32"])
    g.write()


def faults():
    """Found before anything is written: out keeps its old value."""
    cases = [("floor_div", [[1, 2], [3, 4]], [[5, 0], [0, 1]], "b[0,1] is 0"), ("mod", [1, 2, 3], [2, 1, 0], "b[2] is 0"),
             ("rem", 7, 0, "b is 0"), ("pow", [2, 3], [1, -4], "b[1] is -4")]
    for (name, a, b, text), dtype in zip(cases, ["i32", "u8", "i64", "i32"]):
        g = Golden(f"{name}-fault", f"{name}: the first element that cannot be")
        g.input(np.array(a, dtype=NUMPY[dtype]), dtype, "a")
        g.input(np.array(b, dtype=NUMPY[dtype]), dtype, "b")
        old = np.full(np.shape(a), 9)
        g.declare("state", old, dtype, "out")
        g.add(f"{name.upper()} out, a, b")
        g.expect_fault(name.upper(), text)
        g.expect("out", old, dtype)
        g.write()
    g = Golden("floor_div-constant-fault", "floor_div: a constant zero divisor")
    g.input(np.array([1, 2], dtype=np.int32), "i32", "a")
    g.add("FLOOR_DIV out, a, 0")
    g.expect_fault("FLOOR_DIV", "the constant is 0: integer division by zero")
    g.write()


if __name__ == "__main__":
    exact_unary()
    predicates()
    clip()
    functions()
    exact_binary()
    comparisons()
    bitwise()
    shifts()
    power()
    atan2()
    faults()
