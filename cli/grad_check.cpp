// tape grad-check: a derived gradient against difference quotients on the float64 oracle.
#include "difftest/grad_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "cli/source.h"
#include "cli/spec.h"
#include "vm/compare.h"

namespace tape::cli {
namespace {

std::vector<std::string> names_in(const std::string& text) {
  std::vector<std::string> names;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    if (end > at) names.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return names;
}

/// FILE [TAPE] and key=value words, in any order.
struct Words {
  std::vector<std::string> files;
  std::vector<std::string> losses, wrt;
};
Words words_of(const Arguments& arguments) {
  Words words{{}, names_in(arguments.text("loss")), names_in(arguments.text("wrt"))};
  for (const std::string& word : arguments.positional) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos || words.files.empty()) {
      words.files.push_back(word);
      continue;
    }
    const std::string key = word.substr(0, equals);
    if (key != "loss" && key != "wrt")
      usage_error(fmt::format("no argument {}={}; loss= and wrt= are", key, did_you_mean(key, {"loss", "wrt"})));
    std::vector<std::string>& names = key == "loss" ? words.losses : words.wrt;
    if (!names.empty()) usage_error(fmt::format("{}= is given twice", key));
    names = names_in(word.substr(equals + 1));
  }
  if (words.files.empty() || words.files.size() > 2) usage_error("wanted FILE [TAPE] loss=NAME [wrt=NAME,...]");
  if (words.losses.empty()) usage_error("loss=NAME is wanted: what to differentiate");
  if (words.wrt == std::vector<std::string>{"params"}) words.wrt.clear();
  return words;
}

HostArray input_of(const Module& module, const std::string& name, const std::string& spec, int64_t seed) {
  if (const TensorId id = module.find_tensor(name); id != kNone)
    return read_spec(spec, {name, module.tensors[id].dtype, module.tensors[id].shape, false, seed});
  std::vector<std::string> known;
  for (const Tensor& tensor : module.tensors)
    if (tensor.owner == kNone) known.push_back(tensor.name);
  for (const Stream& stream : module.streams)
    for (const Column& column : stream.columns) {
      known.push_back(stream.name + "." + column.name);
      if (known.back() == name) return read_spec(spec, {name, column.dtype, column.row, true, seed});
    }
  usage_error(fmt::format("--in {}: nothing of that name takes data{}", name,
                          did_you_mean(name, {known.begin(), known.end()})));
}

GradCheckOptions options_from(const Arguments& arguments, const Words& words, const Module& module) {
  GradCheckOptions options;
  options.tape = words.files.size() > 1 ? words.files[1] : "";
  options.losses = words.losses;
  options.wrt = words.wrt;
  options.seed = arguments.number<int64_t>("seed", 0);
  const std::string inputs = arguments.text("inputs");
  if (!inputs.empty() && inputs != "uniform" && inputs != "normal")
    usage_error(fmt::format("--inputs is uniform or normal, not {}", inputs));
  if (!inputs.empty()) options.inputs = inputs == "uniform" ? GradInputs::Uniform : GradInputs::Normal;
  const auto count = [&](const char* name, int64_t fallback) {
    const int64_t value = arguments.number<int64_t>(name, fallback);
    if (value < 0 || value > 1'000'000'000) usage_error(fmt::format("--{} is 0 to 1000000000, not {}", name, value));
    return value;
  };
  options.max_elements = static_cast<uint64_t>(count("max-elements", static_cast<int64_t>(options.max_elements)));
  options.directions = static_cast<unsigned>(count("directions", options.directions));
  options.rtol = arguments.number<double>("rtol", options.rtol);
  options.atol = arguments.number<double>("atol", options.atol);
  if (!(options.rtol >= 0) || !(options.atol >= 0)) usage_error("--rtol and --atol want numbers that are not negative");
  for (const std::string& text : arguments.list("in")) {
    const auto [name, spec] = split_assignment(text, "--in");
    options.values.emplace_back(name, input_of(module, name, spec, options.seed));
  }
  return options;
}

std::string number(double value) {
  return value == 0 ? "0" : fmt::format("{:.1e}", value);
}

std::string place(const GradTensor& tensor, uint64_t index) {
  return tensor.name + index_text(tensor.shape, index);
}

std::string pair_text(const GradPair& pair) {
  return fmt::format("gradient {:.9g}, difference quotient {:.9g} (abs {:.1e}, rel {:.1e})", pair.gradient,
                     pair.difference, pair.abs, pair.rel);
}

/// At most this many lines of a kind, per tensor.
constexpr size_t kShown = 8;

std::string details(const GradTensor& tensor) {
  std::string text;
  const auto list = [&](const auto& items, const char* what, auto&& line) {
    for (size_t i = 0; i < std::min(items.size(), kShown); ++i) text += line(items[i]) + "\n";
    if (items.size() > kShown) text += fmt::format("  ... {} {} in {}\n", items.size(), what, tensor.name);
  };
  list(tensor.mismatches, "mismatches", [&](const GradPair& pair) {
    return fmt::format("mismatch {}: {}", place(tensor, pair.index), pair_text(pair));
  });
  list(tensor.direction_mismatches, "mismatches along directions", [&](const GradPair& pair) {
    return fmt::format("mismatch {} along direction {}: {}", tensor.name, pair.index, pair_text(pair));
  });
  list(tensor.kinks, "kinks", [&](const GradKink& kink) {
    return fmt::format("kink {}: slope {:.9g} on the left, {:.9g} on the right, gradient {:.9g}",
                       place(tensor, kink.index), kink.left, kink.right, kink.gradient);
  });
  if (tensor.direction_kinks != 0)
    text += fmt::format("kinks along {} directions of {}\n", tensor.direction_kinks, tensor.name);
  if (tensor.unresolved != 0)
    text += fmt::format("{}: {} elements have no usable quotient\n", tensor.name, tensor.unresolved);
  return text;
}

std::string report_text(const GradCheckReport& report) {
  std::vector<std::vector<std::string>> rows{
      {"tensor", "shape", "checked", "directions", "worst abs", "worst rel", "kinks", "verdict"}};
  const auto row = [&](const GradTensor& tensor, bool elements) {
    rows.push_back({tensor.name, elements ? std::string(name_of(tensor.dtype)) + tensor.shape.text() : "",
                    elements ? fmt::format("{}/{}", tensor.checked, tensor.shape.elements()) : "",
                    fmt::format("{}", tensor.directions.size()), number(tensor.worst_abs), number(tensor.worst_rel),
                    fmt::format("{}", tensor.kinks.size()), std::string(name_of(tensor.verdict))});
  };
  for (const GradTensor& tensor : report.tensors) row(tensor, true);
  if (report.tensors.size() > 1) row(report.all, false);
  std::vector<size_t> widths(rows[0].size());
  for (const auto& cells : rows)
    for (size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], cells[i].size());
  std::string text = fmt::format("tape {}, loss {:.9g}\n", report.tape, report.loss);
  for (const auto& cells : rows) {
    for (size_t i = 0; i + 1 < cells.size(); ++i) text += fmt::format("{:<{}}  ", cells[i], widths[i]);
    text += cells.back() + "\n";
  }
  for (const GradTensor& tensor : report.tensors) text += details(tensor);
  if (report.tensors.size() > 1) text += details(report.all);
  return text;
}

/// JSON has no NaN and no infinity: they are null.
nlohmann::json json_number(double value) {
  return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json();
}

nlohmann::json pairs_json(const std::vector<GradPair>& pairs) {
  nlohmann::json list = nlohmann::json::array();
  for (const GradPair& pair : pairs)
    list.push_back({{"index", pair.index},
                    {"gradient", json_number(pair.gradient)},
                    {"difference", json_number(pair.difference)},
                    {"noise", json_number(pair.noise)},
                    {"abs", json_number(pair.abs)},
                    {"rel", json_number(pair.rel)}});
  return list;
}

nlohmann::json tensor_json(const GradTensor& tensor) {
  nlohmann::json kinks = nlohmann::json::array();
  for (const GradKink& kink : tensor.kinks)
    kinks.push_back({{"index", kink.index},
                     {"left", json_number(kink.left)},
                     {"right", json_number(kink.right)},
                     {"gradient", json_number(kink.gradient)}});
  return {{"name", tensor.name},
          {"dtype", name_of(tensor.dtype)},
          {"shape", tensor.shape.dims()},
          {"checked", tensor.checked},
          {"unresolved", tensor.unresolved},
          {"worst_abs", json_number(tensor.worst_abs)},
          {"worst_rel", json_number(tensor.worst_rel)},
          {"mismatches", pairs_json(tensor.mismatches)},
          {"directions", pairs_json(tensor.directions)},
          {"direction_mismatches", pairs_json(tensor.direction_mismatches)},
          {"kinks", kinks},
          {"direction_kinks", tensor.direction_kinks},
          {"verdict", name_of(tensor.verdict)}};
}

nlohmann::json report_json(const GradCheckReport& report, const GradCheckOptions& options) {
  nlohmann::json tensors = nlohmann::json::array();
  for (const GradTensor& tensor : report.tensors) tensors.push_back(tensor_json(tensor));
  return {{"schema", 1},
          {"tape", report.tape},
          {"losses", options.losses},
          {"loss", report.loss},
          {"seed", options.seed},
          {"rtol", options.rtol},
          {"atol", options.atol},
          {"tensors", tensors},
          {"all", tensor_json(report.all)},
          {"verdict", name_of(report.verdict)}};
}

int code_of(GradVerdict verdict) {
  switch (verdict) {
    case GradVerdict::Ok:
      return 0;
    case GradVerdict::Mismatch:
      return static_cast<int>(Code::Mismatch);
    case GradVerdict::Vacuous:
      std::fputs("tape grad-check: error: nothing was compared: the gradient is zero everywhere\n", stderr);
      break;
    case GradVerdict::Unresolved:
      std::fputs("tape grad-check: error: nothing was compared: no difference quotient can be used\n", stderr);
      break;
  }
  return static_cast<int>(Code::NothingCompared);
}

}  // namespace

void grad_check_options(po::options_description& options) {
  const auto text = [](const char* name) { return po::value<std::string>()->value_name(name); };
  const auto list = [](const char* name) {
    return po::value<std::vector<std::string>>()->composing()->value_name(name);
  };
  options.add_options()("loss", text("NAME[,NAME]"), "what to differentiate; also as a word, loss=NAME")(
      "wrt", text("params|NAME[,NAME]"), "with respect to what; default: every parameter; also as a word, wrt=NAME")(
      "inputs", text("uniform|normal"),
      "draw inputs and parameters by (seed, name); default: their initial values, normal draws where there are none")(
      "in", list("NAME=SPEC"), "value of an input, parameter, state, common local or stream column, as for run")(
      "seed", po::value<int64_t>()->value_name("S"), "of inputs, directions and the choice of elements; default 0")(
      "max-elements", po::value<int64_t>()->value_name("N"), "elements per tensor to move one by one; default 64")(
      "directions", po::value<int64_t>()->value_name("N"),
      "random directions per tensor, and as many through all of them; default 3")(
      "rtol", po::value<double>()->value_name("R"), "relative bound; default 1e-5")(
      "atol", po::value<double>()->value_name("A"), "absolute bound, for values up to 1; default 1e-7")(
      "set", list("CONST=V"), "value of a .const");
}

int grad_check_command(const Arguments& arguments) {
  const Words words = words_of(arguments);
  Source source = open_source(words.files[0], assemble_options(arguments));
  want_sound_data(source);
  const VerifiedModule module = verify_source(std::move(source.assembly.module), source);
  const GradCheckOptions options = options_from(arguments, words, module.module());
  const GradCheckReport report = check_gradient(module, options);
  print(arguments.json ? report_json(report, options).dump(2) + "\n" : report_text(report));
  return code_of(report.verdict);
}

}  // namespace tape::cli
