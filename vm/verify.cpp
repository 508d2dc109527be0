// The verifier's driver and its report. The parts run in the order declarations, commands, flow; a part that cannot
// trust what an earlier one refused does not run.
#include "vm/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "vm/container.h"
#include "vm/verify_internal.h"

namespace tape {
namespace verifier {

std::string with_article(Role role) {
  if (role == Role::Data) return "data";
  const bool vowel = role == Role::Input || role == Role::Output || role == Role::Extern || role == Role::Rng;
  return fmt::format("{} {}", vowel ? "an" : "a", name_of(role));
}

Report::Item* Report::add(const Location& location, std::string message) {
  ++errors_;
  if (items_.size() >= static_cast<size_t>(limits::max_diagnostics)) return nullptr;
  items_.push_back({location, at(location, std::move(message), Severity::Error)});
  return &items_.back();
}

Diagnostic Report::at(const Location& location, std::string message, Severity severity) const {
  Diagnostic diagnostic;
  diagnostic.severity = severity;
  diagnostic.message = std::move(message);
  if (location.line == 0) return diagnostic;
  if (location.file < module_.files.size()) diagnostic.file = module_.files[location.file];
  diagnostic.line = location.line;
  diagnostic.column = location.column;
  // A link refers to an earlier one; anything else ends the walk, so that no module can make it endless.
  uint32_t chain = location.chain;
  while (chain != 0 && chain <= module_.chains.size() &&
         diagnostic.notes.size() < static_cast<size_t>(limits::max_expansion_depth)) {
    const ChainLink& link = module_.chains[chain - 1];
    Location here = link.at;
    here.chain = 0;
    diagnostic.notes.push_back(at(here, "in " + link.what, Severity::Note));
    chain = link.at.chain < chain ? link.at.chain : 0;
  }
  return diagnostic;
}

void Report::declaration(const Location& location, std::string message, const Location& other, std::string note) {
  if (Item* item = add(location, std::move(message)); item != nullptr && other.line != 0)
    item->diagnostic.notes.push_back(at(other, std::move(note), Severity::Note));
}

Location Report::location_of(const Site& site) const {
  const auto& lines = module_.tapes[site.tape].lines;
  const auto found = std::lower_bound(lines.begin(), lines.end(), site.word,
                                      [](const LineEntry& entry, uint32_t word) { return entry.word < word; });
  return found != lines.end() && found->word == site.word ? found->location : Location{};
}

std::string Report::place_of(const Site& site) const {
  const Location location = location_of(site);
  if (location.line != 0) return module_.place(location);
  return fmt::format("tape {}, command {}", module_.tapes[site.tape].name, site.index);
}

Report::Item* Report::add_command(const Site& site, const std::string& message) {
  const Location location = location_of(site);
  if (location.line == 0) return add(location, fmt::format("{}: {}", place_of(site), message));
  Item* item = add(location, message);
  // A message about a command begins with its mnemonic, where the place points.
  if (const size_t colon = message.find(':'); item != nullptr && colon != message.npos)
    item->diagnostic.width = static_cast<uint32_t>(colon);
  return item;
}

void Report::command(const Site& site, const std::string& message) {
  add_command(site, message);
}

void Report::command(const Site& site, const std::string& message, const Site& other, std::string note) {
  Item* item = add_command(site, message);
  if (item == nullptr) return;
  const Location there = location_of(other);
  if (there.line == 0) note = fmt::format("{}: {}", place_of(other), note);
  item->diagnostic.notes.push_back(at(there, std::move(note), Severity::Note));
}

void Report::flush(Diagnostics& diagnostics) {
  std::stable_sort(items_.begin(), items_.end(), [](const Item& a, const Item& b) {
    return std::tie(a.location.file, a.location.line, a.location.column) <
           std::tie(b.location.file, b.location.line, b.location.column);
  });
  const size_t kept = items_.size();
  for (Item& item : items_) diagnostics.add(std::move(item.diagnostic));
  // Those beyond the limit are counted only.
  for (size_t i = kept; i < errors_; ++i) diagnostics.add({});
  items_.clear();
}

namespace {

/// Whether this program may play a module of that version.
bool check_version(const Module& module, Report& report) {
  if (module.major == kMajor && module.minor <= kMinor) return true;
  report.module(fmt::format("the module is of version {}.{}, newer than {}.{}, the newest that can be played",
                            module.major, module.minor, kMajor, kMinor));
  return false;
}

/// The whole check. Facts are meaningful only when nothing was reported.
std::vector<TapeFacts> check(const Module& module, Report& report) {
  if (!check_version(module, report) || !check_declarations(module, report)) return {};
  std::vector<TapeScan> scans;
  scans.reserve(module.tapes.size());
  int64_t commands = 0;
  for (TapeId tape = 0; tape < module.tapes.size(); ++tape) {
    scans.push_back(scan_tape(module, tape, report));
    commands += scans.back().commands;
  }
  if (commands > limits::max_module_commands)
    report.module(fmt::format("the module has {} commands; the limit max_module_commands is {}", commands,
                              limits::max_module_commands));
  return check_flow(module, scans, report);
}

}  // namespace
}  // namespace verifier

std::optional<VerifiedModule> verify(Module module, Diagnostics& diagnostics) {
  verifier::Report report(module);
  std::vector<TapeFacts> facts = verifier::check(module, report);
  const bool bad = report.has_errors();
  report.flush(diagnostics);
  if (bad) return std::nullopt;
  return VerifiedModule(std::move(module), std::move(facts));
}

TapeId VerifiedModule::default_entry() const {
  const TapeId main = module_->find_tape("main");
  if (main != kNone) return main;
  TapeId only = kNone;
  for (TapeId tape = 0; tape < facts_.size(); ++tape) {
    if (facts_[tape].is_called) continue;
    if (only != kNone) return kNone;
    only = tape;
  }
  return only;
}

}  // namespace tape
