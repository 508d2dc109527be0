// Plays cases on one backend. Every tensor, every stream column and the arena lie in one buffer between guard zones
// that are looked at after the run; destinations that the command must write whole, and the arena, hold a poison byte.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "difftest/op_cases.h"
#include "vm/backend.h"

namespace tape::difftest {

struct CaseResult {
  std::vector<HostArray> tensors;                                       // by tensor id, in storage dtype
  std::string fault;                                                    // mnemonic and message; empty for none
  std::vector<std::pair<std::string, std::vector<std::byte>>> traffic;  // STORE and TRACE, in order
  std::string overwritten;  // the guard zones that were; empty when all are whole
};

class CasePlayer {
 public:
  /// `poison` should differ between backends that are compared, so that an element nobody writes differs.
  CasePlayer(std::unique_ptr<Backend> backend, unsigned char poison);
  ~CasePlayer();
  CasePlayer(const CasePlayer&) = delete;
  CasePlayer& operator=(const CasePlayer&) = delete;

  /// Throws what the backend throws, Error(Unavailable) for a row without a kernel.
  [[nodiscard]] CaseResult play(const OpCase& one) { return play(one, one.values); }
  /// The same with other values.
  [[nodiscard]] CaseResult play(const OpCase& one, const std::vector<HostArray>& values);

  /// Whether the command writes all of a tensor without reading it.
  [[nodiscard]] static std::vector<bool> written_whole(const OpCase& one);
  /// Whether the entry writes a tensor at all.
  [[nodiscard]] static std::vector<bool> written(const OpCase& one);

  [[nodiscard]] Backend& backend() { return *backend_; }
  [[nodiscard]] unsigned char poison() const { return poison_; }

 private:
  struct Layout;
  void reserve(uint64_t bytes);

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Buffer> buffer_;
  std::vector<std::byte> image_, guard_;
  unsigned char poison_;
};

}  // namespace tape::difftest
