"""Golden tapes of MAX_POOL2D, AVG_POOL2D, GLOBAL_AVG_POOL, UPSAMPLE_NEAREST2D and their gradients.

Windows are written out in NumPy, because PyTorch has no uneven pads; where it can, PyTorch's float64 must agree.
"""
import numpy as np
import torch
import torch.nn.functional as F

from golden import FLOATS, Golden, cast, f64, sample

rng = np.random.default_rng(46)
# The sums of a gradient have a few terms of size 16, then one rounding of the result.
TOLERANCE = {"f64": "atol=1e-13 rtol=1e-14", "f32": "atol=1e-5 rtol=1e-6", "f16": "atol=1e-3 rtol=1e-3",
             "bf16": "atol=1e-3 rtol=8e-3"}


def pair(value):
    return (value, value) if isinstance(value, int) else tuple(value)


class Windows:
    def __init__(self, shape, kernel, stride=None, pad=0, dilation=1):
        self.shape, self.given = shape, {"kernel": kernel, "stride": stride, "pad": pad, "dilation": dilation}
        self.kernel, self.dilation = pair(kernel), pair(dilation)
        self.stride = self.kernel if stride is None else pair(stride)
        ends = list(pad) if not isinstance(pad, int) else [pad] * 2
        self.low, self.high = (ends[:2], ends[2:]) if len(ends) == 4 else (ends, ends)
        self.count = [(shape[2 + i] + self.low[i] + self.high[i] - (self.kernel[i] - 1) * self.dilation[i] - 1) //
                      self.stride[i] + 1 for i in range(2)]

    def attributes(self):
        plain = {"kernel": None, "stride": None, "pad": 0, "dilation": 1}
        return "".join(f", {name}=" + (str(value) if isinstance(value, int) else str(list(value)))
                       for name, value in self.given.items() if value != plain[name])

    def places(self, oh, ow):
        """Row-major positions of the elements of one window."""
        rows = [oh * self.stride[0] - self.low[0] + i * self.dilation[0] for i in range(self.kernel[0])]
        columns = [ow * self.stride[1] - self.low[1] + i * self.dilation[1] for i in range(self.kernel[1])]
        return [(h, w) for h in rows for w in columns if 0 <= h < self.shape[2] and 0 <= w < self.shape[3]]

    def each(self):
        for n in range(self.shape[0]):
            for c in range(self.shape[1]):
                for oh in range(self.count[0]):
                    for ow in range(self.count[1]):
                        yield (n, c, oh, ow), self.places(oh, ow)

    def empty(self):
        return np.zeros((*self.shape[:2], *self.count))

    def same_pads(self):
        return list(self.low) == list(self.high)


CASES = [Windows((1, 1, 1, 1), 1), Windows((2, 3, 4, 6), 2), Windows((1, 2, 5, 7), 3, 2, 1), Windows((2, 2, 5, 4), [2, 3], 1),
         Windows((1, 2, 6, 5), [3, 2], [1, 3], [1, 0]), Windows((1, 1, 4, 5), 2, 1, [1, 0, 0, 1]), Windows((1, 2, 9, 3), [2, 1], [5, 1]),
         Windows((0, 2, 4, 4), 2), Windows((2, 0, 4, 4), 2), Windows((1, 1, 3, 560), [2, 3], [1, 2], [0, 1])]
DILATED = [Windows((1, 2, 7, 8), 2, 1, 0, 2), Windows((1, 2, 6, 9), [2, 3], [2, 1], 1, [3, 2]), Windows((1, 1, 5, 5), 3, 1, 1, 2)]


def first_largest(x, at, places):
    """The first NaN, else the first largest."""
    values = [x[at[0], at[1], h, w] for h, w in places]
    nans = [i for i, v in enumerate(values) if np.isnan(v)]
    best = nans[0] if nans else max(range(len(values)), key=lambda i: values[i])
    return places[best], values[best]


def max_pool(case, x):
    y, index = case.empty(), case.empty().astype(np.int64)
    for at, places in case.each():
        (h, w), y[at] = first_largest(x, at, places)
        index[at] = h * case.shape[3] + w
    if case.same_pads() and y.size and not np.isnan(x).any():
        torch_y, torch_index = F.max_pool2d(torch.tensor(x), case.kernel, case.stride, tuple(case.low), case.dilation,
                                            return_indices=True)
        assert (torch_y.numpy() == y).all() and (torch_index.numpy() == index).all()
    return y, index


def max_pool_grad(case, x, up):
    d = np.zeros(case.shape)
    for at, places in case.each():
        h, w = first_largest(x, at, places)[0]
        d[at[0], at[1], h, w] += up[at]
    return d


def ties(shape, dtype):
    """Few values, so that most windows hold their maximum more than once."""
    return cast(rng.integers(-2, 2, shape), dtype)


SPECIAL = np.array([[[[1, np.nan, 2, np.inf], [np.nan, 0, -np.inf, np.inf], [-np.inf, -np.inf, -0.0, 0.0],
                      [-np.inf, -np.inf, 0.0, -0.0]]]])


def maxima():
    g = Golden("max_pool2d", "max_pool2d: kernel, stride, uneven pads, dilation, ties, NaN and infinities, index=")

    def one(case, x, dtype, index=None):
        y, i = g.fresh("y"), g.fresh("i")
        wanted = max_pool(case, f64(x))
        text = case.attributes()
        if index:
            text += f", index={i}"
            if index == "i64":
                g.lines.append(f".output {i} i64{list(wanted[1].shape)}")
        g.add(f"MAX_POOL2D {y}, {g.input(x, dtype)}{text}")
        g.expect(y, cast(wanted[0], dtype), dtype)
        if index:
            g.expect(i, wanted[1], index)

    for n, case in enumerate(CASES + DILATED):
        one(case, sample(rng, case.shape, "f32"), "f32", [None, "i32"][n % 2])
        one(case, ties(case.shape, FLOATS[n % 4]), FLOATS[n % 4], ["i32", "i64", None][n % 3])
    for dtype in FLOATS:
        one(Windows(SPECIAL.shape, 2), cast(SPECIAL, dtype), dtype)
        one(Windows(SPECIAL.shape, 2), cast(SPECIAL, dtype), dtype, "i32")
        one(Windows(SPECIAL.shape, 3, 1, 1), cast(SPECIAL, dtype), dtype, "i32")
    g.write()


def maxima_grad():
    g = Golden("max_pool2d_grad", "max_pool2d_grad: to the first maximum, with and without index=, acc=1, ties, NaN")

    def one(case, x, dtype, index=None, before=None):
        up = sample(rng, case.empty().shape, dtype)
        wanted = max_pool_grad(case, f64(x), f64(up))
        a, b = g.input(x, dtype), g.input(up, dtype)
        text = case.attributes()
        if index:
            text += f", index={g.input(max_pool(case, f64(x))[1], index)}"
        if before is None:
            d = g.fresh("d")
        else:
            start = cast(np.full(case.shape, before), dtype)
            d = g.declare("state", start, dtype)
            text += ", acc=1"
            wanted = wanted + before
        g.add(f"MAX_POOL2D_GRAD {d}, {a}, {b}{text}")
        g.expect(d, cast(wanted, dtype), dtype)

    for n, case in enumerate(CASES + DILATED):
        one(case, sample(rng, case.shape, "f32"), "f32", [None, "i32"][n % 2])
        one(case, ties(case.shape, FLOATS[n % 4]), FLOATS[n % 4], ["i32", "i64", None][n % 3], [None, 2][n // 2 % 2])
    for dtype in FLOATS:
        one(CASES[2], ties(CASES[2].shape, dtype), dtype)
        one(CASES[3], ties(CASES[3].shape, dtype), dtype, None, -3)
        one(Windows(SPECIAL.shape, 3, 1, 1), cast(SPECIAL, dtype), dtype)
    g.write()


def shares(case, include):
    for at, places in case.each():
        yield at, places, (case.kernel[0] * case.kernel[1] if include else len(places))


def avg_pool(case, x, include):
    y = case.empty()
    for at, places, count in shares(case, include):
        y[at] = sum((x[at[0], at[1], h, w] for h, w in places), 0.0) / count
    if case.same_pads() and y.size and np.isfinite(x).all():
        wanted = F.avg_pool2d(torch.tensor(x), case.kernel, case.stride, tuple(case.low), count_include_pad=include)
        assert np.allclose(wanted.numpy(), y, rtol=1e-14, atol=1e-14)
    return y


def means():
    g = Golden("avg_pool2d", "avg_pool2d: both ways to count padding, uneven pads, NaN and infinities, every dtype")

    def one(case, x, dtype, include):
        y = g.fresh("y")
        with np.errstate(all="ignore"):
            wanted = avg_pool(case, f64(x), include)
        g.add(f"AVG_POOL2D {y}, {g.input(x, dtype)}{case.attributes()}" + ("" if include else ", count_include_pad=0"))
        g.expect(y, cast(wanted, dtype), dtype)

    for n, case in enumerate(CASES):
        one(case, sample(rng, case.shape, "f32"), "f32", n % 2 == 0)
        one(case, sample(rng, case.shape, FLOATS[n % 4]), FLOATS[n % 4], n % 2 == 1)
    for dtype in FLOATS:
        one(CASES[2], sample(rng, CASES[2].shape, dtype), dtype, True)
        one(CASES[2], sample(rng, CASES[2].shape, dtype), dtype, False)
        one(Windows(SPECIAL.shape, 2), cast(SPECIAL, dtype), dtype, True)
    g.write()


def means_grad():
    g = Golden("avg_pool2d_grad", "avg_pool2d_grad: the shares of every window, both ways to count padding, acc=1")

    def one(case, dtype, include, before=None):
        up = sample(rng, case.empty().shape, dtype)
        wanted = np.zeros(case.shape)
        for at, places, count in shares(case, include):
            for h, w in places:
                wanted[at[0], at[1], h, w] += f64(up)[at] / count
        b = g.input(up, dtype)
        text = case.attributes() + ("" if include else ", count_include_pad=0")
        if before is None:
            d = g.fresh("d")
            text += ", shape=" + str(list(case.shape)).replace(" ", "")
        else:
            d = g.declare("state", cast(np.full(case.shape, before), dtype), dtype)
            text += ", acc=1"
            wanted = wanted + before
        g.add(f"AVG_POOL2D_GRAD {d}, {b}{text}")
        g.expect(d, cast(wanted, dtype), dtype, "~", TOLERANCE[dtype])

    for n, case in enumerate(CASES):
        one(case, "f32", n % 2 == 0)
        one(case, FLOATS[n % 4], n % 2 == 1, [None, 2][n // 2 % 2])
    for dtype in FLOATS:
        one(CASES[2], dtype, False)
        one(CASES[4], dtype, True, -3)
    g.write()


def global_means():
    g = Golden("global_avg_pool", "global_avg_pool: ranks 3 to 5, more than one block, empty batch, halves to f32")

    def one(x, dtype, out=None):
        out = out or dtype
        y = g.fresh("y")
        g.add(f"GLOBAL_AVG_POOL {y}, {g.input(x, dtype)}" + (f", dtype={out}" if out != dtype else ""))
        with np.errstate(all="ignore"):
            wanted = f64(x).mean(axis=tuple(range(2, x.ndim)), keepdims=True) if x.size else f64(x)
        g.expect(y, cast(wanted, out), out)

    for dtype in FLOATS:
        one(sample(rng, (2, 3, 4, 5), dtype), dtype)
        one(sample(rng, (2, 3, 7), dtype), dtype)
        one(sample(rng, (1, 2, 3, 1, 2), dtype), dtype)
        one(sample(rng, (1, 1, 1, 1), dtype), dtype)
        one(cast(SPECIAL.reshape(1, 4, 2, 2), dtype), dtype)
    one(sample(rng, (1, 2, 33, 31), "f32"), "f32")
    for dtype in ("f16", "bf16"):
        one(sample(rng, (2, 2, 3, 3), dtype), dtype, "f32")
    g.lines.append(".input empty f32[0, 3, 2, 2]")
    g.add("GLOBAL_AVG_POOL none, empty")
    g.expect("none", np.zeros(0), "f32")
    g.write()


SCALES = [((1, 1, 1, 1), 1), ((2, 2, 3, 2), 2), ((1, 2, 2, 3), [3, 1]), ((1, 1, 2, 2), [1, 4]), ((0, 1, 2, 2), 2), ((1, 1, 0, 3), 2),
          ((1, 1, 2, 300), [2, 2])]


def scale_text(scale):
    return f", scale={scale}"


def upsampled():
    g = Golden("upsample_nearest2d", "upsample_nearest2d: one scale or two, empty axes, NaN, every dtype")
    back = Golden("upsample_nearest2d_grad", "upsample_nearest2d_grad: sums of the copies, acc=1, every dtype")

    def one(shape, scale, dtype, before=None):
        x = sample(rng, shape, dtype)
        y = g.fresh("y")
        g.add(f"UPSAMPLE_NEAREST2D {y}, {g.input(x, dtype)}{scale_text(scale)}")
        wide = x.repeat(pair(scale)[0], 2).repeat(pair(scale)[1], 3)
        if x.size:
            assert (F.interpolate(torch.tensor(f64(x)), scale_factor=tuple(map(float, pair(scale)))).numpy() == wide).all()
        g.expect(y, wide, dtype)
        up = sample(rng, wide.shape, dtype)
        n, c, h, w = shape
        wanted = f64(up).reshape(n, c, h, pair(scale)[0], w, pair(scale)[1]).sum((3, 5))
        b = back.input(up, dtype)
        if before is None:
            d, text = back.fresh("d"), ", shape=" + str(list(shape)).replace(" ", "")
        else:
            d, text = back.declare("state", cast(np.full(shape, before), dtype), dtype), ", acc=1"
            wanted = wanted + before
        back.add(f"UPSAMPLE_NEAREST2D_GRAD {d}, {b}{scale_text(scale)}{text}")
        back.expect(d, cast(wanted, dtype), dtype)

    for n, (shape, scale) in enumerate(SCALES):
        one(shape, scale, "f32")
        one(shape, scale, FLOATS[n % 4], [2, None][n % 2])
    for dtype in FLOATS:
        one((1, 2, 2, 3), 2, dtype)
        one((1, 2, 2, 3), [2, 3], dtype, -1)
    x, y = g.input(np.array([[[[np.nan, -np.inf, -0.0]]]]), "f32"), g.fresh("y")
    g.add(f"UPSAMPLE_NEAREST2D {y}, {x}, scale=2")
    g.expect(y, np.tile(np.repeat([np.nan, -np.inf, -0.0], 2), 2), "f32")
    g.write()
    back.write()


maxima()
maxima_grad()
means()
means_grad()
global_means()
upsampled()
