"""A golden tape of what libraries disagree about and the instruction set decides: NaN, ties, wrapping, empty sets."""
import math

from golden import FOLDER

SQRT_HALF = math.sqrt(0.5)
GELU = 0.5 * (1 + math.erf(SQRT_HALF))
GELU_TANH = 0.5 * (1 + math.tanh(math.sqrt(2 / math.pi) * (1 + 0.044715)))

DECLARATIONS = """
.input nans f32[4] = 1 nan 3 nan
.input lone f32[3] = -inf -inf -inf
.param logits f32[2, 3] = 1 2 3 4 5 6
.input ignored i32[2] = -100 -100
.input wild f32[6] = nan inf -inf 300.9 -1.9 1e20
.input low i32[] = -2147483648
.input low64 i64[] = -9223372036854775808
.input minus i32[4] = -7 7 -7 7
.input over i32[4] = 2 -2 -2 2
.input zero f32[] = 0
.input zero_i i32[] = 0
.input none f32[0, 3]
.input none_b bool[0, 3]
.input order i32[3] = 0 0 0
.input terms f32[3] = 1e16 1 -1e16
.state sum f32[1] = 0
.input unit f32[] = 1
.input masked f32[2, 2] = -inf 5 1 1
.input q f32[2, 3] = 1 2 3 4 5 6
.input length i32[] = 0
.param tie f32[3] = 3 3 1
.param a f32[2] = 2 nan
.param b f32[2] = 2 1
.param corner f32[2] = 0 0
.param root f32[2] = 0 4
.output loss f32[]
"""

FORWARD = """
.tape entropy
  CROSS_ENTROPY loss, logits, ignored
.end
.grad entropy_back of=entropy loss=loss
.tape reduce
  REDUCE_MAX top, tie
  COPY r.loss, top
.end
.grad reduce_back of=reduce loss=r.loss
.tape pairs
  MAX m, a, b
  SUM p.loss, m
.end
.grad pairs_back of=pairs loss=p.loss
.tape corners
  ABS abs, corner
  RELU relu, corner
  NORM2 norm, corner
  SUM s, abs
  SUM t, relu
  ADD c.loss, s, t
  ADD c.loss, c.loss, norm
.end
.grad corners_back of=corners loss=c.loss
.tape roots
  SQRT s, root
  SUM q.loss, s
.end
.grad roots_back of=roots loss=q.loss
"""

# Command, name of the result, what it holds.
ROWS = [
    ("SOFTMAX soft, lone", "soft", "nan nan nan"),
    ("MAX upper, nans, 2", "upper", "2 nan 3 nan"), ("MIN lower, nans, 2", "lower", "1 nan 2 nan"),
    ("ARGMAX argmax, nans", "argmax", "1"), ("ARGMIN argmin, nans", "argmin", "1"),
    ("REDUCE_MAX reduce_max, nans", "reduce_max", "nan"), ("REDUCE_MIN reduce_min, nans", "reduce_min", "nan"),
    ("RELU relu, nans", "relu", "1 nan 3 nan"), ("CLIP clip, nans, lo=0 hi=2", "clip", "1 nan 2 nan"),
    ("CAST i8, wild, dtype=i8", "i8", "0 127 -128 127 -1 127"), ("CAST u8, wild, dtype=u8", "u8", "0 255 0 255 0 255"),
    ("CAST i32, wild, dtype=i32", "i32", "0 2147483647 -2147483648 300 -1 2147483647"),
    ("CAST i64, wild, dtype=i64", "i64", "0 9223372036854775807 -9223372036854775808 300 -1 9223372036854775807"),
    ("FLOOR_DIV wraps, low, -1", "wraps", "-2147483648"), ("FLOOR_DIV wraps64, low64, -1", "wraps64", "-9223372036854775808"),
    ("MOD mod_low, low, -1", "mod_low", "0"), ("FLOOR_DIV floor, minus, over", "floor", "-4 -4 3 3"),
    ("MOD mod, minus, over", "mod", "1 -1 -1 1"), ("REM rem, minus, over", "rem", "-1 1 -1 1"),
    ("POW pow, zero, 0", "pow", "1"), ("POW pow_i, zero_i, 0", "pow_i", "1"),
    ("SUM sum_0, none, axes=0", "sum_0", "0 0 0"), ("PROD prod_0, none, axes=0", "prod_0", "1 1 1"),
    ("NORM2 norm_0, none, axes=0", "norm_0", "0 0 0"), ("LOGSUMEXP lse_0, none, axes=0", "lse_0", "-inf -inf -inf"),
    ("ANY any_0, none_b, axes=0", "any_0", "0 0 0"), ("ALL all_0, none_b, axes=0", "all_0", "1 1 1"),
    ("ADD empty, none, 1", "empty", ""),
    # 1e16 + 1 is 1e16, in f64 too: any other order of the terms gives 1.
    ("SCATTER_ADD sum, order, terms", "sum", "0"),
    ("CAUSAL_SOFTMAX causal, masked", "causal", "0 0 0.5 0.5"),
    ("ATTENTION attention, q, q, q, kv_len=length", "attention", "0 0 0 0 0 0"),
]

GRADIENTS = [("entropy", "loss", "nan"), ("entropy", "logits_grad", "0 0 0 0 0 0"), ("reduce", "tie_grad", "1 0 0"),
             ("pairs", "a_grad", "1 1"), ("pairs", "b_grad", "0 0"), ("corners", "corner_grad", "0 0"),
             ("roots", "root_grad", "inf 0.25")]

text = "; what libraries disagree about: NaN, ties, wrapping, empty sets" + DECLARATIONS.rstrip() + FORWARD.rstrip()
text += "\n.tape main\n" + "".join(f"  {command}\n" for command, _, _ in ROWS)
text += "  GELU gelu, unit\n  GELU_TANH gelu_tanh, unit\n"
for tape in dict.fromkeys(tape for tape, _, _ in GRADIENTS):
    text += f"  CALL {tape}\n  CALL {tape}_back\n"
text += ".end\n" + "".join(f".expect {name} == {wanted}".rstrip() + "\n" for _, name, wanted in ROWS)
text += f".expect gelu ~ {GELU!r} rtol=1e-7\n.expect gelu_tanh ~ {GELU_TANH!r} rtol=1e-7\n"
text += "".join(f".expect {name} == {wanted}\n" for _, name, wanted in GRADIENTS)
(FOLDER / "decisions.tape").write_text(text)
