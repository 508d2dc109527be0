// Whether a card is there, or what stands in for one.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "embed/backends.h"

namespace tape::test {

/// Why there is none; empty where there is.
inline std::string no_card() {
  for (const DeviceReport& device : list_devices())
    if (device.backend == "cuda" && !device.usable) return device.reason;
  return {};
}
/// Where every thread of a kernel is a fiber, some sizes take too long.
inline bool is_emulated() {
  for (const DeviceReport& device : list_devices())
    if (device.backend == "cuda" && device.description.starts_with("emulated")) return true;
  return false;
}
#define SKIP_WITHOUT_CARD() \
  if (const std::string reason = ::tape::test::no_card(); !reason.empty()) GTEST_SKIP() << reason

}  // namespace tape::test
