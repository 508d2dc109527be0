// Module -> bytes. One order, one padding: equal modules give equal files, and decode compares what it read against
// this encoder.
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <unordered_map>

#include "vm/command_buffer.h"
#include "vm/container.h"
#include "vm/container_format.h"
#include "vm/error.h"

namespace tape {
namespace container {
namespace {

class Writer {
 public:
  void u8(uint8_t value) { bytes_.push_back(std::byte{value}); }
  void u16(uint16_t value) { number(value); }
  void u32(uint32_t value) { number(value); }
  void u64(uint64_t value) { number(value); }
  void i64(int64_t value) { number(static_cast<uint64_t>(value)); }
  void f64(double value) { u64(std::isnan(value) ? 0x7FF8000000000000u : std::bit_cast<uint64_t>(value)); }
  void raw(std::string_view text) { append(text.data(), text.size()); }
  void raw(std::span<const uint32_t> words) { append(words.data(), words.size_bytes()); }
  void zeros(size_t n) { bytes_.resize(bytes_.size() + n); }
  void patch_u64(size_t at, uint64_t value) { std::memcpy(bytes_.data() + at, &value, sizeof value); }
  [[nodiscard]] size_t size() const { return bytes_.size(); }
  [[nodiscard]] std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  static_assert(std::endian::native == std::endian::little, "the container is little-endian");
  template <class T>
  void number(T value) {
    append(&value, sizeof value);
  }
  void append(const void* from, size_t n) {
    const auto* first = static_cast<const std::byte*>(from);
    bytes_.insert(bytes_.end(), first, first + n);
  }
  std::vector<std::byte> bytes_;
};

/// String ids by first use, attribute strings first.
class Interner {
 public:
  explicit Interner(const std::vector<std::string>& attribute_strings) {
    for (const std::string& text : attribute_strings) id(text);
    attributes_ = static_cast<uint32_t>(attribute_strings.size());
  }
  uint32_t id(const std::string& text) {
    const auto [at, fresh] = ids_.try_emplace(text, static_cast<uint32_t>(strings_.size()));
    if (fresh) strings_.push_back(&at->first);
    return at->second;
  }
  [[nodiscard]] std::vector<std::byte> section() const {
    Writer out;
    out.u32(static_cast<uint32_t>(strings_.size()));
    out.u32(attributes_);
    uint64_t end = 0;
    for (const std::string* text : strings_) {
      end += text->size();
      if (end > std::numeric_limits<uint32_t>::max()) throw Error(Code::Limit, "strings of a module exceed 4 GiB");
      out.u32(static_cast<uint32_t>(end));
    }
    for (const std::string* text : strings_) out.raw(*text);
    return out.take();
  }

 private:
  std::unordered_map<std::string, uint32_t> ids_;
  std::vector<const std::string*> strings_;
  uint32_t attributes_ = 0;
};

void check_limit(size_t n, int64_t limit, std::string_view name, std::string_view what) {
  if (n > static_cast<uint64_t>(limit)) throw Error(Code::Limit, fmt::format("{} {}, {} is {}", n, what, name, limit));
}

void check_limits(const Module& module) {
  check_limit(module.tensors.size(), limits::max_tensors, "max_tensors", "tensors");
  check_limit(module.tapes.size(), limits::max_tapes, "max_tapes", "tapes");
  check_limit(module.streams.size(), limits::max_streams, "max_streams", "streams");
  check_limit(module.sinks.size(), limits::max_streams, "max_streams", "sinks");
  for (const Stream& stream : module.streams)
    check_limit(stream.columns.size(), limits::max_columns, "max_columns", "columns in " + stream.name);
  for (const Tape& tape : module.tapes)
    check_limit(tape.words.size(), std::numeric_limits<uint32_t>::max(), "the limit", "words in " + tape.name);
}

class Builder {
 public:
  Builder(const Module& module, bool rehash) : module_(module), rehash_(rehash), strings_(module.strings) {}

  Parts build() {
    check_limits(module_);
    const uint32_t producer = strings_.id(module_.producer);
    add(kTensors, tensors());
    add(kTapes, tapes());
    add(kCode, code());
    add(kStreams, streams());
    if (!parts_.blobs.empty()) parts_.sections.push_back({kData, {}, 0, 0});
    add(kLineMap, line_map());
    add(kMetadata, metadata());
    parts_.sections.insert(parts_.sections.begin(), {kStrings, strings_.section(), 0, 0});
    extras();
    place();
    head(producer);
    return std::move(parts_);
  }

 private:
  void add(uint32_t kind, std::vector<std::byte> bytes) {
    if (!bytes.empty()) parts_.sections.push_back({kind, std::move(bytes), 0, 0});
  }

  std::vector<std::byte> tensors() {
    Writer out;
    if (module_.tensors.empty()) return {};
    std::vector<const Blob*>& blobs = parts_.blobs;
    for (const Tensor& tensor : module_.tensors)
      if (tensor.blob != kNone) blobs.push_back(&module_.blobs.at(tensor.blob));
    out.u32(static_cast<uint32_t>(module_.tensors.size()));
    out.u32(static_cast<uint32_t>(blobs.size()));
    uint32_t blob = 0;
    for (const Tensor& tensor : module_.tensors) {
      const InitFields used = fields_of(tensor.init.kind);
      out.u32(strings_.id(tensor.name));
      type(out, tensor.dtype, tensor.shape, static_cast<uint8_t>(tensor.role),
           static_cast<uint8_t>((tensor.writable ? kWritable : 0u) | (tensor.persistent_grad ? kPersistentGrad : 0u)));
      out.u32(tensor.owner);
      out.u32(tensor.link);
      out.u32(tensor.blob == kNone ? kNone : blob++);
      out.u32(static_cast<uint32_t>(tensor.init.kind));
      out.f64(used.a ? tensor.init.a : 0);
      out.f64(used.b ? tensor.init.b : 0);
      out.i64(used.seed ? tensor.init.seed : 0);
      for (const int64_t dim : tensor.shape.dims()) out.i64(dim);
    }
    // The offsets are written by place(), once the sizes of all sections are known.
    blob_table_ = out.size();
    for (const Blob* item : blobs) {
      out.u64(0);
      out.u64(item->bytes.size());
      out.u64(rehash_ && item->checked ? XXH3_64bits(item->bytes.data(), item->bytes.size()) : item->hash);
    }
    return out.take();
  }

  static void type(Writer& out, DType dtype, const Shape& shape, uint8_t c, uint8_t d) {
    out.u8(static_cast<uint8_t>(dtype));
    out.u8(static_cast<uint8_t>(shape.rank()));
    out.u8(c);
    out.u8(d);
  }

  std::vector<std::byte> tapes() {
    Writer out;
    out.u32(strings_.id(module_.name));
    out.u32(static_cast<uint32_t>(module_.tapes.size()));
    for (const Tape& tape : module_.tapes) {
      out.u32(strings_.id(tape.name));
      out.u32(tape.gradient_of);
      out.u32(static_cast<uint32_t>(tape.words.size()));
    }
    return out.take();
  }

  std::vector<std::byte> code() {
    Writer out;
    for (const Tape& tape : module_.tapes) out.raw(std::span<const uint32_t>(tape.words));
    return out.take();
  }

  std::vector<std::byte> streams() {
    Writer out;
    if (module_.streams.empty() && module_.sinks.empty()) return {};
    out.u32(static_cast<uint32_t>(module_.streams.size()));
    out.u32(static_cast<uint32_t>(module_.sinks.size()));
    for (const Stream& stream : module_.streams) {
      out.u32(strings_.id(stream.name));
      out.u32(stream.cursor);
      out.u32(static_cast<uint32_t>(stream.columns.size()));
      for (const Column& column : stream.columns) {
        out.u32(strings_.id(column.name));
        out.u32(strings_.id(column.path));
        row(out, column.dtype, column.row);
      }
    }
    for (const Sink& sink : module_.sinks) {
      out.u32(strings_.id(sink.name));
      row(out, sink.dtype, sink.row);
    }
    return out.take();
  }

  static void row(Writer& out, DType dtype, const Shape& shape) {
    type(out, dtype, shape, 0, 0);
    for (const int64_t dim : shape.dims()) out.i64(dim);
  }

  static void location(Writer& out, const Location& at) {
    const bool known = at.line != 0;
    out.u32(known ? at.file : 0);
    out.u32(at.line);
    out.u32(known ? at.column : 0);
    out.u32(known ? at.chain : 0);
  }

  [[nodiscard]] bool has_places() const {
    const auto known = [](const auto& item) { return item.location.line != 0; };
    return !module_.files.empty() || !module_.chains.empty() ||
           std::any_of(module_.tensors.begin(), module_.tensors.end(), known) ||
           std::any_of(module_.streams.begin(), module_.streams.end(), known) ||
           std::any_of(module_.sinks.begin(), module_.sinks.end(), known) ||
           std::any_of(module_.tapes.begin(), module_.tapes.end(),
                       [&](const Tape& tape) { return known(tape) || !tape.lines.empty(); });
  }

  std::vector<std::byte> line_map() {
    if (!has_places()) return {};
    Writer out;
    out.u32(static_cast<uint32_t>(module_.files.size()));
    for (const std::string& file : module_.files) out.u32(strings_.id(file));
    out.u32(static_cast<uint32_t>(module_.chains.size()));
    for (const ChainLink& link : module_.chains) {
      location(out, link.at);
      out.u32(strings_.id(link.what));
    }
    for (const Tensor& tensor : module_.tensors) location(out, tensor.location);
    for (const Stream& stream : module_.streams) location(out, stream.location);
    for (const Sink& sink : module_.sinks) location(out, sink.location);
    for (const Tape& tape : module_.tapes) {
      location(out, tape.location);
      out.u32(static_cast<uint32_t>(tape.lines.size()));
      for (const LineEntry& line : tape.lines) {
        out.u32(line.word);
        location(out, line.location);
      }
    }
    return out.take();
  }

  std::vector<std::byte> metadata() {
    Writer out;
    if (module_.metadata.empty()) return {};
    out.u32(static_cast<uint32_t>(module_.metadata.size()));
    for (const auto& [key, value] : module_.metadata) {
      out.u32(strings_.id(key));
      out.u32(strings_.id(value));
    }
    return out.take();
  }

  void extras() {
    const size_t known = parts_.sections.size();
    for (const auto& [kind, bytes] : module_.extra_sections) {
      if (kind <= kLastKind) throw Error(Code::Invalid, fmt::format("extra section has the known kind {}", kind));
      parts_.sections.push_back({kind, bytes, 0, 0});
    }
    const auto first = parts_.sections.begin() + static_cast<ptrdiff_t>(known);
    const auto less = [](const Parts::Section& a, const Parts::Section& b) { return a.kind < b.kind; };
    std::stable_sort(first, parts_.sections.end(), less);
    const auto same = [](const Parts::Section& a, const Parts::Section& b) { return a.kind == b.kind; };
    const auto twice = std::adjacent_find(first, parts_.sections.end(), same);
    if (twice != parts_.sections.end())
      throw Error(Code::Invalid, fmt::format("two extra sections of kind {}", twice->kind));
  }

  /// Gives every section and blob its offset.
  void place() {
    uint64_t end = kHeaderBytes + kEntryBytes * parts_.sections.size();
    for (Parts::Section& section : parts_.sections) {
      section.offset = align_up(end, kSectionAlignment);
      end = section.offset + section.bytes.size();
      if (section.kind == kData) {
        for (const Blob* blob : parts_.blobs) {
          end = align_up(end, blob_alignment(blob->bytes.size()));
          parts_.blob_offsets.push_back(end);
          end += blob->bytes.size();
        }
      }
      section.size = end - section.offset;
    }
    parts_.file_bytes = end;
    for (Parts::Section& section : parts_.sections)
      if (section.kind == kTensors)
        for (size_t i = 0; i < parts_.blobs.size(); ++i)
          std::memcpy(section.bytes.data() + blob_table_ + kEntryBytes * i, &parts_.blob_offsets[i], sizeof(uint64_t));
  }

  void head(uint32_t producer) {
    Writer out;
    out.raw(kMagic);
    out.u16(kMajor);
    out.u16(std::max(kMinor, module_.minor));
    out.u32(static_cast<uint32_t>(kHeaderBytes));
    out.u64(parts_.file_bytes);
    out.u32(static_cast<uint32_t>(parts_.sections.size()));
    out.u32(0);
    out.u64(0);
    out.u32(producer);
    out.zeros(kHeaderBytes - out.size());
    for (const Parts::Section& section : parts_.sections) {
      out.u32(section.kind);
      out.u32(flags_of(section.kind));
      out.u64(section.offset);
      out.u64(section.size);
    }
    parts_.head = out.take();
    std::vector<std::span<const std::byte>> pieces{parts_.head};
    for (const Parts::Section& section : parts_.sections) pieces.push_back(section.bytes);
    const uint64_t hash = hash_pieces(pieces);
    std::memcpy(parts_.head.data() + kHashOffset, &hash, sizeof hash);
  }

  const Module& module_;
  bool rehash_;
  Interner strings_;
  Parts parts_;
  size_t blob_table_ = 0;  // in the tensors section
};

/// Calls visit(tape, first word, count, attribute) for every command with a string attribute.
template <class Visit>
void for_each_string(const Module& module, Visit&& visit) {
  for (size_t t = 0; t < module.tapes.size(); ++t) {
    const std::span<const uint32_t> words = module.tapes[t].words;
    for_each_item(words, [&](size_t at, size_t count) {
      const OpInfo* op = find_op(static_cast<uint16_t>(words[at]));
      if (op == nullptr) return;
      for (size_t i = 0; i < op->attributes().size(); ++i) {
        if (op->attributes()[i].type != AttrType::String) continue;
        const Decoded decoded = decode(words.subspan(at, count), module);
        if (decoded.command && decoded.command->attrs[i].present) visit(t, at, *decoded.command, i);
      }
    });
  }
}

/// The module with its attribute strings numbered by first use and the unused ones gone.
Module with_canonical_strings(Module module) {
  std::vector<std::string> strings;
  std::unordered_map<std::string, uint32_t> ids;
  struct Change {
    size_t tape, word;
    Command command;
  };
  std::vector<Change> changes;
  for_each_string(module, [&](size_t tape, size_t word, const Command& command, size_t attribute) {
    const std::string& text = module.strings[static_cast<size_t>(command.attrs[attribute].i)];
    const auto [at, fresh] = ids.try_emplace(text, static_cast<uint32_t>(strings.size()));
    if (fresh) strings.push_back(text);
    changes.push_back({tape, word, command});
    changes.back().command.attrs[attribute].i = at->second;
  });
  for (const Change& change : changes) {
    std::vector<uint32_t> words;
    std::string reason;
    if (!encode(change.command, module, words, reason)) throw Error(Code::Internal, reason);
    std::copy(words.begin(), words.end(),
              module.tapes[change.tape].words.begin() + static_cast<ptrdiff_t>(change.word));
  }
  module.strings = std::move(strings);
  return module;
}

}  // namespace

Parts build_parts(const Module& module, bool rehash) {
  return Builder(module, rehash).build();
}

bool has_canonical_strings(const Module& module) {
  std::unordered_map<std::string_view, size_t> known;
  for (const std::string& text : module.strings)
    if (!known.try_emplace(text, known.size()).second) return false;
  int64_t next = 0;
  bool ordered = true;
  for_each_string(module, [&](size_t, size_t, const Command& command, size_t attribute) {
    const int64_t id = command.attrs[attribute].i;
    if (id > next) ordered = false;
    next = std::max(next, id + 1);
  });
  return ordered && next == static_cast<int64_t>(module.strings.size());
}

}  // namespace container

std::vector<std::byte> encode_module(const Module& module) {
  if (!container::has_canonical_strings(module)) return encode_module(container::with_canonical_strings(module));
  const container::Parts parts = container::build_parts(module, true);
  std::vector<std::byte> file(parts.file_bytes);
  std::copy(parts.head.begin(), parts.head.end(), file.begin());
  for (const container::Parts::Section& section : parts.sections)
    std::copy(section.bytes.begin(), section.bytes.end(), file.begin() + static_cast<ptrdiff_t>(section.offset));
  for (size_t i = 0; i < parts.blobs.size(); ++i) {
    const std::span<const std::byte> bytes = parts.blobs[i]->bytes;
    std::copy(bytes.begin(), bytes.end(), file.begin() + static_cast<ptrdiff_t>(parts.blob_offsets[i]));
  }
  return file;
}

uint64_t hash_of(const Module& module) {
  const container::Parts parts = container::build_parts(module, false);
  uint64_t hash = 0;
  std::memcpy(&hash, parts.head.data() + container::kHashOffset, sizeof hash);
  return hash;
}

}  // namespace tape
