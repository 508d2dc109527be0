// The format of https://github.com/huggingface/safetensors: its README is the specification. The JSON is read as
// events, so that memory follows the header's size and the nesting of a hostile one costs nothing.
#include "vm/io/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "vm/error.h"
#include "vm/io/integers.h"

namespace tape::io {
namespace {

constexpr uint64_t kPrefix = 8;
constexpr uint64_t kMaxHeader = 100'000'000;
constexpr std::string_view kMetadata = "__metadata__";

[[noreturn]] void refuse(const std::string& what, const std::string& why) {
  throw Error(Code::Format, fmt::format("{}: {}", what, why));
}

/// A name of the file's, fit for a message.
std::string shown(std::string_view name) {
  std::string text(name.substr(0, 100));
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = '?';
  return text;
}

/// How a dtype is stored, and the one it becomes; `integer` is what widens it.
struct Storage {
  std::string name;
  size_t bytes;
  DType dtype;
  std::string_view integer;
};

const std::vector<Storage>& storages() {
  static const std::vector<Storage> all = [] {
    std::vector<Storage> rows;
    for (const DTypeInfo& info : kDTypes) {
      std::string name(info.name);
      for (char& c : name)
        if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
      rows.push_back({name, info.bytes, info.dtype, ""});
    }
    rows.push_back({"U16", 2, DType::I32, "u2"});
    rows.push_back({"U32", 4, DType::I64, "u4"});
    rows.push_back({"U64", 8, DType::I64, "u8"});
    return rows;
  }();
  return all;
}

/// What the header says of a tensor; begin and end count from the first byte behind the header.
struct Entry {
  std::string name;
  const Storage* storage = nullptr;
  Shape shape;
  uint64_t begin = 0, end = 0;
};

/// Takes the events of the JSON parser, and knows after each what may come.
class HeaderReader {
 public:
  explicit HeaderReader(const std::string& what) : what_(what) {}

  [[nodiscard]] std::vector<Entry> take() { return std::move(entries_); }

  bool start_object(size_t) {
    if (at_ == At::Begin) {
      at_ = At::Names;
    } else if (at_ == At::Value) {
      at_ = key_ == kMetadata ? At::Metadata : At::Fields;
      if (at_ == At::Fields) entries_.push_back({key_, nullptr, {}, 0, 0});
      seen_ = 0;
    } else {
      unexpected("an object");
    }
    return true;
  }
  bool end_object() {
    if (at_ == At::Fields && seen_ != kAllFields)
      refuse_tensor(fmt::format("has no {}", (seen_ & kDType) == 0   ? "dtype"
                                             : (seen_ & kShape) == 0 ? "shape"
                                                                     : "data_offsets"));
    at_ = at_ == At::Names ? At::End : At::Names;
    return true;
  }
  bool key(std::string& name) {
    if (at_ == At::Names) {
      if (!names_.insert(name).second) refuse(what_, fmt::format("the name {} is there twice", shown(name)));
      key_ = name;
      at_ = At::Value;
    } else if (at_ == At::Metadata) {
      if (!metadata_.insert(name).second) refuse(what_, fmt::format("{} has {} twice", kMetadata, shown(name)));
    } else {
      field(name);
    }
    return true;
  }
  bool string(std::string& text) {
    if (at_ == At::Metadata) return true;
    if (at_ != At::DType) unexpected(fmt::format("\"{}\"", shown(text)));
    const auto& all = storages();
    const auto found = std::find_if(all.begin(), all.end(), [&](const Storage& row) { return row.name == text; });
    if (found == all.end()) {
      std::string known;
      for (const Storage& row : all) known += (known.empty() ? "" : " ") + row.name;
      refuse_tensor(fmt::format("dtype {} is not supported; wanted one of {}", shown(text), known));
    }
    entries_.back().storage = &*found;
    at_ = At::Fields;
    return true;
  }
  bool start_array(size_t) {
    if (at_ == At::Shape)
      at_ = At::Dimensions;
    else if (at_ == At::Offsets)
      at_ = At::Numbers;
    else
      unexpected("an array");
    count_ = 0;
    return true;
  }
  bool end_array() {
    if (at_ == At::Numbers && count_ != 2) refuse_tensor(fmt::format("data_offsets has {} numbers, wanted 2", count_));
    at_ = At::Fields;
    return true;
  }
  bool number_unsigned(uint64_t value) {
    if (at_ == At::Dimensions) {
      Shape& shape = entries_.back().shape;
      if (shape.rank() == limits::max_rank)
        refuse_tensor(fmt::format("has more than {} dimensions (max_rank)", limits::max_rank));
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) unexpected(std::to_string(value));
      shape.push_back(static_cast<int64_t>(value));
    } else if (at_ == At::Numbers) {
      if (count_ < 2) (count_ == 0 ? entries_.back().begin : entries_.back().end) = value;
      ++count_;
    } else {
      unexpected(std::to_string(value));
    }
    return true;
  }
  bool number_integer(int64_t value) { unexpected(std::to_string(value)); }
  bool number_float(double, const std::string& text) { unexpected(shown(text)); }
  bool boolean(bool value) { unexpected(value ? "true" : "false"); }
  bool null() { unexpected("null"); }
  bool binary(std::vector<uint8_t>&) { unexpected("binary"); }
  bool parse_error(size_t position, const std::string& token, const nlohmann::json::exception&) {
    refuse(what_, fmt::format("the header is no JSON at its byte {}{}", position,
                              token.empty() ? "" : fmt::format(", at `{}`", shown(token))));
  }

 private:
  enum class At { Begin, Names, Value, Metadata, Fields, DType, Shape, Offsets, Dimensions, Numbers, End };
  static constexpr unsigned kDType = 1, kShape = 2, kOffsets = 4, kAllFields = 7;

  void field(const std::string& name) {
    const unsigned bit = name == "dtype" ? kDType : name == "shape" ? kShape : name == "data_offsets" ? kOffsets : 0;
    if (bit == 0) refuse_tensor(fmt::format("has an unknown field {}", shown(name)));
    if ((seen_ & bit) != 0) refuse_tensor(fmt::format("has {} twice", name));
    seen_ |= bit;
    at_ = bit == kDType ? At::DType : bit == kShape ? At::Shape : At::Offsets;
  }

  [[noreturn]] void refuse_tensor(const std::string& why) const {
    refuse(what_, fmt::format("tensor {}: {}", shown(key_), why));
  }
  [[noreturn]] void unexpected(const std::string& got) const {
    std::string wanted;
    switch (at_) {
      case At::Begin:
      case At::End:
      case At::Names:
        refuse(what_, fmt::format("the header is {}, wanted an object", got));
      case At::Metadata:
        refuse(what_, fmt::format("{} holds {}, wanted strings only", kMetadata, got));
      case At::Value:
      case At::Fields:
        wanted = "an object";
        break;
      case At::DType:
        wanted = "a string as dtype";
        break;
      case At::Shape:
        wanted = "an array as shape";
        break;
      case At::Offsets:
        wanted = "an array as data_offsets";
        break;
      case At::Dimensions:
        wanted = "whole numbers from 0 in shape";
        break;
      case At::Numbers:
        wanted = "whole numbers from 0 in data_offsets";
        break;
    }
    if (key_ == kMetadata) refuse(what_, fmt::format("{} is {}, wanted an object of strings", kMetadata, got));
    refuse_tensor(fmt::format("got {}, wanted {}", got, wanted));
  }

  const std::string& what_;
  At at_ = At::Begin;
  std::string key_;
  unsigned seen_ = 0;
  size_t count_ = 0;
  std::vector<Entry> entries_;
  std::unordered_set<std::string> names_, metadata_;
};

/// The length of the header of a file of that size that begins with `prefix`.
uint64_t header_length(std::span<const std::byte> prefix, uint64_t file_bytes, const std::string& what) {
  if (file_bytes == 0) refuse(what, "the file is empty");
  if (prefix.size() < kPrefix)
    refuse(what, fmt::format("the file has {} bytes, wanted 8 with the length of the header", prefix.size()));
  uint64_t length = 0;
  std::memcpy(&length, prefix.data(), kPrefix);
  if (length > kMaxHeader)
    refuse(what, fmt::format("the header has {} bytes, more than the {} of a .safetensors file", length, kMaxHeader));
  if (length > file_bytes - kPrefix)
    refuse(what,
           fmt::format("the header has {} bytes, the file only {} behind its length", length, file_bytes - kPrefix));
  return length;
}

void check_entry(const Entry& entry, uint64_t data_bytes, const std::string& what) {
  const auto wrong = [&](const std::string& why) {
    refuse(what, fmt::format("tensor {}: {}", shown(entry.name), why));
  };
  const std::optional<int64_t> elements = entry.shape.checked_elements();
  if (!elements)
    wrong(fmt::format("shape {} has more than {} elements (max_elements)", entry.shape.text(), limits::max_elements));
  if (entry.begin > entry.end || entry.end > data_bytes)
    wrong(fmt::format("data_offsets [{}, {}] are not within the {} bytes of data", entry.begin, entry.end, data_bytes));
  const uint64_t wanted = static_cast<uint64_t>(*elements) * entry.storage->bytes;
  if (entry.end - entry.begin != wanted)
    wrong(fmt::format("{}{} is {} bytes, data_offsets [{}, {}] are {}", entry.storage->name, entry.shape.text(), wanted,
                      entry.begin, entry.end, entry.end - entry.begin));
}

/// The entries in the order of their bytes, which they cover without a hole.
std::vector<Entry> read_header(std::string_view header, uint64_t data_bytes, const std::string& what) {
  if (header.empty() || header[0] != '{') refuse(what, "the header does not begin with {");
  if (const size_t zero = header.find('\0'); zero != std::string_view::npos)  // which the parser takes for the end
    refuse(what, fmt::format("the header is no JSON at its byte {}", zero + 1));
  HeaderReader reader(what);
  nlohmann::json::sax_parse(header.begin(), header.end(), &reader);
  std::vector<Entry> entries = reader.take();
  for (const Entry& entry : entries) check_entry(entry, data_bytes, what);
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  uint64_t covered = 0;
  const Entry* before = nullptr;
  for (const Entry& entry : entries) {
    if (entry.begin < covered)
      refuse(what, fmt::format("tensor {}: its bytes begin at {}, within those of {}, which end at {}",
                               shown(entry.name), entry.begin, shown(before->name), covered));
    if (entry.begin > covered)
      refuse(what, fmt::format("bytes {} to {} of the data belong to no tensor", covered, entry.begin));
    covered = entry.end;
    before = &entry;
  }
  if (covered != data_bytes)
    refuse(what, fmt::format("bytes {} to {} of the data belong to no tensor", covered, data_bytes));
  return entries;
}

HostArray array_of(const Entry& entry, std::vector<std::byte> bytes, const std::string& what) {
  if (entry.storage->dtype == DType::Bool)
    for (std::byte& truth : bytes) truth = std::byte{truth != std::byte{0}};
  if (!entry.storage->integer.empty())
    bytes = widen_integers(std::move(bytes), entry.storage->integer, what + ":" + shown(entry.name));
  return {entry.storage->dtype, entry.shape, std::move(bytes)};
}

const Entry& find_entry(const std::vector<Entry>& entries, const std::string& key, const std::string& path) {
  std::vector<std::string_view> names;
  for (const Entry& entry : entries) {
    if (entry.name == key) return entry;
    names.emplace_back(entry.name);
  }
  std::sort(names.begin(), names.end());
  const std::string near = nearest(key, names);
  std::string known;
  constexpr size_t kListed = 50;
  for (size_t i = 0; i < std::min(names.size(), kListed); ++i) known += (i == 0 ? "" : ", ") + shown(names[i]);
  if (names.size() > kListed) known += fmt::format(" and {} more", names.size() - kListed);
  refuse(path, fmt::format("no tensor named {}{}; it holds: {}", key,
                           near.empty() ? "" : ", did you mean " + near + "?", known));
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

NamedArrays parse_safetensors(std::span<const std::byte> bytes, const std::string& what) {
  const uint64_t length = header_length(bytes.first(std::min<size_t>(bytes.size(), kPrefix)), bytes.size(), what);
  const std::span<const std::byte> data = bytes.subspan(kPrefix + length);
  NamedArrays arrays;
  for (const Entry& entry : read_header(text_of(bytes.subspan(kPrefix, length)), data.size(), what)) {
    const std::span<const std::byte> own = data.subspan(entry.begin, entry.end - entry.begin);
    arrays.emplace_back(entry.name, array_of(entry, {own.begin(), own.end()}, what));
  }
  std::sort(arrays.begin(), arrays.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return arrays;
}

NamedArrays read_safetensors(const std::string& path) {
  return parse_safetensors(read_file(path), path);
}

HostArray read_safetensors(const std::string& path, const std::string& key) {
  std::error_code error;
  const uint64_t size = std::filesystem::is_regular_file(path, error) ? std::filesystem::file_size(path, error) : 0;
  if (error || size == 0) {  // a pipe, or something read_file has the words for
    NamedArrays arrays = read_safetensors(path);
    for (auto& [name, array] : arrays)
      if (name == key) return std::move(array);
    refuse(path, fmt::format("no tensor named {}", key));
  }
  const uint64_t length = header_length(read_range(path, 0, std::min(size, kPrefix)), size, path);
  const std::vector<std::byte> header = read_range(path, kPrefix, length);
  const std::vector<Entry> entries = read_header(text_of(header), size - kPrefix - length, path);
  const Entry& entry = find_entry(entries, key, path);
  return array_of(entry, read_range(path, kPrefix + length + entry.begin, entry.end - entry.begin), path);
}

std::vector<std::byte> safetensors_bytes(const NamedArrays& arrays, const std::string& what) {
  const auto storage_of = [](DType dtype) -> const Storage& {
    return *std::find_if(storages().begin(), storages().end(), [&](const Storage& row) { return row.dtype == dtype; });
  };
  std::vector<size_t> by_name(arrays.size());
  for (size_t i = 0; i < arrays.size(); ++i) by_name[i] = i;
  std::sort(by_name.begin(), by_name.end(), [&](size_t a, size_t b) { return arrays[a].first < arrays[b].first; });
  std::vector<size_t> by_width = by_name;
  std::stable_sort(by_width.begin(), by_width.end(), [&](size_t a, size_t b) {
    return size_of(arrays[a].second.dtype) > size_of(arrays[b].second.dtype);
  });
  std::vector<uint64_t> offset(arrays.size());
  uint64_t data_bytes = 0;
  for (const size_t i : by_width) {
    offset[i] = data_bytes;
    data_bytes += arrays[i].second.bytes.size();
  }
  std::string header = "{";
  for (size_t i = 0; i < by_name.size(); ++i) {
    const auto& [name, array] = arrays[by_name[i]];
    if (name == kMetadata) refuse(what, fmt::format("{} is the format's own name", name));
    if (i > 0 && arrays[by_name[i - 1]].first == name) refuse(what, fmt::format("the name {} is there twice", name));
    std::string quoted;
    try {
      quoted = nlohmann::json(name).dump();
    } catch (const nlohmann::json::exception&) {
      refuse(what, "the name of a tensor is no UTF-8");
    }
    const uint64_t begin = offset[by_name[i]];
    header += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", i == 0 ? "" : ",",
                          quoted, storage_of(array.dtype).name, fmt::join(array.shape.dims(), ","), begin,
                          begin + array.bytes.size());
  }
  header += "}";
  header.append((kPrefix - header.size() % kPrefix) % kPrefix, ' ');
  if (header.size() > kMaxHeader)
    refuse(what,
           fmt::format("the header has {} bytes, more than the {} of a .safetensors file", header.size(), kMaxHeader));
  std::vector<std::byte> bytes(kPrefix + header.size() + data_bytes);
  const uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, kPrefix);
  std::memcpy(bytes.data() + kPrefix, header.data(), header.size());
  std::byte* const data = bytes.data() + kPrefix + header.size();
  for (size_t i = 0; i < arrays.size(); ++i)
    std::copy(arrays[i].second.bytes.begin(), arrays[i].second.bytes.end(), data + offset[i]);
  return bytes;
}

void write_safetensors(const std::string& path, const NamedArrays& arrays) {
  write_file(path, safetensors_bytes(arrays, path));
}

}  // namespace tape::io
