// Checks across commands and tapes: recursion, host traffic under data-dependent loops, reads of locals before their
// writes, and the counts that bound an entry. Tapes are visited callees first, so that nothing is ever inlined here.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "vm/verify_internal.h"

namespace tape::verifier {
namespace {

constexpr int64_t kMost = INT64_MAX;

int64_t add(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? kMost : sum;
}
int64_t multiply(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? kMost : product;
}

// ---- call order ----

/// Tapes with callees before callers, as far as calls do not recur; a cycle is reported.
class CallOrder {
 public:
  CallOrder(const Module& module, const std::vector<TapeScan>& scans, Report& report)
      : module_(module), scans_(scans), report_(report), state_(scans.size(), State::Fresh) {}

  std::vector<TapeId> run() {
    for (TapeId tape = 0; tape < scans_.size(); ++tape)
      if (state_[tape] == State::Fresh) visit(tape);
    return std::move(order_);
  }

 private:
  enum class State : uint8_t { Fresh, Open, Done };
  struct Frame {
    TapeId tape;
    size_t next;  // event to look at
  };

  /// Depth-first over an explicit stack: a chain of calls may be as long as there are tapes.
  void visit(TapeId root) {
    enter(root);
    while (!stack_.empty()) {
      const TapeId tape = stack_.back().tape;
      const auto& events = scans_[tape].events;
      size_t at = stack_.back().next;
      while (at < events.size() && events[at].kind != Event::Kind::Call) ++at;
      if (at == events.size()) {
        state_[tape] = State::Done;
        order_.push_back(tape);
        stack_.pop_back();
        continue;
      }
      stack_.back().next = at + 1;
      const Event& call = events[at];
      if (state_[call.id] == State::Fresh)
        enter(call.id);
      else if (state_[call.id] == State::Open)
        report_cycle(call);
    }
  }

  void enter(TapeId tape) {
    state_[tape] = State::Open;
    stack_.push_back({tape, 0});
  }

  void report_cycle(const Event& call) {
    constexpr size_t kShown = 16;
    std::string cycle;
    size_t first = stack_.size();
    while (stack_[first - 1].tape != call.id) --first;
    const size_t length = stack_.size() - (first - 1);
    for (size_t i = 0; i < std::min(length, kShown); ++i)
      cycle += module_.tapes[stack_[first - 1 + i].tape].name + " -> ";
    if (length > kShown) cycle += "... -> ";
    report_.command({stack_.back().tape, call.word, call.index},
                    fmt::format("CALL: recursion: {}{}", cycle, module_.tapes[call.id].name));
  }

  const Module& module_;
  const std::vector<TapeScan>& scans_;
  Report& report_;
  std::vector<State> state_;
  std::vector<Frame> stack_;
  std::vector<TapeId> order_;
};

// ---- one tape ----

/// A common local that a tape reads before writing it, and where.
struct Need {
  TensorId id = kNone;
  Site site;  // of the command that reads, in the tape where it stands
};

/// What callers must know of a tape.
struct Summary {
  std::vector<Need> needs;
  std::vector<TensorId> defines;  // common locals surely written
  int64_t inlined = 0;            // commands after inlining
  int64_t work = 0;               // the same, CALLs counted too: what inlining walks over
  int64_t executed = 0;
  int64_t nesting = 0;
  int64_t call_depth = 0;
  Site host;  // first LOAD, STORE or TRACE, of this tape or of one it calls
};

class Flow {
 public:
  Flow(const Module& module, const std::vector<TapeScan>& scans, Report& report)
      : module_(module),
        scans_(scans),
        report_(report),
        summaries_(scans.size()),
        defined_(module.tensors.size()),
        needed_(module.tensors.size()),
        doubtful_(module.tensors.size()) {}

  void visit(TapeId tape) {
    tape_ = tape;
    ++stamp_;
    summary_ = {};
    summary_.host = scans_[tape].host;
    log_.clear();
    loops_.assign(1, {});
    next_ = 0;
    for (const Event& event : scans_[tape].events) step(event);
    count_to(scans_[tape].commands);
    summary_.executed = loops_.front().executed;
    summary_.inlined = add(summary_.inlined, scans_[tape].commands);
    summary_.work = add(summary_.work, scans_[tape].commands);
    for (const TensorId id : log_)
      if (module_.tensors[id].owner != tape && needed_[id] != stamp_) summary_.defines.push_back(id);
    own_limits(loops_.front().own);
    flow_ += static_cast<int64_t>(summary_.needs.size() + summary_.defines.size());
    summaries_[tape] = std::move(summary_);
  }

  [[nodiscard]] bool over_budget() const { return flow_ > limits::max_flow; }
  [[nodiscard]] const Summary& summary(TapeId tape) const { return summaries_[tape]; }

 private:
  struct Loop {
    const LoopFacts* facts = nullptr;
    size_t log = 0;               // length of log_ at its start
    int64_t executed = 0;         // commands of one pass, calls counted through
    int64_t own = 0;              // the same, a CALL counted as one
    bool data_dependent = false;  // it, or one around it
  };

  [[nodiscard]] Site site_of(const Event& event) const { return {tape_, event.word, event.index}; }

  /// Counts the straight commands up to index `end`.
  void count_to(uint32_t end) {
    const int64_t straight = end - next_;
    loops_.back().executed = add(loops_.back().executed, straight);
    loops_.back().own = add(loops_.back().own, straight);
    next_ = end;
  }

  void step(const Event& event) {
    switch (event.kind) {
      case Event::Kind::Read:
        return read(event.id, site_of(event), event);
      case Event::Kind::Write:
        return define(event.id);
      case Event::Kind::Loop:
        return enter(event);
      case Event::Kind::End:
        return leave(event);
      case Event::Kind::Call:
        return call(event);
    }
  }

  void define(TensorId id) {
    if (defined_[id] == stamp_) return;
    defined_[id] = stamp_;
    log_.push_back(id);
  }

  void read(TensorId id, const Site& reader, const Event& event) {
    if (defined_[id] == stamp_ || needed_[id] == stamp_) return;
    const Tensor& tensor = module_.tensors[id];
    // Saved values are the module's storage, except for the forward that writes them.
    if (tensor.role == Role::Saved && tensor.owner != tape_) return;
    needed_[id] = stamp_;
    if (tensor.owner != tape_) {
      summary_.needs.push_back({id, reader});
      return;
    }
    if (!scans_[tape_].whole) return;  // what was not understood may have written it
    report_.command(
        site_of(event),
        fmt::format("{}: reads {} before it is written{}", report_.mnemonic_of(reader), tensor.name,
                    doubtful_[id] == stamp_ ? ": a loop that may run zero times defines nothing after it" : ""));
  }

  void enter(const Event& event) {
    count_to(event.index + 1);
    const LoopFacts& facts = scans_[tape_].loops[event.id];
    loops_.push_back({&facts, log_.size(), 0, 0, facts.data_dependent || loops_.back().data_dependent});
    summary_.nesting = std::max(summary_.nesting, static_cast<int64_t>(loops_.size()) - 1);
  }

  void leave(const Event& event) {
    count_to(event.index + 1);
    const Loop loop = loops_.back();
    loops_.pop_back();
    loops_.back().executed = add(loops_.back().executed, multiply(loop.executed, loop.facts->bound));
    loops_.back().own = add(loops_.back().own, multiply(loop.own, loop.facts->bound));
    if (loop.facts->surely_runs) return;
    for (size_t i = loop.log; i < log_.size(); ++i) {
      defined_[log_[i]] = 0;
      doubtful_[log_[i]] = stamp_;
    }
    log_.resize(loop.log);
  }

  void call(const Event& event) {
    count_to(event.index);
    next_ = event.index + 1;
    const Summary& callee = summaries_[event.id];
    summary_.inlined = add(summary_.inlined, callee.inlined - 1);  // the CALL itself goes
    summary_.work = add(summary_.work, callee.work);
    loops_.back().executed = add(loops_.back().executed, callee.executed);
    loops_.back().own = add(loops_.back().own, 1);
    summary_.nesting = std::max(summary_.nesting, static_cast<int64_t>(loops_.size()) - 1 + callee.nesting);
    summary_.call_depth = std::max(summary_.call_depth, callee.call_depth + 1);
    if (summary_.host.tape == kNone) summary_.host = callee.host;
    if (loops_.back().data_dependent && callee.host.tape != kNone)
      report_.command(site_of(event),
                      fmt::format("CALL: the {} of {} has no place in a loop that depends on data",
                                  report_.mnemonic_of(callee.host), module_.tapes[event.id].name),
                      callee.host, "it is here");
    flow_ += static_cast<int64_t>(callee.needs.size() + callee.defines.size());
    if (over_budget()) return;
    for (const Need& need : callee.needs) read(need.id, need.site, event);
    for (const TensorId id : callee.defines) define(id);
  }

  /// A tape that is too much all by itself is a mistake of the module; through its CALLs it is only not playable.
  void own_limits(int64_t own_executed) {
    const std::string& name = module_.tapes[tape_].name;
    const Location& at = module_.tapes[tape_].location;
    if (scans_[tape_].commands > limits::max_inlined)
      report_.declaration(at, fmt::format("{}: has {} commands; the limit max_inlined is {}", name,
                                          scans_[tape_].commands, limits::max_inlined));
    if (own_executed > limits::max_executed)
      report_.declaration(
          at, fmt::format("{}: its loops execute up to {} commands; the limit max_executed is {}", name,
                          own_executed == kMost ? "2^63" : std::to_string(own_executed), limits::max_executed));
  }

  const Module& module_;
  const std::vector<TapeScan>& scans_;
  Report& report_;
  std::vector<Summary> summaries_;
  TapeId tape_ = kNone;
  Summary summary_;
  // By tensor: the visit that defined it, read it undefined, or wrote it in a loop that may not run.
  uint32_t stamp_ = 0;
  std::vector<uint32_t> defined_, needed_, doubtful_;
  std::vector<TensorId> log_;  // what is defined, in order
  std::vector<Loop> loops_;    // [0]: outside all
  uint32_t next_ = 0;          // first command not yet counted
  int64_t flow_ = 0;
};

// ---- facts ----

std::string over_limit(const Summary& summary) {
  const auto text = [](int64_t n) { return n == kMost ? std::string("2^63 or more") : std::to_string(n); };
  if (summary.work > limits::max_inlined)
    return fmt::format("inlining its CALLs gives {} commands; the limit max_inlined is {}", text(summary.work),
                       limits::max_inlined);
  if (summary.executed > limits::max_executed)
    return fmt::format("it may execute {} commands; the limit max_executed is {}", text(summary.executed),
                       limits::max_executed);
  if (summary.nesting > limits::max_nesting)
    return fmt::format("{} loops stand inside one another; the limit max_nesting is {}", summary.nesting,
                       limits::max_nesting);
  if (summary.call_depth > limits::max_call_depth)
    return fmt::format("{} CALLs stand inside one another; the limit max_call_depth is {}", summary.call_depth,
                       limits::max_call_depth);
  return {};
}

TapeFacts facts_of(const Module& module, const Summary& summary, const Report& report) {
  TapeFacts facts;
  facts.inlined_commands = summary.inlined;
  facts.executed_commands = summary.executed;
  facts.why_not = over_limit(summary);
  facts.over_limit = !facts.why_not.empty();
  facts.playable = !facts.over_limit && summary.needs.empty();
  if (facts.playable || facts.over_limit) return facts;
  const Need& need = summary.needs.front();
  facts.why_not =
      fmt::format("it reads the common local {} before writing it: {} of tape {} at {}", module.tensors[need.id].name,
                  report.mnemonic_of(need.site), module.tapes[need.site.tape].name, report.place_of(need.site));
  return facts;
}

/// A tape must not call, itself or through others, its own gradient: that reads values the tape has yet to save.
/// Looks at max_flow reads, writes and calls at most; false when there are more.
bool check_gradients(const Module& module, const std::vector<TapeScan>& scans, Report& report) {
  std::vector<std::vector<TapeId>> gradients(module.tapes.size());
  for (TapeId id = 0; id < module.tapes.size(); ++id)
    if (module.tapes[id].gradient_of < module.tapes.size()) gradients[module.tapes[id].gradient_of].push_back(id);
  std::vector<TapeId> seen(module.tapes.size(), kNone), open;
  int64_t looked = 0;
  for (TapeId id = 0; id < module.tapes.size(); ++id) {
    if (gradients[id].empty()) continue;
    open.assign(1, id);
    while (!open.empty()) {
      const TapeId at = open.back();
      open.pop_back();
      for (const Event& event : scans[at].events) {
        if (++looked > limits::max_flow) return false;
        if (event.kind != Event::Kind::Call) continue;
        if (seen[event.id] == id) continue;
        seen[event.id] = id;
        open.push_back(event.id);
      }
    }
    for (const TapeId gradient : gradients[id])
      if (seen[gradient] == id)
        report.declaration(module.tapes[id].location, fmt::format("{}: it calls {}, which is its gradient",
                                                                  module.tapes[id].name, module.tapes[gradient].name));
  }
  return true;
}

}  // namespace

std::vector<TapeFacts> check_flow(const Module& module, const std::vector<TapeScan>& scans, Report& report) {
  const std::vector<TapeId> order = CallOrder(module, scans, report).run();
  if (!check_gradients(module, scans, report)) {
    report.module(fmt::format("the CALLs of tapes that have gradients are more than {} (max_flow)", limits::max_flow));
    return {};
  }
  Flow flow(module, scans, report);
  std::vector<TapeFacts> facts(scans.size());
  for (const TapeId tape : order) {
    flow.visit(tape);
    if (flow.over_budget()) {
      report.module(fmt::format("the CALLs hand on more than {} common locals (max_flow)", limits::max_flow));
      return {};
    }
    facts[tape] = facts_of(module, flow.summary(tape), report);
  }
  for (const TapeScan& scan : scans)
    for (const Event& event : scan.events)
      if (event.kind == Event::Kind::Call) facts[event.id].is_called = true;
  return facts;
}

}  // namespace tape::verifier
