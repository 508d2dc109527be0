"""Writes tests/golden/data/types.safetensors by the published format (a u64 with the length of a JSON header, the
header, the bytes of the tensors, little-endian) with struct and json alone, and safetensors.tape, which reads it.

With --package FILE it compares a file that Tapedeck wrote with what the safetensors package reads from it.
"""
import json
import struct
import sys

import numpy as np

import golden

# Name, dtype of the file, shape, dtype of the tape, values. U16, U32 and U64 have no dtype in a tape.
TENSORS = [
    ("f64", "F64", [2, 2], "f64", [0.1, -1e300, 5e-324, np.inf]),
    ("f32", "F32", [2, 3], "f32", [1.5, -0.0, 1e-45, 3.4028235e38, np.nan, 0.1]),
    ("f16", "F16", [3], "f16", [65504, 6e-08, -0.333251953125]),
    ("bf16", "BF16", [1, 4], "bf16", [1, -2.5, 3.3895314e38, 0.10009765625]),
    ("i64", "I64", [2], "i64", [-2**63, 2**63 - 1]),
    ("i32", "I32", [2], "i32", [-2**31, 2**31 - 1]),
    ("i16", "I16", [3], "i16", [-2**15, 2**15 - 1, -1]),
    ("i8", "I8", [3], "i8", [-128, 127, -1]),
    ("u8", "U8", [3], "u8", [0, 255, 7]),
    ("u16", "U16", [2], "i32", [0, 65535]),
    ("u32", "U32", [1], "i64", [2**32 - 1]),
    ("u64", "U64", [2], "i64", [2**63 - 1, 0]),
    ("bool", "BOOL", [5], "bool", [1, 0, 0, 1, 1]),
    ("scalar", "F32", [], "f32", [2.5]),
    ("none", "F32", [0, 3], "f32", []),
    ('a "quoted" \u00e4.name', "I32", [1], "i32", [42]),
]
PACK = {"F64": "d", "F32": "f", "F16": "e", "I64": "q", "I32": "i", "I16": "h", "I8": "b", "U8": "B", "U16": "H",
        "U32": "I", "U64": "Q", "BOOL": "?"}


def packed(values, dtype):
    if dtype == "BF16":  # the upper half of the f32
        return b"".join(struct.pack("<f", value)[2:] for value in values)
    return struct.pack(f"<{len(values)}{PACK[dtype]}", *values)


def file_bytes(tensors):
    """The file, in the order of the list: wide and narrow dtypes mixed, so that some tensors are unaligned."""
    header = {"__metadata__": {"format": "pt", "note": "dropped \u2713"}}
    data = b""
    for name, dtype, shape, _, values in tensors:
        own = packed(values, dtype)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(own)]}
        data += own
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def write():
    shuffled = [TENSORS[i] for i in np.random.default_rng(1).permutation(len(TENSORS))]
    (golden.FOLDER / "data" / "types.safetensors").write_bytes(file_bytes(shuffled))
    tape = golden.Golden("safetensors", "constants read from a .safetensors file, every dtype of the format")
    for i, (name, _, shape, dtype, values) in enumerate(TENSORS):
        key = name.replace('"', '\\"')
        tape.lines.append(f'.data x{i} {dtype}{golden.shape_text(shape)} = @"data/types.safetensors:{key}"')
        tape.add(f"COPY y{i}, x{i}")
        whole = dtype[0] in "iu"
        tape.expect(f"y{i}", np.array(values, dtype=object if whole else golden.NUMPY[dtype]), "i64" if whole else dtype)
    tape.lines.append('.data wide f64[3] = @"data/types.safetensors:f16"  ; floats widen, integers fit')
    tape.add("COPY widened, wide")
    tape.expect("widened", np.array([65504, np.float16(6e-08), -0.333251953125], dtype=np.float64), "f64")
    tape.lines.append('.stream rows values i64[*] = @"data/types.safetensors:u8"')
    tape.add("LOAD row, rows, rows=2")
    tape.expect("row", np.array([0, 255]), "i64")
    tape.write()


def compare(path):
    """Prints what the package reads; fails unless it is what struct and json read."""
    import safetensors

    with open(path, "rb") as file:
        content = file.read()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8:8 + length])
    header.pop("__metadata__", None)
    read = dict(safetensors.deserialize(content))
    assert sorted(read) == sorted(header)
    for name, tensor in read.items():
        begin, end = header[name]["data_offsets"]
        assert (tensor["dtype"], tensor["shape"]) == (header[name]["dtype"], header[name]["shape"]), name
        assert bytes(tensor["data"]) == content[8 + length + begin:8 + length + end], name
        print(name, tensor["dtype"], tensor["shape"])


if sys.argv[1:2] == ["--package"]:
    compare(sys.argv[2])
else:
    write()
