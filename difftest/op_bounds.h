// How far a result may be from that of the float64 oracle (docs/trust.md, "Bounds of single commands").
#pragma once

#include <span>
#include <string>
#include <vector>

#include "difftest/case_player.h"

namespace tape::difftest {

struct TensorBound {
  std::vector<double> oracle;   // the oracle's values
  std::vector<double> allowed;  // |x - oracle| at most; infinite where the oracle itself says nothing
};

/// Whether the row is a sum of products with coefficients that are not negative, or a product.
[[nodiscard]] bool is_linear(const OpInfo& op);

/// Magnitudes of terms that cancel inside the command, by element; empty for a row that has none (op_hidden.cpp).
[[nodiscard]] std::vector<double> hidden_terms(const OpCase& one, const Command& command, const CaseResult& base,
                                               size_t tensor);
/// Whether partial products, or values beside those written, may leave the range of f32.
[[nodiscard]] bool may_overflow_inside(const OpCase& one, const CaseResult& base);

class OracleBounds {
 public:
  /// Plays the case on the oracle, once for the values and as often as the class of the row wants for the bound.
  /// `samples`: playings with moved inputs, of rows that have no closed bound.
  OracleBounds(const OpCase& one, CasePlayer& oracle, int samples);

  [[nodiscard]] const CaseResult& values() const { return base_; }
  /// Of a float tensor that the command writes.
  [[nodiscard]] TensorBound of(size_t tensor) const;
  /// Whether more samples would tighten nothing: the bound is closed.
  [[nodiscard]] bool closed() const { return closed_; }
  /// Whether an infinity or NaN of the backend may come from values inside the command that f32 does not hold.
  [[nodiscard]] bool may_overflow() const { return may_overflow_; }

 private:
  void from_absolutes(CasePlayer& oracle);
  void from_samples(CasePlayer& oracle, int samples);

  const OpCase& case_;
  CaseResult base_;
  bool closed_ = true, may_overflow_ = false;
  double terms_ = 1;
  std::vector<std::vector<double>> magnitude_;  // by tensor: sum |a b|, or the deviation that moved inputs give
};

}  // namespace tape::difftest
