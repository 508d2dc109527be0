#include "cuda_backend/graph_program.h"

#include <algorithm>
#include <utility>

namespace tape::cuda {
namespace {

constexpr uint64_t kUnrolled = 64;    // nodes of an unrolled loop
constexpr uint64_t kTogether = 256;   // nodes of several passes: at least 200 us where every node is short
constexpr uint64_t kOverlapping = 4;  // passes that begin before the one before them ends, if they are of few nodes
constexpr uint64_t kMostTogether = 1024;
constexpr uint64_t kReduced = 4096;    // nodes of a graph for which superfluous edges are looked for
constexpr uint64_t kFills = 8 * 2048;  // threads per processor
constexpr uint64_t kTurns = 3;         // nodes that turn a loop
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
    const auto pass = [&] {
      if (tape_.ticks_alone) now_.entry = {add(tape_.tick, now_.entry)};
      play(0, last, 0, tape_.before_ends.size());
    };
    if (chain_ || tape_.again_ends.empty()) {
      repeat(passes, pass);
    } else {
      pass();
      for (uint64_t i = 1; i < passes; ++i) overlap(last);
    }
    close();
    program_.passes = passes;
    return std::move(program_);
  }

 private:
  using Nodes = std::vector<uint32_t>;

  /// A graph that is being planned, or the body of a loop in one.
  struct Segment {
    GraphPlan open;
    std::vector<bool> followed;                // by its nodes
    std::vector<std::vector<uint64_t>> reach;  // by its nodes
    Nodes entry;                               // what a command waits for that waits for no other of its level
    std::optional<uint32_t> wide;              // the last wide node
    uint32_t segment = 1;
  };

  [[nodiscard]] uint64_t most_pieces() const { return std::max<uint64_t>(tape_.slots / 2, 1); }

  uint32_t add(uint32_t launch, const Nodes& before) {
    GraphPlan::Node node;
    node.launch = launch;
    node.before_begin = static_cast<uint32_t>(now_.open.before.size());
    const auto number = static_cast<uint32_t>(now_.open.nodes.size());
    if (chain_) {
      if (number != 0) now_.open.before.push_back(number - 1);
    } else {
      for (const uint32_t each : before) {
        now_.open.before.push_back(each);
        now_.followed[each] = true;
      }
      note_reach(number, before);
    }
    node.before_end = static_cast<uint32_t>(now_.open.before.size());
    now_.followed.push_back(false);
    now_.open.nodes.push_back(node);
    if (launch == tape_.tick) ++now_.open.ticks;
    return number;
  }

  /// Rows of bits, one a node: what it follows, itself included.
  void note_reach(uint32_t number, const Nodes& before) {
    if (tape_.branches != Branches::Auto || number >= kReduced) return;
    std::vector<uint64_t> row(number / 64 + 1);
    for (const uint32_t each : before)
      for (size_t word = 0; word < now_.reach[each].size(); ++word) row[word] |= now_.reach[each][word];
    row[number / 64] |= uint64_t{1} << number % 64;
    now_.reach.push_back(std::move(row));
  }
  [[nodiscard]] bool follows(uint32_t later, uint32_t earlier) const {
    return later < now_.reach.size() && earlier / 64 < now_.reach[later].size() &&
           (now_.reach[later][earlier / 64] >> earlier % 64 & 1) != 0;
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
    if (!now_.open.nodes.empty()) {
      program_.items.push_back({GraphItem::Kind::Graph, static_cast<uint32_t>(program_.plans.size()), 1, 0, 0});
      program_.plans.push_back(std::move(now_.open));
    }
    begin_segment();
  }
  void begin_segment() {
    now_ = {};
    now_.segment = ++segments_;
  }

  /// What a command waits for in the open graph.
  [[nodiscard]] Nodes waits_of(uint64_t command) {
    Nodes nodes;
    if (chain_) return nodes;
    if (seen_in_[command] == now_.segment && resumed_) return ends_of_[command];
    for (uint64_t i = command == 0 ? 0 : tape_.before_ends[command - 1]; i < tape_.before_ends[command]; ++i)
      if (const uint32_t each = tape_.before[i]; seen_in_[each] == now_.segment)
        nodes.insert(nodes.end(), ends_of_[each].begin(), ends_of_[each].end());
    follow_last_pass(command, nodes);
    if (nodes.empty()) nodes = now_.entry;
    return nodes;
  }
  void ends_are(uint64_t command, Nodes nodes) {
    if (chain_) return;
    seen_in_[command] = now_.segment;
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
      if (wide && now_.wide) ends.push_back(*now_.wide);
    }
    if (!chain_) reduce(ends);
    for (uint32_t i = step.first; i < step.last; ++i) {
      if (step.kind == Step::Kind::Deliver) {
        if (now_.open.pieces.size() == most_pieces()) {
          close();
          ends.clear();
        }
        now_.open.pieces.push_back(step.piece + i - step.first);
      }
      ends = {add(i, ends)};
    }
    if (wide) now_.wide = ends[0];
    ends_are(step.command, std::move(ends));
  }

  /// The nodes since `first` that none follows; what was waited for, where there are none.
  [[nodiscard]] Nodes open_ends(uint32_t first) {
    Nodes nodes;
    for (uint32_t i = first; i < now_.followed.size(); ++i)
      if (!now_.followed[i]) nodes.push_back(i);
    if (nodes.empty()) return now_.entry;
    if (nodes.size() > kDirect) nodes = {add(GraphPlan::kJoin, nodes)};
    return nodes;
  }

  /// Passes behind one another, into the open graph.
  template <class Pass>
  void repeat(uint64_t times, const Pass& pass) {
    for (uint64_t i = 0; i < times; ++i) {
      const uint32_t segment = now_.segment;
      const auto first = static_cast<uint32_t>(now_.open.nodes.size());
      pass();
      if (i + 1 < times && !chain_ && segment == now_.segment) now_.entry = open_ends(first);
    }
  }

  /// A pass behind another, of which each command follows those it must.
  void overlap(uint32_t last) {
    last_pass_ = ends_of_;
    last_segment_ = now_.segment;
    if (tape_.ticks_alone) {
      Nodes before = tick_ ? Nodes{*tick_} : now_.entry;
      for (const uint32_t each : tape_.faulting)
        before.insert(before.end(), ends_of_[each].begin(), ends_of_[each].end());
      reduce(before);
      tick_ = add(tape_.tick, before);
    }
    play(0, last, 0, tape_.before_ends.size());
  }
  /// Adds what a command follows of the pass before.
  void follow_last_pass(uint64_t command, Nodes& nodes) const {
    if (last_segment_ != now_.segment) return;
    for (uint64_t i = command == 0 ? 0 : tape_.again_ends[command - 1]; i < tape_.again_ends[command]; ++i)
      nodes.insert(nodes.end(), last_pass_[tape_.again[i]].begin(), last_pass_[tape_.again[i]].end());
    if (tick_ && std::binary_search(tape_.faulting.begin(), tape_.faulting.end(), static_cast<uint32_t>(command)))
      nodes.push_back(*tick_);
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
      const std::optional<Weight> body = weigh(at);
      if (!body) return std::nullopt;
      Weight all = times(*body, loop.count);
      if (loop.kind != Loop::Kind::Constant || all.nodes > kUnrolled) {
        if (!tape_.conditional || body->pieces != 0) return std::nullopt;
        all.nodes = body->nodes + kTurns;
      }
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
    const std::optional<Weight> body = weigh(begin);
    if (!body || body->pieces > most_pieces()) return turn_by_host(begin);
    if (loop.kind != Loop::Kind::Constant)
      return tape_.conditional && body->pieces == 0 ? turn_by_graph(begin) : turn_by_host(begin);
    const auto count = static_cast<uint64_t>(std::max<int64_t>(loop.count, 0));
    if (count == 0 || body->nodes == 0) return chain_ ? void() : ends_are(step.command, waits_of(step.command));
    const Weight all = times(*body, loop.count);
    if (all.nodes <= kUnrolled && now_.open.pieces.size() + all.pieces <= most_pieces()) return unroll(begin, count);
    if (inside_) return turn_by_graph(begin);
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
    const Nodes around = now_.entry;
    if (!chain_) {
      now_.entry = waits_of(step.command);
      if (now_.entry.size() > kDirect) now_.entry = {add(GraphPlan::kJoin, now_.entry)};
    }
    const auto first = static_cast<uint32_t>(now_.open.nodes.size());
    const bool was_inside = std::exchange(inside_, true);
    repeat(count, [&] { play_body(begin); });
    inside_ = was_inside;
    if (chain_) return;
    // The nodes of the last pass that none follows; those of the passes before it are all followed.
    ends_are(step.command, open_ends(first));
    now_.entry = around;
  }

  void turn_by_graph(uint32_t begin) {
    const Step& step = tape_.steps[begin];
    const Loop& loop = tape_.loops[step.loop];
    Nodes waits = waits_of(step.command);
    if (now_.wide) waits.push_back(*now_.wide);
    if (!chain_) reduce(waits);
    const uint32_t node = add(loop.enter, waits);
    Segment around = std::move(now_);
    begin_segment();
    const bool was_inside = std::exchange(inside_, true);
    play_body(begin);
    add(loop.turn, chain_ ? Nodes() : open_ends(0));
    inside_ = was_inside;
    GraphPlan body = std::exchange(now_, std::move(around)).open;
    now_.open.nodes[node].loop = static_cast<uint32_t>(now_.open.loops.size());
    now_.open.loops.push_back(std::move(body));
    if (tape_.branches == Branches::Auto && !chain_) now_.wide = node;
    ends_are(step.command, {node});
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
            now_.open.loads.push_back(at);
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
  Segment now_;
  uint32_t segments_ = 1;
  std::vector<Nodes> ends_of_;     // by command: the nodes to wait for
  std::vector<uint32_t> seen_in_;  // by command: the segment that is true for
  std::vector<Nodes> last_pass_;   // ends_of_ of the pass before, in the segment
  uint32_t last_segment_ = 0;      // 0: there is none
  std::optional<uint32_t> tick_;   // of this pass, where it overlaps with the one before
  bool resumed_ = false;
  bool inside_ = false;  // a loop whose passes stay within their graph
};

}  // namespace

GraphProgram plan_program(const GraphTape& tape, uint64_t passes) {
  return Planner(tape).plan(passes);
}

uint64_t passes_together(const GraphProgram& program, const GraphTape& tape) {
  if (!program.whole() || program.items[0].times != 1 || !program.plans[0].loads.empty()) return 1;
  const GraphPlan& plan = program.plans[0];
  const uint64_t size = std::max<uint64_t>(plan.size(), 1);
  uint64_t passes = kTogether / size;
  if (!tape.again_ends.empty()) passes = std::max(passes, std::min(kOverlapping, kMostTogether / size));
  if (!plan.pieces.empty()) passes = std::min(passes, std::max<uint64_t>(tape.slots / 2, 1) / plan.pieces.size());
  return std::max<uint64_t>(passes, 1);
}

}  // namespace tape::cuda
