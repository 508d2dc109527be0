// tape determinism: the same bits every time, or the first command that is not stable.
#include "difftest/determinism.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/source.h"
#include "cli/spec.h"

namespace tape::cli {
namespace {

std::string ways_text(const DeterminismReport& report) {
  return fmt::format("{}", fmt::join(report.ways, ", "));
}

std::string report_text(const DeterminismReport& report) {
  std::string text = fmt::format("tape {} on {} ({})\n", report.tape, report.backend, report.device);
  if (!report.unstable) {
    text += fmt::format("the same bits in {} runs: {}\n", report.runs, ways_text(report));
    text += fmt::format("{} results a run, {} bytes compared\n", report.commands, report.bytes);
    if (!report.fault.empty()) text += fmt::format("every run stopped at the same fault: {}\n", report.fault);
    return text;
  }
  const UnstableResult& unstable = *report.unstable;
  if (unstable.tensor.empty()) {
    text += "unstable: the fault\n";
  } else if (unstable.command.empty()) {
    text += fmt::format("unstable: {} after the run; no command on its own is\n", unstable.tensor);
  } else {
    text += fmt::format("unstable: {} {}, command {}", unstable.command, unstable.tensor, unstable.index);
    if (unstable.playing != 0) text += fmt::format(", pass {}", unstable.playing + 1);
    text += unstable.place.empty() ? "\n" : fmt::format(", {}\n", unstable.place);
  }
  text += fmt::format("  {} and {}", unstable.run, unstable.other);
  if (unstable.differing != 0) text += fmt::format(": {} of {} elements differ", unstable.differing, unstable.elements);
  if (!unstable.first.empty()) text += fmt::format(", {}{}", unstable.differing != 0 ? "first " : "", unstable.first);
  return text + "\n";
}

nlohmann::json report_json(const DeterminismReport& report) {
  nlohmann::json json{{"schema", "tape.determinism/1"}, {"tape", report.tape},   {"backend", report.backend},
                      {"device", report.device},        {"ways", report.ways},   {"runs", report.runs},
                      {"results", report.commands},     {"bytes", report.bytes}, {"fault", report.fault},
                      {"stable", !report.unstable},     {"unstable", nullptr}};
  if (report.unstable) {
    const UnstableResult& unstable = *report.unstable;
    json["unstable"] = {{"command", unstable.command},  {"place", unstable.place},   {"index", unstable.index},
                        {"pass", unstable.playing},     {"tensor", unstable.tensor}, {"run", unstable.run},
                        {"other", unstable.other},      {"first", unstable.first},   {"differing", unstable.differing},
                        {"elements", unstable.elements}};
  }
  return json;
}

}  // namespace

void determinism_options(po::options_description& options) {
  const auto text = [](const char* name) { return po::value<std::string>()->value_name(name); };
  options.add_options()("runs,n", po::value<int64_t>()->value_name("N"),
                        "runs of the whole tape, and as many command by command; default 20")(
      "backend", text("auto|cpu|cpu64|cuda"), "what plays it")(
      "in", po::value<std::vector<std::string>>()->composing()->value_name("NAME=SPEC"),
      "value of an input, parameter, state or stream column, as for run; inputs not given are drawn")(
      "seed", po::value<int64_t>()->value_name("S"), "of what is drawn; default 0")(
      "set", po::value<std::vector<std::string>>()->composing()->value_name("CONST=V"), "value of a .const");
}

int determinism_command(const Arguments& arguments) {
  want_positional(arguments, 1, 2, "FILE [TAPE]");
  Source source = open_source(arguments.positional[0], assemble_options(arguments));
  want_sound_data(source);
  const VerifiedModule module = verify_source(std::move(source.assembly.module), source);
  const TapeId entry = entry_of(module, arguments.positional.size() > 1 ? arguments.positional[1] : "");
  DeterminismOptions options;
  options.tape = module.module().tapes[entry].name;
  options.backend = arguments.text("backend", "auto");
  options.seed = arguments.number<int64_t>("seed", 0);
  options.values = given_values(arguments, module.module(), options.seed);
  const int64_t runs = arguments.number<int64_t>("runs", 20);
  if (runs < 2 || runs > 1000000) usage_error(fmt::format("--runs is 2 to 1000000, not {}", runs));
  options.runs = static_cast<uint64_t>(runs);
  const DeterminismReport report = check_determinism(module, options);
  print(arguments.json ? report_json(report).dump(2) + "\n" : report_text(report));
  return report.unstable ? static_cast<int>(Code::Nondeterministic) : 0;
}

}  // namespace tape::cli
