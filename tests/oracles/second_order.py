"""Golden tapes of second derivatives, checked against double backward in PyTorch (float64)."""
import numpy as np
import torch

from golden import FOLDER, literals

rng = np.random.default_rng(8)


def write(name, about, declarations, inner, outer, wrt, values, function):
    """`inner` computes `first` from x; `outer` computes `loss` from x_grad, the gradient of first, and whatever else."""
    text = f"; {about}\n"
    tensors = {}
    for tensor, (role, value) in values.items():
        shape = ", ".join(str(n) for n in value.shape)
        text += f".{role} {tensor} f64[{shape}] = {literals(value, 'f64')}\n"
        tensors[tensor] = torch.tensor(value, dtype=torch.float64, requires_grad=True)
    text += declarations + ".output first f64[]\n.output loss f64[]\n"
    text += f".tape inner\n{inner}.end\n.grad slope of=inner loss=first wrt=x\n"
    text += f".tape outer\n  CALL inner\n  CALL slope\n{outer}.end\n.grad second of=outer loss=loss wrt={','.join(wrt)}\n"
    text += ".tape main\n  CALL outer\n  CALL second\n.end\n"
    first, loss_of = function(**tensors)
    (slope,) = torch.autograd.grad(first, tensors["x"], create_graph=True)
    loss = loss_of(slope)
    gradients = torch.autograd.grad(loss, [tensors[w] for w in wrt])
    text += f".expect loss ~ {literals(loss.detach().numpy(), 'f64')} rtol=1e-12 atol=1e-13\n"
    text += f".expect x_grad ~ {literals(slope.detach().numpy(), 'f64')} rtol=1e-12 atol=1e-13\n"
    for w, gradient in zip(wrt, gradients):
        # The gradient of first order of x keeps its name.
        gradient_name = w + ("_grad_grad" if w == "x" else "_grad")
        text += f".expect {gradient_name} ~ {literals(gradient.numpy(), 'f64')} rtol=1e-11 atol=1e-12\n"
    (FOLDER / f"{name}.tape").write_text(text)


x = rng.uniform(-1.5, 1.5, (4,))
c = rng.uniform(-1, 1, (4,))
WEIGHTED = "  MUL weighted, x_grad, c\n  SUM loss, weighted\n"
for name, op, torch_op in [("cube", "POW y, x, 3", lambda v: v ** 3), ("tanh", "TANH y, x", torch.tanh),
                           ("softplus", "SOFTPLUS y, x", torch.nn.functional.softplus),
                           ("sigmoid", "SIGMOID y, x", torch.sigmoid), ("exp", "EXP y, x", torch.exp),
                           ("sin", "SIN y, x", torch.sin), ("silu", "SILU y, x", torch.nn.functional.silu),
                           ("gelu", "GELU y, x", torch.nn.functional.gelu)]:
    write(f"second-order-{name}", f"the second derivative of {name}, weighted", "", f"  {op}\n  SUM first, y\n", WEIGHTED,
          ["x", "c"], {"x": ("param", x), "c": ("param", c)},
          lambda x, c, f=torch_op: (f(x).sum(), lambda slope: (slope * c).sum()))

# sum(tanh(x w) v): MATMUL chains, differentiated by x and then by everything.
write("second-order-matmul", "MATMUL chains: the gradient of a directional derivative by every factor", "",
      "  MATMUL h, x, w\n  TANH t, h\n  MATMUL y, t, v\n  SQUARE y, y\n  SUM first, y\n", WEIGHTED,
      ["x", "w", "v", "c"],
      {"x": ("param", rng.uniform(-1, 1, (2, 3))), "w": ("param", rng.uniform(-1, 1, (3, 4))),
       "v": ("param", rng.uniform(-1, 1, (4, 2))), "c": ("param", rng.uniform(-1, 1, (2, 3)))},
      lambda x, w, v, c: (((torch.tanh(x @ w) @ v) ** 2).sum(), lambda slope: (slope * c).sum()))

# Gulrajani et al. 2017: a critic whose gradient by its input is to have norm 1, row by row.
write("second-order-penalty", "a gradient penalty: (|d critic / d x| - 1)^2, the mean over rows, plus the critic", "",
      "  MATMUL h, x, w\n  ADD h, h, b\n  SOFTPLUS h, h\n  MATMUL y, h, v\n  SUM first, y\n",
      "  SQUARE s, x_grad\n  SUM rows, s, axes=1\n  SQRT length, rows\n  SUB off, length, 1\n  SQUARE off, off\n  MEAN loss, off\n"
      "  ADD loss, loss, first\n",
      ["w", "b", "v"],
      {"x": ("input", rng.uniform(-1, 1, (5, 3))), "w": ("param", rng.uniform(-1, 1, (3, 6))),
       "b": ("param", rng.uniform(-1, 1, (6,))), "v": ("param", rng.uniform(-1, 1, (6, 1)))},
      lambda x, w, b, v: ((torch.nn.functional.softplus(x @ w + b) @ v).sum(),
                          lambda slope: ((slope.norm(dim=1) - 1) ** 2).mean()
                          + (torch.nn.functional.softplus(x @ w + b) @ v).sum()))
