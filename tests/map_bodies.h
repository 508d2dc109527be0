// Random bodies of MAP and MAP_REDUCE over every row that may stand in one, and shapes of their sources.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "opcodes/map_body.h"
#include "vm/host_array.h"

namespace tape::test {

using Random = std::mt19937;

/// Lines of a body that read `x0` ... and write `y` of the dtype wanted, among temporaries of that dtype and others.
class RandomBody {
 public:
  enum class Rows : uint8_t {
    All,
    Exact,    // none whose bits differ between libraries: the functions of f64
    Faulting  // all, and integers are divided by elements
  };

  RandomBody(Random& random, DType dtype, size_t sources, Rows rows = Rows::All)
      : random_(random), dtype_(dtype), rows_(rows) {
    for (size_t i = 0; i < sources; ++i) names_.push_back({fmt::format("x{}", i), dtype});
  }
  std::string lines(int commands) {
    for (int i = 0; i < commands; ++i) line(fmt::format("t{}", i));
    return finish();
  }
  struct Name {
    std::string name;
    DType dtype = DType::F32;
  };
  /// Every row that takes the dtype, once, and a cast to every dtype. The names, sources first.
  const std::vector<Name>& every_row() {
    int i = 0;
    for (const OpInfo& op : kOps)
      if (takes(op, dtype_)) row(op, fmt::format("t{}", i++), dtype_);
    for (const DTypeInfo& to : kDTypes)
      add("CAST", fmt::format("c{}", name_of(to.dtype)), to.dtype, {any(dtype_), fmt::format("dtype={}", to.name)});
    return names_;
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  size_t below(size_t n) { return random_() % n; }
  std::string any(DType dtype) {
    std::vector<std::string> all;
    for (const Name& name : names_)
      if (name.dtype == dtype) all.push_back(name.name);
    return all[below(all.size())];
  }
  bool has(DType dtype) const {
    return std::any_of(names_.begin(), names_.end(), [&](const Name& name) { return name.dtype == dtype; });
  }
  void add(const std::string& op, const std::string& to, DType dtype, const std::vector<std::string>& from) {
    text_ += fmt::format("    {} {}, {}\n", op, to, fmt::join(from, ", "));
    names_.push_back({to, dtype});
  }

  [[nodiscard]] bool takes(const OpInfo& op, DType dtype) const {
    if (!is_body_row(op) || op.opcode == Opcode::Cast || !op.types.has(dtype)) return false;
    return rows_ != Rows::Exact || dtype != DType::F64 || op.bits == Bits::Exact;
  }

  /// A row by its table entry, its operands drawn from what there is.
  void row(const OpInfo& op, const std::string& to, DType dtype) {
    const auto& operands = op.operands();
    std::vector<std::string> from;
    for (const Operand& operand : operands.subspan(1)) {
      if (operand.type == TypeRule::Bool && !has(DType::Bool)) add("NE", to + "b", DType::Bool, {any(dtype), "1"});
      const bool refused = op.has(kFaultEffect) && !is_float(dtype) && rows_ != Rows::Faulting;
      const bool constant = operand.kind == OperandKind::Immediate && (refused || below(3) == 0);
      from.push_back(operand.type == TypeRule::Bool ? any(DType::Bool)
                     : !constant                    ? any(dtype)
                     : is_float(dtype)              ? "0.7"
                     : dtype == DType::Bool         ? "1"
                                                    : "3");
    }
    const bool real = is_float(dtype);
    if (op.attribute("alpha") >= 0) from.emplace_back("alpha=0.3");
    if (op.attribute("lo") >= 0) from.emplace_back(real ? "lo=-0.3" : "lo=2");
    if (op.attribute("hi") >= 0 && below(2) == 0) from.emplace_back(real ? "hi=0.7" : "hi=50");
    if (op.opcode == Opcode::Fill) from = {real ? "value=1.1" : "value=1", fmt::format("dtype={}", name_of(dtype))};
    const DType result = operands[0].type == TypeRule::Bool ? DType::Bool : dtype;
    const std::string first = from[0], second = from.size() > 1 && is_name(from[1]) ? from[1] : from[0];
    add(std::string(op.mnemonic), to, result, from);
    // Adds what has the shape of the row, for those who play the lines one by one.
    if (op.attribute("acc") >= 0 && below(4) == 0)
      text_ += fmt::format("    ADD {}, {}, {}, acc=1\n", to, first, second);
  }
  [[nodiscard]] bool is_name(const std::string& text) const {
    return std::any_of(names_.begin(), names_.end(), [&](const Name& name) { return name.name == text; });
  }

  void line(const std::string& to) {
    if (below(8) == 0) {  // through another dtype and back
      const DType others[] = {DType::F64, DType::F32, DType::F16, DType::BF16, DType::I64,
                              DType::I32, DType::I16, DType::I8,  DType::U8,   DType::Bool};
      const DType other = others[below(std::size(others))];
      add("CAST", to + "c", other, {any(dtype_), fmt::format("dtype={}", name_of(other))});
      return add("CAST", to, dtype_, {to + "c", fmt::format("dtype={}", name_of(dtype_))});
    }
    std::vector<const OpInfo*> rows;
    for (const OpInfo& op : kOps)
      if (takes(op, dtype_) && op.opcode != Opcode::Fill) rows.push_back(&op);  // alone it would want a shape
    row(*rows[below(rows.size())], to, dtype_);
  }

  /// All sources take part, so that the command alone gives the whole shape.
  std::string finish() {
    const bool flag = dtype_ == DType::Bool;
    std::string last;
    for (const Name& name : names_)
      if (name.dtype == dtype_) last = name.name;
    std::string sum = "x0";
    for (size_t i = 1; i < 3 && i < names_.size() && names_[i].name == fmt::format("x{}", i); ++i) {
      add(flag ? "OR" : "MAX", fmt::format("s{}", i), dtype_, {sum, names_[i].name});
      sum = fmt::format("s{}", i);
    }
    add(flag ? "XOR" : "MIN", "y", dtype_, {last, sum});
    return text_;
  }

  Random& random_;
  DType dtype_;
  Rows rows_;
  std::vector<Name> names_;
  std::string text_;
};

inline HostArray random_array(Random& random, DType dtype, const Shape& shape) {
  std::vector<double> values(static_cast<size_t>(shape.elements()));
  for (double& value : values) {
    value = static_cast<double>(static_cast<int32_t>(random())) * 0x1p-30;
    if (is_int(dtype)) value = std::trunc(value * 20) + (dtype == DType::U8 ? 60 : 0);
    if (dtype == DType::Bool) value = static_cast<double>(random() % 2);
    if (is_float(dtype) && random() % 50 == 0)
      value = random() % 2 == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  }
  HostArray result{dtype, shape, std::vector<std::byte>(values.size() * size_of(dtype))};
  convert(std::as_bytes(std::span(values)), DType::F64, result.bytes, dtype);
  return result;
}

struct Shapes {
  std::vector<Shape> sources;
  Shape full;
};
inline const std::vector<Shapes>& shapes() {
  static const std::vector<Shapes> all = {
      {{{}, {}}, {}},
      {{{1}}, {1}},
      {{{3, 5}, {5}}, {3, 5}},
      {{{2, 1, 7}, {3, 1}, {}}, {2, 3, 7}},
      {{{4, 0}, {1}}, {4, 0}},
      {{{0}, {}}, {0}},
      {{{1024}, {1024}}, {1024}},
      {{{1025}, {1}}, {1025}},
      {{{7, 1, 300}, {7, 5, 1}, {5, 300}}, {7, 5, 300}},
      {{{3, 4099}, {3, 1}}, {3, 4099}},
  };
  return all;
}

inline std::string declarations(DType dtype, const Shapes& at) {
  std::string text;
  for (size_t i = 0; i < at.sources.size(); ++i)
    text += fmt::format(".input x{} {}{}\n", i, name_of(dtype), at.sources[i].text());
  return text;
}
inline std::string source_list(const Shapes& at) {
  std::string text;
  for (size_t i = 0; i < at.sources.size(); ++i) text += fmt::format("{}x{}", i == 0 ? "" : ", ", i);
  return text;
}

}  // namespace tape::test
