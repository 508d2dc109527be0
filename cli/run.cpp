// tape run: load modules, bind inputs, play, hand out results. Everything the user named is checked before the first
// command plays, and no file is written before the last one has.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "cli/pipeline.h"
#include "cli/plot.h"
#include "cli/profile.h"
#include "cli/source.h"
#include "cli/spec.h"
#include "embed/backends.h"
#include "embed/guard.h"
#include "vm/compare.h"
#include "vm/machine.h"

namespace tape::cli {
namespace {

struct Named {
  std::string name;  // what the Machine calls it, once resolved
  std::string spec;
  std::string given;  // what the user called it
};
struct Expected {
  std::string name;
  std::string spec;
  std::optional<double> atol, rtol;
};
struct Logged {
  std::string name;
  uint64_t every = 1;
};

/// Cuts ",key=VALUE" off the end of a text.
std::optional<double> take_number(std::string& text, std::string_view key) {
  const size_t at = text.rfind(fmt::format(",{}=", key));
  if (at == std::string::npos) return std::nullopt;
  const std::string value = text.substr(at + key.size() + 2);
  char* end = nullptr;
  const double number = std::strtod(value.c_str(), &end);
  if (value.empty() || *end != '\0' || !(number >= 0))
    usage_error(fmt::format("{}= wants a number, got `{}`", key, value));
  text.resize(at);
  return number;
}

std::vector<Named> named_options(const Arguments& arguments, const char* option) {
  std::vector<Named> result;
  for (const std::string& text : arguments.list(option)) {
    const auto [name, spec] = split_assignment(text, fmt::format("--{}", option).c_str());
    result.push_back({name, spec, name});
  }
  return result;
}

/// An archive without a key takes the name, without its tape, as the key.
std::vector<Named> output_options(const Arguments& arguments) {
  std::vector<Named> result = named_options(arguments, "out");
  for (Named& output : result)
    if (io::is_archive(output.spec)) output.spec += ":" + output.name.substr(output.name.find(':') + 1);
  return result;
}

std::vector<Expected> expected_options(const Arguments& arguments) {
  std::vector<Expected> result;
  for (const Named& named : named_options(arguments, "expect")) {
    Expected expected{named.name, named.spec, {}, {}};
    for (int i = 0; i < 2; ++i) {
      // In either order: the one at the end is cut off first.
      const bool rtol_last = expected.spec.rfind(",rtol=") + 1 > expected.spec.rfind(",atol=") + 1;
      if (rtol_last)
        expected.rtol = take_number(expected.spec, "rtol");
      else if (const auto atol = take_number(expected.spec, "atol"))
        expected.atol = atol;
    }
    result.push_back(expected);
  }
  return result;
}

std::vector<Logged> log_options(const Arguments& arguments) {
  std::vector<Logged> result;
  for (std::string text : arguments.list("log")) {
    Logged logged;
    if (const std::optional<double> every = take_number(text, "every")) logged.every = static_cast<uint64_t>(*every);
    if (logged.every == 0) usage_error("--log: every= wants at least 1");
    if (text.find(',') != std::string::npos) usage_error(fmt::format("--log wants NAME[,every=K], got `{}`", text));
    logged.name = text;
    result.push_back(logged);
  }
  return result;
}

class Run {
 public:
  explicit Run(const Arguments& arguments)
      : arguments_(arguments),
        inputs_(named_options(arguments, "in")),
        outputs_(output_options(arguments)),
        expected_(expected_options(arguments)),
        logged_(log_options(arguments)),
        plotted_(arguments.text("plot")),
        plot_(plotted_),
        seed_(arguments.number<int64_t>("seed", 0)) {
    for (const Named& output : outputs_) Outputs::check(output.name, output.spec);
    want_each_once();
    level_ = arguments.number<int>("optimize", 1);
    if (level_ == 2 || level_ == 3)
      usage_error(fmt::format("-O{} needs numeric passes, which this build does not have", level_));
    if (level_ != 0 && level_ != 1) usage_error(fmt::format("-O wants 0 or 1, got {}", level_));
    const std::string order = arguments.text("order", "fast");
    if (order != "fast" && order != "canonical")
      usage_error(fmt::format("--order is fast or canonical, not {}", order));
    canonical_ = order == "canonical";
    mode_ = choice("mode", {"graph", "capture", "stream"}, 0);
    branches_ = choice("branches", {"off", "auto", "all"}, 1);
    const std::string repeat = arguments.text("repeat", "1");
    const bool digits =
        !repeat.empty() && repeat.size() < 19 && repeat.find_first_not_of("0123456789") == std::string::npos;
    if (!digits && repeat != "epoch") usage_error(fmt::format("--repeat wants a number or epoch, got `{}`", repeat));
    if (arguments_.has("plot-file") && plotted_.empty()) usage_error("--plot-file wants --plot NAME");
    const std::string save = arguments.text("save");
    if (!save.empty() && !io::is_archive(save))
      usage_error(fmt::format("--save writes .npz or .safetensors, not {}", save));
    const std::string backend = arguments.text("backend", "auto");
    if (backend == "cuda") static_cast<void>(open_backend(backend));
  }

  int run() {
    load_modules();
    make_machine();
    if (arguments_.has("load")) load_state();
    bind_inputs();
    prepared_.emplace(machine_->prepare(main_id_, entry_name()));
    want_inputs();
    count_runs();
    want_outputs();
    header();
    if (arguments_.flag("dry-run")) return dry_run();
    read_expected();
    play();
    return finish();
  }

 private:
  /// Which of the words an option has; the number of the one it has by default.
  [[nodiscard]] size_t choice(const char* option, const std::vector<std::string>& words, size_t by_default) const {
    const std::string word = arguments_.text(option, words[by_default].c_str());
    const auto at = std::find(words.begin(), words.end(), word);
    if (at == words.end()) usage_error(fmt::format("--{} is one of {}, not {}", option, fmt::join(words, ", "), word));
    return static_cast<size_t>(at - words.begin());
  }

  /// An input given twice, an output file named twice or standard input read twice would hide one of the two.
  void want_each_once() const {
    size_t readers = arguments_.positional[0] == "-" ? 1 : 0;
    for (const std::string& other : arguments_.list("with")) readers += other == "-" ? 1 : 0;
    std::vector<std::string> seen;
    const auto once = [&](const std::string& what, const std::string& message) {
      if (std::find(seen.begin(), seen.end(), what) != seen.end()) usage_error(message);
      seen.push_back(what);
    };
    for (const Named& input : inputs_) {
      once("in " + input.name, fmt::format("--in {} is given twice", input.name));
      readers += input.spec == "-" ? 1 : 0;
    }
    for (const Expected& expected : expected_) readers += expected.spec == "-" ? 1 : 0;
    if (readers > 1) usage_error("- reads standard input, which can be read once only");
    for (const Named& output : outputs_)
      if (output.spec != "-") once("out " + output.spec, fmt::format("two outputs go to {}", output.spec));
    if (arguments_.has("save"))
      for (const Named& output : outputs_)
        if (output.spec.starts_with(arguments_.text("save") + ":"))
          usage_error(fmt::format("--save and --out both write {}", arguments_.text("save")));
  }

  [[nodiscard]] const Module& module() const { return verified_[0].module(); }
  [[nodiscard]] const std::string& entry_name() const { return module().tapes[entry_].name; }

  void load_modules() {
    std::vector<std::string> paths{arguments_.positional[0]};
    for (const std::string& other : arguments_.list("with")) paths.push_back(other);
    for (const std::string& path : paths) {
      Source source = open_source(path, path == paths[0] ? assemble_options(arguments_) : AssembleOptions{});
      if (seed_ != 0) add_seed(source.assembly.module, seed_);
      verified_.push_back(verify_source(std::move(source.assembly.module), source));
    }
    entry_ = entry_of(verified_[0], arguments_.positional.size() > 1 ? arguments_.positional[1] : "");
  }

  /// The persistent tensor of that name in any module that owns it.
  [[nodiscard]] const Tensor* persistent(std::string_view name) const {
    for (const VerifiedModule& verified : verified_) {
      const TensorId id = verified.module().find_tensor(name);
      if (id == kNone) continue;
      const Tensor& tensor = verified.module().tensors[id];
      if (is_persistent(tensor) && tensor.role != Role::Extern) return &tensor;
    }
    return nullptr;
  }

  /// What `retrieve` calls a name: itself, or "tape:name" for a local. Throws for a name that nothing has.
  std::string resolve(const std::string& name, const char* option) {
    const size_t colon = name.find(':');
    const std::string tape = colon == std::string::npos ? entry_name() : name.substr(0, colon);
    std::string bare = colon == std::string::npos ? name : name.substr(colon + 1);
    if (colon == std::string::npos && (persistent(name) != nullptr || module().find_sink(name) != kNone)) return name;
    const TapeId id = module().find_tape(tape);
    if (id == kNone) usage_error(fmt::format("--{} {}: no tape `{}`", option, name, tape));
    if (colon != std::string::npos && persistent(bare) != nullptr) return bare;
    const bool local = module().find_tensor(bare, id) != kNone || module().find_tensor(bare) != kNone;
    if (local) return fmt::format("{}:{}", tape, bare);
    std::vector<std::string_view> known;
    for (const Tensor& tensor : module().tensors)
      if (tensor.owner == kNone || tensor.owner == id) known.emplace_back(tensor.name);
    usage_error(
        fmt::format("--{} {}: nothing of that name in tape {}{}", option, name, tape, did_you_mean(bare, known)));
  }

  void pin(std::string& name, const char* option) {
    name = resolve(name, option);
    if (name.find(':') != std::string::npos && std::find(pinned_.begin(), pinned_.end(), name) == pinned_.end())
      pinned_.push_back(name);
  }

  void make_machine() {
    for (Named& output : outputs_) pin(output.name, "out");
    for (Expected& expected : expected_) pin(expected.name, "expect");
    for (Logged& logged : logged_) pin(logged.name, "log");
    if (!plotted_.empty()) pin(plotted_, "plot");
    BackendOptions backend;
    const int64_t threads = arguments_.number<int64_t>("threads", 0);
    if (threads < 0 || threads > 4096)
      usage_error(fmt::format("--threads is 0 (all processors) to 4096, not {}", threads));
    backend.threads = static_cast<unsigned>(threads);
    backend.canonical_order = canonical_;
    backend.mode = static_cast<PlayMode>(mode_);
    backend.branches = static_cast<Branches>(branches_);
    backend.profile = arguments_.flag("profile");
    MachineOptions options;
    options.reuse = !arguments_.flag("no-reuse");
    options.arena = arena_use(arguments_);
    options.poison = arguments_.flag("poison");
    options.share_common = level_ > 0;
    options.eliminate_dead = level_ > 0;
    std::unique_ptr<Backend> opened;
    if (arguments_.flag("guard")) {
      backend.mode = PlayMode::Stream;
      options.reuse = false;
      options.guard = kGuardBytes;
      opened = make_guarded(open_backend(arguments_.text("backend", "auto"), backend));
    } else {
      opened = open_backend(arguments_.text("backend", "auto"), backend);
    }
    machine_.emplace(std::move(opened), options);
    const std::span<const VerifiedModule> all(verified_);
    if (pinned_.empty()) {
      main_id_ = machine_->add(all)[0];
    } else {
      if (all.size() > 1) static_cast<void>(machine_->add(all.subspan(1)));
      main_id_ = machine_->add(verified_[0], pinned_);
    }
    machine_->on_trace([](std::string_view label, const std::string& tensor, const HostArray& value) {
      std::fputs((std::string(label) + (label.empty() ? "" : ": ") + array_text(tensor, value)).c_str(), stderr);
    });
  }

  [[nodiscard]] static bool is_saved(const TensorInfo& tensor) {
    return tensor.role == Role::Param || tensor.role == Role::State || tensor.role == Role::Rng;
  }

  void load_state() {
    const std::string path = arguments_.text("load");
    const bool partial = arguments_.flag("partial");
    std::vector<std::string_view> known;
    const std::vector<TensorInfo> tensors = machine_->tensors();
    for (const TensorInfo& tensor : tensors)
      if (is_saved(tensor)) known.emplace_back(tensor.name);
    const io::NamedArrays arrays = io::read_arrays(path);
    std::string mistakes;
    for (const auto& [name, array] : arrays) {
      given_.push_back(name);
      if (std::find(known.begin(), known.end(), name) == known.end()) {
        if (!partial)
          mistakes += fmt::format("\n  it has `{}`, which is no parameter or state here{}; --partial skips it", name,
                                  did_you_mean(name, known));
        continue;
      }
      try {
        machine_->load(name, array);
      } catch (const Error& error) {
        mistakes += fmt::format("\n  {}", error.what());
      }
    }
    for (const std::string_view name : known)
      if (!partial && !is_given(std::string(name)))
        mistakes += fmt::format("\n  it lacks {}; --partial keeps the initial value", name);
    if (!mistakes.empty()) usage_error(fmt::format("--load {}:{}", path, mistakes));
  }

  /// Refuses what could not be written in the end, before anything is played.
  void want_outputs() {
    const auto want_dtype = [](const std::string& option, DType dtype, const std::string& spec) {
      const std::string archive = io::split_archive(spec).first;
      if (dtype == DType::BF16 && spec != "-" && !spec.ends_with(".safetensors") && !archive.ends_with(".safetensors"))
        usage_error(fmt::format("{} is bf16, which {} cannot hold; .safetensors can", option,
                                spec.ends_with(".npy") ? ".npy" : ".npz"));
    };
    for (const Named& output : outputs_) {
      Outputs::want_writable(output.spec);
      want_dtype("--out " + output.given, dtype_of(output.name), output.spec);
    }
    if (arguments_.has("plot-file")) io::want_writable(arguments_.text("plot-file"));
    if (!arguments_.has("save")) return;
    const std::string save = arguments_.text("save");
    io::want_writable(save);
    for (const TensorInfo& tensor : machine_->tensors())
      if (is_saved(tensor)) want_dtype("--save: " + tensor.name, tensor.dtype, save);
  }

  void bind_inputs() {
    for (const Named& input : inputs_) {
      if (const Tensor* tensor = persistent(input.name)) {
        if (tensor->role == Role::Data) usage_error(fmt::format("--in {}: it is constant data", input.name));
        machine_->load(input.name, read_spec(input.spec, {input.name, tensor->dtype, tensor->shape, false, seed_}));
        given_.push_back(input.name);
      } else if (!bind_column(input)) {
        unknown_input(input.name);
      }
    }
  }

  bool bind_column(const Named& input) {
    const size_t dot = input.name.rfind('.');
    if (dot == std::string::npos) return false;
    for (const VerifiedModule& verified : verified_)
      for (const Stream& stream : verified.module().streams)
        for (const Column& column : stream.columns) {
          if (stream.name != input.name.substr(0, dot) || column.name != input.name.substr(dot + 1)) continue;
          const Wanted wanted{input.name, column.dtype, column.row, true, seed_};
          machine_->bind_stream(stream.name, column.name, read_spec(input.spec, wanted));
          given_.push_back(input.name);
          return true;
        }
    return false;
  }

  [[noreturn]] void unknown_input(const std::string& name) {
    std::vector<std::string> names;
    for (const TensorInfo& tensor : machine_->tensors()) names.push_back(tensor.name);
    for (const VerifiedModule& verified : verified_)
      for (const Stream& stream : verified.module().streams)
        for (const Column& column : stream.columns) names.push_back(stream.name + "." + column.name);
    usage_error(fmt::format("--in {}: nothing of that name takes data{}", name,
                            did_you_mean(name, {names.begin(), names.end()})));
  }

  [[nodiscard]] bool is_given(const std::string& name) const {
    return std::find(given_.begin(), given_.end(), name) != given_.end();
  }

  /// Refuses to play a tape whose inputs nobody gave, listing all of them.
  void want_inputs() {
    const Plan& plan = prepared_->plan();
    const std::vector<Tensor>& tensors = plan.module.module().tensors;
    std::string missing;
    for (size_t id = 0; id < tensors.size(); ++id) {
      const bool may_be_input = tensors[id].role == Role::Input || tensors[id].role == Role::Extern;
      if (!may_be_input || plan.tensors[id].segment == Segment::None) continue;
      const Tensor* owner = persistent(tensors[id].name);
      if (owner == nullptr || owner->role != Role::Input || owner->blob != kNone ||
          owner->init.kind != InitKind::None || is_given(owner->name))
        continue;
      missing += fmt::format("\n  --in {}=SPEC   {}{}", owner->name, name_of(owner->dtype), owner->shape.text());
    }
    for (const auto& [stream, rows] : loads())
      for (const Column& column : module().streams[stream].columns) {
        const Wanted wanted{module().streams[stream].name + "." + column.name, column.dtype, column.row, true, 0};
        if (column.path.empty() && !is_given(wanted.name))
          missing += fmt::format("\n  --in {}=SPEC   {}", wanted.name, wanted.text());
      }
    if (!missing.empty())
      usage_error(fmt::format("tape {} needs inputs that were not given:{}", entry_name(), missing));
  }

  /// Streams the entry loads from, each with the rows one run takes of it.
  [[nodiscard]] std::vector<std::pair<uint32_t, double>> loads() const {
    const Plan& plan = prepared_->plan();
    std::vector<std::pair<uint32_t, double>> result;
    std::vector<double> times{1};
    for (const PlacedCommand& placed : plan.commands) {
      const tape::Command& command = placed.command;
      if (command.op->opcode == Opcode::Repeat)
        times.push_back(times.back() * static_cast<double>(std::max<int64_t>(command.attr_int("count"), 1)));
      if (command.op->opcode == Opcode::While) times.push_back(times.back());
      if (command.op->opcode == Opcode::End) times.pop_back();
      if (command.op->opcode != Opcode::Load) continue;
      const uint32_t stream = command.id(1);
      const double rows = times.back() * static_cast<double>(command.attr_int("rows"));
      const auto at =
          std::find_if(result.begin(), result.end(), [&](const auto& item) { return item.first == stream; });
      if (at == result.end())
        result.emplace_back(stream, rows);
      else
        at->second += rows;
    }
    return result;
  }

  void count_runs() {
    const std::string repeat = arguments_.text("repeat", "1");
    if (repeat == "epoch") {
      const auto streams = loads();
      if (streams.empty()) usage_error(fmt::format("--repeat epoch: tape {} loads from no stream", entry_name()));
      const auto rows = static_cast<double>(machine_->stream_rows(module().streams[streams[0].first].name));
      runs_ = static_cast<uint64_t>(std::ceil(rows / streams[0].second));
      return;
    }
    runs_ = std::stoull(repeat);
  }

  void header() {
    if (arguments_.flag("quiet")) return;
    const Capabilities& backend = machine_->backend().capabilities();
    std::string text =
        fmt::format("tape {} of {} on {} ({})", entry_name(), arguments_.positional[0], backend.name, backend.device);
    if (runs_ != 1) text += fmt::format(", {} runs", runs_);
    if (level_ != 1) text += fmt::format(", -O{}", level_);
    for (const char* flag : {"no-reuse", "poison"})
      if (arguments_.flag(flag)) text += fmt::format(", --{}", flag);
    if (arena_use(arguments_) != ArenaUse::Auto) text += fmt::format(", --arena {}", arguments_.text("arena"));
    if (seed_ != 0) text += fmt::format(", --seed {}", seed_);
    if (backend.name == "cuda")
      for (const char* option : {"mode", "branches"})
        if (arguments_.has(option)) text += fmt::format(", --{} {}", option, arguments_.text(option));
    for (const std::string& note : backend.notes) text += ", " + note;
    noted_ = backend.notes.size();
    std::fputs((text + "\n").c_str(), stderr);
  }

  int dry_run() {
    const Plan& plan = prepared_->plan();
    if (arguments_.json) {
      const nlohmann::json json{{"tape", entry_name()},
                                {"runs", runs_},
                                {"commands", plan.commands.size()},
                                {"flops", plan.flops},
                                {"arena_bytes", plan.arena_bytes},
                                {"unplanned_bytes", plan.unplanned_bytes},
                                {"persistent_bytes", plan.persistent_bytes}};
      print(json.dump(2) + "\n");
      return 0;
    }
    print(fmt::format("{} commands, {:.3g} flops a run, {} bytes persistent, {} bytes of arena ({} without reuse)\n",
                      plan.commands.size(), plan.flops, plan.persistent_bytes, plan.arena_bytes, plan.unplanned_bytes));
    return 0;
  }

  [[nodiscard]] HostArray value_of(const std::string& name) {
    if (name.find(':') == std::string::npos && module().find_sink(name) != kNone) return machine_->sink(name);
    return machine_->retrieve(name);
  }

  [[nodiscard]] DType dtype_of(const std::string& name) const {
    const uint32_t sink = name.find(':') == std::string::npos ? module().find_sink(name) : kNone;
    return sink != kNone ? module().sinks[sink].dtype : declaration(name).dtype;
  }

  /// Dtype and shape of what `name` will be.
  [[nodiscard]] const Tensor& declaration(const std::string& name) const {
    const size_t colon = name.find(':');
    if (colon == std::string::npos) return *persistent(name);
    const TapeId tape = module().find_tape(name.substr(0, colon));
    const TensorId own = module().find_tensor(name.substr(colon + 1), tape);
    return module().tensors[own != kNone ? own : module().find_tensor(name.substr(colon + 1))];
  }

  /// Reads what --expect names before anything plays.
  void read_expected() {
    for (const Expected& expected : expected_) {
      if (expected.name.find(':') == std::string::npos && module().find_sink(expected.name) != kNone) {
        wanted_.push_back(io::read_array(expected.spec));
        continue;
      }
      const Tensor& tensor = declaration(expected.name);
      wanted_.push_back(read_spec(expected.spec, {expected.name, tensor.dtype, tensor.shape, false, seed_}));
    }
    const auto want_scalar = [this](const char* option, const std::string& name) {
      if (module().find_sink(name) != kNone || declaration(name).shape.elements() != 1)
        usage_error(fmt::format("--{} {}: it is not a scalar", option, name));
    };
    for (const Logged& logged : logged_) want_scalar("log", logged.name);
    if (!plotted_.empty()) want_scalar("plot", plotted_);
  }

  /// What the backend has noticed since the header.
  void notes_since() {
    const std::vector<std::string>& notes = machine_->backend().capabilities().notes;
    if (arguments_.flag("quiet")) return;
    for (; noted_ < notes.size(); ++noted_) std::fputs((notes[noted_] + "\n").c_str(), stderr);
  }

  void play() {
    Pipeline pipeline(*prepared_, runs_);
    for (const Logged& logged : logged_) pipeline.log(logged.name, logged.every);
    constexpr uint64_t kPlotted = 1000;  // values
    if (!plotted_.empty()) pipeline.log(plotted_, std::max<uint64_t>(runs_ / kPlotted, 1), false);
    const auto seen = [this](const Pipeline::Record& record) {
      if (!record.shown)
        plot_.add(record.run, element_as_f64(record.value.bytes, record.value.dtype, 0));
      else if (arguments_.json)
        log_.push_back({{"run", record.run},
                        {"name", record.name},
                        {"value", array_json(record.value)["values"][0]},
                        {"seconds", record.seconds}});
    };
    try {
      pipeline.play(seen);
    } catch (const Fault&) {
      notes_since();  // they may say where it came from
      throw;
    }
    seconds_ = pipeline.seconds();
    notes_since();
    if (runs_ > 1 && !arguments_.flag("quiet"))
      std::fputs(
          fmt::format("{} runs in {:.3f} s, {:.0f} runs/s\n", runs_, seconds_, static_cast<double>(runs_) / seconds_)
              .c_str(),
          stderr);
  }

  /// Outputs the entry writes, printed when nothing else was asked for.
  [[nodiscard]] std::vector<std::string> written_outputs() const {
    const Plan& plan = prepared_->plan();
    const std::vector<Tensor>& tensors = plan.module.module().tensors;
    std::vector<std::string> names;
    for (size_t id = 0; id < tensors.size(); ++id)
      if (tensors[id].role == Role::Output && plan.tensors[id].segment != Segment::None)
        names.push_back(tensors[id].name);
    return names;
  }

  int finish() {
    Outputs outputs;
    for (const Named& output : outputs_) outputs.add(output.given, output.spec, value_of(output.name));
    nlohmann::json values = nlohmann::json::object();
    std::string small;
    if (outputs_.empty() && expected_.empty())
      for (const std::string& name : written_outputs()) {
        const HostArray array = machine_->retrieve(name);
        constexpr int64_t kShown = 1000;
        if (array.shape.elements() > kShown)
          small += fmt::format("{}: {} values; --out {}=- prints them\n", describe(name, array.dtype, array.shape),
                               array.shape.elements(), name);
        else if (arguments_.json)
          values[name] = array_json(array);
        else
          small += array_text(name, array);
      }
    const bool agree = compare();
    if (arguments_.has("save")) save();
    if (arguments_.has("plot-file"))
      io::write_file(arguments_.text("plot-file"), plot_.svg());
    else if (!plotted_.empty())
      std::fputs(plot_.text().c_str(), stderr);
    outputs.write(arguments_.json ? &values : nullptr);
    const std::optional<Profile> profile = prepared_->profile();
    const Capabilities& backend = machine_->backend().capabilities();
    if (arguments_.json) {
      nlohmann::json json{{"tape", entry_name()}, {"backend", machine_->backend().capabilities().name},
                          {"runs", runs_},        {"seconds", seconds_},
                          {"outputs", values},    {"log", log_},
                          {"agree", agree}};
      if (profile) json["profile"] = profile_json(*profile, prepared_->plan(), backend, runs_);
      print(json.dump(2) + "\n");
    } else {
      print(small);
      if (profile && runs_ != 0) print(profile_text(*profile, prepared_->plan(), backend, runs_));
    }
    return agree ? 0 : static_cast<int>(Code::Mismatch);
  }

  bool compare() {
    bool agree = true;
    for (size_t i = 0; i < expected_.size(); ++i) {
      const Expected& expected = expected_[i];
      const HostArray got = value_of(expected.name);
      Tolerance tolerance = default_tolerance(got.dtype);
      if (expected.atol || expected.rtol) tolerance = {expected.atol.value_or(0), expected.rtol.value_or(0)};
      const Comparison result = compare_close(wanted_[i], got, tolerance);
      if (result.equal()) continue;
      agree = false;
      std::fputs(fmt::format("{}: {}\n", expected.name, result.text).c_str(), stderr);
    }
    return agree;
  }

  void save() {
    io::NamedArrays arrays;
    for (const TensorInfo& tensor : machine_->tensors())
      if (is_saved(tensor)) arrays.emplace_back(tensor.name, machine_->retrieve(tensor.name));
    io::write_arrays(arguments_.text("save"), arrays);
  }

  const Arguments& arguments_;
  std::vector<Named> inputs_, outputs_;
  std::vector<Expected> expected_;
  std::vector<Logged> logged_;
  std::string plotted_;
  Plot plot_;
  int64_t seed_ = 0;
  int level_ = 1;
  bool canonical_ = false;
  size_t mode_ = 0, branches_ = 1;
  size_t noted_ = 0;                      // of the backend's notes, in the header
  std::vector<VerifiedModule> verified_;  // the file, then --with
  TapeId entry_ = kNone;
  std::vector<std::string> pinned_, given_;
  std::optional<Machine> machine_;
  ModuleId main_id_ = 0;
  std::optional<Prepared> prepared_;
  uint64_t runs_ = 1;
  double seconds_ = 0;
  std::vector<HostArray> wanted_;
  nlohmann::json log_ = nlohmann::json::array();
};

}  // namespace

void run_options(po::options_description& options) {
  const auto text = [](const char* name) { return po::value<std::string>()->value_name(name); };
  const auto list = [](const char* name) {
    return po::value<std::vector<std::string>>()->composing()->value_name(name);
  };
  options.add_options()("backend", text("auto|cpu|cpu64|cuda"), "what plays it")(
      "in", list("NAME=SPEC"),
      "fill an input, parameter, state or stream column (SPEC: file.npy, file.npz:key, file.safetensors:key, "
      "'2x3xf32=1 2 3 4 5 6', 2x3xf32=@file.npy, 100xu8=@raw.txt, random[:normal|uniform|integers], zeros, -)")(
      "out", list("[TAPE:]NAME=SPEC"),
      "hand out a tensor or sink: - prints, file.npy, file.npz[:key], file.safetensors[:key], @file: raw bytes")(
      "expect", list("NAME=SPEC[,atol=,rtol=]"), "compare; 1 when they differ")(
      "with", list("OTHER"), "another module whose tensors this one names .extern, or the other way round")(
      "repeat", text("N|epoch"), "how often; epoch: once through the stream")(
      "seed", po::value<int64_t>()->value_name("S"), "added to every seed=")("set", list("CONST=V"),
                                                                             "value of a .const")(
      "load", text("FILE"), "parameters and state by name from .npz or .safetensors")("partial", po::bool_switch(),
                                                                                      "--load may miss or have names")(
      "save", text("FILE"),
      "parameters and all state by name to .npz or .safetensors, cursors and generators included")(
      "log", list("NAME[,every=K]"), "print a scalar while it runs")(
      "plot", text("NAME"), "the curve of a scalar, on stderr behind the last run")(
      "plot-file", text("FILE.svg"), "the curve of --plot into a file instead")(
      "order", text("fast|canonical"), "canonical: MATMUL in the order the card's own kernels use")(
      "mode", text("graph|capture|stream"), "how a card plays it: from a graph, a captured one, or launch by launch")(
      "branches", text("off|auto|all"), "commands of a graph side by side; bits do not depend on it")(
      "arena", text("auto|tight|branches"), "whether independent commands may share bytes and so wait for each other")(
      "threads", po::value<int64_t>()->value_name("N"), "workers; bits do not depend on it")(
      "optimize,O", po::value<int>()->value_name("0|1"), "1 drops dead commands")("no-reuse", po::bool_switch(),
                                                                                  "every local has bytes of its own")(
      "poison", po::bool_switch(), "fill locals with 0xFF before their first write")(
      "guard", po::bool_switch(),
      "every command on its own, memory looked at behind it: names the one that writes where it must not")(
      "profile", po::bool_switch(),
      "how long every command took, with its line and how near that is to the device's best")(
      "dry-run", po::bool_switch(), "plan, do not play")("quiet,q", po::bool_switch(), "no header");
}

int run_command(const Arguments& arguments) {
  want_positional(arguments, 1, 2, "FILE [TAPE]");
  return Run(arguments).run();
}

}  // namespace tape::cli
