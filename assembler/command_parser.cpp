// Reading a command: its items first, then the assignment of items to the operands of its row, then inference.
#include "assembler/command_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "opcodes/limits.h"
#include "opcodes/map_body.h"

namespace tape::text {
namespace {

/// Whether the operand is written name=tensor rather than by position.
bool is_named(OperandKind kind) {
  return kind == OperandKind::Optional || kind == OperandKind::OptionalList;
}

/// `tape:name` reads a saved value; it never declares one.
bool is_plain(std::string_view name) {
  return name.find(':') == std::string_view::npos;
}

/// Attributes that are not written name=value: MUL y, x, 0.5, REPEAT 3, MAP [y], [x] {.
bool is_positional(std::string_view attribute) {
  return attribute == "imm" || attribute == "count" || attribute == "body";
}

bool wanted_tensor(SymbolKind kind) {
  return kind == SymbolKind::Tensor;
}

std::optional<size_t> choice_of(const Attribute& attribute, std::string_view word, std::vector<std::string_view>& all) {
  std::string_view rest = attribute.choices;
  std::optional<size_t> found;
  while (!rest.empty()) {
    const size_t bar = std::min(rest.find('|'), rest.size());
    if (rest.substr(0, bar) == word) found = all.size();
    all.push_back(rest.substr(0, bar));
    rest.remove_prefix(std::min(bar + 1, rest.size()));
  }
  return found;
}

}  // namespace

void columns_of(const Command& command, const Module& module, std::vector<ColumnType>& columns) {
  columns.clear();
  const auto operands = command.op->operands();
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].kind == OperandKind::Stream && command.id(i) < module.streams.size())
      for (const Column& column : module.streams[command.id(i)].columns) columns.push_back({column.dtype, column.row});
    if (operands[i].kind == OperandKind::Sink && command.id(i) < module.sinks.size())
      columns.push_back({module.sinks[command.id(i)].dtype, module.sinks[command.id(i)].row});
  }
}

const Command& CommandParser::parse(Scan& scan, const Here& here, LineFeed* feed) {
  items_.clear();
  names_.clear();
  named_.clear();
  new_names_.clear();
  if (hints_.dtype || hints_.shape) hints_ = {};
  named_seen_ = false;
  op_ = nullptr;
  try {
    start(mnemonic(scan));
    if (in_body_ && !is_body_row(*op_))
      throw Mistake{mnemonic_, prefix() + "has no place in the body of a MAP: it is not elementwise", {}};
    read_items(scan);
    assign();
    if (body_at_ >= 0) read_body(scan, feed);
    fill_numbers();
    if (known_signature()) {
      if (!new_names_.empty()) types_ = fitting_[signature_slot_].types;
    } else {
      fill_types();
      check_types();
      if (!signature_.empty())
        fitting_[signature_slot_] = {signature_, new_names_.empty() ? decltype(types_){} : types_};
    }
    settle_numbers();
  } catch (Mistake& mistake) {
    if (op_ == nullptr && scan.at_name()) {  // an unknown op: what it would have written is not reported again
      items_.push_back({Item::Kind::Name, scan.name(), {}, 0, 0, {}});
    }
    poison_unresolved();
    throw;
  }
  declare_new(here);
  return command_;
}

std::string CommandParser::prefix() const {
  return fmt::format("{}: ", op_->mnemonic);
}

const OpInfo& CommandParser::mnemonic(Scan& scan) {
  if (!scan.at_name()) {
    const std::string_view found = scan.here();
    scan.fail(fmt::format("expected a command, found {}", found));
  }
  const Name name = scan.name();
  mnemonic_ = name.text;
  if (const Symbol* known = mnemonics_.find(name)) return kOps[known->index];
  if (const OpInfo* op = find_op(name.text)) {
    mnemonics_.set(Name::of(context_->sources.keep(std::string(name.text))),
                   {SymbolKind::Tape, static_cast<uint32_t>(row_of(*op)), {}});
    return *op;
  }
  std::vector<std::string_view> all;
  for (const OpInfo& op : kOps) all.push_back(op.mnemonic);
  throw Mistake{name.text, fmt::format("unknown op {}{}", name.text, did_you_mean(upper(name.text), all)), {}};
}

void CommandParser::start(const OpInfo& op) {
  op_ = &op;
  command_.op = &op;
  command_.ids.clear();
  command_.ends.clear();
  const size_t count = op.attributes().size();
  command_.attrs.resize(count);
  for (AttrValue& value : command_.attrs) {
    value.present = false;
    value.i = 0;
    value.f = 0;
    value.list.clear();
  }
  attribute_tokens_.assign(count, {});
  attribute_values_.assign(count, {});
  body_at_ = op.attribute("body");
}

void CommandParser::read_items(Scan& scan) {
  while (!scan.done() && (body_at_ < 0 || scan.peek() != '{')) {
    const char* const start = scan.position();
    if (scan.at_name()) {
      const Name name = scan.name();
      if (scan.peek() == '=') {
        scan.accept('=');
        named_seen_ = true;
        read_named(scan, name);
        if (!scan.accept(',') && !scan.done() && !scan.at_name() && scan.peek() != '{')
          scan.expect(',', "between operands");
        continue;
      }
      scan.rewind(start);
    }
    if (named_seen_) scan.fail(prefix() + "operands stand before attributes");
    items_.push_back(read_item(scan));
    if (!scan.accept(',') && !scan.done() && !scan.at_name() && scan.peek() != '[' && scan.peek() != '{')
      scan.expect(',', "between operands");
  }
}

CommandParser::Item CommandParser::read_item(Scan& scan) {
  scan.skip();
  const char* const start = scan.position();
  Item item;
  if (scan.peek() == '[') return read_list(scan);
  if (scan.peek() == '"') {
    item.name = scan.want_name("a name");
    item.token = scan.since(start);
    return item;
  }
  if (scan.at_name()) {
    item.name = scan.qualified_name();
    item.token = item.name.text;
    const Symbol* const symbol = is_reserved(item.name.text) ? nullptr : context_->find(item.name);
    if (!is_reserved(item.name.text) && (symbol == nullptr || symbol->kind != SymbolKind::Constant)) return item;
    scan.rewind(start);
  }
  const char first = scan.peek();
  if (!is_class(first, kNameStart | kDigit) && first != '(' && first != '.' && first != '-' && first != '+')
    scan.fail(scan.here().empty() ? prefix() + "expected an operand"
                                  : fmt::format("{}expected an operand, found {}", prefix(), scan.here()));
  item.kind = Item::Kind::Number;
  item.value = expression(scan, *context_);
  item.token = scan.since(start);
  return item;
}

CommandParser::Item CommandParser::read_list(Scan& scan) {
  const char* const start = scan.position();
  scan.accept('[');
  Item item;
  item.kind = Item::Kind::List;
  item.first = static_cast<uint32_t>(names_.size());
  while (scan.peek() != ']') {
    names_.push_back(scan.at_name() ? scan.qualified_name() : scan.want_name("a tensor"));
    ++item.count;
    if (!scan.accept(',') && !scan.at_name()) break;
  }
  scan.expect(']', "after the list");
  item.token = scan.since(start);
  return item;
}

void CommandParser::unknown_attribute(const Name& name) const {
  std::vector<std::string_view> all{"dtype", "shape"};
  for (const Attribute& attribute : op_->attributes())
    if (!is_positional(attribute.name)) all.push_back(attribute.name);
  for (const Operand& operand : op_->operands())
    if (is_named(operand.kind)) all.push_back(operand.name);
  throw Mistake{name.text, fmt::format("{}no attribute {}={}", prefix(), name.text, did_you_mean(name.text, all)), {}};
}

void CommandParser::read_named(Scan& scan, const Name& name) {
  const int at = op_->attribute(name.text);
  if (at >= 0 && !is_positional(name.text)) {
    if (!attribute_tokens_[static_cast<size_t>(at)].empty())
      throw Mistake{name.text, fmt::format("{}{}= is given twice", prefix(), name.text), {}};
    if (name.text == "axis" && upper(mnemonic_) != op_->mnemonic)  // EMBEDDING
      throw Mistake{name.text, fmt::format("{} is {} of axis 0", upper(mnemonic_), op_->mnemonic), {}};
    return read_attribute(scan, static_cast<size_t>(at));
  }
  const auto operands = op_->operands();
  for (size_t i = 0; i < operands.size(); ++i) {
    if (!is_named(operands[i].kind) || operands[i].name != name.text) continue;
    for (const auto& [other, item] : named_)
      if (other == i) throw Mistake{name.text, fmt::format("{}{}= is given twice", prefix(), name.text), {}};
    named_.emplace_back(i, read_item(scan));
    return;
  }
  scan.skip();
  const char* const start = scan.position();
  if (name.text == "dtype" && !hints_.dtype) {
    hints_.dtype = dtype_of(scan);
    hints_.dtype_token = scan.since(start);
  } else if (name.text == "shape" && !hints_.shape) {
    hints_.shape = shape_of(scan, *context_, false);
    hints_.shape_token = scan.since(start);
  } else if (name.text == "dtype" || name.text == "shape") {
    throw Mistake{name.text, fmt::format("{}{}= is given twice", prefix(), name.text), {}};
  } else {
    unknown_attribute(name);
  }
}

void CommandParser::read_enum(Scan& scan, const Attribute& attribute, AttrValue& value) {
  if (!scan.at_name()) scan.fail(fmt::format("{}{}= is one of {}", prefix(), attribute.name, attribute.choices));
  const Name word = scan.name();
  std::vector<std::string_view> all;
  const auto choice = choice_of(attribute, word.text, all);
  if (!choice)
    throw Mistake{word.text,
                  fmt::format("{}{}={} is none of {}{}", prefix(), attribute.name, word.text, attribute.choices,
                              did_you_mean(word.text, all)),
                  {}};
  value.i = static_cast<int64_t>(*choice);
}

void CommandParser::read_int_list(Scan& scan, size_t at, AttrValue& value) {
  const std::string what = fmt::format("{}{}=", prefix(), op_->attributes()[at].name);
  if (!scan.accept('[')) {
    value.list.push_back(integer(scan, *context_, what));
    return;
  }
  while (scan.peek() != ']') {
    value.list.push_back(integer(scan, *context_, what));
    if (!scan.accept(',')) break;
  }
  scan.expect(']', "after the list");
}

void CommandParser::read_attribute(Scan& scan, size_t at) {
  const Attribute& attribute = op_->attributes()[at];
  AttrValue& value = command_.attrs[at];
  scan.skip();
  const char* const start = scan.position();
  value.present = true;
  switch (attribute.type) {
    case AttrType::Bool:
    case AttrType::I32:
    case AttrType::I64: {
      const Value given = expression(scan, *context_);
      if (given.is_float)
        throw Mistake{scan.since(start),
                      fmt::format("{}{}= wants an integer, got {}", prefix(), attribute.name, given.text()),
                      {}};
      value.i = given.i;
      break;
    }
    case AttrType::Enum:
      read_enum(scan, attribute, value);
      break;
    case AttrType::F64:
      value.f = number(scan, *context_);
      break;
    case AttrType::Number:
      attribute_values_[at] = expression(scan, *context_);
      break;
    case AttrType::IntList:
      read_int_list(scan, at, value);
      break;
    case AttrType::Body:  // no name=value: read_body
      break;
    case AttrType::String: {
      value.i = string_id(scan.string(fmt::format("a text for {}=", attribute.name)));
      break;
    }
  }
  attribute_tokens_[at] = scan.since(start);
}

int64_t CommandParser::string_id(std::string_view text) {
  auto& strings = context_->module.strings;
  for (; known_strings_ < strings.size(); ++known_strings_) {
    const Name name = Name::of(context_->sources.keep(strings[known_strings_]));
    if (strings_.find(name) == nullptr) strings_.set(name, {SymbolKind::Tensor, known_strings_, {}});
  }
  if (const Symbol* known = strings_.find(Name::of(text))) return known->index;
  strings.emplace_back(text);
  return static_cast<int64_t>(strings.size() - 1);
}

std::string CommandParser::wanted_operands() const {
  std::string text;
  for (const Operand& operand : op_->operands()) {
    if (is_named(operand.kind) && op_->attribute("count") < 0) continue;
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", operand.name, is_list(operand.kind) ? "..." : "");
  }
  return text.empty() ? "no operands" : text;
}

void CommandParser::wrong_count(size_t got) const {
  throw Mistake{mnemonic_,
                fmt::format("{}wants {}; got {} operand{}", prefix(), wanted_operands(), got, got == 1 ? "" : "s"),
                {}};
}

/// REPEAT's operand is a constant, the attribute count=, or a tensor. True when it was a constant.
bool CommandParser::take_loop_count() {
  if (items_.size() != 1) wrong_count(items_.size());
  const Item& item = items_[0];
  if (item.kind != Item::Kind::Number) return false;
  const auto at = static_cast<size_t>(op_->attribute("count"));
  if (item.value.is_float)
    throw Mistake{item.token, fmt::format("{}wants an integer, got {}", prefix(), item.value.text()), {}};
  command_.attrs[at].present = true;
  command_.attrs[at].i = item.value.i;
  items_.clear();
  return true;
}

void CommandParser::assign() {
  const auto operands = op_->operands();
  ids_.resize(std::max(ids_.size(), operands.size()));
  for (auto& ids : ids_) ids.clear();
  const bool loop_count = op_->attribute("count") >= 0;
  if (loop_count) (void)take_loop_count();
  size_t positional = 0, lists = 0;
  for (const Operand& operand : operands) {
    if (is_named(operand.kind) && !loop_count) continue;
    ++positional;
    lists += is_list(operand.kind) ? 1 : 0;
  }
  const size_t got = items_.size();
  const bool bare = lists == 1 && std::none_of(items_.begin(), items_.end(),
                                               [](const Item& item) { return item.kind == Item::Kind::List; });
  if (bare ? got + 1 < positional : got != positional && !loop_count) wrong_count(got);
  size_t at = 0;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (is_named(operands[i].kind) && !loop_count) continue;
    size_t count = bare && is_list(operands[i].kind) ? got - (positional - 1) : 1;
    for (; count > 0 && at < got; --count) take(i, items_[at++]);
  }
  assign_named_operands();
  for (size_t i = 0; i < operands.size(); ++i) {
    if (ids_[i].empty() && !is_list(operands[i].kind)) ids_[i].push_back(kAbsent);
    command_.push_operand(ids_[i]);
  }
}

void CommandParser::assign_named_operands() {
  for (const auto& [operand, item] : named_) {
    const bool list = op_->operands()[operand].kind == OperandKind::OptionalList;
    if (item.kind == Item::Kind::Number || (item.kind == Item::Kind::List && !list))
      throw Mistake{
          item.token,
          fmt::format("{}{}= wants {}", prefix(), op_->operands()[operand].name, list ? "tensors" : "a tensor"),
          {}};
    take(operand, item);
  }
}

void CommandParser::take(size_t operand, const Item& item) {
  const Operand& row = op_->operands()[operand];
  // acc=1 makes destinations accumulate, so they are read too.
  const int acc = op_->attribute("acc");
  const bool accumulates = acc >= 0 && command_.attrs[static_cast<size_t>(acc)].i != 0;
  const Access access = row.access == Access::Write && accumulates ? Access::Update : row.access;
  switch (item.kind) {
    case Item::Kind::Name:
    case Item::Kind::String:
      ids_[operand].push_back(resolve(row, access, item.name));
      return;
    case Item::Kind::Number:
      return take_immediate(operand, item);
    case Item::Kind::List:
      if (!is_list(row.kind))
        throw Mistake{item.token, fmt::format("{}{} is one tensor, not a list", prefix(), row.name), {}};
      for (uint32_t i = 0; i < item.count; ++i) ids_[operand].push_back(resolve(row, access, names_[item.first + i]));
      return;
  }
}

void CommandParser::take_immediate(size_t operand, const Item& item) {
  const Operand& row = op_->operands()[operand];
  if (row.kind != OperandKind::Immediate)
    throw Mistake{item.token, fmt::format("{}{} is a tensor, not a number", prefix(), row.name), {}};
  const auto at = static_cast<size_t>(op_->attribute("imm"));
  command_.attrs[at].present = true;
  attribute_values_[at] = item.value;
  attribute_tokens_[at] = item.token;
  ids_[operand].push_back(kAbsent);
}

uint32_t CommandParser::resolve(const Operand& operand, Access access, const Name& name) {
  switch (operand.kind) {
    case OperandKind::Tape:
      return resolve_other(name, SymbolKind::Tape, "a tape");
    case OperandKind::Stream:
      return resolve_other(name, SymbolKind::Stream, "a stream");
    case OperandKind::Sink:
      return resolve_other(name, SymbolKind::Sink, "a sink");
    case OperandKind::GradList:
      return resolve_tensor(Access::Read, name, true);
    case OperandKind::Tensor:
    case OperandKind::Immediate:
    case OperandKind::Optional:
    case OperandKind::List:
    case OperandKind::OptionalList:
      return resolve_tensor(access, name, false);
  }
  return kAbsent;
}

uint32_t CommandParser::resolve_other(const Name& name, SymbolKind kind, std::string_view noun) {
  const Symbol* const symbol = context_->find(name);
  if (symbol != nullptr && symbol->kind == kind) return symbol->index;
  bool (*wanted)(SymbolKind) = kind == SymbolKind::Tape     ? [](SymbolKind k) { return k == SymbolKind::Tape; }
                               : kind == SymbolKind::Stream ? [](SymbolKind k) { return k == SymbolKind::Stream; }
                                                            : [](SymbolKind k) { return k == SymbolKind::Sink; };
  throw wrong_name(*context_, name, noun, prefix(), wanted);
}

uint32_t CommandParser::resolve_tensor(Access access, const Name& name, bool gradient) {
  const Symbol* symbol = context_->find(name);
  if (gradient && symbol != nullptr && symbol->kind == SymbolKind::Tensor) {
    const std::string spelled_gradient = std::string(name.text) + "_grad";
    symbol = context_->find(Name::of(spelled_gradient));
    if (symbol != nullptr && symbol->kind == SymbolKind::Tensor) return symbol->index;
    if (context_->quiet_gradients) throw Mistake{name.text, {}, {}};
    throw Mistake{name.text, fmt::format("{}{} has no gradient: no .grad differentiates it", prefix(), name.text), {}};
  }
  if (symbol != nullptr && symbol->kind == SymbolKind::Tensor) return symbol->index;
  const bool free = symbol == nullptr || symbol->kind == SymbolKind::Poison;
  if (access == Access::Write && free && context_->tape != kNone && is_plain(name.text)) {
    for (size_t i = 0; i < new_names_.size(); ++i)
      if (new_names_[i].hash == name.hash && new_names_[i].text == name.text)
        return static_cast<uint32_t>(context_->module.tensors.size() + i);
    if (name.text.size() > static_cast<size_t>(limits::max_name))
      throw Mistake{name.text,
                    fmt::format("the name has {} bytes, more than {} (max_name)", name.text.size(), limits::max_name),
                    {}};
    new_names_.push_back(name);
    return static_cast<uint32_t>(context_->module.tensors.size() + new_names_.size() - 1);
  }
  if (context_->quiet_gradients && name.text.size() > 5 && name.text.substr(name.text.size() - 5) == "_grad")
    throw Mistake{name.text, {}, {}};
  throw wrong_name(*context_, name, "a tensor", prefix(), wanted_tensor);
}

/// Long tapes repeat a few kinds of commands on a few types: what was inferred once is not inferred again. Only for
/// commands whose rules look at nothing but types and attributes.
bool CommandParser::known_signature() {
  signature_.clear();
  const auto& tensors = context_->module.tensors;
  if (hints_.dtype || hints_.shape || op_->shape == ShapeRule::Load || op_->shape == ShapeRule::Store ||
      command_.accumulates() || command_.ids.size() > 4 || body_at_ >= 0)
    return false;
  signature_.push_back(row_of(*op_) << 8 | command_.ids.size());
  for (const uint32_t end : command_.ends) signature_.push_back(end);
  for (size_t i = 0; i < command_.ends.size(); ++i) {
    for (const uint32_t id : command_.operand(i)) {
      if (id == kAbsent || !command_.is_tensor(i)) {
        signature_.push_back(id == kAbsent ? 0 : 1);
        continue;
      }
      if (id >= tensors.size()) {  // new: which of the new names
        signature_.push_back(3 + ((id - tensors.size()) << 8));
        continue;
      }
      const Tensor& tensor = tensors[id];
      signature_.push_back(uint64_t{2} + (static_cast<uint64_t>(tensor.dtype) << 8) +
                           (static_cast<uint64_t>(tensor.shape.rank()) << 16));
      for (const int64_t dim : tensor.shape.dims()) signature_.push_back(static_cast<uint64_t>(dim));
    }
  }
  for (size_t i = 0; i < command_.attrs.size(); ++i) {
    const AttrValue& value = command_.attrs[i];
    if (!value.present) continue;
    signature_.push_back(i << 32 | value.list.size() << 1 | (attribute_values_[i].is_float ? 1 : 0));
    signature_.push_back(static_cast<uint64_t>(value.i));
    signature_.push_back(std::bit_cast<uint64_t>(value.f));
    for (const int64_t item : value.list) signature_.push_back(static_cast<uint64_t>(item));
  }
  uint64_t hash = 0;
  for (const uint64_t word : signature_) hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
  signature_slot_ = hash >> 56;
  return fitting_[signature_slot_].signature == signature_;
}

void CommandParser::fill_types() {
  const auto& tensors = context_->module.tensors;
  types_.clear();
  for (size_t i = 0; i < command_.ends.size(); ++i) {
    const bool tensor = command_.is_tensor(i);
    for (const uint32_t id : command_.operand(i)) {
      OperandType& type = types_.emplace_back();
      if (!tensor || id == kAbsent) continue;
      if (id < tensors.size()) {
        const Tensor& record = tensors[id];
        type.name = record.name;
        type.dtype = record.dtype;
        type.shape = record.shape;
        type.dtype_known = type.shape_known = true;
      } else {
        type.name = new_names_[id - tensors.size()].text;
        type.shape_known = in_body_;
      }
    }
  }
}

/// A Number is kept both ways until the type of the command is known.
void CommandParser::fill_numbers() {
  for (size_t i = 0; i < command_.attrs.size(); ++i) {
    if (op_->attributes()[i].type != AttrType::Number || !command_.attrs[i].present) continue;
    const Value& value = attribute_values_[i];
    command_.attrs[i].f = value.as_double();
    const bool integral = std::abs(value.f) < 9e18 && value.f == std::trunc(value.f);
    command_.attrs[i].i = !value.is_float ? value.i : integral ? static_cast<int64_t>(value.f) : 0;
  }
}

void CommandParser::apply_hints() {
  if (!hints_.dtype && !hints_.shape) return;
  const auto operands = op_->operands();
  if (operands.empty() || operands[0].access != Access::Write || !command_.is_tensor(0))
    throw Mistake{hints_.dtype ? hints_.dtype_token : hints_.shape_token,
                  prefix() + "dtype= and shape= type an undeclared destination, and it has none",
                  {}};
  for (size_t i = 0; i < command_.operand(0).size(); ++i) {
    OperandType& type = types_[i];
    if (hints_.dtype && type.dtype_known && type.dtype != *hints_.dtype)
      throw Mistake{
          hints_.dtype_token,
          fmt::format("{}{} is declared {}, not {}", prefix(), type.name, name_of(type.dtype), name_of(*hints_.dtype)),
          {}};
    if (hints_.shape && type.shape_known && type.shape != *hints_.shape)
      throw Mistake{
          hints_.shape_token,
          fmt::format("{}{} is declared {}, not {}", prefix(), type.name, type.shape.text(), hints_.shape->text()),
          {}};
    if (hints_.dtype) type.dtype = *hints_.dtype, type.dtype_known = true;
    if (hints_.shape) type.shape = *hints_.shape, type.shape_known = true;
  }
}

void CommandParser::check_types() {
  apply_hints();
  columns_.clear();
  if (op_->shape == ShapeRule::Load || op_->shape == ShapeRule::Store) columns_of(command_, context_->module, columns_);
  if (auto broken = infer(command_, types_, columns_)) {
    for (const Name& name : new_names_) {  // a failed declaration has said already what is wrong with it
      const Symbol* const symbol = context_->find(name);
      if (symbol != nullptr && symbol->kind == SymbolKind::Poison &&
          broken->starts_with(fmt::format("{}{} has no ", prefix(), name.text)))
        throw Mistake{name.text, {}, {}};
    }
    for (size_t i = 0; i < attribute_tokens_.size(); ++i) {  // a message about one attribute points at its value
      const std::string about = fmt::format("{}{}=", prefix(), op_->attributes()[i].name);
      if (!attribute_tokens_[i].empty() && broken->substr(0, about.size()) == about)
        throw Mistake{attribute_tokens_[i], *broken, {}};
    }
    throw Mistake{mnemonic_, *broken, {}};
  }
}

/// Number attributes are kept in the type of the command: f64 for floats, i64 for the rest.
void CommandParser::settle_numbers() {
  const int at = command_.number_operand();
  for (size_t i = 0; i < command_.attrs.size(); ++i) {
    AttrValue& value = command_.attrs[i];
    if (op_->attributes()[i].type != AttrType::Number || !value.present) continue;
    const uint32_t id = at < 0 ? kAbsent : command_.ids[static_cast<size_t>(at)];
    const auto& tensors = context_->module.tensors;
    const DType dtype = at < 0                ? DType::F64
                        : id < tensors.size() ? tensors[id].dtype
                                              : types_[static_cast<size_t>(at)].dtype;
    if (is_float(dtype)) {
      value.i = 0;
      continue;
    }
    if (auto wrong = check_fits(dtype, attribute_values_[i]))
      throw Mistake{attribute_tokens_[i], prefix() + *wrong, {}};
    value.f = 0;
  }
}

void CommandParser::declare_new(const Here& here) {
  if (new_names_.empty()) return;
  auto& tensors = context_->module.tensors;
  const size_t known = tensors.size();
  size_t at = 0;
  std::vector<OperandType> found(new_names_.size());
  for (const uint32_t id : command_.ids) {
    const OperandType& type = types_[at++];
    if (id != kAbsent && id >= known && id - known < found.size() && type.dtype_known) found[id - known] = type;
  }
  for (size_t i = 0; i < new_names_.size(); ++i) {
    Tensor& tensor = tensors.emplace_back();
    tensor.name = std::string(new_names_[i].text);
    tensor.dtype = found[i].dtype;
    tensor.shape = found[i].shape;
    tensor.owner = context_->tape;
    const Location location = Reporter::location(here, new_names_[i].text);
    if (!context_->own_places) tensor.location = location;
    context_->privates.set(new_names_[i], {SymbolKind::Tensor, static_cast<uint32_t>(known + i), location});
  }
}

void CommandParser::poison_unresolved() {
  if (context_->tape == kNone) return;
  const auto poison = [&](const Name& name) {
    if (!name.text.empty() && context_->find(name) == nullptr)
      context_->privates.set(name, {SymbolKind::Poison, 0, {}});
  };
  for (const Item& item : items_)
    if (item.kind == Item::Kind::Name) poison(item.name);
  for (const Name& name : names_) poison(name);
  for (const auto& named : named_)
    if (named.second.kind == Item::Kind::Name) poison(named.second.name);
}

}  // namespace tape::text
