// tape info: what is in a file, and what playing each of its tapes takes. The plan is the one `run` would make on the
// backend named.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/info_graph.h"
#include "cli/source.h"
#include "embed/backends.h"
#include "vm/container_format.h"
#include "vm/passes/passes.h"
#include "vm/plan.h"

namespace tape::cli {
namespace {

using nlohmann::json;

const char* section_name(uint32_t kind) {
  switch (kind) {
    case container::kStrings:
      return "strings";
    case container::kTensors:
      return "tensors";
    case container::kTapes:
      return "tapes";
    case container::kCode:
      return "code";
    case container::kStreams:
      return "streams";
    case container::kData:
      return "data";
    case container::kLineMap:
      return "line map";
    case container::kMetadata:
      return "metadata";
    default:
      return "unknown";
  }
}

std::string bytes_text(uint64_t bytes) {
  if (bytes < 10'000) return fmt::format("{} B", bytes);
  if (bytes < 10'000'000) return fmt::format("{:.1f} KB", static_cast<double>(bytes) / 1e3);
  if (bytes < 10'000'000'000) return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
  return fmt::format("{:.2f} GB", static_cast<double>(bytes) / 1e9);
}

VerifiedModule again(Module module) {
  Diagnostics diagnostics;
  std::optional<VerifiedModule> verified = verify(std::move(module), diagnostics);
  if (!verified) throw Error(Code::Internal, diagnostics.text());
  return *std::move(verified);
}

json sections_json(const Module& module) {
  const container::Parts parts = container::build_parts(module, false);
  json list = json::array();
  for (const container::Parts::Section& section : parts.sections)
    list.push_back({{"name", section_name(section.kind)}, {"kind", section.kind}, {"bytes", section.size}});
  return {{"bytes", parts.file_bytes}, {"sections", list}};
}

json tensors_json(const Module& module) {
  json list = json::array();
  for (const Tensor& tensor : module.tensors)
    list.push_back({{"name", tensor.name},
                    {"role", name_of(tensor.role)},
                    {"dtype", name_of(tensor.dtype)},
                    {"shape", tensor.shape.dims()},
                    {"bytes", byte_size(tensor)},
                    {"tape", tensor.owner == kNone ? json() : json(module.tapes[tensor.owner].name)}});
  return list;
}

std::shared_ptr<const Plan> plan_of(const VerifiedModule& module, TapeId id, Backend& backend,
                                    const PlanOptions& options) {
  const VerifiedModule inlined = again(inline_entry(module, id).module);
  return make_plan(again(eliminate_dead(again(eliminate_common(inlined, {})), {})), backend, options);
}

json tape_json(const VerifiedModule& module, TapeId id, Backend& backend, const PlanOptions& options) {
  const Tape& tape = module.module().tapes[id];
  const TapeFacts& facts = module.facts(id);
  json item{{"name", tape.name}, {"words", tape.words.size()}, {"playable", facts.playable}};
  if (!facts.playable) {
    item["why_not"] = facts.why_not;
    return item;
  }
  item["commands"] = facts.inlined_commands;
  item["executed_commands"] = facts.executed_commands;
  try {
    const auto plan = plan_of(module, id, backend, options);
    item["flops"] = plan->flops;
    item["traffic_bytes"] = plan->traffic;
    item["arena_bytes"] = plan->arena_bytes;
    item["locals_bytes"] = plan->unplanned_bytes;
    item["scratch_bytes"] = plan->scratch_bytes;
    item["persistent_bytes"] = plan->persistent_bytes;
  } catch (const Error& error) {
    if (error.code() != Code::Limit) throw;
    item["why_not"] = error.what();
  }
  return item;
}

std::string tensor_lines(const Module& module) {
  std::string text;
  for (const Tensor& tensor : module.tensors) {
    if (!is_persistent(tensor)) continue;
    text += fmt::format("  {:<7}{:<40}{:>10}\n", name_of(tensor.role),
                        describe(tensor.name, tensor.dtype, tensor.shape), bytes_text(byte_size(tensor)));
  }
  return text.empty() ? text : "persistent tensors\n" + text;
}

std::string stream_lines(const Module& module) {
  std::string text;
  const auto row = [](const Shape& shape) {
    std::string dims = shape.text();
    dims.insert(1, shape.rank() == 0 ? "*" : "*,");
    return dims;
  };
  for (const Stream& stream : module.streams)
    for (const Column& column : stream.columns)
      text += fmt::format("  {}.{} {}{}{}\n", stream.name, column.name, name_of(column.dtype), row(column.row),
                          column.path.empty() ? "" : " = " + column.path);
  for (const Sink& sink : module.sinks)
    text += fmt::format("  sink {} {}{}\n", sink.name, name_of(sink.dtype), row(sink.row));
  return text.empty() ? text : "streams and sinks\n" + text;
}

std::string tape_line(const json& tape) {
  const std::string name = tape["name"];
  if (tape.contains("why_not"))
    return fmt::format("  {:<20}not playable: {}\n", name, tape["why_not"].get<std::string>());
  return fmt::format("  {:<20}{:>9} commands {:>10.3g} flops   arena {} of {} of locals, scratch {}\n", name,
                     tape["commands"].get<int64_t>(), tape["flops"].get<double>(), bytes_text(tape["arena_bytes"]),
                     bytes_text(tape["locals_bytes"]), bytes_text(tape["scratch_bytes"]));
}

std::string as_text(const json& all, const Module& module) {
  std::string text = fmt::format("{}: {} of module {}, container version {}, {} as binary\n",
                                 all["file"].get<std::string>(), all["form"].get<std::string>(), module.name,
                                 all["version"].get<std::string>(), bytes_text(all["container"]["bytes"]));
  for (const json& section : all["container"]["sections"])
    text += fmt::format("  {:<10}{:>10}\n", section["name"].get<std::string>(), bytes_text(section["bytes"]));
  text += tensor_lines(module) + stream_lines(module);
  if (!all["tapes"].empty()) text += "tapes\n";
  for (const json& tape : all["tapes"]) text += tape_line(tape);
  return text;
}

}  // namespace

void info_options(po::options_description& options) {
  options.add_options()("backend", po::value<std::string>()->value_name("cpu|cpu64|cuda"), "whose plan")(
      "graph", po::value<std::string>()->value_name("dot|json"), "what each command of a tape must follow, and why")(
      "arena", po::value<std::string>()->value_name("auto|tight|branches"),
      "whether independent commands may share bytes and so wait for each other");
}

namespace {

/// --graph: of one tape, and nothing else.
int print_graph(const Arguments& arguments, Source source) {
  const std::string form = arguments.text("graph", "");
  if (form != "dot" && form != "json") usage_error(fmt::format("--graph is dot or json, not {}", form));
  const VerifiedModule module = verify_source(std::move(source.assembly.module), source);
  const std::unique_ptr<Backend> backend = open_backend(arguments.text("backend", "cpu"));
  PlanOptions options;
  options.arena = arena_use(arguments);
  const TapeId tape = entry_of(module, arguments.positional.size() > 1 ? arguments.positional[1] : "");
  const auto plan = plan_of(module, tape, *backend, options);
  print(form == "dot" ? graph_dot(*plan) : graph_json(*plan));
  return 0;
}

}  // namespace

int info_command(const Arguments& arguments) {
  want_positional(arguments, 1, 2, "FILE [TAPE]");
  Source source = open_source(arguments.positional[0]);
  if (!arguments.text("graph", "").empty()) return print_graph(arguments, std::move(source));
  const Module read = source.assembly.module;
  json all{{"file", source.path}, {"form", source.text ? "text" : "binary"}, {"module", read.name}};
  all["container"] = sections_json(read);
  all["version"] = fmt::format("{}.{}", read.major, read.minor);
  all["tensors"] = tensors_json(read);
  all["tapes"] = json::array();
  // A newer minor is readable, not playable: there is no plan to show.
  if (read.minor <= kMinor) {
    const VerifiedModule module = verify_source(std::move(source.assembly.module), source);
    const std::unique_ptr<Backend> backend = open_backend(arguments.text("backend", "cpu"));
    PlanOptions plan_options;
    plan_options.arena = arena_use(arguments);
    const TapeId only = arguments.positional.size() > 1 ? entry_of(module, arguments.positional[1]) : kNone;
    for (TapeId id = 0; id < read.tapes.size(); ++id)
      if (only == kNone || id == only) all["tapes"].push_back(tape_json(module, id, *backend, plan_options));
  }
  print(arguments.json ? all.dump(2) + "\n" : as_text(all, read));
  return 0;
}

}  // namespace tape::cli
