// The memory plan of one entry: liveness of locals and scratch over command indices, extended round loops, then best
// fit into one arena (vm/arena.h), then the order that bytes ask for. Two tensors that are live at the same command
// never share a byte; sizes are checked in 64 bits.
#include "vm/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "opcodes/faults.h"
#include "vm/arena.h"
#include "vm/checks.h"
#include "vm/error.h"
#include "vm/hazards.h"

namespace tape {
namespace {

constexpr uint64_t kAlignment = 256;
constexpr size_t kAgain = 2048;                       // commands of a tape whose passes are ordered command by command
constexpr uint64_t kSmallArena = uint64_t{32} << 20;  // a card's cache holds it

uint64_t checked_add(uint64_t a, uint64_t b, const Capabilities& capabilities) {
  uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum))
    throw Error(Code::Limit, fmt::format("the plan needs more than 2^64 bytes; backend {} has {} bytes",
                                         capabilities.name, capabilities.memory));
  return sum;
}

uint64_t aligned(uint64_t bytes) {
  return (std::max<uint64_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
}

bool is_loop(const Command& command) {
  return command.op->opcode == Opcode::Repeat || command.op->opcode == Opcode::While;
}

class Planner {
 public:
  Planner(const VerifiedModule& inlined, Backend& backend, const PlanOptions& options)
      : backend_(backend), capabilities_(backend.capabilities()), plan_(std::make_shared<Plan>(inlined)) {
    plan_->options = options;
    plan_->commands = commands_of(module(), module().tapes[0]);
  }

  std::shared_ptr<const Plan> run() {
    type_operands();
    match_loops();
    make_views();
    select();
    plan_->checked = repeated_checks(module(), plan_->commands, plan_->types, plan_->matching);
    measure();
    find_lives();
    lay_out();
    check_memory();
    const Order found = order(false);
    plan_->before = found.before();
    plan_->before_ends = found.ends();
    if (capabilities_.branches && count() <= kAgain) find_again();
    return plan_;
  }

 private:
  [[nodiscard]] const Module& module() const { return plan_->module.module(); }
  [[nodiscard]] size_t count() const { return plan_->commands.size(); }
  [[nodiscard]] const Command& command(size_t i) const { return plan_->commands[i].command; }

  void type_operands() {
    plan_->types.resize(count());
    for (size_t i = 0; i < count(); ++i) {
      const Command& at = command(i);
      plan_->types[i].resize(at.ids.size());
      for_each_tensor(at, [&](size_t position, TensorId id, Access) {
        const Tensor& tensor = module().tensors[id];
        plan_->types[i][position] = {tensor.name, tensor.dtype, tensor.shape, true, true};
      });
    }
  }

  void match_loops() {
    plan_->matching.resize(count());
    enclosing_.assign(count(), kNone);
    std::vector<uint32_t> open;
    for (uint32_t i = 0; i < count(); ++i) {
      plan_->matching[i] = i;
      if (command(i).op->opcode == Opcode::End) {
        plan_->matching[i] = open.back();
        plan_->matching[open.back()] = i;
        open.pop_back();
      }
      enclosing_[i] = open.empty() ? kNone : open.back();
      if (is_loop(command(i))) open.push_back(i);
    }
  }

  void make_views() {
    plan_->views.resize(module().tensors.size());
    if (!plan_->options.reuse || !plan_->options.views) return;
    Views found = find_views(module(), plan_->commands, capabilities_);
    plan_->views = std::move(found.of);
    for (size_t i = 0; i < count(); ++i) {
      if (found.idle[i] == 0) continue;
      plan_->commands[i].command = make_command(op_info(Opcode::Nop));
      plan_->types[i].clear();
    }
  }
  [[nodiscard]] bool is_view(size_t id) const { return plan_->views[id].root != kNone; }
  /// Whose bytes a tensor has.
  [[nodiscard]] TensorId root_of(TensorId id) const { return is_view(id) ? plan_->views[id].root : id; }

  void select() {
    plan_->selections.reserve(count());
    for (size_t i = 0; i < count(); ++i) {
      plan_->selections.push_back(backend_.select(command(i), plan_->types[i]));
      plan_->scratch_bytes = std::max(plan_->scratch_bytes, plan_->selections.back().scratch);
    }
  }

  void measure() {
    std::vector<double> times{1};
    for (size_t i = 0; i < count(); ++i) {
      const Command& at = command(i);
      if (at.op->opcode == Opcode::End) times.pop_back();
      plan_->flops += times.back() * flops_of(at, plan_->types[i]);
      for_each_tensor(at, [&](size_t position, TensorId, Access access) {
        const OperandType& type = plan_->types[i][position];
        const size_t each = size_of(capabilities_.storage(type.dtype));
        const auto bytes = static_cast<double>(type.shape.elements()) * static_cast<double>(each);
        plan_->traffic += times.back() * bytes * (access == Access::Update ? 2 : 1);
      });
      if (!is_loop(at)) continue;
      const bool constant = at.op->opcode == Opcode::Repeat && at.id(0) == kAbsent;
      times.push_back(times.back() * (constant ? static_cast<double>(at.attr_int("count")) : 1));
    }
  }

  /// First and last command of every tensor, loops taken into account. A tensor accessed before a loop and inside it
  /// lives to the loop's END. One accessed first inside is written there in full before it is read (the verifier has
  /// proved it), so each pass makes it anew and it lives within the pass.
  void find_lives() {
    plan_->tensors.assign(module().tensors.size(), {});
    users_.resize(module().tensors.size());
    std::vector<Placement>& tensors = plan_->tensors;
    for (uint32_t i = 0; i < count(); ++i) {
      const auto touch = [&](TensorId id, Access access) {
        const TensorId root = root_of(id);
        if (access != Access::Read) users_[root].clear();
        if (users_[root].empty() || users_[root].back() != i) users_[root].push_back(i);
        Placement& at = tensors[root];
        if (at.segment == Segment::None) first_access(at, root, i);
        if (is_view(id)) tensors[id] = {Segment::Arena, 0, stored_bytes(module().tensors[id]), 0, 0};
        at.last = std::max(at.last, i);
        for (uint32_t loop = loop_around(i); loop != kNone && at.first < loop; loop = enclosing_[loop])
          at.last = std::max(at.last, plan_->matching[loop]);
      };
      for_each_touched(i, touch);
    }
    for (const TensorId id : plan_->options.pinned) {
      if (is_view(id)) tensors[id] = {Segment::Arena, 0, stored_bytes(module().tensors[id]), 0, 0};
      pin(tensors[root_of(id)]);
    }
  }

  /// What a block of so many bytes takes.
  [[nodiscard]] uint64_t room(uint64_t bytes) const { return aligned(bytes + plan_->options.guard); }

  [[nodiscard]] uint64_t stored_bytes(const Tensor& tensor) const {
    return static_cast<uint64_t>(tensor.shape.elements()) * size_of(capabilities_.storage(tensor.dtype));
  }

  void first_access(Placement& at, TensorId id, uint32_t i) {
    const Tensor& tensor = module().tensors[id];
    const bool local = !is_persistent(tensor) && tensor.role != Role::Saved;
    at.segment = local ? Segment::Arena : Segment::Persistent;
    at.bytes = stored_bytes(tensor);
    at.first = i;
    if (local)
      total_ = checked_add(total_, room(at.bytes), capabilities_);
    else
      plan_->persistent_bytes = checked_add(plan_->persistent_bytes, at.bytes, capabilities_);
  }

  /// The innermost loop whose passes play command i. A WHILE reads its condition before every pass, so its own head
  /// counts.
  [[nodiscard]] uint32_t loop_around(uint32_t i) const {
    return command(i).op->opcode == Opcode::While ? i : enclosing_[i];
  }

  /// Kept to the end of the run. Inside a loop the bytes are taken from its head on: a later pass may skip the write.
  void pin(Placement& at) {
    if (at.segment != Segment::Arena) return;
    for (uint32_t loop = enclosing_[at.first]; loop != kNone; loop = enclosing_[loop]) at.first = loop;
    at.last = static_cast<uint32_t>(count()) - 1;
  }

  void lay_out() {
    plan_->scratch.assign(count(), 0);
    const uint64_t shared_scratch = plan_->scratch_bytes == 0 ? 0 : room(plan_->scratch_bytes);
    plan_->unplanned_bytes = checked_add(total_, shared_scratch, capabilities_);
    if (!plan_->options.reuse || !lay_out_with_reuse()) lay_out_apart();
    for (size_t id = 0; id < plan_->tensors.size(); ++id)
      if (Placement& at = plan_->tensors[id]; is_view(id) && at.segment == Segment::Arena) {
        const Placement& root = plan_->tensors[root_of(static_cast<TensorId>(id))];
        at.offset = root.offset + plan_->views[id].offset;
        at.first = root.first;
        at.last = root.last;
      }
  }

  /// False when the result would be larger than without reuse.
  bool lay_out_with_reuse() {
    std::vector<Block> blocks;
    std::vector<uint64_t*> targets;
    for (size_t id = 0; id < plan_->tensors.size(); ++id)
      if (Placement& at = plan_->tensors[id]; at.segment == Segment::Arena && !is_view(id)) {
        blocks.push_back({room(at.bytes), at.first, at.last, 0, std::move(users_[id])});
        targets.push_back(&at.offset);
      }
    for (uint32_t i = 0; i < count(); ++i)
      if (const uint64_t bytes = plan_->selections[i].scratch; bytes != 0) {
        blocks.push_back({room(bytes), i, i, 0, {i}});
        targets.push_back(&plan_->scratch[i]);
      }
    plan_->arena_bytes = place_tight(blocks, count());
    if (plan_->arena_bytes > plan_->unplanned_bytes) return false;
    if (by_branch()) place_branches(blocks);
    for (size_t i = 0; i < blocks.size(); ++i) *targets[i] = blocks[i].offset;
    return true;
  }

  [[nodiscard]] bool by_branch() const {
    switch (plan_->options.arena) {
      case ArenaUse::Tight:
        return false;
      case ArenaUse::Auto:
        return capabilities_.branches;
      case ArenaUse::Branches:
        break;
    }
    return true;
  }

  /// Bytes that are shared among commands in a fixed order only, where the arena stays within what it may take.
  void place_branches(std::vector<Block>& blocks) {
    const uint64_t tight = plan_->arena_bytes;
    const uint64_t room = capabilities_.memory - std::min(capabilities_.memory, plan_->persistent_bytes);
    const uint64_t generous = std::min(room / 8, std::max(tight * 4, kSmallArena));
    const uint64_t limit =
        plan_->options.arena == ArenaUse::Branches ? room : std::min(room, std::max(tight + tight / 4, generous));
    std::vector<Block> spread = blocks;
    const uint64_t bytes = place_by_branch(spread, count(), order(true), limit);
    if (bytes > limit) return;
    blocks.swap(spread);
    plan_->arena_bytes = bytes;
  }

  void lay_out_apart() {
    uint64_t end = 0;
    for (size_t id = 0; id < plan_->tensors.size(); ++id)
      if (Placement& at = plan_->tensors[id]; at.segment == Segment::Arena && !is_view(id)) {
        at.offset = end;
        end += room(at.bytes);
      }
    for (uint32_t i = 0; i < count(); ++i)
      if (plan_->selections[i].scratch != 0) plan_->scratch[i] = end;
    plan_->arena_bytes = plan_->unplanned_bytes;
  }

  /// The order of two passes, of which only what leads from the second to the first is kept.
  void find_again() {
    const auto n = static_cast<uint32_t>(count());
    left_inside_.assign(n, 0);
    for (uint32_t i = 0; i < n; ++i)
      if (command(i).op->opcode == Opcode::Load) left_inside_[i] = moved_by_loads_alone(cursor_of(i)) ? 1 : 0;
    const Order twice = order(false, 2);
    const std::vector<uint64_t>& ends = twice.ends();
    for (size_t i = n; i < ends.size(); ++i) {
      for (uint64_t at = ends[i - 1]; at < ends[i]; ++at)
        if (const uint32_t each = twice.before()[at]; each < n) plan_->again.push_back(each);
      plan_->again_ends.push_back(plan_->again.size());
    }
  }

  [[nodiscard]] TensorId cursor_of(size_t load) const {
    for (size_t operand = 0; operand < command(load).ends.size(); ++operand)
      if (command(load).op->operands()[operand].kind == OperandKind::Stream)
        return module().streams[command(load).id(operand)].cursor;
    return kAbsent;
  }
  /// A LOAD leaves the cursor inside its stream, so that where nobody else writes it no later one can fault.
  [[nodiscard]] bool moved_by_loads_alone(TensorId cursor) const {
    bool written = false;
    for (size_t i = 0; i < count(); ++i)
      for_each_tensor(command(i), [&](size_t, TensorId id, Access access) {
        written = written || (root_of(id) == root_of(cursor) && access != Access::Read);
      });
    return !written;
  }

  /// Hazards over bytes: the arena, then every persistent tensor, then one byte each for the fault and for the host.
  /// `apart`: as if every local had bytes of its own, and every scratch. `passes`: of the tape, one after another.
  [[nodiscard]] Order order(bool apart, uint32_t passes = 1) const {
    std::vector<uint64_t> bases(plan_->tensors.size());
    uint64_t end = apart ? 0 : plan_->arena_bytes;
    for (size_t id = 0; id < bases.size(); ++id) {
      const Placement& at = plan_->tensors[id];
      const bool own = (apart && !is_view(id)) || at.segment == Segment::Persistent;
      bases[id] = own ? end : at.offset;
      if (own) end += at.bytes;
    }
    for (size_t id = 0; id < bases.size(); ++id)
      if (is_view(id)) bases[id] = bases[plan_->views[id].root] + plan_->views[id].offset;
    const uint64_t fault = end, host = end + 1;
    const auto n = static_cast<uint32_t>(count());
    std::vector<uint32_t> matching;
    for (uint32_t pass = 0; pass < passes; ++pass)
      for (const uint32_t other : plan_->matching) matching.push_back(other + pass * n);
    std::vector<DType> dtypes;
    return Order(matching, [&](uint32_t at_pass, std::vector<Touch>& touches) {
      const uint32_t i = at_pass % n;
      bool outlives = command(i).op->has(kSinkEffect);
      for_each_touched(i, [&](TensorId id, Access access) {
        const Placement& at = plan_->tensors[id];
        const bool writes = access != Access::Read;
        touches.push_back({bases[id], bases[id] + at.bytes, writes});
        outlives = outlives || (writes && at.segment == Segment::Persistent);
      });
      if (const uint64_t scratch = plan_->selections[i].scratch; scratch != 0 && !apart)
        touches.push_back({plan_->scratch[i], plan_->scratch[i] + scratch, true});
      dtypes.clear();
      for (const OperandType& type : plan_->types[i]) dtypes.push_back(type.dtype);
      // Whoever may fault looks at the record before it does what the check allows.
      const bool refuses = may_fault(command(i), dtypes);
      bool faults = refuses && plan_->checked[i] == 0;
      if (at_pass >= n && left_inside_[i] != 0) faults = false;
      if (refuses || outlives) touches.push_back({fault, fault + 1, faults});
      if (command(i).op->has(kSinkEffect)) touches.push_back({host, host + 1, true});
    });
  }

  void check_memory() const {
    const uint64_t needed = checked_add(plan_->arena_bytes, plan_->persistent_bytes, capabilities_);
    if (needed > capabilities_.memory)
      throw Error(Code::Limit, fmt::format("tape {} needs {} bytes (arena {}, persistent {}); backend {} has {} bytes",
                                           module().tapes[0].name, needed, plan_->arena_bytes, plan_->persistent_bytes,
                                           capabilities_.name, capabilities_.memory));
  }

  /// The tensors of a command and the cursors it moves.
  template <class Visit>
  void for_each_touched(size_t i, Visit&& visit) const {
    for_each_tensor(command(i), [&](size_t, TensorId id, Access access) { visit(id, access); });
    for (size_t operand = 0; operand < command(i).ends.size(); ++operand)
      if (command(i).op->operands()[operand].kind == OperandKind::Stream)
        visit(module().streams[command(i).id(operand)].cursor, Access::Update);
  }

  template <class Visit>
  static void for_each_tensor(const Command& at, Visit&& visit) {
    size_t position = 0;
    for (size_t operand = 0; operand < at.ends.size(); ++operand)
      for (; position < at.ends[operand]; ++position)
        if (at.is_tensor(operand) && at.ids[position] != kAbsent) visit(position, at.ids[position], at.access(operand));
  }

  Backend& backend_;
  const Capabilities& capabilities_;
  std::shared_ptr<Plan> plan_;
  std::vector<uint32_t> enclosing_;            // per command: head of the innermost loop around it, kNone outside loops
  std::vector<decltype(Block::users)> users_;  // by tensor
  std::vector<uint8_t> left_inside_;           // per command: a LOAD that cannot fault in a later pass
  uint64_t total_ = 0;                         // all locals, each with bytes of its own
};

}  // namespace

std::shared_ptr<const Plan> make_plan(const VerifiedModule& inlined, Backend& backend, const PlanOptions& options) {
  return Planner(inlined, backend, options).run();
}

void refuse_overlap(const Plan& plan, const Bindings& bindings, TensorId tensor, const std::byte* address) {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  const uintptr_t end = begin + plan.tensors[tensor].bytes;
  const std::vector<Tensor>& records = plan.module.module().tensors;
  const auto meets = [&](const std::byte* other, uint64_t bytes) {
    const auto at = reinterpret_cast<uintptr_t>(other);
    return other != nullptr && begin < at + bytes && at < end;
  };
  for (TensorId id = 0; id < bindings.tensors.size(); ++id)
    if (id != tensor && meets(bindings.tensors[id], plan.tensors[id].bytes))
      throw Error(Code::Usage,
                  fmt::format("the buffer for {} overlaps that of {}", records[tensor].name, records[id].name));
  if (meets(bindings.arena, plan.arena_bytes))
    throw Error(Code::Usage, fmt::format("the buffer for {} overlaps the arena", records[tensor].name));
}

std::vector<Slab> optimizer_slabs(const Module& module) {
  std::vector<Slab> slabs;
  for (TapeId tape = 0; tape < module.tapes.size(); ++tape)
    for (const PlacedCommand& placed : commands_of(module, module.tapes[tape])) {
      const Command& command = placed.command;
      if (command.op->shape != ShapeRule::Optimizer) continue;
      std::map<DType, Slab> groups;
      for (const TensorId param : command.operand(0)) {
        const Tensor& tensor = module.tensors[param];
        Slab& slab = groups[tensor.dtype];
        slab.optimizer = tape;
        slab.dtype = tensor.dtype;
        slab.members.push_back({param, slab.elements});
        // One offset serves the parameter and its f32 or f64 companions, so starts are 256 bytes in the narrowest of
        // them.
        const uint64_t unit = kAlignment / std::min<uint64_t>(size_of(tensor.dtype), 4);
        slab.elements += (static_cast<uint64_t>(tensor.shape.elements()) + unit - 1) / unit * unit;
      }
      for (auto& [dtype, slab] : groups) slabs.push_back(std::move(slab));
    }
  return slabs;
}

}  // namespace tape
