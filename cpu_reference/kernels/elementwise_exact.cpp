// Exact unary rows: same bits on every backend, f64 included.
#include "cpu_reference/kernels/elementwise.h"

namespace tape::cpu {

TAPE_CHOOSE(Neg, Unary, device::Neg)
TAPE_CHOOSE(Abs, Unary, device::Abs)
TAPE_CHOOSE(Sign, Unary, device::Sign)
TAPE_CHOOSE(Square, Unary, device::Square)
TAPE_CHOOSE(Sqrt, Unary, device::Sqrt)
TAPE_CHOOSE(Rsqrt, Unary, device::Rsqrt)
TAPE_CHOOSE(Recip, Unary, device::Recip)
TAPE_CHOOSE(Floor, Unary, device::Floor)
TAPE_CHOOSE(Ceil, Unary, device::Ceil)
TAPE_CHOOSE(Round, Unary, device::Round)
TAPE_CHOOSE(Trunc, Unary, device::Trunc)
TAPE_CHOOSE(Relu, Unary, device::Relu)
TAPE_CHOOSE(Not, Unary, device::Not)
TAPE_CHOOSE(IsNan, Unary, device::IsNan)
TAPE_CHOOSE(IsFinite, Unary, device::IsFinite)

}  // namespace tape::cpu
