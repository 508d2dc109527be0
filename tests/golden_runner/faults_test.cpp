// Every command that stops a golden tape is one of which the plan expects it: the order of writers hangs on that.
#include "opcodes/faults.h"

#include <gtest/gtest.h>

#include "assembler/assembler.h"
#include "embed/backends.h"
#include "files.h"
#include "vm/machine.h"

namespace tape::test {
namespace {

TEST(MayFault, KnowsEveryFaultOfTheGoldenTapes) {
  size_t faults = 0;
  for (const std::string& path : tapes_below("tests/golden")) {
    if (is_bad(path)) continue;
    Diagnostics diagnostics;
    const std::string file = source_path(path);
    std::optional<Assembly> assembly = assemble(read_text(file), file, {}, diagnostics);
    ASSERT_TRUE(assembly) << diagnostics.text();
    const std::optional<VerifiedModule> module = verify(std::move(assembly->module), diagnostics);
    ASSERT_TRUE(module) << diagnostics.text();
    Machine machine(open_backend("cpu", {1, false}));
    const ModuleId id = machine.add(*module);
    for (TapeId tape = 0; tape < module->module().tapes.size(); ++tape) {
      if (!module->facts(tape).playable) continue;
      Prepared prepared = machine.prepare(id, module->module().tapes[tape].name);
      try {
        prepared.run();
      } catch (const Fault& fault) {
        const Plan& plan = prepared.plan();
        std::vector<DType> dtypes;
        for (const OperandType& type : plan.types[fault.command]) dtypes.push_back(type.dtype);
        EXPECT_TRUE(may_fault(plan.commands[fault.command].command, dtypes)) << path << ": " << fault.what();
        ++faults;
      } catch (const Error&) {  // a stream nobody bound
      }
    }
  }
  EXPECT_GE(faults, 28u);
}

}  // namespace
}  // namespace tape::test
