// Published optimizer defects, each with the numbers that the correct rule gives: a step counter that starts at 0 or is
// frozen, L2 in the place of decoupled decay, a decay that does not follow the rate.
#include "tests/passes/support.h"

namespace tape::test {
namespace {

/// One parameter stepped with the gradients of `gradients`, by the row as it stands; its values after each step.
Values stepped(const std::string& dtype, double start, const std::string& command, const Values& gradients,
               const Values& rates) {
  const bool moments = command.substr(0, 4) == "ADAM";
  const std::string name = command.substr(0, command.find(','));
  const std::string attributes = command.substr(name.size());
  Player player(".state p " + dtype + "[]\n.input g " + dtype + "[]\n.input lr " + dtype + "[]\n.state m " + dtype +
                    "[]\n.state v " + dtype + "[]\n.state t i64[]\n.tape step\n  ADVANCE t\n  " + name + " [p], [g], " +
                    (moments ? "[m], [v]" : "[]") + ", lr, t" + attributes + "\n.end\n",
                dtype == "f64" ? "cpu64" : "cpu");
  player.set("p", {start});
  Values found;
  for (size_t i = 0; i < gradients.size(); ++i) {
    player.set("g", {gradients[i]});
    player.set("lr", {rates[i % rates.size()]});
    player.run("step");
    found.push_back(player.get("p")[0]);
  }
  EXPECT_EQ(player.get("t"), (Values{static_cast<double>(gradients.size())}));
  return found;
}

void expect_steps(double start, const std::string& command, const Values& gradients, const Values& rates,
                  const Values& wanted) {
  // The wanted values have nine decimals or more; f32 rounds each step.
  expect_near(stepped("f64", start, command, gradients, rates), wanted, 0, 6e-10, command + " f64");
  expect_near(stepped("f32", start, command, gradients, rates), wanted, 2e-7, 1e-7, command + " f32");
}

TEST(OptimizerReports, AdamCountsFromOneAndEveryReplayIsAStep) {
  expect_steps(1, "ADAM", {0.1, -0.2, 0.3, -0.4}, {1e-3}, {0.9990000001, 0.9993661036, 0.9990228625, 0.9992554030});
}

TEST(OptimizerReports, DecoupledDecayIsNotL2) {
  expect_steps(2, "ADAMW, weight_decay=0.1", {0.5, -0.25}, {0.1}, {1.8800000020, 1.8345662987});
  expect_steps(2, "ADAMW, weight_decay=0.1", {0, 0}, {0.1}, {1.98, 1.9602});
  expect_steps(2, "ADAM, weight_decay=0.1", {0.5, -0.25}, {0.1}, {1.9000000014, 1.8395973868});
  expect_steps(2, "ADAM, weight_decay=0.1", {0, 0}, {0.1}, {1.900000005, 1.800166496});
}

TEST(OptimizerReports, TheRateIsReadInEveryStep) {
  expect_steps(1, "SGD", {1, 1, 1, 1}, {0.1, 0.05, 0.025, 0.0125}, {0.9, 0.85, 0.825, 0.8125});
}

TEST(OptimizerReports, DecayFollowsTheRate) {
  expect_steps(2, "ADAMW, weight_decay=0.5", {0, 0}, {0.1, 0.2}, {1.9, 1.71});
  // With g = 0 only the decay moves LION's parameter.
  Player player(
      ".state p f64[] = 2\n.input g f64[]\n.input lr f64[]\n.state m f64[]\n.state t i64[]\n.tape step\n"
      "  ADVANCE t\n  LION [p], [g], [m], lr, t, weight_decay=0.5\n.end\n");
  player.set("lr", {0.1});
  player.run("step");
  player.set("lr", {0.2});
  player.run("step");
  expect_near(player.get("p"), {1.71}, 1e-15, 0, "p");
}

}  // namespace
}  // namespace tape::test
