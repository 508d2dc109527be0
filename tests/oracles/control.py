"""Golden tapes of the control rows, the checks and host traffic, by plain Python and NumPy."""
import json
import struct

import numpy as np

from golden import ALL, FLOATS, FOLDER, INTS, Golden, sample

rng = np.random.default_rng(6)
M64 = (1 << 64) - 1


def text_file(name, text):
    (FOLDER / f"{name}.tape").write_text(text.lstrip("\n"))


def control():
    text_file("nop", """
; nop: does nothing, wherever it stands
.state n i64[]
.tape main
  NOP
  ADVANCE n
  NOP
  NOP
  REPEAT 2
    NOP
  END
  ADVANCE n, by=2
.end
.expect n == 3
""")
    text_file("call", """
; call: the private locals of two CALLs are not the same, common tensors are
.state n i64[]
.input x f32[2] = 1 2
.output first f32[2]
.output second f32[4]
.local shared f32[2]
.tape twice
  CONCAT y, x, shared
  ADVANCE n
.end
.tape four
  CALL twice
  CALL twice
.end
.tape main
  RESHAPE shared, x, shape=[2]
  CALL four
  CALL four
  CONCAT second, x, shared
  RESHAPE first, shared, shape=[2]
.end
.expect n == 4
.expect first == 1 2
.expect second == 1 2 1 2
""")
    text_file("repeat", """
; repeat: constant counts, nesting, a count read once on entry
.state a i64[]
.state b i64[]
.state c i64[]
.state n i32[] = 3
.state negative i64[] = -5
.tape main
  REPEAT 0
    ADVANCE a, by=1000
  END
  REPEAT 4
    ADVANCE a
    REPEAT 3
      ADVANCE b
    END
  END
  REPEAT n, max=3
    ADVANCE n
    ADVANCE c
  END
  REPEAT negative, max=10
    ADVANCE c, by=1000
  END
.end
.expect a == 4
.expect b == 12
.expect c == 3
.expect n == 6
""")
    text_file("repeat-fault", """
; repeat: a count above max= is a fault before the first pass
.state n i64[] = 4
.state passes i64[]
.tape main
  REPEAT n, max=3
    ADVANCE passes
  END
.end
.expect fault REPEAT "n is 4, above max=3"
.expect passes == 0
""")
    text_file("end", """
; end: closes the innermost loop
.state n i64[]
.tape main
  REPEAT 2
    REPEAT 2
      ADVANCE n
    END
    ADVANCE n, by=10
  END
.end
.expect n == 24
""")
    text_file("while", """
; while: the condition is read before each pass; ends quietly at max=
.state n i64[] = 3
.state bounded i64[]
.state never i64[]
.input yes bool[] = 1
.input no bool[] = 0
.tape main
  GT more, n, 0
  WHILE more, max=100
    ADVANCE n, by=-1
    ADVANCE never
    GT more, n, 0
  END
  WHILE yes, max=5
    ADVANCE bounded
  END
  WHILE no, max=5
    ADVANCE never, by=1000
  END
  WHILE yes, max=0
    ADVANCE never, by=1000
  END
.end
.expect n == 0
.expect bounded == 5
.expect never == 3
""")


def advance():
    g = Golden("advance", "advance: counter += by, wrapping")
    for dtype, bits in (("i64", 64), ("i32", 32)):
        top = 2 ** (bits - 1) - 1
        for start, by in ((0, 1), (5, -7), (top, 1), (-top - 1, -1), (0, 2 ** 31 - 1), (3, 0)):
            n = g.declare("state", np.array(start, dtype=object), dtype, g.fresh("n"))
            g.add(f"ADVANCE {n}" + (f", by={by}" if by != 1 else ""))
            wrapped = (start + by + 2 ** (bits - 1)) % 2 ** bits - 2 ** (bits - 1)
            g.expect(n, np.array([wrapped], dtype=object), dtype)
    g.write()


def checks():
    """The checks that hold: the tape goes on after each."""
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.5])
    g = Golden("assert_finite", "assert_finite: several tensors of any float dtype; nothing happens when all are finite")
    n = g.declare("state", np.array(0), "i64", "n")
    for shape in ((), (0,), (5,), (2, 3), (2, 1, 2, 1, 2)):
        names = [g.input(sample(rng, shape, dtype), dtype) for dtype in FLOATS]
        g.add("ASSERT_FINITE " + ", ".join(names))
    g.input(np.array([3.4028235e38, -3.4028235e38, 1e-45]), "f32", "edge")
    g.add("ASSERT_FINITE edge")
    g.add("ADVANCE n")
    g.expect(n, np.array([1]), "i64")
    g.write()

    g = Golden("assert_equal", "assert_equal: bits, but all NaNs are equal")
    n = g.declare("state", np.array(0), "i64", "n")
    for i, shape in enumerate([(), (0,), (5,), (2, 3), (2, 1, 2), (1, 2, 1, 2, 1)] + [(3,)] * len(ALL)):
        dtype = ALL[i % len(ALL)]
        values = sample(rng, shape, dtype)
        g.add(f"ASSERT_EQUAL {g.input(values, dtype)}, {g.input(values, dtype)}")
    for dtype in FLOATS:
        g.add(f"ASSERT_EQUAL {g.input(special, dtype)}, {g.input(special, dtype)}")
    g.add("ADVANCE n")
    g.expect(n, np.array([1]), "i64")
    g.write()

    g = Golden("assert_close", "assert_close: |a - b| <= atol + rtol |b|; NaN is close to NaN, an infinity to itself")
    n = g.declare("state", np.array(0), "i64", "n")
    for dtype, atol, rtol in (("f64", 0.5, 0), ("f32", 0, 0.25), ("f16", 0.5, 0.25), ("bf16", 1, 0), ("i64", 2, 0), ("i32", 0, 0.5), ("i16", 2, 0), ("i8", 1, 0.5), ("u8", 3, 0)):
        for shape in ((), (0,), (4,), (2, 3)):
            b = np.abs(sample(rng, shape, dtype)).astype(np.float64) // 2 + 2
            a = b + np.floor(atol + rtol * np.abs(b)) if dtype in INTS else b + (atol + rtol * np.abs(b)) / 2
            g.add(f"ASSERT_CLOSE {g.input(a, dtype)}, {g.input(b, dtype)}, atol={atol}, rtol={rtol}")
    for dtype in FLOATS:
        g.add(f"ASSERT_CLOSE {g.input(special, dtype)}, {g.input(special, dtype)}, atol=0, rtol=0")
    g.add("ADVANCE n")
    g.expect(n, np.array([1]), "i64")
    g.write()


def check_faults():
    text_file("assert_finite-fault", """
; assert_finite: the first offending element of the first offending tensor
.input a f32[2] = 1 2
.input b f16[2, 3] = 1 2 3 -inf 5 nan
.state n i64[]
.tape main
  ADVANCE n
  ASSERT_FINITE a, b
  ADVANCE n
.end
.expect fault ASSERT_FINITE "b[1,0] is -inf"
.expect n == 1
""")
    text_file("assert_close-fault", """
; assert_close: the worst element is named
.input a f64[2, 2] = 1 2.5 3 10
.input b f64[2, 2] = 1 2 3 8
.tape main
  ASSERT_CLOSE a, b, atol=0.25, rtol=0
.end
.expect fault ASSERT_CLOSE "a[1,1] is 10, b[1,1] is 8: |a - b| = 2 is above 0.25"
""")
    text_file("assert_close-nan-fault", """
; assert_close: a NaN that only one side has is worse than any distance
.input a f32[3] = 1 nan 3
.input b f32[3] = 1000 2 3
.tape main
  ASSERT_CLOSE a, b
.end
.expect fault ASSERT_CLOSE "a[1] is nan, b[1] is 2"
""")
    text_file("assert_equal-fault", """
; assert_equal: the first element whose bits differ; -0 is not 0
.input a f32[3] = 1 0 3
.input b f32[3] = 1 -0.0 4
.tape main
  ASSERT_EQUAL a, b
.end
.expect fault ASSERT_EQUAL "a[1] is 0, b[1] is -0"
""")


def mix(x):
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & M64
    x = (x ^ x >> 27) * 0x94D049BB133111EB & M64
    return x ^ x >> 31


def order(seed, epoch, rows):
    """The Feistel permutation of LOAD, walked on the cycle until it lands on a row."""
    half = 3
    while (rows - 1) >> 2 * half:
        half += 1
    state = mix((seed + 0x9E3779B97F4A7C15) & M64)
    state = mix(state ^ (epoch + 0x632BE59BD9B4E019) & M64)
    keys = []
    for _ in range(8):
        state = (state + 0x9E3779B97F4A7C15) & M64
        keys.append(mix(state))

    def step(word):
        left, right = word >> half, word & (1 << half) - 1
        for key in keys:
            left, right = right, left ^ mix((right + key) & M64) & (1 << half) - 1
        return left << half | right

    result = []
    for word in range(rows):
        word = step(word)
        while word >= rows:
            word = step(word)
        result.append(word)
    assert sorted(result) == list(range(rows))
    return result


def load():
    """Two streams of 10 rows, four batches of 4 each: 16 rows, so an epoch ends inside the third batch."""
    data = FOLDER / "data"
    data.mkdir(exist_ok=True)
    images = np.arange(20, dtype=np.float32).reshape(10, 2) / 4
    labels = np.arange(100, 110, dtype=np.int32)
    np.save(data / "load_images.npy", images)
    np.save(data / "load_labels.npy", labels)
    g = Golden("load", "load: the next rows of all columns, in file order or shuffled, wrapping or padded")
    cases = [("plain", "", False, None), ("shuffled", ", shuffle_seed=7", False, 7), ("zero", ", shuffle_seed=0", False, 0),
             ("padded", ", end=pad", True, None), ("both", ", shuffle_seed=-5, end=pad", True, -5)]
    for name, attributes, pad, seed in cases:
        g.lines.append(f'.stream {name} images f32[*, 2] = @"data/load_images.npy", labels i32[*] = @"data/load_labels.npy"')
        epoch, row = 0, 0
        for batch in range(4):
            at = [(epoch, row + i) for i in range(4)]
            at = [(e + r // 10, r % 10) for e, r in at if not pad or r < 10]
            rows = [r if seed is None else order(seed, e, 10)[r] for e, r in at]
            x, y, valid = (f"{name}_{what}{batch}" for what in ("x", "y", "n"))
            g.add(f"LOAD {x}, {y}, {name}, rows=4{attributes}, valid={valid}")
            g.expect(x, np.concatenate([images[rows], np.zeros((4 - len(rows), 2))]), "f32")
            g.expect(y, np.concatenate([labels[rows], np.zeros(4 - len(rows))]), "i32")
            g.expect(valid, np.array([len(rows)]), "i64")
            row += len(rows)
            epoch, row = epoch + row // 10, row % 10
        g.expect(f"{name}.cursor", np.array([epoch, row]), "i64")
    every_dtype(g)
    g.write()


def every_dtype(g):
    """One column of each dtype, from a .safetensors file, which holds bf16 too."""
    columns = {dtype: sample(rng, (3,), dtype) for dtype in ALL}
    names = {"f64": "F64", "f32": "F32", "f16": "F16", "bf16": "BF16", "bool": "BOOL"}
    header, content = {}, b""
    for dtype, values in columns.items():
        raw = values.tobytes() if dtype != "bf16" else (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()
        header[dtype] = {"dtype": names.get(dtype, dtype.upper()), "shape": [3], "data_offsets": [len(content), len(content) + len(raw)]}
        content += raw
    text = json.dumps(header).encode()
    (FOLDER / "data" / "load_types.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + content)
    g.lines.append(".stream types " + ", ".join(f'c_{d} {d}[*] = @"data/load_types.safetensors:{d}"' for d in ALL))
    g.add("LOAD " + ", ".join(f"types_{d}" for d in ALL) + ", types, rows=5, end=pad, valid=types_n")
    for dtype, values in columns.items():
        g.expect(f"types_{dtype}", np.concatenate([values, np.zeros(2, values.dtype)]), dtype)
    g.expect("types_n", np.array([3]), "i64")


def host():
    text_file("store", """
; store: one row, or several when src has one axis more; the value stays
.sink scalars f32[*]
.sink rows i64[*, 2]
{sinks}
.input x f32[] = 1.5
.input y i64[3, 2] = 1 2 3 4 5 6
.input z i64[2] = 7 8
.state n i64[]
.tape main
  REPEAT 3
    STORE scalars, x
  END
  STORE rows, y
  STORE rows, z
{stores}
  ADVANCE n
.end
.expect n == 1
.expect x == 1.5
""".format(sinks="\n".join(f".sink s_{d} {d}[*]\n.input x_{d} {d}[2] = 1 0" for d in ALL),
           stores="\n".join(f"  STORE s_{d}, x_{d}" for d in ALL)))
    text_file("trace", """
; trace: hands values to the host and changes nothing
.input x f32[2] = 1 2
.input y bool[] = 1
{inputs}
.state n i64[]
.tape main
  TRACE x, y, label="first"
  ADVANCE n
  TRACE n
  TRACE {names}, label="every dtype"
.end
.expect n == 1
.expect x == 1 2
""".format(inputs="\n".join(f".input x_{d} {d}[2] = 1 0" for d in ALL), names=", ".join(f"x_{d}" for d in ALL)))


for write in (control, advance, checks, check_faults, load, host):
    write()
