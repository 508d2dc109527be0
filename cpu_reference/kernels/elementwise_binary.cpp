// Exact binary rows of numbers: arithmetic, division, minimum and maximum. Integers wrap; an integer zero divisor is
// found before anything is written.
#include "cpu_reference/kernels/elementwise.h"

namespace tape::cpu {

TAPE_CHOOSE(Add, Binary, device::Add)
TAPE_CHOOSE(Sub, Binary, device::Sub)
TAPE_CHOOSE(Mul, Binary, device::Mul)
TAPE_CHOOSE(Div, Binary, device::Div)
TAPE_CHOOSE(FloorDiv, Binary, device::FloorDiv)
TAPE_CHOOSE(Mod, Binary, device::Mod)
TAPE_CHOOSE(Rem, Binary, device::Rem)
TAPE_CHOOSE(Min, Binary, device::Min)
TAPE_CHOOSE(Max, Binary, device::Max)

}  // namespace tape::cpu
