// The order of an assembly: expansion hands over plain lines, declarations act at once, tapes collect their lines; then
// bodies, derivations, numbering, expectations. Every line is its own recovery point.
#include <fmt/format.h>

#include <filesystem>

#include "assembler/assembly.h"
#include "opcodes/limits.h"

namespace tape {

std::optional<Assembly> assemble(std::string_view text, const std::string& file, const AssembleOptions& options,
                                 Diagnostics& diagnostics) {
  return text::Assembler(file, options, diagnostics).run(text);
}

namespace text {
namespace {

constexpr std::string_view kBodyDirectives[] = {".local", ".saved", ".role", ".loc", ".word"};

bool is_body_directive(std::string_view directive) {
  for (const std::string_view known : kBodyDirectives)
    if (known == directive) return true;
  return false;
}

bool is_path(const std::string& file) {
  return !file.empty() && file != "-" && file.front() != '<';
}

std::string folder_of(const std::string& file) {
  return is_path(file) ? std::filesystem::path(file).parent_path().string() : std::string();
}

std::string stem_of(const std::string& file) {
  const std::string stem = is_path(file) ? std::filesystem::path(file).stem().string() : std::string();
  return stem.empty() ? "main" : stem;
}

}  // namespace

Assembler::Assembler(const std::string& file, const AssembleOptions& options, Diagnostics& diagnostics)
    : file_(file),
      options_(options),
      reporter_(context_.sources, chains_, diagnostics),
      preprocessor_(context_, *this, reporter_, chains_,
                    options.include_root.empty() ? folder_of(file) : options.include_root, options.set),
      parser_(context_),
      errors_before_(diagnostics.errors()) {
  if (options_.include_root.empty()) options_.include_root = folder_of(file);
}

std::optional<Assembly> Assembler::run(std::string_view text) {
  context_.module.name = stem_of(file_);
  context_.module.producer = "tapedeck";
  context_.module.folder = folder_of(file_);
  const SourceFile& source = context_.sources.add(file_, folder_of(file_), std::string(text));
  preprocessor_.run_file(source);
  return finish();
}

/// Files and chains the places of the module name; from its records when it has a .line_map.
void Assembler::fill_line_map() {
  if (explicit_lines_) return;
  // Derivations have added chains of their own behind these.
  if (context_.module.chains.size() < chains_.size()) context_.module.chains = chains_;
  context_.module.files.clear();
  for (size_t i = 0; i < context_.sources.size(); ++i) context_.module.files.push_back(context_.sources.file(i).name);
}

std::optional<Assembly> Assembler::finish() {
  if (open_tape_ != kNone) {
    const Body& body = bodies_[open_tape_];
    reporter_.report(body.here, {body.token, fmt::format("the tape {} has no .end", body.token), {}});
    open_tape_ = kNone;
  }
  preprocessor_.finish();
  for (const GradientLink& link : gradient_links_) {
    const Symbol* const of = context_.globals.find(link.of);
    if (of != nullptr && of->kind == SymbolKind::Tape)
      context_.module.tapes[link.tape].gradient_of = of->index;
    else
      reporter_.report(link.here, wrong_name(context_, link.of, "a tape", "",
                                             [](SymbolKind kind) { return kind == SymbolKind::Tape; }));
  }
  assemble_bodies();
  renumber();
  read_expectations();
  if (reporter_.errors() > errors_before_) return std::nullopt;
  fill_line_map();
  return Assembly{std::move(context_.module), std::move(expectations_)};
}

std::span<const Assembler::Directive> Assembler::directives() {
  static constexpr Directive kDirectives[] = {
      {".module", &Assembler::module_name},
      {".tape", &Assembler::begin_tape},
      {".stream", &Assembler::declare_stream},
      {".sink", &Assembler::declare_sink},
      {".grad", &Assembler::gradient_line},
      {".optimizer", &Assembler::optimizer_line},
      {".expect", &Assembler::expect_line},
      {".producer", &Assembler::producer},
      {".line_map", &Assembler::line_map},
      {".chain", &Assembler::chain_record},
      {".loc", &Assembler::loc},
      {".meta", &Assembler::metadata},
      {".section", &Assembler::section},
      {".version", &Assembler::version},
      {".string", &Assembler::string_record},
      {".order", &Assembler::order_record},
  };
  return kDirectives;
}

void Assembler::plain(const Line& line, uint32_t chain) {
  const std::string_view directive = directive_of(line.text);
  const Here here{&line, chain};
  if (open_tape_ != kNone && (directive.empty() || is_body_directive(directive))) return keep_line(line, chain);
  if (directive.empty()) return outside(line, chain);
  Scan scan(line.text, context_.sources);
  scan.accept(directive);
  if (directive == ".end") return end_tape(scan, here);
  statement(scan, directive, here);
}

void Assembler::keep_line(const Line& line, uint32_t chain) {
  std::vector<Segment>& segments = bodies_[open_tape_].segments;
  if (!segments.empty()) {
    Segment& last = segments.back();
    if (last.lines.data() + last.lines.size() == &line && last.chain == chain && last.visible == context_.visible) {
      last.lines = {last.lines.data(), last.lines.size() + 1};
      return;
    }
  }
  segments.push_back({{&line, 1}, chain, context_.visible});
}

void Assembler::outside(const Line& line, uint32_t) {
  Scan scan(line.text, context_.sources);
  if (scan.done() || outside_reported_) return;
  outside_reported_ = true;
  scan.fail(fmt::format("{} stands outside a tape", scan.here()));
}

void Assembler::unknown_directive(std::string_view directive) const {
  std::vector<std::string_view> all{".const", ".include", ".macro", ".for", ".if", ".end"};
  for (const Directive& known : directives()) all.push_back(known.name);
  all.insert(all.end(), std::begin(kBodyDirectives), std::end(kBodyDirectives));
  for (const std::string_view name : {".input", ".param", ".state", ".data", ".output", ".extern", ".rng"})
    all.push_back(name);
  throw Mistake{directive, fmt::format("unknown directive {}{}", directive, did_you_mean(directive, all)), {}};
}

void Assembler::statement(Scan& scan, std::string_view directive, const Here& here) {
  const DeclarationKind* const declaration = find_declaration(directive);
  Handler handler = nullptr;
  for (const Directive& known : directives())
    if (known.name == directive) handler = known.handler;
  if (declaration == nullptr && handler == nullptr) unknown_directive(directive);
  if (open_tape_ != kNone) {
    reporter_.report(
        here,
        {directive, fmt::format("{} inside the tape {}: no .end before it", directive, bodies_[open_tape_].token), {}});
    open_tape_ = kNone;
  }
  if (declaration != nullptr)
    declare(scan, here, *declaration);
  else
    (this->*handler)(scan, here);
}

Location Assembler::place(const Here& here, std::string_view token) {
  if (!explicit_lines_) return Reporter::location(here, token);
  const Location location = loc_.value_or(Location{});
  loc_.reset();
  return location;
}

void Assembler::check_free(const Name& name) const {
  if (name.text.size() > static_cast<size_t>(limits::max_name))
    throw Mistake{name.text,
                  fmt::format("the name has {} bytes, more than {} (max_name)", name.text.size(), limits::max_name),
                  {}};
  const Symbol* const known = context_.find(name);
  if (known == nullptr) return;
  if (known->kind == SymbolKind::Poison) throw Mistake{name.text, {}, {}};
  throw Mistake{name.text,
                fmt::format("{} is already {}", name.text, noun_of(known->kind)),
                {reporter_.note(known->location, "declared here")}};
}

void Assembler::poison(const Name& name, const Here& here) {
  if (context_.find(name) != nullptr) return;
  NameTable& table = context_.tape == kNone ? context_.globals : context_.privates;
  table.set(name, {SymbolKind::Poison, 0, Reporter::location(here, name.text)});
}

TapeId Assembler::add_tape(const Name& name, const Here& here, Filling filling) {
  const auto id = static_cast<TapeId>(context_.module.tapes.size());
  Tape& tape = context_.module.tapes.emplace_back();
  tape.name = std::string(name.text);
  Body& body = bodies_.emplace_back();
  body.filling = filling;
  body.here = here;
  body.token = name.text;
  const Symbol* const known = context_.globals.find(name);
  if (known == nullptr || known->kind == SymbolKind::Poison)
    context_.globals.set(name, {SymbolKind::Tape, id, Reporter::location(here, name.text)});
  return id;
}

void Assembler::tape_options(Scan& scan, const Here& here, TapeId tape) {
  while (!scan.done()) {
    const Name word = scan.want_name("an option of the tape");
    if (word.text != "gradient_of") throw Mistake{word.text, fmt::format("a tape has no option {}", word.text), {}};
    scan.expect('=', "after gradient_of");
    gradient_links_.push_back({tape, scan.want_name("a tape"), here});
  }
}

/// Opens a tape even when its line is wrong, so that its commands are no further mistake.
void Assembler::begin_tape(Scan& scan, const Here& here) {
  outside_reported_ = false;
  const Location location = place(here, scan.here());
  Name name;
  try {
    name = scan.want_name("the tape's name");
  } catch (const Mistake&) {
    open_tape_ = add_tape(Name::of(""), here, Filling::Body);
    bodies_[open_tape_].done = true;
    throw;
  }
  const Symbol* const known = context_.globals.find(name);
  const Symbol before = known != nullptr ? *known : Symbol{};
  open_tape_ = add_tape(name, here, Filling::Body);
  context_.module.tapes[open_tape_].location = location;
  tape_options(scan, here, open_tape_);
  if (before.kind == SymbolKind::None || before.kind == SymbolKind::Poison) return;
  throw Mistake{name.text,
                fmt::format("{} is already {}", name.text, noun_of(before.kind)),
                {reporter_.note(before.location, "declared here")}};
}

void Assembler::end_tape(Scan& scan, const Here& here) {
  if (open_tape_ == kNone) throw Mistake{directive_of(here.line->text), ".end without .tape", {}};
  open_tape_ = kNone;
  scan.expect_end(".end");
}

void Assembler::module_name(Scan& scan, const Here&) {
  context_.module.name = std::string(scan.want_name("the module's name").text);
  scan.expect_end("the module's name");
}

void Assembler::expect_line(Scan&, const Here& here) {
  expect_lines_.push_back(here);
}

}  // namespace text
}  // namespace tape
