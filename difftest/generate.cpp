// See generate.h: what a tape is made of, loops, calls, gradients, host traffic.
#include "difftest/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "difftest/generate_writer.h"
#include "vm/command_buffer.h"
#include "vm/error.h"
#include "vm/passes/passes.h"

namespace tape {
namespace difftest {
namespace {

constexpr int64_t kStreamRows = 7;

bool is_typed(const Operand& operand) {
  switch (operand.type) {
    case TypeRule::T:
    case TypeRule::Each:
    case TypeRule::Column:
    case TypeRule::SinkRow:
      return true;
    case TypeRule::Any:
    case TypeRule::Wide:
    case TypeRule::Stat:
    case TypeRule::Bool:
    case TypeRule::Index:
    case TypeRule::IndexOut:
    case TypeRule::I64:
    case TypeRule::Float:
    case TypeRule::EachGrad:
    case TypeRule::EachStat:
    case TypeRule::Body:
    case TypeRule::None:
      return false;
  }
  return false;
}

Swarm swarm_of(Choices& choices, const RowAndType& focus, const std::vector<const OpInfo*>& rows, bool differentiable) {
  Swarm swarm;
  swarm.differentiable = differentiable;
  constexpr unsigned kShares[] = {5, 15, 40, 100};
  const unsigned share = choices.one_of(kShares);
  for (const OpInfo* op : rows) {
    if (op->has(kControlEffect) || op->opcode == Opcode::End) continue;
    if (differentiable && op->gradient == "NoGradient") continue;
    if (choices.percent(share)) swarm.rows.push_back(op);
  }
  if (!focus.op->has(kControlEffect)) swarm.rows.push_back(focus.op);
  if (swarm.rows.empty()) swarm.rows = {&op_info(Opcode::Add), &op_info(Opcode::MatMul)};
  swarm.dtypes.push_back(focus.dtype);
  swarm.dtypes.push_back(differentiable || choices.percent(60) ? DType::F32 : choices.one_of(kDTypes).dtype);
  if (choices.percent(30)) swarm.dtypes.push_back(choices.one_of(kDTypes).dtype);
  constexpr int64_t kSizes[] = {0, 1, 1, 2, 3, 3, 4, 5, 8, 8, 31, 32, 33};
  swarm.sizes.push_back(choices.one_of(kSizes));
  if (choices.percent(30)) swarm.sizes.push_back(choices.one_of(kSizes));
  const size_t inputs = choices.below(20);
  swarm.inputs = inputs < 8    ? CaseInputs::Normal
                 : inputs < 12 ? CaseInputs::Unit
                 : inputs < 17 ? CaseInputs::Integers
                               : CaseInputs::Edge;
  swarm.loops = choices.percent(30) || focus.op->opcode == Opcode::Repeat || focus.op->opcode == Opcode::While;
  swarm.calls = choices.percent(25) || focus.op->opcode == Opcode::Call;
  return swarm;
}

}  // namespace

void TapeWriter::body(TapeId tape, unsigned commands, Place place) {
  for (unsigned i = 0; i < commands; ++i) step(tape, place);
}

void TapeWriter::step(TapeId tape, Place place) {
  if (swarm_.loops && depth_ < 2 && choices_.percent(15)) return loop(tape, place);
  if (swarm_.calls && depth_ < 2 && tape == 0 && choices_.percent(15)) return call(tape);
  for (int tries = 0; tries < 20; ++tries) {
    const OpInfo& op = *choices_.one_of(swarm_.rows);
    const DType dtype = choices_.one_of(swarm_.dtypes);
    const std::vector<DType> dtypes = case_dtypes(op);
    const bool fits = std::find(dtypes.begin(), dtypes.end(), dtype) != dtypes.end();
    if (!fits && tries < 15) continue;
    if (command_of(tape, op, fits ? dtype : choices_.one_of(dtypes), place)) return;
  }
}

bool TapeWriter::command_of(TapeId tape, const OpInfo& op, DType dtype, Place place) {
  if (op.has(kControlEffect)) return false;
  if (op.has(kStreamEffect) || op.has(kSinkEffect) || op.operands().empty()) return special(tape, op, dtype, place);
  for (int tries = 0; tries < 4; ++tries) {
    std::optional<Sketch> sketch = sketch_of(op, dtype);
    if (!sketch) continue;
    if (op.has(kInPlace) && !sketch->attributes.has_attr("acc") && choices_.percent(25)) sketch->in_place = true;
    if (op.attribute("acc") >= 0 && !sketch->in_place && choices_.percent(12)) sketch->set("acc", int64_t{1});
    if (emit(tape, *sketch, dtype)) return true;
  }
  return false;
}

bool TapeWriter::special(TapeId tape, const OpInfo& op, DType dtype, Place place) {
  if (op.operands().empty()) {
    TapeBuilder(module_, tape).add(make_command(op));
    return true;
  }
  if (place == Place::Looked) return false;
  if (op.has(kStreamEffect)) return load(tape, op, dtype);
  if (op.shape == ShapeRule::Store) return store(tape, op, dtype);
  std::optional<Sketch> sketch = sketch_of(op, dtype);  // TRACE
  return sketch && emit(tape, *sketch, dtype);
}

bool TapeWriter::load(TapeId tape, const OpInfo& op, DType dtype) {
  const int64_t n = choices_.one_of(swarm_.sizes);
  uint32_t stream_id = module_.find_stream("rows");
  if (stream_id == kNone) {
    Stream stream;
    stream.name = "rows";
    stream.columns = {{"a", dtype, {n}, {}}, {"b", DType::U8, {}, {}}};
    stream.cursor = add(Role::State, "rows.cursor", DType::I64, {2});
    const Drawing drawing{options_.seed * 0x10001 + options_.number, swarm_.inputs};
    columns_.emplace_back("rows.a", draw(drawing, "rows.a", dtype, {kStreamRows, n}, {}));
    columns_.emplace_back("rows.b", draw(drawing, "rows.b", DType::U8, {kStreamRows}, range(0, 255)));
    stream_id = static_cast<uint32_t>(module_.streams.size());
    module_.streams.push_back(std::move(stream));
  }
  const Column column = module_.streams[stream_id].columns[0];
  const int64_t rows = choices_.between(1, 9);
  const bool pads = choices_.percent(40);
  const TensorId a = result(tape, column.dtype, Shape{rows, column.row[0]});
  const TensorId b = result(tape, DType::U8, {rows});
  Command command = make_command(op);
  command.push_operand(std::vector<uint32_t>{a, b});
  command.push_operand(stream_id);
  const TensorId valid = pads ? result(tape, DType::I64, {}) : kAbsent;
  command.push_operand(valid);
  set_int(command, "rows", rows);
  set_int(command, "end", pads ? 1 : 0);
  if (choices_.percent(50)) set_int(command, "shuffle_seed", choices_.between(0, 99));
  TapeBuilder(module_, tape).add(command);
  know(a);
  know(b);
  if (pads) know(valid);
  return true;
}

bool TapeWriter::store(TapeId tape, const OpInfo& op, DType dtype) {
  std::vector<TensorId> fitting;
  for (const Known& known : known_)
    if (tensor(known.id).dtype == dtype) fitting.push_back(known.id);
  const TensorId from =
      fitting.empty() ? source(dtype, {choices_.one_of(swarm_.sizes)}, {}, false) : choices_.one_of(fitting);
  const Shape shape = tensor(from).shape;
  Sink sink;
  sink.name = fmt::format("sink{}", module_.sinks.size());
  sink.dtype = dtype;
  sink.row = shape.rank() > 0 && choices_.percent(50) ? Shape(shape.dims().subspan(1)) : shape;
  module_.sinks.push_back(std::move(sink));
  TapeBuilder(module_, tape).add(op.opcode, {static_cast<uint32_t>(module_.sinks.size() - 1), from});
  return true;
}

/// What a body writes first is known behind it only where the body is sure to play.
void TapeWriter::loop(TapeId tape, Place place) {
  const auto commands = static_cast<unsigned>(1 + choices_.below(3));
  const std::vector<Known> before = known_;
  const size_t kind = swarm_.differentiable ? 0 : choices_.below(3);
  ++depth_;
  TapeBuilder builder(module_, tape);
  bool sure = false;
  if (kind == 0) {
    Command repeat = make_command(op_info(Opcode::Repeat));
    repeat.push_operand(kAbsent);
    const int64_t count = choices_.between(0, 4);
    set_int(repeat, "count", count);
    builder.add(repeat);
    sure = count > 0;
    body(tape, commands, place == Place::Straight ? Place::Counted : place);
  } else if (kind == 1) {
    const auto turns = static_cast<double>(choices_.between(-1, 4));
    const TensorId times = source(choices_.percent(50) ? DType::I32 : DType::I64, {}, range(turns, turns), false);
    Command repeat = make_command(op_info(Opcode::Repeat));
    repeat.push_operand(times);
    set_int(repeat, "max", choices_.between(turns < 1 ? 1 : 3, 5));
    builder.add(repeat);
    body(tape, commands, Place::Looked);
  } else {
    const TensorId count = add(Role::Local, fmt::format("t{}", named_++), DType::I32, {}, tape);
    const TensorId more = add(Role::Local, fmt::format("t{}", named_++), DType::Bool, {}, tape);
    Command zero = make_command(op_info(Opcode::Fill));
    zero.push_operand(count);
    set_int(zero, "value", 0);
    builder.add(zero);
    Command less = make_command(op_info(Opcode::Lt));
    less.push_operand(more);
    less.push_operand(count);
    less.push_operand(kAbsent);
    set_int(less, "imm", choices_.between(0, 4));
    builder.add(less);
    Command loop = make_command(op_info(Opcode::While));
    loop.push_operand(more);
    set_int(loop, "max", choices_.between(0, 5));
    builder.add(loop);
    body(tape, commands, Place::Looked);
    builder.add(Opcode::Advance, {count});
    builder.add(less);
  }
  builder.add(make_command(op_info(Opcode::End)));
  --depth_;
  if (sure) return;
  // Sources made in the body hold data anyway.
  std::vector<Known> after = before;
  for (const Known& known : known_)
    if (is_persistent(tensor(known.id)) && tensor(known.id).role != Role::Output &&
        std::none_of(before.begin(), before.end(), [&](const Known& other) { return other.id == known.id; }))
      after.push_back(known);
  known_ = std::move(after);
}

void TapeWriter::call(TapeId tape) {
  const std::vector<Known> before = known_;
  known_.erase(std::remove_if(known_.begin(), known_.end(),
                              [&](const Known& known) { return !is_persistent(tensor(known.id)); }),
               known_.end());
  const TapeId called = add_tape(fmt::format("part{}", module_.tapes.size()));
  ++depth_;
  body(called, static_cast<unsigned>(1 + choices_.below(4)), Place::Looked);
  --depth_;
  Command command = make_command(op_info(Opcode::Call));
  command.push_operand(called);
  for (int64_t i = choices_.between(1, 2); i > 0; --i) TapeBuilder(module_, tape).add(command);
  std::vector<Known> after = before;
  for (const Known& known : known_)
    if (tensor(known.id).owner == kNone &&
        std::none_of(before.begin(), before.end(), [&](const Known& other) { return other.id == known.id; }))
      after.push_back(known);
  known_ = std::move(after);
}

/// Some locals become visible.
void TapeWriter::publish(TapeId tape) {
  std::vector<TensorId> locals;
  for (const Known& known : known_)
    if (tensor(known.id).role == Role::Local) locals.push_back(known.id);
  for (size_t i = 0; i < 4 && !locals.empty(); ++i) {
    const size_t at = choices_.percent(60) ? locals.size() - 1 : choices_.below(locals.size());
    const TensorId from = locals[at];
    locals.erase(locals.begin() + static_cast<ptrdiff_t>(at));
    const TensorId to = add(Role::Output, fmt::format("y{}", named_++), tensor(from).dtype, tensor(from).shape);
    TapeBuilder(module_, tape).add(Opcode::Copy, {to, from});
  }
}

void TapeWriter::write_plain(const RowAndType& focus) {
  const TapeId main = add_tape("main");
  const auto commands = static_cast<unsigned>(1 + choices_.below(std::max(options_.commands, 1U)));
  const auto at = static_cast<unsigned>(choices_.below(commands));
  for (unsigned i = 0; i < commands; ++i) {
    if (i == at && !focus.op->has(kControlEffect)) command_of(main, *focus.op, focus.dtype, Place::Straight);
    if (i == at && focus.op->opcode == Opcode::Call) call(main);
    if (i == at && (focus.op->has(kControlEffect) && focus.op->opcode != Opcode::Call)) loop(main, Place::Straight);
    step(main, Place::Straight);
  }
  publish(main);
}

bool TapeWriter::write_differentiated(const RowAndType& focus) {
  const TapeId main = add_tape("main"), forward = add_tape("forward");
  const auto commands = static_cast<unsigned>(1 + choices_.below(std::max(options_.commands / 2, 1U)));
  const auto at = static_cast<unsigned>(choices_.below(commands));
  for (unsigned i = 0; i < commands; ++i) {
    if (i == at) command_of(forward, *focus.op, focus.dtype, Place::Straight);
    step(forward, Place::Straight);
  }
  std::vector<TensorId> ends;
  for (const Known& known : known_)
    if (is_float(tensor(known.id).dtype) &&
        (tensor(known.id).role == Role::Local || tensor(known.id).role == Role::Output))
      ends.push_back(known.id);
  if (ends.empty()) return false;
  const TensorId end = ends[std::max(choices_.below(ends.size()), choices_.below(ends.size()))];
  const TensorId loss = add(Role::Output, "loss", tensor(end).dtype, {});
  TapeBuilder(module_, forward).add(Opcode::Sum, {loss, end});
  Command call = make_command(op_info(Opcode::Call));
  call.push_operand(forward);
  TapeBuilder(module_, main).add(call);

  const TapeId backward = add_tape("backward");
  Diagnostics diagnostics;
  std::optional<VerifiedModule> verified = verify(module_, diagnostics);
  if (!verified) throw Error(Code::Internal, diagnostics.text());
  GradientSpec spec;
  spec.tape = backward;
  spec.of = forward;
  spec.losses = {loss};
  spec.accumulate = choices_.percent(20);
  spec.recompute = choices_.percent(70);
  spec.unroll = choices_.percent(50) ? GradientSpec::kUnroll : 0;
  std::optional<Module> derived = derive_gradient(*verified, spec, diagnostics);
  if (!derived) return false;  // no parameter on the path, no rule, a loop
  module_ = *std::move(derived);
  Command back = make_command(op_info(Opcode::Call));
  back.push_operand(backward);
  TapeBuilder(module_, main).add(back);
  return true;
}

}  // namespace difftest

const std::vector<RowAndType>& all_rows_and_types() {
  static const std::vector<RowAndType> all = [] {
    std::vector<RowAndType> list;
    for (const OpInfo& op : kOps)
      for (const DType dtype : case_dtypes(op)) list.push_back({&op, dtype});
    return list;
  }();
  return all;
}

RowAndType cell_of(const Command& command, const Module& module) {
  const std::vector<DType> dtypes = case_dtypes(*command.op);
  for (const bool typed : {true, false})
    for (size_t i = 0; i < command.op->operands().size(); ++i)
      for (const uint32_t id : command.operand(i)) {
        if (!command.is_tensor(i) || id == kAbsent || difftest::is_typed(command.op->operands()[i]) != typed) continue;
        const DType dtype = module.tensors[id].dtype;
        if (std::find(dtypes.begin(), dtypes.end(), dtype) != dtypes.end()) return {command.op, dtype};
      }
  return {command.op, dtypes.empty() ? DType::F32 : dtypes[0]};
}

GeneratedTape generate_tape(const GenerateOptions& options) {
  using difftest::Choices;
  std::vector<const OpInfo*> rows;
  for (const OpInfo& op : kOps)
    if (options.only.empty() || std::find(options.only.begin(), options.only.end(), op.mnemonic) != options.only.end())
      rows.push_back(&op);
  if (rows.empty()) throw Error(Code::Usage, "no row of the op table has one of these names");
  std::vector<RowAndType> cells;
  for (const RowAndType& cell : all_rows_and_types())
    if (options.only.empty() || std::find(rows.begin(), rows.end(), cell.op) != rows.end()) cells.push_back(cell);

  Choices choices(options.seed, options.number);
  const RowAndType focus = cells[static_cast<size_t>(options.number % cells.size())];
  GeneratedTape made;
  made.seed = options.seed;
  made.number = options.number;
  const bool has_rule = focus.op->gradient != "NoGradient" && is_float(focus.dtype) && !focus.op->has(kControlEffect);
  bool differentiated = has_rule && choices.percent(40);
  for (;;) {
    const difftest::Swarm swarm = difftest::swarm_of(choices, focus, rows, differentiated);
    difftest::TapeWriter writer(options, choices, swarm);
    if (differentiated && !writer.write_differentiated(focus)) {
      differentiated = false;
      continue;
    }
    if (!differentiated) writer.write_plain(focus);
    Diagnostics diagnostics;
    std::optional<VerifiedModule> verified = verify(writer.module(), diagnostics);
    if (!verified)
      throw Error(Code::Internal,
                  fmt::format("tape {} of seed {} was refused:\n{}", options.number, options.seed, diagnostics.text()));
    made.inputs = swarm.inputs;
    made.differentiated = differentiated;
    made.columns = std::move(writer.columns());
    made.module = std::make_shared<const VerifiedModule>(*std::move(verified));
    return made;
  }
}

}  // namespace tape
