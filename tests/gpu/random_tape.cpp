// Tapes whose hazards nobody thought of.
#include <fmt/format.h>

#include <random>

#include "tests/gpu/graph.h"

namespace tape::test {
namespace {

class Writer {
 public:
  explicit Writer(uint64_t seed) : random_(seed) {}

  std::string write(size_t commands) {
    text_ =
        ".input x0 f32[4,4]\n.input x1 f32[4,4]\n.input turns i32[]\n.param s0 f32[4,4] normal seed=3\n"
        ".state s1 f32[4,4] normal seed=4\n.state s2 f32[4,4] zeros\n.state at i64[] = 0\n.rng dice seed=5\n"
        ".output y f32[4,4]\n.tape main\n";
    names_ = {"x0", "x1", "s0", "s1", "s2"};
    body(commands, 0);
    line(fmt::format("ADD y, {}, {}", some(), some()));
    return text_ + ".end\n";
  }

 private:
  uint64_t draw(uint64_t below) { return random_() % below; }
  const std::string& some() { return names_[draw(names_.size())]; }
  void line(const std::string& command) { text_ += "  " + command + "\n"; }

  /// A place to write: a new one, or one that may be in use; other than the two.
  std::string place(const std::string& a = {}, const std::string& b = {}) {
    for (int i = 0; i < 20; ++i) {
      const std::string& name = some();
      if (draw(3) != 0 && name[0] != 'x' && name != a && name != b) return name;
    }
    return fmt::format("t{}", made_++);
  }
  void know(const std::string& name) {
    if (std::find(names_.begin(), names_.end(), name) == names_.end()) names_.push_back(name);
  }

  void body(size_t commands, int depth) {
    for (size_t i = 0; i < commands; ++i) command(depth);
  }

  void command(int depth) {
    const std::string a = some(), b = some();
    std::string to;
    switch (draw(depth < 2 ? 14 : 10)) {
      case 0:
      case 1:
        to = place();
        line(fmt::format("ADD {}, {}, {}", to, a, b));
        break;
      case 2:
        to = place();
        line(fmt::format("SUB {}, {}, {}", to, a, b));
        break;
      case 3:
        to = place();
        line(fmt::format("TANH {}, {}", to, a));
        break;
      case 4:
        to = place(a, b);
        line(fmt::format("MATMUL {}, {}, {}", to, a, b));
        line(fmt::format("TANH {0}, {0}", to));
        break;
      case 5:
        to = place(a);
        line(fmt::format("TRANSPOSE {}, {}, perm=[1, 0]", to, a));
        break;
      case 6:
        to = place();
        line(fmt::format("RANDOM_UNIFORM {}, dice, shape=[4, 4]", to));
        break;
      case 7:
        line(fmt::format("SUM r{0}, {1}, axes=[0]\n  ADD {2}, {1}, r{0}\n  TANH {2}, {2}", made_, a, to = place()));
        ++made_;
        break;
      case 8:
        line("ADVANCE at");
        return;
      case 9:
        line("REM looked, turns, 7");
        line("ADD looked, turns, 1");
        line("FLOOR_DIV looked, turns, looked");
        return;
      default:
        return loop(depth);
    }
    know(to);
  }

  /// What a body writes first is not known behind it.
  void loop(int depth) {
    const size_t known = names_.size();
    const size_t commands = 1 + draw(4);
    const std::string id = fmt::format("c{}", made_++);
    switch (draw(4)) {
      case 0:
        line("REPEAT turns, max=5");
        body(commands, depth + 1);
        break;
      case 1:
        line(fmt::format("REPEAT {}", draw(2) == 0 ? 3 : 40));
        body(commands, depth + 1);
        break;
      default:
        line(fmt::format("FILL {0}, value=0, shape=[], dtype=i32\n  LT go.{0}, {0}, turns", id));
        line(fmt::format("WHILE go.{}, max={}", id, 1 + draw(6)));
        body(commands, depth + 1);
        line(fmt::format("ADVANCE {0}\n  LT go.{0}, {0}, turns", id));
        break;
    }
    line("END");
    names_.resize(known);
  }

  std::mt19937_64 random_;
  std::string text_;
  std::vector<std::string> names_;
  uint64_t made_ = 0;
};

}  // namespace

std::string random_tape(uint64_t seed, size_t commands) {
  return Writer(seed).write(commands);
}

}  // namespace tape::test
