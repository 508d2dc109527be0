#include "cli/profile.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/source.h"

namespace tape::cli {
namespace {

/// "MATMUL h1 f32[64,256]"
std::string command_text(const Plan& plan, uint64_t index) {
  const Command& command = plan.commands[index].command;
  std::string text(command.op->mnemonic);
  for (size_t i = 0; i < command.op->operands().size(); ++i)
    for (const uint32_t id : command.operand(i))
      if (command.is_tensor(i) && id != kAbsent) {
        const Tensor& tensor = plan.module.module().tensors[id];
        return fmt::format("{} {}{}", text, describe(tensor.name, tensor.dtype, tensor.shape),
                           command.operand(i).size() > 1 ? ", ..." : "");
      }
  return text;
}

std::string place_of(const Plan& plan, uint64_t index) {
  return plan.module.module().place(plan.commands[index].location);
}

double total_of(const std::vector<ProfileLine>& lines) {
  double total = 0;
  for (const ProfileLine& line : lines) total += line.time.seconds;
  return total;
}

std::string rate_text(double amount, const CommandTime& time) {
  const double rate = amount * static_cast<double>(time.plays) / time.seconds / 1e9;
  return amount > 0 ? fmt::format("{:.1f}", rate) : "";
}

}  // namespace

std::string profile_text(const Profile& profile, const Plan& plan, const Capabilities& capabilities, uint64_t runs) {
  const std::vector<ProfileLine> lines = profile_lines(profile, plan, capabilities);
  const double total = total_of(lines);
  std::string text = fmt::format("profile of {} run{} ({}): {:.2f} us a run\n", runs, runs == 1 ? "" : "s", profile.how,
                                 total / static_cast<double>(runs) * 1e6);
  text +=
      fmt::format("{:>10}  {:>6}  {:>8}  {:>9}  {:>8}  command\n", "us a run", "share", "GB/s", "GFLOP/s", "roofline");
  for (const ProfileLine& line : lines) {
    const std::string place = place_of(plan, line.command);
    text += fmt::format(
        "{:>10.2f}  {:>5.1f}%  {:>8}  {:>9}  {:>8}  {}{}\n", line.time.seconds / static_cast<double>(runs) * 1e6,
        line.time.seconds / total * 100, rate_text(line.bytes, line.time), rate_text(line.flops, line.time),
        line.roofline > 0 ? fmt::format("{:.0f}%", line.roofline * 100) : "", command_text(plan, line.command),
        place.empty() ? "" : "  " + place.substr(0, place.find(" (")));
  }
  return text;
}

nlohmann::json profile_json(const Profile& profile, const Plan& plan, const Capabilities& capabilities, uint64_t runs) {
  nlohmann::json commands = nlohmann::json::array();
  const std::vector<ProfileLine> lines = profile_lines(profile, plan, capabilities);
  for (const ProfileLine& line : lines)
    commands.push_back({{"command", line.command},
                        {"text", command_text(plan, line.command)},
                        {"place", place_of(plan, line.command)},
                        {"seconds", line.time.seconds},
                        {"plays", line.time.plays},
                        {"bytes", line.bytes},
                        {"flops", line.flops},
                        {"roofline", line.roofline}});
  return {{"by", profile.how},
          {"runs", runs},
          {"seconds", total_of(lines)},
          {"copy_bytes_per_second", profile.copy_rate},
          {"commands", commands}};
}

}  // namespace tape::cli
