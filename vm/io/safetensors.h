// .safetensors files, both ways: a u64 with the length of a JSON header, the header, then the bytes of the tensors,
// little-endian, dense, row-major. Nothing of the header is believed before it is checked against the file.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "vm/io/files.h"

namespace tape::io {

/// All tensors, by name. Refused, each with a message that names file, tensor, wanted and got: a header that is cut
/// off, above 100,000,000 bytes or no such JSON; a name or a field twice; a field missing or unknown; __metadata__ that
/// is more than strings (they are checked and dropped); a dtype, rank or size beyond ours; data_offsets that do not fit
/// the shape, leave the file, overlap, or leave bytes that belong to no tensor. Integers without a dtype here become
/// the next wider one, as from .npy. Throws Error(Format).
[[nodiscard]] NamedArrays read_safetensors(const std::string& path);
/// One tensor: of a regular file only the header and its own bytes are read.
[[nodiscard]] HostArray read_safetensors(const std::string& path, const std::string& key);
/// Equal arrays give equal files: names sorted in the header, the header padded with spaces to 8 bytes, wide dtypes
/// first in the data, so that every tensor is aligned. Written whole or not at all.
void write_safetensors(const std::string& path, const NamedArrays& arrays);
/// The same from and to memory; `what` names the bytes in messages.
[[nodiscard]] NamedArrays parse_safetensors(std::span<const std::byte> bytes, const std::string& what);
[[nodiscard]] std::vector<std::byte> safetensors_bytes(const NamedArrays& arrays, const std::string& what);

}  // namespace tape::io
