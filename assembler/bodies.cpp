// Bodies of tapes, in an order that lets derived names be used: a body that names a gradient waits for it, a gradient
// waits for the tape it differentiates and all that tape calls.
#include <fmt/format.h>

#include <algorithm>

#include "assembler/assembly.h"
#include "vm/command_buffer.h"

namespace tape::text {

void Assembler::assemble_bodies() {
  invalid_ = reporter_.errors() > errors_before_;
  const bool derives = !gradients_.empty() || !optimizers_.empty();
  for (TapeId tape = 0; tape < bodies_.size(); ++tape) {
    if (bodies_[tape].filling != Filling::Body || bodies_[tape].done) continue;
    if (derives) find_awaited(bodies_[tape]);
    if (bodies_[tape].awaits.empty()) assemble_body(tape);
  }
  bool progress = derives;
  while (progress) {
    if (reporter_.errors() > errors_before_) context_.quiet_gradients = true;
    progress = false;
    for (TapeId tape = 0; tape < bodies_.size(); ++tape) {
      if (bodies_[tape].done || bodies_[tape].filling != Filling::Body || !resolved(bodies_[tape])) continue;
      assemble_body(tape);
      progress = true;
    }
    if (invalid_) break;
    if (!progress) progress = derive_next();
    if (progress) continue;
    for (TapeId tape = 0; tape < bodies_.size() && !progress; ++tape) {
      if (bodies_[tape].done || bodies_[tape].filling != Filling::Body) continue;
      assemble_body(tape);  // what it waits for never comes
      progress = true;
    }
  }
  for (TapeId tape = 0; tape < bodies_.size(); ++tape)
    if (!bodies_[tape].done && bodies_[tape].filling == Filling::Body) assemble_body(tape);
  check_underived();
}

bool Assembler::resolved(const Body& body) const {
  return std::all_of(body.awaits.begin(), body.awaits.end(), [&](std::string_view name) {
    const Symbol* const symbol = context_.globals.find(Name::of(name));
    return symbol != nullptr && symbol->kind == SymbolKind::Tensor;
  });
}

/// Names that only a derivation declares: gradients, and state of an optimizer.
bool Assembler::is_derived_name(std::string_view name) const {
  if (name.size() > 5 && name.substr(name.size() - 5) == "_grad") return true;
  for (const auto& [derivation, done] : optimizers_) {
    const std::string_view owner = derivation.name.text;
    const size_t at = name.find(owner);
    if (at == std::string_view::npos || (at != 0 && name[at - 1] != '.')) continue;
    if (at + owner.size() < name.size() && name[at + owner.size()] == '.') return true;
  }
  return false;
}

void Assembler::find_awaited(Body& body) {
  for (const Segment& segment : body.segments)
    for (const Line& line : segment.lines) {
      Scan scan(line.text, context_.sources);
      if (!scan.at_name()) continue;
      const OpInfo* const op = find_op(scan.name().text);
      const bool gradients =
          op != nullptr && !op->operands().empty() && op->operands()[0].kind == OperandKind::GradList;
      for (size_t length = code_length(line.text); !scan.done();) {
        if (!scan.at_name()) {
          scan.rewind(scan.position() + 1);
          continue;
        }
        const std::string_view name = scan.name().text;
        if (name.data() >= line.text.data() + length) break;
        if (gradients)
          body.awaits.push_back(context_.sources.keep(std::string(name) + "_grad"));
        else if (is_derived_name(name) && context_.globals.find(Name::of(name)) == nullptr)
          body.awaits.push_back(name);
      }
    }
}

/// A gradient reads saved values of the tape it differentiates, so that one goes first.
void Assembler::assemble_body(TapeId tape) {
  std::vector<TapeId> order;
  for (TapeId at = tape; at < bodies_.size() && !bodies_[at].done; at = context_.module.tapes[at].gradient_of) {
    order.push_back(at);
    bodies_[at].done = true;
  }
  for (; !order.empty(); order.pop_back()) assemble_lines(order.back());
}

/// The lines of a tape, one after another, each with the constants before it made visible.
class Assembler::BodyLines final : public LineFeed {
 public:
  BodyLines(Assembler& assembler, const std::vector<Segment>& segments)
      : assembler_(assembler), segment_(segments.begin()), end_(segments.end()) {}

  [[nodiscard]] bool next(Here& here) override {
    for (; segment_ != end_; ++segment_, at_ = 0) {
      if (at_ == segment_->lines.size()) continue;
      assembler_.context_.visible = segment_->visible;
      latest_ = &segment_->lines[at_++];
      here = {latest_, segment_->chain};
      return true;
    }
    return false;
  }
  void report(const Here& here, const Mistake& mistake) override { assembler_.reporter_.report(here, mistake); }
  [[nodiscard]] const Line* latest() const { return latest_; }
  /// Where the latest line opens a body that nobody has read, goes on behind it.
  void skip_block() {
    std::string_view code = latest_->text.substr(0, code_length(latest_->text));
    while (!code.empty() && is_class(code.back(), kBlank)) code.remove_suffix(1);
    if (!code.ends_with('{')) return;
    Here here;
    while (next(here))
      if (Scan(here.line->text, assembler_.context_.sources).peek() == '}') return;
  }

 private:
  Assembler& assembler_;
  std::vector<Segment>::const_iterator segment_, end_;
  size_t at_ = 0;
  const Line* latest_ = nullptr;
};

void Assembler::assemble_lines(TapeId tape) {
  const Body& body = bodies_[tape];
  context_.tape = tape;
  context_.privates.clear();
  loc_.reset();
  size_t lines = 0;
  for (const Segment& segment : body.segments) lines += segment.lines.size();
  context_.module.tapes[tape].lines.reserve(lines);
  context_.module.tapes[tape].words.reserve(lines * 5);
  BodyLines feed(*this, body.segments);
  Here here;
  while (feed.next(here)) {
    Scan scan(here.line->text, context_.sources);
    if (scan.done()) continue;
    const Line* const line = here.line;
    try {
      body_line(scan, here, tape, feed);
    } catch (const Mistake& mistake) {
      bodies_[tape].failed = invalid_ = true;
      if (!mistake.message.empty()) reporter_.report(here, mistake);
      if (feed.latest() == line) feed.skip_block();
    }
  }
  context_.tape = kNone;
  context_.privates.clear();
  loc_.reset();
}

void Assembler::body_line(Scan& scan, const Here& here, TapeId tape, BodyLines& lines) {
  if (scan.peek() == '.') {
    const std::string_view directive = directive_of(here.line->text);
    scan.accept(directive);
    return body_directive(scan, directive, here, tape);
  }
  const char* const start = scan.position();
  const Command& command = parser_.parse(scan, here, &lines);
  Tape& record = context_.module.tapes[tape];
  const auto word = static_cast<uint32_t>(record.words.size());
  std::string reason;
  if (!encode(command, context_.module, record.words, reason))
    throw Mistake{std::string_view(start, command.op->mnemonic.size()), reason, {}};
  if (!explicit_lines_)
    record.lines.push_back({word, Reporter::location(here, {start, 1})});
  else if (loc_)
    record.lines.push_back({word, *loc_});
  loc_.reset();
}

void Assembler::body_directive(Scan& scan, std::string_view directive, const Here& here, TapeId tape) {
  if (directive == ".loc") return loc(scan, here);
  if (directive == ".word") return words(scan, bodies_[tape]);
  declare(scan, here, *find_declaration(directive));
}

}  // namespace tape::text
