// Byte layout of the container, shared by encoder and decoder only. docs/format.md has the same facts as tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "vm/module.h"

namespace tape::container {

inline constexpr std::string_view kMagic = "\x89TAPE\r\n\x1a";
inline constexpr uint64_t kHeaderBytes = 64;
inline constexpr uint64_t kEntryBytes = 24;  // one row of the section table
inline constexpr uint64_t kHashOffset = 32;  // of the hash in the header
inline constexpr uint64_t kSectionAlignment = 64;
inline constexpr uint64_t kBlobAlignment = 256;
inline constexpr uint64_t kWeightAlignment = 4096;  // blobs of kWeightBytes and more
inline constexpr uint64_t kWeightBytes = 64 * 1024;
inline constexpr uint32_t kMustKnow = 1;  // section flag

enum Kind : uint32_t {
  kStrings = 1,
  kTensors = 2,
  kTapes = 3,
  kCode = 4,
  kStreams = 5,
  kData = 6,
  kLineMap = 7,
  kMetadata = 8,
};
inline constexpr uint32_t kLastKind = kMetadata;

enum TensorFlag : uint32_t { kWritable = 1, kPersistentGrad = 2 };

constexpr uint64_t align_up(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}
constexpr uint64_t blob_alignment(uint64_t bytes) {
  return bytes >= kWeightBytes ? kWeightAlignment : kBlobAlignment;
}
constexpr uint32_t flags_of(uint32_t kind) {
  return kind <= kData ? kMustKnow : 0;
}

/// Which numbers of an Init its kind uses; the others are zero in the file.
struct InitFields {
  bool a = false, b = false, seed = false;
};
constexpr InitFields fields_of(InitKind kind) {
  switch (kind) {
    case InitKind::None:
    case InitKind::Zeros:
    case InitKind::Ones:
    case InitKind::Iota:
    case InitKind::Eye:
      return {};
    case InitKind::Fill:
      return {true, false, false};
    case InitKind::Uniform:
    case InitKind::Normal:
      return {true, true, true};
    case InitKind::KaimingUniform:
    case InitKind::KaimingNormal:
    case InitKind::XavierUniform:
    case InitKind::XavierNormal:
    case InitKind::Seed:
      return {false, false, true};
    case InitKind::Orthogonal:
      return {true, false, true};
  }
  return {};
}

/// Calls visit(first word, count) for every command of a tape, in order, without reading out of it; a broken count
/// makes the rest one item, as Decoder sees it.
template <class Visit>
void for_each_item(std::span<const uint32_t> words, Visit&& visit) {
  for (size_t at = 0; at < words.size();) {
    size_t count = words[at] >> 16;
    if (count == 0 || count > words.size() - at) count = words.size() - at;
    visit(at, count);
    at += count;
  }
}

/// XXH3-64 of the pieces one after another.
[[nodiscard]] uint64_t hash_pieces(std::span<const std::span<const std::byte>> pieces);

/// A file without its data: the bytes before padding of every section, in order, and where all of it lies.
struct Parts {
  struct Section {
    uint32_t kind = 0;
    std::vector<std::byte> bytes;  // empty for data
    uint64_t offset = 0, size = 0;
  };
  std::vector<std::byte> head;  // header (hash filled in) and section table
  std::vector<Section> sections;
  std::vector<uint64_t> blob_offsets;
  std::vector<const Blob*> blobs;  // in file order
  uint64_t file_bytes = 0;
};

/// `rehash`: hash blobs instead of believing Blob::hash (never those that are not checked yet).
[[nodiscard]] Parts build_parts(const Module& module, bool rehash);

/// Whether attribute strings are numbered by first use, each used and none twice: what encode writes and decode wants.
[[nodiscard]] bool has_canonical_strings(const Module& module);

}  // namespace tape::container
