"""Writes tests/cpu/functor_values.def: f32 arguments and mpmath's value of every shared f32 function, as f64."""
import pathlib

import mpmath
import numpy as np

from elementwise import EDGES, FUNCTIONS, evaluate

OUT = pathlib.Path(__file__).resolve().parents[1] / "cpu" / "functor_values.def"
NAMES = {"exp": "Exp", "expm1": "Expm1", "log": "Log", "log1p": "Log1p", "sin": "Sin", "cos": "Cos", "tan": "Tan", "tanh": "Tanh", "sigmoid": "Sigmoid",
         "erf": "Erf", "gelu": "Gelu", "gelu_tanh": "GeluTanh", "silu": "Silu", "mish": "Mish", "softplus": "Softplus"}
# Arguments close to a multiple of pi/2 for their size: the worst of all f32.
NEAR_MULTIPLES = [16367173.0 * 2.0**72, 11.0, 22.0, 355.0, 10367173.0 * 2.0**40, 1048573.0, 1048577.0]


def hexadecimal(value):
    if np.isnan(value):
        return "NAN"
    if np.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    return float(value).hex()


def main():
    rng = np.random.default_rng(7)
    entries = []
    for name, functor in NAMES.items():
        extra = FUNCTIONS[name][3] + (NEAR_MULTIPLES if name in ("sin", "cos", "tan") else [])
        arguments = np.concatenate([np.array(EDGES + extra), rng.normal(0, 4, 24), rng.normal(0, 1e-3, 4)]).astype(np.float32)
        entries += [f"TAPE_UNARY_VALUE({functor}, {hexadecimal(x)}, {hexadecimal(evaluate(name, x))})" for x in arguments]
    pairs = np.stack([rng.uniform(0.01, 30, 40), rng.normal(0, 8, 40)], 1).astype(np.float32)
    for a, b in pairs:
        x, y = mpmath.mpf(float(a)), mpmath.mpf(float(b))
        entries.append(f"TAPE_BINARY_VALUE(Pow, {hexadecimal(a)}, {hexadecimal(b)}, {hexadecimal(float(mpmath.power(x, y)))})")
        entries.append(f"TAPE_BINARY_VALUE(Atan2, {hexadecimal(b)}, {hexadecimal(a)}, {hexadecimal(float(mpmath.atan2(y, x)))})")
    lines = ["// Written by tests/oracles/functor_values.py: argument and value at 60 digits, rounded to f64."]
    for entry in entries:
        if len(lines) > 1 and len(lines[-1]) + len(entry) < 238:
            lines[-1] += " " + entry
        else:
            lines.append(entry)
    lines += ["#undef TAPE_UNARY_VALUE", "#undef TAPE_BINARY_VALUE"]
    OUT.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
