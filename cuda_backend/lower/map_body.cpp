#include "cuda_backend/lower/map_body.h"

#include "cuda_backend/lower/values.h"
#include "opcodes/faults.h"
#include "vm/error.h"

namespace tape::cuda {
namespace {

/// Axes of size 1 dropped, neighbours that step as one in every operand merged.
MapNest collapse(const tape::Shape& full, std::span<const View* const> operands) {
  MapNest nest;
  nest.elements = full.elements();
  nest.strides.resize(operands.size());
  for (int axis = 0; axis < full.rank(); ++axis) {
    if (full[axis] == 1) continue;
    std::vector<int64_t> strides(operands.size(), 0);
    for (size_t k = 0; k < operands.size(); ++k) {
      if (operands[k] == nullptr) continue;
      const View& view = *operands[k];
      const int own = axis - (full.rank() - view.shape.rank());
      if (own >= 0 && view.shape[own] != 1) strides[k] = view.strides[static_cast<size_t>(own)];
    }
    bool merged = !nest.sizes.empty();
    for (size_t k = 0; k < operands.size() && merged; ++k) merged = nest.strides[k].back() == strides[k] * full[axis];
    if (merged)
      nest.sizes.back() *= full[axis];
    else
      nest.sizes.push_back(full[axis]);
    for (size_t k = 0; k < operands.size(); ++k) {
      if (merged)
        nest.strides[k].back() = strides[k];
      else
        nest.strides[k].push_back(strides[k]);
    }
  }
  if (nest.sizes.empty()) {
    nest.sizes.push_back(1);
    for (auto& strides : nest.strides) strides.push_back(0);
  }
  return nest;
}

}  // namespace

MapCall::MapCall(const Call& given) : call(given), reduces(given.opcode() == Opcode::MapReduce) {
  std::vector<DType> sources;
  tape::Shape full;
  for (const View& view : call.list(1)) {
    sources.push_back(view.dtype);
    full = *broadcast(full, view.shape);  // the verifier has proved that they do
  }
  if (const auto reason = decode_map_body(call.command.attr_list("body"), sources, call.list(0).size(), body))
    throw Error(Code::Internal, std::string(call.command.op->mnemonic) + ": " + *reason);
  std::vector<const View*> views;
  for (size_t k = 0; k < call.operands.size(); ++k)
    views.push_back(reduces && k < body.destinations ? nullptr : &call.operands[k]);
  nest = collapse(full, views);
  if (!reduces) return;
  const auto axes = static_cast<int>(call.command.attr_int("axes"));
  for (int axis = 0; axis < full.rank(); ++axis) (axis < full.rank() - axes ? outputs : count) *= full[axis];
}

bool MapCall::may_refuse(const Command& command) const {
  return may_refuse_divisor(command, source_dtype(command, body));
}

std::vector<size_t> MapCall::needed(const std::vector<uint32_t>& slots, bool faults) const {
  std::vector<bool> wanted(body.dtypes.size(), false);
  for (const uint32_t slot : slots) wanted[slot] = true;
  std::vector<size_t> found;
  for (size_t at = body.commands.size(); at-- > 0;) {
    const Command& command = body.commands[at];
    const uint32_t to = command.ids[0];
    const bool refuses = faults && may_refuse(command);
    if (!wanted[to] && !refuses) continue;
    found.push_back(at);
    wanted[to] = command.accumulates();
    for (size_t i = 1; i < command.ids.size(); ++i)
      if (command.ids[i] != kAbsent) wanted[command.ids[i]] = true;
  }
  return {found.rbegin(), found.rend()};
}

int64_t MapCall::checked_elements() const {
  int64_t elements = 0;
  for (const Command& command : body.commands) {
    if (!may_refuse(command)) continue;
    if (command.ids.back() != kAbsent) return nest.elements;
    elements = 1;
  }
  return std::min(elements, nest.elements);
}

DType source_dtype(const Command& command, const MapBody& body) {
  return body.dtypes[command.ids[command.ids.size() > 1 ? 1 : 0]];
}

}  // namespace tape::cuda
