// `tape fuzz`: a campaign of random tapes or of damaged files, its coverage table, and what was found as files.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "cli/cli.h"
#include "cli/progress.h"
#include "difftest/fuzz_campaign.h"
#include "difftest/fuzz_reduce.h"
#include "vm/io/files.h"

namespace tape::cli {
namespace {

uint64_t count_of(const Arguments& arguments, const char* name, uint64_t fallback, int64_t least) {
  const int64_t value = arguments.number<int64_t>(name, static_cast<int64_t>(fallback));
  if (value < least) usage_error(fmt::format("--{} is {} or more, not {}", name, least, value));
  return static_cast<uint64_t>(value);
}

CampaignOptions options_from(const Arguments& arguments) {
  CampaignOptions options;
  options.fuzz.backend = arguments.text("backend", "cpu");
  if (options.fuzz.backend != "cpu" && options.fuzz.backend != "cuda" && !options.fuzz.backend.starts_with("faulty:"))
    usage_error(fmt::format("--backend is cpu or cuda, not {}", options.fuzz.backend));
  options.fuzz.tapes.seed = count_of(arguments, "seed", 1, 0);
  options.fuzz.tapes.commands = static_cast<unsigned>(std::min<uint64_t>(count_of(arguments, "commands", 12, 1), 1000));
  options.fuzz.diff = !arguments.flag("modes-only");
  const std::string only = arguments.text("only");
  for (size_t at = 0; at < only.size();) {
    const size_t end = std::min(only.find(',', at), only.size());
    const std::string name = only.substr(at, end - at);
    const OpInfo* const op = find_op(name);
    if (op == nullptr) usage_error(fmt::format("no op `{}`", name));
    options.fuzz.tapes.only.emplace_back(op->mnemonic);
    at = end + 1;
  }
  options.format = arguments.flag("format");
  options.count = count_of(arguments, "count", 1000, 1);
  options.first = count_of(arguments, "first", 0, 0);
  const uint64_t processors = std::max(1U, std::thread::hardware_concurrency());
  options.jobs =
      static_cast<unsigned>(std::min({count_of(arguments, "jobs", processors, 1), options.count, uint64_t{256}}));
  options.timeout = std::chrono::seconds(std::min<uint64_t>(count_of(arguments, "timeout", 60, 1), 1'000'000));
  return options;
}

/// What plays one tape of the campaign again.
std::string rerun_line(const CampaignOptions& options, uint64_t number) {
  std::string line = "tape fuzz";
  if (options.format) line += " --format";
  if (options.fuzz.backend != "cpu") line += " --backend " + options.fuzz.backend;
  line += fmt::format(" --seed {} --first {} --count 1", options.fuzz.tapes.seed, number);
  if (options.fuzz.tapes.commands != 12) line += fmt::format(" --commands {}", options.fuzz.tapes.commands);
  if (!options.fuzz.tapes.only.empty()) line += fmt::format(" --only {}", fmt::join(options.fuzz.tapes.only, ","));
  if (!options.fuzz.diff) line += " --modes-only";
  return line;
}

std::string file_name_of(const CampaignFinding& finding) {
  std::string name;
  for (const char c : finding.first.signature.substr(0, 60))
    name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '-';
  return fmt::format("{}-{}", finding.first.number, name);
}

std::string commented(const std::string& text) {
  std::string out = "; ";
  for (const char c : text) {
    out += c;
    if (c == '\n') out += "; ";
  }
  return out + "\n";
}

/// The tape of a finding with as few commands as show the same; nullopt for what cannot be played here.
std::optional<GeneratedTape> reduced(const CampaignOptions& options, const CampaignFinding& finding) {
  const std::string& kind = finding.first.kind;
  if (kind != "value" && kind != "mode" && kind != "round trip" && kind != "error") return std::nullopt;
  FuzzOptions alone = options.fuzz;
  alone.pairs = false;
  Fuzzer fuzzer(alone);
  GenerateOptions tapes = options.fuzz.tapes;
  tapes.number = finding.first.number;
  const auto interesting = [&](const GeneratedTape& tape) {
    const std::optional<FuzzFinding> found = fuzzer.play(tape);
    return found && found->signature == finding.first.signature;
  };
  const GeneratedTape tape = generate_tape(tapes);
  if (!interesting(tape)) return std::nullopt;
  return reduce_generated(tape, interesting);
}

/// What it is, how to see it again, and the tape.
void write_finding(const CampaignOptions& options, const CampaignFinding& finding, const std::string& folder) {
  const std::string head = commented(finding.first.signature) + commented(rerun_line(options, finding.first.number)) +
                           commented(finding.first.what.substr(0, 4000));
  const std::string path = folder + "/" + file_name_of(finding);
  io::write_file(path + ".txt", head);
  GenerateOptions tapes = options.fuzz.tapes;
  tapes.number = finding.first.number;
  if (options.format) {
    const DamagedFile file = damaged_file(tapes);
    io::write_file(path + (file.binary ? ".tbc" : ".tape"), file.content);
    return;
  }
  io::write_file(path + ".tape", head + text_of(generate_tape(tapes)));
  if (const std::optional<GeneratedTape> small = reduced(options, finding))
    io::write_file(path + ".small.tape", head + text_of(*small));
}

/// Each by a process of its own: what crashed once may crash again.
void write_findings(const CampaignOptions& options, const CampaignReport& report, const std::string& folder) {
  std::filesystem::create_directories(folder);
  for (const CampaignFinding& finding : report.findings)
    run_apart(options.timeout, [&] { write_finding(options, finding, folder); });
}

/// Rows by dtypes: how often each was played.
std::string coverage_table(const FuzzTally& tally) {
  std::string text = fmt::format("{:<24}", "played");
  for (const DTypeInfo& info : kDTypes) text += fmt::format("{:>8}", info.name);
  text += '\n';
  const std::vector<RowAndType>& cells = all_rows_and_types();
  for (size_t i = 0; i < cells.size();) {
    const OpInfo* const op = cells[i].op;
    text += fmt::format("{:<24}", op->mnemonic);
    for (const DTypeInfo& info : kDTypes) {
      const bool here = i < cells.size() && cells[i].op == op && cells[i].dtype == info.dtype;
      text += here ? fmt::format("{:>8}", tally.cells[i]) : fmt::format("{:>8}", "");
      if (here) ++i;
    }
    text += '\n';
  }
  return text;
}

size_t never_played(const FuzzTally& tally) {
  return static_cast<size_t>(std::count(tally.cells.begin(), tally.cells.end(), uint64_t{0}));
}

std::string summary_of(const CampaignOptions& options, const CampaignReport& report) {
  const FuzzTally& t = report.tally;
  if (options.format)
    return fmt::format(
        "{} damaged files ({} binary) in {:.1f} s: {} accepted by the loader, {} by the verifier, {} played\n",
        report.format.cases, report.format.binaries, report.seconds, report.format.accepted, report.format.verified,
        report.format.played);
  std::string text = fmt::format(
      "{} tapes in {:.1f} s ({:.0f}/s): {} commands, {} tapes with gradients, {} faults; "
      "{} elements compared between modes, {} commands with the oracle\n",
      t.tapes, report.seconds, static_cast<double>(t.tapes) / std::max(report.seconds, 1e-9), t.commands,
      t.differentiated, t.faults, t.compared, t.checked);
  return text + fmt::format("{} of {} rows and dtypes played\n", t.cells.size() - never_played(t), t.cells.size());
}

nlohmann::json to_json(const CampaignOptions& options, const CampaignReport& report) {
  nlohmann::json findings = nlohmann::json::array(), coverage = nlohmann::json::object();
  for (const CampaignFinding& finding : report.findings)
    findings.push_back({{"number", finding.first.number},
                        {"kind", finding.first.kind},
                        {"signature", finding.first.signature},
                        {"what", finding.first.what},
                        {"times", finding.times},
                        {"rerun", rerun_line(options, finding.first.number)}});
  nlohmann::json json = {{"schema", "tape.fuzz/1"}, {"seed", options.fuzz.tapes.seed}, {"first", options.first},
                         {"count", options.count},  {"seconds", report.seconds},       {"failed", report.failed},
                         {"findings", findings}};
  if (options.format) {
    json["format"] = {{"files", report.format.cases},
                      {"binaries", report.format.binaries},
                      {"accepted", report.format.accepted},
                      {"verified", report.format.verified},
                      {"played", report.format.played}};
    return json;
  }
  const std::vector<RowAndType>& cells = all_rows_and_types();
  for (size_t i = 0; i < cells.size(); ++i)
    coverage[std::string(cells[i].op->mnemonic)][std::string(name_of(cells[i].dtype))] = report.tally.cells[i];
  const FuzzTally& t = report.tally;
  json["tapes"] = {{"played", t.tapes},      {"commands", t.commands},
                   {"faults", t.faults},     {"gradients", t.differentiated},
                   {"compared", t.compared}, {"checked", t.checked}};
  json["coverage"] = coverage;
  return json;
}

}  // namespace

void fuzz_options(po::options_description& options) {
  const auto number = [](const char* name) { return po::value<int64_t>()->value_name(name); };
  const auto text = [](const char* name) { return po::value<std::string>()->value_name(name); };
  options.add_options()("seed", number("S"),
                        "of the campaign; a tape is a function of the seed and its number; default 1")(
      "count", number("N"), "tapes; default 1000")("first", number("K"), "number of the first; default 0")(
      "backend", text("cpu|cuda"), "whose modes are compared, and what is held against the CPU and cpu64; default cpu")(
      "jobs,j", number("N"), "processes; default: all processors")(
      "only", text("OP[,OP]"), "only these rows of the op table")("commands", number("N"),
                                                                  "of a tape, at most about so many; default 12")(
      "modes-only", po::bool_switch(), "without the comparison with the CPU and cpu64")(
      "timeout", number("S"), "seconds that one tape may take; default 60")(
      "output,o", text("DIR"), "write every finding there, as a text that plays on its own")(
      "format", po::bool_switch(), "damaged binaries and texts against loader, assembler, verifier and round trip")(
      "quiet,q", po::bool_switch(), "without the coverage table");
}

int fuzz_command(const Arguments& arguments) {
  want_positional(arguments, 0, 0, "options only");
  CampaignOptions options = options_from(arguments);
  Progress progress(options.count);
  options.progress = [&](uint64_t done) { progress.step(done); };
  const CampaignReport report = run_campaign(options);
  progress.finish();
  if (arguments.has("output")) write_findings(options, report, arguments.text("output"));
  if (arguments.json) {
    print(to_json(options, report).dump(2) + "\n");
  } else {
    if (!options.format && !arguments.flag("quiet")) print(coverage_table(report.tally) + "\n");
    for (const CampaignFinding& finding : report.findings)
      print(fmt::format("{} ({} times)\n  {}\n  {}\n", finding.first.signature, finding.times,
                        finding.first.what.substr(0, finding.first.what.find('\n')),
                        rerun_line(options, finding.first.number)));
    print(summary_of(options, report) +
          fmt::format("{} failed, {} different\n", report.failed, report.findings.size()));
  }
  if (report.failed != 0) return static_cast<int>(Code::Mismatch);
  const uint64_t compared = options.format ? report.format.cases : report.tally.tapes;
  return compared == 0 ? static_cast<int>(Code::NothingCompared) : 0;
}

}  // namespace tape::cli
