// Integers of files that have no dtype here.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tape::io {

/// Little-endian elements of a NumPy code (u2 -> i32, u4 u8 -> i64); those of any other code as they are. Throws
/// Error(Format) naming `what` for a value above i64.
[[nodiscard]] std::vector<std::byte> widen_integers(std::vector<std::byte> bytes, std::string_view code,
                                                    const std::string& what);

}  // namespace tape::io
