// Functions: f32 and halves by the shared functors, f64 by the platform's libm (bits class Functor: a declared ulp
// bound for f64). Halves are computed in f32 and rounded once.
#include "cpu_reference/kernels/elementwise.h"
#include "cpu_reference/kernels/functions.h"

namespace tape::cpu {
using namespace functions;

TAPE_CHOOSE(Exp, Unary, Exp)
TAPE_CHOOSE(Expm1, Unary, Expm1)
TAPE_CHOOSE(Log, Unary, Log)
TAPE_CHOOSE(Log1p, Unary, Log1p)
TAPE_CHOOSE(Sin, Unary, Sin)
TAPE_CHOOSE(Cos, Unary, Cos)
TAPE_CHOOSE(Tan, Unary, Tan)
TAPE_CHOOSE(Tanh, Unary, Tanh)
TAPE_CHOOSE(Sigmoid, Unary, Sigmoid)
TAPE_CHOOSE(Erf, Unary, Erf)
TAPE_CHOOSE(Gelu, Unary, Gelu)
TAPE_CHOOSE(GeluTanh, Unary, GeluTanh)
TAPE_CHOOSE(Silu, Unary, Silu)
TAPE_CHOOSE(Mish, Unary, Mish)
TAPE_CHOOSE(Softplus, Unary, Softplus)
TAPE_CHOOSE(Pow, Binary, Pow)
TAPE_CHOOSE(Atan2, Binary, Atan2)

Kernel choose_Elu(Call& call, const Context&) {
  call.floats = {round_to_compute(call.command->attr_float("alpha"), call.operands[1].dtype), 0};
  return choose_elementwise<Form::Attributes, Elu>(call);
}

}  // namespace tape::cpu
