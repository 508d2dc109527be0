// Whole files in and out. A file that is being written has another name until it is complete.
#include "vm/io/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "vm/error.h"
#include "vm/io/safetensors.h"

namespace tape::io {
namespace {

[[noreturn]] void fail(const std::string& path, std::string_view doing) {
  throw Error(Code::Format, fmt::format("{}: cannot {}: {}", path, doing, std::strerror(errno)));
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ > STDERR_FILENO) ::close(fd_);
  }
  [[nodiscard]] int get() const { return fd_; }
  /// Closes now, so that a late write error is seen.
  [[nodiscard]] bool close() { return ::close(std::exchange(fd_, -1)) == 0; }

 private:
  int fd_;
};

bool write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), std::min<size_t>(bytes.size(), size_t{1} << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return true;
}

/// Where the bytes really go: the target of a link, so that the link stays one.
std::string target_of(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_symlink(path, error)) return path;
  const std::filesystem::path target = std::filesystem::canonical(path, error);
  return error ? path : target.string();
}

}  // namespace

std::vector<std::byte> read_file(const std::string& path) {
  const Descriptor file(path == "-" ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) fail(path, "open");
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail(path, "read");
  if (S_ISDIR(status.st_mode)) throw Error(Code::Format, fmt::format("{}: is a folder", path));
  std::vector<std::byte> bytes(S_ISREG(status.st_mode) ? static_cast<size_t>(status.st_size) : 0);
  size_t have = 0;
  for (;;) {
    if (have == bytes.size()) {
      // A file may grow while it is read, and a pipe has no size: one more read finds the end.
      std::byte extra[4096];
      const ssize_t n = ::read(file.get(), extra, sizeof extra);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail(path, "read");
      if (n == 0) break;
      bytes.insert(bytes.end(), extra, extra + n);
      have = bytes.size();
      continue;
    }
    const ssize_t n = ::read(file.get(), bytes.data() + have, std::min<size_t>(bytes.size() - have, size_t{1} << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(path, "read");
    if (n == 0) break;
    have += static_cast<size_t>(n);
  }
  bytes.resize(have);
  return bytes;
}

void write_file(const std::string& path, std::span<const std::byte> bytes) {
  const std::string target = target_of(path);
  struct stat status {};
  const bool exists = ::stat(target.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode)) throw Error(Code::Format, fmt::format("{}: is a folder", path));
  if (exists && !S_ISREG(status.st_mode)) {
    Descriptor device(::open(target.c_str(), O_WRONLY | O_CLOEXEC));
    if (device.get() < 0) fail(path, "open");
    if (!write_all(device.get(), bytes)) fail(path, "write");
    return;
  }
  const std::string temporary = fmt::format("{}.tmp{}", target, ::getpid());
  Descriptor file(
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, exists ? status.st_mode & 0777 : 0666));
  if (file.get() < 0) fail(path, "write");
  const bool written = write_all(file.get(), bytes);
  const bool closed = file.close();
  if (written && closed && ::rename(temporary.c_str(), target.c_str()) == 0) return;
  const int reason = errno;
  ::unlink(temporary.c_str());
  errno = reason;
  fail(path, "write");
}

void want_writable(const std::string& path) {
  const std::string target = target_of(path);
  struct stat status {};
  const bool exists = ::stat(target.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode)) throw Error(Code::Format, fmt::format("{}: is a folder", path));
  const bool device = exists && !S_ISREG(status.st_mode);
  const std::filesystem::path folder = std::filesystem::path(target).parent_path();
  if (::access(device ? target.c_str() : folder.empty() ? "." : folder.c_str(), W_OK) != 0) fail(path, "write");
}

void write_file(const std::string& path, std::string_view text) {
  write_file(path, std::as_bytes(std::span(text)));
}

std::vector<std::byte> read_range(const std::string& path, uint64_t offset, uint64_t size) {
  std::ifstream stream(path, std::ios::binary | std::ios::ate);
  const uint64_t end = stream ? static_cast<uint64_t>(stream.tellg()) : 0;
  const auto lacks = [&]() -> Error {
    return {Code::Format, fmt::format("{} does not hold {} bytes at {}", path, size, offset)};
  };
  if (!stream || offset > end || size > end - offset) throw lacks();
  std::vector<std::byte> bytes(size);
  stream.seekg(static_cast<std::streamoff>(offset));
  stream.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
  if (!stream) throw lacks();
  return bytes;
}

std::pair<std::string, std::string> split_archive(const std::string& spec) {
  for (const std::string_view ending : {".npz:", ".safetensors:"})
    if (const size_t at = spec.rfind(ending); at != std::string::npos) {
      const size_t colon = at + ending.size() - 1;
      return {spec.substr(0, colon), spec.substr(colon + 1)};
    }
  return {};
}

bool is_archive(std::string_view path) {
  return path.ends_with(".npz") || path.ends_with(".safetensors");
}

NamedArrays read_arrays(const std::string& path) {
  return path.ends_with(".safetensors") ? read_safetensors(path) : read_npz(path);
}

void write_arrays(const std::string& path, const NamedArrays& arrays) {
  path.ends_with(".safetensors") ? write_safetensors(path, arrays) : write_npz(path, arrays);
}

HostArray read_array(const std::string& spec) {
  if (const auto [path, key] = split_archive(spec); !path.empty())
    return path.ends_with(".safetensors") ? read_safetensors(path, key) : read_npz(path, key);
  if (!is_archive(spec)) return read_npy(spec);
  NamedArrays arrays = read_arrays(spec);
  if (arrays.size() == 1) return std::move(arrays[0].second);
  std::string keys;
  for (const auto& [key, array] : arrays) keys += (keys.empty() ? "" : ", ") + key;
  throw Error(Code::Usage, fmt::format("{}: name one of its {} arrays as {}:KEY: {}", spec, arrays.size(), spec, keys));
}

}  // namespace tape::io
