// The backend of tests/faulty: TAPE_TEST_BACKENDS names its library while an object lives.
#pragma once

#include <cstdlib>

namespace tape::test {

class FaultyBackends {
 public:
  FaultyBackends() { ::setenv("TAPE_TEST_BACKENDS", TAPE_FAULTY, 1); }
  FaultyBackends(const FaultyBackends&) = delete;
  FaultyBackends& operator=(const FaultyBackends&) = delete;
  ~FaultyBackends() { ::unsetenv("TAPE_TEST_BACKENDS"); }
};

}  // namespace tape::test
