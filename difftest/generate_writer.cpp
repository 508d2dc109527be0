// See generate_writer.h: sources, destinations and places of single commands.
#include "difftest/generate_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "difftest/generate_body.h"
#include "vm/command_buffer.h"
#include "vm/container_format.h"

namespace tape::difftest {
namespace {

bool contains(const std::vector<TensorId>& list, TensorId id) {
  return std::find(list.begin(), list.end(), id) != list.end();
}

bool same(const Fill& a, const Fill& b) {
  return a.kind == b.kind && a.low == b.low && a.high == b.high && a.of == b.of;
}

/// Sketches are the same for every tape; making them is most of the time a tape would take.
const std::vector<Sketch>& cached_sketches(const OpInfo& op, DType dtype, int64_t n) {
  thread_local std::map<std::tuple<size_t, DType, int64_t>, std::vector<Sketch>> cache;
  const auto [at, fresh] = cache.try_emplace({row_of(op), dtype, n});
  if (fresh) at->second = sketches_of(op, dtype, n);
  return at->second;
}

}  // namespace

TapeWriter::TapeWriter(const GenerateOptions& options, Choices choices, Swarm swarm)
    : options_(options), choices_(choices), swarm_(std::move(swarm)) {
  module_.name = fmt::format("fuzz_{}_{}", options.seed, options.number);
}

TapeId TapeWriter::add_tape(const std::string& name) {
  Tape tape;
  tape.name = name;
  module_.tapes.push_back(std::move(tape));
  return static_cast<TapeId>(module_.tapes.size() - 1);
}

TensorId TapeWriter::add(Role role, const std::string& name, DType dtype, const Shape& shape, TapeId owner) {
  Tensor tensor;
  tensor.name = name;
  tensor.dtype = dtype;
  tensor.shape = shape;
  tensor.role = role;
  tensor.owner = owner;
  module_.tensors.push_back(std::move(tensor));
  return static_cast<TensorId>(module_.tensors.size() - 1);
}

void TapeWriter::attach(TensorId id, const HostArray& values) {
  const auto owned = std::make_shared<const std::vector<std::byte>>(values.bytes);
  Blob blob;
  blob.keep = owned;
  blob.bytes = *owned;
  const std::span<const std::byte> piece = blob.bytes;
  blob.hash = container::hash_pieces({&piece, 1});
  module_.tensors[id].blob = static_cast<uint32_t>(module_.blobs.size());
  module_.blobs.push_back(std::move(blob));
}

void TapeWriter::know(TensorId id, const Fill& fill) {
  for (Known& known : known_)
    if (known.id == id) return;
  known_.push_back({id, fill});
}

bool TapeWriter::writable(TensorId id) const {
  const Role role = tensor(id).role;
  return role == Role::State || role == Role::Param || role == Role::Output || role == Role::Local;
}

TensorId TapeWriter::source(DType dtype, const Shape& shape, const Fill& fill, bool writes) {
  const bool trainable = is_float(dtype) && (swarm_.differentiable ? choices_.percent(70) : choices_.percent(25));
  Role role = Role::State;
  if (trainable)
    role = Role::Param;
  else if (!writes)
    role = choices_.percent(60) ? Role::Input : choices_.percent(50) ? Role::Data : Role::State;
  const char letter = role == Role::Param ? 'w' : role == Role::Input ? 'x' : role == Role::Data ? 'd' : 's';
  const TensorId id = add(role, fmt::format("{}{}", letter, named_++), dtype, shape);
  attach(id, draw({options_.seed * 0x10001 + options_.number, swarm_.inputs}, tensor(id).name, dtype, shape, fill));
  know(id, fill);
  return id;
}

/// A place for a result: a local, a common local or an output.
TensorId TapeWriter::result(TapeId tape, DType dtype, const Shape& shape) {
  const bool output = choices_.percent(30);
  const std::string name = fmt::format("{}{}", output ? 'y' : 't', named_++);
  if (output) return add(Role::Output, name, dtype, shape);
  return add(Role::Local, name, dtype, shape, choices_.percent(85) ? tape : kNone);
}

TensorId TapeWriter::generator() {
  if (generator_ == kNone) {
    generator_ = add(Role::Rng, "dice", DType::I64, {2});
    module_.tensors[generator_].init.kind = InitKind::Seed;
    module_.tensors[generator_].init.seed = choices_.between(0, 1000);
  }
  return generator_;
}

/// The gradient tensor of a parameter of its own, which ZERO_GRAD and its like name.
TensorId TapeWriter::graded(const Typed& typed, size_t id) {
  const TensorId primal = source(typed.types[id].dtype, typed.types[id].shape, {}, true);
  module_.tensors[primal].role = Role::Param;
  const TensorId gradient =
      add(Role::Grad, tensor(primal).name + "_grad", typed.types[id].dtype, typed.types[id].shape);
  module_.tensors[gradient].persistent_grad = true;
  module_.tensors[gradient].link = primal;
  return gradient;
}

/// A tensor that is known, made to fit by one command: a view, a copy of several, another dtype.
std::optional<TensorId> TapeWriter::adapted(TapeId tape, DType dtype, const Shape& shape) {
  struct Way {
    Opcode opcode;
    TensorId from;
  };
  std::vector<Way> ways;
  for (const Known& known : known_) {
    const Tensor& from = tensor(known.id);
    if (known.fill.kind != Fill::Kind::Drawn || contains(written_, known.id)) continue;
    if (from.dtype != dtype) {
      if (from.shape == shape && is_float(dtype) == is_float(from.dtype)) ways.push_back({Opcode::Cast, known.id});
      continue;
    }
    if (from.shape == shape) continue;
    if (from.shape.elements() == shape.elements()) ways.push_back({Opcode::Reshape, known.id});
    const std::optional<Shape> both = broadcast(from.shape, shape);
    if (both && *both == shape) ways.push_back({Opcode::Broadcast, known.id});
    if (from.shape.rank() == 2 && shape.rank() == 2 && from.shape[0] == shape[1] && from.shape[1] == shape[0])
      ways.push_back({Opcode::Transpose, known.id});
  }
  if (ways.empty()) return std::nullopt;
  const Way way = choices_.one_of(ways);
  const TensorId to = result(tape, dtype, shape);
  TapeBuilder(module_, tape).add(way.opcode, {to, way.from});
  know(to);
  return to;
}

TensorId TapeWriter::destination(TapeId tape, const Typed& typed, size_t id, const Fill& fill, bool defined) {
  const OperandType& type = typed.types[id];
  std::vector<TensorId> fitting;
  for (const Known& known : known_) {
    const Tensor& there = tensor(known.id);
    if (there.dtype != type.dtype || there.shape != type.shape || !writable(known.id)) continue;
    if (contains(written_, known.id) || !same(known.fill, fill)) continue;
    fitting.push_back(known.id);
  }
  if (!fitting.empty() && choices_.percent(defined ? 60 : 25)) return choices_.one_of(fitting);
  if (defined) return source(type.dtype, type.shape, fill, true);
  return result(tape, type.dtype, type.shape);
}

TensorId TapeWriter::operand(TapeId tape, const Typed& typed, size_t id, const Fill& fill) {
  const OperandType& type = typed.types[id];
  std::vector<TensorId> fitting;
  for (const Known& known : known_) {
    const Tensor& there = tensor(known.id);
    if (there.dtype == type.dtype && there.shape == type.shape && same(known.fill, fill) &&
        !contains(written_, known.id) && !contains(read_, known.id))
      fitting.push_back(known.id);
  }
  if (!fitting.empty() && choices_.percent(75)) {
    // Late ones more often: chains find more than stars.
    return fitting[std::max(choices_.below(fitting.size()), choices_.below(fitting.size()))];
  }
  if (fill.kind == Fill::Kind::Drawn && choices_.percent(50))
    if (const auto made = adapted(tape, type.dtype, type.shape)) return *made;
  if (fill.kind != Fill::Kind::Window) return source(type.dtype, type.shape, fill, false);
  const TensorId made = source(type.dtype, type.shape, fill, false);
  HostArray index{type.dtype, type.shape, {}};
  index.bytes.resize(static_cast<size_t>(type.shape.elements()) * size_of(type.dtype));
  draw_window_positions(typed, index);
  module_.blobs.pop_back();
  attach(made, index);
  known_.pop_back();  // positions of these windows and no others
  return made;
}

std::optional<Sketch> TapeWriter::map_sketch(const OpInfo& op, DType dtype) {
  const bool reduces = op.shape == ShapeRule::MapReduce;
  std::vector<Shape> shapes;
  std::vector<DType> dtypes;
  Shape joined = {choices_.one_of(swarm_.sizes)};
  for (size_t i = 0, n = 1 + choices_.below(3); i < n; ++i) {
    Shape shape = i == 0 ? Shape{3, joined[0]} : choices_.percent(30) ? Shape{joined[0]} : Shape{3, joined[0]};
    DType t = i == 0 ? dtype : choices_.one_of(swarm_.dtypes);
    std::vector<size_t> fitting;
    for (size_t k = 0; k < known_.size(); ++k)
      if (known_[k].fill.kind == Fill::Kind::Drawn && (i != 0 || tensor(known_[k].id).dtype == dtype))
        fitting.push_back(k);
    if (!fitting.empty() && choices_.percent(70)) {
      const Tensor& there = tensor(known_[choices_.one_of(fitting)].id);
      if (i == 0 || broadcast(joined, there.shape)) {
        shape = there.shape;
        t = there.dtype;
      }
    }
    const std::optional<Shape> both = i == 0 ? std::optional(shape) : broadcast(joined, shape);
    if (!both || both->elements() > 4096) break;
    joined = *both;
    shapes.push_back(shape);
    dtypes.push_back(t);
  }
  if (shapes.empty() || (reduces && joined.rank() == 0)) return std::nullopt;
  const auto made = random_body(choices_, dtypes, dtype, swarm_.differentiable);
  if (!made) return std::nullopt;
  Sketch sketch(op);
  sketch.list("src", shapes).operands["src"].dtypes = dtypes;
  sketch.set("body", encode_map_body(*made));
  Shape to = joined;
  if (reduces) {
    const int64_t axes = choices_.between(1, joined.rank());
    sketch.set("reduce", choices_.between(0, 4)).set("axes", axes);
    to = Shape(joined.dims().first(static_cast<size_t>(joined.rank() - axes)));
  }
  sketch.list("dst", std::vector<Shape>(made->destinations, to));
  return sketch;
}

/// Rows that take any shape, over shapes that are there.
std::optional<Sketch> TapeWriter::over_known(const OpInfo& op, DType dtype, const Sketch& base) {
  std::vector<const Tensor*> there;
  for (const Known& known : known_)
    if (tensor(known.id).dtype == dtype && known.fill.kind == Fill::Kind::Drawn &&
        tensor(known.id).shape.elements() <= 4096)
      there.push_back(&tensor(known.id));
  if (there.empty()) return std::nullopt;
  const Shape first = choices_.one_of(there)->shape;
  Sketch sketch = base;
  sketch.maybe = true;
  const auto reshape = [&](const Shape& shape) {
    for (auto& [name, operand] : sketch.operands)
      for (Shape& each : operand.shapes) each = shape;
  };
  switch (op.shape) {
    case ShapeRule::Same:
    case ShapeRule::Loss:
      reshape(first);
      return sketch;
    case ShapeRule::Broadcast: {
      Shape joined = first;
      for (auto& [name, operand] : sketch.operands)
        for (Shape& each : operand.shapes) {
          const Shape& other = choices_.one_of(there)->shape;
          const std::optional<Shape> both = broadcast(joined, other);
          each = both && both->elements() <= 4096 ? other : first;
          if (each == other) joined = *both;
        }
      return sketch;
    }
    case ShapeRule::Reduce: {
      Sketch reduced(op);
      reduced.put("src", first).maybe = true;
      std::vector<int64_t> axes;
      for (int64_t axis = 0; axis < first.rank(); ++axis)
        if (choices_.percent(50)) axes.push_back(choices_.percent(30) ? axis - first.rank() : axis);
      if (!axes.empty()) reduced.set("axes", axes);
      if (choices_.percent(40)) reduced.set("keepdims", int64_t{1});
      return reduced;
    }
    case ShapeRule::Transpose: {
      Sketch turned(op);
      turned.put("src", first);
      std::vector<int64_t> perm;
      for (int64_t axis = 0; axis < first.rank(); ++axis)
        perm.insert(perm.begin() + static_cast<ptrdiff_t>(choices_.below(perm.size() + 1)), axis);
      if (!perm.empty()) turned.set("perm", perm);
      return turned;
    }
    case ShapeRule::Axis: {
      if (first.rank() == 0 || sketch.operands.size() != 1) return std::nullopt;
      reshape(first);
      return sketch.set("axis", choices_.between(-first.rank(), first.rank() - 1));
    }
    default:
      return std::nullopt;
  }
}

std::optional<Sketch> TapeWriter::sketch_of(const OpInfo& op, DType dtype) {
  if ((op.shape == ShapeRule::Map || op.shape == ShapeRule::MapReduce) && choices_.percent(85))
    return map_sketch(op, dtype);
  const std::vector<Sketch>& all = cached_sketches(op, dtype, choices_.one_of(swarm_.sizes));
  if (all.empty()) return std::nullopt;
  const Sketch& base = choices_.one_of(all);
  if (choices_.percent(50))
    if (auto made = over_known(op, dtype, base)) return made;
  return base;
}

/// Adds a command whose operands are tensors of the tape where some fit.
bool TapeWriter::emit(TapeId tape, const Sketch& sketch, DType dtype) {
  Typed typed = lay_out(sketch, dtype);
  if (settle(typed)) return false;
  Command command = typed.command;
  const auto operands = command.op->operands();
  for (const OperandType& type : typed.types)
    if (type.shape.elements() > 20000) return false;
  if (const int label = command.op->attribute("label"); label >= 0) {
    if (module_.strings.empty()) module_.strings.emplace_back("label");
    set_int(command, "label", 0);
  }
  const auto fill_of = [&](size_t id) {
    const auto found = sketch.operands.find(operands[typed.operands[id]].name);
    return found == sketch.operands.end() ? Fill{} : found->second.fill;
  };
  std::vector<bool> reads(typed.types.size()), writes(typed.types.size()), updates(typed.types.size());
  for (size_t i = 0; i < operands.size(); ++i)
    for (const uint32_t id : command.operand(i)) {
      if (id == kAbsent) continue;
      const Access access = command.access(i);
      reads[id] = reads[id] || access == Access::Read;
      writes[id] = writes[id] || access != Access::Read;
      updates[id] = updates[id] || access == Access::Update;
    }
  std::vector<TensorId> renamed(typed.types.size(), kNone);
  written_.clear();
  read_.clear();
  const bool distinct = command.op->attribute("body") >= 0;  // a name in a body means one tensor
  // Destinations first: what they are must be no source.
  for (const bool destinations : {true, false})
    for (size_t id = 0; id < typed.types.size(); ++id) {
      if (writes[id] != destinations || (!reads[id] && !writes[id])) continue;
      const Operand& operand_row = operands[typed.operands[id]];
      const Fill fill = fill_of(id);
      if (operand_row.kind == OperandKind::GradList) {
        renamed[id] = graded(typed, id);
      } else if (is_generator(operand_row)) {
        renamed[id] = generator();
      } else if (destinations) {
        const bool defined = reads[id] || updates[id];
        renamed[id] = destination(tape, typed, id, defined ? fill : Fill{}, defined);
      } else if (fill.kind == Fill::Kind::Same) {
        const auto other = std::find(typed.names.begin(), typed.names.end(), fill.of);
        renamed[id] = other == typed.names.end() ? source(typed.types[id].dtype, typed.types[id].shape, {}, false)
                                                 : renamed[static_cast<size_t>(other - typed.names.begin())];
      } else {
        renamed[id] = operand(tape, typed, id, fill);
        if (distinct) read_.push_back(renamed[id]);
      }
      if (destinations) written_.push_back(renamed[id]);
    }
  for (uint32_t& id : command.ids)
    if (id != kAbsent) id = renamed[id];
  TapeBuilder(module_, tape).add(command);
  for (const TensorId id : written_)
    if (tensor(id).role != Role::Rng && tensor(id).role != Role::Grad) know(id);
  return true;
}

}  // namespace tape::difftest
