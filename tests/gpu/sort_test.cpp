// Sorting, running sums and indexed sums on the card against the CPU in canonical order, to the bit, at lengths that
// take every path of the lowering, with NaN, infinities, zeros of both signs and many ties.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "assembler/assembler.h"
#include "embed/backends.h"
#include "tests/gpu/card.h"
#include "vm/machine.h"

namespace tape {
namespace {

class GpuOrder : public ::testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT_CARD(); }
};

/// Values of few kinds, so that there are ties: integers small or extreme, floats with the special ones among them.
HostArray drawn(DType dtype, Shape shape, uint64_t seed, bool special = true) {
  std::mt19937_64 random(seed);
  HostArray array{dtype, shape, {}};
  const auto count = static_cast<size_t>(shape.elements());
  array.bytes.resize(count * size_of(dtype));
  for (size_t i = 0; i < count; ++i) {
    const auto kind = random() % 16;
    double value = static_cast<double>(static_cast<int64_t>(random() % 2001) - 1000) / 64;
    uint64_t bits = random();
    if (is_float(dtype)) {
      if (special && kind == 0) value = std::numeric_limits<double>::quiet_NaN();
      if (special && kind == 1) value = random() % 2 == 0 ? HUGE_VAL : -HUGE_VAL;
      if (kind == 2) value = random() % 2 == 0 ? 0.0 : -0.0;
      std::byte wide[8];
      std::memcpy(wide, &value, 8);
      convert(wide, DType::F64, std::span(array.bytes).subspan(i * size_of(dtype), size_of(dtype)), dtype);
      continue;
    }
    if (kind < 8) bits %= 7;
    std::memcpy(array.bytes.data() + i * size_of(dtype), &bits, size_of(dtype));
  }
  return array;
}

HostArray indices(DType dtype, Shape shape, int64_t low, int64_t high, uint64_t seed) {
  std::mt19937_64 random(seed);
  HostArray array{dtype, shape, {}};
  array.bytes.resize(static_cast<size_t>(shape.elements()) * size_of(dtype));
  for (size_t i = 0; i < static_cast<size_t>(shape.elements()); ++i) {
    const int64_t value = low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low));
    std::memcpy(array.bytes.data() + i * size_of(dtype), &value, size_of(dtype));
  }
  return array;
}

using Inputs = std::vector<std::pair<std::string, HostArray>>;

/// Declares the inputs (y is a state), plays `text` on both sides and compares the bytes of every persistent tensor.
void agree(const std::string& declarations, const std::string& body, const Inputs& inputs) {
  std::string text;
  for (const auto& [name, array] : inputs)
    text += (name == "y" ? ".state " : ".input ") + name + " " + std::string(name_of(array.dtype)) +
            array.shape.text() + "\n";
  text += declarations + "\n.tape main\n  " + body + "\n.end\n";
  SCOPED_TRACE(text);
  Diagnostics diagnostics;
  const auto assembly = assemble(text, "<test>", {}, diagnostics);
  const auto verified = assembly ? verify(assembly->module, diagnostics) : std::nullopt;
  ASSERT_TRUE(verified) << diagnostics.text();
  BackendOptions canonical;
  canonical.canonical_order = true;
  Machine cpu(open_backend("cpu", canonical)), card(open_backend("cuda"));
  for (Machine* const machine : {&cpu, &card}) {
    const ModuleId id = machine->add(*verified);
    for (const auto& [name, array] : inputs) machine->load(name, array);
    machine->run(id, "main");
  }
  for (const TensorInfo& info : cpu.tensors()) {
    const HostArray a = cpu.retrieve(info.name), b = card.retrieve(info.name);
    const size_t width = size_of(a.dtype);
    ASSERT_EQ(a.bytes.size(), b.bytes.size());
    for (size_t i = 0; i < a.bytes.size(); i += width) {
      if (std::memcmp(a.bytes.data() + i, b.bytes.data() + i, width) == 0) continue;
      const std::string expected = element_text(a.bytes, a.dtype, i / width),
                        got = element_text(b.bytes, b.dtype, i / width);
      if (expected == "nan" && got == "nan") continue;  // sums: one NaN is as good as another
      ADD_FAILURE() << info.name << " at " << i / width << ": expected " << expected << ", got " << got;
      break;
    }
  }
}

constexpr DType kAll[] = {DType::F64, DType::F32, DType::F16, DType::BF16, DType::I64,
                          DType::I32, DType::I16, DType::I8,  DType::U8};

TEST_F(GpuOrder, SortsOfEveryLengthAndType) {
  struct Case {
    Shape shape;
    int axis;
  };
  const Case cases[] = {{{3, 33}, 1}, {{64}, 0},    {{65, 2}, 0},    {{2, 1'025, 3}, 1},
                        {{2'048}, 0}, {{2'049}, 0}, {{2, 5'000}, 1}, {{4'096, 2}, 0}};
  uint64_t seed = 1;
  for (const DType dtype : kAll)
    for (const Case& each : cases) {
      const std::string type = std::string(name_of(dtype)) + each.shape.text(), index = each.shape.text();
      const std::string axis = ", axis=" + std::to_string(each.axis);
      const bool falling = seed % 2 == 0;
      const std::string down = falling ? ", descending=1" : "";
      agree(".output y " + type + "\n.output a i32" + index,
            "SORT y, x" + axis + down + "\n  ARGSORT a, x" + axis + (falling ? "" : ", descending=1"),
            {{"x", drawn(dtype, each.shape, seed++)}});
    }
}

TEST_F(GpuOrder, LinesThatOnlyDigitsSort) {
  uint64_t seed = 100;
  for (const DType dtype : {DType::F32, DType::BF16, DType::U8}) {
    const Shape shape{131'073 + 4'096};
    agree(".output y " + std::string(name_of(dtype)) + shape.text() + "\n.output a i64" + shape.text(),
          "SORT y, x\n  ARGSORT a, x, descending=1, dtype=i64", {{"x", drawn(dtype, shape, seed++)}});
  }
}

TEST_F(GpuOrder, TheLargestOfLines) {
  struct Case {
    Shape shape;
    int axis;
    int64_t k;
  };
  const Case cases[] = {{{2, 33}, 1, 5},      {{3, 100}, 1, 100}, {{2'049}, 0, 1},   {{2, 10'000}, 1, 40},
                        {{4'099, 3}, 0, 256}, {{6'000}, 0, 257},  {{40'000}, 0, 200}};
  uint64_t seed = 200;
  for (const DType dtype : {DType::F64, DType::F32, DType::F16, DType::I32, DType::I8})
    for (const Case& each : cases) {
      Shape out = each.shape;
      out[each.axis] = each.k;
      agree(".output v " + std::string(name_of(dtype)) + out.text() + "\n.output i i32" + out.text(),
            "TOPK v, i, x, k=" + std::to_string(each.k) + ", axis=" + std::to_string(each.axis),
            {{"x", drawn(dtype, each.shape, seed++)}});
    }
}

TEST_F(GpuOrder, Permutations) {
  for (const char* const shape : {"[7]", "[3, 64]", "[2, 1000]", "[2, 5000]", "[140000]"})
    agree(".state r i64[2] = 11 0\n.output p i32" + std::string(shape) + "\n.output q i64" + shape,
          "RANDOM_PERMUTATION p, r\n  RANDOM_PERMUTATION q, r", {});
}

struct IndexCase {
  Shape dst;
  int axis;
  int64_t count;
  const char* bounds;
};

TEST_F(GpuOrder, WhatOnePlaceReceivesComesInOrder) {
  const IndexCase cases[] = {{{5, 3}, 0, 20, "fault"},        {{7, 20}, 0, 500, "zero"},
                             {{3, 300, 2}, 1, 1'000, "clip"}, {{2, 50, 40}, 1, 333, "zero"},
                             {{11}, 0, 6'000, "clip"},        {{70'000, 16}, 0, 100, "fault"},
                             {{2, 3}, 1, 33, "zero"},         {{1, 40, 65}, 1, 4'200, "fault"}};
  uint64_t seed = 300;
  for (const DType dtype : {DType::F32, DType::F64, DType::F16, DType::BF16, DType::I64, DType::I8, DType::U8})
    for (const IndexCase& each : cases) {
      Shape source = each.dst;
      source[each.axis] = each.count;
      const int64_t n = each.dst[each.axis], beyond = std::string(each.bounds) == "fault" ? 0 : 2;
      const DType wide = seed % 2 == 0 ? DType::I64 : DType::I32;
      const Inputs inputs = {{"y", drawn(dtype, each.dst, seed, false)},
                             {"i", indices(wide, {each.count}, -beyond, n + beyond, seed + 1)},
                             {"x", drawn(dtype, source, seed + 2, seed % 3 == 0)}};
      seed += 3;
      const std::string where = ", axis=" + std::to_string(each.axis) + ", oob=" + each.bounds;
      agree("", "SCATTER_ADD y, i, x" + where, inputs);
      agree("", "SCATTER y, i, x" + where, inputs);
      agree(".output z " + std::string(name_of(dtype)) + source.text(), "GATHER z, y, i" + where, inputs);
    }
}

TEST_F(GpuOrder, GradientsOfTakeAlong) {
  const IndexCase cases[] = {{{5, 3}, 0, 20, "fault"},
                             {{7, 20}, 0, 500, "zero"},
                             {{3, 300, 2}, 1, 1'000, "clip"},
                             {{11}, 0, 6'000, "clip"},
                             {{9, 40}, 1, 64, "fault"}};
  uint64_t seed = 500;
  for (const DType dtype : {DType::F32, DType::F64, DType::F16, DType::BF16, DType::I32, DType::I16})
    for (const IndexCase& each : cases) {
      Shape source = each.dst;
      source[each.axis] = each.count;
      const int64_t n = each.dst[each.axis], beyond = std::string(each.bounds) == "fault" ? 0 : 2;
      const DType wide = seed % 2 == 0 ? DType::I64 : DType::I32;
      agree("", "TAKE_ALONG_GRAD y, i, x, axis=" + std::to_string(each.axis) + ", oob=" + each.bounds,
            {{"y", drawn(dtype, each.dst, seed, false)},
             {"i", indices(wide, source, -beyond, n + beyond, seed + 1)},
             {"x", drawn(dtype, source, seed + 2, seed % 3 == 0)}});
      seed += 3;
    }
}

TEST_F(GpuOrder, AnIndexOutsideLeavesTheDestination) {
  const std::string text =
      ".state y f32[3, 2] = 1 2 3 4 5 6\n.input i i32[40]\n.input x f32[40, 2] ones\n"
      ".tape main\n  SCATTER_ADD y, i, x, axis=0\n.end\n";
  Diagnostics diagnostics;
  const auto assembly = assemble(text, "<test>", {}, diagnostics);
  const auto verified = assembly ? verify(assembly->module, diagnostics) : std::nullopt;
  ASSERT_TRUE(verified) << diagnostics.text();
  Machine card(open_backend("cuda"));
  card.add(*verified);
  HostArray idx = indices(DType::I32, {40}, 0, 3, 1);
  const int32_t wrong = 3;
  std::memcpy(idx.bytes.data() + 4 * 37, &wrong, 4);
  card.load("i", idx);
  EXPECT_THROW(card.run("main"), Fault);
  const HostArray y = card.retrieve("y");
  for (uint64_t i = 0; i < 6; ++i) EXPECT_EQ(element_as_f64(y.bytes, y.dtype, i), static_cast<double>(i + 1));
}

TEST_F(GpuOrder, RunningSumsAndProducts) {
  struct Case {
    Shape shape;
    int axis;
  };
  const Case cases[] = {{{31}, 0}, {{33, 3}, 0}, {{2, 1'025}, 1}, {{3, 5'000, 2}, 1}, {{70'001}, 0}, {{4, 1'024}, 1}};
  uint64_t seed = 700;
  for (const DType dtype : kAll)
    for (const Case& each : cases) {
      const std::string back = seed % 2 == 0 ? ", reverse=1" : "";
      const std::string type = std::string(name_of(dtype)) + each.shape.text(),
                        axis = ", axis=" + std::to_string(each.axis);
      const std::string wide = is_half(dtype) ? "f32" + each.shape.text() : type;
      std::string text = ".output s " + wide + "\n.output p " + type;
      std::string body =
          "CUMSUM s, x" + axis + back + "\n  CUMPROD p, x" + axis + back + "\n  CUMSUM y, x" + axis + ", acc=1";
      Inputs inputs = {{"x", drawn(dtype, each.shape, seed, seed % 3 == 0)},
                       {"y", drawn(dtype, each.shape, seed + 2, false)}};
      if (is_float(dtype)) {
        text += "\n.output d " + type;
        body += "\n  CUMPROD_GRAD d, x, g" + axis + back;
        inputs.emplace_back("g", drawn(dtype, each.shape, seed + 1, false));
      }
      agree(text, body, inputs);
      seed += 3;
    }
}

}  // namespace
}  // namespace tape
