// Processor facts from the system; read when a backend is made, never in a run.
#include "cpu_reference/cpu_info.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <thread>

#include "cpu_reference/cpu_backend.h"

namespace tape {
namespace cpu {

unsigned processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return static_cast<unsigned>(CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

bool v3_usable() {
#ifdef TAPE_HAVE_V3
  return __builtin_cpu_supports("x86-64-v3") != 0;
#else
  return false;
#endif
}

uint64_t memory_bytes() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page = sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? static_cast<uint64_t>(pages) * static_cast<uint64_t>(page) : uint64_t{1} << 40;
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (colon != std::string::npos && line.starts_with("model name")) return line.substr(colon + 2);
  }
#if defined(__x86_64__)
  return "x86-64";
#else
  return "unknown processor";
#endif
}

}  // namespace cpu

std::string describe_cpu() {
  const unsigned threads = cpu::processors();
  return fmt::format("{}, {}, {} thread{}", cpu::processor_name(), cpu::v3_usable() ? "x86-64-v3" : "baseline", threads,
                     threads == 1 ? "" : "s");
}

}  // namespace tape
