// See expect.h. Private names are pinned before the tape is planned, so that their values outlive the run.
#include "embed/expect.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "vm/compare.h"

namespace tape {
namespace {

using Lines = std::vector<const Expectation*>;

std::string where(const Module& module, const Expectation& line) {
  Location at = line.location;
  at.column = 0;
  const std::string file = at.file < module.files.size() ? module.files[at.file] : module.name;
  return fmt::format("{}:{}", file, at.line);
}

/// "tape:name" when the name is a local seen from the tape; the plain name when it is persistent.
std::string retrieval_name(const Module& module, TapeId tape, const std::string& name) {
  const TensorId common = module.find_tensor(name);
  const bool persistent = common != kNone && is_persistent(module.tensors[common]);
  return persistent ? name : module.tapes[tape].name + ":" + name;
}

void check_value(Machine& machine, const Module& module, TapeId tape, const Expectation& line, ExpectReport& report) {
  const HostArray got = machine.retrieve(retrieval_name(module, tape, line.name));
  Tolerance tolerance = default_tolerance(got.dtype);
  if (line.atol || line.rtol) tolerance = {line.atol.value_or(0), line.rtol.value_or(0)};
  const Comparison result = line.kind == Expectation::Kind::Equal ? compare_exact(line.values, got)
                                                                  : compare_close(line.values, got, tolerance);
  ++report.compared;
  if (!result.equal())
    report.failures.push_back(fmt::format("{}: {}: {}", where(module, line), line.name, result.text));
}

void check_fault(const Fault& fault, const Module& module, const Lines& lines, ExpectReport& report) {
  bool expected = false;
  for (const Expectation* line : lines) {
    if (line->kind != Expectation::Kind::Fault) continue;
    expected = true;
    ++report.compared;
    const std::string what = fault.what();
    if (fault.mnemonic != line->opcode || what.find(line->text) == std::string::npos)
      report.failures.push_back(fmt::format("{}: expected fault {} \"{}\", got {}: {}", where(module, *line),
                                            line->opcode, line->text, fault.mnemonic, what));
  }
  if (!expected) report.failures.push_back(fmt::format("{}: {}", module.name, fault.what()));
}

void play(const Assembly& assembly, const VerifiedModule& verified, TapeId tape, const Lines& lines,
          const ExpectOptions& options, ExpectReport& report) {
  const Module& module = assembly.module;
  std::vector<std::string> pinned;
  for (const Expectation* line : lines) {
    if (line->kind != Expectation::Kind::Equal && line->kind != Expectation::Kind::Close) continue;
    const std::string name = retrieval_name(module, tape, line->name);
    if (name.find(':') != std::string::npos && std::find(pinned.begin(), pinned.end(), name) == pinned.end())
      pinned.push_back(name);
  }
  Machine machine(open_backend(options.backend, options.backend_options), options.machine);
  const ModuleId id = machine.add(verified, pinned);
  bool faulted = false;
  try {
    machine.run(id, module.tapes[tape].name);
  } catch (const Fault& fault) {
    faulted = true;
    check_fault(fault, module, lines, report);
  }
  for (const Expectation* line : lines) switch (line->kind) {
      case Expectation::Kind::Equal:
      case Expectation::Kind::Close:
        check_value(machine, module, tape, *line, report);
        break;
      case Expectation::Kind::Fault:
        if (!faulted)
          report.failures.push_back(
              fmt::format("{}: expected a fault of {}, none came", where(module, *line), line->opcode));
        break;
      case Expectation::Kind::Error:
        report.failures.push_back(fmt::format("{}: expected an error, the text assembles", where(module, *line)));
        break;
    }
}

std::vector<Diagnostic> errors_of(std::string_view text, const std::string& file) {
  Diagnostics diagnostics;
  std::optional<Assembly> assembly = assemble(text, file, {}, diagnostics);
  if (assembly) (void)verify(std::move(assembly->module), diagnostics);
  std::vector<Diagnostic> errors;
  for (const Diagnostic& each : diagnostics.all())
    if (each.severity == Severity::Error) errors.push_back(each);
  return errors;
}

}  // namespace

ExpectReport check_expectations(const Assembly& assembly, const ExpectOptions& options) {
  ExpectReport report;
  Diagnostics diagnostics;
  const std::optional<VerifiedModule> verified = verify(assembly.module, diagnostics);
  if (!verified) {
    report.failures.push_back(diagnostics.text());
    return report;
  }
  std::map<TapeId, Lines> by_tape;
  for (const Expectation& line : assembly.expectations) {
    const TapeId tape = line.tape.empty() ? verified->default_entry() : assembly.module.find_tape(line.tape);
    if (tape == kNone)
      report.failures.push_back(
          fmt::format("{}: no tape to play: name it as `.expect tape:name`", where(assembly.module, line)));
    else
      by_tape[tape].push_back(&line);
  }
  for (const auto& [tape, lines] : by_tape) try {
      play(assembly, *verified, tape, lines, options, report);
    } catch (const Error& error) {
      report.failures.push_back(fmt::format("{}: {}", where(assembly.module, *lines.front()), error.what()));
    }
  return report;
}

ExpectReport check_expected_errors(std::string_view text, const std::string& file) {
  ExpectReport report;
  std::vector<Expectation> wanted = expected_errors(text);
  for (const Diagnostic& error : errors_of(text, file)) {
    const auto met = std::find_if(wanted.begin(), wanted.end(), [&](const Expectation& line) {
      return line.line == error.line && line.column == error.column && line.text == error.message;
    });
    ++report.compared;
    if (met == wanted.end())
      report.failures.push_back(
          fmt::format("{}: not expected: {}:{} \"{}\"", file, error.line, error.column, error.message));
    else
      wanted.erase(met);
  }
  for (const Expectation& line : wanted)
    report.failures.push_back(fmt::format("{}: did not come: {}:{} \"{}\"", file, line.line, line.column, line.text));
  return report;
}

bool expects_errors(std::string_view text) {
  return !expected_errors(text).empty();
}

}  // namespace tape
