// What changes when the `tape` command talks to a terminal: colour, the progress bar, and no binary on the screen. The
// terminal is that of script(1).
#include <gtest/gtest.h>

#include "process.h"

namespace tape::test {
namespace {

/// `command` with both outputs on one terminal; `environment` is put before it.
Result on_terminal(const Folder& folder, const std::string& command, const std::string& environment = "") {
  const std::string out = folder / ".typescript";
  const std::string line = "cd '" + folder.path() + "' && env -u NO_COLOR TERM=xterm " + environment +
                           " script -qec \"" + TAPE_PROGRAM + " " + command + "\" /dev/null >'" + out +
                           "' 2>&1 < /dev/null";
  const int status = std::system(line.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_text(out), ""};
}

class Terminal : public testing::Test {
 protected:
  void SetUp() override {
    if (std::system("command -v script > /dev/null") != 0) GTEST_SKIP() << "script(1) is not installed";
    folder.write("f.tape", ".output y f32[2] \n.tape main\n  FILL y, value=1\n.end\n");
    folder.write("bad.tape", ".tape main\n  NOPE\n.end\n");
  }
  Folder folder;
};

TEST_F(Terminal, BinaryIsNotWrittenToIt) {
  for (const char* command : {"asm f.tape -o -", "strip f.tape -o -"}) {
    const Result refused = on_terminal(folder, command);
    EXPECT_EQ(refused.code, 2) << command << refused.out;
    EXPECT_NE(refused.out.find("binary is not written to a terminal"), std::string::npos) << refused.out;
    EXPECT_EQ(refused.out.find("\x89TAPE"), std::string::npos) << command;
    const Result forced = on_terminal(folder, std::string(command) + " -f");
    EXPECT_EQ(forced.code, 0) << command;
    EXPECT_NE(forced.out.find("\x89TAPE"), std::string::npos) << command;
  }
  EXPECT_EQ(on_terminal(folder, "dis f.tape").code, 0);
}

TEST_F(Terminal, MessagesAreColouredUnlessNoColor) {
  EXPECT_NE(on_terminal(folder, "check bad.tape").out.find("\x1b["), std::string::npos);
  EXPECT_EQ(on_terminal(folder, "check bad.tape", "NO_COLOR=1").out.find("\x1b["), std::string::npos);
  EXPECT_EQ(on_terminal(folder, "check bad.tape --color never").out.find("\x1b["), std::string::npos);
}

TEST_F(Terminal, TheBarIsDrawnThereOnly) {
  const std::string run = "run f.tape --repeat 60000000";  // long enough for the first drawing, 0.3 s
  const Result seen = on_terminal(folder, run);
  EXPECT_EQ(seen.code, 0);
  EXPECT_NE(seen.out.find("/60000000"), std::string::npos) << seen.out;
  EXPECT_NE(seen.out.find(" runs/s"), std::string::npos);
  const Result piped = run_tape(folder, "run f.tape --repeat 1000");
  EXPECT_EQ(piped.err.find('\r'), std::string::npos) << piped.err;
  EXPECT_EQ(piped.err.find("/1000"), std::string::npos) << piped.err;
}

}  // namespace
}  // namespace tape::test
