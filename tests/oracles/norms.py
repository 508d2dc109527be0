"""Golden tapes of CAUSAL_SOFTMAX, LAYER_NORM, RMS_NORM, GROUP_NORM, BATCH_NORM and their gradients: float64 formulas in
PyTorch on the inputs as their dtype holds them, gradients by its autograd."""
import numpy as np
import torch

from golden import FLOATS, HALVES, Golden, cast, quiet

rng = np.random.default_rng(616)
# Gradients subtract sums of terms of size 1: some ten units of the compute type, then one rounding.
TOLERANCE = {"f64": "", "f32": "atol=5e-6 rtol=2e-5", "f16": "atol=2e-3 rtol=2e-3", "bf16": "atol=1.6e-2 rtol=1.6e-2"}


def values(shape, dtype, scale=3.0):
    return cast(np.round(rng.uniform(-scale, scale, shape), 2), dtype)


def tensor(x, grad=False):
    return torch.tensor(np.asarray(x).astype(np.float64), requires_grad=grad)


def stat_of(dtype):
    return "f64" if dtype == "f64" else "f32"


def expect(g, name, wanted, dtype, tolerance=None):
    wanted = wanted.detach().numpy() if isinstance(wanted, torch.Tensor) else wanted
    g.expect(name, quiet(cast, wanted, dtype), dtype, "~", TOLERANCE[dtype] if tolerance is None else tolerance)


def destination(g, shape, dtype, before):
    """The name of an accumulating destination that holds `before`, or of a new one; its start; the attribute."""
    if before is None:
        return g.fresh("d"), 0.0, ""
    start = cast(np.full(shape, before), dtype)
    return g.declare("state", start, dtype), tensor(start), ", acc=1"


def typed(g, name, dtype, shape):
    """Declares a result whose dtype is not the inferred one."""
    g.lines.append(f".local {name} {dtype}[{', '.join(map(str, shape))}]")
    return name


# ---- causal softmax ----

def causal(x):
    queries, keys = x.shape[-2:]
    hidden = torch.triu(torch.ones(queries, keys, dtype=torch.bool), keys - queries + 1)
    x = x.masked_fill(hidden, -torch.inf)
    largest = x.amax(-1, keepdim=True) if keys else x
    e = torch.exp(x - largest)
    y = e / e.sum(-1, keepdim=True)
    return torch.where(largest == -torch.inf, torch.zeros_like(y), y).masked_fill(hidden, 0.0)


def causal_softmax():
    g = Golden("causal_softmax", "causal_softmax: row q sees the columns up to q + K - Q; a row that sees only -inf is 0")
    grad = Golden("causal_softmax_grad", "causal_softmax_grad: y (g - sum(y g)) over the columns each row sees, else 0")

    def one(x, dtype, out=None, before=None):
        out = out or dtype
        y = g.fresh("y")
        g.add(f"CAUSAL_SOFTMAX {y}, {g.input(x, dtype)}" + (f", dtype={out}" if out != dtype else ""))
        found = causal(tensor(x))
        expect(g, y, found, out, "")
        saved = cast(found.numpy(), dtype)
        up = values(x.shape, dtype, 2.0)
        d, start, acc = destination(grad, x.shape, dtype, before)
        grad.add(f"CAUSAL_SOFTMAX_GRAD {d}, {grad.input(saved, dtype)}, {grad.input(up, dtype)}{acc}")
        s, u = tensor(saved), tensor(up)
        hidden = torch.triu(torch.ones(x.shape[-2:], dtype=torch.bool), x.shape[-1] - x.shape[-2] + 1)
        products = (s * u).masked_fill(hidden, 0.0).sum(-1, keepdim=True)
        expect(grad, d, start + (s * (u - products)).masked_fill(hidden, 0.0), dtype)

    for i, shape in enumerate([(1, 1), (3, 3), (1, 7), (2, 5), (33, 33), (3, 1025), (2, 3, 4), (2, 2, 3, 3), (0, 3), (0, 0),
                               (2, 0, 5), (0, 2, 3)]):
        for dtype in dict.fromkeys(["f32", FLOATS[i % 4]] if np.prod(shape) < 100 else ["f32"]):
            one(values(shape, dtype), dtype, before=1 if i % 2 else None)
    # What a row does not see never matters; what it sees propagates.
    odd = np.array([[1, np.nan, np.inf, np.nan], [-np.inf, -np.inf, 5, np.inf], [1000, 1001, -np.inf, 7],
                    [np.nan, 0, 0, 0]])
    infinite = np.array([[-np.inf, np.nan], [np.inf, 1]])
    for dtype in FLOATS:
        one(values((3, 5), dtype), dtype)
        one(quiet(cast, odd, dtype), dtype)
        one(quiet(cast, infinite, dtype), dtype, before=-2)
    for dtype in HALVES:
        one(values((3, 4), dtype), dtype, out="f32")
    g.write()
    grad.write()


# ---- norms over rows ----

def standard(x, axes, eps, centred=True):
    mean = x.mean(axes, keepdim=True) if centred else torch.zeros_like(x.sum(axes, keepdim=True))
    rstd = 1 / torch.sqrt(((x - mean) ** 2).mean(axes, keepdim=True) + eps)
    return (x - mean) * rstd, mean, rstd


class Norm:
    """A norm command: its three golden files and how it reads a source."""

    def __init__(self, mnemonic, about, centred=True):
        name = mnemonic.lower()
        self.mnemonic, self.centred = mnemonic, centred
        self.golden = Golden(name, f"{name}: {about}")
        self.grad = Golden(f"{name}_grad", f"{name}_grad: the gradient by the source, statistics given and computed again")
        self.weight = Golden(f"{name}_weight_grad", f"{name}_weight_grad: the gradient by weight")

    def write(self):
        for g in (self.golden, self.grad, self.weight):
            g.write()

    def statistics(self, g, mean, rstd, dtype):
        names = [("mean", mean)] * self.centred + [("rstd", rstd)]
        return "".join(f", {name}={g.input(quiet(cast, x.numpy(), stat_of(dtype)), stat_of(dtype))}" for name, x in names)

    def one(self, x, dtype, text, normalise, weight_shape, out=None, weight_dtype=None, affine="wb", stats=True, before=None):
        """normalise(x) gives the normalised source, mean and rstd as they are stored, and how a weight is broadcast."""
        out, weight_dtype = out or dtype, weight_dtype or dtype
        source = tensor(x, True)
        normal, mean, rstd, spread = normalise(source)
        mean, rstd = mean.detach(), rstd.detach()
        w = values(weight_shape, weight_dtype, 2.0) if "w" in affine else None
        b = values(weight_shape, weight_dtype, 2.0) if "b" in affine and self.centred else None
        weight = tensor(w if w is not None else np.ones(weight_shape), True)
        wanted = normal * spread(weight) + (spread(tensor(b)) if b is not None else 0)

        g = self.golden
        y = typed(g, g.fresh("y"), out, x.shape) if out != dtype else g.fresh("y")
        line = f"{self.mnemonic} {y}, {g.input(x, dtype)}{text}"
        line += f", weight={g.input(w, weight_dtype)}" if w is not None else ""
        line += f", bias={g.input(b, weight_dtype)}" if b is not None else ""
        expect(g, y, wanted, out, TOLERANCE[out])
        if stats:
            m, s = g.fresh("m"), g.fresh("s")
            line += (f", mean={m}" if self.centred else "") + f", rstd={s}"
            if self.centred:
                expect(g, m, mean, stat_of(dtype), "")
            expect(g, s, rstd, stat_of(dtype), "")
        g.add(line)

        up = values(x.shape, out, 2.0)
        if wanted.numel():
            by_source, by_weight = torch.autograd.grad(wanted, [source, weight], tensor(up))
        else:
            by_source, by_weight = torch.zeros(x.shape), torch.zeros(weight_shape)
        g = self.grad
        d, start, acc = destination(g, x.shape, dtype, before)
        line = f"{self.mnemonic}_GRAD {d}, {g.input(x, dtype)}, {g.input(up, out)}{text}{acc}"
        line += f", weight={g.input(w, weight_dtype)}" if w is not None else ""
        g.add(line + (self.statistics(g, mean, rstd, dtype) if stats else ""))
        expect(g, d, start + by_source, dtype)

        g = self.weight
        d, start, acc = destination(g, weight_shape, weight_dtype, before)
        if before is None and weight_dtype != dtype:
            typed(g, d, weight_dtype, weight_shape)
        line = f"{self.mnemonic}_WEIGHT_GRAD {d}, {g.input(x, dtype)}, {g.input(up, out)}{text}{acc}"
        g.add(line + (self.statistics(g, mean, rstd, dtype) if stats else ""))
        expect(g, d, start + by_weight, weight_dtype)


def over_axes(norm, default_eps):
    def case(x, dtype, axis=-1, eps=None, **more):
        first = axis % np.ndim(x)
        axes = tuple(range(first, np.ndim(x)))

        def normalise(source):
            normal, mean, rstd = standard(source, axes, default_eps if eps is None else eps, norm.centred)
            rows = x.shape[:first]
            return normal, mean.reshape(rows), rstd.reshape(rows), lambda w: w
        text = (f", axis={axis}" if axis != -1 else "") + (f", eps={eps}" if eps is not None else "")
        norm.one(x, dtype, text, normalise, x.shape[first:], **more)

    for i, (shape, axis) in enumerate([((1,), -1), ((1, 1), -1), ((3, 2), -1), ((7, 1), -1), ((2, 7), 1), ((5, 33), -1),
                                       ((2, 1025), -1), ((1030, 3), -1), ((2, 3, 4), 1), ((2, 3, 4), 0), ((2, 3, 2, 2), -2),
                                       ((0, 3), -1), ((2, 0, 3), -1)]):
        for dtype in dict.fromkeys(["f32", FLOATS[i % 4]] if np.prod(shape) < 100 else ["f32"]):
            if dtype in HALVES and shape[-1] == 1:
                dtype = "f64"
            case(values(shape, dtype), dtype, axis, affine=("wb", "w", "b", "")[i % 4], stats=i % 3 != 0,
                 before=1 if i % 2 else None)
    case(np.zeros((2, 0), np.float32), "f32", stats=False)
    for i, dtype in enumerate(FLOATS):
        for affine in ("wb", "w", "b", ""):
            case(values((4, 9), dtype), dtype, eps=0.25, affine=affine, stats=affine in ("w", "b"))
        case(cast(values((3, 5), dtype) + 60, dtype), dtype, stats=False, eps=0.01)  # far from 0
    for dtype in HALVES:
        case(values((4, 9), dtype), dtype, out="f32")
        case(values((4, 9), dtype), dtype, weight_dtype="f32", affine="wb")
        case(values((70, 4), dtype), dtype, out="f32", weight_dtype="f32", stats=False, before=-2)
    odd = np.array([[1, 2, 3], [5, 5, 5], [np.nan, 1, 2], [np.inf, 0, 1], [0, -0.0, 0]])
    for dtype in FLOATS:
        case(quiet(cast, odd, dtype), dtype, eps=1.0, affine="w")
    case(values((5, 33), "f32", 3e3), "f32", eps=0.0)
    norm.write()


def group_norm():
    norm = Norm("GROUP_NORM", "each group of channels over all positions, weight= and bias= by channel")

    def case(x, dtype, groups, eps=None, **more):
        samples, channels = x.shape[:2]

        def normalise(source):
            rows = source.reshape(samples, groups, -1) if x.size else torch.zeros(samples, groups, 1, dtype=torch.float64)
            normal, mean, rstd = standard(rows, (2,), 1e-5 if eps is None else eps)
            normal = normal.reshape(x.shape) if x.size else source * 1
            return normal, mean.reshape(samples, groups), rstd.reshape(samples, groups), \
                lambda w: w.reshape((channels,) + (1,) * (x.ndim - 2))
        text = f", groups={groups}" + (f", eps={eps}" if eps is not None else "")
        norm.one(x, dtype, text, normalise, (channels,), **more)

    for i, (shape, groups) in enumerate([((1, 1), 1), ((2, 4), 2), ((3, 6), 1), ((2, 4), 4), ((2, 4, 3), 2), ((1, 6, 2, 2), 3),
                                         ((3, 1, 5), 1), ((2, 2, 520), 2), ((40, 6), 2), ((35, 66), 6), ((2, 3, 2, 1, 2), 3),
                                         ((0, 4, 2), 2)]):
        for dtype in dict.fromkeys(["f32", FLOATS[i % 4]] if np.prod(shape) < 100 else ["f32"]):
            if dtype in HALVES and np.prod(shape[2:]) * shape[1] == groups:
                dtype = "f64"
            case(values(shape, dtype), dtype, groups, affine=("wb", "w", "b", "")[i % 4], stats=i % 3 != 0,
                 before=1 if i % 2 else None)
    for dtype in FLOATS:
        case(values((2, 4, 3), dtype), dtype, 2, eps=0.25)
        case(values((2, 4, 3), dtype), dtype, 2, affine="", stats=False)
    for dtype in HALVES:
        case(values((2, 4, 3), dtype), dtype, 2, out="f32")
        case(values((2, 4, 3), dtype), dtype, 2, weight_dtype="f32", stats=False)
    odd = np.array([[[1, 2], [np.nan, 0]], [[5, 5], [np.inf, 1]]])
    for dtype in FLOATS:
        case(quiet(cast, odd, dtype), dtype, 2, eps=1.0, affine="w")
    norm.write()


# ---- batch norm ----

def batch_norm():
    about = "batch_norm: training=1 uses the statistics of src and moves the running ones (variance over n - 1), training=0 uses those"
    g = Golden("batch_norm", about)
    grad = Golden("batch_norm_grad", "batch_norm_grad: through the statistics of src, or with training=0 past constants")
    weights = Golden("batch_norm_weight_grad", "batch_norm_weight_grad: the sum over samples and positions of g times the normalised source")

    def given(golden, names, dtype):
        return "".join(f", {name}={golden.input(quiet(cast, x.detach().numpy(), dtype), dtype)}" for name, x in names)

    def one(x, dtype, training, momentum=None, eps=None, out=None, weight_dtype=None, affine="wb", stats=True, before=None):
        out, weight_dtype, stat = out or dtype, weight_dtype or dtype, stat_of(dtype)
        channels, axes = x.shape[1], (0,) + tuple(range(2, x.ndim))
        count = x.size // channels if channels else 0
        e, rate = 1e-5 if eps is None else eps, 0.1 if momentum is None else momentum
        running = values((channels,), stat), cast(np.round(rng.uniform(0.25, 2, channels), 2), stat)
        source = tensor(x, True)

        def spread(v):
            return v.reshape((channels,) + (1,) * (x.ndim - 2))
        if training:
            normal, mean, rstd = standard(source, axes, e)
            mean, rstd = mean.reshape(-1), rstd.reshape(-1)
            unbiased = ((source - spread(mean)) ** 2).sum(axes) / (count - 1)
            after = [(1 - rate) * tensor(old) + rate * new for old, new in zip(running, (mean, unbiased))]
        else:
            mean, rstd = tensor(running[0]), 1 / torch.sqrt(tensor(running[1]) + e)
            normal = (source - spread(mean)) * spread(rstd)
            after = [tensor(old) for old in running]
        w = values((channels,), weight_dtype, 2.0) if "w" in affine else None
        b = values((channels,), weight_dtype, 2.0) if "b" in affine else None
        weight = tensor(w if w is not None else np.ones(channels), True)
        wanted = normal * spread(weight) + (spread(tensor(b)) if b is not None else 0)

        text = (f", momentum={momentum}" if momentum is not None else "")
        shared = (", training=1" if training else "") + (f", eps={eps}" if eps is not None else "")
        y = typed(g, g.fresh("y"), out, x.shape) if out != dtype else g.fresh("y")
        states = [g.declare("state", old, stat) for old in running]
        line = f"BATCH_NORM {y}, {g.input(x, dtype)}, {states[0]}, {states[1]}{text}{shared}"
        line += f", weight={g.input(w, weight_dtype)}" if w is not None else ""
        line += f", bias={g.input(b, weight_dtype)}" if b is not None else ""
        expect(g, y, wanted, out)
        if stats:
            m, s = g.fresh("m"), g.fresh("s")
            line += f", mean={m}, rstd={s}"
            expect(g, m, mean, stat, "")
            expect(g, s, rstd, stat, "")
        g.add(line)
        for name, new, old in zip(states, after, running):
            if training:
                expect(g, name, new, stat, "")
            else:
                g.expect(name, old, stat)

        up = values(x.shape, out, 2.0)
        by_source, by_weight = torch.zeros(x.shape), torch.zeros(channels)
        if wanted.numel():
            by_source, by_weight = torch.autograd.grad(wanted, [source, weight], tensor(up))
        names = [("mean", mean), ("rstd", rstd)]
        d, start, acc = destination(grad, x.shape, dtype, before)
        line = f"BATCH_NORM_GRAD {d}, {grad.input(x, dtype)}, {grad.input(up, out)}{shared}{acc}"
        line += f", weight={grad.input(w, weight_dtype)}" if w is not None else ""
        grad.add(line + (given(grad, names, stat) if stats or not training else ""))
        expect(grad, d, start + by_source, dtype)
        d, start, acc = destination(weights, (channels,), weight_dtype, before)
        if before is None and weight_dtype != dtype:
            typed(weights, d, weight_dtype, (channels,))
        line = f"BATCH_NORM_WEIGHT_GRAD {d}, {weights.input(x, dtype)}, {weights.input(up, out)}{acc}"
        line += f", eps={eps}" if eps is not None else ""
        weights.add(line + (given(weights, names, stat) if stats or not training else ""))
        expect(weights, d, start + by_weight, weight_dtype)

    for i, shape in enumerate([(2, 1), (5, 3), (3, 1, 2), (1, 2, 3), (2, 3, 4), (2, 3, 2, 2), (1030, 2), (3, 2, 260), (35, 66),
                               (2, 0, 3)]):
        for training in (True, False) if np.prod(shape) < 100 else (True,):
            for dtype in dict.fromkeys(["f32", FLOATS[i % 4]] if np.prod(shape) < 100 else ["f32"]):
                one(values(shape, dtype), dtype, training, affine=("wb", "w", "b", "")[i % 4], stats=i % 3 != 0,
                    before=1 if i % 2 else None)
    one(np.zeros((0, 3), np.float32), "f32", False)
    for dtype in FLOATS:
        for training in (True, False):
            one(values((3, 4, 2), dtype), dtype, training, momentum=0.25, eps=0.5)
            one(values((6, 3), dtype), dtype, training, momentum=1.0, affine="", stats=False)
    one(values((6, 3), "f32"), "f32", True, momentum=0.0)
    for dtype in HALVES:
        for training in (True, False):
            one(values((3, 4, 2), dtype), dtype, training, out="f32")
            one(values((3, 4, 2), dtype), dtype, training, weight_dtype="f32", stats=False, before=-2)
    odd = np.array([[1, 2, np.nan, 5], [1, 3, 0, np.inf], [1, 5, 1, 1]])
    for dtype in FLOATS:
        for training in (True, False):
            one(quiet(cast, odd, dtype), dtype, training, eps=1.0)
    for golden in (g, grad, weights):
        golden.write()


causal_softmax()
over_axes(Norm("LAYER_NORM", "(src - mean) rstd over the axes from axis= on, two-pass, times weight= plus bias="), 1e-5)
over_axes(Norm("RMS_NORM", "src / sqrt(mean(src^2) + eps) over the axes from axis= on, times weight=", centred=False), 1e-6)
group_norm()
batch_norm()
