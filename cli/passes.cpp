// tape opt and tape grad: passes, with tapes in and tapes out.
#include "vm/passes/passes.h"

#include <fmt/format.h>

#include <filesystem>

#include "cli/source.h"
#include "vm/command_buffer.h"

namespace tape::cli {
namespace {

VerifiedModule verified_after(Module module, const char* pass) {
  Diagnostics diagnostics;
  std::optional<VerifiedModule> verified = verify(std::move(module), diagnostics);
  if (!verified) throw Error(Code::Internal, fmt::format("{} made an invalid tape:\n{}", pass, diagnostics.text()));
  return *std::move(verified);
}

/// An inlined entry as a module of its own: tensors that it does not name are left out.
Module trimmed(const Module& inlined) {
  std::vector<bool> used(inlined.tensors.size(), false);
  std::vector<PlacedCommand> commands = commands_of(inlined, inlined.tapes[0]);
  for (const PlacedCommand& placed : commands)
    for (size_t i = 0; i < placed.command.op->operands().size(); ++i)
      if (placed.command.is_tensor(i))
        for (const uint32_t id : placed.command.operand(i))
          if (id != kAbsent) used[id] = true;
  for (const Stream& stream : inlined.streams)
    if (stream.cursor != kNone) used[stream.cursor] = true;
  for (size_t id = 0; id < used.size(); ++id)
    if (used[id] && inlined.tensors[id].link != kNone) used[inlined.tensors[id].link] = true;
  std::vector<uint32_t> ids(used.size(), kNone);
  Module module = inlined;
  module.tensors.clear();
  for (size_t id = 0; id < used.size(); ++id) {
    if (!used[id]) continue;
    ids[id] = static_cast<uint32_t>(module.tensors.size());
    module.tensors.push_back(inlined.tensors[id]);
  }
  for (Tensor& tensor : module.tensors)
    if (tensor.link != kNone) tensor.link = ids[tensor.link];
  for (Stream& stream : module.streams)
    if (stream.cursor != kNone) stream.cursor = ids[stream.cursor];
  module.tapes[0].words.clear();
  module.tapes[0].lines.clear();
  TapeBuilder builder(module, 0);
  for (PlacedCommand& placed : commands) {
    for (size_t i = 0; i < placed.command.op->operands().size(); ++i)
      if (placed.command.is_tensor(i))
        for (uint32_t& id : placed.command.operand(i))
          if (id != kAbsent) id = ids[id];
    builder.add(placed.command, placed.location);
  }
  return module;
}

/// "out/mlp.tape", "forward" -> "out/mlp.forward.tape"
std::string part_path(const std::string& path, const char* part) {
  const std::filesystem::path whole(path);
  return (whole.parent_path() / fmt::format("{}.{}{}", whole.stem().string(), part, whole.extension().string()))
      .string();
}

int write_split(const VerifiedModule& module, const std::string& gradient, const Source& source,
                const std::string& output) {
  if (output == "-") usage_error("--split writes two files: -o NAME is wanted");
  Diagnostics diagnostics;
  std::optional<Split> split = split_gradient(module, module.module().find_tape(gradient), diagnostics);
  if (!split) throw Failed{Code::Invalid, completed(diagnostics, source)};
  const bool as_text = output.ends_with(".tape");
  const Module forward = verified_after(strip(std::move(split->forward)), "splitting").module();
  const Module backward = verified_after(strip(std::move(split->backward)), "splitting").module();
  write_module(forward, part_path(output, "forward"), as_text, false);
  write_module(backward, part_path(output, "backward"), as_text, false);
  return 0;
}

}  // namespace

void opt_options(po::options_description& options) {
  options.add_options()("print-after", po::value<std::string>()->value_name("inline|cse|dce"), "the last pass to play")(
      "output,o", po::value<std::string>()->value_name("FILE"), "text to write; default: stdout");
}

int opt_command(const Arguments& arguments) {
  want_positional(arguments, 1, 2, "FILE [TAPE]");
  const std::string pass = arguments.text("print-after", "dce");
  if (pass != "inline" && pass != "cse" && pass != "dce")
    usage_error(fmt::format("no pass `{}`: inline, cse or dce{}", pass, did_you_mean(pass, {"inline", "cse", "dce"})));
  Source source = open_source(arguments.positional[0]);
  want_sound_data(source);
  const VerifiedModule module = verify_source(std::move(source.assembly.module), source);
  const TapeId entry = entry_of(module, arguments.positional.size() > 1 ? arguments.positional[1] : "");
  if (!module.facts(entry).playable)
    throw Error(Code::Invalid, fmt::format("tape {} cannot be played: {}", module.module().tapes[entry].name,
                                           module.facts(entry).why_not));
  Module result = inline_entry(module, entry).module;
  if (pass != "inline") result = eliminate_common(verified_after(std::move(result), "inlining"), {});
  if (pass == "dce") result = eliminate_dead(verified_after(std::move(result), "sharing of common values"), {});
  DisassembleOptions options;
  options.plain = true;
  write_output(arguments.text("output", "-"), disassemble(trimmed(result), options).text);
  return 0;
}

void grad_options(po::options_description& options) {
  const auto text = [](const char* name) { return po::value<std::string>()->value_name(name); };
  options.add_options()("of", text("TAPE"), "the tape to differentiate")(
      "loss", text("NAME[,NAME]"), "what to differentiate")("wrt", text("params|NAME[,NAME]"),
                                                            "with respect to what; default: every parameter")(
      "name", text("TAPE"), "name of the new tape; default: backward")("seed-extern", po::bool_switch(),
                                                                       "the host writes the losses' gradients")(
      "accumulate", po::bool_switch(), "add to the gradients instead of overwriting them")(
      "split", po::bool_switch(), "two modules, OUT.forward and OUT.backward, that share tensors by name")(
      "output,o", text("FILE"), "text when it ends with .tape or is -, else binary")("force,f", po::bool_switch(),
                                                                                     "write binary to a terminal too");
}

int grad_command(const Arguments& arguments) {
  want_positional(arguments, 1, 1, "one FILE");
  if (!arguments.has("of") || !arguments.has("loss")) usage_error("--of TAPE and --loss NAME are wanted");
  const Source source = open_source(arguments.positional[0]);
  want_sound_data(source);
  // The module's own text with one more line: names are resolved and mistakes reported as in any file.
  const std::string name = arguments.text("name", "backward");
  std::string line = fmt::format(".grad {} of={} loss={}", name, arguments.text("of"), arguments.text("loss"));
  if (arguments.has("wrt")) line += " wrt=" + arguments.text("wrt");
  if (arguments.flag("seed-extern")) line += " seed=extern";
  if (arguments.flag("accumulate")) line += " accumulate=1";
  const std::string text =
      (source.text ? source.content : disassemble(source.assembly.module).text) + "\n" + line + "\n";
  Diagnostics diagnostics;
  std::optional<Assembly> assembly = assemble(text, source.path, {}, diagnostics);
  if (!assembly) throw Failed{Code::Format, std::move(diagnostics)};
  Module module = std::move(assembly->module);
  const VerifiedModule verified = verify_source(module, source);
  const std::string output = arguments.text("output", "-");
  if (arguments.flag("split")) return write_split(verified, name, source, output);
  write_module(strip(std::move(module)), output, output == "-" || output.ends_with(".tape"), arguments.flag("force"));
  return 0;
}

}  // namespace tape::cli
