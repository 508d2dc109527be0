// A campaign: many tapes in child processes, so that one that crashes or hangs is a finding and not the end. Findings
// of one signature are one finding; each is kept as a text that plays on its own.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "difftest/fuzz.h"
#include "difftest/fuzz_format.h"

namespace tape {

struct CampaignOptions {
  FuzzOptions fuzz;
  bool format = false;  // damaged files instead of tapes
  uint64_t first = 0, count = 1000;
  unsigned jobs = 1;
  std::chrono::seconds timeout{60};  // of one tape
  uint64_t most_findings = 200;      // a campaign that finds more ends
  /// Sees how many tapes are done, a few times a second.
  std::function<void(uint64_t)> progress;
};

/// Findings of one signature.
struct CampaignFinding {
  FuzzFinding first;  // of the smallest number
  uint64_t times = 0;
};

struct CampaignReport {
  FuzzTally tally;
  FormatTally format;
  std::vector<CampaignFinding> findings;  // by number
  uint64_t failed = 0;                    // tapes
  double seconds = 0;
};

/// Must be called before the process has threads.
[[nodiscard]] CampaignReport run_campaign(const CampaignOptions& options);

/// Runs something in a process of its own and waits for it, but not longer. The process must have no threads.
void run_apart(std::chrono::seconds timeout, const std::function<void()>& what);

}  // namespace tape
