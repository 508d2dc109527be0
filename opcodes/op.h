// The op table: one OpInfo per row of opcodes.def. Every fact about an op is a column here; nothing else in the
// repository lists ops. Columns are documented at the head of opcodes.def.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

#include "opcodes/dtype.h"

namespace tape {

enum class Opcode : uint16_t {
#define TAPE_OP(name, code, ...) name = code,
#include "opcodes/opcodes.def"
};

/// What kind of thing an operand word names.
enum class OperandKind : uint8_t {
  Tensor,        // one tensor id
  Immediate,     // one tensor id, or absent when the attribute `imm` is given (always the last source)
  Optional,      // one tensor id or absent; written name=tensor in text
  List,          // length, then tensor ids
  OptionalList,  // a list written name=[...] in text; empty when not given
  GradList,      // length, then gradient ids; text names the primals (ZERO_GRAD)
  Tape,          // a tape id (CALL)
  Stream,        // a stream id (LOAD)
  Sink,          // a sink id (STORE)
};

/// Whether the operand is a length and ids rather than one id.
[[nodiscard]] constexpr bool is_list(OperandKind kind) {
  switch (kind) {
    case OperandKind::List:
    case OperandKind::OptionalList:
    case OperandKind::GradList:
      return true;
    case OperandKind::Tensor:
    case OperandKind::Immediate:
    case OperandKind::Optional:
    case OperandKind::Tape:
    case OperandKind::Stream:
    case OperandKind::Sink:
      return false;
  }
  return false;
}

enum class Access : uint8_t {
  Read,
  Write,   // every element is written; with acc=1 it is read too
  Update,  // read and written (SCATTER_ADD dst, rng, counters, optimizer state)
};

/// Dtype of an operand relative to the row's type variable T, whose set is the row's `types` column.
enum class TypeRule : uint8_t {
  Any,       // any dtype, on its own
  T,         // the type variable
  Wide,      // T, or f32 where T is half; T when inferred
  Stat,      // f64 when T is f64, else f32
  Bool,      // bool
  Index,     // i32 or i64, on its own
  IndexOut,  // i32 or i64; i32 when inferred
  I64,       // i64
  Float,     // any float dtype, on its own
  Each,      // list: element i is any dtype of the row's set, on its own
  EachGrad,  // list: element i has the dtype of element i of the first list, or f32
  EachStat,  // list: f64 when element i of the first list is f64, else f32
  Column,    // list: element i has the dtype of column i of the stream
  SinkRow,   // the dtype of the sink
  Body,      // list: what the body of the MAP gives
  None,      // the operand is not a tensor
};

/// Whether kernels accept strided views of the operand, or need it dense.
enum class Strides : uint8_t { Any, Contiguous };

struct Operand {
  std::string_view name;
  OperandKind kind = OperandKind::Tensor;
  Access access = Access::Read;
  TypeRule type = TypeRule::T;
  Strides strides = Strides::Contiguous;
};

enum class AttrType : uint8_t {
  Bool,     // 1 word
  Enum,     // 1 word, index into `choices`
  I32,      // 1 word
  I64,      // 2 words, low first
  F64,      // 2 words
  Number,   // 2 words: f64 when the command's number type (see Command::number_dtype) is a float, else i64
  IntList,  // length, then one i32 word each
  String,   // 1 word: string id
  Body,     // length, then the words of a MAP body (opcodes/map_body.h)
};

struct Attribute {
  std::string_view name;
  AttrType type = AttrType::Bool;
  bool required = false;
  double fallback = 0;       // default when absent; an IntList defaults to empty
  double low = 0, high = 1;  // inclusive range; exclusive where the flag says so
  bool low_open = false, high_open = false;
  std::string_view choices = "";  // Enum: "mean|sum|none"
};

/// Which function of opcodes/infer.cpp checks and infers the shapes.
enum class ShapeRule : uint8_t {
  None,       // no tensor is related to another
  Same,       // all tensors have the shape of the first source
  Broadcast,  // dst is the NumPy broadcast of all sources
  Free,       // dst may have any shape (FILL, IOTA, random)
  Scalar,     // every operand of the row is rank 0 (ADVANCE)
  Loop,       // the optional tensor is rank 0
  Close,      // sources equal in shape, no destination
  Load,
  Store,
  Reshape,
  Transpose,
  BroadcastTo,
  Concat,
  Slice,
  SliceGrad,
  Gather,
  ScatterAdd,
  OneHot,
  Split,
  Pad,
  PadGrad,
  Flip,
  DynamicSlice,
  DynamicUpdateSlice,
  DynamicSliceGrad,
  TakeAlong,
  TakeAlongGrad,
  Triangle,
  TopK,
  Outer,
  Dot,
  RandomPermutation,
  Categorical,
  Reduce,
  ReduceGrad,
  ArgReduce,
  MatMul,
  Axis,  // Same, with attribute axis in range
  CrossEntropy,
  CrossEntropyGrad,
  Loss,
  LossGrad,
  Dropout,
  Rng,  // dst free, rng is i64[2]
  Optimizer,
  ClipNorm,
  Map,
  MapReduce,
  NllLoss,
  NllLossGrad,
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
  BatchNormWeightGrad,
  Conv,
  ConvInputGrad,
  ConvWeightGrad,
  ConvTranspose,
  Pool,
  MaxPoolGrad,
  AvgPoolGrad,
  GlobalPool,
  Upsample,
  UpsampleGrad,
  Rope,
  Attention,
  AttentionGrad,
  LstmCell,
  LstmCellGrad,
  GruCell,
  GruCellGrad,
};

/// How results may be compared.
enum class Bits : uint8_t {
  None,     // no numeric result
  Exact,    // same bits fused or not, on every backend
  Functor,  // exact for f32 and halves (shared functor header); a declared ulp bound for f64
  Ordered,  // same bits: the canonical order defines them
  Matmul,   // ordered below the size table, library above
  Library,  // same bits run to run on one card, library version and algorithm
};

/// Effects other than writing destinations. Rows with effects are never recomputed or dropped.
enum Effect : uint8_t {
  kNoEffect = 0,
  kStreamEffect = 1,    // moves a stream cursor
  kSinkEffect = 2,      // STORE, TRACE: the host sees it
  kRngEffect = 4,       // advances a generator
  kStateEffect = 8,     // writes persistent state by design (optimizers, ADVANCE)
  kFaultEffect = 16,    // may stop the tape (index, label, division, ASSERT)
  kControlEffect = 32,  // structure of the tape
};

enum Trait : uint8_t {
  kNoTrait = 0,
  kInPlace = 1,    // dst may equal a source of equal dtype and shape
  kRecompute = 2,  // cheap: the gradient pass may play it again
  kDiscrete = 4,   // the result jumps: compared exactly on equal inputs
  kNonEmpty = 8,   // reducing over nothing is refused
  kIndexed = 16,   // T is i32 where nothing says what it is (IOTA)
};

/// flops of a command = factor * (elements of the basis); bytes are always those of its operands.
enum class CostBasis : uint8_t {
  None,
  Out,
  In,
  MatMul,
  Params,
  Conv,
  ConvInput,
  ConvWeight,
  ConvTranspose,
  Attention,
};
struct Cost {
  CostBasis basis = CostBasis::None;
  double factor = 0;
};

template <class Item, size_t kMax>
struct FixedList {
  Item items[kMax]{};
  size_t count = 0;
  constexpr FixedList() = default;
  constexpr FixedList(std::initializer_list<Item> list) {
    for (const Item& item : list) items[count++] = item;
  }
  [[nodiscard]] constexpr std::span<const Item> view() const { return {items, count}; }
};

struct OpInfo {
  Opcode opcode;
  std::string_view name;      // C++ name, as in opcodes.def
  std::string_view mnemonic;  // upper case
  FixedList<Operand, 10> operand_list;
  FixedList<Attribute, 10> attribute_list;
  DTypeSet types;  // what T may be
  ShapeRule shape;
  Bits bits;
  uint8_t effects;  // Effect bits
  uint8_t traits;   // Trait bits
  Cost cost;
  std::string_view gradient;  // name of the rule in vm/passes, "NoGradient" for none
  uint16_t since;             // container minor that introduced the row
  std::string_view doc;

  [[nodiscard]] constexpr std::span<const Operand> operands() const { return operand_list.view(); }
  [[nodiscard]] constexpr std::span<const Attribute> attributes() const { return attribute_list.view(); }
  [[nodiscard]] constexpr bool has(Effect effect) const { return (effects & effect) != 0; }
  [[nodiscard]] constexpr bool has(Trait trait) const { return (traits & trait) != 0; }
  /// Position of the attribute in attributes(), -1 when the row has none of that name.
  [[nodiscard]] constexpr int attribute(std::string_view attr) const {
    for (size_t i = 0; i < attribute_list.count; ++i)
      if (attribute_list.items[i].name == attr) return static_cast<int>(i);
    return -1;
  }
};

/// All rows, ascending by opcode.
extern const std::span<const OpInfo> kOps;

/// The only door from untrusted words; nullptr for an opcode that names no row.
[[nodiscard]] const OpInfo* find_op(uint16_t code);
/// Case-insensitive look-up by mnemonic or another spelling of one (EMBEDDING); nullptr when unknown.
[[nodiscard]] const OpInfo* find_op(std::string_view mnemonic);
[[nodiscard]] const OpInfo& op_info(Opcode opcode);
/// Row position in kOps, for per-op tables built from opcodes.def.
[[nodiscard]] inline size_t row_of(const OpInfo& op) {
  return static_cast<size_t>(&op - kOps.data());
}

}  // namespace tape
