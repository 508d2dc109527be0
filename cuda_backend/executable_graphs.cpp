// Playing a tape from graphs. They are made for the second pass: who plays a tape once pays nothing for them. Where a
// graph cannot be made, the next simpler way is tried, and at last the tape is played launch by launch, for a while.
#include <algorithm>

#include "cuda_backend/executable.h"

namespace tape::cuda {
namespace {

constexpr uint64_t kPassesBetweenLooks = 64;
constexpr uint64_t kTriesAgainAfter = 256;  // runs, twice as many after every failure

}  // namespace

CudaExecutable::Way CudaExecutable::first_way() const {
  switch (play_.mode) {
    case PlayMode::Graph:
      return play_.programmatic ? Way::Programmatic : Way::Plain;
    case PlayMode::Capture:
      return Way::Captured;
    case PlayMode::Stream:
      break;
  }
  return Way::None;
}

bool CudaExecutable::hosted(const Step& step) const {
  const uint32_t stream = loads_[step.load].stream;
  return std::any_of(loads_.begin(), loads_.end(),
                     [&](const Load& load) { return load.stream == stream && load.hosted; });
}

bool CudaExecutable::fed(const Step& step) const {
  const Load& load = loads_[step.load];
  return way_ != Way::Captured && !written_[load.cursor] &&
         std::all_of(loads_.begin(), loads_.end(),
                     [&](const Load& each) { return each.stream != load.stream || each.hosted; });
}

GraphTape CudaExecutable::graph_tape() {
  GraphTape tape;
  tape.steps = steps_;
  tape.loops = loops_;
  tape.source = {&list_.launches, &resolved_, &captured_};
  tape.before = before_;
  tape.before_ends = before_ends_;
  tape.again = again_;
  tape.again_ends = again_ends_;
  tape.faulting = faulting_;
  tape.hosted = [this](const Step& step) { return hosted(step); };
  tape.fed = [this](const Step& step) { return fed(step); };
  tape.slots = ring_ == nullptr ? 0 : ring_->slots();
  tape.processors = play_.processors;
  tape.tick = tick_;
  tape.ticks_alone = ticks_alone_;
  tape.branches = play_.branches;
  return tape;
}

void CudaExecutable::fill_program(GraphProgram& program, const GraphTape& tape) {
  for (const GraphPlan& plan : program.plans) {
    program.graphs.push_back(way_ == Way::Captured ? Graph::captured_of(plan, tape.source, play_.programmatic)
                                                   : Graph::explicit_of(plan, tape.source, way_ == Way::Programmatic));
    program.graphs.back().instantiate(stream_);
    if (profile_) profile_->add_graph(plan, list_.launches, way_ == Way::Captured);
  }
}

bool CudaExecutable::make_program(std::optional<GraphProgram>& program, uint64_t passes) {
  while (way_ != Way::None) {
    GraphTape tape = graph_tape();
    try {
      tape.conditional = way_ == Way::Programmatic || way_ == Way::Plain;
      program = plan_program(tape, passes);
      fill_program(*program, tape);
      return true;
    } catch (const Error& error) {
      program.reset();
      stream_.wait();  // throws where the card itself is lost
      const char* const now = way_ == Way::Programmatic ? "without programmatic edges"
                              : way_ == Way::Plain      ? "captured"
                                                        : "launch by launch";
      play_.note(fmt::format("a tape is played {}, since a graph of it could not be made: {}", now, error.what()));
      way_ = static_cast<Way>(static_cast<uint8_t>(way_) + 1);
    }
  }
  turn_ = turns_ + (kTriesAgainAfter << std::min(failures_++, 16u));
  return false;
}

void CudaExecutable::drop_programs() {
  one_.reset();
  many_.reset();
  way_ = first_way();
}

const GraphProgram* CudaExecutable::program_for(uint64_t left) {
  if (play_.mode == PlayMode::Stream || turns_++ == 0) return nullptr;
  if (way_ == Way::None) {
    if (turns_ < turn_) return nullptr;
    way_ = first_way();
  }
  if (!one_) {
    if (!make_program(one_, 1)) return nullptr;
    together_ = passes_together(*one_, graph_tape());
  }
  if (together_ < 2 || left < together_) return &*one_;
  if (!many_ && !make_program(many_, together_)) {
    one_.reset();
    return nullptr;
  }
  return &*many_;
}

void CudaExecutable::patch(uint32_t launch) {
  if (!one_) return;
  const GraphSource source{&list_.launches, &resolved_, &captured_};
  try {
    for (std::optional<GraphProgram>* const program : {&one_, &many_}) {
      if (!*program) continue;
      for (Graph& graph : (*program)->graphs) {
        if (!graph.patches() || list_.launches[launch].cluster > 1) return drop_programs();
        graph.patch(launch, source);
      }
    }
  } catch (const Error& error) {
    play_.note(fmt::format("a graph was made anew, since it could not be changed: {}", error.what()));
    drop_programs();
    stream_.wait();
  }
}

bool CudaExecutable::play(const GraphProgram& program, const GraphItem& item) {
  const GraphPlan& plan = program.plans[item.graph];
  const Graph& graph = program.graphs[item.graph];
  const auto feed_graph = [&] {
    for (const uint32_t at : plan.loads) {
      if (!feed(steps_[at])) return false;
      if (!loads_[steps_[at].load].fed) continue;
      for (uint32_t i = steps_[at].first; i < steps_[at].last; ++i)
        graph.patch(i, {&list_.launches, &resolved_, &captured_});
    }
    return true;
  };
  for (uint64_t i = 0; i < item.times && feed_graph() && !stopped_; ++i) {
    if (!plan.pieces.empty() && !ring_->reserve(stream_, plan.pieces)) return false;
    graph.launch(stream_);
    ticks_ += plan.ticks;
    for (const uint32_t at : plan.loads) release(steps_[at]);
    if (!plan.pieces.empty() && !ring_->poll()) return false;
    if (item.times > 1 && faultable_ && ++passes_ % kPassesBetweenLooks == 0) look_for_fault();
  }
  return true;
}

bool CudaExecutable::play(const GraphProgram& program) {
  const std::vector<GraphItem>& items = program.items;
  for (size_t at = 0; at < items.size() && !stopped_;) {
    const GraphItem& item = items[at];
    const Step& step = steps_[item.step];
    switch (item.kind) {
      case GraphItem::Kind::Graph:
        if (!play(program, item)) return false;
        ++at;
        break;
      case GraphItem::Kind::Load:
        if (load(step)) ++at;
        break;
      case GraphItem::Kind::Begin:
        at = enter(loops_[step.loop], step.command) ? at + 1 : item.other + 1;
        break;
      case GraphItem::Kind::End:
        if (faultable_ && ++passes_ % kPassesBetweenLooks == 0) look_for_fault();
        at = again(loops_[step.loop]) ? item.other + 1 : at + 1;
        break;
    }
  }
  return true;
}

}  // namespace tape::cuda
