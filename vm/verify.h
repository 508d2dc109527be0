// The verifier and its proof object. A VerifiedModule cannot crash the machine, touch memory outside its tensors, loop
// without bound or allocate more than its plan says. Only `verify` makes one; planning takes nothing else.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "vm/diagnostics.h"
#include "vm/module.h"

namespace tape {

/// What verify learns about one tape.
struct TapeFacts {
  bool playable = true;           // false: reads a common local (or saved value) before writing it
  std::string why_not;            // names the tensor and the place
  int64_t inlined_commands = 0;   // after inlining every CALL; saturates above the limit
  int64_t executed_commands = 0;  // one run, loops counted at their bound; saturates
  bool over_limit = false;        // inlining or running it exceeds a limit; `why_not` says which, playable is false
  bool is_called = false;         // some tape calls it
};

class VerifiedModule {
 public:
  [[nodiscard]] const Module& module() const { return *module_; }
  [[nodiscard]] const TapeFacts& facts(TapeId tape) const { return facts_[tape]; }
  /// The tape `tape run FILE` plays: `main`, else the only tape no other tape calls; kNone when there is no such one.
  [[nodiscard]] TapeId default_entry() const;

 private:
  friend std::optional<VerifiedModule> verify(Module module, Diagnostics& diagnostics);
  VerifiedModule(Module module, std::vector<TapeFacts> facts)
      : module_(std::make_shared<const Module>(std::move(module))), facts_(std::move(facts)) {}
  std::shared_ptr<const Module> module_;
  std::vector<TapeFacts> facts_;
};

/// Checks everything format.md promises; reports all mistakes. nullopt when there is one.
[[nodiscard]] std::optional<VerifiedModule> verify(Module module, Diagnostics& diagnostics);

}  // namespace tape
