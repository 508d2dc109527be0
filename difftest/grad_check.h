// Checking a derived gradient against difference quotients of its forward on the float64 oracle. The forward is played
// as it was written, the gradient is derived anew, and every float is widened to f64 first, so that a CAST to a half
// dtype is no staircase. State that the tape changes (generators, stream cursors) is put back before every playing.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "vm/host_array.h"
#include "vm/verify.h"

namespace tape {

/// What inputs and parameters hold. A draw is a function of (seed, tensor name). Integers and bools keep their initial
/// values, or are drawn from {0, 1} where there are none.
enum class GradInputs : uint8_t {
  Declared,  // their initial values; normal draws where there are none. Parameters that begin at a constant are moved
             // off it by a tenth of a normal draw: a zero matrix would pass nothing on
  Uniform,   // [0, 1)
  Normal,    // mean 0, deviation 1
};

struct GradCheckOptions {
  std::string tape;                 // the forward; empty: the only one that the module differentiates, else its entry
  std::vector<std::string> losses;  // one scalar, or any outputs: those are weighted by normal draws
  std::vector<std::string> wrt;     // empty: every parameter the forward reads
  GradInputs inputs = GradInputs::Declared;
  int64_t seed = 0;            // of inputs, weights, directions and the choice of elements
  uint64_t max_elements = 64;  // per tensor; above that many, as many are chosen by seed
  unsigned directions = 3;     // per tensor, and as many through all tensors at once
  double rtol = 1e-5;          // holds where the difference quotient tells a value from zero
  double atol = 1e-7;          // holds where the value is at most 1
  unsigned threads = 1;
  /// Values for tensors and for stream columns ("stream.column", with a leading axis of rows), by name.
  std::vector<std::pair<std::string, HostArray>> values;
  /// Sees every gradient before it is compared and may change it: the way to check other gradients than the derived
  /// ones, and that a wrong one is found.
  std::function<void(const std::string& name, std::span<double> gradient)> adjust;
};

enum class GradVerdict : uint8_t {
  Ok,
  Mismatch,
  Vacuous,     // the gradient and every quotient are zero: agreement shows nothing
  Unresolved,  // nothing could be compared: kinks everywhere, no finite quotient, or no element
};
[[nodiscard]] std::string_view name_of(GradVerdict verdict);

/// A gradient beside its difference quotient: of one element, or along a direction.
struct GradPair {
  uint64_t index = 0;  // row-major position; the number of the direction
  double gradient = 0, difference = 0;
  double noise = 0;  // estimated error of the quotient
  double abs = 0, rel = 0;
};
/// A place where the slopes on both sides differ, or where the value jumps.
struct GradKink {
  uint64_t index = 0;
  double left = 0, right = 0, gradient = 0;
};

struct GradTensor {
  std::string name;
  DType dtype = DType::F32;
  Shape shape;
  uint64_t checked = 0;     // elements compared
  uint64_t unresolved = 0;  // elements whose quotient is not finite or too noisy
  double worst_abs = 0, worst_rel = 0;
  std::vector<GradPair> mismatches;            // elements outside a bound
  std::vector<GradPair> directions;            // compared
  std::vector<GradPair> direction_mismatches;  // of them, outside a bound
  std::vector<GradKink> kinks;
  uint64_t direction_kinks = 0;
  GradVerdict verdict = GradVerdict::Ok;
};

struct GradCheckReport {
  std::string tape;
  double loss = 0;                  // or the weighted sum of several
  std::vector<GradTensor> tensors;  // in the order of wrt
  GradTensor all;                   // directions through all tensors at once; it has no elements
  /// Mismatch when a tensor or `all` is one, Ok when something was compared, Vacuous when all tensors are.
  GradVerdict verdict = GradVerdict::Ok;
};

/// Throws Error(Usage) for names that do not fit, Error(Invalid) with the gradient pass's report or when the forward
/// cannot be played, Error(NothingCompared) when the loss is not finite, and the Fault of the forward.
[[nodiscard]] GradCheckReport check_gradient(const VerifiedModule& module, const GradCheckOptions& options);

}  // namespace tape
