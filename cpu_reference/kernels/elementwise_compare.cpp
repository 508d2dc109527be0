// Comparisons and bitwise rows. Comparisons read halves as f32, which is exact, and write bool.
#include "cpu_reference/kernels/elementwise.h"

namespace tape::cpu {

TAPE_CHOOSE(Eq, Binary, device::Eq)
TAPE_CHOOSE(Ne, Binary, device::Ne)
TAPE_CHOOSE(Lt, Binary, device::Lt)
TAPE_CHOOSE(Le, Binary, device::Le)
TAPE_CHOOSE(Gt, Binary, device::Gt)
TAPE_CHOOSE(Ge, Binary, device::Ge)
TAPE_CHOOSE(And, Binary, device::And)
TAPE_CHOOSE(Or, Binary, device::Or)
TAPE_CHOOSE(Xor, Binary, device::Xor)
TAPE_CHOOSE(Shl, Binary, device::Shl)
TAPE_CHOOSE(Shr, Binary, device::Shr)

}  // namespace tape::cpu
