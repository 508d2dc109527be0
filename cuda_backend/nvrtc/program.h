// Programs compiled at run time: device code as text becomes kernels of this card. The compiler is libnvrtc, opened on
// first need; where it is missing or TAPE_NVRTC=off nothing is compiled and commands go another way.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace tape::cuda {

/// Why nothing can be compiled for this card; empty when it can.
[[nodiscard]] std::string why_no_compiler();

/// Owns the kernels of a text. Belongs to the device that is current when it is made.
class Program {
 public:
  /// Throws Error(Internal) with the compiler's words where the text is wrong.
  explicit Program(const std::string& text);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  /// What Launch::kernel takes.
  [[nodiscard]] const void* kernel(const std::string& name) const;

 private:
  void* library_ = nullptr;
};

}  // namespace tape::cuda
