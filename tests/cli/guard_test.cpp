// What `tape run --guard` prints.
#include <gtest/gtest.h>

#include "tests/cli/process.h"
#include "tests/difftest/faulty.h"

namespace tape::test {
namespace {

constexpr const char* kText =
    ".input x f32[2] = 1 -1\n.output y f32[2]\n.tape main\n  MUL a, x, 2\n  LOG b, a\n  ADD y, b, 1\n"
    "  ASSERT_FINITE y\n.end\n";

TEST(GuardedRun, AFaultComesWithTheNoteOfTheFirstNan) {
  const Folder folder;
  folder.write("g.tape", kText);
  const Result result = run_tape(folder, "run g.tape --guard");
  EXPECT_EQ(result.code, 5) << result.err;
  EXPECT_NE(result.err.find("g.tape:7:3: "), std::string::npos) << result.err;
  const size_t note = result.err.find("NaN");
  ASSERT_NE(note, std::string::npos) << result.err;
  EXPECT_NE(result.err.find("g.tape:5:3"), std::string::npos) << result.err;
  EXPECT_EQ(result.err.find("g.tape:6:3"), std::string::npos) << "ADD is not to blame\n" << result.err;
}

TEST(GuardedRun, TheCulpritIsNamedByItsLine) {
  const Folder folder;
  folder.write("g.tape", kText);
  const FaultyBackends named;
  const Result result = run_tape(folder, "run g.tape -q --guard --backend faulty:behind:MUL");
  EXPECT_EQ(result.code, 5) << result.err;
  EXPECT_NE(result.err.find("g.tape:4:3: "), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("behind a"), std::string::npos) << result.err;
}

}  // namespace
}  // namespace tape::test
