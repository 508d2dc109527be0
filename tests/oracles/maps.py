"""Golden tapes of MAP and MAP_REDUCE, their bodies played command by command by NumPy."""
import numpy as np

from golden import FLOATS, HALVES, INTS, NUMPY, Golden, cast, sample

rng = np.random.default_rng(16)
NUMBERS = FLOATS + INTS


def rounded(values, dtype):
    """The result of one command, in its dtype; halves are carried as f32 values of their grid."""
    return cast(values, dtype).astype(np.float32) if dtype == "f16" else cast(values, dtype)


def draw(shape, dtype):
    if dtype in ["i16", "i8"]:
        return rng.integers(-100, 100, shape).astype(NUMPY[dtype])
    if dtype in HALVES:  # small, so that the float64 oracle, which does not round, has the same results
        return rng.integers(-3, 4, shape).astype(np.float32)
    return rounded(sample(rng, shape, dtype), dtype)


SHAPES = [[(), ()], [(1,), (1,)], [(5,), ()], [(2, 1), (3,)], [(2, 1, 3), (4, 1)], [(0,), (1,)], [(3, 0), ()],
          [(1030,), (1030,)], [(2, 520), (2, 1)]]


def block(g, head, lines):
    g.add(head + " {")
    for line in lines:
        g.add("  " + line)
    g.add("}")


def maps():
    g = Golden("map", "map: elementwise commands as one, each rounded as alone")
    at = 0
    with np.errstate(all="ignore"):
        for shapes in SHAPES:
            for _ in range(1 if np.prod(shapes[0], dtype=int) > 100 else 5):
                dtype = NUMBERS[at % len(NUMBERS)]
                at += 1
                a, b = (draw(shape, dtype) for shape in shapes)
                if dtype in FLOATS and a.size > 3:
                    a.reshape(-1)[:3] = [np.nan, np.inf, -0.0]
                x, w = g.input(a, dtype), g.input(b, dtype)
                y, c, m = g.fresh("y"), g.fresh("c"), g.fresh("m")
                block(g, f"MAP [{y}, {c}, {m}], [{x}, {w}]",
                      [f"SQUARE t, {x}", f"ADD u, t, {w}", "MUL u, u, 3", f"SUB {y}, u, {x}", f"GT {c}, {y}, {w}",
                       f"MAX v, {y}, t", f"WHERE {m}, {c}, v, {w}"])
                t = rounded(a * a, dtype)
                u = rounded(rounded(t + b, dtype) * rounded(3, dtype), dtype)
                result = rounded(u - a, dtype)
                above = np.broadcast_to(result > b, np.broadcast(a, b).shape)
                largest = np.where(np.isnan(result), result, np.where(np.isnan(t), t, np.maximum(result, t)))
                g.expect(y, np.broadcast_to(result, above.shape), dtype)
                g.expect(c, above, "bool")
                g.expect(m, np.where(above, largest, b), dtype)
        # Through other dtypes: rounded to each on the way.
        a = rng.standard_normal(20)
        for source, narrow in [("f64", "f32"), ("f64", "f16"), ("f32", "bf16"), ("f32", "i32"), ("f64", "u8")]:
            values = cast(a * 50, source)
            x, y = g.input(values, source), g.fresh("y")
            block(g, f"MAP [{y}], [{x}]",
                  [f"ABS a, {x}", f"CAST n, a, dtype={narrow}", f"CAST w, n, dtype={source}", f"SUB {y}, a, w"])
            away = cast(np.abs(values), narrow).astype(values.dtype)
            g.expect(y, np.abs(values) - away, source)
        # Functions.
        for dtype, tolerance in [("f64", "rtol=1e-14"), ("f32", "rtol=1e-6")]:
            values = cast(a, dtype)
            x, y = g.input(values, dtype), g.fresh("y")
            block(g, f"MAP [{y}], [{x}]", [f"EXP e, {x}", "TANH t, e", f"DIV {y}, t, e"])
            e = np.exp(values)
            g.expect(y, np.tanh(e) / e, dtype, "~", tolerance)
    a, b = sample(rng, (2, 5), "bool"), sample(rng, (5,), "bool")
    x, w, y, n = g.input(a, "bool"), g.input(b, "bool"), g.fresh("y"), g.fresh("n")
    block(g, f"MAP [{y}, {n}], [{x}, {w}]", [f"XOR t, {x}, {w}", f"NOT {y}, t", f"CAST {n}, t, dtype=i8"])
    g.expect(y, ~(a ^ b), "bool")
    g.expect(n, a ^ b, "i8")
    g.write()

    g = Golden("map-fault", "map: a fault of its body names the element and the command")
    n, d = g.input(np.array([[7], [-7]]), "i32", "n"), g.input(np.array([1, 2, 0]), "i32", "d")
    block(g, f"MAP [q], [{n}, {d}]", [f"FLOOR_DIV q, {n}, {d}"])
    g.expect_fault("MAP", "element [0,2]: FLOOR_DIV: d is 0: integer division by zero")
    g.write()


# shape, axes
REDUCED = [((5,), 1), ((1,), 1), ((3, 4), 1), ((3, 4), 2), ((2, 3, 5), 1), ((2, 3, 5), 2), ((2, 1, 1), 2), ((7, 300), 1)]


def reductions():
    g = Golden("map_reduce", "map_reduce: a body, then a reduction of the last axes, as SUM and its kin reduce")
    at = 0
    with np.errstate(all="ignore"):
        for shape, axes in REDUCED:
            for _ in range(6):
                dtype = NUMBERS[at % len(NUMBERS)]
                keep = at % 3 == 0
                at += 1
                whole = NUMPY[dtype] if dtype in INTS else np.float64
                values = draw(shape, dtype)
                x = g.input(values, dtype)
                results = [g.fresh("s"), g.fresh("e")]
                body = [f"ADD u, {x}, {x}", f"SUB {results[0]}, u, 1", f"NEG {results[1]}, {x}"]
                made = [rounded(values + values - rounded(1, dtype), dtype), rounded(-values, dtype)]
                last = tuple(range(len(shape) - axes, len(shape)))
                kinds = ["sum", "max", "min"] + (["mean"] if dtype in FLOATS else ["prod"])
                kind = kinds[at % len(kinds)]
                function = {"sum": np.sum, "max": np.max, "min": np.min, "mean": np.mean, "prod": np.prod}[kind]
                options = {"dtype": whole} if kind in ["sum", "prod", "mean"] else {}
                tail = f", reduce={kind}" + (f", axes={axes}" if axes > 1 else "") + (", keepdims=1" if keep else "")
                block(g, f"MAP_REDUCE [{', '.join(results)}], [{x}]{tail}", body)
                for name, value in zip(results, made):
                    exact = function(value, axis=last, keepdims=keep, **options)
                    if kind == "mean":  # the division is the one rounding, in the compute type
                        exact = np.sum(value, axis=last, keepdims=keep, dtype=np.float64)
                        count = np.prod([shape[axis] for axis in last])
                        exact = exact / count if dtype == "f64" else exact.astype(np.float32) / np.float32(count)
                    g.expect(name, cast(exact, dtype), dtype)
                if dtype in HALVES and kind in ["sum", "mean"]:
                    kept = [1 if axis in last else n for axis, n in enumerate(shape)] if keep else shape[:len(shape) - axes]
                    wide = g.declare("output", np.zeros(0), "f32", g.fresh("wide"))
                    g.lines[-1] = f".output {wide} f32[{', '.join(str(n) for n in kept)}]"
                    block(g, f"MAP_REDUCE [{wide}], [{x}]{tail}", [f"NEG {wide}, {x}"])
                    total = np.sum(-values, axis=last, keepdims=keep, dtype=np.float32)
                    g.expect(wide, total / np.float32(np.prod([shape[a] for a in last])) if kind == "mean" else total,
                             "f32")
        values = sample(rng, (3, 7), "bool")
        x, n = g.input(values, "bool"), g.fresh("n")
        block(g, f"MAP_REDUCE [{n}], [{x}], reduce=sum", [f"CAST {n}, {x}, dtype=i32"])
        g.expect(n, values.sum(1), "i32")
        # NaN, nothing.
        values = draw((3, 4), "f32")
        values[1, 2] = np.nan
        x, s = g.input(values, "f32"), g.fresh("s")
        block(g, f"MAP_REDUCE [{s}], [{x}], reduce=max", [f"COPY {s}, {x}"])
        g.expect(s, values.max(1), "f32")
        for kind, value in [("sum", 0), ("prod", 1)]:
            x, s = g.input(np.zeros((2, 0)), "f32"), g.fresh("s")
            block(g, f"MAP_REDUCE [{s}], [{x}], reduce={kind}", [f"EXP {s}, {x}"])
            g.expect(s, np.full(2, value), "f32")
        # Longer than a block of the canonical order, of values whose sums are exact.
        x, w, s = g.input(np.float32([[1], [0.5]]), "f32"), g.fresh("w"), g.fresh("s")
        g.add(f"FILL {w}, value=0.25, dtype=f32, shape=[70001]")
        block(g, f"MAP_REDUCE [{s}], [{x}, {w}], reduce=sum", [f"MUL {s}, {x}, {w}"])
        g.expect(s, np.array([70001 * 0.25, 70001 * 0.125]), "f32")
    g.write()


maps()
reductions()
