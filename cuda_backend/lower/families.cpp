// Which family lowers which row: the one list, complete by static_assert.
#include <fmt/format.h>

#include "cuda_backend/launch.h"
#include "vm/error.h"

namespace tape::cuda {
namespace {

using Family = bool (*)(const Call&, LaunchList&);

/// Rows that the executable plays itself: loops, and values handed to the host.
bool played_by_the_executable(const Call&, LaunchList&) {
  return true;
}

constexpr bool is_one_of(Opcode op, std::initializer_list<Opcode> rows) {
  return std::find(rows.begin(), rows.end(), op) != rows.end();
}

/// nullptr for a row that is not here.
constexpr Family family_of(Opcode op) {
  using enum Opcode;
  if (is_one_of(op, {Copy,    Fill,     Zero,     ZeroGrad, Iota,  Cast,     Where,    Neg,   Abs,      Sign, Square,
                     Sqrt,    Rsqrt,    Recip,    Exp,      Expm1, Log,      Log1p,    Sin,   Cos,      Tan,  Tanh,
                     Sigmoid, Erf,      Floor,    Ceil,     Round, Trunc,    Not,      IsNan, IsFinite, Relu, LeakyRelu,
                     Elu,     Gelu,     GeluTanh, Silu,     Mish,  Softplus, Hardtanh, Clip,  Add,      Sub,  Mul,
                     Div,     FloorDiv, Mod,      Rem,      Pow,   Min,      Max,      Atan2, Eq,       Ne,   Lt,
                     Le,      Gt,       Ge,       And,      Or,    Xor,      Shl,      Shr}))
    return &lower_elementwise;
  if (is_one_of(op, {Reshape, Transpose, Broadcast, Concat, Split, Slice, SliceGrad, Flip})) return &lower_move;
  if (is_one_of(op, {Pad, DynamicSlice, DynamicUpdateSlice, Triangle, PadGrad, DynamicSliceGrad, CumSum, CumProd,
                     CumProdGrad}))
    return &lower_shape;
  if (is_one_of(op, {Gather, ScatterAdd, Scatter, TakeAlong, OneHot, TakeAlongGrad})) return &lower_index;
  if (is_one_of(op, {Sum, Mean, Prod, ReduceMax, ReduceMin, Any, All, LogSumExp, Norm2, Var, ArgMax, ArgMin, ProdGrad,
                     ReduceMaxGrad, ReduceMinGrad, Dot}))
    return &lower_reduce;
  if (is_one_of(op, {Softmax,
                     SoftmaxGrad,
                     LogSoftmax,
                     LogSoftmaxGrad,
                     CrossEntropy,
                     CrossEntropyGrad,
                     MseLoss,
                     MseLossGrad,
                     NllLoss,
                     NllLossGrad,
                     MaeLoss,
                     MaeLossGrad,
                     BceLoss,
                     BceLossGrad,
                     BceLogitsLoss,
                     BceLogitsLossGrad,
                     HuberLoss,
                     HuberLossGrad,
                     CausalSoftmax,
                     CausalSoftmaxGrad,
                     LayerNorm,
                     LayerNormGrad,
                     LayerNormWeightGrad,
                     RmsNorm,
                     RmsNormGrad,
                     RmsNormWeightGrad,
                     GroupNorm,
                     GroupNormGrad,
                     GroupNormWeightGrad,
                     BatchNorm,
                     BatchNormGrad,
                     BatchNormWeightGrad}))
    return &lower_rows;
  if (is_one_of(op, {MatMul, Outer})) return &lower_matmul;
  if (is_one_of(op, {Rope, Attention, AttentionGrad})) return &lower_attention;
  if (is_one_of(op, {LstmCell, LstmCellGrad, GruCell, GruCellGrad})) return &lower_cells;
  if (is_one_of(op, {Conv1d, Conv1dInputGrad, Conv1dWeightGrad, Conv2d, Conv2dInputGrad, Conv2dWeightGrad,
                     ConvTranspose2d, MaxPool2d, MaxPool2dGrad, AvgPool2d, AvgPool2dGrad, GlobalAvgPool,
                     UpsampleNearest2d, UpsampleNearest2dGrad}))
    return &lower_window;
  if (is_one_of(op, {Sort, ArgSort, TopK, RandomPermutation})) return &lower_sort;
  if (is_one_of(op, {Advance, Dropout, DropoutGrad, RandomUniform, RandomNormal, RandomBernoulli, Categorical}))
    return &lower_random;
  if (is_one_of(op, {Sgd, Adam, AdamW, AmsGrad, AdaGrad, RmsProp, Nag, Lion, ClipNorm, ClipValue}))
    return &lower_optimizer;
  if (is_one_of(op, {AssertFinite, AssertClose, AssertEqual, Load})) return &lower_control;
  if (is_one_of(op, {Nop, Call, Repeat, While, End, Trace, Store})) return &played_by_the_executable;
  if (is_one_of(op, {Map, MapReduce})) return &lower_map;
  return nullptr;
}

#define TAPE_OP(name, ...) static_assert(family_of(Opcode::name) != nullptr, #name " has no family that lowers it");
#include "opcodes/opcodes.def"

/// In row order.
constexpr Family kFamilies[] = {
#define TAPE_OP(name, ...) family_of(Opcode::name),
#include "opcodes/opcodes.def"
};

}  // namespace

void lower(const Call& call, LaunchList& list) {
  list.begin(call);
  if (!kFamilies[row_of(*call.command.op)](call, list))
    throw Error(Code::Internal, fmt::format("cuda: the family of {} does not lower it", call.command.op->mnemonic));
}

}  // namespace tape::cuda
