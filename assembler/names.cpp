// Spelling of names and the symbol table.
#include "assembler/names.h"

#include <fmt/format.h>

#include <algorithm>

namespace tape::text {

bool is_reserved(std::string_view name) {
  return name == "inf" || name == "nan" || name == "min" || name == "max";
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && is_class(name[0], kNameStart) && !is_reserved(name) &&
         std::all_of(name.begin(), name.end(), [](char c) { return is_class(c, kNameRest); });
}

std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      result += {'\\', c};
    else if (c == '\n')
      result += "\\n";
    else if (c == '\t')
      result += "\\t";
    else if (c == '\r')
      result += "\\r";
    else if (byte < 0x20 || byte >= 0x7f)
      result += fmt::format("\\x{:02x}", byte);
    else
      result += c;
  }
  return result + '"';
}

std::string spelled(std::string_view name) {
  return is_plain_name(name) ? std::string(name) : quoted(name);
}

std::string_view noun_of(SymbolKind kind) {
  switch (kind) {
    case SymbolKind::Tensor:
      return "a tensor";
    case SymbolKind::Constant:
      return "a constant";
    case SymbolKind::Tape:
      return "a tape";
    case SymbolKind::Stream:
      return "a stream";
    case SymbolKind::Sink:
      return "a sink";
    case SymbolKind::None:
    case SymbolKind::Poison:
      break;
  }
  return "nothing";
}

void NameTable::set(const Name& name, const Symbol& symbol) {
  if ((count_ + 1) * 2 > slots_.size()) grow();
  size_t at = name.hash & mask_;
  while (slots_[at].symbol.kind != SymbolKind::None &&
         (slots_[at].name.hash != name.hash || slots_[at].name.text != name.text))
    at = (at + 1) & mask_;
  if (slots_[at].symbol.kind == SymbolKind::None) ++count_;
  slots_[at] = {name, symbol};
}

void NameTable::clear() {
  slots_.clear();
  mask_ = count_ = 0;
}

void NameTable::grow() {
  std::vector<Slot> old(std::max<size_t>(32, slots_.size() * 2));
  old.swap(slots_);
  mask_ = slots_.size() - 1;
  count_ = 0;
  for (const Slot& slot : old)
    if (slot.symbol.kind != SymbolKind::None) set(slot.name, slot.symbol);
}

void NameTable::collect(std::vector<std::string_view>& names, bool (*wanted)(SymbolKind)) const {
  for (const Slot& slot : slots_)
    if (slot.symbol.kind != SymbolKind::None && wanted(slot.symbol.kind)) names.push_back(slot.name.text);
  std::sort(names.begin(), names.end());
}

}  // namespace tape::text
