// Array files: .npy, .npz and (safetensors.h) .safetensors, both ways. Written whole or not at all (temporary, then
// rename); a hostile file gives an Error that names it, and its sizes are checked against the file before anything is
// allocated.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "vm/host_array.h"

namespace tape::io {

/// NumPy .npy 1.0 to 3.0, C or Fortran order (made C), either byte order. Throws Error(Format) naming file, wanted,
/// got. Integers without a dtype here become the next wider one (u2 -> i32, u4 u8 -> i64). bf16 has no .npy
/// dtype: refused on writing, never read.
[[nodiscard]] HostArray read_npy(const std::string& path);
void write_npy(const std::string& path, const HostArray& array);
/// The same from and to memory; `what` names the bytes in messages.
[[nodiscard]] HostArray parse_npy(std::span<const std::byte> bytes, const std::string& what);
[[nodiscard]] std::vector<std::byte> npy_bytes(const HostArray& array, const std::string& what);

using NamedArrays = std::vector<std::pair<std::string, HostArray>>;
[[nodiscard]] NamedArrays read_npz(const std::string& path);
[[nodiscard]] HostArray read_npz(const std::string& path, const std::string& key);
void write_npz(const std::string& path, const NamedArrays& arrays);

/// File and key of "file.npz:key" or "file.safetensors:key"; two empty strings for any other spec.
[[nodiscard]] std::pair<std::string, std::string> split_archive(const std::string& spec);
/// "file.npy", "file.npz:key", "file.safetensors:key": reads what an input spec or an initialiser names.
[[nodiscard]] HostArray read_array(const std::string& spec);
/// All arrays of a file by name: a .safetensors when its name ends so, else an .npz.
[[nodiscard]] NamedArrays read_arrays(const std::string& path);
void write_arrays(const std::string& path, const NamedArrays& arrays);
[[nodiscard]] bool is_archive(std::string_view path);

/// All bytes of a file; of standard input for "-". Throws Error(Format).
[[nodiscard]] std::vector<std::byte> read_file(const std::string& path);
/// `size` bytes of a file from an offset. Throws Error(Format) when it does not hold them, and then allocates nothing.
[[nodiscard]] std::vector<std::byte> read_range(const std::string& path, uint64_t offset, uint64_t size);
/// Writes bytes to a temporary beside `path`, then renames (a device or pipe is written as it is). Throws Error(Format)
/// on failure and leaves `path` as it was.
void write_file(const std::string& path, std::span<const std::byte> bytes);
void write_file(const std::string& path, std::string_view text);
/// Throws the Error(Format) that write_file would, when the path is a folder or its folder cannot be written to: asked
/// before a long run whose results go there.
void want_writable(const std::string& path);

}  // namespace tape::io
