// Assembler: the state of one assembly. Lines come from the preprocessor; declarations act at once, bodies are kept and
// read in call order, gradients and optimizers are derived between them, expectations are read last.
#pragma once

#include <memory>
#include <unordered_map>

#include "assembler/assembler.h"
#include "assembler/canonical.h"
#include "assembler/command_parser.h"
#include "assembler/preprocess.h"
#include "vm/passes/passes.h"

namespace tape::text {

class Assembler final : private LineSink {
 public:
  Assembler(const std::string& file, const AssembleOptions& options, Diagnostics& diagnostics);
  std::optional<Assembly> run(std::string_view text);

 private:
  /// Lines of a body that stand one after another and were reached the same way.
  struct Segment {
    std::span<const Line> lines;
    uint32_t chain = 0;
    uint32_t visible = 0;  // constants before them
  };
  enum class Filling : uint8_t { Body, Gradient, Optimizer };
  struct Body {
    Filling filling = Filling::Body;
    std::vector<Segment> segments;
    Here here;  // of its .tape, .grad or .optimizer line
    std::string_view token;
    bool done = false;
    bool failed = false;                             // some of its lines are wrong, so names may be missing
    std::vector<std::pair<uint32_t, uint32_t>> raw;  // [first, last) words written by .word
    std::vector<std::string_view> awaits;            // names that only a derivation declares
  };
  /// `name=value, ...` of a .grad or .optimizer line, read where it stands, resolved when it is derived.
  struct Derivation {
    TapeId tape = kNone;
    Here here;
    Name name;
    struct Argument {
      std::string_view key;
      std::vector<Name> names;     // loss=a,b; a name alone is one
      std::optional<Value> value;  // a number
      bool all = false;            // params=*
      std::string_view token;
    };
    std::vector<Argument> arguments;
    [[nodiscard]] const Argument* find(std::string_view key) const;
  };
  struct Declared {
    Tensor tensor;
    std::vector<std::byte> bytes;
    bool has_bytes = false;
    bool raw = false;
    std::string_view type_token;
  };

  // assemble.cpp
  void plain(const Line& line, uint32_t chain) override;
  using Handler = void (Assembler::*)(Scan&, const Here&);
  struct Directive {
    std::string_view name;
    Handler handler;
  };
  static std::span<const Directive> directives();
  void statement(Scan& scan, std::string_view directive, const Here& here);
  void keep_line(const Line& line, uint32_t chain);
  void outside(const Line& line, uint32_t chain);
  [[noreturn]] void unknown_directive(std::string_view directive) const;
  void begin_tape(Scan& scan, const Here& here);
  void end_tape(Scan& scan, const Here& here);
  void tape_options(Scan& scan, const Here& here, TapeId tape);
  void expect_line(Scan& scan, const Here& here);
  void gradient_line(Scan& scan, const Here& here);
  void optimizer_line(Scan& scan, const Here& here);
  TapeId add_tape(const Name& name, const Here& here, Filling filling);
  void module_name(Scan& scan, const Here& here);
  void check_free(const Name& name) const;
  void poison(const Name& name, const Here& here);
  [[nodiscard]] Location place(const Here& here, std::string_view token);
  void fill_line_map();
  std::optional<Assembly> finish();

  // declarations.cpp
  struct DeclarationKind;
  static std::span<const DeclarationKind> declaration_kinds();
  static const DeclarationKind* find_declaration(std::string_view directive);
  void declare(Scan& scan, const Here& here, const DeclarationKind& kind);
  void read_declaration(Scan& scan, const Here& here, const DeclarationKind& kind, Declared& declared);
  void read_options(Scan& scan, const Here& here, const DeclarationKind& kind, Declared& declared);
  void read_option(Scan& scan, const DeclarationKind& kind, Declared& declared, const Name& key);
  void read_initialiser(Scan& scan, const Name& word, Declared& declared);
  void read_values(Scan& scan, const Here& here, Declared& declared);
  uint32_t raw_id(Scan& scan);
  uint32_t tensor_reference(Scan& scan);
  void declare_stream(Scan& scan, const Here& here);
  [[nodiscard]] bool read_columns(Scan& scan, const Here& here, Stream& stream);
  void declare_cursor(const Name& stream_name, const Here& here, Stream& stream);
  Column read_column(Scan& scan, const Here& here);
  void declare_sink(Scan& scan, const Here& here);
  uint32_t add_blob(std::vector<std::byte> bytes);

  // values.cpp
  std::vector<std::byte> values(Scan& scan, const Here& here, DType dtype, const Shape& shape, std::string_view what);
  std::vector<std::byte> file_values(Scan& scan, const Here& here, DType dtype, const Shape& shape,
                                     std::string_view what);
  std::vector<std::byte> hex_values(Scan& scan, uint64_t wanted, std::string_view what);

  // records.cpp: what only a disassembled text says
  void producer(Scan& scan, const Here& here);
  void line_map(Scan& scan, const Here& here);
  void own_places();
  void chain_record(Scan& scan, const Here& here);
  void loc(Scan& scan, const Here& here);
  [[nodiscard]] Location read_location(Scan& scan);
  void metadata(Scan& scan, const Here& here);
  void section(Scan& scan, const Here& here);
  void version(Scan& scan, const Here& here);
  void string_record(Scan& scan, const Here& here);
  void order_record(Scan& scan, const Here& here);
  void words(Scan& scan, Body& body);

  // bodies.cpp
  void assemble_bodies();
  void assemble_body(TapeId tape);
  void assemble_lines(TapeId tape);
  class BodyLines;
  void body_line(Scan& scan, const Here& here, TapeId tape, BodyLines& lines);
  void body_directive(Scan& scan, std::string_view directive, const Here& here, TapeId tape);
  void find_awaited(Body& body);
  [[nodiscard]] bool is_derived_name(std::string_view name) const;
  [[nodiscard]] bool resolved(const Body& body) const;

  // derive.cpp
  void declare_derivation(Scan& scan, const Here& here, Filling filling);
  void read_argument(Scan& scan, Derivation& derivation, std::span<const std::string_view> known);
  void check_optimizer(const Derivation& derivation) const;
  [[nodiscard]] TapeId differentiated(const Derivation& derivation) const;
  [[nodiscard]] bool ready(TapeId tape) const;
  [[nodiscard]] bool derive_next();
  void derive(const Derivation& derivation, Filling filling);
  void check_underived();
  [[nodiscard]] GradientSpec gradient_spec(const Derivation& derivation) const;
  [[nodiscard]] OptimizerSpec optimizer_spec(const Derivation& derivation) const;
  [[nodiscard]] std::vector<TensorId> tensors_of(const Derivation::Argument& argument, TapeId tape) const;
  void adopt(Module module);

  // expectations.cpp
  void read_expectations();
  void expectation(Scan& scan, const Here& here);
  void fault_expectation(Scan& scan, Expectation& result);
  void value_expectation(Scan& scan, const Here& here, Name name, Expectation& result);
  [[nodiscard]] TapeId default_entry() const;
  [[nodiscard]] TensorId expected_tensor(const Name& name, TapeId tape, std::string_view tape_name) const;

  // renumber.cpp
  void renumber();

  Context context_;
  std::string file_;
  AssembleOptions options_;
  std::vector<ChainLink> chains_;  // of the expansions
  Reporter reporter_;
  Preprocessor preprocessor_;
  CommandParser parser_;
  std::vector<Body> bodies_;                                         // one per tape
  TapeId open_tape_ = kNone;                                         // whose lines are being collected
  std::vector<std::pair<Derivation, bool>> gradients_, optimizers_;  // and whether they are done
  std::vector<Here> expect_lines_;
  std::vector<Expectation> expectations_;
  struct GradientLink {
    TapeId tape;
    Name of;
    Here here;
  };
  std::vector<GradientLink> gradient_links_;
  size_t errors_before_ = 0;
  bool invalid_ = false;           // no derivation can be tried any more: a body is wrong, or the module
  std::optional<TapeId> entry_;    // of expectations that name no tape, once it was looked for
  bool outside_reported_ = false;  // a command outside a tape: once per gap
  bool explicit_lines_ = false;    // .line_map: places come from .loc lines alone
  bool raw_strings_ = false;
  std::optional<Location> loc_;
  std::vector<uint32_t> order_;
  std::vector<TensorId> raw_links_;  // tensors and streams whose reference is a final id already
  std::vector<uint32_t> raw_cursors_;
};

}  // namespace tape::text
