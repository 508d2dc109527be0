// tape reduce: the smallest tape that still shows a failure. Candidates are judged by programs of their own, so that
// what crashes or hangs takes nobody along.
#include "difftest/reduce.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/source.h"
#include "cli/spec.h"
#include "difftest/diff.h"
#include "embed/backends.h"
#include "vm/container.h"
#include "vm/io/files.h"

namespace tape::cli {
namespace {

using Clock = std::chrono::steady_clock;

/// A folder that is gone with it.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "tape-reduce-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw Error(Code::Limit, fmt::format("{}: cannot be made", name));
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// A program that runs beside this one; its stdout goes to a file.
class Child {
 public:
  Child(const std::vector<std::string>& words, const std::string& output, double seconds)
      : output_(output),
        end_(Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))) {
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);  // so that what it starts is ended with it
    const int error = posix_spawn(&process_, arguments[0], &files, &attributes, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    if (error != 0) throw Error(Code::Usage, fmt::format("{}: {}", words[0], std::strerror(error)));
  }
  ~Child() {
    if (!ended_) stop();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// Whether it has ended, or was ended for its time.
  bool ended() {
    if (!ended_) ended_ = waitpid(process_, &status_, WNOHANG) == process_;
    if (!ended_ && Clock::now() > end_) {
      stop();
      late_ = true;
    }
    return ended_;
  }
  /// "exit 1", "signal 11", "timeout".
  [[nodiscard]] std::string how() const {
    if (late_) return "timeout";
    return WIFEXITED(status_) ? fmt::format("exit {}", WEXITSTATUS(status_))
                              : fmt::format("signal {}", WTERMSIG(status_));
  }
  [[nodiscard]] const std::string& output() const { return output_; }

 private:
  void stop() {
    kill(-process_, SIGKILL);
    waitpid(process_, &status_, 0);
    ended_ = true;
  }

  std::string output_;
  Clock::time_point end_;
  pid_t process_ = 0;
  int status_ = 0;
  bool ended_ = false, late_ = false;
};

/// What a candidate shows: how its program ended and, of a comparison, the signature.
struct Shown {
  std::string ending;
  nlohmann::json signature;
  std::optional<size_t> suspect;
  [[nodiscard]] bool anything() const {
    return !signature.is_null() || ending == "timeout" || ending.starts_with("signal");
  }
  [[nodiscard]] bool same_as(const Shown& other) const {
    if (!signature.is_null() || !other.signature.is_null()) return signature == other.signature;
    return ending == other.ending;
  }
};

class Judge {
 public:
  explicit Judge(const Arguments& arguments)
      : script_(arguments.text("test")),
        seconds_(arguments.number<double>("timeout", 60)),
        jobs_(
            static_cast<size_t>(arguments.number<int64_t>("jobs", std::max(1u, std::thread::hardware_concurrency())))) {
    if (seconds_ <= 0) usage_error("--timeout is more than 0 seconds");
    if (jobs_ < 1 || jobs_ > 1024) usage_error("--jobs is 1 to 1024");
    sides_ = {"--a",      arguments.text("a", "cuda"),      "--b", arguments.text("b", "cpu"),
              "--oracle", arguments.text("oracle", "cpu64")};
    if (!script_.empty() && access(script_.c_str(), X_OK) != 0)
      usage_error(fmt::format("--test {}: no program that can be run", script_));
  }

  /// Judges the tape as it was given: what is to be kept.
  void begin(const Arguments& arguments, const std::string& tape) {
    if (!script_.empty()) return;
    std::vector<std::string> words = command(arguments.positional[0], tape);
    for (const char* option : {"inputs", "seed"})
      if (arguments.has(option)) {
        words.push_back(std::string("--") + option);
        words.push_back(std::string(option) == "seed" ? fmt::format("{}", arguments.number<uint64_t>("seed", 0))
                                                      : arguments.text(option));
      }
    for (const char* option : {"in", "set"})
      for (const std::string& value : arguments.list(option)) {
        words.push_back(std::string("--") + option);
        words.push_back(value);
      }
    Child child(words, folder_.path() + "/first.json", seconds_);
    while (!child.ended()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    wanted_ = shown(child);
    if (wanted_.anything()) return;
    if (child.how() == "exit 0" || child.how() == fmt::format("exit {}", static_cast<int>(Code::NothingCompared)))
      throw Error(Code::NothingCompared, "the two sides agree: nothing to reduce");
    throw Error(Code::Usage, fmt::format("the comparison itself does not run ({}): try `tape diff`", child.how()));
  }
  [[nodiscard]] std::optional<size_t> suspect() const { return wanted_.suspect; }
  [[nodiscard]] std::string kept() const {
    if (!script_.empty()) return script_ + " exits with 0";
    return wanted_.signature.is_null() ? wanted_.ending : wanted_.signature.dump();
  }

  /// Verdicts of an interrupted reduction; what is judged from now on is added to it.
  void remember(const std::string& path, const std::string& what) {
    std::ifstream file(path);
    std::string line;
    if (std::getline(file, line) && line == what)
      for (std::string hash; file >> hash >> line;) known_[hash] = line == "1";
    file.close();
    log_.open(path, known_.empty() ? std::ios::trunc : std::ios::app);
    if (!log_) throw Error(Code::Format, fmt::format("{}: cannot be written", path));
    if (known_.empty()) log_ << what << '\n' << std::flush;
  }
  [[nodiscard]] size_t remembered() const { return known_.size(); }

  std::optional<size_t> operator()(std::span<const VerifiedModule> candidates) {
    struct Running {
      size_t candidate;
      std::string hash;
      std::unique_ptr<Child> child;
    };
    std::vector<int> verdicts(candidates.size(), -1);
    std::deque<Running> running;
    for (size_t next = 0, decided = 0;;) {
      while (decided < next && verdicts[decided] == 0) ++decided;
      if (decided < candidates.size() && decided < next && verdicts[decided] == 1) return decided;
      if (decided == candidates.size()) return std::nullopt;
      while (next < candidates.size() && running.size() < jobs_) {
        const std::vector<std::byte> bytes = encode_module(candidates[next].module());
        const std::string hash = fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
        if (const auto found = known_.find(hash); found != known_.end())
          verdicts[next] = found->second ? 1 : 0;
        else
          running.push_back({next, hash, start(candidates[next].module(), bytes)});
        ++next;
        if (verdicts[next - 1] == 1) break;  // nobody behind it can be the first
      }
      bool any = false;
      for (auto it = running.begin(); it != running.end();) {
        if (!it->child->ended()) {
          ++it;
          continue;
        }
        const bool interesting = is_interesting(*it->child);
        verdicts[it->candidate] = interesting ? 1 : 0;
        known_[it->hash] = interesting;
        if (log_.is_open()) log_ << it->hash << ' ' << (interesting ? 1 : 0) << '\n' << std::flush;
        it = running.erase(it);
        any = true;
      }
      if (!any && !running.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

 private:
  [[nodiscard]] std::vector<std::string> command(const std::string& file, const std::string& tape) const {
    std::vector<std::string> words{std::filesystem::read_symlink("/proc/self/exe").string(), "diff", file, tape};
    words.insert(words.end(), sides_.begin(), sides_.end());
    words.insert(words.end(), {"--first", "--format", "json"});
    return words;
  }
  std::unique_ptr<Child> start(const Module& module, const std::vector<std::byte>& bytes) {
    const std::string name = fmt::format("{}/{}", folder_.path(), started_++);
    std::vector<std::string> words;
    if (script_.empty()) {
      io::write_file(name + ".tbc", bytes);
      words = command(name + ".tbc", "main");
    } else {
      write_text(module, name + ".tape", true);
      words = {script_, name + ".tape"};
    }
    return std::make_unique<Child>(words, name + ".out", seconds_);
  }
  [[nodiscard]] bool is_interesting(const Child& child) const {
    const bool interesting = script_.empty() ? shown(child).same_as(wanted_) : child.how() == "exit 0";
    std::error_code ignored;
    for (const char* end : {".out", ".tbc", ".tape"})
      std::filesystem::remove(std::filesystem::path(child.output()).replace_extension(end), ignored);
    return interesting;
  }
  static Shown shown(const Child& child) {
    Shown result;
    result.ending = child.how();
    std::ifstream file(child.output());
    const nlohmann::json json = nlohmann::json::parse(file, nullptr, false);
    if (!json.is_object() || !json.contains("signature")) return result;
    result.signature = json["signature"];
    if (json.contains("first_bad") && json["first_bad"].is_object() && json["first_bad"].contains("index"))
      result.suspect = json["first_bad"]["index"].get<size_t>();
    return result;
  }

  Folder folder_;
  std::string script_;
  double seconds_;
  size_t jobs_, started_ = 0;
  std::vector<std::string> sides_;
  Shown wanted_;
  std::map<std::string, bool> known_;
  std::ofstream log_;
};

InputKind kind_of(const Arguments& arguments) {
  const std::string word = arguments.text("inputs", "declared");
  for (const InputKind kind :
       {InputKind::Declared, InputKind::Uniform, InputKind::Normal, InputKind::Integers, InputKind::Edge})
    if (word == name_of(kind)) return kind;
  usage_error(fmt::format("--inputs is declared, uniform, normal, integers or edge, not {}", word));
}

std::unique_ptr<Backend> open_reference() {
  BackendOptions options;
  options.canonical_order = true;
  return open_backend("cpu", options);
}

}  // namespace

void reduce_options(po::options_description& options) {
  const auto text = [](const char* name) { return po::value<std::string>()->value_name(name); };
  options.add_options()("output,o", text("OUT"), "where the small tape goes")(
      "a", text("BACKEND"), "the side that is doubted, as for diff; default cuda")(
      "b", text("BACKEND"), "the side it is compared with; default cpu")("oracle", text("BACKEND"),
                                                                         "the judge; default cpu64")(
      "test", text("SCRIPT"), "instead: SCRIPT FILE exits with 0 for a tape that is interesting, 125 for one to skip")(
      "jobs,j", po::value<int64_t>()->value_name("N"), "candidates judged at a time; default: all processors")(
      "timeout", po::value<double>()->value_name("S"), "seconds that judging one may take; default 60")(
      "resume", po::bool_switch(), "keep OUT.log while at it, and go on where one that was stopped left off")(
      "inputs", text("KIND"), "of values that nobody gives, as for diff")(
      "seed", po::value<uint64_t>()->value_name("S"), "of what is drawn; default 0")(
      "in", po::value<std::vector<std::string>>()->composing()->value_name("NAME=SPEC"), "value, as for run")(
      "set", po::value<std::vector<std::string>>()->composing()->value_name("CONST=V"), "value of a .const")(
      "quiet,q", po::bool_switch(), "no progress");
}

int reduce_command(const Arguments& arguments) {
  want_positional(arguments, 1, 2, "FILE [TAPE]");
  const std::string output = arguments.text("output");
  if (output.empty()) usage_error("-o OUT is wanted: where the small tape goes");
  const std::string& file = arguments.positional[0];
  if (file == "-") usage_error("FILE is wanted by name: other programs read it");
  Source source = open_source(file, assemble_options(arguments));
  want_sound_data(source);
  const VerifiedModule module = verify_source(std::move(source.assembly.module), source);
  const TapeId entry = entry_of(module, arguments.positional.size() > 1 ? arguments.positional[1] : "");
  const std::string& tape = module.module().tapes[entry].name;
  ReduceOptions options;
  const auto seed = arguments.number<uint64_t>("seed", 0);
  options.values = given_values(arguments, module.module(), static_cast<int64_t>(seed));
  for (auto& drawn : draw_inputs(module, entry, kind_of(arguments), seed)) {
    const bool given = std::any_of(options.values.begin(), options.values.end(),
                                   [&](const auto& each) { return each.first == drawn.first; });
    if (!given) options.values.push_back(std::move(drawn));
  }
  Judge judge(arguments);
  judge.begin(arguments, tape);
  const bool quiet = arguments.flag("quiet");
  if (!quiet) fmt::print(stderr, "to be kept: {}\n", judge.kept());
  if (arguments.flag("resume")) {
    judge.remember(output + ".log", fmt::format("{:016x} {} {}", hash_of(module.module()), tape, judge.kept()));
    if (!quiet && judge.remembered() != 0) fmt::print(stderr, "{} verdicts from before\n", judge.remembered());
  }
  options.judge = [&](std::span<const VerifiedModule> candidates) { return judge(candidates); };
  options.reference = open_reference;
  options.suspect = judge.suspect();
  if (!quiet) options.progress = [](const std::string& line) { fmt::print(stderr, "{}\n", line); };
  const Clock::time_point begun = Clock::now();
  const Reduction reduction = reduce_tape(module, entry, options);
  const std::string again =
      arguments.has("test") ? fmt::format("{} {}", arguments.text("test"), output)
                            : fmt::format("tape diff {} --a {} --b {} --oracle {}", output, arguments.text("a", "cuda"),
                                          arguments.text("b", "cpu"), arguments.text("oracle", "cpu64"));
  write_output(output, fmt::format("; from {}, tape {}; kept: {}\n; again: {}\n{}", file, tape, judge.kept(), again,
                                   reduced_text(reduction.module, open_reference())));
  if (arguments.flag("resume") && output != "-") std::filesystem::remove(output + ".log");
  const double seconds = std::chrono::duration<double>(Clock::now() - begun).count();
  if (!quiet)
    fmt::print(stderr, "{}: {} commands, {} elements, after {} candidates in {:.1f} s\nagain: {}\n", output,
               reduction.commands, reduction.elements, reduction.candidates, seconds, again);
  return 0;
}

}  // namespace tape::cli
