// libnvrtc as it is needed here, without its header or the toolkit: text and the embedded headers to a cubin. Compiles
// without a card too.
#pragma once

#include <string>
#include <vector>

namespace tape::cuda {

class Compiler {
 public:
  /// The library, opened once; nullptr where it is missing (`why` says what was looked for).
  [[nodiscard]] static const Compiler* find(std::string* why = nullptr);

  /// As 1000 * major + minor.
  [[nodiscard]] int version() const { return version_; }
  /// Options for a card of this compute capability; "sm_90a" from 9.0 on. Empty where the library does not know it.
  [[nodiscard]] std::vector<std::string> options(int major, int minor) const;
  /// Throws Error(Internal) with the library's words where the text is wrong.
  [[nodiscard]] std::string compile(const std::string& text, const std::vector<std::string>& options) const;
  /// The same, kept in a file under $XDG_CACHE_HOME or ~/.cache. A damaged file, or a folder that cannot be written,
  /// costs a compilation.
  [[nodiscard]] std::string compile_cached(const std::string& text, const std::vector<std::string>& options) const;

 private:
  struct Functions;
  explicit Compiler(const Functions& functions);

  const Functions& functions_;
  int version_ = 0;
};

/// Device headers by the name under which they are included.
struct EmbeddedHeader {
  const char* name;
  const char* text;
};
extern const EmbeddedHeader kEmbeddedHeaders[];
extern const int kEmbeddedHeadersCount;

}  // namespace tape::cuda
