// A backend that only plans: scratch for every ADD, memory as the test says.
#pragma once

#include <memory>
#include <stdexcept>

#include "vm/backend.h"
#include "vm/plan.h"

namespace tape::test {

class PlanningBackend final : public Backend {
 public:
  explicit PlanningBackend(uint64_t memory = uint64_t{1} << 40, bool oracle = false, bool branches = false) {
    capabilities_.name = "planning";
    capabilities_.memory = memory;
    capabilities_.floats_as_f64 = oracle;
    capabilities_.branches = branches;
  }
  [[nodiscard]] const Capabilities& capabilities() const override { return capabilities_; }
  [[nodiscard]] std::unique_ptr<Buffer> allocate(uint64_t) override { return nullptr; }
  void upload(std::byte*, std::span<const std::byte>) override {}
  void download(std::span<std::byte>, const std::byte*) override {}
  [[nodiscard]] Selection select(const Command& command, std::span<const OperandType> types) override {
    return {0, command.op->opcode == Opcode::Add ? static_cast<uint64_t>(types[0].shape.elements()) * 3 : 0};
  }
  [[nodiscard]] std::unique_ptr<Executable> prepare(std::shared_ptr<const Plan>, const Bindings&) override {
    return nullptr;
  }
  void synchronize() override {}

 private:
  Capabilities capabilities_;
};

inline VerifiedModule verified(Module module) {
  Diagnostics diagnostics;
  auto result = verify(std::move(module), diagnostics);
  if (!result) throw std::runtime_error(diagnostics.text());
  return *result;
}

}  // namespace tape::test
