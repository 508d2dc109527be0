"""Golden tapes of the training macros: learning-rate schedules driven by an optimizer's step, two optimizer groups,
gradient accumulation, averages of weights. Expectations are NumPy's, in float64, rounded once."""
import math

import numpy as np

from golden import Golden, literals

UPDATES = 14
TIGHT = {"f32": "rtol=2e-7 atol=1e-9", "f64": "rtol=1e-14 atol=1e-15"}


# What each macro does at update k, which counts from 1.
def warmup(k, base, steps):
    return base * min(1, k / steps)


def linear(k, first, last, steps):
    return first + (last - first) * min(1, (k - 1) / max(steps - 1, 1))


def cosine(k, first, last, steps):
    return last + (first - last) * (1 + math.cos(math.pi * min(1, (k - 1) / max(steps - 1, 1)))) / 2


def warmup_linear(k, base, last, warm, steps):
    return warmup(k, base, warm) if k <= warm else base + (last - base) * min(1, (k - warm) / (steps - warm))


def warmup_cosine(k, base, last, warm, steps):
    if k <= warm:
        return warmup(k, base, warm)
    return last + (base - last) * (1 + math.cos(math.pi * min(1, (k - warm) / (steps - warm)))) / 2


def staircase(k, base, factor, every):
    return base * factor ** ((k - 1) // every)


def multi_step(k, base, factor, milestones):
    return base * factor ** sum(k > milestone for milestone in milestones)


def inverse_sqrt(k, base, warm):
    return base * min(k / warm, math.sqrt(warm / k))


def schedule(function, dtype, *arguments, about):
    """Plays the macro in front of UPDATES calls of an optimizer; the rate of each call is an expectation."""
    name = function.__name__
    g = Golden(f"std-{name}-{dtype}" if dtype != "f32" else f"std-{name}", about)
    g.lines += [".include <std/schedules.tape>", f".param w {dtype}[2] = 1 2", f".output loss {dtype}[]"]
    texts = []
    for argument in arguments:
        if isinstance(argument, list):
            g.lines.append(f".data milestones i64[{len(argument)}] = {literals(argument, 'i64')}")
            argument = "milestones"
        texts.append(str(argument))
    g.lines += [".tape objective", "  SUM loss, w", ".end", ".grad backward of=objective loss=loss",
                ".optimizer opt kind=sgd params=w"]
    g.add("CALL objective")
    g.add("CALL backward")
    g.body.append(f".for k = 1, {UPDATES}")
    g.add(f"{name} opt.lr, {', '.join(texts)}, opt.t")
    g.add("COPY rate$k, opt.lr")
    g.add("CALL opt")
    g.body.append(".endfor")
    rates = [function(k, *arguments) for k in range(1, UPDATES + 1)]
    for k, rate in enumerate(rates, 1):
        g.expect(f"rate{k}", np.array(rate), dtype, "~", TIGHT[dtype])
    g.expect("w", np.array([1, 2]) - sum(rates), dtype, "~", "rtol=2e-6" if dtype == "f32" else "rtol=1e-14")
    g.expect("opt.t", np.array(UPDATES), "i64")
    g.write()


def adamw(p, grads, lrs, decay, beta1=0.9, beta2=0.999, eps=1e-8):
    """Loshchilov and Hutter (2019), bias-corrected, eps outside the root, over the gradients of successive steps."""
    m, v = np.zeros_like(p), np.zeros_like(p)
    for t, (g, lr) in enumerate(zip(grads, lrs), 1):
        g = g(p)
        p = p * (1 - lr * decay)
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        p = p - lr * (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + eps)
    return p


def groups():
    """Weights decay, biases do not; both groups take their rate from one tensor."""
    rng = np.random.default_rng(11)
    x, w, b = rng.normal(size=(4, 3)), rng.normal(size=(3, 2)), rng.normal(size=2)
    g = Golden("optimizer-groups", "two .optimizer lines: weights with decay, biases without, one learning rate")
    for role, name, value in (("input", "x", x), ("param", "w", w), ("param", "b", b)):
        g.declare(role, np.float32(value), "f32", name)
    g.lines += [".include <std/schedules.tape>", ".output loss f32[]", ".local rate f32[]",
                ".tape objective", "  MATMUL z, x, w", "  ADD z, z, b", "  SQUARE z, z", "  SUM loss, z", ".end",
                ".grad backward of=objective loss=loss",
                ".optimizer decayed kind=adamw params=w lr=rate weight_decay=0.5",
                ".optimizer plain kind=adamw params=b lr=rate weight_decay=0"]
    g.body.append(".for k = 1, 3")
    for line in ("cosine rate, 0.1, 0, 4, decayed.t", "CALL objective", "CALL backward", "CALL decayed", "CALL plain"):
        g.add(line)
    g.body.append(".endfor")
    x, w, b = (np.float32(value).astype(np.float64) for value in (x, w, b))
    lrs = [cosine(k, 0.1, 0, 4) for k in (1, 2, 3)]
    # Each parameter's gradient needs the other's value at that step.
    path_w, path_b = [w], [b]
    for k in range(3):
        path_w.append(adamw(w, [lambda p, b=b_k: 2 * x.T @ (x @ p + b) for b_k in path_b[:k + 1]], lrs, 0.5))
        path_b.append(adamw(b, [lambda p, w=w_k: 2 * (x @ w + p).sum(0) for w_k in path_w[:k + 1]], lrs, 0))
    g.expect("w", path_w[3], "f32", "~", "rtol=1e-5 atol=1e-6")
    g.expect("b", path_b[3], "f32", "~", "rtol=1e-5 atol=1e-6")
    g.write()


def accumulation():
    """Four micro-batches of two rows: the gradients add up to those of the mean over all eight rows."""
    rng = np.random.default_rng(12)
    x, y, w = rng.normal(size=(4, 2, 3)), rng.normal(size=(4, 2, 1)), rng.normal(size=(3, 1))
    g = Golden("gradient-accumulation", "accumulate=1: micro-batches, then one update with the gradient of all rows")
    g.declare("input", np.float32(x), "f32", "x")
    g.declare("input", np.float32(y), "f32", "y")
    g.declare("param", np.float32(w), "f32", "w")
    g.lines += [".const MICRO = 4", ".output loss f32[]", ".local part f32[]", ".local xs f32[2, 3]", ".local ys f32[2, 1]",
                ".tape objective  ; the mean over a micro-batch, divided by their number", "  MATMUL z, xs, w",
                "  SUB z, z, ys", "  SQUARE z, z", "  MEAN part, z", "  DIV part, part, MICRO", ".end",
                ".grad backward of=objective loss=part accumulate=1", ".optimizer opt kind=sgd params=w lr=0.125"]
    g.add("ZERO_GRAD w")
    g.add("FILL loss, value=0")
    g.body.append(".for i = 0, MICRO - 1")
    for line in ("SLICE x$i, x, start=[$i], stop=[$i + 1]", "RESHAPE xs, x$i, shape=[2, 3]",
                 "SLICE y$i, y, start=[$i], stop=[$i + 1]", "RESHAPE ys, y$i, shape=[2, 1]", "CALL objective",
                 "CALL backward", "ADD loss, loss, part"):
        g.add(line)
    g.body.append(".endfor")
    g.add("COPY gradient, w_grad")
    g.add("CALL opt")
    x, y, w = (np.float32(value).astype(np.float64) for value in (x.reshape(8, 3), y.reshape(8, 1), w))
    error = x @ w - y
    gradient = 2 * x.T @ error / 8
    g.expect("loss", (error**2).mean(), "f32", "~", "rtol=1e-6")
    g.expect("gradient", gradient, "f32", "~", "rtol=1e-5 atol=1e-6")
    g.expect("w", w - 0.125 * gradient, "f32", "~", "rtol=1e-6 atol=1e-7")
    g.write()


def averages():
    """w moves by a constant gradient; the average begins as the first w."""
    for dtype in ("f32", "f64"):
        g = Golden("std-ema" if dtype == "f32" else f"std-ema-{dtype}", "ema: the first value, then the exponential mean")
        g.lines += [".include <std/averages.tape>", f".param w {dtype}[3] = 1 -2 0.5", f".state mean {dtype}[3] fill value=9",
                    f".output loss {dtype}[]", ".tape objective", "  SQUARE s, w", "  SUM loss, s", ".end",
                    ".grad backward of=objective loss=loss", ".optimizer opt kind=sgd params=w lr=0.25"]
        g.body.append(".for k = 1, 6")
        for line in ("CALL objective", "CALL backward", "CALL opt", "ema mean, w, 0.75, opt.t", "COPY mean$k, mean"):
            g.add(line)
        g.body.append(".endfor")
        w, mean = np.array([1, -2, 0.5]), None
        for k in range(1, 7):
            w = w - 0.25 * 2 * w
            mean = w if mean is None else 0.75 * mean + 0.25 * w
            g.expect(f"mean{k}", mean, dtype, "~", TIGHT[dtype])
        g.write()


schedule(warmup, "f32", 0.1, 10, about="warmup: base / steps at update 1, base from update `steps` on")
schedule(linear, "f32", 1.0, 0.1, 10, about="linear: update 1 has the first value, update `steps` the last, as have all after it")
schedule(linear, "f64", 0.0, 0.3, 4, about="linear: an f64 rate that rises")
schedule(cosine, "f32", 0.1, 0.001, 10, about="cosine: update 1 has the first value, update `steps` the last, as have all after it")
schedule(cosine, "f64", 0.1, 0.0, 12, about="cosine: an f64 rate")
schedule(warmup_linear, "f32", 0.1, 0.01, 3, 11, about="warmup_linear: base at update `warm`, last at update `steps`")
schedule(warmup_cosine, "f32", 0.1, 0.01, 3, 11, about="warmup_cosine: base at update `warm`, last at update `steps`")
schedule(staircase, "f32", 0.1, 0.5, 4, about="staircase: times factor behind every 4 updates")
schedule(multi_step, "f32", 0.1, 0.1, [3, 7, 8], about="multi_step: times factor behind updates 3, 7 and 8")
schedule(inverse_sqrt, "f32", 0.1, 4, about="inverse_sqrt: rises to base at update `warm`, then falls with the root")
groups()
accumulation()
averages()
