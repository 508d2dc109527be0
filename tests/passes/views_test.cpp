// Locals that lie in others: which ones, and that nobody can tell: random tapes against a plan without them.
#include "vm/views.h"

#include <fmt/format.h>

#include <random>

#include "tests/passes/support.h"
#include "vm/passes/passes.h"
#include "vm/plan.h"

namespace tape::test {
namespace {

std::shared_ptr<const Plan> planned(const std::string& text, PlanOptions options = {}) {
  const std::unique_ptr<Backend> backend = open_backend("cpu");
  const VerifiedModule module = assembled(text);
  Diagnostics diagnostics;
  std::optional<VerifiedModule> entry = verify(inline_entry(module, 0).module, diagnostics);
  if (!entry) throw std::runtime_error(diagnostics.text());
  return make_plan(*entry, *backend, options);
}
TensorId id_of(const Plan& plan, const std::string& name) {
  const std::vector<Tensor>& tensors = plan.module.module().tensors;
  for (TensorId id = 0; id < tensors.size(); ++id)
    if (tensors[id].name == name) return id;
  throw std::runtime_error("no " + name);
}

constexpr const char* kHead = R"(
.input x f32[8, 64]
.state s f32[8, 64] zeros
.output y f32[]
.tape main
  ADD a, x, 1
)";

struct Case {
  const char* what;
  const char* body;  // writes b from a
  int64_t offset;    // of b in a, in bytes; -1: b has bytes of its own
};
const Case kCases[] = {
    {"reshape", "  RESHAPE b, a, shape=[64, 8]\n", 0},
    {"copy", "  COPY b, a\n", 0},
    {"rows", "  SLICE b, a, start=[2, 0], stop=[5, 64]\n", 512},
    {"rows_from_the_end", "  SLICE b, a, start=[-1], stop=[8]\n", 1792},
    {"columns", "  SLICE b, a, start=[0, 0], stop=[8, 32]\n", -1},
    {"a_part_of_a_row", "  SLICE b, a, start=[3, 0], stop=[4, 32]\n", 768},
    {"unaligned_part", "  SLICE b, a, start=[3, 16], stop=[4, 64]\n", -1},
    {"steps", "  SLICE b, a, start=[0, 0], stop=[8, 64], step=[2, 1]\n", -1},
    {"split_rows", "  SPLIT [c, b], a, axis=0\n", 1024},
    {"split_columns", "  SPLIT [c, b], a, axis=1\n", -1},
    {"transposed", "  TRANSPOSE b, a, perm=[1, 0]\n", -1},
    {"ones_moved", "  RESHAPE c, a, shape=[8, 1, 64]\n  TRANSPOSE b, c, perm=[1, 0, 2]\n", 0},
    {"ones_reversed", "  RESHAPE c, a, shape=[1, 512]\n  TRANSPOSE b, c\n", 0},
    {"chain", "  SLICE c, a, start=[2, 0], stop=[8, 64]\n  SLICE b, c, start=[1, 0], stop=[3, 64]\n", 768},
    {"source_written_later", "  RESHAPE b, a, shape=[512]\n  ADD a, a, 1\n  SUM z, a\n  MUL b2, b, z\n", -1},
    {"written_twice", "  RESHAPE b, a, shape=[512]\n  ADD b, b, 1\n", -1},
    {"written_in_a_loop", "  REPEAT 2\n    RESHAPE b, a, shape=[512]\n    ADD a, a, 1\n  END\n", -1},
    {"made_in_a_loop", "  REPEAT 2\n    RESHAPE b, a, shape=[512]\n    SUM s2, b\n  END\n", 0},
    {"of_an_input", "  RESHAPE b, x, shape=[512]\n", -1},
    {"added", "  FILL b, value=0, shape=[8, 64], dtype=f32\n  RELU b, a, acc=1\n", -1},
};

class ViewCases : public testing::TestWithParam<Case> {};

TEST_P(ViewCases, LieWhereTheyCan) {
  const std::string text = std::string(kHead) + GetParam().body + "  SUM y, b\n.end\n";
  const auto plan = planned(text);
  const View view = plan->views[id_of(*plan, "b")];
  if (GetParam().offset < 0) {
    EXPECT_EQ(view.root, kNone);
    return;
  }
  const TensorId a = id_of(*plan, "a"), b = id_of(*plan, "b");
  EXPECT_EQ(view.root, a);
  EXPECT_EQ(view.offset, static_cast<uint64_t>(GetParam().offset));
  EXPECT_EQ(plan->tensors[b].offset, plan->tensors[a].offset + view.offset);
  EXPECT_EQ(plan->tensors[a].last, plan->tensors[b].last);
  PlanOptions apart;
  apart.views = false;
  EXPECT_EQ(planned(text, apart)->views[b].root, kNone);
  apart = {};
  apart.reuse = false;
  EXPECT_EQ(planned(text, apart)->views[b].root, kNone);
}

INSTANTIATE_TEST_SUITE_P(Views, ViewCases, testing::ValuesIn(kCases), [](const auto& at) { return at.param.what; });

/// A tape of locals f32[8, 64] under several shapes; everything read goes into the output.
class RandomText {
 public:
  explicit RandomText(uint32_t seed) : random_(seed) {}

  std::string text() {
    out_ =
        ".input x f32[8, 64]\n.output y f32[]\n.tape main\n  FILL y, value=0\n  FILL f, value=1, shape=[], "
        "dtype=bool\n";
    const std::string first = fresh();
    out_ += fmt::format("  ADD {}, x, 1\n", first);
    whole_.push_back(first);
    block(24, 0);
    out_ += ".end\n";
    return out_;
  }

 private:
  std::string fresh() { return fmt::format("t{}", count_++); }
  uint32_t below(size_t n) { return random_() % static_cast<uint32_t>(n); }
  const std::string& any() { return whole_[below(whole_.size())]; }
  void line(const std::string& text, int depth) {
    out_ += std::string(2 + 2 * static_cast<size_t>(depth), ' ') + text + "\n";
  }
  void use(const std::string& name, int depth) {
    const std::string sum = fresh();
    line(fmt::format("SUM {}, {}", sum, name), depth);
    line(fmt::format("MUL y, y, 0.5"), depth);
    line(fmt::format("ADD y, y, {}", sum), depth);
  }

  void block(int commands, int depth, bool keeps = false) {
    const size_t known = whole_.size();
    for (int i = 0; i < commands; ++i) command(depth);
    if (!keeps) whole_.resize(known);
  }

  void command(int depth) {
    const std::string source = any(), made = fresh();
    switch (below(11)) {
      case 0:
      case 1: {
        line(fmt::format("RESHAPE {}, {}, shape={}", made, source, below(2) == 0 ? "[512]" : "[4, 2, 64]"), depth);
        const std::string back = fresh();
        line(fmt::format("RESHAPE {}, {}, shape=[8, 64]", back, made), depth);
        whole_.push_back(back);
        return;
      }
      case 2:
        line(fmt::format("COPY {}, {}", made, source), depth);
        whole_.push_back(made);
        return;
      case 3: {
        const uint32_t start = below(8), stop = start + 1 + below(8 - start);
        line(fmt::format("SLICE {}, {}, start=[{}, 0], stop=[{}, 64]", made, source, start, stop), depth);
        return use(made, depth);
      }
      case 4: {
        const std::string other = fresh(), joined = fresh();
        line(fmt::format("SPLIT [{}, {}], {}, axis=0", made, other, source), depth);
        line(fmt::format("CONCAT {}, {}, {}, axis=0", joined, other, made), depth);
        whole_.push_back(joined);
        return;
      }
      case 5:
        line(fmt::format("ADD {0}, {0}, 0.25", source), depth);
        return;
      case 6:
        if (const std::string& other = any(); other != source)
          line(fmt::format("RELU {}, {}, acc=1", source, other), depth);
        return;
      case 7:
        line(fmt::format("MUL {}, {}, {}", made, source, any()), depth);
        line(fmt::format("TANH {0}, {0}", made), depth);
        whole_.push_back(made);
        return;
      case 8:
        if (depth == 2) return use(source, depth);
        if (below(3) == 0) {  // whose body may not be played at all
          line(fmt::format("WHILE f, max={}", 1 + below(3)), depth);
          block(5, depth + 1);
        } else {
          line(fmt::format("REPEAT {}", 1 + below(3)), depth);
          block(5, depth + 1, true);
        }
        line("END", depth);
        return;
      case 9:
        line(fmt::format("TRANSPOSE {}, {}, perm=[1, 0]", made, source), depth);
        return use(made, depth);
      default:
        return use(source, depth);
    }
  }

  std::mt19937 random_;
  std::string out_;
  std::vector<std::string> whole_;
  int count_ = 0;
};

float result(const VerifiedModule& module, const MachineOptions& options) {
  Machine machine(open_backend("cpu"), options);
  machine.add(module);
  std::vector<float> x(512);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 37) / 64 - 0.25f;
  const std::span<const std::byte> bytes = std::as_bytes(std::span(x));
  machine.load("x", bytes);
  machine.run("main");
  float y = 0;
  machine.retrieve("y", std::as_writable_bytes(std::span(&y, 1)));
  return y;
}

TEST(Views, NobodyCanTell) {
  size_t views = 0;
  for (uint32_t seed = 0; seed < 400; ++seed) {
    const std::string text = RandomText(seed).text();
    const VerifiedModule module = assembled(text);
    MachineOptions apart, together, poisoned;
    apart.reuse = false;
    poisoned.poison = true;
    const float expected = result(module, apart);
    ASSERT_TRUE(std::isfinite(expected)) << seed << "\n" << text;
    ASSERT_EQ(result(module, together), expected) << seed << "\n" << text;
    ASSERT_EQ(result(module, poisoned), expected) << seed << "\n" << text;
    const auto plan = planned(text);
    for (const View& view : plan->views) views += view.root != kNone ? 1 : 0;
  }
  EXPECT_GT(views, 1000u);
}

TEST(Views, KeepWhatIsPinned) {
  const std::string text =
      std::string(kHead) +
      "  RESHAPE b, a, shape=[512]\n  SUM y, a\n  MUL c, x, 3\n  MUL d, c, c\n  SUM e, d\n  ADD y, y, "
      "e\n.end\n";
  Player player(text, "cpu", {"main:b"});
  player.set("x", Values(512, 2));
  player.machine.run("main");
  EXPECT_EQ(player.get("main:b"), Values(512, 3));
}

}  // namespace
}  // namespace tape::test
