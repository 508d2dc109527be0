// The kernel tables of both instruction-set levels, for tests that compare them.
#include "kernel_call.h"

#include "cpu_reference/cpu_backend.h"
#include "cpu_reference/cpu_info.h"

extern "C" const tape::cpu::Chooser* tape_cpu_choosers_base();
extern "C" const tape::cpu::Chooser* tape_cpu_choosers_v3() __attribute__((weak));  // absent where v3 is not built

namespace tape::cpu::testing {

const Chooser* choosers(Level level) {
  static const std::string device = describe_cpu();  // the backend refers to every table of the build: link it
  if (level == Level::Base) return tape_cpu_choosers_base();
  return v3_usable() && tape_cpu_choosers_v3 != nullptr ? tape_cpu_choosers_v3() : nullptr;
}

std::vector<Level> levels() {
  std::vector<Level> all{Level::Base};
  if (choosers(Level::V3) != nullptr) all.push_back(Level::V3);
  return all;
}

}  // namespace tape::cpu::testing
