// Loops on gradient paths. A loop is on a path when a float it leaves depends on a source and a loss depends on that
// float; a constant REPEAT there is unrolled, so that each pass has versions of its own. The analysis errs towards "on
// a path" only.
#include <fmt/format.h>

#include <utility>

#include "vm/passes/gradient_values.h"

namespace tape {
namespace {

using Set = std::vector<bool>;

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

class Paths {
 public:
  Paths(const Module& module, const std::vector<PlacedCommand>& commands, const Set& stopped)
      : module_(module), commands_(commands), stopped_(stopped) {}

  /// For each span, whether it is a loop on a path.
  [[nodiscard]] std::vector<bool> find(const std::vector<Span>& spans, const Set& sources,
                                       const std::vector<TensorId>& losses) {
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
    Set useful(module_.tensors.size());
    for (const TensorId id : losses) useful[id] = true;
    std::vector<bool> on_path(spans.size());
    for (size_t s = spans.size(); s-- > 0;) {
      if (!is_loop(spans[s])) {
        use(commands_[spans[s].begin].command, useful, true);
        continue;
      }
      while (grow_useful(spans[s], useful)) {
      }
      on_path[s] = leaves_both(spans[s], varied_in.back(), useful);
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

}  // namespace

void report(Diagnostics& diagnostics, const Module& module, const Location& location, std::string message) {
  Diagnostic diagnostic;
  if (location.line != 0 && location.file < module.files.size()) diagnostic.file = module.files[location.file];
  diagnostic.line = location.line;
  diagnostic.column = location.column;
  diagnostic.message = std::move(message);
  diagnostics.add(std::move(diagnostic));
}

std::optional<std::vector<PlacedCommand>> unroll_paths(const Module& module, std::vector<PlacedCommand> commands,
                                                       const Set& sources, const Set& stopped,
                                                       const std::vector<TensorId>& losses, const std::string& name,
                                                       Diagnostics& diagnostics) {
  for (bool again = true; again;) {
    again = false;
    const std::vector<Span> spans = outermost(commands);
    const std::vector<bool> on_path = Paths(module, commands, stopped).find(spans, sources, losses);
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
        report(diagnostics, module, head.location,
               fmt::format(
                   "{}: {} of {} lies on the gradient path of {}: a loop whose count depends on data has no gradient",
                   name, head.command.op->mnemonic, module.tensors[head.command.id(0)].name,
                   module.tensors[losses[0]].name));
        return std::nullopt;
      }
      const int64_t passes = head.command.attr_int("count");
      const auto body = static_cast<int64_t>(end - begin) - 2;
      if (body > 0 && passes > (limits::max_inlined - static_cast<int64_t>(next.size())) / body) {
        report(diagnostics, module, head.location,
               fmt::format(
                   "{}: REPEAT {} of {} commands lies on the gradient path of {}: unrolled, it exceeds max_inlined, {}",
                   name, passes, body, module.tensors[losses[0]].name, limits::max_inlined));
        return std::nullopt;
      }
      for (int64_t pass = 0; pass < passes && body > 0; ++pass) next.insert(next.end(), at(begin + 1), at(end - 1));
      again = true;
    }
    commands = std::move(next);
  }
  return commands;
}

}  // namespace tape
