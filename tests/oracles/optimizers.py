"""Golden tapes of the optimizers over several steps, by torch.optim where it has them and by the formulas of the papers
in NumPy (NAG, LION) where it does not; of CLIP_VALUE."""
import numpy as np
import torch

from golden import Golden, cast, to_bf16

STEPS = 6
rng = np.random.default_rng(5)
TORCH = {"f64": torch.float64, "f32": torch.float32}
# After STEPS updates in the compute type; attributes are rounded to it first, which moves beta2 = 0.999 by 1.3e-5 of 1 - beta2.
TOLERANCE = {"f64": "rtol=1e-12 atol=1e-14", "f32": "rtol=2e-5 atol=1e-6", "f16": "rtol=2e-3 atol=1e-3", "bf16": "rtol=2e-2 atol=2e-2"}
SHAPES = [(7,), (3, 5), (), (1,), (0,), (2, 1, 3), (2, 1, 2, 1, 3)]


# The lists of state in the order of the rows, with torch's names.
STATE = {"SGD": {"m": "momentum_buffer"}, "ADAM": {"m": "exp_avg", "v": "exp_avg_sq"},
         "ADAMW": {"m": "exp_avg", "v": "exp_avg_sq"},
         "AMSGRAD": {"m": "exp_avg", "v": "exp_avg_sq", "max": "max_exp_avg_sq"}, "ADAGRAD": {"v": "sum"},
         "RMSPROP": {"v": "square_avg", "m": "momentum_buffer"}, "NAG": {"m": "m"}, "LION": {"m": "m"}}
CLASSES = {"SGD": torch.optim.SGD, "ADAM": torch.optim.Adam, "ADAMW": torch.optim.AdamW, "AMSGRAD": torch.optim.Adam,
           "ADAGRAD": torch.optim.Adagrad, "RMSPROP": torch.optim.RMSprop}


def formula(kind, options, params, grads, dtype, lrs):
    """NAG and LION in float64 from what the compute type holds of the attributes."""
    c = np.float64 if dtype == "f64" else np.float32
    o = {key: float(c(value)) for key, value in options.items()}
    decay = o.get("weight_decay", 0)
    reached = []
    for param, steps in zip(params, grads):
        p, m = np.asarray(param, np.float64), np.zeros(np.shape(param))
        for lr, grad in zip(lrs, steps):
            lr, g = float(c(lr)), np.asarray(grad, np.float64)
            if kind == "NAG":
                mu = o.get("momentum", float(c(0.9)))
                g = g + decay * p
                m = mu * m - lr * g
                p = p + mu * m - lr * g
            else:
                beta1, beta2 = o.get("beta1", float(c(0.9))), o.get("beta2", float(c(0.99)))
                p = p * (1 - lr * decay)
                p = p - lr * np.sign(beta1 * m + (1 - beta1) * g)
                m = beta2 * m + (1 - beta2) * g
        reached.append((p, {"m": m}))
    return reached


def reference(kind, options, params, grads, dtype, lrs):
    """Parameters and state after STEPS steps: torch.optim in the compute type of dtype, or the formula."""
    if kind not in CLASSES:
        return formula(kind, options, params, grads, dtype, lrs)
    c = TORCH["f64" if dtype == "f64" else "f32"]
    tensors = [torch.nn.Parameter(torch.tensor(np.asarray(p), dtype=c)) for p in params]
    more = {"amsgrad": True} if kind == "AMSGRAD" else {}
    optimizer = CLASSES[kind](tensors, lr=1.0, **options, **more)
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = float(lrs[step])
        for tensor, grad in zip(tensors, grads):
            tensor.grad = torch.tensor(np.asarray(grad[step]), dtype=c)
        optimizer.step()
    return [(tensor.detach().numpy(), {name: value.numpy() for name, value in optimizer.state[tensor].items()
                                       if isinstance(value, torch.Tensor)}) for tensor in tensors]


def has_state(kind, name, options):
    return name != "m" or kind not in ("SGD", "RMSPROP") or options.get("momentum", 0) != 0


def attributes(kind, options):
    text = ""
    for key, value in options.items():
        if key == "betas":
            text += f", beta1={value[0]:g}, beta2={value[1]:g}"
        else:
            text += f", {key}={int(value) if isinstance(value, bool) else value}"
    return text


def case(g, kind, options, shapes, dtype, master=False, f32_grads=False, low=None, lr_dtype=None):
    """Several parameters in one command, a fresh gradient and a learning rate that halves each step."""
    params = [cast(rng.normal(0, 1, shape), dtype) for shape in shapes]
    grad_dtype = "f32" if f32_grads else dtype
    grads = [[cast(rng.normal(0, 1, shape), grad_dtype) for _ in range(STEPS)] for shape in shapes]
    c = "f64" if dtype == "f64" else "f32"
    lr_dtype = lr_dtype or c
    lrs = [0.1 * 0.5 ** step for step in range(STEPS)]
    lrs = lrs if lr_dtype == c else [float(cast(lr, lr_dtype)) for lr in lrs]
    p = [g.declare("param", value, dtype, g.fresh("p")) for value in params]
    state = {name: [g.declare("state", np.zeros(shape), c, g.fresh(name)) for shape in shapes] if
             has_state(kind, name, options) else [] for name in STATE[kind]}
    masters = [g.declare("state", value, c, g.fresh("master")) for value in params] if master else []
    lows = [g.declare("state", np.zeros(shape), low, g.fresh("low")) for shape in shapes] if low else []
    t = g.declare("state", np.array(0), "i64", g.fresh("t"))
    for step in range(STEPS):
        lr = g.input(np.array(lrs[step]), lr_dtype)
        names = [g.input(grad[step], grad_dtype) for grad in grads]
        g.add(f"ADVANCE {t}")
        command = ", ".join("[" + ", ".join(group) + "]" for group in [p, names, *state.values()])
        g.add(f"{kind} {command}, {lr}, {t}" + (f", master=[{', '.join(masters)}]" if master else "") +
              (f", low=[{', '.join(lows)}]" if low else "") + attributes(kind, options))
    for i, (value, reached) in enumerate(reference(kind, options, params, grads, dtype, lrs)):
        g.expect(p[i], cast(value, dtype), dtype, "~", TOLERANCE[dtype])
        if master:
            g.expect(masters[i], value, c, "~", TOLERANCE[c])
        if low:
            g.expect(lows[i], cast(value, low), low, "~", TOLERANCE[low])
        for name, names in state.items():
            if names:
                g.expect(names[i], reached[STATE[kind][name]], c, "~", TOLERANCE[c])


def write(kind, variants):
    by = "torch.optim" if kind in CLASSES else "the formula"
    g = Golden(kind.lower(), f"{kind.lower()}: {STEPS} steps of {by}, several parameters a command")
    for i, options in enumerate(variants):
        case(g, kind, options, SHAPES if i == 0 else SHAPES[:2], "f32")
        case(g, kind, options, SHAPES[:3], "f64")
    last = variants[-1]
    for dtype in ("f16", "bf16"):
        case(g, kind, last, SHAPES[:2], dtype, master=True)
        case(g, kind, last, SHAPES[:2], dtype, master=True, f32_grads=True)
    case(g, kind, variants[0], [(5,)], "f16", f32_grads=True)
    case(g, kind, variants[0], [(5,), (0,)], "f32", low="bf16")
    case(g, kind, variants[0], [(5,)], "f64", low="f16")
    case(g, kind, variants[-1], [(5,)], "f16", master=True, low="bf16")
    case(g, kind, variants[-1], [(5,)], "f32", low="f32", lr_dtype="f16")
    case(g, kind, variants[-1], [(5,)], "f64", low="f64", lr_dtype="bf16")
    g.write()


write("SGD", [{}, {"weight_decay": 0.1}, {"momentum": 0.9}, {"momentum": 0.5, "weight_decay": 0.01},
              {"momentum": 0.9, "nesterov": True, "weight_decay": 0.02}])
write("ADAM", [{}, {"weight_decay": 0.1}, {"betas": (0.5, 0.75), "eps": 1e-3}, {"betas": (0.0, 0.875), "eps": 1e-6},
               {"betas": (0.8, 0.95), "weight_decay": 0.01}])
write("ADAMW", [{}, {"weight_decay": 0}, {"betas": (0.5, 0.75), "eps": 1e-3, "weight_decay": 0.5},
                {"betas": (0.8, 0.95), "weight_decay": 0.1}])
write("AMSGRAD", [{}, {"weight_decay": 0.1}, {"betas": (0.5, 0.75), "eps": 1e-3},
                  {"betas": (0.8, 0.95), "weight_decay": 0.01}])
write("ADAGRAD", [{}, {"weight_decay": 0.1}, {"lr_decay": 0.25, "eps": 1e-3}, {"lr_decay": 0.5, "weight_decay": 0.01}])
write("RMSPROP", [{}, {"weight_decay": 0.1}, {"alpha": 0.5, "eps": 1e-3, "momentum": 0.9},
                  {"momentum": 0.5, "weight_decay": 0.01}])
write("NAG", [{}, {"weight_decay": 0.1}, {"momentum": 0.5, "weight_decay": 0.01}])
write("LION", [{}, {"weight_decay": 0.1}, {"beta1": 0.5, "beta2": 0.75, "weight_decay": 0.5}])


def clip_value():
    g = Golden("clip_value", "clip_value: several gradients a command, every float; NaN stays")
    for dtype in ("f64", "f32", "f16", "bf16"):
        for c in (0.5, 0, 1.3):
            arrays = [cast(rng.normal(0, 1, shape), dtype) for shape in ((7,), (2, 3), (), (0,))]
            arrays.append(cast(np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, c, -c, 0.25]), dtype))
            names = [g.declare("state", array, dtype) for array in arrays]
            g.add(f"CLIP_VALUE [{', '.join(names)}], c={c}")
            rounded = c if dtype == "f64" else float(np.float32(c))
            for name, array in zip(names, arrays):
                with np.errstate(all="ignore"):
                    g.expect(name, cast(np.clip(array.astype(np.float64), -rounded, rounded), dtype), dtype,
                             "~", "rtol=8e-3 atol=0" if dtype in ("f16", "bf16") else "rtol=0 atol=1e-7")
    g.write()


clip_value()
