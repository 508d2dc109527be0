// The .tbc file: a Module as bytes (docs/format.md). Version 1.0 is
// frozen: what it can say, every later version reads and writes with the same bytes.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "vm/diagnostics.h"
#include "vm/module.h"

namespace tape {

inline constexpr uint16_t kMajor = 1;
inline constexpr uint16_t kMinor = 0;

/// Canonical bytes of a module: one order, one padding. Throws Error(Limit) beyond the limits.
[[nodiscard]] std::vector<std::byte> encode_module(const Module& module);

/// Reads a module. All sections but data are copied; blobs point into `bytes`, which `keep` holds alive, and carry
/// checked = false when `trust_blobs` (their hash is then checked at first use), else they are verified here.
/// Every problem is a diagnostic: truncation, text-mode damage, swapped bytes, a newer version, a bad hash. A newer
/// minor is read with a warning and kept in Module::minor; verify refuses to play it.
[[nodiscard]] std::optional<Module> decode_module(std::span<const std::byte> bytes, std::shared_ptr<const void> keep,
                                                  bool trust_blobs, Diagnostics& diagnostics);

/// Maps (regular file, trusting) or reads a file. Throws Error(Format) when it cannot be opened.
struct FileBytes {
  std::shared_ptr<const void> keep;
  std::span<const std::byte> bytes;
};
[[nodiscard]] FileBytes open_bytes(const std::string& path, bool map);

/// Whether the content is a container, sniffed from its first bytes (also when damaged by text mode or byte swaps).
[[nodiscard]] bool looks_like_container(std::span<const std::byte> bytes);
/// Checks the hash of every blob; one diagnostic per damaged blob.
void check_blobs(const Module& module, Diagnostics& diagnostics);
/// Content hash of a module's encoding without data (XXH3-64), for caches.
[[nodiscard]] uint64_t hash_of(const Module& module);

}  // namespace tape
