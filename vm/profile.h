// What a profile says of a tape: how long its commands took, and how near that is to what the device can do.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "vm/module.h"

namespace tape {

struct Plan;
struct Capabilities;

struct CommandTime {
  double seconds = 0;  // of all plays
  uint64_t plays = 0;
};

/// Times by command of a plan, since they were last taken.
struct Profile {
  std::vector<CommandTime> commands;
  std::string how;                     // what measured them
  double copy_rate = 0;                // bytes read and written in a second by a copy on the device; 0: not known
  std::array<double, 4> math_rates{};  // operations in a second at best: f64, f32, tf32, f16 and bf16; 0: not known
};

/// A command of a profile, beside what it had to do in one play.
struct ProfileLine {
  uint64_t command = 0;  // index into Plan::commands
  CommandTime time;
  double bytes = 0, flops = 0;
  double roofline = 0;  // share of the time that the bytes or the flops need at best; 0: not known
};
/// The commands that took time, the longest first.
[[nodiscard]] std::vector<ProfileLine> profile_lines(const Profile& profile, const Plan& plan,
                                                     const Capabilities& capabilities);

}  // namespace tape
