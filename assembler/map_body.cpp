// Reading the body of a MAP: its lines are commands on scalars, read by a parser of their own against the listed names.
#include "opcodes/map_body.h"

#include <fmt/format.h>

#include "assembler/command_parser.h"

namespace tape::text {

/// Slots are the tensors of a module of their own: sources, then declared destinations, then what the body declares.
struct CommandParser::BodyScope {
  Context context;
  CommandParser parser{context};
};

CommandParser::CommandParser(Context& context) : context_(&context) {}
CommandParser::~CommandParser() = default;

/// The names that were given for an operand.
std::vector<Name> CommandParser::listed(size_t operand) const {
  const Item& item = items_[operand];
  if (item.kind != Item::Kind::List) return {item.name};
  const auto first = names_.begin() + item.first;
  return {first, first + item.count};
}

void CommandParser::read_body(Scan& scan, LineFeed* feed) {
  scan.expect('{', "before the body");
  scan.expect_end("{");
  if (feed == nullptr) throw Mistake{mnemonic_, prefix() + "its body has no place here", {}};
  open_body();
  number_slots(body_commands(*feed));
}

void CommandParser::open_body() {
  if (body_ == nullptr) body_ = std::make_unique<BodyScope>();
  body_->parser.in_body_ = true;
  Context& inner = body_->context;
  inner.around = context_;
  inner.tape = 0;
  inner.privates.clear();
  inner.module.tensors.clear();
  const auto& tensors = context_->module.tensors;
  const auto add = [&](const Name& name, DType dtype) {
    inner.privates.set(name, {SymbolKind::Tensor, static_cast<uint32_t>(inner.module.tensors.size()), {}});
    Tensor& slot = inner.module.tensors.emplace_back();
    slot.name = std::string(name.text);
    slot.dtype = dtype;
  };
  const std::vector<Name> sources = listed(1), destinations = listed(0);
  for (size_t i = 0; i < sources.size(); ++i) add(sources[i], tensors[ids_[1][i]].dtype);
  if (op_->shape != ShapeRule::Map) return;  // what is reduced may be narrower than the destination
  for (size_t i = 0; i < destinations.size(); ++i)
    if (ids_[0][i] < tensors.size() && inner.privates.find(destinations[i]) == nullptr)
      add(destinations[i], tensors[ids_[0][i]].dtype);
}

std::vector<Command> CommandParser::body_commands(LineFeed& feed) {
  Context& inner = body_->context;
  std::vector<Command> commands;
  bool open = true, failed = false;
  for (Here here; open;) {
    if (!feed.next(here)) throw Mistake{mnemonic_, prefix() + "its body has no closing brace", {}};
    if (inner.constants.size() != context_->constants.size()) inner.constants = context_->constants;
    inner.visible = context_->visible;
    Scan line(here.line->text, inner.sources);
    if (line.done()) continue;
    try {
      if (line.peek() == '.') line.fail(prefix() + "a directive has no place in its body");
      open = !line.accept('}');
      if (open)
        commands.push_back(body_->parser.parse(line, here));
      else
        line.expect_end("}");
    } catch (const Mistake& mistake) {
      failed = true;
      if (!mistake.message.empty()) feed.report(here, mistake);
    }
  }
  if (failed) throw Mistake{mnemonic_, {}, {}};
  return commands;
}

/// Slots as the format numbers them: sources, destinations, then temporaries in the order they were declared in, which
/// is that of their first writes.
void CommandParser::number_slots(std::vector<Command> commands) {
  const Context& inner = body_->context;
  const auto& tensors = inner.module.tensors;
  MapBody body;
  body.sources = ids_[1].size();
  body.destinations = ids_[0].size();
  std::vector<uint32_t> slots(tensors.size(), kAbsent);
  std::vector<std::string_view> names(body.sources + body.destinations);
  for (size_t i = 0; i < body.sources; ++i) slots[i] = static_cast<uint32_t>(i);
  const std::vector<Name> destinations = listed(0);
  for (size_t i = 0; i < destinations.size(); ++i) {
    const Symbol* const symbol = inner.privates.find(destinations[i]);
    if (symbol == nullptr)
      throw Mistake{
          destinations[i].text, fmt::format("{}the body does not write {}", prefix(), destinations[i].text), {}};
    if (slots[symbol->index] != kAbsent)
      throw Mistake{destinations[i].text,
                    fmt::format("{}{} is a destination and listed again", prefix(), destinations[i].text),
                    {}};
    slots[symbol->index] = static_cast<uint32_t>(body.sources + i);
  }
  auto next = static_cast<uint32_t>(names.size());
  for (uint32_t& slot : slots)
    if (slot == kAbsent) slot = next++;
  body.dtypes.resize(next);
  names.resize(next);
  for (size_t i = 0; i < tensors.size(); ++i) {
    body.dtypes[slots[i]] = tensors[i].dtype;
    names[slots[i]] = tensors[i].name;
  }
  for (Command& command : commands)
    for (uint32_t& id : command.ids)
      if (id != kAbsent) id = slots[id];
  body.commands = std::move(commands);
  if (auto broken = check_map_body(body, names)) throw Mistake{mnemonic_, prefix() + *broken, {}};
  AttrValue& value = command_.attrs[static_cast<size_t>(body_at_)];
  value.present = true;
  value.list = encode_map_body(body);
}

}  // namespace tape::text
