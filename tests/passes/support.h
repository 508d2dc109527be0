// Texts played on the float64 oracle, and gradients of them against central finite differences.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "assembler/assembler.h"
#include "embed/backends.h"
#include "vm/machine.h"

namespace tape::test {

using Values = std::vector<double>;

/// Assembles and verifies; throws with the diagnostics.
inline VerifiedModule assembled(std::string_view text) {
  Diagnostics diagnostics;
  auto assembly = assemble(text, "<text>", {}, diagnostics);
  auto module = assembly ? verify(std::move(assembly->module), diagnostics) : std::nullopt;
  if (!module) throw std::runtime_error(diagnostics.text() + "\n" + std::string(text));
  return *module;
}

/// The messages of a text that does not assemble; empty when it does.
inline std::string mistakes(std::string_view text) {
  Diagnostics diagnostics;
  const auto assembly = assemble(text, "<text>", {}, diagnostics);
  return assembly ? std::string() : diagnostics.text();
}

class Player {
 public:
  explicit Player(std::string_view text, const std::string& backend = "cpu64",
                  const std::vector<std::string>& pinned = {})
      : machine(open_backend(backend)) {
    machine.add(assembled(text), pinned);
  }

  void set(const std::string& name, const Values& values) {
    const TensorInfo info = machine.find(name).value();
    const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
    HostArray array{DType::F64, info.shape, {bytes.begin(), bytes.end()}};
    if (info.dtype != DType::F64) {
      HostArray narrow{info.dtype, info.shape, std::vector<std::byte>(values.size() * size_of(info.dtype))};
      convert(array.bytes, DType::F64, narrow.bytes, info.dtype);
      array = std::move(narrow);
    }
    machine.load(name, array);
  }
  [[nodiscard]] Values get(const std::string& name) {
    const HostArray array = machine.retrieve(name);
    Values values(static_cast<size_t>(array.shape.elements()));
    for (size_t i = 0; i < values.size(); ++i) values[i] = element_as_f64(array.bytes, array.dtype, i);
    return values;
  }
  void run(std::string_view tape) { machine.run(tape); }

  Machine machine;
};

inline Values random_values(std::mt19937& random, size_t count, double low, double high) {
  Values values(count);
  for (double& value : values) value = std::uniform_real_distribution<double>(low, high)(random);
  return values;
}

inline void expect_near(const Values& got, const Values& wanted, double rtol, double atol, const std::string& what) {
  ASSERT_EQ(got.size(), wanted.size()) << what;
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_LE(std::abs(got[i] - wanted[i]), atol + rtol * std::abs(wanted[i]))
        << what << " element " << i << ": got " << got[i] << ", wanted " << wanted[i];
}

inline double dot(const Values& a, const Values& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// d <upstream, result> / d name by central differences; `tape` computes `result`.
inline Values differences(Player& player, const std::string& tape, const std::string& name, const std::string& result,
                          const Values& upstream) {
  // h = 1e-5: truncation h^2 and rounding 1e-16 / h are both near 1e-10.
  constexpr double kStep = 1e-5;
  const Values at = player.get(name);
  Values slope(at.size());
  for (size_t i = 0; i < at.size(); ++i) {
    Values moved = at;
    moved[i] = at[i] + kStep;
    player.set(name, moved);
    player.run(tape);
    const double above = dot(player.get(result), upstream);
    moved[i] = at[i] - kStep;
    player.set(name, moved);
    player.run(tape);
    slope[i] = (above - dot(player.get(result), upstream)) / (2 * kStep);
  }
  player.set(name, at);
  return slope;
}

// Tolerances of a gradient against central differences of functions of order 1 with third derivatives of order 10.
inline constexpr double kSlopeRtol = 1e-6, kSlopeAtol = 1e-7;

}  // namespace tape::test
