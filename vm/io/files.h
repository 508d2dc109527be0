// Array files: .npy and .npz, both ways. Written whole or not at all (temporary, then rename).
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "vm/host_array.h"

namespace tape::io {

/// NumPy .npy 1.0 to 3.0, C or Fortran order (made C), either byte order. Throws Error(Format) naming file, wanted, got.
/// bf16 has no .npy dtype: refused on writing, never read.
[[nodiscard]] HostArray read_npy(const std::string& path);
void write_npy(const std::string& path, const HostArray& array);

using NamedArrays = std::vector<std::pair<std::string, HostArray>>;
[[nodiscard]] NamedArrays read_npz(const std::string& path);
[[nodiscard]] HostArray read_npz(const std::string& path, const std::string& key);
void write_npz(const std::string& path, const NamedArrays& arrays);

/// "file.npy", "file.npz:key": reads what an input spec or an initialiser names.
[[nodiscard]] HostArray read_array(const std::string& spec);

/// Writes bytes to a temporary beside `path`, then renames. Throws Error(Format) on failure and leaves `path` as it was.
void write_file(const std::string& path, std::span<const std::byte> bytes);

}  // namespace tape::io
