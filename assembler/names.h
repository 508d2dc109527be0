// Names: their characters and spelling, and the hash table of everything a text can name. A name is hashed once, where
// it is read.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "vm/diagnostics.h"

namespace tape::text {

enum CharClass : uint8_t { kNameStart = 1, kNameRest = 2, kDigit = 4, kBlank = 8 };
inline constexpr std::array<uint8_t, 256> kCharClass = [] {
  std::array<uint8_t, 256> table{};
  for (int c = 'a'; c <= 'z'; ++c) table[static_cast<size_t>(c)] = kNameStart | kNameRest;
  for (int c = 'A'; c <= 'Z'; ++c) table[static_cast<size_t>(c)] = kNameStart | kNameRest;
  for (int c = '0'; c <= '9'; ++c) table[static_cast<size_t>(c)] = kNameRest | kDigit;
  table['_'] = kNameStart | kNameRest;
  table['.'] = kNameRest;
  table[' '] = table['\t'] = table['\r'] = table['\v'] = table['\f'] = kBlank;
  return table;
}();
[[nodiscard]] inline bool is_class(char c, uint8_t classes) {
  return (kCharClass[static_cast<unsigned char>(c)] & classes) != 0;
}

/// Whether the text is a name as docs/text.md spells them, and not a reserved one.
[[nodiscard]] bool is_plain_name(std::string_view name);
[[nodiscard]] bool is_reserved(std::string_view name);
/// The name as the text spells it: itself, or quoted with escapes.
[[nodiscard]] std::string spelled(std::string_view name);
/// "..." with \" \\ \n \t \r and \xNN for everything that is not printable ASCII.
[[nodiscard]] std::string quoted(std::string_view text);

[[nodiscard]] inline uint32_t hash_step(uint32_t hash, char c) {
  return (hash ^ static_cast<unsigned char>(c)) * 16777619u;
}
inline constexpr uint32_t kHashStart = 2166136261u;
[[nodiscard]] inline uint32_t hash_of_name(std::string_view name) {
  uint32_t hash = kHashStart;
  for (const char c : name) hash = hash_step(hash, c);
  return hash;
}

/// A name with its hash.
struct Name {
  std::string_view text;
  uint32_t hash = 0;
  static Name of(std::string_view text) { return {text, hash_of_name(text)}; }
};

enum class SymbolKind : uint8_t {
  None,
  Tensor,
  Constant,
  Tape,
  Stream,
  Sink,
  Poison,  // its declaration failed: naming it is no new mistake
};
[[nodiscard]] std::string_view noun_of(SymbolKind kind);

struct Symbol {
  SymbolKind kind = SymbolKind::None;
  uint32_t index = 0;
  Location location;
};

/// Open addressing; keys are views that must outlive the table.
class NameTable {
 public:
  [[nodiscard]] const Symbol* find(const Name& name) const {
    if (slots_.empty()) return nullptr;
    for (size_t at = name.hash & mask_;; at = (at + 1) & mask_) {
      const Slot& slot = slots_[at];
      if (slot.symbol.kind == SymbolKind::None) return nullptr;
      if (slot.name.hash == name.hash && same(slot.name.text, name.text)) return &slot.symbol;
    }
  }
  /// Adds or replaces.
  void set(const Name& name, const Symbol& symbol);
  void clear();
  /// All names of some kinds, for suggestions.
  void collect(std::vector<std::string_view>& names, bool (*wanted)(SymbolKind)) const;

 private:
  struct Slot {
    Name name;
    Symbol symbol;
  };
  /// Names are short: a loop beats a call.
  static bool same(std::string_view a, std::string_view b) {
    if (a.size() != b.size()) return false;
    for (size_t i = 0; i < a.size(); ++i)
      if (a[i] != b[i]) return false;
    return true;
  }
  void grow();
  std::vector<Slot> slots_;
  size_t mask_ = 0, count_ = 0;
};

}  // namespace tape::text
