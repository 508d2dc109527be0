"""Golden tapes of SOFTMAX, LOG_SOFTMAX, the losses, their gradients, and CLIP_NORM, in float64 NumPy and
SciPy on the inputs as their dtype holds them."""
import numpy as np
from scipy.special import expit, logsumexp, softmax

from golden import FLOATS, HALVES, Golden, cast, f64, literals, quiet, shape_text

rng = np.random.default_rng(44)
AXES = [((1,), 0), ((7,), -1), ((33,), 0), ((255,), 0), ((1025,), 0), ((2, 3), 0), ((2, 3), 1), ((31, 4), 0),
        ((3, 70), 0), ((2, 3, 4), 1), ((2, 3, 2, 2, 3), 2), ((2, 3, 2, 2, 3), -1), ((0, 3), 1), ((3, 0), 1),
        ((4, 1, 3), 1)]
ROWS = np.array([[1, 2, 3], [-np.inf] * 3, [np.inf, 0, 1], [np.nan, 1, 2], [-np.inf, 0, -np.inf], [1000, 1001, 999],
                 [-0.0, 0.0, -0.0]])


def values(shape, dtype, scale=4.0):
    return cast(np.round(rng.uniform(-scale, scale, shape), 2), dtype)


def log_softmax(x, axis=-1):
    """IEEE arithmetic all the way: an infinite maximum gives NaN, where SciPy's own replaces it."""
    shifted = x - np.max(x, axis, keepdims=True)
    return shifted - np.log(np.sum(np.exp(shifted), axis, keepdims=True))


def along_axis(mnemonic, about, function):
    name = mnemonic.lower()
    g = Golden(name, f"{name}: {about}")

    def one(x, dtype, axis, out=None):
        out = out or dtype
        y = g.fresh("y")
        g.add(f"{mnemonic} {y}, {g.input(x, dtype)}" + (f", axis={axis}" if axis != -1 else "") +
              (f", dtype={out}" if out != dtype else ""))
        wanted = quiet(function, f64(x), axis) if x.size else x
        g.expect(y, quiet(cast, wanted, out), out, "~")

    for i, (shape, axis) in enumerate(AXES):
        for dtype in dict.fromkeys(["f32", FLOATS[i % 4]] if np.prod(shape) < 100 else ["f32"]):
            one(values(shape, dtype), dtype, axis)
    for dtype in FLOATS:
        one(values((3, 5), dtype), dtype, 1)
        one(values((5, 3), dtype), dtype, 0)
        one(quiet(cast, ROWS, dtype), dtype, 1)
        one(quiet(cast, ROWS.T, dtype), dtype, 0)
    for dtype in HALVES:
        one(values((4, 9), dtype), dtype, 1, out="f32")
        one(values((4, 9), dtype), dtype, 0, out="f32")
    g.write()


def along_axis_grad(mnemonic, about, forward, function):
    name = mnemonic.lower()
    g = Golden(name, f"{name}: {about}")

    def one(shape, dtype, axis, before=None):
        y = cast(forward(f64(values(shape, dtype)), axis) if np.prod(shape) else np.zeros(shape), dtype)
        up = values(shape, dtype, 2.0)
        wanted = function(f64(y), f64(up), axis)
        a, b = g.input(y, dtype), g.input(up, dtype)
        text = f", axis={axis}" if axis != -1 else ""
        if before is None:
            dst = g.fresh("d")
            g.add(f"{mnemonic} {dst}, {a}, {b}{text}")
        else:
            start = cast(np.full(shape, before), dtype)
            dst = g.declare("state", start, dtype)
            g.add(f"{mnemonic} {dst}, {a}, {b}{text}, acc=1")
            wanted = f64(start) + wanted
        g.expect(dst, cast(wanted, dtype), dtype, "~", TOLERANCE[dtype])

    for i, (shape, axis) in enumerate(AXES):
        for dtype in dict.fromkeys(["f32", FLOATS[i % 4]] if np.prod(shape) < 100 else ["f32"]):
            one(shape, dtype, axis, 1 if i % 2 else None)
    for dtype in FLOATS:
        one((3, 5), dtype, 1)
        one((5, 3), dtype, 0, before=-2)
    g.write()


# Gradients subtract sums of up to a thousand terms of size 1: a few hundred units of the compute type, then one
# rounding of the result.
TOLERANCE = {"f64": "atol=1e-13 rtol=1e-12", "f32": "atol=4e-5 rtol=1e-5", "f16": "atol=1e-3 rtol=2e-3",
             "bf16": "atol=1e-3 rtol=1e-2"}


def cross_entropy_rows(x, labels, ignore, smoothing):
    rows = x.reshape(-1, x.shape[-1])
    classes = x.shape[-1]
    losses, lse, gradients = [], [], []
    for row, label in zip(rows, labels.reshape(-1)):
        with np.errstate(all="ignore"):
            total = logsumexp(row)
            lse.append(total)
            if label == ignore:
                losses.append(0.0)
                gradients.append(np.zeros(classes))
                continue
            logs = log_softmax(row)
            loss = -(1 - smoothing) * logs[label]
            target = np.zeros(classes)
            target[label] = 1 - smoothing
            if smoothing:
                loss -= smoothing * np.mean(logs)
                target += smoothing / classes
            losses.append(loss)
            gradients.append(np.exp(logs) - target)
    shape = x.shape[:-1]
    return np.reshape(losses, shape), np.reshape(lse, shape), np.reshape(gradients, x.shape)


CROSS_ENTROPY = [((1, 1), 0), ((3, 2), 0), ((5, 10), 0), ((33, 3), 0.1), ((2, 255), 0), ((2, 1025), 0.25), ((7,), 0),
                 ((2, 3, 4), 0), ((2, 1, 3, 2, 5), 0.5), ((0, 3), 0), ((4, 6), 1.0)]
REDUCTIONS = ["mean", "sum", "none"]


def attributes(reduction, ignore, smoothing):
    return (f", reduction={reduction}" if reduction != "mean" else "") + \
        (f", ignore_index={ignore}" if ignore != -100 else "") + (f", label_smoothing={smoothing}" if smoothing else "")


def labels_for(shape, ignore, every):
    labels = rng.integers(0, shape[-1], shape[:-1])
    if labels.ndim and every:
        labels.reshape(-1)[1::every] = ignore
    return labels


def reduced(losses, labels, ignore, reduction):
    if reduction == "none":
        return losses
    counted = np.sum(labels != ignore)
    return quiet(np.divide, np.sum(losses), counted) if reduction == "mean" else np.sum(losses)


def cross_entropy():
    g = Golden("cross_entropy", "cross_entropy: mean over the rows that count, sum, or one a row; ignored rows are 0; lse=")
    grad = Golden("cross_entropy_grad", "cross_entropy_grad: (softmax - target) g, over the rows that count for the mean")
    case = 0

    def one(x, labels, dtype, index, reduction, ignore=-100, smoothing=0, out=None, lse=True, before=None):
        out = out or dtype
        losses, sums, gradients = cross_entropy_rows(f64(x), labels, ignore, smoothing)
        text = attributes(reduction, ignore, smoothing)
        a, b, y, s = g.input(x, dtype), g.input(labels, index), g.fresh("y"), g.fresh("s")
        g.add(f"CROSS_ENTROPY {y}, {a}, {b}{text}" + (f", lse={s}" if lse else "") +
              (f", dtype={out}" if out != dtype and not lse else ""))
        if out != dtype and lse:
            g.lines.append(f".local {y} {out}{shape_text(np.shape(reduced(losses, labels, ignore, reduction)))}")
        g.expect(y, quiet(cast, reduced(losses, labels, ignore, reduction), out), out, "~")
        if lse:
            stat = "f64" if dtype == "f64" else "f32"
            g.expect(s, quiet(cast, sums, stat), stat, "~")
        up = cast(rng.integers(-6, 7, losses.shape if reduction == "none" else ()) / 4, out)
        scale = f64(up)[..., None] if reduction == "none" else f64(up)
        if reduction == "mean":
            scale = quiet(np.divide, scale, np.sum(labels != ignore))
        wanted = np.where((labels == ignore)[..., None], 0.0, quiet(np.multiply, gradients, scale))
        a, b, u = grad.input(x, dtype), grad.input(labels, index), grad.input(up, out)
        if before is None:
            d = grad.fresh("d")
            grad.add(f"CROSS_ENTROPY_GRAD {d}, {a}, {b}, {u}{text}")
        else:
            start = cast(np.full(x.shape, before), dtype)
            d = grad.declare("state", start, dtype)
            grad.add(f"CROSS_ENTROPY_GRAD {d}, {a}, {b}, {u}{text}, acc=1")
            wanted = f64(start) + wanted
        grad.expect(d, quiet(cast, wanted, dtype), dtype, "~")

    for shape, smoothing in CROSS_ENTROPY:
        for reduction in REDUCTIONS:
            dtype, index, ignore = FLOATS[case % 4], ("i32", "i64")[case % 2], (-100, 0, 1)[case % 3]
            one(values(shape, dtype), labels_for(shape, ignore if case % 2 else 0, 3 if case % 4 < 2 else 0), dtype, index,
                reduction, ignore, smoothing, lse=case % 3 != 0, before=1 if case % 5 == 0 else None)
            case += 1
    for dtype in FLOATS:
        for reduction in REDUCTIONS:
            one(values((4, 5), dtype), labels_for((4, 5), -100, 2), dtype, "i32", reduction)
    for dtype in HALVES:
        for i, reduction in enumerate(REDUCTIONS):
            one(values((4, 5), dtype), labels_for((4, 5), -100, 2), dtype, "i64", reduction, out="f32", lse=i == 0)
    everything_ignored = np.full((3,), 7)
    for reduction in REDUCTIONS:
        one(values((3, 4), "f32"), everything_ignored, "f32", "i32", reduction, ignore=7)
    rows = np.array([[1, -np.inf, 2], [-np.inf, -np.inf, -np.inf], [np.inf, 0, 1], [np.nan, 1, 2], [1000, -1000, 0]])
    for dtype in FLOATS:
        one(quiet(cast, rows, dtype), np.array([0, 1, 2, 0, 1]), dtype, "i32", "none")
        one(quiet(cast, rows, dtype), np.array([1, 9, 9, 9, 0]), dtype, "i64", "none", ignore=9)
    g.write()
    grad.write()


def bad_labels():
    for i, (index, bad, smoothing) in enumerate([("i32", 3, 0), ("i64", -1, 0.5)]):
        labels = [2, -100, 0, bad, bad + 100, 1]
        text = f"label {bad} at labels[1,1] is outside [0,3)"
        logits = literals(values((2, 3, 3), "f32")[:, :2], "f32")
        labels = literals([labels[0], labels[1], labels[2], bad], index)
        head = [f".input logits f32[2, 2, 3] = {logits}", f".input labels {index}[2, 2] = {labels}"]
        suffix = "" if i == 0 else "-negative"
        forward = Golden(f"cross_entropy{suffix}-fault", "cross_entropy: a bad label faults before anything is written")
        forward.lines += head + [".state loss f32[] = 5", ".state sums f32[2, 2] = 1 2 3 4"]
        forward.add("CROSS_ENTROPY loss, logits, labels, lse=sums" + attributes("mean", -100, smoothing))
        forward.expect_fault("CROSS_ENTROPY", text)
        forward.expect("loss", [5], "f32")
        forward.expect("sums", [1, 2, 3, 4], "f32")
        forward.write()
        backward = Golden(f"cross_entropy_grad{suffix}-fault",
                          "cross_entropy_grad: a bad label faults before anything is written")
        backward.lines += head + [".input g f32[] = 1", ".state d f32[2, 2, 3] = 1 2 3 4 5 6 7 8 9 10 11 12"]
        backward.add("CROSS_ENTROPY_GRAD d, logits, labels, g" + attributes("mean", -100, smoothing))
        backward.expect_fault("CROSS_ENTROPY_GRAD", text)
        backward.expect("d", range(1, 13), "f32")
        backward.write()


def mse():
    g = Golden("mse_loss", "mse_loss: mean, sum, or every square; exact sums of squares of small integers")
    grad = Golden("mse_loss_grad", "mse_loss_grad: 2 (a - b) g, over the number of elements for the mean")
    case = 0

    def one(a, b, dtype, reduction, out=None, before=None):
        out = out or dtype
        squares = quiet(np.square, quiet(np.subtract, f64(a), f64(b)))
        wanted = {"mean": quiet(np.mean, squares) if squares.size else np.nan, "sum": np.sum(squares), "none": squares}[reduction]
        text = f", reduction={reduction}" if reduction != "mean" else ""
        y = g.fresh("y")
        g.add(f"MSE_LOSS {y}, {g.input(a, dtype)}, {g.input(b, dtype)}{text}" + (f", dtype={out}" if out != dtype else ""))
        g.expect(y, quiet(cast, wanted, out), out, "~" if reduction == "mean" else "==")
        up = cast(rng.integers(-6, 7, squares.shape if reduction == "none" else ()) / 4, out)
        difference = quiet(np.subtract, f64(a), f64(b))
        wanted = quiet(np.multiply, 2 * difference, f64(up) / squares.size if reduction == "mean" and squares.size else f64(up))
        names = f"{grad.input(a, dtype)}, {grad.input(b, dtype)}, {grad.input(up, out)}{text}"
        if before is None:
            d = grad.fresh("d")
            grad.add(f"MSE_LOSS_GRAD {d}, {names}")
        else:
            start = cast(np.full(a.shape, before), dtype)
            d = grad.declare("state", start, dtype)
            grad.add(f"MSE_LOSS_GRAD {d}, {names}, acc=1")
            wanted = f64(start) + wanted
        grad.expect(d, quiet(cast, wanted, dtype), dtype, "~" if reduction == "mean" else "==")

    def small(shape, dtype):
        return cast(rng.integers(-12, 13, shape) / 4, dtype)

    for shape in [(), (1,), (7,), (31,), (33,), (255,), (1025,), (2, 3), (2, 3, 4), (2, 1, 3, 2, 2), (0,), (2, 0)]:
        for reduction in REDUCTIONS:
            dtype = FLOATS[case % 4]
            if dtype in HALVES and np.prod(shape) > 256:
                dtype = "f32"
            one(small(shape, dtype), small(shape, dtype), dtype, reduction, before=None if case % 3 else 1)
            case += 1
    for dtype in FLOATS:
        for reduction in REDUCTIONS:
            one(small((3, 4), dtype), small((3, 4), dtype), dtype, reduction)
            if dtype in HALVES:
                one(small((3, 4), dtype), small((3, 4), dtype), dtype, reduction, out="f32")
        one(quiet(cast, [1, np.inf, np.nan, -np.inf], dtype), quiet(cast, [2, 1, 1, np.inf], dtype), dtype, "none")
    g.write()
    grad.write()


def softplus(x):
    return np.logaddexp(0, x)


def bce(a, b):
    return -(b * np.maximum(np.log(a), -100) + (1 - b) * np.maximum(np.log1p(-a), -100))


def huber(a, b, delta):
    d = np.abs(a - b)
    return np.where(d <= delta, d * d / 2, delta * (d - delta / 2))


# Of a, b and delta: the loss, and its slope by a.
PAIRS = {
    "MAE_LOSS": (lambda a, b, _: np.abs(a - b), lambda a, b, _: np.sign(a - b)),
    "BCE_LOSS": (lambda a, b, _: bce(a, b), lambda a, b, _: (a - b) / np.maximum(a * (1 - a), 1e-12)),
    "BCE_LOGITS_LOSS": (lambda a, b, _: np.maximum(a, 0) - a * b + softplus(-np.abs(a)), lambda a, b, _: expit(a) - b),
    "HUBER_LOSS": (huber, lambda a, b, delta: np.where(np.isnan(a - b), np.nan, np.clip(a - b, -delta, delta))),
}


def pair(mnemonic, about, about_grad, draw, odd):
    """A loss of two equal tensors: draw(shape, dtype) makes a source, `odd` are pairs of special values."""
    name = mnemonic.lower()
    g, grad = Golden(name, f"{name}: {about}"), Golden(f"{name}_grad", f"{name}_grad: {about_grad}")
    value, slope = PAIRS[mnemonic]
    case = 0

    def one(a, b, dtype, reduction, out=None, before=None, delta=None):
        out = out or dtype
        losses = quiet(value, f64(a), f64(b), delta or 1)
        wanted = {"mean": quiet(np.mean, losses) if losses.size else np.nan, "sum": quiet(np.sum, losses), "none": losses}[reduction]
        text = (f", reduction={reduction}" if reduction != "mean" else "") + (f", delta={delta}" if delta else "")
        y = g.fresh("y")
        g.add(f"{mnemonic} {y}, {g.input(a, dtype)}, {g.input(b, dtype)}{text}" + (f", dtype={out}" if out != dtype else ""))
        g.expect(y, quiet(cast, wanted, out), out, "~")
        up = cast(rng.integers(-6, 7, losses.shape if reduction == "none" else ()) / 4, out)
        scale = f64(up) / losses.size if reduction == "mean" and losses.size else f64(up)
        wanted = quiet(np.multiply, quiet(slope, f64(a), f64(b), delta or 1), scale)
        names = f"{grad.input(a, dtype)}, {grad.input(b, dtype)}, {grad.input(up, out)}{text}"
        if before is None:
            d = grad.fresh("d")
            grad.add(f"{mnemonic}_GRAD {d}, {names}")
        else:
            start = cast(np.full(a.shape, before), dtype)
            d = grad.declare("state", start, dtype)
            grad.add(f"{mnemonic}_GRAD {d}, {names}, acc=1")
            wanted = f64(start) + wanted
        grad.expect(d, quiet(cast, wanted, dtype), dtype, "~")

    for shape in [(), (1,), (7,), (33,), (1025,), (2, 3, 4), (2, 1, 3, 2, 2), (0,), (2, 0)]:
        for reduction in REDUCTIONS:
            dtype = FLOATS[case % 4] if np.prod(shape) < 256 else "f32"
            one(draw(shape, dtype), draw(shape, dtype), dtype, reduction, before=None if case % 3 else 1,
                delta=(None, 0.75)[case % 2] if mnemonic == "HUBER_LOSS" else None)
            case += 1
    for dtype in FLOATS:
        for reduction in REDUCTIONS:
            one(draw((3, 4), dtype), draw((3, 4), dtype), dtype, reduction)
            if dtype in HALVES:
                one(draw((3, 4), dtype), draw((3, 4), dtype), dtype, reduction, out="f32")
        a, b = np.transpose(odd)
        one(quiet(cast, a, dtype), quiet(cast, b, dtype), dtype, "none")
    g.write()
    grad.write()


def pairs():
    def coarse(shape, dtype):
        return cast(rng.integers(-12, 13, shape) / 4, dtype)

    def probability(shape, dtype):
        return cast(np.round(rng.uniform(0.02, 0.98, shape), 2), dtype)

    inf, nan = np.inf, np.nan
    pair("MAE_LOSS", "|a - b|: mean, sum, or every one", "sign(a - b) g, 0 where a = b", coarse,
         [(1, 1), (-2, -2), (inf, 1), (1, inf), (nan, 0), (0, nan), (-0.0, 0)])
    pair("BCE_LOSS", "-(b log a + (1 - b) log(1 - a)), logarithms not below -100", "(a - b) / max(a (1 - a), 1e-12) g",
         probability, [(0, 0), (1, 1), (0, 1), (1, 0), (0.5, 0.25), (nan, 0.5), (0.5, nan), (-1, 0), (2, 1), (1e-30, 0.5)])
    pair("BCE_LOGITS_LOSS", "max(a, 0) - a b + log(1 + e^-|a|)", "(sigmoid(a) - b) g", coarse,
         [(0, 0.5), (300, 0), (300, 1), (-300, 0), (-300, 1), (inf, 0), (-inf, 0), (nan, 1), (1, nan)])
    pair("HUBER_LOSS", "d^2 / 2 up to delta, then delta (|d| - delta / 2)", "d limited to [-delta, delta], times g", coarse,
         [(1, 1), (1, 0), (2, 1), (0, 1.25), (inf, 0), (0, inf), (nan, 1)])


def nll():
    g = Golden("nll_loss", "nll_loss: -logp at the label: the mean over the rows that count, sum, or one a row; ignored rows are 0")
    grad = Golden("nll_loss_grad", "nll_loss_grad: -g at the label, over the rows that count for the mean; 0 elsewhere")
    case = 0

    def one(x, labels, dtype, index, reduction, ignore=-100, out=None, before=None):
        out = out or dtype
        taken = np.take_along_axis(f64(x), np.where(labels == ignore, 0, labels)[..., None], -1)[..., 0] if x.size else np.zeros(labels.shape)
        losses = np.where(labels == ignore, 0.0, -taken)
        text = attributes(reduction, ignore, 0)
        y = g.fresh("y")
        g.add(f"NLL_LOSS {y}, {g.input(x, dtype)}, {g.input(labels, index)}{text}" + (f", dtype={out}" if out != dtype else ""))
        g.expect(y, quiet(cast, reduced(losses, labels, ignore, reduction), out), out, "~")
        up = cast(rng.integers(-6, 7, losses.shape if reduction == "none" else ()) / 4, out)
        scale = f64(up)[..., None] if reduction == "none" else f64(up)
        if reduction == "mean":
            scale = quiet(np.divide, scale, np.sum(labels != ignore))
        hot = (np.arange(x.shape[-1]) == labels[..., None]) & (labels != ignore)[..., None]
        wanted = np.where(hot, -scale, 0.0)
        names = f"{grad.input(labels, index)}, {grad.input(up, out)}{text}"
        if before is None:
            d = grad.fresh("d")
            grad.lines.append(f".local {d} {dtype}{shape_text(x.shape)}")
            grad.add(f"NLL_LOSS_GRAD {d}, {names}")
        else:
            start = cast(np.full(x.shape, before), dtype)
            d = grad.declare("state", start, dtype)
            grad.add(f"NLL_LOSS_GRAD {d}, {names}, acc=1")
            wanted = f64(start) + wanted
        grad.expect(d, quiet(cast, wanted, dtype), dtype, "~")

    for shape in [(1, 1), (3, 2), (5, 10), (300, 3), (7,), (2, 3, 4), (2, 1, 3, 5), (0, 3), (2, 0, 3)]:
        for reduction in REDUCTIONS:
            dtype, index, ignore = FLOATS[case % 4], ("i32", "i64")[case % 2], (-100, 0, 1)[case % 3]
            dtype = dtype if np.prod(shape) < 256 else "f32"
            one(-np.abs(values(shape, dtype)), labels_for(shape, ignore if case % 2 else 0, 3 if case % 4 < 2 else 0), dtype,
                index, reduction, ignore, before=1 if case % 5 == 0 else None)
            case += 1
    for dtype in FLOATS:
        for reduction in REDUCTIONS:
            one(-np.abs(values((4, 5), dtype)), labels_for((4, 5), -100, 2), dtype, "i32", reduction)
            if dtype in HALVES:
                one(-np.abs(values((4, 5), dtype)), labels_for((4, 5), -100, 2), dtype, "i64", reduction, out="f32")
        rows = quiet(cast, [[-np.inf, np.nan, 0], [np.nan, -1, -2], [-np.inf, -1, -np.inf]], dtype)
        one(rows, np.array([0, 1, 9]), dtype, "i32", "none", ignore=9)
    for reduction in REDUCTIONS:
        one(values((3, 4), "f32"), np.full((3,), 7), "f32", "i32", reduction, ignore=7)
    g.write()
    grad.write()
    for kind in ("", "_grad"):
        fault = Golden(f"nll_loss{kind}-fault", f"nll_loss{kind}: a bad label faults before anything is written")
        fault.lines += [".input labels i32[2, 2] = 2 -100 0 3"]
        if kind:
            fault.lines += [".input g f32[] = 1", ".state d f32[2, 2, 3] = 1 2 3 4 5 6 7 8 9 10 11 12"]
            fault.add("NLL_LOSS_GRAD d, labels, g")
        else:
            fault.lines += [".input logp f32[2, 2, 3] = -1 -2 -3 -4 -5 -6 -7 -8 -9 -1 -2 -3", ".state d f32[] = 5"]
            fault.add("NLL_LOSS d, logp, labels")
        fault.expect_fault(f"NLL_LOSS{kind.upper()}", "label 3 at labels[1,1] is outside [0,3)")
        fault.expect("d", range(1, 13) if kind else [5], "f32")
        fault.write()


def clip_norm():
    g = Golden("clip_norm", "clip_norm: one 2-norm over tensors of any float dtype; larger than c is scaled by c / norm")

    def one(tensors, c, norm_dtype, relation="~", tolerance=""):
        norm = np.sqrt(sum(np.sum(f64(x)**2) for x, _ in tensors))
        names = [g.declare("state", x, dtype) for x, dtype in tensors]
        out = g.fresh("n")
        g.lines.append(f".local {out} {norm_dtype}[]")
        g.add(f"CLIP_NORM {', '.join(names)}, {out}, c={c!r}")
        g.expect(out, quiet(cast, norm, norm_dtype), norm_dtype, relation)
        for name, (x, dtype) in zip(names, tensors):
            scaled = f64(x) if norm <= c else f64(x) * (c / norm if np.isfinite(norm) else np.nan)
            g.expect(name, quiet(cast, scaled, dtype), dtype, relation, tolerance if dtype == "f64" else "")

    def exact(*parts):
        return [(cast(np.asarray(part, float), "f32"), "f32") for part in parts]

    one(exact([3, 0], [0, 4, 12]), 6.5, "f32", "==")  # norm 13, scale 0.5
    one(exact([3], [4]), 5.0, "f32", "==")            # not larger: untouched
    one(exact([[3, 4]]), 2.5, "f64", "==")
    one(exact([0, -0.0], []), 1.0, "f32", "==")       # a norm of 0 is safe
    one(exact([0, 0]), 0.0, "f32", "==")
    one(exact([3, 4]), 0.0, "f32", "==")
    one(exact([1, 2], [np.inf]), 1.0, "f32", "==")    # not finite: all NaN
    one(exact([1, np.nan], [4]), 1e9, "f32", "==")
    for dtype in FLOATS:
        one([(values(shape, dtype, 1.0), dtype) for shape in [(), (3,), (2, 31), (0, 3), (1, 2, 1, 3, 2)]], 0.5, dtype)
    one([(values((5, 3), dtype, 1.0), dtype) for dtype in FLOATS], 0.25, "f32",
        tolerance="rtol=1e-6")  # the squares of the others are summed in f32
    one([(values((1025,), "f32", 1.0), "f32"), (values((33,), "f32", 1.0), "f32")], 4.0, "f32")
    g.write()


along_axis("SOFTMAX", "e^(src - max) over its sum; -inf alone gives NaN", lambda x, axis: softmax(x, axis))
along_axis("LOG_SOFTMAX", "src - logsumexp(src)", lambda x, axis: log_softmax(x, axis))
along_axis_grad("SOFTMAX_GRAD", "y (g - sum(y g))", lambda x, axis: softmax(x, axis),
                lambda y, g, axis: y * (g - np.sum(y * g, axis, keepdims=True)))
along_axis_grad("LOG_SOFTMAX_GRAD", "g - e^y sum(g)", lambda x, axis: log_softmax(x, axis),
                lambda y, g, axis: g - np.exp(y) * np.sum(g, axis, keepdims=True))
cross_entropy()
bad_labels()
mse()
clip_norm()
nll()
pairs()
