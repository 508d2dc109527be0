// Element values: lists of literals, bytes in hex, array files, and slices of a sidecar.
#include <fmt/format.h>

#include <filesystem>

#include "assembler/assembly.h"
#include "vm/error.h"
#include "vm/io/files.h"

namespace tape::text {
namespace {

std::string counted(int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

}  // namespace

std::vector<std::byte> Assembler::values(Scan& scan, const Here& here, DType dtype, const Shape& shape,
                                         std::string_view what) {
  const int64_t wanted = shape.checked_elements().value_or(0);
  if (scan.peek() == '@') return file_values(scan, here, dtype, shape, what);
  if (const char* const start = scan.position(); scan.accept("bytes")) {
    if (scan.peek() == '"') return hex_values(scan, static_cast<uint64_t>(wanted) * size_of(dtype), what);
    scan.rewind(start);  // a constant whose name begins so
  }
  std::vector<std::byte> bytes;
  int64_t count = 0;
  while (!scan.done()) {
    const char* const start = scan.position();
    if (scan.at_name()) {  // a name is a constant, unless it begins an option
      (void)scan.name();
      const bool option = scan.peek() == '=';
      scan.rewind(start);
      if (option) break;
    }
    std::string_view literal;
    bool negative = false;
    const Value value = element(scan, context_, literal, negative);
    if (count++ == wanted)
      throw Mistake{scan.since(start),
                    fmt::format("{} {} has {}, here is one more", what, shape.text(), counted(wanted, "element")),
                    {}};
    if (auto wrong = append_element(bytes, dtype, value, literal, negative))
      throw Mistake{scan.since(start), *wrong, {}};
  }
  if (count != wanted)
    scan.fail(
        fmt::format("{} {} has {}, got {}", what, shape.text(), counted(wanted, "element"), counted(count, "value")));
  return bytes;
}

std::vector<std::byte> Assembler::hex_values(Scan& scan, uint64_t wanted, std::string_view what) {
  scan.skip();
  const char* const start = scan.position();
  const std::string_view text = scan.string("bytes");
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    if (is_class(text[i], kBlank)) continue;
    const int high = hex_digit(text[i]), low = i + 1 < text.size() ? hex_digit(text[i + 1]) : -1;
    if (high < 0 || low < 0) throw Mistake{scan.since(start), "bytes are pairs of hex digits", {}};
    bytes.push_back(static_cast<std::byte>(high * 16 + low));
    ++i;
  }
  if (bytes.size() != wanted)
    throw Mistake{scan.since(start), fmt::format("{} has {} bytes, got {}", what, wanted, bytes.size()), {}};
  return bytes;
}

std::vector<std::byte> Assembler::file_values(Scan& scan, const Here& here, DType dtype, const Shape& shape,
                                              std::string_view what) {
  scan.skip();
  const char* const start = scan.position();
  scan.accept('@');
  const std::string_view spec = scan.string("a file");
  const std::string& folder = context_.sources.file(here.line->file).folder;
  if (scan.accept(':')) {
    const int64_t offset = integer(scan, context_, "the offset");
    const std::string path = checked_path(spec, folder, options_.include_root, scan.since(start));
    const auto size = static_cast<uint64_t>(shape.checked_elements().value_or(0)) * size_of(dtype);
    if (offset < 0) throw Mistake{scan.since(start), fmt::format("the offset {} is negative", offset), {}};
    try {
      return io::read_range(path, static_cast<uint64_t>(offset), size);
    } catch (const Error& error) {
      throw Mistake{scan.since(start), error.what(), {}};
    }
  }
  const std::string_view token = scan.since(start);
  const auto [archive, key] = io::split_archive(std::string(spec));
  const std::string path = checked_path(archive.empty() ? spec : archive, folder, options_.include_root, token);
  if (!std::filesystem::exists(path)) throw Mistake{token, fmt::format("cannot read {}", spec), {}};
  try {
    const HostArray array = io::read_array(archive.empty() ? path : path + ":" + key);
    if (array.shape != shape)
      throw Mistake{token, fmt::format("{} is {}, the file has {}", what, shape.text(), array.shape.text()), {}};
    return convert_input(array, dtype, std::string(what)).bytes;
  } catch (const Error& error) {
    throw Mistake{token, error.what(), {}};
  }
}

}  // namespace tape::text
