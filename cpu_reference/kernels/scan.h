// Running sums and products in the canonical order of scans: a run of 32 elements is combined one by one, runs are
// combined within a chunk of 1,024, chunks one after another, and an element is
//   chunks before . (runs of its chunk before . its own run so far)
// so that a card can give each thread a run and each block a chunk. What is not there is the identity, which changes no
// bit: -0 for sums, 1 for products. A running sum of terms that are not negative never falls, roundings included.
#pragma once

#include "cpu_reference/kernels/canonical.h"

namespace tape::cpu {

template <class Rule>
class RunningScan {
 public:
  using Acc = typename Rule::Acc;
  /// Takes the next element; the value up to and including it.
  Acc push(Acc element) {
    if (count_ % kRun == 0) {
      runs_ = Rule::combine(runs_, run_);
      run_ = Rule::identity();
    }
    if (count_ % kChunk == 0) {
      chunks_ = Rule::combine(chunks_, runs_);
      runs_ = Rule::identity();
    }
    ++count_;
    run_ = Rule::combine(run_, element);
    return Rule::combine(chunks_, Rule::combine(runs_, run_));
  }

 private:
  static constexpr int64_t kRun = 32, kChunk = 1024;
  Acc run_ = Rule::identity(), runs_ = Rule::identity(), chunks_ = Rule::identity();
  int64_t count_ = 0;
};

}  // namespace tape::cpu
