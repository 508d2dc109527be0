// Opening, sniffing and hashing of containers: what needs neither encoder nor decoder.
#include "vm/container.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "vm/container_format.h"
#include "vm/error.h"
#include "vm/io/files.h"

namespace tape {
namespace container {

uint64_t hash_pieces(std::span<const std::span<const std::byte>> pieces) {
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(), &XXH3_freeState);
  if (!state) throw std::bad_alloc();
  XXH3_64bits_reset(state.get());
  for (const std::span<const std::byte> piece : pieces) XXH3_64bits_update(state.get(), piece.data(), piece.size());
  return XXH3_64bits_digest(state.get());
}

}  // namespace container

namespace {

/// A mapped file; the descriptor is closed once it is mapped.
std::optional<FileBytes> map_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw Error(Code::Format, fmt::format("{}: cannot open: {}", path, std::strerror(errno)));
  struct stat status {};
  void* address = MAP_FAILED;
  if (::fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0)
    address = ::mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
  ::close(fd);
  if (address == MAP_FAILED) return std::nullopt;
  const auto size = static_cast<size_t>(status.st_size);
  std::shared_ptr<const void> keep(address, [size](const void* at) { ::munmap(const_cast<void*>(at), size); });
  return FileBytes{keep, {static_cast<const std::byte*>(address), size}};
}

}  // namespace

FileBytes open_bytes(const std::string& path, bool map) {
  if (map && path != "-")
    if (std::optional<FileBytes> mapped = map_file(path)) return *std::move(mapped);
  const auto bytes = std::make_shared<const std::vector<std::byte>>(io::read_file(path));
  return {bytes, *bytes};
}

bool looks_like_container(std::span<const std::byte> bytes) {
  if (bytes.empty()) return false;
  const std::string_view head(reinterpret_cast<const char*>(bytes.data()), std::min<size_t>(bytes.size(), 8));
  // No text begins with 0x89: as UTF-8 it is a continuation byte. The others are the magic after 7-bit, Latin-1 to
  // UTF-8, and byte-swapped transfers.
  if (head[0] == '\x89') return true;
  for (const std::string_view damaged :
       {"\x09TAPE\r\n", "\x09TAPE\n", "\xC2\x89TAPE", "\xEF\xBF\xBDTAPE", "T\x89PA", "PAT\x89",
        "\x1a\n\r"
        "EPAT"})
    if (head.starts_with(damaged)) return true;
  return false;
}

void check_blobs(const Module& module, Diagnostics& diagnostics) {
  for (const Tensor& tensor : module.tensors) {
    if (tensor.blob == kNone || tensor.blob >= module.blobs.size()) continue;
    const Blob& blob = module.blobs[tensor.blob];
    const uint64_t hash = XXH3_64bits(blob.bytes.data(), blob.bytes.size());
    if (hash != blob.hash)
      diagnostics.error(
          fmt::format("data of {} is damaged: hash {:016x}, the file says {:016x}", tensor.name, hash, blob.hash));
  }
}

}  // namespace tape
