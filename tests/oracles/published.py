"""Golden tapes of mistakes that other projects published, each named with its report. What is expected follows from the
arithmetic written here, in Python's float64 and integers."""
import math

import numpy as np

from golden import FOLDER, Golden, literals, shape_text

LENGTHS = [1, 31, 33, 64, 1025]


def write(name, about, text):
    (FOLDER / f"published-{name}.tape").write_text(f"; {about}\n{text}")


def declared(role, name, values, dtype):
    return f".{role} {name} {dtype}{shape_text(np.shape(values))} = {literals(np.asarray(values, np.float64), dtype)}\n"


def softmax():
    g = Golden("published-softmax", "rows that hold infinities, NaN or large values (pytorch/pytorch 25110)")

    def row(x, wanted, tolerance="rtol=1e-6 atol=1e-9"):
        y = g.fresh("y")
        g.add(f"SOFTMAX {y}, {g.input(np.float32(x), 'f32')}")
        g.expect(y, np.float32(wanted), "f32", "~", tolerance)

    for n in LENGTHS:
        row([-np.inf] * n, [np.nan] * n)
        for odd in (np.inf, np.nan):
            for at in sorted({0, n // 2, n - 1}) if n < 100 else [n // 2]:
                row([odd if i == at else 0 for i in range(n)], [np.nan] * n)
        large = [1000.0 + i % 3 for i in range(n)]
        weights = [math.exp(x - max(large)) for x in large]
        wanted = [w / math.fsum(weights) for w in weights]
        row(large, wanted)
        row([x - 2000 - (max(large) - 1000) for x in large], wanted)
    row([-np.inf, 0, -np.inf], [0, 1, 0], "rtol=0 atol=0")
    row([0, -np.inf], [1, 0], "rtol=0 atol=0")
    g.write()


def norms():
    """17 values base + (i - 8) / 128: the mean is base and the variance 24 / 128^2, whatever the base."""
    variance = 24 / 128 ** 2
    x = [[base + (i - 8) / 128 for i in range(17)] for base in (0, 4096, 10000, 65536)]
    wanted = [[(i - 8) / 128 / math.sqrt(variance + 1e-5) for i in range(17)] for _ in x]
    text = declared("input", "x", x, "f32") + declared("input", "channels", [[row] for row in x], "f32")
    text += ".state mean f32[1] = 0\n.state var f32[1] = 1\n.tape main\n"
    text += "  LAYER_NORM y, x, eps=1e-5\n  GROUP_NORM z, channels, groups=1, eps=1e-5\n  VAR v, x, axes=1\n"
    for i in range(4):
        text += f"  SLICE part{i}, channels, start={i} stop={i + 1}\n  BATCH_NORM b{i}, part{i}, mean, var, training=1 eps=1e-5\n"
    text += ".end\n"
    for name, values in [("y", wanted), ("z", wanted)] + [(f"b{i}", wanted[i]) for i in range(4)]:
        text += f".expect {name} ~ {literals(np.float32(values), 'f32')} rtol=1e-5 atol=1e-6\n"
    text += f".expect v ~ {literals(np.float32([variance] * 4), 'f32')} rtol=1e-6 atol=0\n"
    write("norms", "a variance far from zero (tracel-ai/burn 5607, pytorch/pytorch 51102)", text)


def empty_products():
    text = ".param a f32[3, 2, 0]\n.param b f32[3, 0, 3]\n.input c f32[16, 0]\n.input d f32[0, 16]\n.input e f32[0, 4]\n"
    text += declared("input", "f", np.ones((4, 3)), "f32") + ".input g f32[3, 0]\n.output loss f32[]\n"
    text += ".tape forward\n  MATMUL p, a, b\n  SUM loss, p\n.end\n.grad backward of=forward loss=loss\n"
    # What the arena holds where the products will stand.
    text += ".tape main\n  FILL used, value=7, shape=[16, 16] dtype=f32\n  SUM seven, used\n  MATMUL q, c, d\n"
    text += "  MATMUL r, e, f\n  MATMUL s, f, g\n  CALL forward\n  CALL backward\n.end\n"
    text += f".expect seven == {7 * 256}\n.expect forward:p == {literals(np.zeros(18), 'f32')}\n"
    text += f".expect q == {literals(np.zeros(256), 'f32')}\n.expect r ==\n.expect s ==\n.expect loss == 0\n"
    text += ".expect a_grad ==\n.expect b_grad ==\n"
    write("empty-products", "products over nothing are zeros (pytorch/pytorch 31421, microsoft/onnxruntime 21483)", text)


def labels():
    """The control of a label out of range: the loss is log(1 + 2 e^-2.5), the row's slope (softmax - target) / 2."""
    e = math.exp(-2.5)
    near, far = 1 / (1 + 2 * e), e / (1 + 2 * e)
    text = declared("param", "logits", [[2.5, 0, 0], [0, 0, 2.5]], "f32") + ".input labels i32[2] = 0 2\n.output loss f32[]\n"
    text += ".tape forward\n  CROSS_ENTROPY loss, logits, labels\n.end\n.grad backward of=forward loss=loss\n"
    text += ".tape main\n  CALL forward\n  CALL backward\n.end\n"
    text += f".expect loss ~ {math.log(1 + 2 * e):.12} rtol=1e-6\n.expect logits_grad ~ "
    text += " ".join(f"{v:.12}" for v in [(near - 1) / 2, far / 2, far / 2, far / 2, far / 2, (near - 1) / 2]) + " rtol=1e-6\n"
    write("labels", "the loss and gradient of labels in range (pytorch/pytorch 43840)", text)
    for name, bad, message in [("high", 1000, "label 1000 at labels[1] is outside [0,3)"),
                               ("next", 3, "label 3 at labels[1] is outside [0,3)"),
                               ("negative", -1, "label -1 at labels[1] is outside [0,3)")]:
        text = declared("input", "logits", [[2.5, 0, 0], [0, 0, 2.5]], "f32") + f".input labels i32[2] = 0 {bad}\n"
        text += ".tape main\n  CROSS_ENTROPY loss, logits, labels\n.end\n"
        write(f"labels-{name}", "a label outside the classes is a fault (pytorch/pytorch 43840)",
              text + f'.expect fault CROSS_ENTROPY "{message}"\n')


def division():
    a, b = [-7, 7, -7, 7, -1, 1, -5, 5], [2, 2, -2, -2, 3, -3, 3, -3]
    text, tape, expectations = "", ".tape main\n", ""
    for dtype in ("i32", "f32", "i8"):
        text += declared("input", f"a_{dtype}", a, dtype) + declared("input", f"b_{dtype}", b, dtype)
        tape += f"  FLOOR_DIV q_{dtype}, a_{dtype}, b_{dtype}\n  MOD m_{dtype}, a_{dtype}, b_{dtype}\n"
        expectations += f".expect q_{dtype} == {literals([x // y for x, y in zip(a, b)], dtype)}\n"
        expectations += f".expect m_{dtype} == {literals([x % y for x, y in zip(a, b)], dtype)}\n"
    text += declared("input", "x", [120], "i8") + declared("input", "y", [-27], "i8")
    tape += "  FLOOR_DIV q, x, y\n  MOD m, x, y\n.end\n"
    write("division", "integer division of mixed signs goes to the floor (ml-explore/mlx 4346)",
          text + tape + expectations + f".expect q == {120 // -27}\n.expect m == {120 % -27}\n")

    # Every pair of i8: the quotient wraps for (-128, -1) alone; sums weighted by place tell any pair from the others.
    signed = [y for y in range(-128, 128) if y]
    pairs = [(x, y) for x in range(-128, 128) for y in signed]
    rules = {"FLOOR_DIV": lambda x, y: (x // y + 128) % 256 - 128, "MOD": lambda x, y: x % y,
             "REM": lambda x, y: int(math.fmod(x, y))}
    text = declared("input", "b", [signed], "i8") + ".tape main\n"
    text += "  IOTA wide, axis=0, shape=[256, 1] dtype=i32\n  SUB wide, wide, 128\n  CAST a, wide, dtype=i8\n"
    text += "  IOTA row, axis=0, shape=[256, 255] dtype=i64\n  IOTA column, axis=1, shape=[256, 255] dtype=i64\n"
    text += "  MUL place, row, 255\n  ADD place, place, column\n"
    expectations = ".expect invariant == 1\n"
    for op, rule in rules.items():
        text += f"  {op} r.{op}, a, b\n  CAST w.{op}, r.{op}, dtype=i64\n  SUM sum.{op}, w.{op}\n"
        text += f"  MUL w.{op}, w.{op}, place\n  SUM places.{op}, w.{op}\n"
        values = [rule(x, y) for x, y in pairs]
        expectations += f".expect sum.{op} == {sum(values)}\n"
        expectations += f".expect places.{op} == {sum(i * value for i, value in enumerate(values))}\n"
    text += "  MUL back, r.FLOOR_DIV, b\n  ADD back, back, r.MOD\n  EQ same, back, a\n  ALL invariant, same\n.end\n"
    write("division-i8", "all pairs of i8: q b + r = a (ml-explore/mlx 4346)", text + expectations)


def reductions():
    g = Golden("published-reductions", "lengths that are no power of two; one element at each place (tile-ai/tilelang 2542)")
    for n in [1, 2, 31, 32, 33, 47, 48, 63, 64, 65, 96, 127, 129, 255, 257, 1000, 1023, 1025, 4097]:
        i = g.fresh("i")
        g.add(f"IOTA {i}, axis=0, shape=[{n}] dtype=i32")
        g.add(f"ADD {i}, {i}, 1")
        g.add(f"CAST f{i}, {i}, dtype=f32")
        for name, dtype in ((i, "i32"), (f"f{i}", "f32")):
            for op, wanted in (("SUM", n * (n + 1) // 2), ("REDUCE_MAX", n)):
                y = g.fresh("y")
                g.add(f"{op} {y}, {name}")
                g.expect(y, wanted, dtype)
    n = 48
    g.add(f"IOTA place, axis=0, shape=[{n}] dtype=i32")
    g.add(f"ONE_HOT unit, place, shape=[{n}, {n}] dtype=f32")
    g.add(f"RESHAPE first, unit, shape=[{n}, 6, 8]")
    g.add(f"RESHAPE middle, unit, shape=[6, 8, {n}]")
    g.add("TRANSPOSE middle_t, middle, perm=[0, 2, 1]")
    for source, axis in (("unit", 0), ("unit", 1), ("first", 0), ("middle_t", 1), ("middle", 2)):
        for op in ("SUM", "REDUCE_MAX"):
            y = g.fresh("y")
            g.add(f"{op} {y}, {source}, axes={axis}")
            g.expect(y, [1] * n, "f32")
    g.write()


def full_precision():
    """1024.5 and 4097 need more than ten bits of mantissa."""
    text = declared("input", "x", [[1024.5]], "f32") + declared("input", "one", [[1]], "f32")
    text += ".tape main\n  MATMUL y, x, one\n  IOTA place, axis=0, shape=[64] dtype=i32\n"
    text += "  ONE_HOT unit, place, shape=[64, 64] dtype=f32\n  MUL d, unit, 4097\n  MATMUL z, d, unit\n  ASSERT_EQUAL z, d\n"
    text += "  SUM trace, z\n.end\n.expect y == 1024.5\n" + f".expect trace == {64 * 4097}\n"
    write("precision", "products of f32 keep all of its bits (pytorch/pytorch 53635)", text)


def broadcast_gradients():
    x, t = np.arange(1, 13.0).reshape(3, 4), np.arange(100, 112.0).reshape(3, 4)
    for name, b in [("row", [[1, 2, 3, 4]]), ("vector", [1, 2, 3, 4]), ("column", [[1], [2], [3]]), ("one", [[1]]), ("scalar", 1)]:
        b = np.asarray(b, np.float64)
        slope = -2 * (t - (x + b))
        db = slope
        while db.ndim > b.ndim:
            db = db.sum(0)
        for axis, size in enumerate(b.shape):
            if size == 1:
                db = db.sum(axis, keepdims=True)
        text = declared("param", "x", x, "f32") + declared("param", "b", b, "f32") + declared("input", "t", t, "f32")
        text += ".output loss f32[]\n.tape forward\n  ADD s, x, b\n  SUB d, t, s\n  SQUARE d, d\n  SUM loss, d\n.end\n"
        text += ".grad backward of=forward loss=loss\n.tape main\n  CALL forward\n  CALL backward\n.end\n"
        text += f".expect loss == {literals(((t - x - b) ** 2).sum(), 'f32')}\n"
        text += f".expect x_grad == {literals(slope, 'f32')}\n.expect b_grad == {literals(db, 'f32')}\n"
        write(f"broadcast-{name}", "what was broadcast is summed back (tracel-ai/burn 181, tensorflow/tfjs-core 398)", text)


def used_twice():
    """f = 3 a x^2, its slope 6 a x; played twice, accumulated twice, and the same tensor as both operands."""
    for name, x, a in (("one", 1, 1), ("three", 3, 2)):
        text = f".param x f32[] = {x}\n.input a f32[] = {a}\n.output f f32[]\n.tape forward\n  MUL xa, x, a\n  MUL x2, x, x\n"
        text += "  MUL p, x, xa\n  MUL q, x2, a\n  MUL r, x, xa\n  ADD f, p, q\n  ADD f, f, r\n.end\n"
        text += ".grad backward of=forward loss=f\n.tape main\n  CALL forward\n  CALL backward\n  CALL forward\n  CALL backward\n.end\n"
        write(f"used-twice-{name}", "a value used twice, the gradient played twice: overwritten (karpathy/micrograd 2)",
              text + f".expect f == {3 * a * x * x}\n.expect x_grad == {6 * a * x}\n")
    text = ".param x f32[] = 1\n.output f f32[]\n.tape forward\n  MUL x2, x, x\n  MUL p, x2, 2\n  ADD f, p, x2\n.end\n"
    text += ".grad backward of=forward loss=f accumulate=1\n.tape main\n  ZERO_GRAD x\n  CALL forward\n  CALL backward\n"
    write("used-twice-accumulated", "a gradient that accumulates, played twice (karpathy/micrograd 2)",
          text + "  CALL forward\n  CALL backward\n.end\n.expect f == 3\n.expect x_grad == 12\n")
    text = ".param x f32[] = 3\n.output f f32[]\n.tape forward\n  MUL s, x, x\n  SUB z, x, x\n  ADD f, s, z\n.end\n"
    text += ".grad backward of=forward loss=f\n.tape main\n  CALL forward\n  CALL backward\n.end\n"
    write("used-twice-both", "one tensor as both operands (sebgao/cTensor 5)", text + ".expect f == 9\n.expect x_grad == 6\n")


def where():
    """log2(x) beside 2 x: guarded, the slope at 0 is 2; unguarded it is NaN there and nowhere else."""
    slope = 1 / (3 * math.log(2))
    for name, guard, at_zero in (("guarded", "  FILL one, value=1, shape=[3] dtype=f32\n  WHERE z, m, x, one\n", "2"),
                                 ("plain", "  COPY z, x\n", "nan")):
        text = ".param x f32[3] = 0 2 3\n.output loss f32[]\n.tape forward\n  GT m, x, 2\n" + guard
        text += f"  LOG l, z\n  MUL l, l, {1 / math.log(2)!r}\n  MUL d, x, 2\n  WHERE y, m, l, d\n  SUM loss, y\n.end\n"
        text += ".grad backward of=forward loss=loss\n.tape main\n  CALL forward\n  CALL backward\n.end\n"
        text += f".expect forward:y ~ 0 4 {math.log2(3):.12} rtol=1e-6\n.expect x_grad ~ {at_zero} 2 {slope:.12} rtol=1e-6\n"
        write(f"where-{name}", "the branch that is not taken (pytorch/pytorch 108618, jax-ml/jax 347)", text)


def live_values():
    a, b = np.arange(8).reshape(2, 4), np.arange(8).reshape(4, 2)
    other = np.array([[100, 200], [300, 400]])
    text = declared("input", "a", a, "f32") + declared("input", "b", b, "f32") + declared("input", "other", other, "i32")
    text += ".tape main\n  SLICE a0, a, start=[0, 0] stop=[2, 2]\n  SLICE a1, a, start=[0, 2] stop=[2, 4]\n"
    text += "  SLICE b0, b, start=0 stop=2\n  SLICE b1, b, start=2 stop=4\n  MATMUL acc, a0, b0\n  MATMUL acc, a1, b1, acc=1\n"
    text += f"  CAST rest, other, dtype=f32\n  ADD out, acc, rest\n.end\n.expect acc == {literals(a @ b, 'f32')}\n"
    write("live-values", "a sum that is still needed keeps its bytes (hw-native-sys/pypto 768)",
          text + f".expect out == {literals(a @ b + other, 'f32')}\n")


softmax()
norms()
empty_products()
labels()
division()
reductions()
full_precision()
broadcast_gradients()
used_twice()
where()
live_values()
