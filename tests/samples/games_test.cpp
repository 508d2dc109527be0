// The sample programs, played as a user would, against the results that samples/README.md states.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace tape::test {
namespace {

struct Played {
  int code = -1;
  std::string out;
};

Played play(const std::string& command) {
  Played played;
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return played;
  std::array<char, 4096> buffer{};
  for (size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) played.out.append(buffer.data(), n);
  const int status = ::pclose(pipe);
  if (WIFEXITED(status)) played.code = WEXITSTATUS(status);
  return played;
}

/// The number behind the last `label` of a text.
double number_after(const std::string& text, const std::string& label) {
  const size_t at = text.rfind(label);
  return at == std::string::npos ? -1 : std::strtod(text.c_str() + at + label.size(), nullptr);
}

TEST(SamplesTraining, CartpoleStandsForMostOfTheCap) {
  const Played played = play(TAPE_SAMPLE_PROGRAMS "/cartpole");
  EXPECT_EQ(played.code, 0);
  EXPECT_GE(number_after(played.out, "mean of the last 80 episodes: "), 150) << played.out;
}

TEST(SamplesTraining, TicTacToeSeldomLosesToRandomMoves) {
  const Played played = play(TAPE_SAMPLE_PROGRAMS "/tic_tac_toe");
  EXPECT_EQ(played.code, 0);
  EXPECT_GE(number_after(played.out, "not lost "), 0.95) << played.out;
  EXPECT_NE(played.out.find("\n1024 games against random moves"), std::string::npos) << played.out;
}

TEST(SamplesTraining, ProgramsPlayTheSameEveryTime) {
  for (const std::string program : {"/cartpole 20", "/tic_tac_toe 100"}) {
    const Played first = play(TAPE_SAMPLE_PROGRAMS + program);
    EXPECT_EQ(first.code, 0);
    EXPECT_FALSE(first.out.empty());
    EXPECT_EQ(play(TAPE_SAMPLE_PROGRAMS + program).out, first.out);
  }
}

TEST(Programs, RefuseWordsThatAreNoNumber) {
  for (const std::string program : {"/cartpole", "/tic_tac_toe"})
    EXPECT_EQ(play(TAPE_SAMPLE_PROGRAMS + program + " many 2>&1").code, 2);
}

}  // namespace
}  // namespace tape::test
