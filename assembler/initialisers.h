// The initialisers a text can name: one table for the assembler and the disassembler.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "vm/module.h"

namespace tape::text {

struct Initialiser {
  std::string_view name;
  InitKind kind;
  std::string_view first, second;  // names of Init::a and Init::b; empty when not used
  double a, b;                     // what they are when not given
  bool random;                     // takes seed=, and a float tensor
  int rank;                        // at least; eye: exactly
};

[[nodiscard]] std::span<const Initialiser> initialisers();
[[nodiscard]] const Initialiser* find_initialiser(std::string_view name);
[[nodiscard]] const Initialiser* find_initialiser(InitKind kind);
/// What is wrong with the initialiser of a declared tensor: dtype, rank, range of its arguments.
[[nodiscard]] std::optional<std::string> initialiser_problem(const Tensor& tensor);

}  // namespace tape::text
