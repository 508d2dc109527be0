// Bytes -> Module. Every id, offset, size and count is checked in 64 bits before it is used; what is accepted is
// exactly what encode_module writes, so decode then encode gives the same bytes.
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <unordered_set>

#include "vm/command_buffer.h"
#include "vm/container.h"
#include "vm/container_format.h"

namespace tape {
namespace {

using namespace container;

/// The first thing found wrong. Thrown inside this file only; decode_module makes a diagnostic of it.
struct Damage {
  std::string message;
};

template <class... Args>
[[noreturn]] void damaged(fmt::format_string<Args...> format, Args&&... args) {
  throw Damage{fmt::format(format, std::forward<Args>(args)...)};
}

std::string_view section_name(uint32_t kind) {
  constexpr std::string_view kNames[] = {"",        "strings", "tensors",  "tapes",   "code",
                                         "streams", "data",    "line map", "metadata"};
  return kind <= kLastKind ? kNames[kind] : "unknown";
}

/// Reads little-endian values; running out is damage that names the section.
class Reader {
 public:
  Reader(std::span<const std::byte> bytes, std::string_view name) : bytes_(bytes), name_(name) {}

  uint8_t u8() { return number<uint8_t>(); }
  uint16_t u16() { return number<uint16_t>(); }
  uint32_t u32() { return number<uint32_t>(); }
  uint64_t u64() { return number<uint64_t>(); }
  int64_t i64() { return static_cast<int64_t>(number<uint64_t>()); }
  std::span<const std::byte> take(uint64_t n) {
    if (n > left()) damaged("section {}: ends {} bytes early", name_, n - left());
    const std::span<const std::byte> piece = bytes_.subspan(at_, n);
    at_ += n;
    return piece;
  }
  /// A count of records of at least `bytes` bytes each: refused when they cannot be there, before anything is
  /// allocated.
  uint32_t count(uint64_t bytes, int64_t limit, std::string_view what) {
    const uint32_t n = u32();
    if (n > static_cast<uint64_t>(limit)) damaged("section {}: {} {}, the limit is {}", name_, n, what, limit);
    if (n * bytes > left()) damaged("section {}: {} {} in {} bytes", name_, n, what, left());
    return n;
  }
  [[nodiscard]] uint64_t left() const { return bytes_.size() - at_; }
  void finish() const {
    if (left() != 0) damaged("section {}: {} bytes after its end", name_, left());
  }

 private:
  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::span<const std::byte> bytes_;
  std::string_view name_;
  size_t at_ = 0;
};

bool is_name(std::string_view name) {
  if (name.empty() || name.size() > static_cast<size_t>(limits::max_name)) return false;
  for (size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    const bool letter = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
    const bool later = (c >= '0' && c <= '9') || c == '.';
    if (!letter && (i == 0 || !later)) return false;
  }
  return name != "inf" && name != "nan" && name != "min" && name != "max";
}

bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t more = lead < 0x80                   ? 0
                        : lead >= 0xC2 && lead < 0xE0 ? 1
                        : lead >= 0xE0 && lead < 0xF0 ? 2
                        : lead >= 0xF0 && lead < 0xF5 ? 3
                                                      : 9;
    if (more >= text.size() - i) return false;
    uint32_t point = more == 0 ? lead : lead & (0x3Fu >> more);
    for (size_t j = 1; j <= more; ++j) {
      const auto next = static_cast<unsigned char>(text[i + j]);
      if ((next & 0xC0u) != 0x80u) return false;
      point = point << 6 | (next & 0x3Fu);
    }
    const bool overlong = (more == 2 && point < 0x800) || (more == 3 && point < 0x10000);
    if (overlong || point > 0x10FFFF || (point >= 0xD800 && point < 0xE000)) return false;
    i += more + 1;
  }
  return true;
}

/// What the first bytes say about a file that does not begin with the magic.
std::string magic_damage(std::string_view file) {
  const auto begins = [&](std::string_view prefix) { return file.starts_with(prefix); };
  const std::string text = "the file was damaged by a text-mode transfer: ";
  if (begins("\x89TAPE\n")) return text + "CR LF became LF";
  if (begins("\x89TAPE\r\r\n")) return text + "LF became CR LF";
  if (begins("\x89TAPE\r")) return text + "line ends were translated";
  if (begins("\x09TAPE")) return text + "the top bit of every byte is gone";
  if (begins("\xC2\x89TAPE") || begins("\xEF\xBF\xBDTAPE")) return text + "bytes were re-encoded as UTF-8";
  if (begins("T\x89PA")) return "the bytes of the file are swapped in pairs";
  if (begins("PAT\x89")) return "the bytes of the file are swapped in fours";
  if (begins("\x1a\n\rE")) return "the bytes of the file are swapped in eights";
  return "not a tape container (it does not begin with \\x89TAPE)";
}

struct Section {
  uint32_t kind = 0;
  uint64_t offset = 0;
  std::span<const std::byte> bytes;
};

class ModuleDecoder {
 public:
  ModuleDecoder(std::span<const std::byte> file, std::shared_ptr<const void> keep, bool trust)
      : file_(file), keep_(std::move(keep)), trust_(trust) {}

  Module decode() {
    header();
    table();
    check_hash();
    strings();
    for_section(kTapes, [&](Reader& in) { tapes(in); });
    for_section(kTensors, [&](Reader& in) { tensors(in); });
    code();
    for_section(kStreams, [&](Reader& in) { streams(in); });
    for_section(kLineMap, [&](Reader& in) { line_map(in); });
    for_section(kMetadata, [&](Reader& in) { metadata(in); });
    module_.producer = string(producer_);
    check_names();
    check_canonical();
    return std::move(module_);
  }

 private:
  void header() {
    const std::string_view text(reinterpret_cast<const char*>(file_.data()), file_.size());
    if (text.empty()) damaged("the file is empty");
    if (!text.starts_with(kMagic)) {
      if (kMagic.starts_with(text)) damaged("the file is truncated: {} bytes, the header alone has 64", text.size());
      throw Damage{magic_damage(text)};
    }
    if (text.size() < 12) damaged("the file is truncated: {} bytes, the header alone has 64", text.size());
    Reader in(file_.first(std::min<size_t>(file_.size(), kHeaderBytes)), "header");
    in.take(kMagic.size());
    module_.major = in.u16();
    module_.minor = in.u16();
    // A header may grow in a later version, so versions are told before anything else is believed.
    if (module_.major < kMajor) damaged("container version {}.{} was never released", module_.major, module_.minor);
    if (module_.major > kMajor)
      damaged("container version {}.{} is newer than this program, which reads {}.{}", module_.major, module_.minor,
              kMajor, kMinor);
    if (file_.size() < kHeaderBytes) damaged("the file is truncated: {} bytes, the header alone has 64", file_.size());
    if (const uint32_t bytes = in.u32(); bytes != kHeaderBytes)
      damaged("the header says it has {} bytes, not 64", bytes);
    const uint64_t size = in.u64();
    if (size > file_.size()) damaged("the file is truncated: {} bytes of {}", file_.size(), size);
    if (size < file_.size()) damaged("{} bytes after the end of the container", file_.size() - size);
    sections_wanted_ = in.u32();
    if (const uint32_t features = in.u32(); features != 0) damaged("feature bits {:#x} are unknown", features);
    hash_ = in.u64();
    producer_ = in.u32();
    zeros(in.take(in.left()), "the header");
  }

  static void zeros(std::span<const std::byte> bytes, std::string_view where) {
    if (std::any_of(bytes.begin(), bytes.end(), [](std::byte b) { return b != std::byte{0}; }))
      damaged("bytes between the parts of {} are not zero", where);
  }

  void table() {
    const uint64_t table_bytes = kEntryBytes * uint64_t{sections_wanted_};
    if (table_bytes > file_.size() - kHeaderBytes) damaged("{} sections do not fit the file", sections_wanted_);
    Reader in(file_.subspan(kHeaderBytes, table_bytes), "table");
    uint64_t end = kHeaderBytes + table_bytes;
    for (uint32_t i = 0; i < sections_wanted_; ++i) {
      const uint32_t kind = in.u32();
      const uint32_t flags = in.u32();
      const uint64_t offset = in.u64();
      const uint64_t size = in.u64();
      if (kind == 0) damaged("section {} has kind 0", i);
      if (!sections_.empty() && kind <= sections_.back().kind)
        damaged("section {} ({}) is out of order or there twice", kind, section_name(kind));
      if (kind > kLastKind && (flags & kMustKnow) != 0)
        damaged(
            "section kind {} must be understood to read this file, which is of version {}.{}; this program reads {}.{}",
            kind, module_.major, module_.minor, kMajor, kMinor);
      if (flags != flags_of(kind))
        damaged("section {} ({}) has flags {:#x}, not {:#x}", kind, section_name(kind), flags, flags_of(kind));
      if (offset != align_up(end, kSectionAlignment))
        damaged("section {} ({}) starts at byte {}, not at {}", kind, section_name(kind), offset,
                align_up(end, kSectionAlignment));
      if (offset > file_.size() || size > file_.size() - offset)
        damaged("section {} ({}) runs past the end of the file", kind, section_name(kind));
      zeros(file_.subspan(end, offset - end), "the file");
      sections_.push_back({kind, offset, file_.subspan(offset, size)});
      end = offset + size;
    }
    if (end != file_.size()) damaged("{} bytes after the last section", file_.size() - end);
  }

  [[nodiscard]] const Section* find(uint32_t kind) const {
    for (const Section& section : sections_)
      if (section.kind == kind) return &section;
    return nullptr;
  }

  void check_hash() {
    std::vector<std::byte> head(file_.begin(),
                                file_.begin() + static_cast<ptrdiff_t>(kHeaderBytes + kEntryBytes * sections_.size()));
    std::fill_n(head.begin() + kHashOffset, sizeof hash_, std::byte{0});
    std::vector<std::span<const std::byte>> pieces{head};
    for (const Section& section : sections_)
      if (section.kind != kData) pieces.push_back(section.bytes);
    if (const uint64_t hash = hash_pieces(pieces); hash != hash_)
      damaged("the file is damaged: header hash {:016x}, it should be {:016x}", hash_, hash);
    for (const Section& section : sections_)
      if (section.kind > kLastKind)
        module_.extra_sections.emplace_back(section.kind,
                                            std::vector<std::byte>(section.bytes.begin(), section.bytes.end()));
  }

  template <class Read>
  void for_section(uint32_t kind, Read&& read) {
    const Section* section = find(kind);
    if (section == nullptr) return;
    Reader in(section->bytes, section_name(kind));
    read(in);
    in.finish();
  }

  void strings() {
    if (find(kStrings) == nullptr || find(kTapes) == nullptr) damaged("there is no section strings or tapes");
    for_section(kStrings, [&](Reader& in) {
      const uint32_t n = in.count(4, std::numeric_limits<uint32_t>::max(), "strings");
      const uint32_t attributes = in.u32();
      if (attributes > n) damaged("section strings: {} attribute strings of {}", attributes, n);
      Reader ends(in.take(uint64_t{n} * 4), "strings");
      const std::span<const std::byte> text = in.take(in.left());
      const std::string_view all(reinterpret_cast<const char*>(text.data()), text.size());
      uint64_t begin = 0;
      strings_.reserve(n);
      for (uint32_t i = 0; i < n; ++i) {
        const uint64_t end = ends.u32();
        if (end < begin || end > all.size()) damaged("section strings: string {} ends outside the section", i);
        strings_.push_back(all.substr(begin, end - begin));
        if (!is_utf8(strings_.back())) damaged("section strings: string {} is not UTF-8", i);
        begin = end;
      }
      if (begin != all.size()) damaged("section strings: {} bytes belong to no string", all.size() - begin);
      for (uint32_t i = 0; i < attributes; ++i) module_.strings.push_back(string(i));
    });
  }

  /// Copies a string. One string may be named often: what all copies take together is bounded by the file's size.
  std::string string(uint32_t id) {
    if (id >= strings_.size()) damaged("string id {} of {}", id, strings_.size());
    copied_ += strings_[id].size();
    if (copied_ > 16 * file_.size() + (uint64_t{1} << 20)) damaged("its strings expand to more than 16 times the file");
    return std::string(strings_[id]);
  }

  std::string name(uint32_t id, std::string_view what) {
    std::string text = string(id);
    if (!is_name(text))
      damaged("a {} is called \"{}\", which is not a name of at most {} letters, digits, _ and .", what,
              printable(text), limits::max_name);
    return text;
  }
  static std::string printable(std::string_view text) {
    std::string out;
    for (const char c : text.substr(0, 40)) out += c < ' ' || c > '~' ? '?' : c;
    return out;
  }

  void tapes(Reader& in) {
    module_.name = string(in.u32());
    const uint32_t n = in.count(12, limits::max_tapes, "tapes");
    module_.tapes.resize(n);
    for (Tape& tape : module_.tapes) {
      tape.name = name(in.u32(), "tape");
      tape.gradient_of = optional_id(in.u32(), n, "tape " + tape.name + ": gradient of tape");
      word_counts_.push_back(in.u32());
    }
  }

  static uint32_t optional_id(uint32_t id, uint64_t count, const std::string& what) {
    if (id != kNone && id >= count) damaged("{} {} of {}", what, id, count);
    return id;
  }

  void type(Reader& in, const std::string& of, DType& dtype, int& rank, uint8_t& c, uint8_t& d) {
    const uint8_t code = in.u8();
    const DTypeInfo* info = find_dtype(code);
    if (info == nullptr) damaged("{}: dtype code {} is unknown", of, code);
    dtype = info->dtype;
    rank = in.u8();
    if (rank > limits::max_rank) damaged("{}: rank {}, max_rank is {}", of, rank, limits::max_rank);
    c = in.u8();
    d = in.u8();
  }

  static Shape shape(Reader& in, int rank, const std::string& of) {
    Shape result;
    for (int i = 0; i < rank; ++i) result.push_back(in.i64());
    if (!result.checked_elements()) damaged("{}: shape {} is negative or beyond max_elements", of, result.text());
    return result;
  }

  void tensors(Reader& in) {
    const uint32_t n = in.count(48, limits::max_tensors, "tensors");
    const uint32_t blobs = in.count(kEntryBytes, limits::max_tensors, "blobs");
    module_.tensors.resize(n);
    uint32_t next_blob = 0;
    for (Tensor& tensor : module_.tensors) {
      tensor.name = name(in.u32(), "tensor");
      const std::string of = "tensor " + tensor.name;
      int rank = 0;
      uint8_t role = 0, flags = 0;
      type(in, of, tensor.dtype, rank, role, flags);
      if (role > static_cast<uint8_t>(Role::Rng)) damaged("{}: role {} is unknown", of, role);
      tensor.role = static_cast<Role>(role);
      if (flags > (kWritable | kPersistentGrad)) damaged("{}: flags {:#x} are unknown", of, flags);
      tensor.writable = (flags & kWritable) != 0;
      tensor.persistent_grad = (flags & kPersistentGrad) != 0;
      if (tensor.writable && tensor.role != Role::Extern) damaged("{}: only an extern is writable", of);
      if (tensor.persistent_grad && tensor.role != Role::Grad)
        damaged("{}: only a gradient is a persistent gradient", of);
      tensor.owner = optional_id(in.u32(), module_.tapes.size(), of + ": owner is tape");
      tensor.link = optional_id(in.u32(), n, of + ": linked to tensor");
      tensor.blob = in.u32();
      init(in, tensor.init, of);
      tensor.shape = shape(in, rank, of);
      if (tensor.blob != kNone && tensor.blob != next_blob++) damaged("{}: blob {} is out of order", of, tensor.blob);
    }
    if (next_blob != blobs) damaged("{} blobs belong to no tensor", blobs - std::min(blobs, next_blob));
    for (Tensor& tensor : module_.tensors)
      if (tensor.blob != kNone) blob(in, tensor);
    blobs_end();
  }

  static void init(Reader& in, Init& init, const std::string& of) {
    const uint32_t kind = in.u32();
    if (kind > static_cast<uint32_t>(InitKind::Seed)) damaged("{}: initialiser {} is unknown", of, kind);
    init.kind = static_cast<InitKind>(kind);
    init.a = std::bit_cast<double>(in.u64());
    init.b = std::bit_cast<double>(in.u64());
    init.seed = in.i64();
  }

  void blob(Reader& in, const Tensor& tensor) {
    const Section* data = find(kData);
    if (data == nullptr) damaged("tensor {} has data, the file has no section data", tensor.name);
    if (blob_end_ == 0) blob_end_ = data->offset;
    const uint64_t offset = in.u64();
    const uint64_t bytes = in.u64();
    const uint64_t hash = in.u64();
    if (bytes != byte_size(tensor))
      damaged("tensor {}: its data has {} bytes, {}{} needs {}", tensor.name, bytes, name_of(tensor.dtype),
              tensor.shape.text(), byte_size(tensor));
    const uint64_t wanted = align_up(blob_end_, blob_alignment(bytes));
    const uint64_t data_end = data->offset + data->bytes.size();
    if (offset != wanted || offset > data_end || bytes > data_end - offset)
      damaged("tensor {}: its data lies at byte {}, wanted {} inside section data", tensor.name, offset, wanted);
    zeros(file_.subspan(blob_end_, offset - blob_end_), "section data");
    Blob item{keep_, file_.subspan(offset, bytes), hash, !trust_};
    if (!trust_ && XXH3_64bits(item.bytes.data(), bytes) != hash)
      damaged("the data of tensor {} is damaged: its hash is not {:016x}", tensor.name, hash);
    module_.blobs.push_back(std::move(item));
    blob_end_ = offset + bytes;
  }

  void blobs_end() const {
    const Section* data = find(kData);
    if (data == nullptr) return;
    if (module_.blobs.empty()) damaged("section data without a tensor that uses it");
    if (blob_end_ != data->offset + data->bytes.size()) damaged("section data: bytes after the last tensor's data");
  }

  void code() {
    const Section* section = find(kCode);
    uint64_t words = 0;
    for (const uint32_t count : word_counts_) words += count;
    const uint64_t bytes = section == nullptr ? 0 : section->bytes.size();
    if (words * 4 != bytes) damaged("section code: {} bytes, its tapes have {} words", bytes, words);
    uint64_t at = 0;
    for (size_t i = 0; i < word_counts_.size(); ++i) {
      std::vector<uint32_t>& to = module_.tapes[i].words;
      to.resize(word_counts_[i]);
      if (!to.empty()) std::memcpy(to.data(), section->bytes.data() + at, to.size() * 4);
      at += to.size() * 4;
    }
  }

  void streams(Reader& in) {
    const uint32_t streams = in.count(12, limits::max_streams, "streams");
    const uint32_t sinks = in.count(8, limits::max_streams, "sinks");
    module_.streams.resize(streams);
    module_.sinks.resize(sinks);
    for (Stream& stream : module_.streams) {
      stream.name = name(in.u32(), "stream");
      stream.cursor = optional_id(in.u32(), module_.tensors.size(), "stream " + stream.name + ": cursor is tensor");
      stream.columns.resize(in.count(12, limits::max_columns, "columns"));
      for (Column& column : stream.columns) {
        column.name = name(in.u32(), "column");
        column.path = string(in.u32());
        row(in, "column " + stream.name + "." + column.name, column.dtype, column.row);
      }
    }
    for (Sink& sink : module_.sinks) {
      sink.name = name(in.u32(), "sink");
      row(in, "sink " + sink.name, sink.dtype, sink.row);
    }
  }

  void row(Reader& in, const std::string& of, DType& dtype, Shape& to) {
    int rank = 0;
    uint8_t c = 0, d = 0;
    type(in, of, dtype, rank, c, d);
    to = shape(in, rank, of);
  }

  Location location(Reader& in) {
    Location at;
    at.file = in.u32();
    at.line = in.u32();
    at.column = in.u32();
    at.chain = in.u32();
    if (at.line != 0 && at.file >= module_.files.size())
      damaged("line map: file {} of {}", at.file, module_.files.size());
    if (at.chain > module_.chains.size()) damaged("line map: chain {} of {}", at.chain, module_.chains.size());
    return at;
  }

  void line_map(Reader& in) {
    const uint32_t files = in.count(4, std::numeric_limits<uint32_t>::max(), "files");
    for (uint32_t i = 0; i < files; ++i) module_.files.push_back(string(in.u32()));
    const uint32_t chains = in.count(20, std::numeric_limits<uint32_t>::max(), "chains");
    for (uint32_t i = 0; i < chains; ++i) {
      // A link may only hang on an earlier one, so no chain runs in a circle.
      const Location at = location(in);
      module_.chains.push_back({at, string(in.u32())});
    }
    for (Tensor& tensor : module_.tensors) tensor.location = location(in);
    for (Stream& stream : module_.streams) stream.location = location(in);
    for (Sink& sink : module_.sinks) sink.location = location(in);
    for (Tape& tape : module_.tapes) {
      tape.location = location(in);
      lines(in, tape);
    }
  }

  void lines(Reader& in, Tape& tape) {
    const uint32_t n = in.count(20, std::numeric_limits<uint32_t>::max(), "lines");
    tape.lines.resize(n);
    size_t next = 0;
    for (LineEntry& line : tape.lines) {
      line.word = in.u32();
      line.location = location(in);
      if (line.location.line == 0) damaged("line map: tape {}: word {} has no line", tape.name, line.word);
    }
    for_each_item(tape.words, [&](size_t at, size_t) {
      if (next < n && tape.lines[next].word == at) ++next;
    });
    if (next != n) damaged("line map: tape {}: word {} begins no command", tape.name, tape.lines[next].word);
  }

  void metadata(Reader& in) {
    const uint32_t n = in.count(8, std::numeric_limits<uint32_t>::max(), "pairs");
    for (uint32_t i = 0; i < n; ++i) {
      std::string key = string(in.u32());
      module_.metadata.emplace_back(std::move(key), string(in.u32()));
    }
  }

  /// One name is one thing; privates of different tapes may share one.
  void check_names() {
    std::unordered_set<std::string_view> common;
    const auto add = [&](const std::string& text) {
      if (!common.insert(text).second) damaged("{} is declared twice", text);
    };
    for (const Tape& tape : module_.tapes) add(tape.name);
    for (const Stream& stream : module_.streams) add(stream.name);
    for (const Sink& sink : module_.sinks) add(sink.name);
    for (const Tensor& tensor : module_.tensors)
      if (tensor.owner == kNone) add(tensor.name);
    std::unordered_set<std::string> owned;
    for (const Tensor& tensor : module_.tensors) {
      if (tensor.owner == kNone) continue;
      if (common.contains(tensor.name) || !owned.insert(fmt::format("{}:{}", tensor.owner, tensor.name)).second)
        damaged("{} is declared twice", tensor.name);
    }
    for (const Stream& stream : module_.streams) {
      std::unordered_set<std::string_view> columns;
      for (const Column& column : stream.columns)
        if (!columns.insert(column.name).second) damaged("column {}.{} is declared twice", stream.name, column.name);
    }
  }

  /// Everything but data must be, byte for byte, what the encoder makes of the module.
  void check_canonical() const {
    if (!has_canonical_strings(module_)) damaged("not canonical: attribute strings are not numbered by first use");
    const Parts parts = build_parts(module_, false);
    const auto compare = [&](std::span<const std::byte> wanted, uint64_t offset, std::string_view where) {
      const std::span<const std::byte> got =
          file_.subspan(offset, std::min<uint64_t>(wanted.size(), file_.size() - offset));
      const auto at = std::mismatch(wanted.begin(), wanted.end(), got.begin(), got.end()).first - wanted.begin();
      if (static_cast<size_t>(at) != wanted.size())
        damaged("not canonical at byte {} of the file ({})", offset + static_cast<uint64_t>(at), where);
    };
    for (size_t i = 0; i < parts.sections.size(); ++i) {
      const Parts::Section& section = parts.sections[i];
      if (i >= sections_.size() || sections_[i].kind != section.kind)
        damaged("not canonical: section {} stands where {} should",
                i < sections_.size() ? section_name(sections_[i].kind) : "nothing", section_name(section.kind));
      if (section.kind != kData) compare(section.bytes, sections_[i].offset, section_name(section.kind));
    }
    if (sections_.size() != parts.sections.size())
      damaged("not canonical: section {} says nothing", section_name(sections_[parts.sections.size()].kind));
    compare(parts.head, 0, "header");
  }

  std::span<const std::byte> file_;
  std::shared_ptr<const void> keep_;
  bool trust_;
  Module module_;
  std::vector<Section> sections_;
  std::vector<std::string_view> strings_;
  std::vector<uint32_t> word_counts_;
  uint32_t sections_wanted_ = 0, producer_ = 0;
  uint64_t hash_ = 0, copied_ = 0, blob_end_ = 0;
};

}  // namespace

std::optional<Module> decode_module(std::span<const std::byte> bytes, std::shared_ptr<const void> keep,
                                    bool trust_blobs, Diagnostics& diagnostics) {
  try {
    Module module = ModuleDecoder(bytes, std::move(keep), trust_blobs).decode();
    if (module.minor > kMinor) {
      Diagnostic warning;
      warning.severity = Severity::Warning;
      warning.message = fmt::format("container version {}.{} is newer than {}.{}: it can be read, not played",
                                    module.major, module.minor, kMajor, kMinor);
      diagnostics.add(std::move(warning));
    }
    return module;
  } catch (const Damage& damage) {
    diagnostics.error(damage.message);
  }
  return std::nullopt;
}

}  // namespace tape
