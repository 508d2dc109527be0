"""Golden tapes of SGD, ADAM, ADAMW over several steps, checked against torch.optim."""
import numpy as np
import torch

from golden import Golden, cast, to_bf16

STEPS = 6
rng = np.random.default_rng(5)
TORCH = {"f64": torch.float64, "f32": torch.float32}
# After STEPS updates in the compute type; attributes are rounded to it first, which moves beta2 = 0.999 by 1.3e-5 of 1 - beta2.
TOLERANCE = {"f64": "rtol=1e-12 atol=1e-14", "f32": "rtol=2e-5 atol=1e-6", "f16": "rtol=2e-3 atol=1e-3", "bf16": "rtol=2e-2 atol=2e-2"}
SHAPES = [(7,), (3, 5), (), (1,), (0,), (2, 1, 3), (2, 1, 2, 1, 3)]


def reference(kind, options, params, grads, dtype, lrs):
    """Parameters and state after STEPS steps of torch.optim in the compute type of dtype."""
    c = TORCH["f64" if dtype == "f64" else "f32"]
    tensors = [torch.nn.Parameter(torch.tensor(np.asarray(p), dtype=c)) for p in params]
    optimizer = {"SGD": torch.optim.SGD, "ADAM": torch.optim.Adam, "ADAMW": torch.optim.AdamW}[kind](tensors, lr=1.0, **options)
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = float(lrs[step])
        for tensor, grad in zip(tensors, grads):
            tensor.grad = torch.tensor(np.asarray(grad[step]), dtype=c)
        optimizer.step()
    return tensors, optimizer


def state_of(optimizer, tensor, kind):
    state = optimizer.state[tensor]
    names = ["momentum_buffer"] if kind == "SGD" else ["exp_avg", "exp_avg_sq"]
    return [state[name] for name in names if state.get(name) is not None]


def attributes(kind, options):
    text = ""
    for key, value in options.items():
        if key == "betas":
            text += f", beta1={value[0]}, beta2={value[1]}"
        else:
            text += f", {key}={int(value) if isinstance(value, bool) else value}"
    return text


def case(g, kind, options, shapes, dtype, master=False, f32_grads=False):
    """Several parameters in one command, a fresh gradient and a learning rate that halves each step."""
    params = [cast(rng.normal(0, 1, shape), dtype) for shape in shapes]
    grad_dtype = "f32" if f32_grads else dtype
    grads = [[cast(rng.normal(0, 1, shape), grad_dtype) for _ in range(STEPS)] for shape in shapes]
    c = "f64" if dtype == "f64" else "f32"
    lists = 0 if kind == "SGD" and options.get("momentum", 0) == 0 else 1 if kind == "SGD" else 2
    lrs = [0.1 * 0.5 ** step for step in range(STEPS)]
    p = [g.declare("param", value, dtype, g.fresh("p")) for value in params]
    state = [[g.declare("state", np.zeros(shape), c, g.fresh("mv"[i])) for shape in shapes] for i in range(lists)]
    masters = [g.declare("state", value, c, g.fresh("master")) for value in params] if master else []
    t = g.declare("state", np.array(0), "i64", g.fresh("t"))
    for step in range(STEPS):
        lr = g.input(np.array(lrs[step]), c)
        names = [g.input(grad[step], grad_dtype) for grad in grads]
        g.add(f"ADVANCE {t}")
        groups = [p, names] + (state or [[]] if kind == "SGD" else state)
        command = ", ".join("[" + ", ".join(group) + "]" for group in groups)
        g.add(f"{kind} {command}, {lr}, {t}" + (f", master=[{', '.join(masters)}]" if master else "") + attributes(kind, options))
    tensors, optimizer = reference(kind, options, params, grads, dtype, lrs)
    for i, tensor in enumerate(tensors):
        value = tensor.detach().numpy()
        g.expect(p[i], cast(value, dtype), dtype, "~", TOLERANCE[dtype])
        if master:
            g.expect(masters[i], value, c, "~", TOLERANCE[c])
        for names, reached in zip(state, state_of(optimizer, tensor, kind)):
            g.expect(names[i], reached.numpy(), c, "~", TOLERANCE[c])


def write(kind, variants):
    g = Golden(kind.lower(), f"{kind.lower()}: {STEPS} steps of torch.optim, several parameters a command")
    for i, options in enumerate(variants):
        case(g, kind, options, SHAPES if i == 0 else SHAPES[:2], "f32")
        case(g, kind, options, SHAPES[:3], "f64")
    last = variants[-1]
    for dtype in ("f16", "bf16"):
        case(g, kind, last, SHAPES[:2], dtype, master=True)
        case(g, kind, last, SHAPES[:2], dtype, master=True, f32_grads=True)
    case(g, kind, variants[0], [(5,)], "f16", f32_grads=True)
    g.write()


write("SGD", [{}, {"weight_decay": 0.1}, {"momentum": 0.9}, {"momentum": 0.5, "weight_decay": 0.01},
              {"momentum": 0.9, "nesterov": True, "weight_decay": 0.02}])
write("ADAM", [{}, {"weight_decay": 0.1}, {"betas": (0.5, 0.75), "eps": 1e-3}, {"betas": (0, 0.875), "eps": 1e-6},
               {"betas": (0.8, 0.95), "weight_decay": 0.01}])
write("ADAMW", [{}, {"weight_decay": 0}, {"betas": (0.5, 0.75), "eps": 1e-3, "weight_decay": 0.5},
                {"betas": (0.8, 0.95), "weight_decay": 0.1}])
