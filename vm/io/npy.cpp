// The .npy format (NEP 1): magic, version, a Python dict literal with descr, fortran_order and shape, then the bytes.
// Nothing of the header is believed before it is checked against the bytes that are there.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "vm/error.h"
#include "vm/io/files.h"
#include "vm/io/integers.h"

namespace tape::io {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

[[noreturn]] void refuse(const std::string& what, const std::string& why) {
  throw Error(Code::Format, fmt::format("{}: {}", what, why));
}

struct Header {
  std::string descr;
  bool fortran = false;
  Shape shape;
  std::span<const std::byte> data;
};

/// Reads the dict literal: three known keys, each once, in any order.
class DictReader {
 public:
  DictReader(std::string_view text, const std::string& what) : text_(text), what_(what) {}

  Header read() {
    Header header;
    unsigned seen = 0;
    expect('{');
    while (!accept('}')) {
      const std::string key = quoted();
      expect(':');
      if (key == "descr") {
        if (peek() == '[') refuse(what_, "a structured dtype; wanted an array of plain numbers");
        header.descr = quoted();
        seen |= 1;
      } else if (key == "fortran_order") {
        header.fortran = boolean();
        seen |= 2;
      } else if (key == "shape") {
        header.shape = shape();
        seen |= 4;
      } else {
        refuse(what_, fmt::format("unknown key '{}' in the .npy header", key));
      }
      if (!accept(',') && peek() != '}') broken();
    }
    skip();
    if (at_ != text_.size() || seen != 7) broken();
    return header;
  }

 private:
  [[noreturn]] void broken() const {
    refuse(what_, fmt::format("the .npy header is broken at byte {} of its text", at_));
  }
  void skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  char peek() {
    skip();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) broken();
  }
  std::string quoted() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') broken();
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos || end - at_ > 64) broken();
    std::string word(text_.substr(at_ + 1, end - at_ - 1));
    for (const char c : word)
      if (c < ' ' || c > '~') broken();
    at_ = end + 1;
    return word;
  }
  bool boolean() {
    skip();
    for (const std::string_view word : {"True", "False"})
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return word == "True";
      }
    broken();
  }
  Shape shape() {
    Shape result;
    expect('(');
    while (!accept(')')) {
      if (result.rank() == limits::max_rank)
        refuse(what_, fmt::format("more than {} dimensions (max_rank)", limits::max_rank));
      result.push_back(dimension());
      if (!accept(',') && peek() != ')') broken();
    }
    return result;
  }
  int64_t dimension() {
    skip();
    const size_t start = at_;
    int64_t value = 0;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      if (value > (std::numeric_limits<int64_t>::max() - 9) / 10) broken();
      value = value * 10 + (text_[at_++] - '0');
    }
    if (at_ == start) broken();
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2 wrote longs so
    return value;
  }

  std::string_view text_;
  const std::string& what_;
  size_t at_ = 0;
};

Header read_header(std::span<const std::byte> bytes, const std::string& what) {
  const auto byte_at = [&](size_t i) { return static_cast<uint32_t>(bytes[i]); };
  if (bytes.size() < 10 || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0)
    refuse(what, bytes.empty() ? "the file is empty" : "not a .npy file");
  const uint32_t major = byte_at(6);
  if (major < 1 || major > 3) refuse(what, fmt::format(".npy version {}; wanted 1, 2 or 3", major));
  const size_t prefix = major == 1 ? 10 : 12;
  if (bytes.size() < prefix) refuse(what, "the .npy header is cut off");
  size_t length = byte_at(8) | byte_at(9) << 8;
  if (major > 1) length |= static_cast<size_t>(byte_at(10)) << 16 | static_cast<size_t>(byte_at(11)) << 24;
  if (length > bytes.size() - prefix)
    refuse(what, fmt::format("the .npy header has {} bytes, the file {}", length, bytes.size()));
  Header header = DictReader({reinterpret_cast<const char*>(bytes.data()) + prefix, length}, what).read();
  header.data = bytes.subspan(prefix + length);
  return header;
}

/// How a descr is stored in the file, and the dtype it becomes.
struct Storage {
  std::string_view code;
  size_t bytes;
  DType dtype;
};
constexpr Storage kStorage[] = {
    {"f8", 8, DType::F64}, {"f4", 4, DType::F32}, {"f2", 2, DType::F16},  {"i8", 8, DType::I64},
    {"i4", 4, DType::I32}, {"u1", 1, DType::U8},  {"b1", 1, DType::Bool}, {"i1", 1, DType::I8},
    {"i2", 2, DType::I16}, {"u2", 2, DType::I32}, {"u4", 4, DType::I64},  {"u8", 8, DType::I64},
};

const Storage& storage_of(const std::string& descr, const std::string& what) {
  if (descr.size() == 3 && std::string_view("<>|=").find(descr[0]) != std::string_view::npos)
    for (const Storage& storage : kStorage)
      if (descr.substr(1) == storage.code && (descr[0] != '|' || storage.bytes == 1)) return storage;
  refuse(what, fmt::format("dtype '{}' is not supported; wanted f8 f4 f2, an integer or bool", descr));
}

std::vector<std::byte> native_order(std::span<const std::byte> data, size_t width, bool swapped) {
  std::vector<std::byte> bytes(data.begin(), data.end());
  if (swapped)
    for (size_t i = 0; i + width <= bytes.size(); i += width)
      std::reverse(bytes.begin() + static_cast<ptrdiff_t>(i), bytes.begin() + static_cast<ptrdiff_t>(i + width));
  return bytes;
}

/// First axis fastest -> last axis fastest.
std::vector<std::byte> row_major(const std::vector<std::byte>& bytes, const Shape& shape, size_t width) {
  std::vector<std::byte> result(bytes.size());
  const auto n = static_cast<size_t>(shape.elements());
  const int rank = shape.rank();
  std::array<size_t, static_cast<size_t>(limits::max_rank)> stride{}, index{};
  size_t step = 1;
  for (int axis = 0; axis < rank; ++axis) {
    stride[static_cast<size_t>(axis)] = step;
    step *= static_cast<size_t>(shape[axis]);
  }
  size_t from = 0;
  for (size_t to = 0; to < n; ++to) {
    std::memcpy(result.data() + to * width, bytes.data() + from * width, width);
    for (int axis = rank - 1; axis >= 0; --axis) {
      const auto a = static_cast<size_t>(axis);
      from += stride[a];
      if (++index[a] < static_cast<size_t>(shape[axis])) break;
      from -= stride[a] * index[a];
      index[a] = 0;
    }
  }
  return result;
}

template <class From, class To>
std::vector<std::byte> widen(const std::vector<std::byte>& bytes, const std::string& what) {
  const size_t n = bytes.size() / sizeof(From);
  std::vector<std::byte> result(n * sizeof(To));
  for (size_t i = 0; i < n; ++i) {
    From value;
    std::memcpy(&value, bytes.data() + i * sizeof(From), sizeof(From));
    if constexpr (std::is_same_v<From, uint64_t>)
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
        refuse(what, fmt::format("element {} is {}, which does not fit i64", i, value));
    const To wide = static_cast<To>(value);
    std::memcpy(result.data() + i * sizeof(To), &wide, sizeof(To));
  }
  return result;
}

std::string_view descr_of(DType dtype) {
  switch (dtype) {
    case DType::F64:
      return "<f8";
    case DType::F32:
      return "<f4";
    case DType::F16:
      return "<f2";
    case DType::BF16:
      return "";
    case DType::I64:
      return "<i8";
    case DType::I32:
      return "<i4";
    case DType::I16:
      return "<i2";
    case DType::I8:
      return "|i1";
    case DType::U8:
      return "|u1";
    case DType::Bool:
      return "|b1";
  }
  return "";
}

}  // namespace

std::vector<std::byte> widen_integers(std::vector<std::byte> bytes, std::string_view code, const std::string& what) {
  if (code == "u2") return widen<uint16_t, int32_t>(bytes, what);
  if (code == "u4") return widen<uint32_t, int64_t>(bytes, what);
  if (code == "u8") return widen<uint64_t, int64_t>(bytes, what);
  return bytes;
}

HostArray parse_npy(std::span<const std::byte> bytes, const std::string& what) {
  const Header header = read_header(bytes, what);
  const Storage& storage = storage_of(header.descr, what);
  const std::optional<int64_t> elements = header.shape.checked_elements();
  if (!elements)
    refuse(what,
           fmt::format("shape {} has more than {} elements (max_elements)", header.shape.text(), limits::max_elements));
  const uint64_t wanted = static_cast<uint64_t>(*elements) * storage.bytes;
  if (wanted != header.data.size())
    refuse(what, fmt::format("{} of shape {} is {} bytes, the file has {}", header.descr, header.shape.text(), wanted,
                             header.data.size()));
  std::vector<std::byte> data = native_order(header.data, storage.bytes, header.descr[0] == '>');
  if (header.fortran && header.shape.rank() > 1) data = row_major(data, header.shape, storage.bytes);
  data = widen_integers(std::move(data), storage.code, what);
  if (storage.dtype == DType::Bool)
    for (std::byte& truth : data) truth = std::byte{truth != std::byte{0}};
  return {storage.dtype, header.shape, std::move(data)};
}

std::vector<std::byte> npy_bytes(const HostArray& array, const std::string& what) {
  const std::string_view descr = descr_of(array.dtype);
  if (descr.empty()) refuse(what, "bf16 has no .npy dtype; CAST to f32 first, or write .safetensors");
  std::string shape;
  for (const int64_t dim : array.shape.dims()) shape += fmt::format("{}{}", shape.empty() ? "" : " ", dim) + ",";
  if (array.shape.rank() > 1) shape.pop_back();
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr, shape);
  // The data begins at a multiple of 64: NumPy pads with spaces and ends the header with a newline.
  text.append(63 - (10 + text.size()) % 64, ' ');
  text += '\n';
  std::string head(kMagic);
  head += {'\x01', '\x00', static_cast<char>(text.size() & 0xFF), static_cast<char>(text.size() >> 8)};
  head += text;
  std::vector<std::byte> bytes(head.size() + array.bytes.size());
  std::memcpy(bytes.data(), head.data(), head.size());
  if (!array.bytes.empty()) std::memcpy(bytes.data() + head.size(), array.bytes.data(), array.bytes.size());
  return bytes;
}

HostArray read_npy(const std::string& path) {
  return parse_npy(read_file(path), path);
}
void write_npy(const std::string& path, const HostArray& array) {
  write_file(path, npy_bytes(array, path));
}

}  // namespace tape::io
