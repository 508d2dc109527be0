// A plan as the CPU plays it: one step {kernel, Call} a command, cut at loop commands into straight pieces. Everything
// is resolved here; a run calls one function pointer a step and allocates, hashes and looks up nothing.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "cpu_reference/kernel.h"
#include "vm/plan.h"

namespace tape::cpu {

/// A Call of a command as far as its types tell: operands with made-up addresses that may only be compared, distinct
/// for distinct tensors. What select gives the choosers.
[[nodiscard]] Call describe_call(const Command& command, std::span<const OperandType> types,
                                 const Capabilities& capabilities);

class CpuExecutable final : public Executable {
 public:
  CpuExecutable(std::shared_ptr<const Plan> plan, const Bindings& bindings, const Capabilities& capabilities,
                const Chooser* choosers, Context context, bool timed);

  using Executable::run;
  void run(uint64_t times) override;
  void run(uint64_t first, uint64_t last) override { play(first, last); }
  void bind(TensorId tensor, std::byte* address) override;
  [[nodiscard]] std::unique_ptr<Fetch> fetch(std::span<const ByteRange> ranges) override;
  [[nodiscard]] std::optional<FaultRecord> fault() override;
  [[nodiscard]] std::optional<Profile> profile() override;

 private:
  struct Step {
    Kernel kernel = nullptr;
    Call call;
    uint64_t command = 0;  // index into Plan::commands
    bool poisons = false;  // a fill before the command, not the command itself
  };
  /// Straight: steps [first, last). Begin, End: a loop command; `other` is the item of the partner.
  struct Item {
    enum class Kind : uint8_t { Straight, Begin, End } kind = Kind::Straight;
    uint64_t first = 0, last = 0;
    size_t loop = 0, other = 0;
    uint64_t command = 0;  // Begin, End
  };
  struct Loop {
    enum class Kind : uint8_t { Constant, Counted, While } kind = Kind::Constant;
    int64_t count = 0;     // Constant
    int64_t max = 0;       // Counted, While
    View scalar;           // Counted, While
    uint64_t command = 0;  // of its begin
    int64_t left = 0;      // passes after this one, at most
  };

  void build();
  void add_command(uint64_t index);
  void add_step(uint64_t index, Step step);
  void add_loop_item(uint64_t index);
  void add_poison(uint64_t index);
  [[nodiscard]] Call resolve(uint64_t index) const;
  [[nodiscard]] Traffic traffic_of(const Command& command) const;
  [[nodiscard]] std::byte* address_of(TensorId tensor) const;
  [[nodiscard]] Loop make_loop(uint64_t index) const;

  void play(uint64_t first, uint64_t last);
  void play_timed(const Step& step);
  [[nodiscard]] static bool enter(Loop& loop);
  [[nodiscard]] static bool again(Loop& loop);

  std::shared_ptr<const Plan> plan_;
  Bindings bindings_;
  Capabilities capabilities_;
  const Chooser* choosers_;
  Context context_;
  std::vector<Step> steps_;
  std::vector<Item> items_;
  std::vector<Loop> loops_;
  std::vector<size_t> open_;                 // Begin items whose END is still to come, while building
  std::vector<std::vector<TensorId>> born_;  // locals by the command their life begins at, while building with poison
  std::vector<uint64_t> step_at_;            // by command, and one past the last: first step of it or of a later one
  std::vector<size_t> item_at_;              // by command, and one past the last: the item it is in or begins
  std::optional<FaultRecord> fault_;
  uint64_t passes_ = 0;  // since fault() was asked
  bool timed_;           // Executable::profile answers
  Profile profile_;
};

}  // namespace tape::cpu
