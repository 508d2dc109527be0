// The container both ways, and every kind of damage: whatever is done to a file, decode_module answers with the module
// or a message, and a module that it accepts encodes to the same bytes.
#include "vm/container.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <random>

#include "tests/vm/sample_module.h"
#include "vm/container_format.h"
#include "vm/error.h"
#include "vm/io/files.h"

namespace tape {
namespace {

using Bytes = std::vector<std::byte>;
using test::read_back;
using test::sample_module;

template <class T>
T at(const Bytes& file, size_t offset) {
  T value;
  std::memcpy(&value, file.data() + offset, sizeof value);
  return value;
}
template <class T>
void put(Bytes& file, size_t offset, T value) {
  std::memcpy(file.data() + offset, &value, sizeof value);
}

struct Row {
  uint32_t kind, flags;
  uint64_t offset, size;
};
std::vector<Row> table_of(const Bytes& file) {
  std::vector<Row> rows(at<uint32_t>(file, 24));
  std::memcpy(rows.data(), file.data() + 64, rows.size() * sizeof(Row));
  return rows;
}
Row section_of(const Bytes& file, uint32_t kind) {
  for (const Row& row : table_of(file))
    if (row.kind == kind) return row;
  return {};
}

/// Makes the header hash right again after a change, so that the change itself is what decode judges.
void rehash(Bytes& file) {
  put<uint64_t>(file, 32, 0);
  const std::span<const std::byte> all(file);
  std::vector<std::span<const std::byte>> pieces{all.first(64 + 24 * table_of(file).size())};
  for (const Row& row : table_of(file))
    if (row.kind != container::kData) pieces.push_back(all.subspan(row.offset, row.size));
  put(file, 32, container::hash_pieces(pieces));
}

std::string message_of(const Bytes& file) {
  std::string text;
  EXPECT_FALSE(read_back(file, &text));
  EXPECT_TRUE(text.starts_with("error: ") && text.ends_with("\n")) << text;
  return text.size() > 8 ? text.substr(7, text.size() - 8) : text;
}

TEST(Container, GivesBackEveryField) {
  const Module module = sample_module();
  std::string text;
  const std::optional<Module> back = read_back(encode_module(module), &text);
  ASSERT_TRUE(back) << text;
  EXPECT_EQ(text, "");
  EXPECT_EQ(back->name, module.name);
  EXPECT_EQ(back->producer, module.producer);
  std::vector<Tensor> tensors = module.tensors;
  tensors[3].blob = 0;  // blobs are numbered by the tensors that use them
  tensors[7].blob = 1;
  EXPECT_EQ(back->tensors, tensors);
  EXPECT_EQ(back->streams, module.streams);
  EXPECT_EQ(back->sinks, module.sinks);
  EXPECT_EQ(back->tapes, module.tapes);
  EXPECT_EQ(back->strings, module.strings);
  EXPECT_EQ(back->files, module.files);
  EXPECT_EQ(back->chains, module.chains);
  EXPECT_EQ(back->metadata, module.metadata);
  EXPECT_EQ(back->extra_sections, module.extra_sections);
  ASSERT_EQ(back->blobs.size(), 2u);
  EXPECT_TRUE(std::ranges::equal(back->blobs[0].bytes, module.blobs[1].bytes));
  EXPECT_TRUE(back->blobs[1].bytes.empty());
  EXPECT_TRUE(back->blobs[0].checked);
}

TEST(Container, DecodeThenEncodeIsIdentity) {
  for (const bool big : {false, true}) {
    const Bytes file = encode_module(sample_module(big));
    const std::optional<Module> module = read_back(file);
    ASSERT_TRUE(module);
    EXPECT_EQ(encode_module(*module), file);
    EXPECT_EQ(hash_of(*module), at<uint64_t>(file, 32));
  }
  EXPECT_TRUE(read_back(encode_module(Module{})));
}

TEST(Container, LaysOutSectionsAndBlobsAligned) {
  const Bytes small = encode_module(sample_module());
  EXPECT_EQ(std::memcmp(small.data(), "\x89TAPE\r\n\x1a", 8), 0);
  EXPECT_EQ(at<uint64_t>(small, 16), small.size());
  uint32_t last = 0;
  for (const Row& row : table_of(small)) {
    EXPECT_EQ(row.offset % 64, 0u);
    EXPECT_GT(row.kind, last);
    last = row.kind;
  }
  // The directory of blobs ends the tensors section: offset, size, hash of each.
  const Row tensors = section_of(small, container::kTensors);
  EXPECT_EQ(at<uint64_t>(small, tensors.offset + tensors.size - 48) % 256, 0u);
  EXPECT_EQ(at<uint64_t>(small, tensors.offset + tensors.size - 40), 8u);
  const Bytes big = encode_module(sample_module(true));
  const Row weights = section_of(big, container::kTensors);
  EXPECT_EQ(at<uint64_t>(big, weights.offset + weights.size - 48) % 4096, 0u);
}

TEST(Container, NumbersAttributeStringsByFirstUse) {
  Module module = sample_module();
  module.strings = {"unused", "loss", "grad", "loss"};
  std::vector<uint32_t>& words = module.tapes[0].words;
  // ADD takes 5 words, each TRACE 5: the label is the last of them.
  words[9] = 2;
  words[14] = 3;
  const std::optional<Module> back = read_back(encode_module(module));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->strings, (std::vector<std::string>{"grad", "loss"}));
  EXPECT_EQ(back->tapes[0].words[9], 0u);
  EXPECT_EQ(back->tapes[0].words[14], 1u);
}

TEST(Container, KeepsWordsItDoesNotKnow) {
  Module module = sample_module();
  module.tapes[1].words = {2u << 16 | 0xFFFFu, 5, 0, 1, 2};
  module.tapes[1].lines.clear();
  const Bytes file = encode_module(module);
  const std::optional<Module> back = read_back(file);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->tapes[1].words, module.tapes[1].words);
  EXPECT_EQ(encode_module(*back), file);
}

TEST(Damage, TruncatedAtEveryByte) {
  const Bytes file = encode_module(sample_module());
  for (size_t n = 0; n < file.size(); ++n) {
    const std::string message = message_of({file.begin(), file.begin() + static_cast<ptrdiff_t>(n)});
    EXPECT_NE(message.find(n == 0 ? "the file is empty" : "the file is truncated"), std::string::npos)
        << n << ": " << message;
  }
}

TEST(Damage, OneFlippedBitAnywhere) {
  const Bytes file = encode_module(sample_module());
  for (size_t i = 0; i < file.size() * 8; ++i) {
    Bytes bad = file;
    bad[i / 8] ^= static_cast<std::byte>(1u << i % 8);
    EXPECT_FALSE(message_of(bad).empty()) << "byte " << i / 8;
  }
}

TEST(Damage, OneChangedByteAnywhere) {
  const Bytes file = encode_module(sample_module());
  for (size_t i = 0; i < file.size(); ++i)
    for (const int value : {0x00, 0xFF, 0x0A, 0x0D}) {
      Bytes bad = file;
      if (bad[i] == static_cast<std::byte>(value)) continue;
      bad[i] = static_cast<std::byte>(value);
      EXPECT_FALSE(message_of(bad).empty()) << "byte " << i;
    }
}

// With the hash made right again, a change is either refused for what it is or accepted as another canonical file.
TEST(Damage, ForgedFilesAreRefusedOrCanonical) {
  const Bytes file = encode_module(sample_module());
  const uint64_t edges[] = {0, 1, 0xFF, 0xFFFF, 0xFFFFFFFFull, 0x7FFFFFFFull, 0x8000000000000000ull, ~0ull};
  std::mt19937_64 random(11);
  int accepted = 0;
  const auto judge = [&](Bytes& bad) {
    std::string text;
    const std::optional<Module> module = read_back(bad, &text);
    ASSERT_NE(module.has_value(), text.starts_with("error"));
    if (!module) return;
    ++accepted;
    ASSERT_EQ(encode_module(*module), bad);
  };
  for (size_t offset = 64; offset + 8 <= file.size(); ++offset) {
    for (int i = 0; i < 5; ++i) {
      Bytes bad = file;
      const uint64_t value = i < 4 ? edges[(offset + static_cast<size_t>(i)) % std::size(edges)] : random();
      if (offset % 2 == 0)
        put(bad, offset, static_cast<uint32_t>(value));
      else
        put(bad, offset, static_cast<uint8_t>(value));
      const std::vector<Row> rows = table_of(bad);
      const bool inside = std::ranges::all_of(
          rows, [&](const Row& row) { return row.offset <= bad.size() && row.size <= bad.size() - row.offset; });
      if (inside) rehash(bad);
      judge(bad);
    }
  }
  EXPECT_GT(accepted, 0);
}

Bytes replaced(const Bytes& file, std::string_view from, std::string_view to) {
  std::string text(reinterpret_cast<const char*>(file.data()), file.size());
  for (size_t i = 0; (i = text.find(from, i)) != std::string::npos; i += to.size()) text.replace(i, from.size(), to);
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

TEST(Damage, TextModeAndSwapsAreToldApart) {
  const Bytes file = encode_module(sample_module());
  EXPECT_EQ(message_of(replaced(file, "\r\n", "\n")), "the file was damaged by a text-mode transfer: CR LF became LF");
  EXPECT_EQ(message_of(replaced(file, "\n", "\r\n")), "the file was damaged by a text-mode transfer: LF became CR LF");
  EXPECT_EQ(message_of(replaced(file, "\n", "\r")),
            "the file was damaged by a text-mode transfer: line ends were translated");
  EXPECT_EQ(message_of(replaced(file, "\x89", "\x09")),
            "the file was damaged by a text-mode transfer: the top bit of every byte is gone");
  EXPECT_EQ(message_of(replaced(file, "\x89", "\xC2\x89")),
            "the file was damaged by a text-mode transfer: bytes were re-encoded as UTF-8");
  const std::pair<size_t, std::string_view> swaps[] = {{2, "pairs"}, {4, "fours"}, {8, "eights"}};
  for (const auto& [width, word] : swaps) {
    Bytes swapped = file;
    swapped.resize((file.size() + 7) / 8 * 8);
    for (size_t i = 0; i < swapped.size(); i += width)
      std::reverse(swapped.begin() + static_cast<ptrdiff_t>(i), swapped.begin() + static_cast<ptrdiff_t>(i + width));
    EXPECT_EQ(message_of(swapped), "the bytes of the file are swapped in " + std::string(word));
    EXPECT_TRUE(looks_like_container(swapped));
  }
  const std::string text = ".tape main\n.end\n";
  const auto bytes = std::as_bytes(std::span(text));
  EXPECT_FALSE(looks_like_container(bytes));
  EXPECT_EQ(message_of({bytes.begin(), bytes.end()}), "not a tape container (it does not begin with \\x89TAPE)");
  EXPECT_TRUE(looks_like_container(file));
  EXPECT_TRUE(looks_like_container(std::span(file).first(1)));
}

TEST(Versions, NewerMajorIsRefusedNewerMinorIsReadWithAWarning) {
  Bytes major = encode_module(sample_module());
  put<uint16_t>(major, 8, 2);
  EXPECT_EQ(message_of(major), "container version 2.0 is newer than this program, which reads 1.0");
  put<uint16_t>(major, 8, 0);
  EXPECT_EQ(message_of(major), "container version 0.0 was never released");
  Bytes minor = encode_module(sample_module());
  put<uint16_t>(minor, 10, 9);
  rehash(minor);
  std::string text;
  const std::optional<Module> module = read_back(minor, &text);
  ASSERT_TRUE(module);
  EXPECT_EQ(text, "warning: container version 1.9 is newer than 1.0: it can be read, not played\n");
  EXPECT_EQ(module->minor, 9);
  EXPECT_EQ(encode_module(*module), minor);
}

TEST(Versions, UnknownSectionsAreKeptUnlessTheyMustBeKnown) {
  Bytes file = encode_module(sample_module());
  const std::vector<Row> rows = table_of(file);
  ASSERT_EQ(rows[rows.size() - 2].kind, 77u);
  put<uint32_t>(file, 64 + 24 * (rows.size() - 2) + 4, 1);
  rehash(file);
  EXPECT_EQ(message_of(file),
            "section kind 77 must be understood to read this file, which is of version 1.0; this program reads 1.0");
}

TEST(Canonical, RefusesPaddingOrderAndHashes) {
  const Bytes file = encode_module(sample_module());
  Bytes tail = file;
  tail.push_back(std::byte{0});
  EXPECT_EQ(message_of(tail), "1 bytes after the end of the container");
  const Row strings = section_of(file, container::kStrings);
  Bytes padding = file;
  padding[strings.offset + strings.size] = std::byte{1};
  EXPECT_EQ(message_of(padding), "bytes between the parts of the file are not zero");
  const Row tensors = section_of(file, container::kTensors);
  Bytes blob = file;
  blob[at<uint64_t>(file, tensors.offset + tensors.size - 48)] ^= std::byte{1};
  EXPECT_NE(message_of(blob).find("the data of tensor table is damaged"), std::string::npos);
  Bytes flags = file;
  put<uint64_t>(flags, 28, 1);
  EXPECT_EQ(message_of(flags), "feature bits 0x1 are unknown");
}

TEST(Blobs, TrustingReadsLeaveTheHashForLater) {
  Bytes file = encode_module(sample_module(true));
  const Row data = section_of(file, container::kData);
  std::string text;
  std::optional<Module> module = read_back(file, &text, true);
  ASSERT_TRUE(module);
  EXPECT_FALSE(module->blobs[0].checked);
  EXPECT_EQ(encode_module(*module), file);
  file[data.offset + data.size - 1] ^= std::byte{1};
  module = read_back(file, &text, true);
  ASSERT_TRUE(module);
  Diagnostics diagnostics;
  check_blobs(*module, diagnostics);
  EXPECT_EQ(diagnostics.errors(), 1u);
  EXPECT_NE(diagnostics.text().find("data of table is damaged"), std::string::npos);
}

TEST(Files, MappedAndReadBytesAreEqual) {
  const std::string path = (std::filesystem::path(testing::TempDir()) / "container_test.tbc").string();
  const Bytes file = encode_module(sample_module(true));
  io::write_file(path, std::span<const std::byte>(file));
  for (const bool map : {false, true}) {
    const FileBytes opened = open_bytes(path, map);
    EXPECT_TRUE(std::ranges::equal(opened.bytes, file));
    Diagnostics diagnostics;
    const std::optional<Module> module = decode_module(opened.bytes, opened.keep, map, diagnostics);
    ASSERT_TRUE(module) << diagnostics.text();
    EXPECT_EQ(module->blobs[0].checked, !map);
  }
  std::filesystem::remove(path);
  EXPECT_THROW(static_cast<void>(open_bytes(path, true)), Error);
}

TEST(Limits, TooManyRecordsAreNamed) {
  Module module;
  module.streams.resize(1);
  module.streams[0].name = "s";
  module.streams[0].columns.resize(65);
  try {
    static_cast<void>(encode_module(module));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::Limit);
    EXPECT_STREQ(error.what(), "65 columns in s, max_columns is 64");
  }
}

}  // namespace
}  // namespace tape
