// Every row has a kernel in every dtype of its type sets. Nothing is played: the planner asks the card to select.
#include <gtest/gtest.h>

#include <cstdio>
#include <set>

#include "difftest/op_cases.h"
#include "tests/gpu/sides.h"
#include "vm/passes/passes.h"
#include "vm/plan.h"

namespace tape::test {
namespace {

TEST(GpuLowering, EveryRowHasAKernelInEveryDtype) {
  SKIP_WITHOUT_CARD();
  const std::unique_ptr<Backend> card = backend_of("cuda");
  std::set<std::string_view> planned;  // rows, also those that only appear beside another
  size_t cases = 0;
  for (const OpInfo& op : kOps) {
    for (const DType dtype : case_dtypes(op))
      for (const OpCase& each : make_op_cases(op, dtype, 1, CaseSet::Reduced)) {
        ++cases;
        try {
          const auto plan = make_plan(verified(inline_entry(*each.module, 0).module), *card, {});
          for (const PlacedCommand& placed : plan->commands) planned.insert(placed.command.op->mnemonic);
        } catch (const Error& error) {
          ADD_FAILURE() << each.name << ": " << error.what();
        }
      }
  }
  for (const OpInfo& op : kOps)
    EXPECT_TRUE(op.opcode == Opcode::Call || planned.count(op.mnemonic) != 0) << op.mnemonic << " has no case";
  std::printf("%zu cases of %zu rows\n", cases, planned.size());
}

}  // namespace
}  // namespace tape::test
