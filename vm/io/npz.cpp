// .npz: a zip archive of .npy files, through libzip. Entries are stored uncompressed with a fixed date, so that equal
// arrays give equal files.
#include <fmt/format.h>
#include <unistd.h>
#include <zip.h>

#include <cstdio>
#include <memory>

#include "vm/error.h"
#include "vm/io/files.h"

namespace tape::io {
namespace {

struct Discard {
  void operator()(zip_t* archive) const { zip_discard(archive); }
  void operator()(zip_file_t* file) const { zip_fclose(file); }
};
using Archive = std::unique_ptr<zip_t, Discard>;
using Entry = std::unique_ptr<zip_file_t, Discard>;

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw Error(Code::Format, fmt::format("{}: {}", path, why));
}

/// The archive over bytes that outlive it.
Archive open_archive(const std::vector<std::byte>& bytes, const std::string& path) {
  zip_error_t error;
  zip_error_init(&error);
  zip_source_t* source = zip_source_buffer_create(bytes.data(), bytes.size(), 0, &error);
  if (source == nullptr) refuse(path, "not enough memory");
  Archive archive(zip_open_from_source(source, ZIP_RDONLY | ZIP_CHECKCONS, &error));
  if (archive) return archive;
  const std::string why = zip_error_strerror(&error);
  zip_error_fini(&error);
  zip_source_free(source);
  refuse(path, bytes.empty() ? "the file is empty" : fmt::format("not a .npz archive: {}", why));
}

/// The bytes of one entry. Memory grows with what is really there: a size the archive only claims allocates nothing.
std::vector<std::byte> read_entry(zip_t* archive, zip_uint64_t index, const std::string& what) {
  const Entry entry(zip_fopen_index(archive, index, 0));
  if (!entry) refuse(what, zip_strerror(archive));
  constexpr size_t kChunk = size_t{1} << 20;
  std::vector<std::byte> bytes;
  for (;;) {
    const size_t have = bytes.size();
    bytes.resize(have + kChunk);
    const zip_int64_t n = zip_fread(entry.get(), bytes.data() + have, kChunk);
    if (n < 0) refuse(what, fmt::format("the archive is damaged: {}", zip_file_strerror(entry.get())));
    bytes.resize(have + static_cast<size_t>(n));
    if (n == 0) return bytes;
  }
}

/// Name of an array entry without .npy; empty for anything else in the archive.
std::string key_of(zip_t* archive, zip_uint64_t index) {
  const char* raw = zip_get_name(archive, index, 0);
  std::string name = raw == nullptr ? "" : raw;
  if (!name.ends_with(".npy")) return {};
  name.resize(name.size() - 4);
  return name;
}

template <class Visit>
void for_each_key(zip_t* archive, Visit&& visit) {
  const zip_int64_t n = zip_get_num_entries(archive, 0);
  for (zip_int64_t i = 0; i < n; ++i) {
    const std::string key = key_of(archive, static_cast<zip_uint64_t>(i));
    if (!key.empty()) visit(static_cast<zip_uint64_t>(i), key);
  }
}

void add_entry(zip_t* archive, const std::string& path, const std::string& key, const std::vector<std::byte>& bytes) {
  zip_source_t* source = zip_source_buffer(archive, bytes.data(), bytes.size(), 0);
  if (source == nullptr) refuse(path, zip_strerror(archive));
  const zip_int64_t index = zip_file_add(archive, (key + ".npy").c_str(), source, ZIP_FL_ENC_UTF_8);
  if (index < 0) {
    zip_source_free(source);
    refuse(path, fmt::format("array {}: {}", key, zip_strerror(archive)));
  }
  const auto at = static_cast<zip_uint64_t>(index);
  zip_set_file_compression(archive, at, ZIP_CM_STORE, 0);
  zip_file_set_dostime(archive, at, 0, 1 << 5 | 1, 0);  // 1980-01-01
}

}  // namespace

NamedArrays read_npz(const std::string& path) {
  const std::vector<std::byte> bytes = read_file(path);
  const Archive archive = open_archive(bytes, path);
  NamedArrays arrays;
  for_each_key(archive.get(), [&](zip_uint64_t index, const std::string& key) {
    const std::string what = path + ":" + key;
    arrays.emplace_back(key, parse_npy(read_entry(archive.get(), index, what), what));
  });
  return arrays;
}

HostArray read_npz(const std::string& path, const std::string& key) {
  const std::vector<std::byte> bytes = read_file(path);
  const Archive archive = open_archive(bytes, path);
  const std::string what = path + ":" + key;
  std::optional<HostArray> found;
  std::vector<std::string> keys;
  for_each_key(archive.get(), [&](zip_uint64_t index, const std::string& name) {
    keys.push_back(name);
    if (name == key && !found) found = parse_npy(read_entry(archive.get(), index, what), what);
  });
  if (found) return std::move(*found);
  const std::string near = nearest(key, {keys.begin(), keys.end()});
  refuse(path, fmt::format("no array named {}{}; it holds: {}", key, near.empty() ? "" : ", did you mean " + near + "?",
                           fmt::join(keys, ", ")));
}

void write_npz(const std::string& path, const NamedArrays& arrays) {
  if (arrays.empty()) {
    // libzip makes no archive of nothing; its end record alone is one.
    constexpr std::string_view kEnd("PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 22);
    return write_file(path, kEnd);
  }
  // libzip reads the buffers when the archive is closed.
  std::vector<std::vector<std::byte>> buffers;
  buffers.reserve(arrays.size());
  zip_error_t error;
  zip_error_init(&error);
  zip_source_t* target = zip_source_buffer_create(nullptr, 0, 0, &error);
  if (target == nullptr) refuse(path, "not enough memory");
  zip_source_keep(target);
  const std::unique_ptr<zip_source_t, void (*)(zip_source_t*)> keep(target, &zip_source_free);
  Archive archive(zip_open_from_source(target, ZIP_TRUNCATE, &error));
  if (!archive) {
    zip_source_free(target);
    refuse(path, zip_error_strerror(&error));
  }
  for (const auto& [key, array] : arrays) {
    buffers.push_back(npy_bytes(array, path + ":" + key));
    add_entry(archive.get(), path, key, buffers.back());
  }
  if (zip_close(archive.get()) != 0) refuse(path, zip_strerror(archive.get()));
  static_cast<void>(archive.release());
  buffers.clear();
  if (zip_source_open(target) != 0) refuse(path, "the archive cannot be read back");
  zip_source_seek(target, 0, SEEK_END);
  const zip_int64_t size = zip_source_tell(target);
  zip_source_seek(target, 0, SEEK_SET);
  std::vector<std::byte> bytes(size > 0 ? static_cast<size_t>(size) : 0);
  const zip_int64_t read = zip_source_read(target, bytes.data(), bytes.size());
  zip_source_close(target);
  if (read != size) refuse(path, "the archive cannot be read back");
  write_file(path, bytes);
}

}  // namespace tape::io
