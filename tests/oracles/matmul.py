"""Golden tapes of MATMUL, by NumPy's matmul in float64 or wrapping integers.

Small integers make every product exact in any order: `==` for every dtype. Values of full precision are compared within
K * 2^-24 * sum |a b| of their worst element.
"""
import numpy as np

from golden import FLOATS, INTS, NUMPY, Golden, cast

rng = np.random.default_rng(43)
NUMBERS = FLOATS + INTS
# a, b, trans_a, trans_b as stored
SHAPES = [((1, 1), (1, 1), 0, 0), ((2, 3), (3, 4), 0, 0), ((5, 7), (7, 1), 0, 0), ((1, 33), (33, 5), 0, 0),
          ((31, 6), (6, 32), 0, 0), ((3, 255), (255, 2), 0, 0), ((2, 1025), (1025, 3), 0, 0), ((3, 2), (3, 4), 1, 0),
          ((2, 3), (4, 3), 0, 1), ((3, 2), (4, 3), 1, 1), ((33, 17), (33, 18), 1, 0), ((17, 33), (18, 33), 0, 1),
          ((3,), (3,), 0, 0), ((130,), (130,), 0, 0), ((3,), (3, 4), 0, 0), ((3,), (4, 3), 0, 1), ((2, 3), (3,), 0, 0),
          ((3, 2), (3,), 1, 0), ((3,), (2, 3, 4), 0, 0), ((2, 4, 3), (3,), 0, 0), ((2, 3, 4), (4, 5), 0, 0),
          ((3, 4), (2, 4, 5), 0, 0), ((2, 3, 4), (2, 4, 5), 0, 0), ((2, 4, 3), (2, 5, 4), 1, 1),
          ((2, 4, 3), (4, 5), 1, 0), ((1, 3, 4), (2, 4, 5), 0, 0), ((2, 1, 3, 4), (3, 4, 2), 0, 0),
          ((2, 1, 2, 3, 4), (1, 3, 1, 4, 2), 0, 0), ((3, 1, 2, 2), (2, 5, 2), 0, 1)]
EMPTY = [((2, 0), (0, 3), 0, 0), ((0, 3), (3, 2), 0, 0), ((2, 3), (3, 0), 0, 0), ((0, 2, 3), (3, 2), 0, 0),
         ((0,), (0,), 0, 0), ((1, 2, 3), (0, 3, 2), 0, 0)]


def product(a, b, trans_a, trans_b, dtype):
    wide = np.float64 if dtype in FLOATS else a.dtype
    left, right = a.astype(wide), b.astype(wide)
    if trans_a:
        left = np.swapaxes(left, -1, -2)
    if trans_b:
        right = np.swapaxes(right, -1, -2)
    with np.errstate(all="ignore"):
        return np.matmul(left, right)


def integers(shape, dtype):
    info = np.iinfo(NUMPY[dtype]) if dtype in INTS else None
    low, high = (max(info.min, -100_000), min(info.max + 1, 100_000)) if info else (-6, 7)
    return cast(rng.integers(low, high, shape), dtype)


def attributes(trans_a, trans_b, alpha=None, acc=False):
    return (", trans_a=1" if trans_a else "") + (", trans_b=1" if trans_b else "") + \
        (f", alpha={alpha}" if alpha is not None else "") + (", acc=1" if acc else "")


def exact():
    g = Golden("matmul", "matmul: NumPy batching, transposes, ranks 1 to 5, empty axes, every dtype; exact in any order")

    def one(a_shape, b_shape, trans_a, trans_b, dtype, out=None, alpha=None, before=None):
        out = out or dtype
        a, b = integers(a_shape, dtype), integers(b_shape, dtype)
        wanted = product(a, b, trans_a, trans_b, dtype)
        if alpha is not None:
            wanted = alpha * wanted
        x, z = g.input(a, dtype), g.input(b, dtype)
        text = attributes(trans_a, trans_b, alpha, before is not None)
        if before is None:
            y = g.fresh("y")
            g.add(f"MATMUL {y}, {x}, {z}{text}" + (f", dtype={out}" if out != dtype else ""))
        else:
            start = cast(np.full(np.shape(wanted), before), out)
            y = g.declare("state", start, out)
            g.add(f"MATMUL {y}, {x}, {z}{text}")
            wanted = wanted + (start.astype(np.float64) if dtype in FLOATS else start)
        g.expect(y, cast(wanted, out), out)

    for i, case in enumerate(SHAPES):
        one(*case, "f32")
        one(*case, NUMBERS[i % len(NUMBERS)])
    for i, case in enumerate(EMPTY):
        one(*case, NUMBERS[i % len(NUMBERS)])
        one(*case, "f32", before=3)
    for dtype in NUMBERS:
        one((4, 5), (5, 3), 0, 0, dtype)
        one((5, 4), (3, 5), 1, 1, dtype, before=7)
        one((2, 3, 2), (2, 3), 0, 0, dtype)
    for dtype in FLOATS:
        one((4, 5), (5, 3), 0, 0, dtype, alpha=-0.5)
        one((4, 5), (5, 3), 0, 0, dtype, alpha=0.25, before=-2)
    for dtype in ("f16", "bf16"):
        one((4, 35), (35, 3), 0, 0, dtype, out="f32")
        one((3, 4), (3, 4), 0, 1, dtype, out="f32", alpha=2)
        one((3, 4), (3, 4), 1, 0, dtype, out="f32", before=1)
        one((3,), (3,), 0, 0, dtype, out="f32", before=1)
    g.write()


def inexact():
    g = Golden("matmul-precision", "matmul: values of full precision, within the bound of any order of summation")
    unit = {"f64": 2.0**-53, "f32": 2.0**-24, "f16": 2.0**-24, "bf16": 2.0**-24}
    result_unit = {"f64": 0, "f32": 0, "f16": 2.0**-11, "bf16": 2.0**-8}
    for i, (a_shape, b_shape, trans_a, trans_b) in enumerate(SHAPES):
        dtype = FLOATS[i % 4]
        a, b = (cast(np.round(rng.uniform(-1, 1, shape), 3), dtype) for shape in (a_shape, b_shape))
        wanted = product(a, b, trans_a, trans_b, dtype)
        size = product(np.abs(a), np.abs(b), trans_a, trans_b, dtype)
        k = a_shape[-2] if trans_a else a_shape[-1]
        atol = float(np.max((k + 1) * unit[dtype] * size + 1.01 * result_unit[dtype] * np.abs(wanted)))
        y = g.fresh("y")
        g.add(f"MATMUL {y}, {g.input(a, dtype)}, {g.input(b, dtype)}{attributes(trans_a, trans_b)}")
        g.expectations.append(f".expect {y} ~ " + " ".join(repr(float(v)) for v in np.reshape(wanted, -1)) +
                              f" atol={atol:.3g}")
    g.write()


def special():
    g = Golden("matmul-special", "matmul: NaN and infinities reach exactly the outputs they meet; alpha=0 keeps them")
    a = np.array([[1, 2], [np.inf, 1], [np.nan, 0], [np.inf, -np.inf], [0, 0]])
    b = np.array([[0, 1, np.inf], [3, 1, 1]])
    for dtype in FLOATS:
        for alpha in (None, 0):
            x, z, y = g.input(cast(a, dtype), dtype), g.input(cast(b, dtype), dtype), g.fresh("y")
            g.add(f"MATMUL {y}, {x}, {z}{attributes(0, 0, alpha)}")
            wanted = product(cast(a, dtype), cast(b, dtype), 0, 0, dtype)
            with np.errstate(all="ignore"):
                g.expect(y, cast(wanted if alpha is None else alpha * wanted, dtype), dtype)
    g.write()


def activated(z, act):
    from scipy.special import erf, expit
    with np.errstate(all="ignore"):
        return {"none": lambda: z, "relu": lambda: np.where(z > 0, z, np.where(np.isnan(z), z, 0)),
                "gelu": lambda: z * 0.5 * (1 + erf(z / np.sqrt(2))), "sigmoid": lambda: expit(z),
                "gelu_tanh": lambda: 0.5 * z * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3))),
                "silu": lambda: z * expit(z), "tanh": lambda: np.tanh(z)}[act]()


def epilogue():
    g = Golden("matmul-epilogue", "matmul: bias=, act= and aux=, one rounding after the activation")
    acts = ["none", "relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh"]
    # Small integers over 8 keep the product and its bias exact; the activation is rounded once.
    tolerance = {"f64": "rtol=1e-13 atol=1e-14", "f32": "rtol=2e-7 atol=1e-7", "f16": "rtol=1e-3 atol=1e-7",
                 "bf16": "rtol=8e-3 atol=1e-7"}

    def one(a_shape, b_shape, dtype, act="none", bias=True, aux=True, out=None, more="", before=None, alpha=None):
        out = out or dtype
        trans_b = "trans_b" in more
        a, b = (cast(rng.integers(-3, 4, shape) / (1 if dtype in INTS else 4), dtype) for shape in (a_shape, b_shape))
        z = product(a, b, False, trans_b, dtype)
        if alpha is not None:
            z = alpha * z
        text = f"MATMUL {{}}, {g.input(a, dtype)}, {g.input(b, dtype)}"
        if bias:
            c = cast(rng.integers(-3, 4, np.shape(z)[-1]) / (1 if dtype in INTS else 8), out)
            text += f", bias={g.input(c, out)}"
            z = z + (c.astype(np.float64) if dtype in FLOATS else c)
        kept = g.fresh("z")
        text += f", aux={kept}" if aux else ""
        text += f", act={act}" if act != "none" else ""
        text += more + (f", alpha={alpha}" if alpha is not None else "")
        wanted = activated(z, act) if dtype in FLOATS else z
        if before is None:
            y = g.fresh("y")
            text += f", dtype={out}" if out != dtype else ""
        else:
            start = cast(np.full(np.shape(wanted), before), out)
            y = g.declare("state", start, out)
            text += ", acc=1"
            wanted = wanted + start
        g.add(text.format(y))
        if dtype in INTS:
            g.expect(y, cast(wanted, out), out)
        else:
            g.expect(y, cast(wanted, out), out, "~", tolerance[out])
        if aux:
            g.expect(kept, cast(z, dtype), dtype)

    for act in acts:
        for dtype in FLOATS:
            one((3, 4), (4, 5), dtype, act)
        one((2, 3), (3, 2), "f32", act, bias=False, aux=False)
    for dtype in ("f16", "bf16"):
        one((3, 4), (4, 5), dtype, "silu", out="f32")
    for dtype in INTS:
        one((3, 4), (4, 5), dtype)
    one((2, 3, 4), (4, 5), "f32", "relu")
    one((2, 3, 4), (2, 4, 5), "f64", "tanh")
    one((4,), (4, 5), "f32", "sigmoid")
    one((3, 4), (4,), "f32", "sigmoid", bias=False)
    one((3, 4), (5, 4), "f32", "relu", more=", trans_b=1")
    one((3, 0), (0, 4), "f32", "sigmoid")
    one((0, 3), (3, 4), "f32", "relu")
    one((3, 4), (4, 5), "f32", aux=False, before=2)
    one((3, 4), (4, 5), "f16", aux=False, before=2)
    one((3, 4), (4, 5), "f32", "relu", alpha=-0.5)
    one((3, 140), (140, 70), "f32", "relu", aux=False)
    g.write()


exact()
inexact()
special()
epilogue()
