// Parity of a backend with the CPU in canonical order and with the float64 oracle, over the cases of op_cases.h.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "difftest/op_cases.h"
#include "vm/backend.h"

namespace tape {

struct ParityOptions {
  /// Opens one backend to be tested; called once per thread.
  std::function<std::unique_ptr<Backend>()> subject;
  CaseSet set = CaseSet::All;
  uint64_t seed = 1;
  unsigned threads = 1;
  std::vector<std::string> only;  // mnemonics; empty: every row
  bool against_oracle = true;
  /// The subject plays matrix products, convolutions, attention and cells in an order of its own (the CPU with BLAS).
  bool own_products = false;
};

struct ParityReport {
  uint64_t rows = 0, typed_rows = 0, cases = 0, faults = 0, tensors = 0, elements = 0;
  uint64_t equal = 0;            // elements equal to the bit to those of the CPU in canonical order
  uint64_t close = 0;            // elements within a bound where bits may differ
  uint64_t oracle_elements = 0;  // elements held to the bound against the oracle
  double worst_share = 0;        // of a bound that was used, and where
  std::string worst_case;
  uint64_t failed = 0;
  std::vector<std::string> failures;  // the first of each row and dtype, with what was wrong
  std::set<std::string> missing;      // rows the subject has no kernel for
};

[[nodiscard]] ParityReport check_parity(const ParityOptions& options);

namespace difftest {

struct CaseResult;

/// How a result may differ from that of the CPU in canonical order. Function: f64 results of two math libraries.
enum class Demand : uint8_t { Bits, Function, Bound };
[[nodiscard]] Demand demand_of(const OpCase& one, size_t tensor, bool own_products);

/// The same for single cases, with backends of its own.
class CaseChecker {
 public:
  /// Of the options: subject, against_oracle and own_products.
  explicit CaseChecker(const ParityOptions& options);
  ~CaseChecker();
  CaseChecker(const CaseChecker&) = delete;
  CaseChecker& operator=(const CaseChecker&) = delete;

  /// What is wrong with the case; empty for nothing. Throws Error(Unavailable) for a row without a kernel.
  [[nodiscard]] std::string check(const OpCase& one);
  /// What the CPU in canonical order made of the case that was checked last.
  [[nodiscard]] const CaseResult& expected() const;
  [[nodiscard]] const ParityReport& report() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace difftest

}  // namespace tape
