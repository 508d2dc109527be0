// Gradient checks of texts.
#pragma once

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "assembler/assembler.h"
#include "difftest/grad_check.h"
#include "vm/error.h"

namespace tape::test {

inline VerifiedModule module_of(const std::string& text, const std::string& file = "<text>",
                                const AssembleOptions& options = {}) {
  Diagnostics diagnostics;
  std::optional<Assembly> assembly = assemble(text, file, options, diagnostics);
  std::optional<VerifiedModule> module = assembly ? verify(std::move(assembly->module), diagnostics) : std::nullopt;
  if (!module) throw std::runtime_error(diagnostics.text() + "\n" + text);
  return *std::move(module);
}

/// What was wrong, for messages.
inline std::string text_of(const GradCheckReport& report) {
  std::string text = report.tape + ": " + std::string(name_of(report.verdict)) + "\n";
  const auto add = [&](const GradTensor& tensor) {
    text += tensor.name + " " + std::string(name_of(tensor.verdict)) + ", " + std::to_string(tensor.checked) +
            " checked, " + std::to_string(tensor.kinks.size()) + " kinks, " + std::to_string(tensor.unresolved) +
            " unresolved\n";
    for (const auto* pairs : {&tensor.mismatches, &tensor.direction_mismatches})
      for (const GradPair& pair : *pairs)
        text += "  " + std::to_string(pair.index) + ": " + std::to_string(pair.gradient) + " " +
                std::to_string(pair.difference) + " noise " + std::to_string(pair.noise) + "\n";
  };
  for (const GradTensor& tensor : report.tensors) add(tensor);
  add(report.all);
  return text;
}

inline GradCheckReport check(const std::string& text, GradCheckOptions options = {}) {
  if (options.losses.empty()) options.losses = {"loss"};
  return check_gradient(module_of(text), options);
}

/// The text of the tape::Error that a check throws, after its code; empty when it throws none.
inline std::string refusal(const std::string& text, const GradCheckOptions& options) {
  try {
    static_cast<void>(check_gradient(module_of(text), options));
  } catch (const Error& error) {
    return std::to_string(static_cast<int>(error.code())) + " " + error.what();
  }
  return {};
}

}  // namespace tape::test
