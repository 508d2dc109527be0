// tape diff: two backends command by command, or the ways of one.
#include "difftest/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>

#include "cli/source.h"
#include "cli/spec.h"
#include "difftest/determinism.h"
#include "difftest/diff_report.h"

namespace tape::cli {
namespace {

InputKind input_kind(const std::string& word) {
  for (const InputKind kind :
       {InputKind::Declared, InputKind::Uniform, InputKind::Normal, InputKind::Integers, InputKind::Edge})
    if (word == name_of(kind)) return kind;
  usage_error(fmt::format("--inputs is declared, uniform, normal, integers or edge, not {}{}", word,
                          did_you_mean(word, {"declared", "uniform", "normal", "integers", "edge"})));
}

HostArray value_of(const Module& module, const std::string& name, const std::string& spec, uint64_t seed) {
  const auto of_seed = static_cast<int64_t>(seed);
  if (const TensorId id = module.find_tensor(name); id != kNone)
    return read_spec(spec, {name, module.tensors[id].dtype, module.tensors[id].shape, false, of_seed});
  for (const Stream& stream : module.streams)
    for (const Column& column : stream.columns)
      if (stream.name + "." + column.name == name)
        return read_spec(spec, {name, column.dtype, column.row, true, of_seed});
  usage_error(fmt::format("--in {}: nothing of that name takes data", name));
}

/// The operands of the first bad command; halves of bf16, which .npy does not know, as f32.
void save(const DiffReport& report, const std::string& folder) {
  std::filesystem::create_directories(folder);
  for (const auto& [name, array] : report.operands) {
    HostArray saved = array;
    if (array.dtype == DType::BF16) {
      saved.dtype = DType::F32;
      saved.bytes.resize(static_cast<size_t>(array.shape.elements()) * size_of(DType::F32));
      if (!saved.bytes.empty()) convert(array.bytes, DType::BF16, saved.bytes, DType::F32);
    }
    io::write_npy(fmt::format("{}/{}.npy", folder, name), saved);
  }
}

std::string quoted(const std::string& word) {
  const bool plain = !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("_-./:=@,+").find(c) != std::string::npos;
  });
  if (plain) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

/// The command line that shows the same again.
std::string again(const Arguments& arguments, const DiffOptions& options) {
  std::string text =
      fmt::format("tape diff {} {} --a {} --b {} --oracle {} --inputs {} --seed {}", quoted(arguments.positional[0]),
                  quoted(options.tape), quoted(options.a.name), quoted(options.b.name), quoted(options.oracle.name),
                  name_of(options.inputs), options.seed);
  for (const std::string& value : arguments.list("in")) text += " --in " + quoted(value);
  for (const std::string& value : arguments.list("set")) text += " --set " + quoted(value);
  return text;
}

/// The ways of one backend that may change no bit, against each other.
int compare_ways(const Arguments& arguments, const VerifiedModule& module, const DiffOptions& options) {
  DeterminismOptions ways;
  ways.tape = options.tape;
  ways.backend = options.a.name;
  ways.seed = static_cast<int64_t>(options.seed);
  ways.values = draw_inputs(module, module.module().find_tape(options.tape), options.inputs, options.seed);
  std::erase_if(ways.values, [&](const auto& drawn) {
    return std::any_of(options.values.begin(), options.values.end(),
                       [&](const auto& given) { return given.first == drawn.first; });
  });
  ways.values.insert(ways.values.end(), options.values.begin(), options.values.end());
  const DeterminismReport report = check_determinism(module, ways);
  if (arguments.json) {
    nlohmann::json json{{"schema", "tape.diff.ways/1"}, {"tape", report.tape}, {"backend", report.backend},
                        {"ways", report.ways},          {"runs", report.runs}, {"bytes", report.bytes},
                        {"equal", !report.unstable},    {"first_bad", nullptr}};
    if (report.unstable)
      json["first_bad"] = {{"command", report.unstable->command}, {"place", report.unstable->place},
                           {"index", report.unstable->index},     {"tensor", report.unstable->tensor},
                           {"run", report.unstable->run},         {"other", report.unstable->other},
                           {"first", report.unstable->first}};
    print(json.dump(2) + "\n");
  } else if (!report.unstable) {
    print(fmt::format("tape {} on {}: the same bits in {} runs, {} bytes compared: {}\n", report.tape, report.backend,
                      report.runs, report.bytes, fmt::join(report.ways, ", ")));
  } else {
    const UnstableResult& bad = *report.unstable;
    print(fmt::format("tape {} on {}: {} differs between {} and {}\n  command {}: {}{}\n  {}\n", report.tape,
                      report.backend, bad.tensor, bad.run, bad.other, bad.index,
                      bad.command.empty() ? "none on its own" : bad.command,
                      bad.place.empty() ? "" : " at " + bad.place, bad.first));
  }
  if (report.unstable) return static_cast<int>(Code::Mismatch);
  return report.bytes == 0 ? static_cast<int>(Code::NothingCompared) : 0;
}

}  // namespace

void diff_options(po::options_description& options) {
  const auto text = [](const char* name) { return po::value<std::string>()->value_name(name); };
  const auto list = [](const char* name) {
    return po::value<std::vector<std::string>>()->composing()->value_name(name);
  };
  options.add_options()("a", text("BACKEND"), "the side that is doubted; default cuda")(
      "b", text("BACKEND"), "the side it is compared with, whose values every command gets; default cpu")(
      "oracle", text("BACKEND"), "the judge, in more precision; default cpu64")(
      "modes", po::bool_switch(), "instead: the ways in which A may be played, which must give the same bits")(
      "inputs", text("KIND"),
      "declared, uniform, normal, integers or edge, by (seed, name); default: declared, normal where there are none")(
      "seed", po::value<uint64_t>()->value_name("S"), "of what is drawn; default 0")(
      "in", list("NAME=SPEC"), "value of an input, parameter, state or stream column, as for run")(
      "repeat", po::value<uint64_t>()->value_name("N"), "playings of each command of A, which must agree; default 1")(
      "first", po::bool_switch(), "stop at the first bad command")("explain", po::bool_switch(),
                                                                   "every command: its errors and what it was held to")(
      "save", text("DIR"), "operands and results of the first bad command as .npy")(
      "max-commands", po::value<uint64_t>()->value_name("N"), "commands to play, those of loops counted each time")(
      "set", list("CONST=V"), "value of a .const");
}

int diff_command(const Arguments& arguments) {
  want_positional(arguments, 1, 2, "FILE [TAPE]");
  Source source = open_source(arguments.positional[0], assemble_options(arguments));
  want_sound_data(source);
  const VerifiedModule module = verify_source(std::move(source.assembly.module), source);
  const TapeId entry = entry_of(module, arguments.positional.size() > 1 ? arguments.positional[1] : "");
  DiffOptions options;
  options.tape = module.module().tapes[entry].name;
  options.a = diff_side(arguments.text("a", "cuda"));
  options.b = diff_side(arguments.text("b", "cpu"));
  options.oracle = diff_side(arguments.text("oracle", "cpu64"));
  options.inputs = input_kind(arguments.text("inputs", "declared"));
  options.seed = arguments.number<uint64_t>("seed", 0);
  options.repeat = arguments.number<uint64_t>("repeat", 1);
  options.stop_at_first = arguments.flag("first");
  options.max_commands = arguments.number<uint64_t>("max-commands", options.max_commands);
  for (const std::string& given : arguments.list("in")) {
    const auto [name, spec] = split_assignment(given, "--in");
    options.values.emplace_back(name, value_of(module.module(), name, spec, options.seed));
  }
  if (arguments.flag("modes")) return compare_ways(arguments, module, options);
  const DiffReport report = diff_tape(module, options);
  const bool differ = report.first_bad.has_value();
  if (differ && arguments.has("save")) save(report, arguments.text("save"));
  if (arguments.json) {
    nlohmann::json json = diff_json(report);
    json["again"] = again(arguments, options);
    print(json.dump(2) + "\n");
  } else {
    print(diff_text(report, arguments.flag("explain")) + (differ ? "again: " + again(arguments, options) + "\n" : ""));
  }
  if (differ && report.verdict == DiffVerdict::Nondeterministic) return static_cast<int>(Code::Nondeterministic);
  if (differ) return static_cast<int>(Code::Mismatch);
  if (report.elements != 0) return 0;
  std::fputs("tape diff: error: nothing was compared\n", stderr);
  return static_cast<int>(Code::NothingCompared);
}

}  // namespace tape::cli
