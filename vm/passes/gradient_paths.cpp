// Loops on gradient paths. A loop is on a path when a float it leaves depends on a source and a loss depends on that
// float; a constant REPEAT there is unrolled, so that each pass has versions of its own, or set apart where that would
// be too long. The analysis errs towards "on a path" only.
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "vm/passes/gradient_values.h"

namespace tape {
namespace {

using Set = std::vector<bool>;

constexpr int64_t kMany = int64_t{1} << 30;  // far above every limit on commands; its square is no overflow

struct Span {
  size_t begin = 0, end = 0;  // a loop with its END, or one command
};

std::vector<Span> outermost(const std::vector<PlacedCommand>& commands) {
  std::vector<Span> spans;
  for (size_t i = 0; i < commands.size(); ++i) {
    const size_t begin = i;
    for (int depth = is_loop_head(commands[i].command) ? 1 : 0; depth > 0;) {
      const Command& command = commands[++i].command;
      depth += is_loop_head(command) ? 1 : command.op->opcode == Opcode::End ? -1 : 0;
    }
    spans.push_back({begin, i + 1});
  }
  return spans;
}

/// A loop on a path.
struct OnPath {
  Set varied, useful;  // by tensor: what some pass finds or leaves varied, what a later pass or a loss may depend on
};

class Paths {
 public:
  Paths(const Module& module, const std::vector<PlacedCommand>& commands, const Set& stopped)
      : module_(module), commands_(commands), stopped_(stopped) {}

  /// For each span, what is known of it when it is a loop on a path.
  [[nodiscard]] std::vector<std::optional<OnPath>> find(const std::vector<Span>& spans, const Set& sources,
                                                        const Set& losses) {
    sources_ = &sources;
    Set varied = sources;
    std::vector<Set> varied_in;  // of loops, in order
    for (const Span& span : spans) {
      if (is_loop(span)) {
        while (grow_varied(span, varied)) {
        }
        varied_in.push_back(varied);
      } else {
        vary(commands_[span.begin].command, varied, true);
      }
    }
    Set useful = losses;
    std::vector<std::optional<OnPath>> on_path(spans.size());
    for (size_t s = spans.size(); s-- > 0;) {
      if (!is_loop(spans[s])) {
        use(commands_[spans[s].begin].command, useful, true);
        continue;
      }
      while (grow_useful(spans[s], useful)) {
      }
      if (leaves_both(spans[s], varied_in.back(), useful)) on_path[s] = OnPath{varied_in.back(), useful};
      varied_in.pop_back();
    }
    return on_path;
  }

 private:
  [[nodiscard]] bool is_loop(const Span& span) const { return span.end - span.begin > 1; }
  [[nodiscard]] bool is_float_tensor(TensorId id) const { return is_float(module_.tensors[id].dtype); }

  /// Updates `varied` over one command; returns whether it grew. `kill`: a plain write of something else ends a
  /// variation.
  bool vary(const Command& command, Set& varied, bool kill) const {
    bool any = false, grew = false;
    for_each_tensor(command,
                    [&](size_t, TensorId id, Access access) { any = any || (access != Access::Write && varied[id]); });
    for_each_tensor(command, [&](size_t, TensorId id, Access access) {
      if (access == Access::Read) return;
      const bool now = any && is_float_tensor(id) && !stopped_[id];
      if (now && !varied[id]) grew = varied[id] = true;
      if (!now && kill && access == Access::Write) varied[id] = (*sources_)[id];
    });
    return grew;
  }
  bool grow_varied(const Span& span, Set& varied) const {
    bool grew = false;
    for (size_t i = span.begin; i < span.end; ++i) grew = vary(commands_[i].command, varied, false) || grew;
    return grew;
  }

  bool use(const Command& command, Set& useful, bool kill) const {
    bool any = false, grew = false;
    for_each_tensor(command,
                    [&](size_t, TensorId id, Access access) { any = any || (access != Access::Read && useful[id]); });
    for_each_tensor(command, [&](size_t, TensorId id, Access access) {
      if (kill && access == Access::Write) useful[id] = false;
    });
    for_each_tensor(command, [&](size_t, TensorId id, Access access) {
      if (any && access != Access::Write && is_float_tensor(id) && !useful[id]) grew = useful[id] = true;
    });
    return grew;
  }
  bool grow_useful(const Span& span, Set& useful) const {
    bool grew = false;
    for (size_t i = span.end; i-- > span.begin;) grew = use(commands_[i].command, useful, false) || grew;
    return grew;
  }

  [[nodiscard]] bool leaves_both(const Span& span, const Set& varied, const Set& useful) const {
    bool found = false;
    for (size_t i = span.begin; i < span.end; ++i)
      for_each_tensor(commands_[i].command, [&](size_t, TensorId id, Access access) {
        found = found || (access != Access::Read && varied[id] && useful[id]);
      });
    return found;
  }

  const Module& module_;
  const std::vector<PlacedCommand>& commands_;
  const Set& stopped_;
  const Set* sources_ = nullptr;
};

/// Commands that a span of loops plays, every count of a loop inside taken as it stands.
int64_t played(const std::vector<PlacedCommand>& commands, const Span& span) {
  std::vector<int64_t> times{1};
  int64_t count = 0;
  for (size_t i = span.begin; i < span.end; ++i) {
    const Command& command = commands[i].command;
    if (is_loop_head(command)) {
      const int64_t passes = command.op->opcode == Opcode::Repeat ? command.attr_int("count") : 1;
      times.push_back(std::min(kMany, times.back() * std::min(kMany, std::max<int64_t>(passes, 1))));
    } else if (command.op->opcode == Opcode::End) {
      times.pop_back();
    } else {
      count = std::min(kMany, count + times.back());
    }
  }
  return count;
}

/// A loop without the loops inside that play nothing, so that it writes what its body, whose loops may be unrolled,
/// writes.
std::vector<PlacedCommand> without_idle(std::span<const PlacedCommand> loop) {
  const auto counted = [](const Command& command) {
    return command.op->opcode == Opcode::Repeat && command.id(0) == kAbsent;
  };
  std::vector<PlacedCommand> kept;
  int idle = 0;  // loops around, from the outermost that plays nothing on
  for (const PlacedCommand& placed : loop) {
    const Command& command = placed.command;
    const bool ends = command.op->opcode == Opcode::End;
    if (is_loop_head(command) && (idle > 0 || (counted(command) && command.attr_int("count") == 0))) ++idle;
    if (idle > 0) {
      if (ends) --idle;
    } else if (ends && counted(kept.back().command)) {
      kept.pop_back();  // nothing is left in it
    } else {
      kept.push_back(placed);
    }
  }
  return kept;
}

}  // namespace

void report(Diagnostics& diagnostics, const Module& module, const Location& location, std::string message) {
  Diagnostic diagnostic;
  if (location.line != 0 && location.file < module.files.size()) diagnostic.file = module.files[location.file];
  diagnostic.line = location.line;
  diagnostic.column = location.column;
  diagnostic.message = std::move(message);
  diagnostics.add(std::move(diagnostic));
}

std::optional<PathCommands> unroll_paths(const PathQuery& query, std::vector<PlacedCommand> commands,
                                         const Set& sources, const Set& losses, Diagnostics& diagnostics) {
  PathCommands result;
  for (bool again = true; again;) {
    again = false;
    result.loops.clear();
    const std::vector<Span> spans = outermost(commands);
    const auto on_path = Paths(query.module, commands, query.stopped).find(spans, sources, losses);
    std::vector<PlacedCommand> next;
    for (size_t s = 0; s < spans.size(); ++s) {
      const auto [begin, end] = spans[s];
      const auto at = [&](size_t i) { return commands.begin() + static_cast<std::ptrdiff_t>(i); };
      const PlacedCommand& head = commands[begin];
      if (!on_path[s]) {
        next.insert(next.end(), at(begin), at(end));
        continue;
      }
      if (head.command.op->opcode == Opcode::While || head.command.id(0) != kAbsent) {
        report(diagnostics, query.module, head.location,
               fmt::format(
                   "{}: {} of {} lies on the gradient path of {}: a loop whose count depends on data has no gradient",
                   query.name, head.command.op->mnemonic, query.module.tensors[head.command.id(0)].name, query.loss));
        return std::nullopt;
      }
      const int64_t passes = head.command.attr_int("count");
      if (passes == 0 || end - begin == 2) continue;
      if (const int64_t unrolled = played(commands, spans[s]);
          unrolled <= query.unroll && unrolled + static_cast<int64_t>(next.size()) <= limits::max_inlined) {
        for (int64_t pass = 0; pass < passes; ++pass) next.insert(next.end(), at(begin + 1), at(end - 1));
        again = true;
        continue;
      }
      const std::vector<PlacedCommand> loop = without_idle({at(begin), at(end)});
      if (loop.empty()) continue;
      auto body =
          unroll_paths(query, {loop.begin() + 1, loop.end() - 1}, on_path[s]->varied, on_path[s]->useful, diagnostics);
      if (!body) return std::nullopt;
      result.loops.emplace(next.size(), std::move(*body));
      next.insert(next.end(), loop.begin(), loop.end());
    }
    commands = std::move(next);
  }
  result.commands = std::move(commands);
  return result;
}

}  // namespace tape
