// Random tapes made from the op table: valid by construction, ending by construction, and a function of (seed, number)
// alone. Every command is a case of op_cases.h whose operands are tensors of the tape where one fits, so that a row is
// in the generator from the day it has a recipe. A tape takes its rows, dtypes, sizes and kinds of values from a random
// part of all there are; one row and dtype is in it for sure, another for each number, so that a campaign meets them
// all.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "difftest/op_cases.h"

namespace tape {

struct GenerateOptions {
  uint64_t seed = 1, number = 0;
  unsigned commands = 12;         // at most about so many, gradients not counted
  std::vector<std::string> only;  // mnemonics; empty: every row
};

struct GeneratedTape {
  uint64_t seed = 0, number = 0;
  CaseInputs inputs = CaseInputs::Normal;
  bool differentiated = false;
  /// Entry: tape 0. Every tensor that it reads first holds data, so that its text is the whole case.
  std::shared_ptr<const VerifiedModule> module;
  std::vector<std::pair<std::string, HostArray>> columns;  // of streams, "stream.column"
};

/// Throws Error(Internal) when the verifier refuses what was made: a bug of the generator or of the verifier.
[[nodiscard]] GeneratedTape generate_tape(const GenerateOptions& options);

/// A cell of the coverage table: a row and a dtype it is played in (op_cases.h).
struct RowAndType {
  const OpInfo* op = nullptr;
  DType dtype = DType::F32;
};
[[nodiscard]] const std::vector<RowAndType>& all_rows_and_types();
/// The cell of a command whose tensors have these dtypes, parallel to its ids.
[[nodiscard]] RowAndType cell_of(const Command& command, const Module& module);

}  // namespace tape
