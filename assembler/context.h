// Context: what a line is read against: the module so far, the names it may use, the constants before it.
#pragma once

#include <optional>
#include <vector>

#include "assembler/scan.h"
#include "vm/module.h"

namespace tape::text {

struct Context {
  Sources sources;
  Module module;
  NameTable globals;
  NameTable privates;               // of the tape whose body is being read
  std::vector<Value> constants;     // Symbol::index of a constant
  uint32_t visible = 0;             // constants before the line; later ones may not be used yet
  TapeId tape = kNone;              // whose body it is
  bool quiet_gradients = false;     // gradients could not be derived: a missing one is no new mistake
  bool own_places = false;          // places come from .loc lines alone
  const Context* around = nullptr;  // of the body of a MAP: whose constants it may use; `constants` is a copy

  [[nodiscard]] const Symbol* find(const Name& name) const {
    if (const Symbol* symbol = privates.find(name)) return symbol;
    const Symbol* const symbol = globals.find(name);
    if (symbol != nullptr || around == nullptr) return symbol;
    const Symbol* const outer = around->find(name);
    return outer != nullptr && outer->kind == SymbolKind::Constant ? outer : nullptr;
  }
};

/// "; did you mean pixels?", or nothing.
[[nodiscard]] std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& candidates);

/// The mistake of naming something that is not there, or is something else; without a message (already reported) when
/// its declaration failed. `wanted`: "a tensor".
[[nodiscard]] Mistake wrong_name(const Context& context, const Name& name, std::string_view wanted,
                                 std::string_view prefix, bool (*kinds)(SymbolKind));

/// A constant expression.
[[nodiscard]] Value expression(Scan& scan, const Context& context);
/// Its value as an integer; a float is a mistake. `what`: "rows=".
[[nodiscard]] int64_t integer(Scan& scan, const Context& context, std::string_view what);
[[nodiscard]] double number(Scan& scan, const Context& context);
/// A literal, a constant or an expression in parentheses, as value lists have them: `1 -2` is two. `literal` is set to
/// the literal's token, `negative` to its sign.
[[nodiscard]] Value element(Scan& scan, const Context& context, std::string_view& literal, bool& negative);

/// "[2, B]"; each dimension an expression. `star`: the first is `*` and left out.
[[nodiscard]] Shape shape_of(Scan& scan, const Context& context, bool star);
/// "f32"; throws with a suggestion.
[[nodiscard]] DType dtype_of(Scan& scan);

}  // namespace tape::text
