"""Golden tapes of ROPE, ATTENTION and ATTENTION_GRAD, by NumPy and PyTorch's autograd in float64."""
import numpy as np
import torch

from golden import FLOATS, Golden, cast

rng = np.random.default_rng(97)
# Scores and weights are of order 1; halves are rounded once (2^-11, 2^-8) from a result in f32.
TOLERANCE = {"f64": "rtol=1e-12 atol=1e-13", "f32": "rtol=4e-6 atol=2e-6", "f16": "rtol=1e-3 atol=1e-5",
             "bf16": "rtol=8e-3 atol=1e-5"}
GRAD_TOLERANCE = {"f64": "rtol=1e-11 atol=1e-12", "f32": "rtol=1e-5 atol=5e-6", "f16": "rtol=1e-2 atol=2e-3",
                  "bf16": "rtol=5e-2 atol=2e-2"}
# Turned pairs of order 1, coefficients rounded to f32.
ROPE_TOLERANCE = {"f64": "rtol=1e-12 atol=1e-12", "f32": "rtol=1e-6 atol=5e-7", "f16": "rtol=1e-3 atol=1e-6",
                  "bf16": "rtol=8e-3 atol=1e-6"}


def values(shape, dtype, scale=1.0):
    return cast(np.round(rng.normal(0, scale, shape), 3), dtype)


def rope():
    g = Golden("rope", "rope: both styles, positions and a first position, inverse, every float")

    def one(shape, pos, dtype, style="interleaved", base=10000, inverse=False, index="i32"):
        x = values(shape, dtype)
        rows, depth = shape[-2], shape[-1]
        at = np.asarray(pos, np.float64) + (np.arange(rows) if np.ndim(pos) == 0 else 0)
        angle = at[:, None] * float(base) ** (-2.0 * np.arange(depth // 2) / max(depth, 1))
        c, s = np.cos(angle), np.sin(angle) * (-1 if inverse else 1)
        wide = x.astype(np.float64)
        a, b = (wide[..., 0::2], wide[..., 1::2]) if style == "interleaved" else \
            (wide[..., :depth // 2], wide[..., depth // 2:])
        turned = a * c - b * s, a * s + b * c
        wanted = np.stack(turned, -1).reshape(shape) if style == "interleaved" else np.concatenate(turned, -1)
        y = g.fresh("y")
        g.add(f"ROPE {y}, {g.input(x, dtype)}, {g.input(np.asarray(pos), index)}" +
              (f", style={style}" if style != "interleaved" else "") + (f", base={base}" if base != 10000 else "") +
              (", inverse=1" if inverse else ""))
        g.expect(y, cast(wanted, dtype), dtype, "~", ROPE_TOLERANCE[dtype])

    for dtype in FLOATS:
        for style in ("interleaved", "half"):
            one((2, 3, 8), np.arange(3), dtype, style)
            one((3, 4), 5, dtype, style, index="i64")
    one((1, 2), 0, "f32")
    one((1, 1, 1, 2), [7], "f32")
    one((2, 2, 3, 6), [0, 4, 2], "f32", "half", inverse=True)
    one((2, 6), [3, 1], "f64", base=100, inverse=True)
    one((3, 64), [4095, 1048577, 2000000011], "f32")
    one((2, 16), 131072, "f32", "half", base=500000)
    one((2, 16), 131072, "f64", "half", base=500000)
    one((0, 3, 4), [0, 1, 2], "f32")
    one((2, 0, 4), np.zeros(0, int), "f32")
    one((3, 0), [0, 1, 2], "f64")
    special = np.array([[np.inf, 1, np.nan, 1], [0.0, np.inf, 1, 2]])
    y = g.fresh("y")
    g.add(f"ROPE {y}, {g.input(special, 'f32')}, {g.input(np.array(0), 'i32')}")
    with np.errstate(all="ignore"):
        c, s = np.cos([[0, 0], [1, 0.01]]), np.sin([[0, 0], [1, 0.01]])
        a, b = special[:, 0::2], special[:, 1::2]
        wanted = np.stack((a * c - b * s, a * s + b * c), -1).reshape(2, 4)
    g.expect(y, wanted, "f32", "~", ROPE_TOLERANCE["f32"])
    g.write()


def visible(queries, keys, lengths, causal, batch):
    """[B, Q, K]: whether a query sees a key."""
    n = np.full(batch, keys) if lengths is None else np.broadcast_to(lengths, batch)
    j = np.arange(keys)[None, None, :]
    seen = j < n[:, None, None]
    if causal:
        seen = seen & (j <= np.arange(queries)[None, :, None] + (n - queries)[:, None, None])
    return np.broadcast_to(seen, (batch, queries, keys))


def attend(q, k, v, mask, scale):
    """q [B, H, Q, D], k [B, G, K, D], v [B, G, K, E] as tensors: y and lse, rows that see nothing 0 and -inf."""
    repeat = q.shape[1] // max(k.shape[1], 1)
    k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
    mask = torch.tensor(mask)[:, None].expand(-1, q.shape[1], -1, -1)
    if mask.shape[-1] == 0:
        return torch.zeros(*q.shape[:3], v.shape[-1], dtype=q.dtype), torch.full(q.shape[:3], -torch.inf, dtype=q.dtype)
    blind = ~mask.any(-1)
    scores = (q @ k.transpose(-1, -2) * scale).masked_fill(~mask, -torch.inf)
    lse = torch.logsumexp(scores, -1)
    weights = torch.softmax(scores.masked_fill(blind[..., None], 0.0), -1).masked_fill(blind[..., None], 0.0)
    return weights @ v.masked_fill(~torch.isfinite(v), 0.0), lse


class Case:
    def __init__(self, g, q, k, v, dtype, causal=False, lengths=None, scale=None, index="i32", spread=1.0, poison=False):
        self.dtype, self.q_shape = dtype, q
        arrays = [values(shape, dtype, spread) for shape in (q, k, v)]
        self.leaves = [torch.tensor(np.asarray(a, np.float64), requires_grad=True) for a in arrays]
        lift = (1,) * (4 - len(q))
        lifted = [leaf.reshape(lift + leaf.shape) for leaf in self.leaves]
        batch, queries, keys, depth = lifted[0].shape[0], lifted[0].shape[2], lifted[1].shape[2], lifted[0].shape[3]
        mask = visible(queries, keys, lengths, causal, batch)
        used = scale if scale is not None else 1 / np.sqrt(depth) if depth else 1
        y, lse = attend(*lifted, mask, used)
        self.y, self.lse = y.reshape(q[:-1] + v[-1:]), lse.reshape(q[:-1])
        if poison:  # what no query sees is NaN or infinite
            hidden = ~mask.any(1)
            arrays[1][np.broadcast_to(hidden[:, None, :, None], k)] = np.nan
            arrays[2][np.broadcast_to(hidden[:, None, :, None], v)] = np.inf
        self.names = [g.input(a, dtype) for a in arrays]
        self.extra = ", causal=1" if causal else ""
        self.extra += f", scale={scale}" if scale is not None else ""
        self.lengths = f", kv_len={g.input(np.asarray(lengths), index)}" if lengths is not None else ""


FORMS = [
    dict(q=(2, 4, 5, 8), k=(2, 2, 6, 8), v=(2, 2, 6, 4)),
    dict(q=(2, 4, 5, 8), k=(2, 4, 5, 8), v=(2, 4, 5, 8), causal=True),
    dict(q=(2, 2, 3, 4), k=(2, 1, 7, 4), v=(2, 1, 7, 5), causal=True, lengths=[4, 7]),
    dict(q=(2, 2, 3, 4), k=(2, 2, 5, 4), v=(2, 2, 5, 4), lengths=[0, 2], index="i64"),
    dict(q=(4, 2), k=(3, 2), v=(3, 3), causal=True),
    dict(q=(3, 4, 2), k=(1, 5, 2), v=(1, 5, 2), lengths=3, scale=0.5),
]
MORE = [
    dict(q=(1, 1, 1, 1), k=(1, 1, 1, 1), v=(1, 1, 1, 1)),
    dict(q=(1, 1, 66, 2), k=(1, 1, 140, 2), v=(1, 1, 140, 1)),
    dict(q=(1, 2, 132, 2), k=(1, 1, 132, 2), v=(1, 1, 132, 1), causal=True),
    dict(q=(1, 1, 6, 4), k=(1, 1, 3, 4), v=(1, 1, 3, 4), causal=True),
    dict(q=(1, 2, 0, 4), k=(1, 1, 3, 4), v=(1, 1, 3, 4)),
    dict(q=(1, 2, 3, 4), k=(1, 1, 0, 4), v=(1, 1, 0, 4)),
    dict(q=(2, 3, 0), k=(2, 4, 0), v=(2, 4, 2)),
    dict(q=(2, 3, 2), k=(2, 4, 2), v=(2, 4, 0)),
    dict(q=(0, 2, 3, 4), k=(0, 1, 3, 4), v=(0, 1, 3, 4)),
]


def forward():
    g = Golden("attention", "attention: grouped heads, causal, kv_len, ranks 2 to 4, lse, rows that see nothing")

    def one(dtype, out=None, lse=True, **form):
        out = out or dtype
        case = Case(g, dtype=dtype, **form)
        y, stat = g.fresh("y"), g.fresh("lse")
        g.add(f"ATTENTION {y}, {', '.join(case.names)}{case.lengths}" + (f", lse={stat}" if lse else "") + case.extra +
              (f", dtype={out}" if out != dtype else ""))
        g.expect(y, cast(case.y.detach().numpy(), out), out, "~", TOLERANCE[out])
        if lse:
            g.expect(stat, case.lse.detach().numpy(), "f64" if dtype == "f64" else "f32", "~", TOLERANCE["f64" if dtype == "f64" else "f32"])

    for form in FORMS:
        for dtype in FLOATS:
            one(dtype, lse=dtype in ("f64", "f32"), **form)
    for dtype in ("f16", "bf16"):
        one(dtype, out="f32", **FORMS[0])
    for form in MORE:
        one("f32", **form)
    one("f64", **MORE[2])
    # Large scores: e^s alone would overflow.
    one("f32", q=(2, 3, 4), k=(2, 5, 4), v=(2, 5, 4), scale=64)
    # A cache whose unused rows hold NaN and infinities.
    one("f32", q=(2, 2, 2, 4), k=(2, 2, 8, 4), v=(2, 2, 8, 4), lengths=[3, 6], causal=True, poison=True)
    one("f16", lse=False, q=(2, 2, 2, 4), k=(2, 2, 8, 4), v=(2, 2, 8, 4), lengths=[3, 6], poison=True)
    # Infinite scores are IEEE's: NaN where +inf, nothing where -inf.
    q = np.array([[1.0], [-1.0], [1.0]])
    k = np.array([[np.inf], [1.0]])
    y = g.fresh("y")
    v = np.array([[2.0], [3.0]])
    g.add(f"ATTENTION {y}, {g.input(q, 'f32')}, {g.input(k, 'f32')}, {g.input(v, 'f32')}")
    g.expect(y, np.array([np.nan, 3, np.nan]), "f32")
    # A key that only the last row sees does not reach the others.
    y = g.fresh("y")
    g.add(f"ATTENTION {y}, {g.input(np.zeros((2, 1)), 'f32')}, {g.input(np.array([[0.0], [np.nan]]), 'f32')}, "
          f"{g.input(np.array([[2.0], [np.inf]]), 'f32')}, causal=1")
    g.expect(y, np.array([2, np.nan]), "f32")
    g.write()
    for name, lengths, text in (("high", 5, "outside [0,4]"), ("negative", -1, "outside [0,4]")):
        g = Golden(f"attention-length-{name}", "attention: a length outside the cache is a fault")
        g.add(f"ATTENTION y, {g.input(np.zeros((2, 2)), 'f32')}, {g.input(np.zeros((4, 2)), 'f32')}, "
              f"{g.input(np.zeros((4, 2)), 'f32')}, kv_len={g.input(np.array(lengths), 'i32')}")
        g.expect_fault("ATTENTION", text)
        g.write()
    g = Golden("rope-negative", "rope: a negative position is a fault")
    g.add(f"ROPE y, {g.input(np.zeros((2, 2)), 'f32')}, {g.input(np.array([0, -3]), 'i64')}")
    g.expect_fault("ROPE", "is negative")
    g.write()


def backward():
    g = Golden("attention_grad", "attention_grad: dq, dk, dv by autograd in float64, with lse= and without")

    def one(dtype, lse=False, **form):
        case = Case(g, dtype=dtype, **form)
        up = values(tuple(case.y.shape), dtype)
        case.y.backward(torch.tensor(np.asarray(up, np.float64)))
        y = g.input(cast(case.y.detach().numpy(), dtype), dtype)
        given = ""
        if lse:
            given = f", lse={g.input(case.lse.detach().numpy(), 'f64' if dtype == 'f64' else 'f32')}"
        names = [g.fresh(stem) for stem in ("dq", "dk", "dv")]
        g.add(f"ATTENTION_GRAD {', '.join(names)}, {', '.join(case.names)}, {y}, {g.input(up, dtype)}{case.lengths}{given}{case.extra}")
        for name, leaf in zip(names, case.leaves):
            grad = np.zeros(leaf.shape) if leaf.grad is None else leaf.grad.numpy()
            g.expect(name, cast(grad, dtype), dtype, "~", GRAD_TOLERANCE[dtype])

    for form in FORMS:
        for i, dtype in enumerate(FLOATS):
            one(dtype, lse=i % 2 == 1, **form)
        one("f64", lse=True, **form)
    for form in MORE[:4]:
        one("f32", **form)
    g.write()


rope()
forward()
backward()
