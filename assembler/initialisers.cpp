// Names, arguments and conditions of the initialisers.
#include "assembler/initialisers.h"

#include <fmt/format.h>

#include <cmath>

#include "assembler/value.h"

namespace tape::text {
namespace {

constexpr Initialiser kInitialisers[] = {
    {"zeros", InitKind::Zeros, "", "", 0, 0, false, 0},
    {"ones", InitKind::Ones, "", "", 0, 0, false, 0},
    {"fill", InitKind::Fill, "value", "", 0, 0, false, 0},
    {"uniform", InitKind::Uniform, "lo", "hi", 0, 1, true, 0},
    {"normal", InitKind::Normal, "mean", "std", 0, 1, true, 0},
    {"kaiming_uniform", InitKind::KaimingUniform, "", "", 0, 0, true, 2},
    {"kaiming_normal", InitKind::KaimingNormal, "", "", 0, 0, true, 2},
    {"xavier_uniform", InitKind::XavierUniform, "", "", 0, 0, true, 2},
    {"xavier_normal", InitKind::XavierNormal, "", "", 0, 0, true, 2},
    {"orthogonal", InitKind::Orthogonal, "gain", "", 1, 0, true, 2},
    {"iota", InitKind::Iota, "", "", 0, 0, false, 0},
    {"eye", InitKind::Eye, "", "", 0, 0, false, 2},
    {"seeded", InitKind::Seed, "", "", 0, 0, true, 0},  // of an .rng record; .role alone spells it so
};

std::optional<std::string> fill_problem(const Tensor& tensor) {
  const double fill = tensor.init.a;
  const bool integral = std::abs(fill) <= 9007199254740992.0 && fill == std::trunc(fill);
  const Value value = !is_float(tensor.dtype) && integral ? Value::of(static_cast<int64_t>(fill)) : Value::of(fill);
  return check_fits(tensor.dtype, value);
}

}  // namespace

std::span<const Initialiser> initialisers() {
  return kInitialisers;
}

const Initialiser* find_initialiser(std::string_view name) {
  for (const Initialiser& row : kInitialisers)
    if (row.name == name) return &row;
  return nullptr;
}

const Initialiser* find_initialiser(InitKind kind) {
  for (const Initialiser& row : kInitialisers)
    if (row.kind == kind) return &row;
  return nullptr;
}

std::optional<std::string> initialiser_problem(const Tensor& tensor) {
  const Initialiser* const row = find_initialiser(tensor.init.kind);
  if (row == nullptr) return std::nullopt;
  const auto problem = [&](const std::string& message) { return fmt::format("{}: {}", row->name, message); };
  if (row->kind == InitKind::Seed) return problem("an .rng is seeded, nothing else");
  if (row->random && !is_float(tensor.dtype))
    return problem(fmt::format("wants a float tensor, {} is {}", tensor.name, name_of(tensor.dtype)));
  const int rank = tensor.shape.rank();
  if (rank < row->rank || (row->kind == InitKind::Eye && rank != 2))
    return problem(fmt::format("wants rank {}{}, {} is {}", row->rank, row->kind == InitKind::Eye ? "" : " or more",
                               tensor.name, tensor.shape.text()));
  if (row->kind == InitKind::Uniform && !(tensor.init.a <= tensor.init.b))
    return problem(fmt::format("lo={} exceeds hi={}", tensor.init.a, tensor.init.b));
  if (row->kind == InitKind::Normal && !(tensor.init.b >= 0))
    return problem(fmt::format("std={} is negative", tensor.init.b));
  if (row->kind == InitKind::Fill)
    if (const auto wrong = fill_problem(tensor)) return problem(*wrong);
  return std::nullopt;
}

}  // namespace tape::text
