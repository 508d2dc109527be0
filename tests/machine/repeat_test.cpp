// Prepared::repeat, start, fetch and finish on the CPU.
#include "repeat_cases.h"

namespace tape::test {
namespace {

INSTANTIATE_TEST_SUITE_P(Cpu, Repeat, testing::Values("cpu", "cpu64"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace tape::test
