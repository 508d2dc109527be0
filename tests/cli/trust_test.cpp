// tape determinism and tape run --guard as a user sees them: outputs and exit codes.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tests/cli/process.h"

namespace tape::test {
namespace {

constexpr const char* kText = R"(.module some
.param x f32[33,7] uniform lo=0.5 hi=1 seed=3
.param w f32[7,7] uniform lo=0.1 hi=0.5 seed=4
.output y f32[33,7]
.tape main
  MATMUL a, x, w
  TANH y, a
.end
)";

class Trust : public testing::Test {
 protected:
  Trust() {
    ::setenv("TAPE_TEST_BACKENDS", TAPE_FAULTY, 1);
    folder.write("some.tape", kText);
  }
  ~Trust() override { ::unsetenv("TAPE_TEST_BACKENDS"); }
  Folder folder;
};

TEST_F(Trust, DeterminismOfWhatIsStable) {
  const Result text = run_tape(folder, "determinism some.tape -n 6");
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find("the same bits in "), std::string::npos) << text.out;
  const Result json = run_tape(folder, "determinism some.tape -n 6 --format json");
  EXPECT_EQ(json.code, 0);
  const nlohmann::json report = nlohmann::json::parse(json.out);
  EXPECT_EQ(report["schema"], "tape.determinism/1");
  EXPECT_EQ(report["stable"], true);
  EXPECT_TRUE(report["unstable"].is_null());
}

TEST_F(Trust, DeterminismNamesTheCommandThatIsNot) {
  const Result text = run_tape(folder, "determinism some.tape -n 20 --backend faulty:order:TANH");
  EXPECT_EQ(text.code, 8) << text.err;
  EXPECT_NE(text.out.find("unstable: TANH y f32[33,7], command 1, some.tape:7:3"), std::string::npos) << text.out;
  const Result json = run_tape(folder, "determinism some.tape -n 20 --backend faulty:order:TANH --format json");
  EXPECT_EQ(json.code, 8);
  const nlohmann::json report = nlohmann::json::parse(json.out);
  EXPECT_EQ(report["stable"], false);
  EXPECT_EQ(report["unstable"]["command"], "TANH");
  EXPECT_EQ(report["unstable"]["place"], "some.tape:7:3");
}

TEST_F(Trust, DeterminismRefusesWhatItCannotCompare) {
  EXPECT_EQ(run_tape(folder, "determinism some.tape -n 1").code, 2);
  EXPECT_EQ(run_tape(folder, "determinism some.tape nothing").code, 2);
  EXPECT_EQ(run_tape(folder, "determinism some.tape --in z=zeros").code, 2);
  EXPECT_EQ(run_tape(folder, "determinism some.tape --backend faulty:lies:TANH").code, 2);
}

TEST_F(Trust, GuardStopsWhoWritesBehindItsResult) {
  const Result sound = run_tape(folder, "run some.tape --guard --out y=sound.npy");
  EXPECT_EQ(sound.code, 0) << sound.err;
  EXPECT_EQ(run_tape(folder, "run some.tape --out y=plain.npy").code, 0);
  EXPECT_EQ(read_text(folder / "sound.npy"), read_text(folder / "plain.npy"));
  const Result wrong = run_tape(folder, "run some.tape --guard --backend faulty:behind:MATMUL");
  EXPECT_EQ(wrong.code, 5);
  EXPECT_NE(wrong.err.find("some.tape:6:3: --guard: it wrote byte 0 behind a f32[33,7]"), std::string::npos)
      << wrong.err;
  const Result unwritten = run_tape(folder, "run some.tape --guard --backend faulty:stale:MATMUL");
  EXPECT_EQ(unwritten.code, 0);
  EXPECT_NE(unwritten.err.find("some.tape:6:3: MATMUL: the first NaN is in a f32[33,7]"), std::string::npos)
      << unwritten.err;
}

}  // namespace
}  // namespace tape::test
