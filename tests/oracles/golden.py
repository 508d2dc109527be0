"""Writes golden tapes: inputs as literals, commands, and expectations that NumPy or PyTorch computed.

Every script of this folder rewrites the files of its ops when run from anywhere; nothing here ever calls Tapedeck.
"""
import pathlib

import numpy as np

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "golden"
FLOATS = ["f64", "f32", "f16", "bf16"]
HALVES = ["f16", "bf16"]
INTS = ["i64", "i32", "i16", "i8", "u8"]
ALL = FLOATS + INTS + ["bool"]
# bf16 has no NumPy type: it is carried as f32 values on the bf16 grid.
NUMPY = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": np.float32, "i64": np.int64,
         "i32": np.int32, "i16": np.int16, "i8": np.int8, "u8": np.uint8, "bool": np.bool_}


def to_bf16(values):
    """Rounds f32 values to nearest even on the bf16 grid."""
    values = np.asarray(values, dtype=np.float32)
    bits = np.ascontiguousarray(values).view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)
    return np.where(np.isnan(values), values, rounded).reshape(values.shape)


def f64(values):
    return np.asarray(values, dtype=np.float64)


def quiet(function, *arguments):
    """NaN and infinities without warnings."""
    with np.errstate(all="ignore"):
        return function(*arguments)


def cast(values, dtype):
    if dtype == "bf16":
        return to_bf16(np.asarray(values, dtype=np.float32))
    return np.asarray(values).astype(NUMPY[dtype])


def literal(value, dtype):
    if dtype == "bool" or dtype in INTS:
        return str(int(value))
    if np.isnan(value):
        return "nan"
    if np.isinf(value):
        return "inf" if value > 0 else "-inf"
    if value == 0:
        return "-0.0" if np.signbit(value) else "0"
    text = str(np.float32(value)) if dtype != "f64" else repr(float(value))
    return text[:-2] if text.endswith(".0") else text


def literals(values, dtype):
    return " ".join(literal(value, dtype) for value in np.asarray(values).reshape(-1))


def shape_text(shape):
    return "[" + ", ".join(str(dim) for dim in shape) + "]"


def sample(rng, shape, dtype):
    """Values that are exact in the dtype and differ from their neighbours."""
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(np.bool_)
    if dtype == "u8":
        return rng.integers(0, 256, shape).astype(np.uint8)
    if dtype == "i8":
        return rng.integers(-128, 128, shape).astype(np.int8)
    if dtype in INTS:
        return rng.integers(-1000, 1000, shape).astype(NUMPY[dtype])
    return cast(rng.integers(-127, 128, shape) / 8, dtype)


class Golden:
    """One golden file: declarations, the body of `main`, expectations."""

    def __init__(self, name, about):
        self.name = name
        self.lines = [f"; {about}"]
        self.body = []
        self.expectations = []
        self.count = 0

    def fresh(self, stem):
        self.count += 1
        return f"{stem}{self.count}"

    def declare(self, role, values, dtype, name=None):
        values = np.asarray(values)
        name = name or self.fresh("x")
        line = f".{role} {name} {dtype}{shape_text(values.shape)}"
        self.lines.append(line + (f" = {literals(values, dtype)}" if values.size else ""))
        return name

    def input(self, values, dtype, name=None):
        return self.declare("input", values, dtype, name)

    def add(self, text):
        self.body.append("  " + text)

    def expect(self, name, values, dtype, op="==", tolerance=""):
        self.expectations.append(f".expect {name} {op} {literals(values, dtype)} {tolerance}".rstrip())

    def expect_fault(self, op, text):
        self.expectations.append(f'.expect fault {op} "{text}"')

    def write(self):
        FOLDER.mkdir(exist_ok=True)
        lines = self.lines + [".tape main"] + self.body + [".end"] + self.expectations
        (FOLDER / f"{self.name}.tape").write_text("\n".join(lines) + "\n")
