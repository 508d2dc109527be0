#include "cli/info_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "assembler/assembler.h"
#include "opcodes/faults.h"

namespace tape::cli {
namespace {

using nlohmann::json;

/// What a command touches; of a loop, what all of its commands do.
struct Touched {
  std::set<TensorId> reads, writes;
  bool faults = false, outlives = false, host = false;
};

class Graph {
 public:
  explicit Graph(const Plan& plan) : plan_(plan), touched_(plan.commands.size()), loops_(plan.commands.size(), kNone) {
    std::vector<uint32_t> open;
    for (uint32_t i = 0; i < count(); ++i) {
      if (plan.matching[i] < i) {
        const uint32_t head = open.back();
        open.pop_back();
        if (!open.empty()) add(touched_[open.back()], touched_[head]);
        loops_[i] = open.empty() ? kNone : open.back();
        continue;
      }
      loops_[i] = open.empty() ? kNone : open.back();
      touch(i);
      if (!open.empty()) add(touched_[open.back()], touched_[i]);
      if (plan.matching[i] > i) open.push_back(i);
    }
  }

  [[nodiscard]] uint32_t count() const { return static_cast<uint32_t>(plan_.commands.size()); }
  [[nodiscard]] bool is_end(uint32_t i) const { return plan_.matching[i] < i; }
  /// Head of the innermost loop around, kNone outside loops.
  [[nodiscard]] uint32_t loop(uint32_t i) const { return loops_[i]; }
  [[nodiscard]] std::span<const uint32_t> before(uint32_t i) const {
    const uint64_t begin = i == 0 ? 0 : plan_.before_ends[i - 1];
    return std::span(plan_.before).subspan(begin, plan_.before_ends[i] - begin);
  }
  [[nodiscard]] std::string text(uint32_t i) const {
    return command_text(plan_.commands[i].command, plan_.module.module());
  }

  /// What the two must not do at once: "a", "a (overwritten)", "fault", "host", or "memory": nothing but the same
  /// bytes.
  [[nodiscard]] std::vector<std::string> why(uint32_t earlier, uint32_t later) const {
    const Touched &a = touched_[earlier], &b = touched_[later];
    std::vector<std::string> reasons;
    const std::vector<Tensor>& tensors = plan_.module.module().tensors;
    std::set<TensorId> both = shared(a.writes, b.reads);
    for (const TensorId id : both) reasons.push_back(tensors[id].name);
    for (const std::set<TensorId>& its : {a.reads, a.writes})
      for (const TensorId id : shared(its, b.writes))
        if (both.insert(id).second) reasons.push_back(tensors[id].name + " (overwritten)");
    if (a.host && b.host) reasons.emplace_back("host");
    if ((a.faults && (b.faults || b.outlives)) || (a.outlives && b.faults)) reasons.emplace_back("fault");
    if (reasons.empty()) reasons.emplace_back("memory");
    return reasons;
  }

  /// Most commands one after another; a loop plays as one pass.
  [[nodiscard]] uint32_t longest_path() const {
    std::vector<uint32_t> until(count()), within(count() + 1);
    uint32_t longest = 0;
    std::vector<uint32_t> heads;
    for (uint32_t i = 0; i < count(); ++i) {
      if (is_end(i)) {
        const uint32_t head = heads.back();
        heads.pop_back();
        until[head] += within[head];
        note(within, longest, head, until[head]);
        continue;
      }
      for (const uint32_t each : before(i)) until[i] = std::max(until[i], until[each]);
      ++until[i];
      if (plan_.matching[i] > i)
        heads.push_back(i);
      else
        note(within, longest, i, until[i]);
    }
    return longest;
  }

 private:
  void note(std::vector<uint32_t>& within, uint32_t& longest, uint32_t i, uint32_t until) const {
    uint32_t& most = loops_[i] == kNone ? longest : within[loops_[i]];
    most = std::max(most, until);
  }
  static std::set<TensorId> shared(const std::set<TensorId>& a, const std::set<TensorId>& b) {
    std::set<TensorId> both;
    std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::inserter(both, both.end()));
    return both;
  }
  static void add(Touched& to, const Touched& from) {
    to.reads.insert(from.reads.begin(), from.reads.end());
    to.writes.insert(from.writes.begin(), from.writes.end());
    to.faults = to.faults || from.faults;
    to.outlives = to.outlives || from.outlives;
    to.host = to.host || from.host;
  }
  void touch(uint32_t i) {
    const Command& command = plan_.commands[i].command;
    Touched& at = touched_[i];
    for (size_t operand = 0; operand < command.ends.size(); ++operand)
      for (const uint32_t id : command.operand(operand)) {
        if (command.op->operands()[operand].kind == OperandKind::Stream)
          at.writes.insert(plan_.module.module().streams[id].cursor);
        if (!command.is_tensor(operand) || id == kAbsent) continue;
        const Access access = command.access(operand);
        const TensorId root = plan_.views[id].root == kNone ? id : plan_.views[id].root;  // a view: its bytes are meant
        if (access != Access::Write) at.reads.insert(root);
        if (access != Access::Read) at.writes.insert(root);
      }
    at.host = command.op->has(kSinkEffect);
    at.outlives = at.host || std::any_of(at.writes.begin(), at.writes.end(),
                                         [&](TensorId id) { return plan_.tensors[id].segment == Segment::Persistent; });
    std::vector<DType> dtypes;
    for (const OperandType& type : plan_.types[i]) dtypes.push_back(type.dtype);
    at.faults = may_fault(command, dtypes);
    if (!at.faults || plan_.checked[i] == 0) return;
    at.faults = false;
    at.outlives = true;  // it looks at the record too
  }

  const Plan& plan_;
  std::vector<Touched> touched_;
  std::vector<uint32_t> loops_;
};

std::string dot_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '\n') {
      out += "\\l";
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

}  // namespace

std::string graph_dot(const Plan& plan) {
  const Graph graph(plan);
  std::string out = fmt::format("digraph {} {{\n  node [shape=box, fontname=monospace];\n",
                                dot_string(plan.module.module().tapes[0].name));
  std::string indent = "  ";
  std::string edges;
  for (uint32_t i = 0; i < graph.count(); ++i) {
    if (graph.is_end(i)) {
      indent.resize(indent.size() - 2);
      out += indent + "}\n";
      continue;
    }
    if (plan.matching[i] > i) {
      out += fmt::format("{}subgraph cluster_{} {{\n", indent, i);
      indent += "  ";
    }
    out += fmt::format("{}c{} [label={}];\n", indent, i, dot_string(fmt::format("{} {}", i, graph.text(i))));
    for (const uint32_t earlier : graph.before(i)) {
      const std::vector<std::string> reasons = graph.why(earlier, i);
      edges += fmt::format("  c{} -> c{} [label={}{}];\n", earlier, i,
                           dot_string(fmt::format("{}", fmt::join(reasons, ", "))),
                           reasons[0] == "memory" ? ", style=dashed" : "");
    }
    if (graph.before(i).empty() && graph.loop(i) != kNone)
      edges += fmt::format("  c{} -> c{} [style=dotted];\n", graph.loop(i), i);
  }
  return out + edges + "}\n";
}

std::string graph_json(const Plan& plan) {
  const Graph graph(plan);
  const Module& module = plan.module.module();
  json commands = json::array();
  for (uint32_t i = 0; i < graph.count(); ++i) {
    json before = json::array();
    for (const uint32_t earlier : graph.before(i))
      before.push_back({{"command", earlier}, {"why", graph.why(earlier, i)}});
    json item{{"index", i},
              {"op", plan.commands[i].command.op->mnemonic},
              {"text", graph.text(i)},
              {"place", module.place(plan.commands[i].location)},
              {"loop", graph.loop(i) == kNone ? json() : json(graph.loop(i))},
              {"before", std::move(before)}};
    if (plan.selections[i].scratch != 0)
      item["scratch"] = {{"offset", plan.scratch[i]}, {"bytes", plan.selections[i].scratch}};
    commands.push_back(std::move(item));
  }
  const json all{{"tape", module.tapes[0].name},
                 {"arena_bytes", plan.arena_bytes},
                 {"edges", plan.before.size()},
                 {"longest_path", graph.longest_path()},
                 {"commands", std::move(commands)}};
  return all.dump(2) + "\n";
}

}  // namespace tape::cli
