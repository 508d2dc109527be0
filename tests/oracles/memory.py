"""Golden tapes of COPY, FILL, ZERO, ZERO_GRAD, IOTA, CAST, WHERE. Roundings are done in exact rational arithmetic."""
from fractions import Fraction

import numpy as np

from golden import ALL, FLOATS, FOLDER, INTS, NUMPY, Golden, cast, literals, sample, shape_text

rng = np.random.default_rng(4)
SHAPES = [(), (1,), (7,), (0,), (2, 3), (3, 0), (2, 3, 4), (2, 1, 3, 2), (2, 3, 1, 2, 3), (33,)]
# bits of mantissa (the hidden one too), exponent of the least normal, largest finite value
FORMATS = {"f64": (53, -1022, Fraction(2) ** 1024 - Fraction(2) ** 970), "f32": (24, -126, Fraction(2) ** 128 - Fraction(2) ** 103),
           "f16": (11, -14, Fraction(65504)), "bf16": (8, -126, Fraction(2) ** 128 - Fraction(2) ** 119)}


def round_exactly(value, dtype):
    """A finite number to the nearest value of a float dtype, ties to even; overflow is infinite."""
    bits, least, largest = FORMATS[dtype]
    exact = abs(Fraction(value))
    if exact == 0:
        return float(value)
    exponent = max(least, int(np.floor(np.log2(float(exact)))) if exact < Fraction(2) ** 1000 else 1000)
    while Fraction(2) ** exponent > exact and exponent > least:
        exponent -= 1
    while Fraction(2) ** (exponent + 1) <= exact:
        exponent += 1
    unit = Fraction(2) ** (exponent - bits + 1)
    rounded = round(exact / unit) * unit  # Python's round of a Fraction is half to even
    result = float("inf") if rounded > largest else float(rounded)
    return -result if value < 0 else result


def cast_one(value, source, target):
    """CAST of one element: numbers as Python ints and floats."""
    if target == "bool":
        return value != 0
    if target in FLOATS:
        if source in FLOATS and (np.isnan(value) or np.isinf(value) or value == 0):
            return value
        return round_exactly(value, target)
    info = np.iinfo(NUMPY[target])
    if source not in FLOATS:
        return (int(value) - int(info.min)) % (1 << info.bits) + int(info.min)
    if np.isnan(value):
        return 0
    if np.isinf(value):
        return info.max if value > 0 else info.min
    return min(max(int(value), int(info.min)), int(info.max))


def corners(dtype):
    if dtype == "bool":
        return np.array([0, 1, 1, 0], dtype=bool)
    if dtype in INTS:
        info = np.iinfo(NUMPY[dtype])
        some = [0, 1, 255, 2049, 4097, 65519, 65520, 16777217, 33554435, 2**24 + 2**16, 2**24 + 2**16 + 1, 2**60 + 2**36 + 1, 2**60 + 2**52 + 1]
        some = [v for v in some if v <= info.max]
        return np.array(some + [-v for v in some if info.min < 0] + [info.min, info.max], dtype=NUMPY[dtype])
    some = np.array([0.0, -0.0, 0.5, -0.5, 1.5, -1.5, 2.5, 254.9, 255.5, 256, -1, 1e-45, 6e-8, 3e-8, 2.98e-8, 65504, 65519.99, 65520, 2147483647, 2147483648,
                     -2147483648, -2147483649, 9.2233715e18, 9.3e18, -9.3e18, 3.4e38, 1 + 2.0**-11, 1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-24,
                     1 + 2.0**-24 + 2.0**-50, 2.0**-25 + 2.0**-60, 2.0**-134 + 2.0**-170, 1e300, -1e-300, np.inf, -np.inf, np.nan])
    with np.errstate(over="ignore"):
        return cast(some, dtype)


def cast_tape():
    g = Golden("cast", "cast: one rounding between any two dtypes; float to integer truncates, saturates, NaN is 0; integers wrap")
    for i, source in enumerate(ALL):
        for j, target in enumerate(ALL):
            for values in (corners(source), sample(rng, SHAPES[(i + j) % len(SHAPES)], source)):
                numbers = [v.item() for v in values.reshape(-1)]
                result = [cast_one(v, source, target) for v in numbers]
                x, y = g.input(values, source), g.fresh("y")
                g.add(f"CAST {y}, {x}, dtype={target}")
                g.expect(y, np.array(result, dtype=object if target in INTS else np.float64 if target in FLOATS else bool), target)
    g.write()


def copy():
    g = Golden("copy", "copy: every dtype, every rank")
    for i, shape in enumerate(SHAPES + [(2, 2)] * len(ALL)):
        dtype = ALL[i % len(ALL)]
        values = corners(dtype) if shape == (2, 2) else sample(rng, shape, dtype)
        x, y = g.input(values, dtype), g.fresh("y")
        g.add(f"COPY {y}, {x}")
        g.expect(y, values, dtype)
    g.write()


def fill():
    g = Golden("fill", "fill: the value is rounded to the compute type, then to the dtype")
    for i, shape in enumerate(SHAPES + [(2,)] * 3 * len(ALL)):
        dtype = ALL[i % len(ALL)]
        value = [0, 1][i % 2] if dtype == "bool" else [7, 200, 3][i % 3] if dtype == "u8" else [-5, 100, 77][i % 3] if dtype in INTS else [0.1, -2.5, 70000, np.inf][i % 4]
        y = g.fresh("y")
        g.add(f"FILL {y}, value={value}, shape={shape_text(shape)}, dtype={dtype}")
        if dtype in FLOATS and np.isfinite(value):
            value = round_exactly(value if dtype == "f64" else round_exactly(value, "f32"), dtype)
        g.expect(y, np.full(shape, value), dtype)
    g.write()


def iota():
    g = Golden("iota", "iota: the index along axis=; i32 unless the destination says otherwise")
    cases = [((5,), 0), ((0,), 0), ((1,), 0), ((2, 3), 0), ((2, 3), 1), ((2, 3), -1), ((2, 3, 4), 1), ((2, 1, 3, 2), 2), ((2, 3, 1, 2, 3), 4), ((2, 3, 1, 2, 3), -4),
             ((300,), 0), ((2, 0, 3), 2)]
    for i, (shape, axis) in enumerate(cases * 2):
        dtype = (FLOATS + INTS)[i % 9]
        values = np.broadcast_to(np.arange(shape[axis]).reshape([-1 if a == axis % len(shape) else 1 for a in range(len(shape))]), shape)
        y = g.fresh("y")
        g.add(f"IOTA {y}, axis={axis}, shape={shape_text(shape)}, dtype={dtype}")
        g.expect(y, [cast_one(int(v), "i64", dtype) for v in values.reshape(-1)], dtype)
    y = g.fresh("y")
    g.add(f"IOTA {y}, axis=0, shape=[4]")
    g.expect(y, [0, 1, 2, 3], "i32")
    g.write()


def where():
    g = Golden("where", "where: NaN and infinity of the branch not taken stay out")
    cases = [((), (), ()), ((5,), (5,), (5,)), ((5,), (), (5,)), ((), (5,), ()), ((0,), (1,), ()), ((2, 1), (3,), (2, 3)), ((2, 3), (1, 3), (2, 1)), ((2, 1, 3), (4, 1), ()),
             ((2, 1, 3, 1), (1, 2, 1, 2), (2,)), ((2, 1, 1, 2, 3), (3, 1, 1, 1), (2, 3, 1, 2, 1)), ((33,), (33,), (33,))]
    for i, (c, a, b) in enumerate(cases * 2):
        dtype = ALL[i % len(ALL)]
        cond, left, right = sample(rng, c, "bool"), sample(rng, a, dtype), sample(rng, b, dtype)
        x, y, z, out = g.input(cond, "bool"), g.input(left, dtype), g.input(right, dtype), g.fresh("y")
        g.add(f"WHERE {out}, {x}, {y}, {z}")
        g.expect(out, np.where(cond, left, right), dtype)
    for dtype in FLOATS:
        cond = np.array([1, 0, 1, 0, 1], dtype=bool)
        left, right = np.array([1, np.nan, -0.0, np.inf, np.nan]), np.array([np.nan, 2, np.inf, -0.0, 1])
        x, y, z, out = g.input(cond, "bool"), g.input(left, dtype), g.input(right, dtype), g.fresh("y")
        g.add(f"COPY {out}, {y}")
        g.add(f"WHERE {out}, {x}, {out}, {z}")
        g.expect(out, np.where(cond, left, right), dtype)
    g.write()


def zero():
    g = Golden("zero", "zero: many tensors of any dtype in one command")
    names = []
    for i, shape in enumerate(SHAPES):
        dtype = ALL[i % len(ALL)]
        names.append((g.declare("state", sample(rng, shape, dtype), dtype), shape, dtype))
    g.add("ZERO " + ", ".join(name for name, _, _ in names))
    g.add("FILL local, value=3, shape=[2, 3], dtype=f32")
    g.add("ZERO local")
    for name, shape, dtype in names:
        g.expect(name, np.zeros(shape), dtype)
    g.expect("local", np.zeros((2, 3)), "f32")
    g.write()


def zero_grad():
    w, v = np.array([1.0, -2.0, 3.0]), np.array([[0.5], [4.0]])
    text = f"""; zero_grad: gradients of the named tensors; an accumulating backward adds to what is there
.param w f32[3] = {literals(w, "f32")}
.param v f16[2, 1] = {literals(v, "f16")}
.param u f64[1] = 7
.param s bf16[] = 3
.output loss f32[]
.output once f32[3]
.output twice f32[3]
.tape forward
  SQUARE a, w
  SUM    left, a
  CAST   wide, v, dtype=f32
  SUM    right, wide
  ADD    loss, left, right
  CAST   from_u, u, dtype=f32
  SUM    loss, from_u, acc=1
  CAST   from_s, s, dtype=f32
  ADD    loss, loss, from_s
.end
.grad backward of=forward loss=loss accumulate=1
.tape main
  ZERO_GRAD w, v, u, s
  CALL forward
  CALL backward
  COPY once, w_grad
  CALL backward
  COPY twice, w_grad
  ZERO_GRAD w
.end
.expect once == {literals(2 * w, "f32")}
.expect twice == {literals(4 * w, "f32")}
.expect w_grad == 0 0 0
.expect v_grad == 2 2
.expect u_grad == 2
.expect s_grad == 2
"""
    (FOLDER / "zero_grad.tape").write_text(text)


if __name__ == "__main__":
    cast_tape()
    copy()
    fill()
    iota()
    where()
    zero()
    zero_grad()
