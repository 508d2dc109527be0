// Random choices of the generator. Private to difftest/.
#pragma once

#include <cstdint>
#include <span>

namespace tape::difftest {

/// Numbers by counter (the finaliser of splitmix64), so that every platform chooses alike.
class Choices {
 public:
  Choices(uint64_t seed, uint64_t number) : key_(mix(seed * 0x9E3779B97F4A7C15u + number)) {}
  [[nodiscard]] uint64_t word() { return mix(key_ + ++count_); }
  /// 0 ... n - 1; n is not 0.
  [[nodiscard]] size_t below(size_t n) { return static_cast<size_t>(word() % n); }
  [[nodiscard]] int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(word() % static_cast<uint64_t>(high - low + 1));
  }
  [[nodiscard]] bool percent(unsigned share) { return word() % 100 < share; }
  template <class List>
  [[nodiscard]] const auto& one_of(const List& list) {
    return list[below(std::size(list))];
  }

 private:
  [[nodiscard]] static uint64_t mix(uint64_t x) {
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
  }
  uint64_t key_, count_ = 0;
};

}  // namespace tape::difftest
