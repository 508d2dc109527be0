// Playing a plan command by command on any backend, so that somebody may look, or meddle, in between. Loops around a
// command that is looked at are walked by the host.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "vm/backend.h"
#include "vm/plan.h"

namespace tape {

/// One tensor operand of a command and where its bytes lie.
struct StepOperand {
  TensorId id = kNone;
  std::byte* address = nullptr;  // of the backend
  DType dtype = DType::F32;      // as stored
  Shape shape;
  Access access = Access::Read;
  [[nodiscard]] uint64_t elements() const { return static_cast<uint64_t>(shape.elements()); }
  [[nodiscard]] uint64_t bytes() const { return elements() * size_of(dtype); }
};

class SteppingExecutable : public Executable {
 public:
  /// `backend` outlives it.
  SteppingExecutable(std::unique_ptr<Executable> inner, Backend& backend, std::shared_ptr<const Plan> plan,
                     const Bindings& bindings);

  using Executable::run;
  void run(uint64_t times) final;
  void run(uint64_t first, uint64_t last) final { play(first, last); }
  void bind(TensorId tensor, std::byte* address) override;
  [[nodiscard]] std::unique_ptr<Fetch> fetch(std::span<const ByteRange> ranges) final;
  [[nodiscard]] std::optional<FaultRecord> fault() final;
  [[nodiscard]] std::optional<Profile> profile() final { return inner_->profile(); }

 protected:
  /// Whether `step` plays a command; the others are played in pieces between them. Not asked for loops.
  [[nodiscard]] virtual bool stops_at(uint64_t) const { return true; }
  /// Plays one command, by pass_on(index, index + 1).
  virtual void step(uint64_t index) = 0;

  /// Before each run of the whole plan.
  virtual void begin_pass() {}

  /// Plays commands as they are and waits for them.
  void pass_on(uint64_t first, uint64_t last);
  /// As if the command had faulted.
  void stop(FaultRecord record);
  [[nodiscard]] bool faulted() const { return fault_.has_value(); }
  [[nodiscard]] const Plan& plan() const { return *plan_; }
  [[nodiscard]] const Bindings& bindings() const { return bindings_; }
  [[nodiscard]] Backend& backend() const { return *backend_; }
  [[nodiscard]] const Module& module() const { return plan_->module.module(); }
  [[nodiscard]] std::byte* address_of(TensorId tensor) const;
  [[nodiscard]] std::vector<StepOperand> operands_of(uint64_t index) const;

 private:
  void play(uint64_t first, uint64_t last);
  void loop(uint64_t head, uint64_t end);
  [[nodiscard]] int64_t scalar_of(uint64_t head) const;

  std::unique_ptr<Executable> inner_;
  Backend* backend_;
  std::shared_ptr<const Plan> plan_;
  Bindings bindings_;
  std::optional<FaultRecord> fault_;
  uint64_t passes_ = 0;  // since fault() was asked
};

/// Another backend with everything as it is; who derives from it makes executables of its own.
class SteppingBackend : public Backend {
 public:
  explicit SteppingBackend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}
  [[nodiscard]] const Capabilities& capabilities() const override { return inner_->capabilities(); }
  [[nodiscard]] std::unique_ptr<Buffer> allocate(uint64_t bytes) override { return inner_->allocate(bytes); }
  void upload(std::byte* to, std::span<const std::byte> from) override { inner_->upload(to, from); }
  [[nodiscard]] bool initialise(std::byte* to, const Initialiser& initialiser) override {
    return inner_->initialise(to, initialiser);
  }
  void download(std::span<std::byte> to, const std::byte* from) override { inner_->download(to, from); }
  [[nodiscard]] Selection select(const Command& command, std::span<const OperandType> types) override {
    return inner_->select(command, types);
  }
  void synchronize() override { inner_->synchronize(); }

 protected:
  [[nodiscard]] Backend& inner() const { return *inner_; }

 private:
  std::unique_ptr<Backend> inner_;
};

}  // namespace tape
