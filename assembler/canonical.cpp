// The walk over words mirrors the encoding: fixed operands, lists behind their lengths, then masked attributes.
#include "assembler/canonical.h"

#include <algorithm>
#include <numeric>

#include "opcodes/op.h"

namespace tape::text {
namespace {

enum class Slot : uint8_t { Tensor, Other };

Slot slot_of(OperandKind kind) {
  switch (kind) {
    case OperandKind::Tensor:
    case OperandKind::Immediate:
    case OperandKind::Optional:
    case OperandKind::List:
    case OperandKind::OptionalList:
    case OperandKind::GradList:
      return Slot::Tensor;
    case OperandKind::Tape:
    case OperandKind::Stream:
    case OperandKind::Sink:
      return Slot::Other;
  }
  return Slot::Other;
}

/// Words of one attribute value, its length word included.
size_t attribute_words(AttrType type, const uint32_t* at) {
  switch (type) {
    case AttrType::Bool:
    case AttrType::Enum:
    case AttrType::I32:
    case AttrType::String:
      return 1;
    case AttrType::I64:
    case AttrType::F64:
    case AttrType::Number:
      return 2;
    case AttrType::IntList:
    case AttrType::Body:
      return 1 + size_t{*at};
  }
  return 1;
}

void walk_command(const OpInfo& op, uint32_t* at, const std::function<void(uint32_t&)>& tensor,
                  const std::function<void(uint32_t&)>& string) {
  ++at;
  for (const Operand& operand : op.operands()) {
    if (is_list(operand.kind)) continue;
    if (slot_of(operand.kind) == Slot::Tensor && *at != kNone) tensor(*at);
    ++at;
  }
  for (const Operand& operand : op.operands()) {
    if (!is_list(operand.kind)) continue;
    for (uint32_t left = *at++; left > 0; --left) tensor(*at++);
  }
  if (op.attributes().empty()) return;
  const uint32_t mask = *at++;
  for (size_t i = 0; i < op.attributes().size(); ++i) {
    if ((mask >> i & 1u) == 0) continue;
    if (op.attributes()[i].type == AttrType::String) string(*at);
    at += attribute_words(op.attributes()[i].type, at);
  }
}

}  // namespace

std::vector<uint32_t> canonical_ids(const Module& module) {
  std::vector<uint32_t> order(module.tensors.size());
  std::iota(order.begin(), order.end(), 0);
  const auto key = [&](uint32_t id) {
    const uint32_t owner = module.tensors[id].owner;
    return owner == kNone ? uint64_t{0} : uint64_t{owner} + 1;
  };
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
  std::vector<uint32_t> ids(order.size());
  for (uint32_t at = 0; at < order.size(); ++at) ids[order[at]] = at;
  return ids;
}

std::vector<TapeId> body_order(const Module& module) {
  std::vector<TapeId> order;
  std::vector<bool> listed(module.tapes.size());
  for (TapeId tape = 0; tape < module.tapes.size(); ++tape) {
    const auto first = static_cast<ptrdiff_t>(order.size());
    for (TapeId at = tape; at < module.tapes.size() && !listed[at]; at = module.tapes[at].gradient_of) {
      listed[at] = true;
      order.push_back(at);
    }
    std::reverse(order.begin() + first, order.end());
  }
  return order;
}

void walk_ids(std::vector<uint32_t>& words, const RawWords& raw, const std::function<void(uint32_t&)>& tensor,
              const std::function<void(uint32_t&)>& string) {
  auto next_raw = raw.begin();
  for (size_t at = 0; at < words.size();) {
    if (next_raw != raw.end() && at >= next_raw->first) {
      at = std::max<size_t>(next_raw++->second, at);
      continue;
    }
    const size_t count = words[at] >> 16;
    const OpInfo* const op = find_op(static_cast<uint16_t>(words[at]));
    if (op == nullptr || count == 0) return;
    walk_command(*op, words.data() + at, tensor, string);
    at += count;
  }
}

void apply_ids(Module& module, const std::vector<uint32_t>& ids, std::span<const RawWords* const> raw,
               const std::vector<TensorId>& raw_links, const std::vector<uint32_t>& raw_cursors) {
  bool identity = true;
  for (uint32_t id = 0; identity && id < ids.size(); ++id) identity = ids[id] == id;
  if (identity) return;
  const auto renamed = [&](uint32_t& id) {
    if (id < ids.size()) id = ids[id];
  };
  std::vector<bool> kept(ids.size());
  for (const TensorId id : raw_links) kept[id] = true;
  std::vector<Tensor> tensors(ids.size());
  for (uint32_t id = 0; id < ids.size(); ++id) {
    if (!kept[id]) renamed(module.tensors[id].link);
    tensors[ids[id]] = std::move(module.tensors[id]);
  }
  module.tensors = std::move(tensors);
  for (uint32_t stream = 0; stream < module.streams.size(); ++stream)
    if (std::find(raw_cursors.begin(), raw_cursors.end(), stream) == raw_cursors.end())
      renamed(module.streams[stream].cursor);
  for (size_t tape = 0; tape < module.tapes.size(); ++tape)
    walk_ids(module.tapes[tape].words, *raw[tape], renamed, [](uint32_t&) {});
}

void order_blobs(Module& module) {
  std::vector<Blob> blobs;
  for (Tensor& tensor : module.tensors) {
    if (tensor.blob == kNone) continue;
    blobs.push_back(module.blobs[tensor.blob]);
    tensor.blob = static_cast<uint32_t>(blobs.size() - 1);
  }
  module.blobs = std::move(blobs);
}

void order_strings(Module& module, std::span<const RawWords* const> raw) {
  if (module.strings.empty()) return;
  std::vector<uint32_t> ids(module.strings.size(), kNone);
  std::vector<std::string> strings;
  for (size_t tape = 0; tape < module.tapes.size(); ++tape)
    walk_ids(
        module.tapes[tape].words, *raw[tape], [](uint32_t&) {},
        [&](uint32_t& id) {
          if (ids[id] == kNone) {
            ids[id] = static_cast<uint32_t>(strings.size());
            strings.push_back(module.strings[id]);
          }
          id = ids[id];
        });
  module.strings = std::move(strings);
}

}  // namespace tape::text
