// What processor this is and how much of it the process may use.
#pragma once

#include <cstdint>
#include <string>

namespace tape::cpu {

/// Processors this process may run on, at least 1.
[[nodiscard]] unsigned processors();
/// Whether the x86-64-v3 kernels are in this build and the processor runs them.
[[nodiscard]] bool v3_usable();
/// Bytes of main memory.
[[nodiscard]] uint64_t memory_bytes();
/// "AMD EPYC", or the architecture when the system does not tell.
[[nodiscard]] std::string processor_name();

}  // namespace tape::cpu
