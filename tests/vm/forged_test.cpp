// Containers forged with a right hash: whatever the decoder accepts, the text can say. asm(dis(b)) == b to the byte,
// also for modules that the verifier refuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "assembler/assembler.h"
#include "tests/vm/sample_module.h"
#include "vm/container_format.h"

namespace tape {
namespace {

using Bytes = std::vector<std::byte>;

template <class T>
void put(Bytes& file, size_t offset, T value) {
  std::memcpy(file.data() + offset, &value, sizeof value);
}

struct Row {
  uint32_t kind, flags;
  uint64_t offset, size;
};

/// Makes the header hash right; false when the section table points outside the file.
bool rehash(Bytes& file) {
  uint32_t sections = 0;
  std::memcpy(&sections, file.data() + 24, sizeof sections);
  std::vector<Row> rows(sections);
  std::memcpy(rows.data(), file.data() + 64, rows.size() * sizeof(Row));
  put<uint64_t>(file, 32, 0);
  const std::span<const std::byte> all(file);
  std::vector<std::span<const std::byte>> pieces{all.first(64 + 24 * rows.size())};
  for (const Row& row : rows) {
    if (row.offset > file.size() || row.size > file.size() - row.offset) return false;
    if (row.kind != container::kData) pieces.push_back(all.subspan(row.offset, row.size));
  }
  put(file, 32, container::hash_pieces(pieces));
  return true;
}

/// One to three words or bytes changed behind the header, to edge values half of the time.
void forge(Bytes& file, std::mt19937_64& random) {
  constexpr uint64_t kEdges[] = {0, 1, 2, 3, 5, 7, 8, 9, 0xFF, ~0ull, 0x7FFFFFFF, 0x80000000};
  for (uint64_t n = 1 + random() % 3; n > 0; --n) {
    const size_t at = 64 + random() % (file.size() - 64);
    const uint64_t value = random() % 2 == 0 ? random() : kEdges[random() % std::size(kEdges)];
    if (random() % 2 == 0)
      put(file, std::min(at, file.size() - 4), static_cast<uint32_t>(value));
    else
      put(file, at, static_cast<uint8_t>(value));
  }
}

class Forged : public testing::TestWithParam<uint64_t> {};

TEST_P(Forged, AcceptedFilesHaveOneText) {
  const Bytes good = encode_module(test::sample_module());
  std::mt19937_64 random(GetParam());
  int accepted = 0;
  for (int i = 0; i < 4000; ++i) {
    Bytes file = good;
    forge(file, random);
    if (!rehash(file)) continue;
    const std::optional<Module> module = test::read_back(file);
    if (!module) continue;
    ++accepted;
    const std::string text = disassemble(*module).text;
    Diagnostics diagnostics;
    const std::optional<Assembly> again = assemble(text, "<text>", {}, diagnostics);
    ASSERT_TRUE(again) << diagnostics.text() << text;
    ASSERT_EQ(encode_module(again->module), file) << text;
  }
  EXPECT_GT(accepted, 50);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Forged, testing::Values(1, 2, 3, 4));

}  // namespace
}  // namespace tape
