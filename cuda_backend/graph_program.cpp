#include "cuda_backend/graph_program.h"

#include <algorithm>
#include <utility>

namespace tape::cuda {
namespace {

constexpr uint64_t kUnrolled = 64;     // nodes of an unrolled loop
constexpr uint64_t kTogether = 256;    // nodes of several passes: at least 200 us where every node is short
constexpr uint64_t kReduced = 4096;    // nodes of a graph for which superfluous edges are looked for
constexpr uint64_t kFills = 8 * 2048;  // threads per processor
constexpr size_t kDirect = 2;          // nodes that another waits for without a join

class Planner {
 public:
  explicit Planner(const GraphTape& tape)
      : tape_(tape), chain_(tape.before_ends.empty() || tape.branches == Branches::Off) {
    if (!chain_) {
      ends_of_.resize(tape.before_ends.size());
      seen_in_.resize(tape.before_ends.size());
    }
  }

  GraphProgram plan(uint64_t passes) {
    const auto last = static_cast<uint32_t>(tape_.steps.size());
    repeat(passes, [&] {
      if (tape_.ticks_alone) entry_ = {add(tape_.tick, entry_)};
      play(0, last, 0, tape_.before_ends.size());
    });
    close();
    program_.passes = passes;
    return std::move(program_);
  }

 private:
  using Nodes = std::vector<uint32_t>;

  [[nodiscard]] uint64_t most_pieces() const { return std::max<uint64_t>(tape_.slots / 2, 1); }

  uint32_t add(uint32_t launch, const Nodes& before) {
    GraphPlan::Node node;
    node.launch = launch;
    node.before_begin = static_cast<uint32_t>(open_.before.size());
    const auto number = static_cast<uint32_t>(open_.nodes.size());
    if (chain_) {
      if (number != 0) open_.before.push_back(number - 1);
    } else {
      for (const uint32_t each : before) {
        open_.before.push_back(each);
        followed_[each] = true;
      }
      note_reach(number, before);
    }
    node.before_end = static_cast<uint32_t>(open_.before.size());
    followed_.push_back(false);
    open_.nodes.push_back(node);
    if (launch == tape_.tick) ++open_.ticks;
    return number;
  }

  /// Rows of bits, one a node: what it follows, itself included.
  void note_reach(uint32_t number, const Nodes& before) {
    if (tape_.branches != Branches::Auto || number >= kReduced) return;
    std::vector<uint64_t> row(number / 64 + 1);
    for (const uint32_t each : before)
      for (size_t word = 0; word < reach_[each].size(); ++word) row[word] |= reach_[each][word];
    row[number / 64] |= uint64_t{1} << number % 64;
    reach_.push_back(std::move(row));
  }
  [[nodiscard]] bool follows(uint32_t later, uint32_t earlier) const {
    return later < reach_.size() && earlier / 64 < reach_[later].size() &&
           (reach_[later][earlier / 64] >> earlier % 64 & 1) != 0;
  }
  /// Without those that others of them follow.
  void reduce(Nodes& nodes) const {
    std::sort(nodes.begin(), nodes.end());
    nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
    const Nodes all = nodes;
    std::erase_if(nodes, [&](uint32_t node) {
      return std::any_of(all.begin(), all.end(), [&](uint32_t other) { return other > node && follows(other, node); });
    });
  }

  void close() {
    if (!open_.nodes.empty()) {
      program_.items.push_back({GraphItem::Kind::Graph, static_cast<uint32_t>(program_.plans.size()), 1, 0, 0});
      program_.plans.push_back(std::move(open_));
    }
    open_ = {};
    followed_.clear();
    reach_.clear();
    entry_.clear();
    wide_.reset();
    ++segment_;
  }

  /// What a command waits for in the open graph.
  [[nodiscard]] Nodes waits_of(uint64_t command) {
    Nodes nodes;
    if (chain_) return nodes;
    if (seen_in_[command] == segment_ && resumed_) return ends_of_[command];
    for (uint64_t i = command == 0 ? 0 : tape_.before_ends[command - 1]; i < tape_.before_ends[command]; ++i)
      if (const uint32_t each = tape_.before[i]; seen_in_[each] == segment_)
        nodes.insert(nodes.end(), ends_of_[each].begin(), ends_of_[each].end());
    if (nodes.empty()) nodes = entry_;
    return nodes;
  }
  void ends_are(uint64_t command, Nodes nodes) {
    if (chain_) return;
    seen_in_[command] = segment_;
    ends_of_[command] = std::move(nodes);
  }

  /// Whether a launch fills the card over and over: nothing is gained by another beside it.
  [[nodiscard]] bool is_wide(const Launch& launch) const {
    const uint64_t blocks = uint64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2];
    return blocks * launch.block[0] * launch.block[1] >= kFills * tape_.processors;
  }

  void add_launches(const Step& step) {
    Nodes ends = waits_of(step.command);
    bool wide = false;
    if (tape_.branches == Branches::Auto && !chain_) {
      for (uint32_t i = step.first; i < step.last; ++i) wide = wide || is_wide((*tape_.source.launches)[i]);
      if (wide && wide_) ends.push_back(*wide_);
    }
    if (!chain_) reduce(ends);
    for (uint32_t i = step.first; i < step.last; ++i) {
      if (step.kind == Step::Kind::Deliver) {
        if (open_.pieces.size() == most_pieces()) {
          close();
          ends.clear();
        }
        open_.pieces.push_back(step.piece + i - step.first);
      }
      ends = {add(i, ends)};
    }
    if (wide) wide_ = ends[0];
    ends_are(step.command, std::move(ends));
  }

  /// The nodes since `first` that none follows; what was waited for, where there are none.
  [[nodiscard]] Nodes open_ends(uint32_t first) {
    Nodes nodes;
    for (uint32_t i = first; i < followed_.size(); ++i)
      if (!followed_[i]) nodes.push_back(i);
    if (nodes.empty()) return entry_;
    if (nodes.size() > kDirect) nodes = {add(GraphPlan::kJoin, nodes)};
    return nodes;
  }

  /// Passes behind one another, into the open graph.
  template <class Pass>
  void repeat(uint64_t times, const Pass& pass) {
    for (uint64_t i = 0; i < times; ++i) {
      const uint32_t segment = segment_;
      const auto first = static_cast<uint32_t>(open_.nodes.size());
      pass();
      if (i + 1 < times && !chain_ && segment == segment_) entry_ = open_ends(first);
    }
  }

  /// Nodes of one pass of a loop's body and pieces it pushes; nothing where it needs the host.
  struct Weight {
    uint64_t nodes = 0, pieces = 0;
  };
  [[nodiscard]] std::optional<Weight> weigh(uint32_t begin) const {
    Weight weight;
    for (uint32_t at = begin + 1; at < tape_.steps[begin].other; ++at) {
      const Step& step = tape_.steps[at];
      if (step.kind == Step::Kind::Load && tape_.hosted(step)) return std::nullopt;
      if (step.kind != Step::Kind::Begin) {
        weight.nodes += step.last - step.first;
        if (step.kind == Step::Kind::Deliver) weight.pieces += step.last - step.first;
        continue;
      }
      const Loop& loop = tape_.loops[step.loop];
      if (loop.kind != Loop::Kind::Constant) return std::nullopt;
      const std::optional<Weight> body = weigh(at);
      if (!body || times(*body, loop.count).nodes > kUnrolled) return std::nullopt;
      const Weight all = times(*body, loop.count);
      weight.nodes += all.nodes;
      weight.pieces += all.pieces;
      at = step.other;
    }
    return weight;
  }
  [[nodiscard]] static Weight times(const Weight& weight, int64_t count) {
    const auto factor = static_cast<uint64_t>(std::clamp<int64_t>(count, 0, int64_t{1} << 40));
    constexpr uint64_t kMany = uint64_t{1} << 20;
    return {std::min(weight.nodes, kMany) * factor, std::min(weight.pieces, kMany) * factor};
  }

  void add_loop(uint32_t begin) {
    const Step& step = tape_.steps[begin];
    const Loop& loop = tape_.loops[step.loop];
    const std::optional<Weight> body = loop.kind == Loop::Kind::Constant ? weigh(begin) : std::nullopt;
    if (!body || body->pieces > most_pieces()) return turn_by_host(begin);
    const auto count = static_cast<uint64_t>(std::max<int64_t>(loop.count, 0));
    if (count == 0 || body->nodes == 0) return chain_ ? void() : ends_are(step.command, waits_of(step.command));
    const Weight all = times(*body, loop.count);
    if (all.nodes <= kUnrolled && open_.pieces.size() + all.pieces <= most_pieces()) return unroll(begin, count);
    close();
    uint64_t together = std::clamp<uint64_t>(kTogether / body->nodes, 1, count);
    if (body->pieces != 0) together = std::min(together, most_pieces() / body->pieces);
    const auto add_graph = [&](uint64_t passes, uint64_t launches) {
      if (passes == 0) return;
      unroll(begin, passes);
      close();
      program_.items.back().times = launches;
    };
    add_graph(together, count / together);
    add_graph(count % together, 1);
  }

  void unroll(uint32_t begin, uint64_t count) {
    const Step& step = tape_.steps[begin];
    const Nodes around = entry_;
    if (!chain_) {
      entry_ = waits_of(step.command);
      if (entry_.size() > kDirect) entry_ = {add(GraphPlan::kJoin, entry_)};
    }
    const auto first = static_cast<uint32_t>(open_.nodes.size());
    repeat(count, [&] { play_body(begin); });
    if (chain_) return;
    // The nodes of the last pass that none follows; those of the passes before it are all followed.
    ends_are(step.command, open_ends(first));
    entry_ = around;
  }

  void turn_by_host(uint32_t begin) {
    const Step& step = tape_.steps[begin];
    close();
    const auto at = static_cast<uint32_t>(program_.items.size());
    program_.items.push_back({GraphItem::Kind::Begin, 0, 1, begin, 0});
    play_body(begin);
    close();
    program_.items[at].other = static_cast<uint32_t>(program_.items.size());
    program_.items.push_back({GraphItem::Kind::End, 0, 1, step.other, at});
  }

  void play_body(uint32_t begin) {
    const Step& step = tape_.steps[begin];
    play(begin + 1, step.other, step.command + 1, tape_.steps[step.other].command);
  }

  /// Commands of one level that leave nothing to launch: who follows them follows those before them.
  void pass_through(uint64_t& command, uint64_t last) {
    resumed_ = false;
    for (; command < last && !chain_; ++command) ends_are(command, waits_of(command));
  }

  void play(uint32_t first, uint32_t last, uint64_t command, uint64_t last_command) {
    for (uint32_t at = first; at < last; ++at) {
      const Step& step = tape_.steps[at];
      pass_through(command, step.command);
      // What comes before a command's own launches (a fill of --poison) is a step of the same command.
      resumed_ = at > first && tape_.steps[at - 1].command == step.command;
      switch (step.kind) {
        case Step::Kind::Load:
          if (tape_.hosted(step) && tape_.fed(step)) {
            open_.loads.push_back(at);
          } else if (tape_.hosted(step)) {
            close();
            program_.items.push_back({GraphItem::Kind::Load, 0, 1, at, 0});
            break;
          }
          [[fallthrough]];
        case Step::Kind::Launches:
        case Step::Kind::Deliver:
          add_launches(step);
          break;
        case Step::Kind::Begin:
          add_loop(at);
          at = step.other;
          break;
        case Step::Kind::End:
          break;
      }
      command = tape_.steps[at].command + 1;
    }
    pass_through(command, last_command);
  }

  const GraphTape& tape_;
  const bool chain_;
  GraphProgram program_;
  GraphPlan open_;                            // the graph that is being planned
  std::vector<bool> followed_;                // by its nodes
  std::vector<std::vector<uint64_t>> reach_;  // by its nodes
  Nodes entry_;                               // what a command waits for that waits for no other of its level
  std::optional<uint32_t> wide_;              // the last wide node of this graph
  std::vector<Nodes> ends_of_;                // by command: the nodes to wait for
  std::vector<uint32_t> seen_in_;             // by command: the segment that is true for
  uint32_t segment_ = 1;
  bool resumed_ = false;
};

}  // namespace

GraphProgram plan_program(const GraphTape& tape, uint64_t passes) {
  return Planner(tape).plan(passes);
}

uint64_t passes_together(const GraphProgram& program, const GraphTape& tape) {
  if (!program.whole() || program.items[0].times != 1 || !program.plans[0].loads.empty()) return 1;
  const GraphPlan& plan = program.plans[0];
  uint64_t passes = kTogether / plan.nodes.size();
  if (!plan.pieces.empty()) passes = std::min(passes, std::max<uint64_t>(tape.slots / 2, 1) / plan.pieces.size());
  return std::max<uint64_t>(passes, 1);
}

}  // namespace tape::cuda
