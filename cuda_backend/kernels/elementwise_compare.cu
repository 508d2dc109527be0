// Comparisons, bitwise rows, and the list of all elementwise kernels.
#include "cuda_backend/kernels/elementwise.cuh"

namespace tape::cuda {

const void* compare_kernel(Opcode op, DType source) {
  switch (op) {
    TAPE_KERNEL(Eq, Binary, device::Eq)
    TAPE_KERNEL(Ne, Binary, device::Ne)
    TAPE_KERNEL(Lt, Binary, device::Lt)
    TAPE_KERNEL(Le, Binary, device::Le)
    TAPE_KERNEL(Gt, Binary, device::Gt)
    TAPE_KERNEL(Ge, Binary, device::Ge)
    TAPE_KERNEL(And, Binary, device::And)
    TAPE_KERNEL(Or, Binary, device::Or)
    TAPE_KERNEL(Xor, Binary, device::Xor)
    TAPE_KERNEL(Shl, Binary, device::Shl)
    TAPE_KERNEL(Shr, Binary, device::Shr)
    default:
      return nullptr;
  }
}

const void* elementwise_kernel(Opcode op, DType source) {
  for (const auto part : {&exact_unary_kernel, &arithmetic_kernel, &compare_kernel, &function_kernel})
    if (const void* kernel = part(op, source)) return kernel;
  return nullptr;
}

}  // namespace tape::cuda
