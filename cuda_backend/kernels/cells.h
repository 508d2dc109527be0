// The gates of LSTM_CELL and GRU_CELL, behind their products, and the gradients: a thread an element of the state.
#pragma once

#include "cuda_backend/kernels/arguments.h"
#include "opcodes/dtype.h"

namespace tape::cuda {

struct LstmArgs {
  const Fault* guard;
  void* h;
  void* c;
  void* gates;  // may be null
  const void* c_prev;
  const void* bias_ih;  // may be null, as bias_hh
  const void* bias_hh;
  const void* sums;  // [batch, 4 hidden] of the compute type: both products
  int64_t batch, hidden;
};
inline constexpr unsigned kLstmPointers = 8;
[[nodiscard]] const void* lstm_kernel(DType dtype);

struct LstmGradArgs {
  const Fault* guard;
  void* d_gates;
  void* d_c_prev;
  const void* gates;
  const void* c_prev;
  const void* c;
  const void* g_h;  // may be null, as g_c
  const void* g_c;
  int64_t batch, hidden;
};
inline constexpr unsigned kLstmGradPointers = 8;
[[nodiscard]] const void* lstm_grad_kernel(DType dtype);

struct GruArgs {
  const Fault* guard;
  void* h;
  void* gates;  // may be null
  const void* h_prev;
  const void* bias_ih;  // may be null, as bias_hh
  const void* bias_hh;
  const void* by_x;  // [batch, 3 hidden] of the compute type: the products
  const void* by_h;
  int64_t batch, hidden;
};
inline constexpr unsigned kGruPointers = 8;
[[nodiscard]] const void* gru_kernel(DType dtype);

struct GruGradArgs {
  const Fault* guard;
  void* d_ih;
  void* d_hh;
  void* d_h_prev;
  const void* gates;
  const void* h_prev;
  const void* g;
  int64_t batch, hidden;
};
inline constexpr unsigned kGruGradPointers = 7;
[[nodiscard]] const void* gru_grad_kernel(DType dtype);

}  // namespace tape::cuda
