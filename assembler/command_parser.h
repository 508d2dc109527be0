// CommandParser: one line of text to one command, driven by the op table alone. Undeclared destinations get their dtype
// and shape from inference. Used by the assembler, and by the disassembler to see that what it prints reads back.
#pragma once

#include <memory>
#include <optional>

#include "assembler/context.h"
#include "opcodes/command.h"
#include "opcodes/infer.h"

namespace tape::text {

/// The lines behind a command, which the body of a MAP is read from.
class LineFeed {
 public:
  /// The next line; false when there is none.
  [[nodiscard]] virtual bool next(Here& here) = 0;
  virtual void report(const Here& here, const Mistake& mistake) = 0;

 protected:
  ~LineFeed() = default;
};

class CommandParser {
 public:
  explicit CommandParser(Context& context);
  ~CommandParser();
  CommandParser(const CommandParser&) = delete;
  CommandParser& operator=(const CommandParser&) = delete;

  /// Reads a command; valid until the next call. Declares its undeclared destinations as locals of the context's tape.
  /// Throws Mistake; names it could not resolve are poisoned then, so that they are reported once. A body is read from
  /// `feed`, up to its closing brace, and its mistakes are reported there.
  const Command& parse(Scan& scan, const Here& here, LineFeed* feed = nullptr);

 private:
  /// A positional operand, or what stands behind `name=`.
  struct Item {
    enum class Kind : uint8_t { Name, Number, List, String } kind = Kind::Name;
    Name name;           // Name
    Value value;         // Number
    uint32_t first = 0;  // List: into names_ and values_
    uint32_t count = 0;
    std::string_view token;  // where it stands
  };
  struct Hints {
    std::optional<DType> dtype;
    std::optional<Shape> shape;
    std::string_view dtype_token, shape_token;
  };

  void start(const OpInfo& op);
  [[nodiscard]] const OpInfo& mnemonic(Scan& scan);
  void read_items(Scan& scan);
  void read_named(Scan& scan, const Name& name);
  [[nodiscard]] Item read_item(Scan& scan);
  [[nodiscard]] Item read_list(Scan& scan);
  void read_attribute(Scan& scan, size_t at);
  void read_int_list(Scan& scan, size_t at, AttrValue& value);
  [[nodiscard]] int64_t string_id(std::string_view text);
  void read_enum(Scan& scan, const Attribute& attribute, AttrValue& value);
  [[noreturn]] void unknown_attribute(const Name& name) const;

  void assign();
  void assign_named_operands();
  void take(size_t operand, const Item& item);
  void take_immediate(size_t operand, const Item& item);
  [[nodiscard]] bool take_loop_count();
  [[nodiscard]] std::string wanted_operands() const;
  [[noreturn]] void wrong_count(size_t got) const;
  [[nodiscard]] uint32_t resolve(const Operand& operand, Access access, const Name& name);
  [[nodiscard]] uint32_t resolve_tensor(Access access, const Name& name, bool gradient);
  [[nodiscard]] uint32_t resolve_other(const Name& name, SymbolKind kind, std::string_view noun);

  // map_body.cpp
  struct BodyScope;
  void read_body(Scan& scan, LineFeed* feed);
  void open_body();
  [[nodiscard]] std::vector<Command> body_commands(LineFeed& feed);
  void number_slots(std::vector<Command> commands);
  [[nodiscard]] std::vector<Name> listed(size_t operand) const;

  [[nodiscard]] bool known_signature();
  void fill_numbers();
  void fill_types();
  void apply_hints();
  void check_types();
  void settle_numbers();
  void declare_new(const Here& here);
  void poison_unresolved();
  [[nodiscard]] std::string prefix() const;

  Context* context_;
  NameTable mnemonics_;  // spelling -> row
  NameTable strings_;    // text -> index into Module::strings, of the first known_strings_
  uint32_t known_strings_ = 0;
  Command command_;
  const OpInfo* op_ = nullptr;
  std::string_view mnemonic_;
  std::vector<Item> items_;
  std::vector<Name> names_;                         // elements of bracketed lists
  std::vector<std::vector<uint32_t>> ids_;          // per operand
  std::vector<std::pair<size_t, Item>> named_;      // optional operands
  std::vector<std::string_view> attribute_tokens_;  // per attribute: its value, empty when not given
  std::vector<Value> attribute_values_;             // per attribute, Number ones
  int body_at_ = -1;                                // the attribute that is a body, if the row has one
  bool in_body_ = false;                            // reads the body of a MAP: rows of a body only, all scalars
  std::unique_ptr<BodyScope> body_;
  bool named_seen_ = false;  // an attribute or optional operand was read: no positional one may follow
  /// A command that fitted: its row, the types of its operands and its attributes, and the types inferred for it.
  struct Fitting {
    std::vector<uint64_t> signature;
    std::vector<OperandType> types;  // only when it declared something; names are void
  };
  std::vector<Fitting> fitting_ = std::vector<Fitting>(256);
  std::vector<uint64_t> signature_;
  size_t signature_slot_ = 0;
  Hints hints_;
  std::vector<Name> new_names_;
  std::vector<OperandType> types_;
  std::vector<ColumnType> columns_;
};

/// What the columns of the stream (or the row of the sink) of a command are, for inference.
void columns_of(const Command& command, const Module& module, std::vector<ColumnType>& columns);

}  // namespace tape::text
