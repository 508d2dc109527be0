// The functor of every elementwise row, as lists that the kernels, the interpreter of MAP bodies and the generator of
// their programs expand: ROW(Name of opcodes.def, Form, functor in tape::cuda).
#pragma once

#define TAPE_EXACT_ROWS(ROW)                    \
  ROW(Neg, Unary, device::Neg)                  \
  ROW(Abs, Unary, device::Abs)                  \
  ROW(Sign, Unary, device::Sign)                \
  ROW(Square, Unary, device::Square)            \
  ROW(Sqrt, Unary, device::Sqrt)                \
  ROW(Rsqrt, Unary, device::Rsqrt)              \
  ROW(Recip, Unary, device::Recip)              \
  ROW(Floor, Unary, device::Floor)              \
  ROW(Ceil, Unary, device::Ceil)                \
  ROW(Round, Unary, device::Round)              \
  ROW(Trunc, Unary, device::Trunc)              \
  ROW(Relu, Unary, device::Relu)                \
  ROW(Not, Unary, device::Not)                  \
  ROW(IsNan, Unary, device::IsNan)              \
  ROW(IsFinite, Unary, device::IsFinite)        \
  ROW(LeakyRelu, Attributes, device::LeakyRelu) \
  ROW(Hardtanh, Attributes, device::Hardtanh)   \
  ROW(Clip, Attributes, device::Clip)

#define TAPE_ARITHMETIC_ROWS(ROW)         \
  ROW(Add, Binary, device::Add)           \
  ROW(Sub, Binary, device::Sub)           \
  ROW(Mul, Binary, device::Mul)           \
  ROW(Div, Binary, device::Div)           \
  ROW(FloorDiv, Binary, device::FloorDiv) \
  ROW(Mod, Binary, device::Mod)           \
  ROW(Rem, Binary, device::Rem)           \
  ROW(Min, Binary, device::Min)           \
  ROW(Max, Binary, device::Max)

#define TAPE_COMPARE_ROWS(ROW)  \
  ROW(Eq, Binary, device::Eq)   \
  ROW(Ne, Binary, device::Ne)   \
  ROW(Lt, Binary, device::Lt)   \
  ROW(Le, Binary, device::Le)   \
  ROW(Gt, Binary, device::Gt)   \
  ROW(Ge, Binary, device::Ge)   \
  ROW(And, Binary, device::And) \
  ROW(Or, Binary, device::Or)   \
  ROW(Xor, Binary, device::Xor) \
  ROW(Shl, Binary, device::Shl) \
  ROW(Shr, Binary, device::Shr)

#define TAPE_FUNCTION_ROWS(ROW)             \
  ROW(Exp, Unary, functions::Exp)           \
  ROW(Expm1, Unary, functions::Expm1)       \
  ROW(Log, Unary, functions::Log)           \
  ROW(Log1p, Unary, functions::Log1p)       \
  ROW(Sin, Unary, functions::Sin)           \
  ROW(Cos, Unary, functions::Cos)           \
  ROW(Tan, Unary, functions::Tan)           \
  ROW(Tanh, Unary, functions::Tanh)         \
  ROW(Sigmoid, Unary, functions::Sigmoid)   \
  ROW(Erf, Unary, functions::Erf)           \
  ROW(Gelu, Unary, functions::Gelu)         \
  ROW(GeluTanh, Unary, functions::GeluTanh) \
  ROW(Silu, Unary, functions::Silu)         \
  ROW(Mish, Unary, functions::Mish)         \
  ROW(Softplus, Unary, functions::Softplus) \
  ROW(Elu, Attributes, functions::Elu)      \
  ROW(Pow, Binary, functions::Pow)          \
  ROW(Atan2, Binary, functions::Atan2)

#define TAPE_ELEMENTWISE_ROWS(ROW) \
  TAPE_EXACT_ROWS(ROW)             \
  TAPE_ARITHMETIC_ROWS(ROW)        \
  TAPE_COMPARE_ROWS(ROW)           \
  TAPE_FUNCTION_ROWS(ROW)
