// .expect lines: read after everything else, because values take the dtype and shape of the tensor they are for. The
// .expect error lines are found by a scan of their own, so that texts that do not assemble have them too.
#include <fmt/format.h>

#include <algorithm>

#include "assembler/assembly.h"
#include "vm/command_buffer.h"

namespace tape {
namespace text {
namespace {

/// The three forms begin alike: `.expect error L:C "text"`; false when the line is none of these.
bool read_error(Scan& scan, Expectation& expectation) {
  const char* const start = scan.position();
  if (!scan.at_name() || scan.name().text != "error" || !is_class(scan.peek(), kDigit)) {
    scan.rewind(start);
    return false;
  }
  const auto number = [&] {
    scan.skip();
    const char* const from = scan.position();
    Value value;
    if (auto wrong = parse_literal(scan.number_token(), false, value)) throw Mistake{scan.since(from), *wrong, {}};
    return static_cast<uint32_t>(value.i);
  };
  expectation.kind = Expectation::Kind::Error;
  expectation.line = number();
  scan.expect(':', "between line and column");
  expectation.column = number();
  expectation.text = std::string(scan.string("the message"));
  scan.expect_end("the message");
  return true;
}

}  // namespace

void Assembler::read_expectations() {
  context_.visible = static_cast<uint32_t>(context_.constants.size());
  for (const Here& here : expect_lines_) {
    Scan scan(here.line->text, context_.sources);
    scan.accept(".expect");
    try {
      expectation(scan, here);
    } catch (const Mistake& mistake) {
      if (!mistake.message.empty()) reporter_.report(here, mistake);
    }
  }
}

void Assembler::expectation(Scan& scan, const Here& here) {
  Expectation result;
  result.location = Reporter::location(here, directive_of(here.line->text));
  scan.skip();
  if (!read_error(scan, result)) {
    const Name name = scan.want_name("a tensor");
    if (name.text == "fault" && scan.at_name())
      fault_expectation(scan, result);
    else
      value_expectation(scan, here, name, result);
  }
  expectations_.push_back(std::move(result));
}

void Assembler::fault_expectation(Scan& scan, Expectation& result) {
  const Name op = scan.name();
  if (find_op(op.text) == nullptr) {
    std::vector<std::string_view> all;
    for (const OpInfo& row : kOps) all.push_back(row.mnemonic);
    throw Mistake{op.text, fmt::format("unknown op {}{}", op.text, did_you_mean(upper(op.text), all)), {}};
  }
  result.kind = Expectation::Kind::Fault;
  result.opcode = upper(op.text);
  result.text = std::string(scan.string("the message"));
  scan.expect_end("the message");
}

void Assembler::value_expectation(Scan& scan, const Here& here, Name name, Expectation& result) {
  if (!entry_) entry_ = default_entry();
  TapeId tape = *entry_;
  if (scan.accept(':')) {
    const Symbol* const symbol = context_.globals.find(name);
    if (symbol == nullptr || symbol->kind != SymbolKind::Tape)
      throw wrong_name(context_, name, "a tape", "", [](SymbolKind kind) { return kind == SymbolKind::Tape; });
    tape = symbol->index;
    result.tape = std::string(name.text);
    name = scan.want_name("a tensor");
  }
  if (scan.accept("=="))
    result.kind = Expectation::Kind::Equal;
  else if (scan.accept('~'))
    result.kind = Expectation::Kind::Close;
  else
    scan.fail("expected == or ~ after the tensor");
  const Tensor& tensor = context_.module.tensors[expected_tensor(name, tape, result.tape)];
  result.name = std::string(name.text);
  result.values = {tensor.dtype, tensor.shape, values(scan, here, tensor.dtype, tensor.shape, name.text)};
  while (!scan.done()) {
    const Name key = scan.want_name("atol= or rtol=");
    auto& bound = key.text == "atol" ? result.atol : result.rtol;
    if ((key.text != "atol" && key.text != "rtol") || result.kind != Expectation::Kind::Close)
      throw Mistake{key.text, fmt::format("unexpected {}", key.text), {}};
    scan.expect('=', "after the bound's name");
    bound = number(scan, context_);
  }
}

/// What `tape run` plays: main, else the only tape no other calls.
TapeId Assembler::default_entry() const {
  const Module& module = context_.module;
  std::vector<bool> called(module.tapes.size());
  for (TapeId tape = 0; tape < module.tapes.size(); ++tape) {
    if (module.tapes[tape].name == "main") return tape;
    Decoder decoder(module.tapes[tape].words, module);
    while (!decoder.done()) {
      const Decoded decoded = decoder.next();
      if (decoded.command && decoded.command->op->opcode == Opcode::Call) called[decoded.command->id(0)] = true;
    }
  }
  const auto first = std::find(called.begin(), called.end(), false);
  if (first == called.end() || std::find(first + 1, called.end(), false) != called.end()) return kNone;
  return static_cast<TapeId>(first - called.begin());
}

TensorId Assembler::expected_tensor(const Name& name, TapeId tape, std::string_view tape_name) const {
  const Module& module = context_.module;
  TensorId id = tape == kNone ? kNone : module.find_tensor(name.text, tape);
  if (id == kNone) id = module.find_tensor(name.text);
  if (id != kNone) return id;
  if (reporter_.errors() > errors_before_) throw Mistake{name.text, {}, {}};  // it may have been lost to them
  std::vector<std::string_view> names;
  for (const Tensor& tensor : module.tensors)
    if (tensor.owner == kNone || tensor.owner == tape) names.push_back(tensor.name);
  const std::string where = !tape_name.empty() ? fmt::format(" in the tape {}", tape_name)
                            : tape == kNone    ? " (there is no default entry: write tape:name)"
                                               : "";
  throw Mistake{
      name.text, fmt::format("no tensor is named {}{}{}", name.text, where, did_you_mean(name.text, names)), {}};
}

}  // namespace text

std::vector<Expectation> expected_errors(std::string_view text) {
  std::vector<Expectation> found;
  text::Sources sources;
  for (const text::Line& line : text::split_lines(text, 0)) {
    if (text::directive_of(line.text) != ".expect") continue;
    text::Scan scan(line.text, sources);
    scan.accept(".expect");
    scan.skip();
    Expectation expectation;
    expectation.location = text::Reporter::location({&line, 0}, text::directive_of(line.text));
    try {
      if (text::read_error(scan, expectation)) found.push_back(std::move(expectation));
    } catch (const text::Mistake&) {  // not one: assembling the text says what is wrong with it
    }
  }
  return found;
}

}  // namespace tape
