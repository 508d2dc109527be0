// Text of the op reference. Every sentence about a column is written once here; what is said of an op comes from its
// row.
#include "opcodes/reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <vector>

#include "opcodes/limits.h"

namespace tape {
namespace {

constexpr std::string_view kBlocks[] = {
    "Control and checks", "Host traffic and memory", "Shape and index", "Elementwise", "Reductions and scans",
    "Linear algebra",     "Neural networks",         "Random",          "Optimizers",  "Collectives",
};

std::string access_text(Access access) {
  switch (access) {
    case Access::Read:
      return "read";
    case Access::Write:
      return "written";
    case Access::Update:
      return "read and written";
  }
  return {};
}

std::string kind_text(OperandKind kind) {
  switch (kind) {
    case OperandKind::Tensor:
      return "tensor";
    case OperandKind::Immediate:
      return "tensor or number";
    case OperandKind::Optional:
      return "tensor, optional";
    case OperandKind::List:
      return "list";
    case OperandKind::OptionalList:
      return "list, optional";
    case OperandKind::GradList:
      return "list of tensors that have gradients";
    case OperandKind::Tape:
      return "tape";
    case OperandKind::Stream:
      return "stream";
    case OperandKind::Sink:
      return "sink";
  }
  return {};
}

std::string type_text(TypeRule rule, const std::string& first) {
  switch (rule) {
    case TypeRule::Any:
      return "any dtype";
    case TypeRule::T:
      return "T";
    case TypeRule::Wide:
      return "T, or f32 where T is a half";
    case TypeRule::Stat:
      return "f64 where T is f64, else f32";
    case TypeRule::Bool:
      return "bool";
    case TypeRule::Index:
      return "i64 or i32";
    case TypeRule::IndexOut:
      return "i64 or i32; i32 when inferred";
    case TypeRule::I64:
      return "i64";
    case TypeRule::Float:
      return kFloats.text() + ", on its own";
    case TypeRule::Each:
      return "each T on its own";
    case TypeRule::EachGrad:
      return fmt::format("each as its {}, or f32", first);
    case TypeRule::EachStat:
      return fmt::format("each f64 where its {} is f64, else f32", first);
    case TypeRule::Column:
      return "each as its column";
    case TypeRule::SinkRow:
      return "as the sink";
    case TypeRule::Body:
      return "each as the body gives it";
    case TypeRule::None:
      return {};
  }
  return {};
}

std::string shape_text(ShapeRule rule) {
  switch (rule) {
    case ShapeRule::None:
      return "none related";
    case ShapeRule::Same:
      return "all equal";
    case ShapeRule::Broadcast:
      return "the NumPy broadcast of all sources";
    case ShapeRule::Free:
      return "any: declared, or shape=";
    case ShapeRule::Scalar:
      return "rank 0";
    case ShapeRule::Loop:
      return "rank 0";
    case ShapeRule::Close:
      return "both equal";
    case ShapeRule::Load:
      return "[rows] and the row of the column; valid is rank 0";
    case ShapeRule::Store:
      return "one row of the sink, or several with one leading axis more";
    case ShapeRule::Reshape:
      return "declared, or shape=; as many elements as the source";
    case ShapeRule::Transpose:
      return "the axes of the source in the order of perm=";
    case ShapeRule::BroadcastTo:
      return "declared, or shape=; the source broadcasts to it";
    case ShapeRule::Concat:
      return "equal but for the axis, where the sizes add up";
    case ShapeRule::Slice:
      return "what start:stop:step leaves of each axis";
    case ShapeRule::SliceGrad:
      return "dst declared, or shape=; g has the shape of its slice";
    case ShapeRule::Gather:
      return "the source with the axis replaced by the dimensions of idx";
    case ShapeRule::ScatterAdd:
      return "src is dst with the axis replaced by the dimensions of idx";
    case ShapeRule::OneHot:
      return "declared, or shape=; the index and one axis more, the depth";
    case ShapeRule::Split:
      return "equal to src but for the axis, whose size they share";
    case ShapeRule::Pad:
      return "the source with low= and high= added to each axis";
    case ShapeRule::PadGrad:
      return "dst declared, or shape=; g has the shape of its padding";
    case ShapeRule::Flip:
      return "all equal";
    case ShapeRule::DynamicSlice:
      return "dst declared, or shape=, no axis larger than that of src; start are rank 0";
    case ShapeRule::DynamicUpdateSlice:
      return "src has the rank of dst and no larger axis; start are rank 0";
    case ShapeRule::DynamicSliceGrad:
      return "dst declared, or shape=; g has its rank and no larger axis; start are rank 0";
    case ShapeRule::TakeAlong:
      return "dst as idx; src as idx but for the axis";
    case ShapeRule::TakeAlongGrad:
      return "g as idx; dst as idx but for the axis";
    case ShapeRule::Triangle:
      return "all equal, of rank 2 or more";
    case ShapeRule::TopK:
      return "the source with k elements along the axis";
    case ShapeRule::Outer:
      return "[M] by [N] to [M, N]";
    case ShapeRule::Dot:
      return "a and b equal; dst without the last axis";
    case ShapeRule::RandomPermutation:
      return "dst declared, or shape=, of rank 1 or more; rng is [2]";
    case ShapeRule::Categorical:
      return "dst as logits without the last axis; rng is [2]";
    case ShapeRule::Reduce:
      return "the source without the axes, or with size 1 there (keepdims=1)";
    case ShapeRule::ReduceGrad:
      return "dst as src; g as the reduction of src";
    case ShapeRule::ArgReduce:
      return "the source without the axis, or with size 1 there (keepdims=1)";
    case ShapeRule::MatMul:
      return "[..., M, K] by [..., K, N] to [..., M, N], the leading axes broadcast; rank 1 as NumPy matmul";
    case ShapeRule::Axis:
      return "all equal, of rank 1 or more";
    case ShapeRule::CrossEntropy:
      return "logits [..., C], labels and lse [...]; dst is rank 0, or [...] for reduction=none";
    case ShapeRule::CrossEntropyGrad:
      return "dst as logits [..., C], labels [...]; g is rank 0, or [...] for reduction=none";
    case ShapeRule::Loss:
      return "a and b equal; dst is rank 0, or as they are for reduction=none";
    case ShapeRule::LossGrad:
      return "dst, a and b equal; g is rank 0, or as they are for reduction=none";
    case ShapeRule::Dropout:
      return "dst, mask and src equal; rng is [2]";
    case ShapeRule::Rng:
      return "dst declared, or shape=; rng is [2]";
    case ShapeRule::Optimizer:
      return "each list as the parameters; lr and step are rank 0";
    case ShapeRule::ClipNorm:
      return "any; norm is rank 0";
    case ShapeRule::Map:
      return "the NumPy broadcast of all sources, for every destination";
    case ShapeRule::MapReduce:
      return "the NumPy broadcast of all sources without its last axes= axes";
    case ShapeRule::NllLoss:
      return "logp [..., C], labels [...]; rank 0, or as labels with reduction=none";
    case ShapeRule::NllLossGrad:
      return "dst declared, or shape=: labels [...] and one axis more";
    case ShapeRule::CausalSoftmax:
      return "all [..., Q, K], Q <= K";
    case ShapeRule::CausalSoftmaxGrad:
      return "all [..., Q, K], Q <= K";
    case ShapeRule::LayerNorm:
      return "dst as src; weight, bias the axes from axis= on; mean, rstd the others";
    case ShapeRule::LayerNormGrad:
      return "dst, g as src; weight the axes from axis= on; mean, rstd the others";
    case ShapeRule::LayerNormWeightGrad:
      return "dst the axes of src from axis= on; mean, rstd the others";
    case ShapeRule::RmsNorm:
      return "dst as src; weight the axes from axis= on; rstd the others";
    case ShapeRule::RmsNormGrad:
      return "dst, g as src; weight the axes from axis= on; rstd the others";
    case ShapeRule::RmsNormWeightGrad:
      return "dst the axes of src from axis= on; rstd the others";
    case ShapeRule::GroupNorm:
      return "dst as src [N, C, ...]; weight, bias [C]; mean, rstd [N, groups]";
    case ShapeRule::GroupNormGrad:
      return "dst, g as src [N, C, ...]; weight [C]; mean, rstd [N, groups]";
    case ShapeRule::GroupNormWeightGrad:
      return "src, g [N, C, ...]; dst [C]; mean, rstd [N, groups]";
    case ShapeRule::BatchNorm:
      return "dst as src [N, C, ...]; all others [C]";
    case ShapeRule::BatchNormGrad:
      return "dst, g as src [N, C, ...]; all others [C]";
    case ShapeRule::BatchNormWeightGrad:
      return "src, g [N, C, ...]; all others [C]";
    case ShapeRule::Conv:
      return "[N, O, (n + low + high - dilation (K - 1) - 1) / stride + 1, ...], rounded down";
    case ShapeRule::ConvInputGrad:
      return "dst declared, or shape=; g as the result of the convolution";
    case ShapeRule::ConvWeightGrad:
      return "dst declared, or shape=; g as the result of the convolution";
    case ShapeRule::ConvTranspose:
      return "[N, O, (n - 1) stride - low - high + dilation (K - 1) + output_pad + 1, ...]";
    case ShapeRule::Pool:
      return "[N, C, (n + low + high - dilation (kernel - 1) - 1) / stride + 1, ...], rounded down";
    case ShapeRule::MaxPoolGrad:
      return "dst as src; g as the result of the pool";
    case ShapeRule::AvgPoolGrad:
      return "dst declared, or shape=; g as the result of the pool";
    case ShapeRule::GlobalPool:
      return "[N, C, 1, ...]";
    case ShapeRule::Upsample:
      return "H and W times scale=";
    case ShapeRule::UpsampleGrad:
      return "dst declared, or shape=; g with H and W times scale=";
    case ShapeRule::Rope:
      return "dst as src [..., T, D]; pos [T] or rank 0";
    case ShapeRule::Attention:
      return "q [B, H, Q, D], k [B, G, K, D], v [B, G, K, E]: dst [B, H, Q, E], lse [B, H, Q]";
    case ShapeRule::AttentionGrad:
      return "dq, dk, dv as q, k, v; y, g [B, H, Q, E]; lse [B, H, Q]";
    case ShapeRule::LstmCell:
      return "x [B, I], h, c [B, H], w_ih [4H, I], w_hh [4H, H], biases [4H], gates [B, 4H]";
    case ShapeRule::LstmCellGrad:
      return "c [B, H], gates [B, 4H]";
    case ShapeRule::GruCell:
      return "x [B, I], h [B, H], w_ih [3H, I], w_hh [3H, H], biases [3H], gates [B, 4H]";
    case ShapeRule::GruCellGrad:
      return "h [B, H], gates [B, 4H], d_ih, d_hh [B, 3H]";
  }
  return {};
}

std::string bits_text(Bits bits) {
  switch (bits) {
    case Bits::None:
      return {};
    case Bits::Exact:
      return "exact: the same on every backend";
    case Bits::Functor:
      return "exact for f32, f16 and bf16; within a declared bound for f64";
    case Bits::Ordered:
      return "ordered: the canonical order defines them";
    case Bits::Matmul:
      return "ordered below a size, the library's above; the same run to run";
    case Bits::Library:
      return "the same run to run on one card and library version";
  }
  return {};
}

std::string attr_type_text(const Attribute& attribute) {
  switch (attribute.type) {
    case AttrType::Bool:
      return "0 or 1";
    case AttrType::Enum: {
      std::string text(attribute.choices);
      for (size_t at = text.find('|'); at != text.npos; at = text.find('|', at + 2)) text.replace(at, 1, ", ");
      return text;
    }
    case AttrType::I32:
    case AttrType::I64:
      return "integer";
    case AttrType::F64:
      return "number";
    case AttrType::Number:
      return "number of type T";
    case AttrType::IntList:
      return "list of integers";
    case AttrType::String:
      return "text";
    case AttrType::Body:
      return "commands between braces";
  }
  return {};
}

bool is_integral(AttrType type) {
  return type == AttrType::I32 || type == AttrType::I64;
}

std::string number_text(double value, bool integral) {
  if (integral && std::abs(value) < 9e18) return fmt::format("{}", static_cast<int64_t>(value));
  return fmt::format("{}", value);
}

/// Range of a number; empty when every value of its type is allowed.
std::string attr_range(const Attribute& attribute) {
  const bool integral = is_integral(attribute.type);
  if (!integral && attribute.type != AttrType::F64) return {};
  const double widest = integral ? 9e18 : std::numeric_limits<double>::max();
  const bool low = attribute.low > -widest, high = attribute.high < widest;
  if (!low && !high) return std::isinf(attribute.low) || integral ? "" : "finite";
  const std::string from = number_text(attribute.low, integral), to = number_text(attribute.high, integral);
  if (low && high)
    return fmt::format("{}{}, {}{}", attribute.low_open ? '(' : '[', from, to, attribute.high_open ? ')' : ']');
  const std::string finite = std::isinf(attribute.high) || integral ? "" : ", finite";
  return low ? fmt::format("{} {}{}", attribute.low_open ? ">" : ">=", from, finite)
             : fmt::format("{} {}{}", attribute.high_open ? "<" : "<=", to, finite);
}

std::string attr_default(const Attribute& attribute) {
  if (attribute.required) return "required";
  switch (attribute.type) {
    case AttrType::Bool:
    case AttrType::I32:
    case AttrType::I64:  // a default below every seed or count means none
      return attribute.fallback < -9e18 ? "none" : number_text(attribute.fallback, true);
    case AttrType::F64:
      return number_text(attribute.fallback, false);
    case AttrType::Enum: {
      std::string_view rest = attribute.choices;
      for (int skip = static_cast<int>(attribute.fallback); skip > 0; --skip) rest.remove_prefix(rest.find('|') + 1);
      return std::string(rest.substr(0, rest.find('|')));
    }
    case AttrType::Number:
    case AttrType::IntList:
    case AttrType::Body:
    case AttrType::String:
      return "none";
  }
  return {};
}

/// The sentence on a column, "label: text"; columns with nothing to say are left out.
struct Fact {
  std::string_view label;
  std::string text;
};

std::string effects_text(const OpInfo& op) {
  std::vector<std::string_view> parts;
  if (op.has(kStreamEffect)) parts.emplace_back("moves a stream");
  if (op.has(kSinkEffect)) parts.emplace_back("the host sees it");
  if (op.has(kRngEffect)) parts.emplace_back("advances a generator");
  if (op.has(kStateEffect)) parts.emplace_back("writes state");
  if (op.has(kFaultEffect)) parts.emplace_back("may fault");
  if (op.has(kControlEffect)) parts.emplace_back("structure of the tape");
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string traits_text(const OpInfo& op) {
  std::vector<std::string_view> parts;
  if (op.has(kInPlace)) parts.emplace_back("in-place: dst may be a source");
  if (op.attribute("acc") >= 0) parts.emplace_back("acc: may add to dst");
  if (op.has(kRecompute)) parts.emplace_back("recomputed rather than saved");
  if (op.has(kDiscrete)) parts.emplace_back("discrete");
  if (op.has(kNonEmpty)) parts.emplace_back("refused over nothing");
  const auto operands = op.operands();
  if (std::any_of(operands.begin(), operands.end(), [](const Operand& o) { return o.strides == Strides::Any; }))
    parts.emplace_back("operands of any strides");
  return fmt::format("{}", fmt::join(parts, ", "));
}

bool uses_type_variable(const OpInfo& op) {
  for (const Operand& operand : op.operands()) {
    switch (operand.type) {
      case TypeRule::T:
      case TypeRule::Wide:
      case TypeRule::Stat:
      case TypeRule::Each:
        return true;
      case TypeRule::Any:
      case TypeRule::Bool:
      case TypeRule::Index:
      case TypeRule::IndexOut:
      case TypeRule::I64:
      case TypeRule::Float:
      case TypeRule::EachGrad:
      case TypeRule::EachStat:
      case TypeRule::Column:
      case TypeRule::SinkRow:
      case TypeRule::Body:
      case TypeRule::None:
        break;
    }
  }
  return false;
}

std::vector<Fact> facts_of(const OpInfo& op) {
  std::vector<Fact> facts;
  const auto add = [&](std::string_view label, std::string text) {
    if (!text.empty()) facts.push_back({label, std::move(text)});
  };
  if (uses_type_variable(op)) add("T", op.types.text());
  if (!op.operands().empty() && op.shape != ShapeRule::None) add("Shape", shape_text(op.shape));
  add("Bits", bits_text(op.bits));
  add("Effects", effects_text(op));
  add("Traits", traits_text(op));
  if (op.gradient != "NoGradient")
    add("Gradient", op.gradient == "ZeroGradient" ? std::string("zero") : fmt::format("rule {}", op.gradient));
  return facts;
}

std::string first_operand(const OpInfo& op) {
  return op.operands().empty() ? std::string() : std::string(op.operands()[0].name);
}

void append_markdown(std::string& out, const OpInfo& op) {
  fmt::format_to(std::back_inserter(out), "\n### {}\n\n`{}` (opcode {:#06x})\n\n{}\n", op.mnemonic, op_signature(op),
                 static_cast<uint16_t>(op.opcode), op.doc);
  if (!op.operands().empty()) {
    out += "\n| operand | kind | access | dtype |\n|---|---|---|---|\n";
    for (const Operand& operand : op.operands())
      fmt::format_to(std::back_inserter(out), "| {} | {} | {} | {} |\n", operand.name, kind_text(operand.kind),
                     operand.type == TypeRule::None ? "" : access_text(operand.access),
                     type_text(operand.type, first_operand(op)));
  }
  if (!op.attributes().empty()) {
    out += "\n| attribute | values | range | default |\n|---|---|---|---|\n";
    for (const Attribute& attribute : op.attributes())
      fmt::format_to(std::back_inserter(out), "| {} | {} | {} | {} |\n", attribute.name, attr_type_text(attribute),
                     attr_range(attribute), attr_default(attribute));
  }
  const auto facts = facts_of(op);
  if (!facts.empty()) out += '\n';
  for (const Fact& fact : facts) fmt::format_to(std::back_inserter(out), "- {}: {}.\n", fact.label, fact.text);
}

}  // namespace

std::string_view block_title(uint16_t code) {
  const size_t block = code >> 8;
  return block < std::size(kBlocks) ? kBlocks[block] : std::string_view();
}

std::string op_signature(const OpInfo& op) {
  std::string text(op.mnemonic);
  size_t lists = 0;
  for (const Operand& operand : op.operands()) lists += operand.kind == OperandKind::List ? 1 : 0;
  bool first = true;
  const auto add = [&](const std::string& part) {
    text += (first ? " " : ", ") + part;
    first = false;
  };
  for (const Operand& operand : op.operands()) {
    const std::string name(operand.name);
    switch (operand.kind) {
      case OperandKind::Tensor:
      case OperandKind::Immediate:
      case OperandKind::Tape:
      case OperandKind::Stream:
      case OperandKind::Sink:
        add(name);
        break;
      case OperandKind::List:
        add(lists > 1 ? "[" + name + "...]" : name + "...");
        break;
      case OperandKind::GradList:
        add(name + "...");
        break;
      case OperandKind::Optional:
      case OperandKind::OptionalList:
        break;  // written as name=, with the attributes
    }
  }
  // The count of a loop, a number or a tensor, stands first and bare.
  const bool loop = op.shape == ShapeRule::Loop && op.attribute("count") >= 0;
  if (loop) add(fmt::format("count|{}", op.operands()[0].name));
  for (const Operand& operand : op.operands())
    if ((operand.kind == OperandKind::Optional && !loop) || operand.kind == OperandKind::OptionalList)
      add(fmt::format("[{}=]", operand.name));
  for (const Attribute& attribute : op.attributes())
    if (attribute.name != "imm" && attribute.type != AttrType::Body && !(loop && attribute.name == "count"))
      add(attribute.required ? fmt::format("{}=", attribute.name) : fmt::format("[{}=]", attribute.name));
  if (op.attribute("body") >= 0) text += " {";
  return text;
}

std::string op_reference() {
  std::string out =
      "# Ops\n\nGenerated from the op table by `tape ops --format markdown`; do not edit.\n\n"
      "Destinations come first, then sources, then `name=value` attributes; `[name=]` may be left out. T is the dtype "
      "the operands of a command share. f16 and bf16 compute in f32 and round once.\n";
  std::string_view title;
  for (const OpInfo& op : kOps) {
    const std::string_view block = block_title(static_cast<uint16_t>(op.opcode));
    if (block != title) fmt::format_to(std::back_inserter(out), "\n## {}\n", block);
    title = block;
    append_markdown(out, op);
  }
  return out;
}

std::string op_text(const OpInfo& op) {
  std::string out = fmt::format("{}\n  {}\n", op_signature(op), op.doc);
  const auto line = [&](std::string_view label, const std::string& text) {
    fmt::format_to(std::back_inserter(out), "  {:<16} {}\n", label, text);
  };
  for (const Operand& operand : op.operands()) {
    std::string text = kind_text(operand.kind);
    if (operand.type != TypeRule::None)
      text += fmt::format(", {}: {}", access_text(operand.access), type_text(operand.type, first_operand(op)));
    line(operand.name, text);
  }
  for (const Attribute& attribute : op.attributes()) {
    std::string text = attr_type_text(attribute);
    if (const std::string range = attr_range(attribute); !range.empty()) text += ' ' + range;
    line(fmt::format("{}=", attribute.name),
         attribute.required ? text + ", required" : fmt::format("{}, default {}", text, attr_default(attribute)));
  }
  for (const Fact& fact : facts_of(op)) line(fact.label, fact.text);
  line("Opcode", fmt::format("{:#06x}", static_cast<uint16_t>(op.opcode)));
  return out;
}

}  // namespace tape
