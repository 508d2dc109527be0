// LSTM_CELL, GRU_CELL and their gradients: the products into scratch as MATMUL plays them, then the gates.
#include "cuda_backend/kernels/cells.h"

#include "cuda_backend/lower/matmul.h"

namespace tape::cuda {
namespace {

/// out [batch, rows of w] = x [batch, depth] w^T in the compute type, added to what it holds where `add`.
void product(const Call& call, LaunchList& list, const View& x, const View& w, bool add, void* out) {
  MatMulArgs args{};
  args.dst = out;
  args.a = x.pointer();
  args.b = w.pointer();
  args.m = x.shape[0];
  args.n = w.shape[0];
  args.k = args.a_row = args.b_col = x.shape[1];
  args.a_col = args.b_row = 1;
  args.batch = 1;
  args.alpha = 1;
  args.dst_dtype = static_cast<uint32_t>(compute_of(x.dtype));
  args.accumulate = add ? 1 : 0;
  add_scratch_product(call, args, x.dtype, list);
}
void* take_sums(LaunchList& list, const View& w, int64_t batch) {
  return list.scratch(static_cast<uint64_t>(batch * w.shape[0]) * size_of(compute_of(w.dtype)));
}

void lstm(const Call& call, LaunchList& list) {
  const View& c_prev = call.operand(4);
  void* const sums = take_sums(list, call.operand(5), c_prev.shape[0]);
  product(call, list, call.operand(2), call.operand(5), false, sums);
  product(call, list, call.operand(3), call.operand(6), true, sums);
  LstmArgs args{};
  args.h = call.operand(0).pointer();
  args.c = call.operand(1).pointer();
  args.gates = call.operand(9).pointer();
  args.c_prev = c_prev.pointer();
  args.bias_ih = call.operand(7).pointer();
  args.bias_hh = call.operand(8).pointer();
  args.sums = sums;
  args.batch = c_prev.shape[0];
  args.hidden = c_prev.shape[1];
  list.add(lstm_kernel(c_prev.dtype), LaunchList::over(static_cast<uint64_t>(c_prev.elements)), args, kLstmPointers);
}

void gru(const Call& call, LaunchList& list) {
  const View& h_prev = call.operand(2);
  void* const by_x = take_sums(list, call.operand(3), h_prev.shape[0]);
  void* const by_h = take_sums(list, call.operand(4), h_prev.shape[0]);
  product(call, list, call.operand(1), call.operand(3), false, by_x);
  product(call, list, h_prev, call.operand(4), false, by_h);
  GruArgs args{};
  args.h = call.operand(0).pointer();
  args.gates = call.operand(7).pointer();
  args.h_prev = h_prev.pointer();
  args.bias_ih = call.operand(5).pointer();
  args.bias_hh = call.operand(6).pointer();
  args.by_x = by_x;
  args.by_h = by_h;
  args.batch = h_prev.shape[0];
  args.hidden = h_prev.shape[1];
  list.add(gru_kernel(h_prev.dtype), LaunchList::over(static_cast<uint64_t>(h_prev.elements)), args, kGruPointers);
}

void lstm_grad(const Call& call, LaunchList& list) {
  const View& c_prev = call.operand(3);
  LstmGradArgs args{};
  args.d_gates = call.operand(0).pointer();
  args.d_c_prev = call.operand(1).pointer();
  args.gates = call.operand(2).pointer();
  args.c_prev = c_prev.pointer();
  args.c = call.operand(4).pointer();
  args.g_h = call.operand(5).pointer();
  args.g_c = call.operand(6).pointer();
  args.batch = c_prev.shape[0];
  args.hidden = c_prev.shape[1];
  list.add(lstm_grad_kernel(c_prev.dtype), LaunchList::over(static_cast<uint64_t>(c_prev.elements)), args,
           kLstmGradPointers);
}

void gru_grad(const Call& call, LaunchList& list) {
  const View& h_prev = call.operand(4);
  GruGradArgs args{};
  args.d_ih = call.operand(0).pointer();
  args.d_hh = call.operand(1).pointer();
  args.d_h_prev = call.operand(2).pointer();
  args.gates = call.operand(3).pointer();
  args.h_prev = h_prev.pointer();
  args.g = call.operand(5).pointer();
  args.batch = h_prev.shape[0];
  args.hidden = h_prev.shape[1];
  list.add(gru_grad_kernel(h_prev.dtype), LaunchList::over(static_cast<uint64_t>(h_prev.elements)), args,
           kGruGradPointers);
}

}  // namespace

bool lower_cells(const Call& call, LaunchList& list) {
  const auto play = [&](const View& state, auto lower_row) {
    if (state.elements != 0) lower_row(call, list);
    return true;
  };
  switch (call.opcode()) {
    case Opcode::LstmCell:
      return play(call.operand(4), &lstm);
    case Opcode::LstmCellGrad:
      return play(call.operand(3), &lstm_grad);
    case Opcode::GruCell:
      return play(call.operand(2), &gru);
    case Opcode::GruCellGrad:
      return play(call.operand(4), &gru_grad);
    default:
      return false;
  }
}

}  // namespace tape::cuda
