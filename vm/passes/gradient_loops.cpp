// Frames of the gradient pass: a REPEAT too long to unroll is differentiated as a loop. The forward writes each value
// that a rule reads as one row of a stack, row by pass; the derived tape plays the passes in reverse and reads the rows
// back. What the body changes has its gradient in a carrier, which one pass leaves for the pass before it; what the
// body only reads has its gradient outside, where every pass adds to it.
#include <algorithm>
#include <utility>

#include "vm/passes/gradient_pass.h"

namespace tape {
namespace {

// A saved value of so few bytes takes one slot of the arena: computing it again would cost a command and save nothing.
constexpr uint64_t kTiny = 256;
// Commands in a row that nothing else in the derived tape reads, to compute a value again.
constexpr uint32_t kLongest = 4;
constexpr uint32_t kNever = ~0u;

Command filled(TensorId tensor, int64_t value) {
  Command command = make_command(op_info(Opcode::Fill));
  command.push_operand(tensor);
  set_int(command, "value", value);
  return command;
}

Command stepped(TensorId tensor, int64_t by) {
  Command command = make_command(op_info(Opcode::Add));
  for (const TensorId id : {tensor, tensor, kAbsent}) command.push_operand(id);
  set_int(command, "imm", by);
  return command;
}

}  // namespace

/// Makes a frame of every loop set apart, outer ones first.
void GradientPass::make_loops(Frame& frame) {
  frame.number = frames_.size();
  frames_.push_back(&frame);
  const std::vector<Item>& items = frame.values.items();
  for (uint32_t number = 0; number < items.size(); ++number) {
    const Item& item = items[number];
    const auto body = frame.bodies.find(item.begin);
    if (!item.loop || body == frame.bodies.end()) continue;
    const int64_t passes = frame.commands[item.begin].command.attr_int("count");
    const int64_t total = std::max<int64_t>(frame.total, 1) * passes;
    auto loop = std::make_unique<Frame>(module_, spec_.of, std::move(body->second), total);
    loop->outer = &frame;
    loop->passes = passes;
    for (const ValueId id : item.in) loop->before[frame.values[id].tensor] = id;
    for (const ValueId id : item.out) loop->after[frame.values[id].tensor] = id;
    make_loops(*frame.loops.emplace(number, std::move(loop)).first->second);
  }
  frame.bodies.clear();
}

void GradientPass::mark_varied(Frame& frame) {
  std::vector<Value>& values = frame.values.values();
  if (frame.outer == nullptr)
    for (ValueId id = 0; id < values.size(); ++id)
      values[id].varied =
          values[id].made == Made::Before && frame.gradients[id].root != kNone && !stopped_[values[id].tensor];
  const std::vector<Item>& items = frame.values.items();
  for (uint32_t number = 0; number < items.size(); ++number) {
    const auto loop = frame.loops.find(number);
    if (!items[number].loop)
      mark_command(frame, items[number]);
    else if (loop != frame.loops.end())
      mark_loop(frame, items[number], *loop->second);
  }
}

void GradientPass::mark_command(Frame& frame, const Item& item) {
  const Command& command = frame.commands[item.begin].command;
  ForwardValues& values = frame.values;
  const bool flows = gradient_rule(command) != &gradient_rules::ZeroGradient;
  const bool any =
      std::any_of(item.in.begin(), item.in.end(), [&](ValueId in) { return in != kNone && values[in].varied; });
  for (size_t i = 0; i < item.out.size(); ++i) {
    if (item.out[i] == kNone) continue;
    Value& value = values[item.out[i]];
    if (!is_float(module_.tensors[value.tensor].dtype) || stopped_[value.tensor]) continue;
    const bool carries = item.in[i] != kNone && values[item.in[i]].varied;
    value.varied = (flows && any) || carries || frame.gradients[item.out[i]].root != kNone;
  }
}

/// A pass finds what the loop finds or what the pass before it left.
void GradientPass::mark_loop(Frame& frame, const Item& item, Frame& loop) {
  for (const auto& [tensor, outside] : loop.before)
    if (const ValueId first = loop.values.first_of(tensor); first != kNone)
      loop.values[first].varied = frame.values[outside].varied;
  for (bool grown = true; grown;) {
    grown = false;
    mark_varied(loop);
    for (const auto& [tensor, outside] : loop.after) {
      const ValueId first = loop.values.first_of(tensor);
      if (first == kNone || loop.values[first].varied || !loop.values[loop.values.last_of(tensor)].varied) continue;
      grown = loop.values[first].varied = true;
    }
  }
  for (const ValueId out : item.out) {
    Value& value = frame.values[out];
    value.varied = loop.values[loop.values.last_of(value.tensor)].varied ||
                   (frame.gradients[out].root != kNone && !stopped_[value.tensor]);
  }
}

/// Tensors whose gradient one pass leaves for the pass before it.
std::vector<TensorId> GradientPass::carried(const Frame& loop) const {
  const ForwardValues& values = loop.values;
  std::vector<bool> needed(values.values().size());
  std::vector<TensorId> found;
  const auto add = [&](TensorId tensor) {
    const ValueId last = values.last_of(tensor);
    if (!values[last].varied || std::find(found.begin(), found.end(), tensor) != found.end()) return false;
    found.push_back(tensor);
    needed[last] = true;
    return true;
  };
  for (const auto& [tensor, outside] : loop.after)
    if (loop.outer->gradients[outside].holds != Holds::Nothing) add(tensor);
  for (bool grown = !found.empty(); grown;) {
    const std::vector<Item>& items = values.items();
    for (size_t i = items.size(); i-- > 0;) {
      const Item& item = items[i];
      if (std::none_of(item.out.begin(), item.out.end(), [&](ValueId out) { return out != kNone && needed[out]; }))
        continue;
      for (const ValueId in : item.in)
        if (in != kNone && values[in].varied) needed[in] = true;
    }
    grown = false;
    for (const auto& [tensor, outside] : loop.after) {
      const ValueId first = values.first_of(tensor);
      if (first != kNone && needed[first]) grown = add(tensor) || grown;
    }
  }
  return found;
}

/// A tensor with the gradient of what the loop leaves in `tensor`.
TensorId GradientPass::carrier(TensorId tensor, Frame& loop) {
  const ValueId outside = loop.after.at(tensor);
  const Gradient at = frame_->gradients[outside];
  if (at.holds == Holds::Own && at.tensor != at.root) return at.tensor;
  const Tensor primal = module_.tensors[tensor];
  const TensorId made = temporary(primal.dtype, primal.shape);
  name_gradient(made, outside);
  if (at.holds != Holds::Nothing) {
    emit_to(made, Opcode::Copy, {at.tensor});
    return made;
  }
  Command zero = make_command(op_info(Opcode::Zero));
  zero.push_operand(made);
  frame_->derived.push_back({std::move(zero), location_});
  return made;
}

void GradientPass::sweep_loop(const Item& item, Frame& loop) {
  const PlacedCommand head = frame_->commands[item.begin];
  location_ = head.location;
  for (const ValueId out : item.out)
    if (frame_->gradients[out].holds != Holds::Nothing) settle_root(Gradient(frame_->gradients[out]));
  const std::vector<TensorId> tensors = carried(loop);
  if (tensors.empty()) return;
  std::map<TensorId, TensorId> carriers;
  for (const TensorId tensor : tensors) {
    carriers[tensor] = carrier(tensor, loop);
    loop.gradients[loop.values.last_of(tensor)] = {carriers[tensor], Holds::Shared, kNone, false};
  }
  frame_ = &loop;
  sweep();
  location_ = head.location;
  end_pass(carriers);
  frame_ = loop.outer;
  std::vector<PlacedCommand>& derived = frame_->derived;
  derived.push_back(head);
  if (loop.index != kNone) derived.push_back({stepped(loop.index, -1), head.location});
  derived.insert(derived.end(), loop.derived.begin(), loop.derived.end());
  derived.push_back({make_command(op_info(Opcode::End)), head.location});
  for (const TensorId tensor : tensors) {
    const auto before = loop.before.find(tensor);
    const bool read = loop.values.first_of(tensor) != kNone;
    if (read && before != loop.before.end() && frame_->values[before->second].varied)
      give(before->second, {this, carriers[tensor], true});
  }
}

/// Moves the gradients of what the pass found to the carriers. They change places safely: no carrier is overwritten
/// before it was read.
void GradientPass::end_pass(const std::map<TensorId, TensorId>& carriers) {
  std::vector<std::pair<TensorId, TensorId>> moves;
  std::vector<uint32_t> zeros;
  const auto is_carrier = [&](TensorId id) {
    return std::any_of(carriers.begin(), carriers.end(), [&](const auto& entry) { return entry.second == id; });
  };
  for (const auto& [tensor, to] : carriers) {
    const ValueId first = frame_->values.first_of(tensor);
    if (first == kNone || frame_->gradients[first].holds == Holds::Nothing) {
      zeros.push_back(to);
      continue;
    }
    TensorId from = frame_->gradients[first].tensor;
    if (from == to) continue;
    if (is_carrier(from)) {
      const TensorId kept = temporary(module_.tensors[from].dtype, module_.tensors[from].shape);
      emit_to(kept, Opcode::Copy, {from});
      from = kept;
    }
    moves.emplace_back(to, from);
  }
  for (const auto& [to, from] : moves) emit_to(to, Opcode::Copy, {from});
  if (zeros.empty()) return;
  Command zero = make_command(op_info(Opcode::Zero));
  zero.push_operand(zeros);
  frame_->derived.push_back({std::move(zero), location_});
}

/// The row of this pass of a value's stack.
Term GradientPass::read_row(ValueId id) {
  const TensorId stack = frame_->values.save(module_, names_, id);
  if (frame_->index == kNone) {
    frame_->index = temporary(DType::I64, {});
    tape_->derived.push_back({filled(frame_->index, frame_->total), location_});
  }
  const Value& value = frame_->values[id];
  Command slice = make_command(op_info(Opcode::DynamicSlice));
  for (const TensorId operand : {kAbsent, stack, frame_->index}) slice.push_operand(operand);
  const Tensor row = module_.tensors[value.row];
  return emit(std::move(slice), row.dtype, row.shape).reshaped(module_.tensors[value.tensor].shape);
}

/// What the frame around the loop knows as the same value.
Term GradientPass::at_outer(ValueId id) {
  Frame* const here = std::exchange(frame_, frame_->outer);
  const Term term = read(here->before.at(here->values[id].tensor));
  frame_ = here;
  return term;
}

/// The forward's commands of a frame; `head` is the place of its loop.
std::vector<PlacedCommand> GradientPass::forward_text(const Frame& frame, const Location* head) const {
  std::vector<PlacedCommand> text = frame.values.rewritten(module_, [&](uint32_t number) {
    std::vector<PlacedCommand> whole;
    const auto found = frame.loops.find(number);
    if (found == frame.loops.end()) return whole;
    const Frame& loop = *found->second;
    const PlacedCommand& begin = frame.commands[frame.values.items()[number].begin];
    if (head == nullptr) forward_prologue(loop, whole);
    whole.push_back(begin);
    const std::vector<PlacedCommand> body = forward_text(loop, &begin.location);
    whole.insert(whole.end(), body.begin(), body.end());
    whole.push_back({make_command(op_info(Opcode::End)), begin.location});
    return whole;
  });
  if (head != nullptr && frame.values.counter() != kNone) text.push_back({stepped(frame.values.counter(), 1), *head});
  return text;
}

/// Counters of a loop and of those inside start at 0, before the outermost one; stacks start with bytes that are
/// defined.
void GradientPass::forward_prologue(const Frame& loop, std::vector<PlacedCommand>& text) const {
  const Location location = loop.commands[0].location;
  if (loop.values.counter() != kNone) {
    text.push_back({filled(loop.values.counter(), 0), location});
    Command zero = make_command(op_info(Opcode::Zero));
    std::vector<uint32_t> stacks;
    for (const Value& value : loop.values.values())
      if (value.copy != kNone) stacks.push_back(value.copy);
    zero.push_operand(stacks);
    text.push_back({std::move(zero), location});
  }
  for (const auto& [number, inner] : loop.loops) forward_prologue(*inner, text);
}

/// Commands that give the derived tape a value for which nothing is saved, besides what it computes anyway; kNever when
/// they do not. `lengths`: of the values looked at so far, by frame.
uint32_t GradientPass::length(const Frame& frame, ValueId id, const Lengths& lengths) const {
  const Value& value = frame.values[id];
  if (value.saved) return 0;
  if (!frame.values.is_constant(id)) return lengths[frame.number][id];
  if (frame.outer != nullptr) return length(*frame.outer, frame.before.at(value.tensor), lengths);
  return is_root_[value.tensor] ? kNever : 0;
}

Recomputed GradientPass::cheap_values() const {
  Recomputed result;
  Lengths lengths;
  bool any = false;
  for (const Frame* frame : frames_) {
    const ForwardValues& values = frame->values;
    std::vector<bool>& again = result.emplace_back(values.values().size());
    lengths.emplace_back(again.size(), kNever);
    for (ValueId id = 0; id < again.size(); ++id) {
      const Value& value = values[id];
      if (value.made != Made::Write) continue;
      const Item& item = values.items()[value.item];
      const Command& command = frame->commands[item.begin].command;
      if (!command.op->has(kRecompute) || command.op->effects != kNoEffect || command.ends[0] != 1) continue;
      if (std::count(item.out.begin(), item.out.end(), kNone) + 1 != std::ssize(item.out)) continue;
      const uint64_t bytes =
          byte_size(module_.tensors[value.tensor]) * static_cast<uint64_t>(std::max<int64_t>(frame->total, 1));
      if (value.saved && bytes <= kTiny) continue;
      uint32_t longest = 0;
      for (const ValueId in : item.in)
        if (in != kNone) longest = std::max(longest, length(*frame, in, lengths));
      if (longest >= kLongest) continue;
      again[id] = true;
      lengths.back()[id] = longest + 1;
      any = any || value.saved;
    }
  }
  return any ? result : Recomputed();
}

}  // namespace tape
