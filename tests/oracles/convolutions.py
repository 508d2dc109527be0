"""Golden tapes of CONV1D, CONV2D, their gradients and CONV_TRANSPOSE2D, by PyTorch's float64 and its automatic gradients.

Small integers make every product and sum exact in any order, but for the sign of a zero: no tolerance for any dtype.
Values of full precision are compared within K * 2^-24 * sum |a b| of their worst element.
"""
import itertools

import numpy as np
import torch
import torch.nn.functional as F

from golden import FLOATS, Golden, cast, shape_text

rng = np.random.default_rng(45)
EXACT = "~", "atol=0 rtol=0"
UNIT = {"f64": 2.0**-53, "f32": 2.0**-24, "f16": 2.0**-24, "bf16": 2.0**-24}
RESULT_UNIT = {"f64": 0, "f32": 0, "f16": 2.0**-11, "bf16": 2.0**-8}


class Case:
    """stride and dilation per axis, pad as the attribute holds it."""

    def __init__(self, batch, channels, size, kernel, stride=1, pad=0, dilation=1, groups=1, output_pad=0):
        self.batch, (self.inputs, self.outputs), self.size, self.kernel = batch, channels, size, kernel
        self.stride, self.pad, self.dilation, self.groups, self.output_pad = stride, pad, dilation, groups, output_pad

    def image(self):
        return (self.batch, self.inputs, *self.size)

    def weight(self):
        return (self.outputs, self.inputs // self.groups, *self.kernel)

    def per_axis(self, value):
        return (value,) * len(self.kernel) if isinstance(value, int) else tuple(value)

    def pads(self):
        pad = self.pad if isinstance(self.pad, (list, tuple)) else [self.pad]
        axes = len(self.kernel)
        if len(pad) == 2 * axes:
            return pad[:axes], pad[axes:]
        pad = pad * axes if len(pad) == 1 else pad
        return pad, pad

    def attributes(self):
        text = ""
        for name in ("stride", "pad", "dilation", "groups", "output_pad"):
            value, plain = getattr(self, name), {"pad": 0, "output_pad": 0}.get(name, 1)
            if value != plain:
                text += f", {name}=" + (str(value) if isinstance(value, int) else "[" + ", ".join(map(str, value)) + "]")
        return text

    def forward(self, x, w, bias=None):
        low, high = self.pads()
        ends = list(itertools.chain(*[(low[i], high[i]) for i in reversed(range(len(low)))]))
        convolve = F.conv1d if len(self.kernel) == 1 else F.conv2d
        x = F.pad(x, ends)
        if 0 in x.shape or 0 in w.shape:
            return self.empty(x, w, bias)
        return convolve(x, w, bias, self.per_axis(self.stride), 0, self.per_axis(self.dilation), self.groups)

    def empty(self, x, w, bias):
        """PyTorch refuses some empty axes."""
        sizes = [(x.shape[2 + i] - (self.kernel[i] - 1) * self.per_axis(self.dilation)[i] - 1) //
                 self.per_axis(self.stride)[i] + 1 for i in range(len(self.kernel))]
        y = torch.zeros((self.batch, self.outputs, *sizes), dtype=torch.float64) + 0 * (x.sum() + w.sum())
        return y if bias is None else y + bias.reshape((1, -1) + (1,) * len(self.kernel))

    def transposed(self, x, w, bias=None):
        """x [N, I, H, W], w [I, O / groups, KH, KW]: uneven pads crop more on one side."""
        low, high = self.pads()
        y = F.conv_transpose2d(x, w, None, self.per_axis(self.stride), 0, self.per_axis(self.output_pad), self.groups,
                               self.per_axis(self.dilation))
        y = y[:, :, low[0]:y.shape[2] - high[0], low[1]:y.shape[3] - high[1]]
        return y if bias is None else y + bias.reshape(1, -1, 1, 1)


CASES_1D = [Case(1, (1, 1), (1,), (1,)), Case(2, (3, 4), (7,), (3,)), Case(2, (2, 3), (9,), (4,), 2, 1),
            Case(1, (2, 2), (5,), (3,), 1, [2, 0]), Case(2, (4, 6), (8,), (3,), 3, [1, 2], 2, 2),
            Case(3, (3, 3), (6,), (2,), 1, 0, 1, 3), Case(0, (2, 3), (5,), (2,)), Case(2, (0, 3), (5,), (2,)),
            Case(2, (2, 0), (5,), (2,)), Case(1, (1, 2), (2,), (5,), 2, 3), Case(1, (2, 1), (12,), (2,), 5, 0, 3)]
CASES_2D = [Case(1, (1, 1), (1, 1), (1, 1)), Case(2, (3, 4), (5, 6), (3, 3)), Case(2, (3, 4), (5, 6), (3, 3), 1, 1),
            Case(1, (2, 3), (7, 5), (3, 2), [2, 1], [1, 0]), Case(1, (2, 2), (4, 4), (3, 3), 1, [1, 0, 0, 2]),
            Case(2, (4, 6), (6, 5), (3, 2), [2, 3], [2, 1, 0, 1], [1, 2], 2), Case(2, (3, 3), (5, 4), (3, 3), 1, 1, 1, 3),
            Case(1, (2, 4), (5, 5), (3, 3), 2, 2, 2, 2), Case(1, (2, 3), (4, 3), (1, 1)), Case(1, (3, 2), (3, 4), (3, 4)),
            Case(0, (2, 3), (4, 4), (3, 3), 1, 1), Case(2, (0, 2), (3, 3), (2, 2)), Case(1, (2, 0), (3, 3), (2, 2)),
            Case(1, (1, 2), (3, 2), (3, 3), 4, 4), Case(1, (2, 2), (9, 8), (2, 2), [5, 4], 0, [3, 2]),
            Case(1, (2, 3), (6, 6), (5, 5), 1, 2), Case(1, (1, 1), (0, 2), (1, 1), 1, 1)]


def integers(shape, dtype, limit=4):
    return cast(rng.integers(-limit, limit + 1, shape), dtype)


def tensor(values):
    return torch.tensor(np.asarray(values, dtype=np.float64))


def convolution(axes, cases):
    name = f"conv{axes}d"
    g = Golden(name, f"{name}: strides, uneven pads, dilation, groups, bias, empty axes, every dtype; exact in any order")

    def one(case, dtype, out=None, bias=None, more=""):
        out = out or dtype
        x, w = integers(case.image(), dtype), integers(case.weight(), dtype)
        text, b = case.attributes() + more, None
        names = g.input(x, dtype), g.input(w, dtype)
        if bias:
            b = integers((case.outputs,), bias, 20)
            text += f", bias={g.input(b, bias)}"
        y = g.fresh("y")
        g.add(f"CONV{axes}D {y}, {names[0]}, {names[1]}{text}" + (f", dtype={out}" if out != dtype else ""))
        wanted = case.forward(tensor(x), tensor(w), None if b is None else tensor(b)).numpy()
        g.expect(y, cast(wanted, out), out, *EXACT)

    for i, case in enumerate(cases):
        one(case, "f32", bias=[None, "f32"][i % 2])
        one(case, FLOATS[i % 4], bias=[FLOATS[i % 4], None][i % 2])
    for dtype in ("f16", "bf16"):
        one(cases[1], dtype, "f32", "f32")
        one(cases[2], dtype, "f32", dtype)
        one(cases[4], dtype, dtype, "f32")
    one(cases[1], "f32", more=", math=tf32x3")
    g.write()


def slopes(case, x, w, up):
    """Gradients by x and by w."""
    a, b = tensor(x).requires_grad_(), tensor(w).requires_grad_()
    (case.forward(a, b) * tensor(up)).sum().backward()
    return a.grad.numpy(), b.grad.numpy()


def gradients(axes, cases):
    for which, what in ((0, "input"), (1, "weight")):
        name = f"conv{axes}d_{what}_grad"
        g = Golden(name, f"{name}: PyTorch's gradients; acc=1; exact in any order, every dtype")

        def one(case, dtype, before=None):
            x, w = integers(case.image(), dtype), integers(case.weight(), dtype)
            up = integers(case.forward(tensor(x), tensor(w)).shape, dtype)
            wanted = slopes(case, x, w, up)[which]
            other, upstream = g.input((w, x)[which], dtype), g.input(up, dtype)
            if before is None:
                d = g.fresh("d")
                g.add(f"{name.upper()} {d}, {other}, {upstream}{case.attributes()}, shape={shape_text(wanted.shape)}")
            else:
                start = cast(np.full(wanted.shape, before), dtype)
                d = g.declare("state", start, dtype)
                g.add(f"{name.upper()} {d}, {other}, {upstream}{case.attributes()}, acc=1")
                wanted = wanted + start
            g.expect(d, cast(wanted, dtype), dtype, *EXACT)

        for i, case in enumerate(cases):
            one(case, "f32")
            one(case, FLOATS[i % 4], before=[None, 3][i // 4 % 2])
        for dtype in FLOATS:
            one(cases[4], dtype, before=-5)
            one(cases[2], dtype)
        g.write()


def transposed():
    g = Golden("conv_transpose2d", "conv_transpose2d: PyTorch's, uneven pads crop; exact in any order, every dtype")
    cases = [Case(1, (1, 1), (1, 1), (1, 1)), Case(2, (3, 4), (3, 4), (3, 3)), Case(2, (3, 2), (3, 3), (3, 3), 2, 1, 1, 1, 1),
             Case(1, (2, 4), (3, 2), (2, 3), [3, 1], [0, 1], 1, 2, [2, 0]), Case(1, (2, 2), (4, 4), (2, 2), 2),
             Case(2, (4, 6), (3, 3), (3, 2), [2, 3], [1, 0, 2, 1], [2, 1], 2), Case(1, (3, 3), (2, 3), (2, 2), 3, 0, 1, 3),
             Case(0, (2, 3), (3, 3), (2, 2), 2)]

    def one(case, dtype, out=None, bias=None):
        out = out or dtype
        x = integers(case.image(), dtype)
        w = integers((case.inputs, case.outputs // case.groups, *case.kernel), dtype)
        text, b = case.attributes(), None
        names = g.input(x, dtype), g.input(w, dtype)
        if bias:
            b = integers((case.outputs,), bias, 20)
            text += f", bias={g.input(b, bias)}"
        y = g.fresh("y")
        g.add(f"CONV_TRANSPOSE2D {y}, {names[0]}, {names[1]}{text}" + (f", dtype={out}" if out != dtype else ""))
        g.expect(y, cast(case.transposed(tensor(x), tensor(w), None if b is None else tensor(b)).numpy(), out), out,
                 *EXACT)

    for i, case in enumerate(cases):
        one(case, "f32", bias=[None, "f32"][i % 2])
        one(case, FLOATS[i % 4], bias=[FLOATS[i % 4], None][i % 2])
    for dtype in ("f16", "bf16"):
        one(cases[1], dtype, "f32", "f32")
        one(cases[3], dtype, dtype, dtype)
    g.write()


def inexact():
    g = Golden("conv2d-precision", "convolutions: values of full precision, within the bound of any order of summation")

    def bounded(name, wanted, size, k, dtype):
        atol = float(np.max((k + 2) * UNIT[dtype] * size + 1.01 * RESULT_UNIT[dtype] * np.abs(wanted)))
        values = " ".join(repr(float(v)) for v in np.reshape(wanted, -1))
        g.expectations.append(f".expect {name} ~ {values} atol={atol:.3g}")

    for i, case in enumerate(CASES_2D[1:8] + CASES_1D[1:5]):
        dtype, axes = FLOATS[i % 4], len(case.kernel)
        x, w = (cast(np.round(rng.uniform(-1, 1, shape), 3), dtype) for shape in (case.image(), case.weight()))
        y = case.forward(tensor(x), tensor(w)).numpy()
        up = cast(np.round(rng.uniform(-1, 1, y.shape), 3), dtype)
        names = g.input(x, dtype), g.input(w, dtype), g.input(up, dtype)
        found, sizes = slopes(case, x, w, up), slopes(case, np.abs(x), np.abs(w), np.abs(up))
        out, text = g.fresh("y"), case.attributes()
        g.add(f"CONV{axes}D {out}, {names[0]}, {names[1]}{text}")
        bounded(out, y, case.forward(tensor(np.abs(x)), tensor(np.abs(w))).numpy(), np.prod(w.shape[1:]), dtype)
        dx, dw = g.fresh("d"), g.fresh("d")
        g.add(f"CONV{axes}D_INPUT_GRAD {dx}, {names[1]}, {names[2]}{text}, shape={shape_text(x.shape)}")
        bounded(dx, found[0], sizes[0], np.prod(w.shape) / w.shape[1], dtype)
        g.add(f"CONV{axes}D_WEIGHT_GRAD {dw}, {names[0]}, {names[2]}{text}, shape={shape_text(w.shape)}")
        bounded(dw, found[1], sizes[1], np.prod(y.shape) / y.shape[1], dtype)
    g.write()


convolution(1, CASES_1D)
convolution(2, CASES_2D)
gradients(1, CASES_1D)
gradients(2, CASES_2D)
transposed()
inexact()
