// The backend that lies (tests/faulty): each kind of lie changes what it says it changes, and nothing else.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <vector>

#include "embed/backends.h"
#include "tests/difftest/support.h"
#include "vm/machine.h"

namespace tape::test {
namespace {

/// A Machine with one module, on a backend of that name.
class Played {
 public:
  Played(const std::string& text, const std::string& backend) : machine_(open(backend), plain()) {
    machine_.add(module_of(text));
  }
  Played& run(const std::string& tape = "main") {
    machine_.run(tape);
    return *this;
  }
  [[nodiscard]] std::vector<float> operator[](const std::string& name) {
    const HostArray array = machine_.retrieve(name);
    std::vector<float> values;
    for (size_t i = 0; i < static_cast<size_t>(array.shape.elements()); ++i)
      values.push_back(static_cast<float>(element_as_f64(array.bytes, array.dtype, i)));
    return values;
  }

 private:
  static std::unique_ptr<Backend> open(const std::string& name) {
    setenv("TAPE_TEST_BACKENDS", TAPE_FAULTY, 1);
    return open_backend(name);
  }
  static MachineOptions plain() {
    MachineOptions options;
    options.share_common = options.eliminate_dead = false;
    return options;
  }
  Machine machine_;
};

std::string refusal_of(const std::string& name) {
  try {
    static_cast<void>(open_backend(name));
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

using Floats = std::vector<float>;

TEST(Faulty, LaneIsZero) {
  const std::string text = ".output y i32[40]\n.tape main\n  IOTA y, axis=0\n  ADD y, y, 1\n.end\n";
  const Floats right = Played(text, "cpu").run()["y"];
  Floats wanted;
  for (int i = 0; i < 40; ++i) wanted.push_back(i == 5 || i == 37 ? 0.f : static_cast<float>(i + 1));
  const Floats wrong = Played(text, "faulty:lane:ADD").run()["y"];
  EXPECT_EQ(wrong, wanted);
  EXPECT_NE(wrong, right);
  EXPECT_EQ(Played(text, "faulty:lane:SUB").run()["y"], right) << "no SUB: nothing to lie about";
}

TEST(Faulty, Tf32RoundsSourcesForOneCommand) {
  const std::string text =
      ".input x f32[1, 1] = 1.000244140625\n.output z f32[1, 1]\n.output y f32[1, 1]\n.tape main\n"
      "  MATMUL z, x, x\n  ADD y, x, 0\n.end\n";
  Played wrong(text, "faulty:tf32:MATMUL");
  EXPECT_EQ(wrong.run()["z"], Floats{1.f});
  EXPECT_EQ(wrong["y"], Floats{1.000244140625f}) << "the source is as it was";
  EXPECT_EQ(Played(text, "cpu").run()["z"], Floats{1.000244140625f * 1.000244140625f});
}

TEST(Faulty, StaleKeepsWhatWasThere) {
  const std::string text = ".state s f32[2] = 7 8\n.tape main\n  FILL s, value=3\n  ADD s, s, 1\n.end\n";
  EXPECT_EQ(Played(text, "faulty:stale:FILL").run()["s"], (Floats{8, 9}));
  EXPECT_EQ(Played(text, "faulty:stale:ADD").run()["s"], (Floats{3, 3}));
  EXPECT_EQ(Played(text, "cpu").run()["s"], (Floats{4, 4}));
}

TEST(Faulty, IndexIsOffByOne) {
  const std::string text = ".output y i32[4]\n.tape main\n  IOTA y, axis=0\n.end\n";
  EXPECT_EQ(Played(text, "faulty:index:IOTA").run()["y"], (Floats{1, 2, 3, 0}));
}

TEST(Faulty, BroadcastSumKeepsFirstTerms) {
  const std::string text =
      ".input x f32[2, 3] = 1 2 3 4 5 6\n.output rows f32[2]\n.output columns f32[3]\n.output all f32[]\n"
      ".tape main\n  SUM rows, x, axes=1\n  SUM columns, x, axes=0\n  SUM all, x\n.end\n";
  Played wrong(text, "faulty:broadcast:SUM");
  EXPECT_EQ(wrong.run()["rows"], (Floats{1, 4}));
  EXPECT_EQ(wrong["columns"], (Floats{1, 2, 3}));
  EXPECT_EQ(wrong["all"], Floats{1});
}

TEST(Faulty, OrderChangesTheLastBitOfSomePlayings) {
  const std::string text = ".input x f32[2] = 1 2\n.output y f32[2]\n.tape main\n  MUL y, x, 1\n.end\n";
  Played wrong(text, "faulty:order:MUL");
  EXPECT_EQ(wrong.run()["y"], (Floats{1, 2}));
  EXPECT_EQ(wrong.run()["y"], (Floats{std::nextafter(1.f, 2.f), 2}));
  EXPECT_EQ(wrong.run()["y"], (Floats{1, 2}));
}

TEST(Faulty, NanIsTheLastElement) {
  const std::string text = ".input x f32[3] = 1 2 3\n.output y f32[3]\n.tape main\n  MUL y, x, 1\n.end\n";
  const Floats wrong = Played(text, "faulty:nan:MUL").run()["y"];
  EXPECT_EQ(wrong[0], 1);
  EXPECT_EQ(wrong[1], 2);
  EXPECT_TRUE(std::isnan(wrong[2]));
}

TEST(Faulty, BehindAndSourceMeddleWithOthers) {
  const std::string text =
      ".state x f32[1] = 1\n.state y f32[1] = 0\n.output z f32[1]\n.tape main\n  MUL y, x, 2\n  ADD z, y, 0\n.end\n";
  Played wrong(text, "faulty:source:MUL");
  wrong.run();
  EXPECT_EQ(wrong["x"], Floats{std::nextafter(1.f, 2.f)});
  EXPECT_EQ(wrong["y"], Floats{2}) << "what it read was right";
  EXPECT_EQ(Played(text, "faulty:behind:MUL").run()["z"], Floats{2}) << "the result itself is right";
}

TEST(Faulty, OnePlayingAlone) {
  const std::string text =
      ".state s f32[] = 0\n.input n i32[] = 3\n.tape main\n  REPEAT 4\n    ADD s, s, 1\n  END\n.end\n"
      ".tape counted\n  REPEAT n, max=5\n    ADD s, s, 1\n  END\n.end\n";
  EXPECT_EQ(Played(text, "cpu").run()["s"], Floats{4});
  EXPECT_EQ(Played(text, "faulty:stale:ADD:2").run()["s"], Floats{3});
  EXPECT_EQ(Played(text, "faulty:stale:ADD").run()["s"], Floats{0});
  EXPECT_EQ(Played(text, "faulty:stale:ADD:9").run()["s"], Floats{4}) << "it is never played a tenth time";
  EXPECT_EQ(Played(text, "faulty:stale:ADD:4").run().run()["s"], Floats{7}) << "playings count over runs";
  EXPECT_EQ(Played(text, "faulty:stale:ADD:2").run("counted")["s"], Floats{2});
}

TEST(Faulty, OneResultAlone) {
  const std::string text =
      ".input x f32[2] = 1 2\n.output y f32[2]\n.output z f32[2]\n.tape main\n  MUL y, x, 2\n  MUL z, x, 3\n.end\n";
  Played wrong(text, "faulty:index:MUL:z");
  EXPECT_EQ(wrong.run()["y"], (Floats{2, 4}));
  EXPECT_EQ(wrong["z"], (Floats{6, 3}));
}

TEST(Faulty, AFaultStillStops) {
  const std::string text =
      ".input x i32[2] = 1 2\n.output y i32[2]\n.output z f32[2]\n.tape main\n  ADD y, x, 1\n"
      "  ASSERT_EQUAL y, x\n  FILL z, value=1\n.end\n";
  Played wrong(text, "faulty:lane:ADD");
  EXPECT_THROW(wrong.run(), Fault);
  EXPECT_EQ(wrong["z"], (Floats{0, 0}));
}

TEST(Faulty, NamesThatAreNone) {
  unsetenv("TAPE_TEST_BACKENDS");
  EXPECT_NE(refusal_of("faulty:lane:ADD").find("no backend `faulty:lane:ADD`"), std::string::npos);
  setenv("TAPE_TEST_BACKENDS", TAPE_FAULTY, 1);
  EXPECT_NE(refusal_of("faulty:lane").find("wanted faulty:KIND:OPCODE[:WHICH]"), std::string::npos);
  EXPECT_NE(refusal_of("faulty:loud:ADD").find("KIND is lane, tf32"), std::string::npos);
  EXPECT_NE(refusal_of("faulty:lane:ADDD").find("no command ADDD"), std::string::npos);
  EXPECT_NE(refusal_of("faulty:lane:REPEAT").find("no command REPEAT"), std::string::npos);
  EXPECT_NE(refusal_of("faulty:broadcast:ADD").find("broadcast wants SUM"), std::string::npos);
  setenv("TAPE_TEST_BACKENDS", "/nowhere/at/all.so", 1);
  EXPECT_NE(refusal_of("faulty:lane:ADD").find("TAPE_TEST_BACKENDS=/nowhere/at/all.so"), std::string::npos);
}

}  // namespace
}  // namespace tape::test
