// Exact binary rows of numbers. Integers wrap; an integer zero divisor is a check of its own before the kernel.
#include "cuda_backend/kernels/elementwise.cuh"

namespace tape::cuda {

const void* arithmetic_kernel(Opcode op, DType source) {
  switch (op) {
    TAPE_KERNEL(Add, Binary, device::Add)
    TAPE_KERNEL(Sub, Binary, device::Sub)
    TAPE_KERNEL(Mul, Binary, device::Mul)
    TAPE_KERNEL(Div, Binary, device::Div)
    TAPE_KERNEL(FloorDiv, Binary, device::FloorDiv)
    TAPE_KERNEL(Mod, Binary, device::Mod)
    TAPE_KERNEL(Rem, Binary, device::Rem)
    TAPE_KERNEL(Min, Binary, device::Min)
    TAPE_KERNEL(Max, Binary, device::Max)
    default:
      return nullptr;
  }
}

}  // namespace tape::cuda
