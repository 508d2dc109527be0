// See diff_report.h.
#include "difftest/diff_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "vm/compare.h"

namespace tape {
namespace {

std::string number(double value) {
  return value == 0 ? "0" : fmt::format("{:.2g}", value);
}

std::string bytes_text(uint64_t bytes) {
  if (bytes < 10240) return fmt::format("{} bytes", bytes);
  if (bytes < uint64_t{10} << 20) return fmt::format("{} KiB", bytes >> 10);
  return fmt::format("{} MiB", bytes >> 20);
}

std::string heading(const DiffCommand& row) {
  std::string text = fmt::format("command {}", row.index);
  if (row.pass != 0) text += fmt::format(", pass {}", row.pass + 1);
  text += fmt::format(": {} {}", row.mnemonic, row.operands);
  if (!row.place.empty()) text += "\n  at " + row.place;
  return text + "\n";
}

/// What a result was held to.
std::string demand_text(const DiffTensor& tensor) {
  std::string text = tensor.bits ? "equal bits" : "";
  if (tensor.bounded) text += fmt::format("{}the bound around the oracle", text.empty() ? "" : " and ");
  if (tensor.exact) text += ", exact where sums of integers are";
  return text.empty() ? "nothing: values at the edge of the range" : text;
}

std::string error_text(const DiffError& error) {
  return fmt::format("abs {}, rel {}, {} ulp", number(error.abs), number(error.rel), number(error.ulp));
}

std::string histogram(const DiffTensor& tensor) {
  std::string text;
  for (size_t bin = 0; bin < kUlpBins; ++bin) {
    if (tensor.ulps[bin] == 0) continue;
    const std::string label = bin == 0              ? "0"
                              : bin + 1 == kUlpBins ? "more"
                              : bin == 1            ? "to 1"
                                                    : fmt::format("to {}", uint64_t{1} << (bin - 1));
    text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", label, tensor.ulps[bin]);
  }
  return text.empty() ? "none" : text;
}

std::string details(const DiffTensor& tensor, const DiffReport& report) {
  std::string text =
      fmt::format("  {} {}{}: {} elements of A wrong, {} of B; {} differ in their bits\n", tensor.name,
                  name_of(tensor.dtype), tensor.shape.text(), tensor.a_wrong, tensor.b_wrong, tensor.differing);
  text += fmt::format("    held to {}\n", demand_text(tensor));
  text +=
      fmt::format("    A on equal inputs: {}\n    B on equal inputs: {}\n", error_text(tensor.a), error_text(tensor.b));
  text += fmt::format("    A along its own values: {}\n", error_text(tensor.accumulated));
  text += fmt::format("    ulps between A and B: {}\n", histogram(tensor));
  for (const DiffElement& element : tensor.worst) {
    const double a = std::abs(element.a - element.oracle), b = std::abs(element.b - element.oracle);
    text +=
        fmt::format("    {}: A {:.9g}, B {:.9g}, {} {:.9g}; off by {} and {}", index_text(tensor.shape, element.index),
                    element.a, element.b, report.oracle, element.oracle, number(a), number(b));
    if (std::isfinite(element.allowed)) text += fmt::format(", allowed {}", number(element.allowed));
    text += "\n";
  }
  return text;
}

std::string table(const DiffReport& report) {
  std::string text = fmt::format("{:>7}  {:<24} {:<16} {:>9} {:>9} {:>9} {:>9}  {}\n", "command", "opcode", "verdict",
                                 "local abs", "local ulp", "of bound", "accum rel", "held to");
  for (const DiffCommand& row : report.commands) {
    if (row.results.empty())
      text += fmt::format("{:>7}  {:<24} {:<16}\n", row.index, row.mnemonic, name_of(row.verdict));
    for (const DiffTensor& tensor : row.results)
      text += fmt::format("{:>7}  {:<24} {:<16} {:>9} {:>9} {:>9} {:>9}  {}: {}\n", row.index, row.mnemonic,
                          name_of(row.verdict), number(tensor.a.abs), number(tensor.a.ulp), number(tensor.share),
                          number(tensor.accumulated.rel), tensor.name, demand_text(tensor));
  }
  return text;
}

nlohmann::json json_number(double value) {
  return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json();
}

nlohmann::json error_json(const DiffError& error) {
  return {{"abs", json_number(error.abs)}, {"rel", json_number(error.rel)}, {"ulp", json_number(error.ulp)}};
}

nlohmann::json tensor_json(const DiffTensor& tensor) {
  nlohmann::json worst = nlohmann::json::array();
  for (const DiffElement& element : tensor.worst)
    worst.push_back({{"index", element.index},
                     {"a", json_number(element.a)},
                     {"b", json_number(element.b)},
                     {"oracle", json_number(element.oracle)},
                     {"allowed", json_number(element.allowed)}});
  return {{"operand", tensor.operand},
          {"name", tensor.name},
          {"dtype", name_of(tensor.dtype)},
          {"shape", tensor.shape.dims()},
          {"bits", tensor.bits},
          {"bounded", tensor.bounded},
          {"exact", tensor.exact},
          {"differing", tensor.differing},
          {"a_wrong", tensor.a_wrong},
          {"b_wrong", tensor.b_wrong},
          {"local", error_json(tensor.a)},
          {"local_b", error_json(tensor.b)},
          {"accumulated", error_json(tensor.accumulated)},
          {"share", json_number(tensor.share)},
          {"ulps", tensor.ulps},
          {"worst", worst}};
}

nlohmann::json row_json(const DiffCommand& row) {
  nlohmann::json results = nlohmann::json::array();
  for (const DiffTensor& tensor : row.results) results.push_back(tensor_json(tensor));
  return {{"index", row.index}, {"pass", row.pass},         {"opcode", row.mnemonic},
          {"place", row.place}, {"operands", row.operands}, {"verdict", name_of(row.verdict)},
          {"kind", row.kind},   {"why", row.why},           {"results", results}};
}

}  // namespace

std::string diff_text(const DiffReport& report, bool explain) {
  std::string text = fmt::format("tape {}: A {}, B {}, oracle {}\n", report.tape, report.a, report.b, report.oracle);
  if (explain) text += table(report);
  if (report.first_bad) {
    const DiffCommand& bad = *report.first_bad;
    text += fmt::format("{}: {}", name_of(bad.verdict), heading(bad));
    if (!bad.why.empty()) text += "  " + bad.why + "\n";
    for (const DiffTensor& tensor : bad.results) text += details(tensor, report);
  }
  text += fmt::format("{} commands, {} elements compared, {} commands wrong", report.played, report.elements,
                      report.failed);
  if (report.ill_conditioned != 0) text += fmt::format(", {} ill-conditioned", report.ill_conditioned);
  text += fmt::format("; at most {} at a time\n", bytes_text(report.peak_bytes));
  if (!report.fault.empty()) text += fmt::format("stopped at a fault: {}\n", report.fault);
  if (report.cut_off) text += "cut off: --max-commands\n";
  return text;
}

nlohmann::json diff_json(const DiffReport& report) {
  nlohmann::json commands = nlohmann::json::array();
  for (const DiffCommand& row : report.commands) commands.push_back(row_json(row));
  nlohmann::json signature;  // what tape reduce keeps
  if (report.signature)
    signature = {{"kind", report.signature->kind},
                 {"opcode", op_info(report.signature->opcode).mnemonic},
                 {"verdict", name_of(report.signature->verdict)}};
  return {{"schema", "tape.diff/1"},
          {"tape", report.tape},
          {"a", report.a},
          {"b", report.b},
          {"oracle", report.oracle},
          {"verdict", name_of(report.verdict)},
          {"signature", signature},
          {"first_bad", report.first_bad ? row_json(*report.first_bad) : nlohmann::json()},
          {"commands", commands},
          {"played", report.played},
          {"failed", report.failed},
          {"ill_conditioned", report.ill_conditioned},
          {"elements", report.elements},
          {"peak_bytes", report.peak_bytes},
          {"fault", report.fault},
          {"cut_off", report.cut_off}};
}

}  // namespace tape
