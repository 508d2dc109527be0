// ops, limits, devices, completion: what the build itself can tell.
#include "opcodes/reference.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/cli.h"
#include "embed/backends.h"
#include "opcodes/limits.h"
#include "opcodes/op.h"

namespace tape::cli {
namespace {

nlohmann::json op_json(const OpInfo& op) {
  nlohmann::json operands = nlohmann::json::array();
  for (const Operand& operand : op.operands()) operands.push_back(operand.name);
  nlohmann::json attributes = nlohmann::json::array();
  for (const Attribute& attribute : op.attributes())
    attributes.push_back({{"name", attribute.name}, {"required", attribute.required}});
  return {{"mnemonic", op.mnemonic},
          {"opcode", static_cast<uint16_t>(op.opcode)},
          {"signature", op_signature(op)},
          {"operands", operands},
          {"attributes", attributes},
          {"types", op.types.text()},
          {"doc", op.doc}};
}

std::string op_list() {
  std::string text;
  uint16_t block = 0xFFFF;
  for (const OpInfo& op : kOps) {
    const auto code = static_cast<uint16_t>(op.opcode);
    if ((code & 0xFF00u) != (block & 0xFF00u) || block == 0xFFFF)
      text += fmt::format("{}{}\n", text.empty() ? "" : "\n", block_title(code));
    block = code;
    text += fmt::format("  {}\n", op_signature(op));
  }
  return text;
}

std::string words_of(const Subcommand& command) {
  std::string words;
  const po::options_description options = options_of(command);
  for (const auto& option : options.options()) words += fmt::format(" --{}", option->long_name());
  return words;
}

std::string bash_completion() {
  std::string names;
  std::string cases;
  for (const Subcommand& command : commands()) {
    names += fmt::format("{}{}", names.empty() ? "" : " ", command.name);
    cases += fmt::format("    {}) words=\"{}\" ;;\n", command.name, words_of(command).substr(1));
  }
  return fmt::format(
      "_tape() {{\n"
      "  local word=${{COMP_WORDS[COMP_CWORD]}} words=\"\"\n"
      "  COMPREPLY=()\n"
      "  if [ \"$COMP_CWORD\" = 1 ]; then\n"
      "    COMPREPLY=($(compgen -W \"{}\" -- \"$word\"))\n"
      "    return\n"
      "  fi\n"
      "  case ${{COMP_WORDS[1]}} in\n{}  esac\n"
      "  case $word in\n"
      "    -*) COMPREPLY=($(compgen -W \"$words\" -- \"$word\")) ;;\n"
      "  esac\n"
      "}}\n"
      "complete -o default -F _tape tape\n",
      names, cases);
}

std::string fish_completion() {
  std::string text;
  for (const Subcommand& command : commands()) {
    text += fmt::format("complete -c tape -n __fish_use_subcommand -f -a {} -d '{}'\n", command.name, command.summary);
    const po::options_description options = options_of(command);
    for (const auto& option : options.options())
      text += fmt::format("complete -c tape -n '__fish_seen_subcommand_from {}' -l {}\n", command.name,
                          option->long_name());
  }
  return text;
}

}  // namespace

int ops_command(const Arguments& arguments) {
  want_positional(arguments, 0, 1, "at most one NAME");
  if (arguments.positional.empty() && arguments.markdown) {
    print(op_reference());
    return 0;
  }
  if (arguments.positional.empty()) {
    nlohmann::json list = nlohmann::json::array();
    for (const OpInfo& op : kOps) list.push_back(op_json(op));
    print(arguments.json ? list.dump(2) + "\n" : op_list());
    return 0;
  }
  const std::string& name = arguments.positional[0];
  const OpInfo* op = find_op(std::string_view(name));
  if (op == nullptr) {
    std::vector<std::string_view> known;
    for (const OpInfo& row : kOps) known.push_back(row.mnemonic);
    usage_error(fmt::format("no op `{}`{}", name, did_you_mean(name, known)));
  }
  print(arguments.json ? op_json(*op).dump(2) + "\n" : op_text(*op));
  return 0;
}

int limits_command(const Arguments& arguments) {
  want_positional(arguments, 0, 0, "no argument");
  struct Limit {
    const char* name;
    int64_t value;
    const char* meaning;
  };
  constexpr Limit kLimits[] = {
#define TAPE_LIMIT(name, value, meaning) {#name, value, meaning},
      TAPE_LIMITS(TAPE_LIMIT)
#undef TAPE_LIMIT
  };
  nlohmann::json json;
  std::string text;
  for (const Limit& limit : kLimits) {
    json[limit.name] = limit.value;
    text += fmt::format("{:<22}{:>15}  {}\n", limit.name, limit.value, limit.meaning);
  }
  print(arguments.json ? json.dump(2) + "\n" : text);
  return 0;
}

int devices_command(const Arguments& arguments) {
  want_positional(arguments, 0, 0, "no argument");
  nlohmann::json json = nlohmann::json::array();
  std::string text;
  for (const DeviceReport& device : list_devices()) {
    json.push_back({{"backend", device.backend},
                    {"usable", device.usable},
                    {"description", device.description},
                    {"reason", device.reason}});
    text += device.usable ? fmt::format("{:<6} {}\n", device.backend, device.description)
                          : fmt::format("{:<6} not usable: {}\n", device.backend, device.reason);
  }
  print(arguments.json ? json.dump(2) + "\n" : text);
  return 0;
}

int completion_command(const Arguments& arguments) {
  want_positional(arguments, 1, 1, "one of bash, zsh, fish");
  const std::string& shell = arguments.positional[0];
  if (shell == "bash") {
    print(bash_completion());
  } else if (shell == "zsh") {
    print("autoload -U +X bashcompinit && bashcompinit\n" + bash_completion());
  } else if (shell == "fish") {
    print(fish_completion());
  } else {
    usage_error(fmt::format("no completion for `{}`: bash, zsh or fish", shell));
  }
  return 0;
}

}  // namespace tape::cli
