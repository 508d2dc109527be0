"""Golden tapes of LSTM_CELL, GRU_CELL and their gradients, by PyTorch's cells and autograd in float64."""
import numpy as np
import torch

from golden import FLOATS, Golden, cast

rng = np.random.default_rng(131)
TOLERANCE = {"f64": "rtol=1e-12 atol=1e-13", "f32": "rtol=4e-6 atol=1e-6", "f16": "rtol=1e-3 atol=1e-5",
             "bf16": "rtol=8e-3 atol=1e-5"}
# Gradients from gates that were rounded to the dtype.
GRAD_TOLERANCE = {"f64": "rtol=1e-12 atol=1e-13", "f32": "rtol=1e-5 atol=1e-6", "f16": "rtol=1e-2 atol=1e-3",
                  "bf16": "rtol=5e-2 atol=1e-2"}
SIZES = [(3, 4, 2), (1, 1, 1), (2, 5, 3), (0, 2, 3), (2, 0, 3), (2, 3, 0), (66, 1, 2), (1, 2, 33)]  # B, I, H


def values(shape, dtype, scale=1.0):
    return cast(np.round(rng.normal(0, scale, shape), 3), dtype)


def tensor(array):
    return torch.tensor(np.asarray(array, np.float64), requires_grad=True)


class Cell:
    """Operands of one cell, as text and as tensors, and the activated gates."""

    def __init__(self, kind, batch, inputs, hidden, dtype, biases):
        parts = 4 if kind == "LSTM" else 3
        self.kind, self.dtype, self.hidden = kind, dtype, hidden
        self.x, self.h = values((batch, inputs), dtype), values((batch, hidden), dtype)
        self.c = values((batch, hidden), dtype) if kind == "LSTM" else None
        self.w_ih, self.w_hh = values((parts * hidden, inputs), dtype, 0.6), values((parts * hidden, hidden), dtype, 0.6)
        self.biases = [values(parts * hidden, dtype) if given else None for given in biases]

    def play(self):
        x, h, w_ih, w_hh = (tensor(a) for a in (self.x, self.h, self.w_ih, self.w_hh))
        zero = torch.zeros(w_ih.shape[0], dtype=torch.float64)
        b_ih, b_hh = (zero if b is None else tensor(b) for b in self.biases)
        by_x, by_h = x @ w_ih.T + b_ih, h @ w_hh.T + b_hh
        self.h_tensor, n = h, self.hidden
        if self.kind == "LSTM":
            self.before = [by_x + by_h]
            i, f, g, o = (self.before[0][:, k * n:(k + 1) * n] for k in range(4))
            i, f, g, o = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)
            self.c_tensor = tensor(self.c)
            c_new = f * self.c_tensor + i * g
            self.gates = torch.cat((i, f, g, o), 1)
            result = [o * torch.tanh(c_new), c_new]
        else:
            self.before = [by_x, by_h]
            a, b, d = (by_x[:, k * n:(k + 1) * n] for k in range(3))
            p, q, s = (by_h[:, k * n:(k + 1) * n] for k in range(3))
            r, z = torch.sigmoid(a + p), torch.sigmoid(b + q)
            new = torch.tanh(d + r * s)
            self.gates = torch.cat((r, z, new, s), 1)
            self.direct = tensor(self.h)
            result = [(1 - z) * new + z * self.direct]
        self.check(x, h, w_ih, w_hh, b_ih, b_hh, result)
        for t in self.before:
            t.retain_grad()
        return result

    def check(self, x, h, w_ih, w_hh, b_ih, b_hh, result):
        """The formulas above are PyTorch's own cells."""
        if 0 in x.shape or 0 in h.shape:
            return
        made = (torch.nn.LSTMCell if self.kind == "LSTM" else torch.nn.GRUCell)(x.shape[1], h.shape[1]).double()
        with torch.no_grad():
            for name, value in (("weight_ih", w_ih), ("weight_hh", w_hh), ("bias_ih", b_ih), ("bias_hh", b_hh)):
                getattr(made, name).copy_(value)
            theirs = made(x, (h, self.c_tensor)) if self.kind == "LSTM" else (made(x, h),)
            for a, b in zip(theirs, result):
                assert torch.allclose(a, b, rtol=1e-12, atol=1e-13, equal_nan=True)

    def operands(self, g):
        text = [g.input(a, self.dtype) for a in ([self.x, self.h] + ([self.c] if self.kind == "LSTM" else []) +
                                                 [self.w_ih, self.w_hh])]
        for name, bias in zip(("bias_ih", "bias_hh"), self.biases):
            if bias is not None:
                text.append(f"{name}={g.input(bias, self.dtype)}")
        return ", ".join(text)


def forward(kind):
    name = f"{kind.lower()}_cell"
    g = Golden(name, f"{name}: by PyTorch's formula in float64, with and without biases and gates=")

    def one(size, dtype, biases=(True, True), gates=True):
        cell = Cell(kind, *size, dtype, biases)
        result = cell.play()
        names = [g.fresh("h"), g.fresh("c")][:len(result)]
        kept = g.fresh("gates")
        g.add(f"{kind}_CELL {', '.join(names)}, {cell.operands(g)}" + (f", gates={kept}" if gates else ""))
        for name, value in zip(names, result):
            g.expect(name, cast(value.detach().numpy(), dtype), dtype, "~", TOLERANCE[dtype])
        if gates:
            g.expect(kept, cast(cell.gates.detach().numpy(), dtype), dtype, "~", TOLERANCE[dtype])

    for dtype in FLOATS:
        one(SIZES[0], dtype)
        one(SIZES[2], dtype, gates=False)
    for biases in ((False, False), (True, False), (False, True)):
        one(SIZES[0], "f32", biases)
    for size in SIZES[1:]:
        one(size, "f32")
    cell = Cell(kind, 2, 1, 1, "f32", (False, False))
    cell.x[:] = np.array([[np.inf], [np.nan]])
    result = cell.play()
    names = [g.fresh("h"), g.fresh("c")][:len(result)]
    g.add(f"{kind}_CELL {', '.join(names)}, {cell.operands(g)}")
    for name, value in zip(names, result):
        g.expect(name, value.detach().numpy(), "f32", "~", TOLERANCE["f32"])
    g.write()


def backward(kind):
    name = f"{kind.lower()}_cell_grad"
    g = Golden(name, f"{name}: by autograd in float64")

    def one(size, dtype, upstream=(True, True)):
        cell = Cell(kind, *size, dtype, (True, True))
        result = cell.play()
        ups = [values(tuple(t.shape), dtype) if given else None for t, given in zip(result, upstream)]
        sum((t * torch.tensor(np.asarray(up, np.float64))).sum() for t, up in zip(result, ups) if up is not None).backward()
        gates = g.input(cast(cell.gates.detach().numpy(), dtype), dtype)
        if kind == "LSTM":
            names = [g.fresh("d"), g.fresh("dc")]
            c_prev, c = g.input(cell.c, dtype), g.input(cast(result[1].detach().numpy(), dtype), dtype)
            text = f"{gates}, {c_prev}, {c}"
            for stem, up in zip(("g_h", "g_c"), ups):
                text += f", {stem}={g.input(up, dtype)}" if up is not None else ""
            wanted = [cell.before[0].grad, cell.c_tensor.grad]
        else:
            names = [g.fresh("di"), g.fresh("dh"), g.fresh("dp")]
            text = f"{gates}, {g.input(cell.h, dtype)}, {g.input(ups[0], dtype)}"
            wanted = [cell.before[0].grad, cell.before[1].grad, cell.direct.grad]
        g.add(f"{kind}_CELL_GRAD {', '.join(names)}, {text}")
        for name, value in zip(names, wanted):
            g.expect(name, cast(value.numpy(), dtype), dtype, "~", GRAD_TOLERANCE[dtype])

    for dtype in FLOATS:
        one(SIZES[0], dtype)
        one(SIZES[2], dtype)
    for size in SIZES[1:]:
        one(size, "f32")
    if kind == "LSTM":
        one(SIZES[0], "f32", (True, False))
        one(SIZES[0], "f64", (False, True))
    g.write()


for kind in ("LSTM", "GRU"):
    forward(kind)
    backward(kind)
