// Cases of one command each, made from the op table: for a row, a dtype and a seed, modules that cover sizes, ranks,
// broadcasting, axes, attributes, optional operands, acc= and destinations that are sources. Operand rules, dtypes and
// shapes come from the table and `infer`; rows whose shapes are related in a way of their own have a recipe by shape
// rule, and a gradient row takes the cases of its forward.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "vm/host_array.h"
#include "vm/verify.h"

namespace tape {

/// What the tensors that a case reads hold. A draw is a function of (seed, tensor name, position).
enum class CaseInputs : uint8_t {
  Normal,    // a bell of mean 0 and deviation 1 (a sum of four uniform numbers); integers of both signs
  Unit,      // (0, 1); small integers that are not negative
  Integers,  // -8 ... 8, so that sums and products are exact in any order
  Edge,      // zeros of both signs, denormals, infinities, NaN, the largest numbers, ties; every second is Normal
};
[[nodiscard]] std::string_view name_of(CaseInputs inputs);

enum class CaseSet : uint8_t {
  All,      // sizes 0, 1, 31, 32, 33, 255, 1025
  Reduced,  // 33 and 1025, one kind of inputs: every row and variation once
};

struct OpCase {
  std::string name;  // "SUM f16 src [33,5] axes=-1 acc=1, edge"
  const OpInfo* op = nullptr;
  DType dtype = DType::F32;  // of the row's type variable
  CaseInputs inputs = CaseInputs::Normal;
  int64_t size = 0;  // of the varying dimension
  /// One entry, tape 0, which plays `op`; all tensors but those of a loop's body are persistent.
  std::shared_ptr<const VerifiedModule> module;
  std::vector<HostArray> values;                // by tensor id, in declared dtype
  std::vector<std::vector<HostArray>> columns;  // by stream: rows of each column
  uint64_t rows = 0;                            // of the streams
};

/// The dtypes a row is played in: those its type variable ranges over, f32 where no operand depends on it.
[[nodiscard]] std::vector<DType> case_dtypes(const OpInfo& op);

/// All cases, in a fixed order; each was verified. Throws Error(Internal) for a recipe that breaks a rule of its row.
[[nodiscard]] std::vector<OpCase> make_op_cases(const OpInfo& op, DType dtype, uint64_t seed, CaseSet set);

}  // namespace tape
