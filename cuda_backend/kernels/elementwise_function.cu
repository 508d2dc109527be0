// Functions: f32 and halves by the shared functors, f64 by CUDA's library.
#include "cuda_backend/kernels/elementwise.cuh"
#include "cuda_backend/kernels/functions.cuh"

namespace tape::cuda {

const void* function_kernel(Opcode op, DType source) {
  switch (op) {
    TAPE_KERNEL(Exp, Unary, functions::Exp)
    TAPE_KERNEL(Expm1, Unary, functions::Expm1)
    TAPE_KERNEL(Log, Unary, functions::Log)
    TAPE_KERNEL(Log1p, Unary, functions::Log1p)
    TAPE_KERNEL(Sin, Unary, functions::Sin)
    TAPE_KERNEL(Cos, Unary, functions::Cos)
    TAPE_KERNEL(Tan, Unary, functions::Tan)
    TAPE_KERNEL(Tanh, Unary, functions::Tanh)
    TAPE_KERNEL(Sigmoid, Unary, functions::Sigmoid)
    TAPE_KERNEL(Erf, Unary, functions::Erf)
    TAPE_KERNEL(Gelu, Unary, functions::Gelu)
    TAPE_KERNEL(GeluTanh, Unary, functions::GeluTanh)
    TAPE_KERNEL(Silu, Unary, functions::Silu)
    TAPE_KERNEL(Mish, Unary, functions::Mish)
    TAPE_KERNEL(Softplus, Unary, functions::Softplus)
    TAPE_KERNEL(Elu, Attributes, functions::Elu)
    TAPE_KERNEL(Pow, Binary, functions::Pow)
    TAPE_KERNEL(Atan2, Binary, functions::Atan2)
    default:
      return nullptr;
  }
}

}  // namespace tape::cuda
