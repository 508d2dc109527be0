// MATMUL on the card: large products (cuBLASLt, or its stand-in of the emulation) against cpu64 within the derived
// bound, small ones against the processor in canonical order to the bit, faults, binding, runs that repeat.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "assembler/assembler.h"
#include "embed/backends.h"
#include "tests/gpu/card.h"
#include "vm/compare.h"
#include "vm/error.h"
#include "vm/machine.h"
#include "vm/passes/passes.h"

namespace tape {
namespace {

VerifiedModule module_of(const std::string& text) {
  Diagnostics diagnostics;
  const std::optional<Assembly> assembly = assemble(text, "<test>", {}, diagnostics);
  if (!assembly) throw std::runtime_error(diagnostics.text());
  std::optional<VerifiedModule> verified = verify(assembly->module, diagnostics);
  if (!verified) throw std::runtime_error(diagnostics.text());
  return *std::move(verified);
}

Machine machine_on(const std::string& backend, bool canonical = false) {
  BackendOptions options;
  options.canonical_order = canonical;
  return Machine(open_backend(backend, options));
}

/// Seeded values: sums of uniform ones, near enough to a normal distribution; or whole numbers in [-2, 2].
struct Source {
  uint64_t state = 0x9E3779B97F4A7C15u;
  double uniform() {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<double>(state >> 11) * 0x1p-53;
  }
  double normal() { return (uniform() + uniform() + uniform() + uniform() - 2) * std::sqrt(3.0); }
  HostArray array(DType dtype, const Shape& shape, bool whole) {
    HostArray wide{DType::F64, shape, std::vector<std::byte>(static_cast<size_t>(shape.elements()) * 8)};
    for (int64_t i = 0; i < shape.elements(); ++i) {
      const double value = whole ? std::floor(uniform() * 5) - 2 : normal();
      std::memcpy(wide.bytes.data() + i * 8, &value, 8);
    }
    HostArray result{dtype, shape, std::vector<std::byte>(static_cast<size_t>(shape.elements()) * size_of(dtype))};
    convert(wide.bytes, DType::F64, result.bytes, dtype);
    return result;
  }
};

std::string text_of(const Shape& shape) {
  std::string text;
  for (int i = 0; i < shape.rank(); ++i) text += (text.empty() ? "" : ",") + std::to_string(shape[i]);
  return "[" + text + "]";
}

struct Case {
  const char* name;
  DType dtype = DType::F32;
  Shape a, b;
  const char* attributes = "";  // trans_a=1 ...
  DType result = DType::F32;
  bool bias = false;
  DType bias_dtype = DType::F32;
  bool aux = false;
  double alpha = 1;
  bool tf32 = false;
};

/// Everything a case declares and does; y_bound is the product of absolute values.
struct Product {
  Shape y;
  std::string text;
  std::vector<std::pair<std::string, HostArray>> inputs;

  Product(const Case& c, bool whole) {
    const std::string attributes = c.attributes;
    const bool trans_a = attributes.find("trans_a") != std::string::npos;
    const bool trans_b = attributes.find("trans_b") != std::string::npos;
    const int rank = std::max(c.a.rank(), c.b.rank());
    std::vector<int64_t> dims;
    for (int i = 0; i < rank - 2; ++i) {
      const int in_a = i - (rank - c.a.rank()), in_b = i - (rank - c.b.rank());
      dims.push_back(std::max(in_a < 0 ? 1 : c.a[in_a], in_b < 0 ? 1 : c.b[in_b]));
    }
    dims.push_back(c.a[c.a.rank() - (trans_a ? 1 : 2)]);
    dims.push_back(c.b[c.b.rank() - (trans_b ? 2 : 1)]);
    y = Shape(std::span<const int64_t>(dims));
    const auto name = [](DType dtype) { return std::string(name_of(dtype)); };
    Source source;
    const auto declare = [&](const char* tensor, DType dtype, const Shape& shape, const char* role) {
      text += fmt::format("{} {} {}{}\n", role, tensor, name(dtype), text_of(shape));
      inputs.emplace_back(tensor, source.array(dtype, shape, whole));
    };
    declare("a", c.dtype, c.a, ".input");
    declare("b", c.dtype, c.b, ".input");
    declare("y", c.result, y, ".state");
    if (c.bias) declare("bias", c.bias_dtype, {dims.back()}, ".input");
    if (c.aux) declare("aux", c.result, y, ".state");
    text +=
        fmt::format(".state y_bound {}{}\n.tape main\n  MATMUL y, a, b{}{}{}{}\n.end\n", name(c.result), text_of(y),
                    c.bias ? ", bias=bias" : "", c.aux ? ", aux=aux" : "", attributes.empty() ? "" : ", " + attributes,
                    c.alpha == 1 ? "" : fmt::format(", alpha={}", c.alpha));
    text += fmt::format(".tape bound\n  ABS left, a\n  ABS right, b\n  MATMUL y_bound, left, right{}{}\n.end\n",
                        trans_a ? ", trans_a=1" : "", trans_b ? ", trans_b=1" : "");
  }
  [[nodiscard]] Machine play(const std::string& backend, bool canonical = false, bool bound = false) const {
    Machine machine = machine_on(backend, canonical);
    const ModuleId id = machine.add(module_of(text));
    for (const auto& [tensor, value] : inputs) machine.load(tensor, value);
    machine.run(id, "main");
    if (bound) machine.run(id, "bound");
    return machine;
  }
};

double element(const HostArray& array, int64_t i) {
  return element_as_f64(array.bytes, array.dtype, static_cast<uint64_t>(i));
}

double unit_of(DType dtype) {
  if (dtype == DType::F64) return 0x1p-53;
  if (dtype == DType::F32) return 0x1p-24;
  return dtype == DType::F16 ? 0x1p-11 : 0x1p-8;
}

/// |x - x64| <= g sum|a b| + roundings, where g is min(K, 8 sqrt(K)) u, on tensor cores K/16 2^-23, and for tf32 also
/// what its operands lose (10 bits of mantissa, truncated at worst).
void expect_within_bound(const Case& c) {
  SCOPED_TRACE(c.name);
  const Product product(c, false);
  Machine oracle = product.play("cpu64", false, true), card = product.play("cuda");
  const HostArray bound = oracle.retrieve_stored("y_bound");
  const auto k = static_cast<double>(
      std::string(c.attributes).find("trans_a") == std::string::npos ? c.a[c.a.rank() - 1] : c.a[c.a.rank() - 2]);
  const double compute = c.dtype == DType::F64 ? 0x1p-53 : 0x1p-24;
  double g = std::min(k, 8 * std::sqrt(k)) * compute;
  if (is_half(c.dtype) || c.tf32) g = std::max(g, k / 16 * 0x1p-23);
  if (c.tf32) g += 0x1p-9;
  for (const char* name : {"y", "aux"}) {
    if (std::strcmp(name, "aux") == 0 && !c.aux) continue;
    const HostArray expected = oracle.retrieve_stored(name), got = card.retrieve(name);
    ASSERT_EQ(got.dtype, c.result);
    int64_t outside = 0, worst = 0;
    double farthest = 0;
    for (int64_t i = 0; i < product.y.elements(); ++i) {
      const double want = element(expected, i), have = element(got, i);
      // Activations have slopes below 1.2; a function of f32 is exact to an ulp of its argument's size.
      const double allowed = 1.2 * (g * (std::abs(c.alpha) * element(bound, i)) + 16 * compute * (std::abs(want) + 4)) +
                             1.01 * unit_of(c.result) * std::abs(want) + 0x1p-24 * (c.result == DType::F16 ? 1 : 0);
      if (std::abs(want - have) <= allowed) continue;
      ++outside;
      if (!(std::abs(want - have) <= farthest)) {
        farthest = std::abs(want - have);
        worst = i;
      }
    }
    EXPECT_EQ(outside, 0) << name << ": worst at " << index_text(product.y, static_cast<uint64_t>(worst)) << ": "
                          << element(expected, worst) << " expected, " << element(got, worst) << " got";
  }
}

/// Whole numbers are exact in any order: every bit of the processor's.
void expect_exact(const Case& c) {
  SCOPED_TRACE(c.name);
  const Product product(c, true);
  Machine processor = product.play("cpu"), card = product.play("cuda");
  EXPECT_EQ(compare_exact(processor.retrieve("y"), card.retrieve("y")).text, "");
  if (c.aux) {
    EXPECT_EQ(compare_exact(processor.retrieve("aux"), card.retrieve("aux")).text, "");
  }
}

constexpr DType kF64 = DType::F64, kF32 = DType::F32, kF16 = DType::F16, kBF16 = DType::BF16;

TEST(MatMul, LargeProductsOfEveryDTypeAndTransposition) {
  SKIP_WITHOUT_CARD();
  // 2 * 521 * 515 * 509 is above the size table; rows of 515 and 509 elements are not multiples of 16 bytes.
  for (const DType dtype : {kF64, kF32, kF16, kBF16})
    for (const int transposed : {0, 1, 2, 3}) {
      Case c{"odd", dtype, {521, 509}, {509, 515}, "", dtype};
      if ((transposed & 1) != 0) c.a = {509, 521};
      if ((transposed & 2) != 0) c.b = {515, 509};
      static constexpr const char* kAttributes[] = {"", "trans_a=1", "trans_b=1", "trans_a=1, trans_b=1"};
      c.attributes = kAttributes[transposed];
      SCOPED_TRACE(fmt::format("{} {}", name_of(dtype), c.attributes));
      if (dtype != kF16 && dtype != kBF16) expect_exact(c);
      expect_within_bound(c);
    }
}

TEST(MatMul, LargeProductsWithWideResultsBatchesAndAcc) {
  SKIP_WITHOUT_CARD();
  const Case cases[] = {
      {"bf16 into f32", kBF16, {640, 384}, {384, 768}, "", kF32},
      {"f16 into f32, acc", kF16, {640, 384}, {384, 768}, "acc=1", kF32},
      {"bf16 acc in bf16", kBF16, {640, 384}, {384, 768}, "acc=1", kBF16},
      {"f32 acc, alpha", kF32, {512, 512}, {512, 512}, "acc=1, trans_a=1", kF32, false, kF32, false, -0.75},
      {"f64 acc", kF64, {512, 512}, {512, 512}, "acc=1", kF64},
      {"batch", kF32, {4, 256, 320}, {4, 320, 512}, "", kF32},
      {"one b for the batch", kF32, {4, 256, 320}, {320, 512}, "", kF32},
      {"one a for the batch", kF32, {256, 320}, {4, 320, 512}, "", kF32},
      {"one a, transposed, for the batch", kBF16, {1, 320, 256}, {4, 320, 512}, "trans_a=1", kF32},
      {"two axes, each broadcast once", kF32, {3, 1, 256, 256}, {1, 4, 256, 256}, "", kF32},
      {"two axes, transposed b", kF32, {2, 3, 256, 256}, {3, 256, 256}, "trans_b=1, acc=1", kF32},
  };
  for (const Case& c : cases) {
    expect_exact(c);
    expect_within_bound(c);
  }
}

TEST(MatMul, LargeProductsWithEpilogues) {
  SKIP_WITHOUT_CARD();
  const Case cases[] = {
      {"bias", kF32, {512, 512}, {512, 512}, "", kF32, true},
      {"bias, acc", kF32, {512, 512}, {512, 512}, "acc=1", kF32, true},
      {"bias, relu", kF32, {512, 512}, {512, 512}, "act=relu", kF32, true},
      {"relu, bf16", kBF16, {512, 512}, {512, 512}, "act=relu", kBF16},
      {"bias, relu, aux", kBF16, {512, 512}, {512, 512}, "act=relu", kBF16, true, kBF16, true},
      {"f32 bias of bf16", kBF16, {512, 512}, {512, 512}, "", kBF16, true, kF32},
      {"aux alone", kF32, {512, 512}, {512, 512}, "", kF32, false, kF32, true},
      {"f64 bias, relu", kF64, {512, 512}, {512, 512}, "act=relu, alpha=0.5", kF64, true, kF64},
  };
  for (const Case& c : cases) {
    expect_exact(c);
    expect_within_bound(c);
  }
  const Case functions[] = {
      {"gelu", kF32, {512, 512}, {512, 512}, "act=gelu", kF32, true},
      {"gelu_tanh, f32", kF32, {512, 512}, {512, 512}, "act=gelu_tanh", kF32, true, kF32, true},
      {"gelu_tanh, bf16", kBF16, {512, 512}, {512, 512}, "act=gelu_tanh", kBF16, true, kBF16},
      {"gelu_tanh, f16, aux", kF16, {512, 512}, {512, 512}, "act=gelu_tanh", kF16, true, kF16, true, 0.0625},
      {"silu", kBF16, {512, 512}, {512, 512}, "act=silu", kBF16, true, kBF16},
      {"sigmoid", kF32, {512, 512}, {512, 512}, "act=sigmoid", kF32},
      {"tanh", kF16, {512, 512}, {512, 512}, "act=tanh", kF16, false, kF16, false, 0.0625},
  };
  for (const Case& c : functions) expect_within_bound(c);
}

TEST(MatMul, Tf32IsOnlyWhatWasAskedFor) {
  SKIP_WITHOUT_CARD();
  expect_within_bound({"tf32", kF32, {512, 512}, {512, 512}, "math=tf32", kF32, false, kF32, false, 1, true});
  expect_within_bound({"tf32x3", kF32, {512, 512}, {512, 512}, "math=tf32x3", kF32});
  // 1024.5 and 4097 do not fit into a mantissa of 10 bits.
  for (const int64_t n : {int64_t{1}, int64_t{64}, int64_t{640}}) {
    Machine card = machine_on("cuda");
    card.add(module_of(fmt::format(
        ".input a f32[{0},{0}]\n.input b f32[{0},{0}]\n.output y f32[{0},{0}]\n.tape main\n  MATMUL y, a, b\n.end\n",
        n)));
    std::vector<float> a(static_cast<size_t>(n * n)), b(a.size());
    for (int64_t i = 0; i < n; ++i) {
      a[static_cast<size_t>(i * (n + 1))] = n == 1 ? 1024.5f : 4097.0f;
      b[static_cast<size_t>(i * (n + 1))] = 1.0f;
    }
    card.load("a", std::as_bytes(std::span(a)));
    card.load("b", std::as_bytes(std::span(b)));
    card.run("main");
    std::vector<float> y(a.size());
    card.retrieve("y", std::as_writable_bytes(std::span(y)));
    EXPECT_EQ(y, a) << n;
  }
  const Product normal({"normal", kF32, {512, 512}, {512, 512}, ""}, false);
  const HostArray expected = normal.play("cpu64").retrieve_stored("y"), got = normal.play("cuda").retrieve("y");
  double error = 0, norm = 0;
  for (int64_t i = 0; i < 512 * 512; ++i) {
    error += std::pow(element(got, i) - element(expected, i), 2);
    norm += std::pow(element(expected, i), 2);
  }
  EXPECT_LT(std::sqrt(error / norm), 1e-5);  // about 4e-7; tf32 gives 2.9e-4
}

TEST(MatMul, NaNAndInfinityPassThroughLargeProducts) {
  SKIP_WITHOUT_CARD();
  for (const DType dtype : {kF32, kBF16})
    for (const char* act : {"none", "relu", "gelu_tanh"}) {
      SCOPED_TRACE(fmt::format("{} {}", name_of(dtype), act));
      const std::string attributes = fmt::format("act={}", act);
      Product product({"special", dtype, {512, 512}, {512, 512}, attributes.c_str(), dtype, true, dtype}, true);
      HostArray& a = product.inputs[0].second;
      const double special[] = {std::nan(""), HUGE_VAL};
      for (int64_t row : {0, 1}) {
        HostArray one{DType::F64, {1}, std::vector<std::byte>(8)};
        std::memcpy(one.bytes.data(), &special[row], 8);
        const auto size = static_cast<int64_t>(size_of(dtype));
        convert(one.bytes, DType::F64,
                std::span(a.bytes).subspan(static_cast<size_t>((row * 5 * 512 + 7) * size), static_cast<size_t>(size)),
                dtype);
      }
      const HostArray expected = product.play("cpu").retrieve("y"), got = product.play("cuda").retrieve("y");
      for (int64_t i = 0; i < 512 * 512; ++i) {
        const double want = element(expected, i), have = element(got, i);
        if (std::isfinite(want)) continue;
        ASSERT_TRUE(std::isnan(want) ? std::isnan(have) : want == have)
            << index_text(product.y, static_cast<uint64_t>(i)) << ": " << want << " expected, " << have << " got";
      }
    }
}

TEST(MatMul, RunsRepeatToTheBit) {
  SKIP_WITHOUT_CARD();
  const Case cases[] = {
      {"f32", kF32, {512, 784}, {784, 512}, "", kF32, true},
      {"deep", kF32, {64, 65536}, {65536, 64}, "", kF32},
      {"deep tf32", kF32, {65536, 64}, {65536, 64}, "trans_a=1, math=tf32", kF32},
      {"deep bf16", kBF16, {64, 65536}, {65536, 64}, "", kBF16},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const Product product(c, false);
    Machine first = product.play("cuda"), second = product.play("cuda");
    const HostArray y = first.retrieve("y");
    EXPECT_EQ(compare_exact(y, second.retrieve("y")).text, "");
    for (int i = 0; i < 5; ++i) first.run("main");
    EXPECT_EQ(compare_exact(y, first.retrieve("y")).text, "");
  }
}

TEST(MatMul, OwnKernelsAgreeWithTheProcessorToTheBit) {
  SKIP_WITHOUT_CARD();
  struct Size {
    int64_t m, n, k;
  };
  const Size sizes[] = {{64, 256, 784}, {64, 128, 256},  {64, 10, 128},    {64, 128, 10},   {784, 256, 64},
                        {100, 64, 64},  {33, 65, 129},   {17, 31, 1000},   {65, 67, 2500},  {1, 300, 700},
                        {5, 70, 1300},  {16, 1000, 130}, {3, 1, 4000},     {1, 1, 20000},   {2, 96, 0},
                        {70, 3, 513},   {20, 200, 1152}, {40, 8, 1025},    {1, 264, 2048},  {4, 136, 5632},
                        {3, 72, 1032},  {2, 160, 96},    {260, 330, 1000}, {16, 2176, 1024}};
  int turn = 0;
  for (const DType dtype : {kF64, kF32, kF16, kBF16, DType::I64, DType::I32, DType::I8})
    for (const Size& s : sizes)
      for (const int transposed : {0, 1, 2, 3}) {
        if (test::is_emulated() && turn++ % 5 != 0) continue;
        Case c{"own", dtype, {s.m, s.k}, {s.k, s.n}, "", dtype, false, dtype};
        if ((transposed & 1) != 0) c.a = {s.k, s.m};
        if ((transposed & 2) != 0) c.b = {s.n, s.k};
        const bool with_bias = (s.m + transposed) % 2 == 0, acc = (s.n + transposed) % 3 == 0;
        std::string attributes;
        const auto add = [&](const char* text) { attributes += (attributes.empty() ? "" : ", ") + std::string(text); };
        if ((transposed & 1) != 0) add("trans_a=1");
        if ((transposed & 2) != 0) add("trans_b=1");
        if (acc) add("acc=1");
        c.attributes = attributes.c_str();
        c.bias = with_bias;
        if (is_half(dtype) && transposed == 2) c.result = kF32;
        SCOPED_TRACE(
            fmt::format("{} {}x{}x{} {}{}", name_of(dtype), s.m, s.n, s.k, attributes, with_bias ? " bias" : ""));
        const Product product(c, !is_float(dtype));
        Machine processor = product.play("cpu", true), card = product.play("cuda", true);
        ASSERT_EQ(compare_exact(processor.retrieve("y"), card.retrieve("y")).text, "");
      }
}

TEST(MatMul, SmallBatchesAndEpiloguesAgreeWithTheProcessorToTheBit) {
  SKIP_WITHOUT_CARD();
  const Case cases[] = {
      {"two axes", kF32, {3, 1, 20, 40}, {1, 4, 40, 24}, "", kF32},
      {"transposed", kBF16, {6, 40, 20}, {6, 24, 40}, "trans_a=1, trans_b=1", kF32, true, kF32},
      {"few rows", kF32, {5, 4, 300}, {5, 300, 90}, "acc=1", kF32},
      {"one b", kF32, {5, 3, 300}, {300, 90}, "", kF32, true},
      {"relu, aux", kF32, {64, 256}, {256, 128}, "act=relu", kF32, true, kF32, true, 0.5},
      {"relu, aux, few rows", kF16, {4, 256}, {256, 136}, "act=relu", kF16, true, kF32, true},
      {"gelu_tanh", kF32, {64, 784}, {784, 64}, "act=gelu_tanh", kF32, true, kF32, true},
      {"heads", kF32, {8, 64, 32}, {8, 64, 32}, "trans_b=1", kF32, false, kF32, false, 0.25},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const Product product(c, false);
    Machine processor = product.play("cpu", true), card = product.play("cuda", true);
    EXPECT_EQ(compare_exact(processor.retrieve("y"), card.retrieve("y")).text, "");
    if (c.aux) {
      EXPECT_EQ(compare_exact(processor.retrieve("aux"), card.retrieve("aux")).text, "");
    }
  }
}

// An f64 chain and its second-order gradient without functions of a platform's library: what differs between the card
// and the processor in tests/golden/second-order-matmul.tape is TANH of f64 alone.
TEST(MatMul, F64SecondOrderChainsAgreeToTheBit) {
  SKIP_WITHOUT_CARD();
  const VerifiedModule module = module_of(
      ".param x f64[20, 150] normal\n.param w f64[150, 40] normal\n.param v f64[40, 20] normal\n"
      ".param c f64[20, 150] normal\n.output first f64[]\n.output loss f64[]\n"
      ".tape inner\n  MATMUL h, x, w\n  SQUARE t, h\n  MATMUL y, t, v\n  SQUARE y, y\n  SUM first, y\n.end\n"
      ".grad slope of=inner loss=first wrt=x\n"
      ".tape outer\n  CALL inner\n  CALL slope\n  MUL weighted, x_grad, c\n  SUM loss, weighted\n.end\n"
      ".grad second of=outer loss=loss wrt=x,w,v,c\n.tape main\n  CALL outer\n  CALL second\n.end\n");
  Machine processor = machine_on("cpu", true), card = machine_on("cuda", true);
  processor.run(processor.add(module), "main");
  card.run(card.add(module), "main");
  for (const char* name : {"loss", "x_grad", "x_grad_grad", "w_grad", "v_grad", "c_grad"})
    EXPECT_EQ(compare_exact(processor.retrieve(name), card.retrieve(name)).text, "") << name;
}

TEST(MatMul, CanonicalOrderHoldsAtEverySize) {
  SKIP_WITHOUT_CARD();
  for (const DType dtype : {kF32, kBF16}) {
    const Product product({"large", dtype, {520, 1000}, {1000, 530}, "", dtype}, false);
    Machine processor = product.play("cpu", true), card = product.play("cuda", true);
    EXPECT_EQ(compare_exact(processor.retrieve("y"), card.retrieve("y")).text, "");
  }
}

TEST(MatMul, AFaultStopsTheLibraryToo) {
  SKIP_WITHOUT_CARD();
  Machine card = machine_on("cuda");
  const ModuleId id =
      card.add(module_of(".input a f32[512,512]\n.input x f32[4]\n.state y f32[512,512] fill value=7\n"
                         ".tape main\n  ASSERT_FINITE x\n  MATMUL y, a, a, acc=1\n.end\n"));
  const std::vector<float> a(512 * 512, 1.0f), good(4, 1.0f), bad(4, std::nanf(""));
  card.load("a", std::as_bytes(std::span(a)));
  std::vector<float> y(a.size());
  card.load("x", std::as_bytes(std::span(bad)));
  EXPECT_THROW(card.run(id, "main"), Fault);
  card.retrieve("y", std::as_writable_bytes(std::span(y)));
  EXPECT_EQ(y, std::vector<float>(y.size(), 7.0f));
  card.load("x", std::as_bytes(std::span(good)));
  card.run(id, "main");
  card.retrieve("y", std::as_writable_bytes(std::span(y)));
  EXPECT_EQ(y, std::vector<float>(y.size(), 519.0f));
}

// More sums than wait for their finish at once: rows, or products of a batch, in pieces.
TEST(MatMul, GuardedProductsInPieces) {
  SKIP_WITHOUT_CARD();
  for (const char* shapes :
       {"a f32[5000,8]|b f32[8,4100]|y f32[5000,4100]", "a f32[10,1500,8]|b f32[10,8,1500]|y f32[10,1500,1500]"}) {
    SCOPED_TRACE(shapes);
    std::string declarations = std::string(".input ") + shapes;
    declarations.replace(declarations.find('|'), 1, "\n.input ");
    declarations.replace(declarations.find('|'), 1, "\n.input x f32[4]\n.state ");
    const VerifiedModule module =
        module_of(declarations + "\n.tape main\n  ASSERT_FINITE x\n  MATMUL y, a, b, act=relu\n.end\n");
    Machine processor = machine_on("cpu"), card = machine_on("cuda");
    for (Machine* machine : {&processor, &card}) {
      const ModuleId id = machine->add(module);
      Source source;
      for (const char* name : {"a", "b"}) machine->load(name, source.array(kF32, machine->find(name)->shape, true));
      machine->load("x", HostArray{kF32, {4}, std::vector<std::byte>(16)});
      machine->run(id, "main");
    }
    EXPECT_EQ(compare_exact(processor.retrieve("y"), card.retrieve("y")).text, "");
  }
}

TEST(MatMul, BindMovesAnOperandOfTheLibrary) {
  SKIP_WITHOUT_CARD();
  const VerifiedModule module = module_of(
      ".input a f32[512,512]\n.input b f32[512,512]\n.output y f32[512,512]\n.tape main\n  MATMUL y, a, b\n.end\n");
  Diagnostics diagnostics;
  const auto inlined = verify(inline_entry(module, 0).module, diagnostics);
  ASSERT_TRUE(inlined) << diagnostics.text();
  const std::unique_ptr<Backend> backend = open_backend("cuda");
  const auto plan = make_plan(*inlined, *backend, {});
  std::vector<std::unique_ptr<Buffer>> buffers;
  const auto allocate = [&](uint64_t bytes) {
    buffers.push_back(backend->allocate(bytes));
    return buffers.back()->address();
  };
  Bindings bindings;
  bindings.arena = allocate(plan->arena_bytes);
  for (const Placement& place : plan->tensors)
    bindings.tensors.push_back(place.segment == Segment::Persistent ? allocate(place.bytes) : nullptr);
  const TensorId a = plan->module.module().find_tensor("a"), b = plan->module.module().find_tensor("b"),
                 y = plan->module.module().find_tensor("y");
  const auto fill = [&](std::byte* to, float diagonal) {
    std::vector<float> values(512 * 512);
    for (size_t i = 0; i < 512; ++i) values[i * 513] = diagonal;
    backend->upload(to, std::as_bytes(std::span(values)));
  };
  const auto corner = [&](const std::byte* from) {
    std::vector<float> values(512 * 512);
    backend->download(std::as_writable_bytes(std::span(values)), from);
    return std::pair(values[0], values[512 * 512 - 1]);
  };
  fill(bindings.tensors[a], 3);
  fill(bindings.tensors[b], 5);
  const auto executable = backend->prepare(plan, bindings);
  executable->run();
  backend->synchronize();
  EXPECT_EQ(corner(bindings.tensors[y]), std::pair(15.0f, 15.0f));
  constexpr uint64_t kBytes = 512 * 512 * 4;
  // Aligned, then to 4 bytes only.
  for (const uint64_t offset : {uint64_t{0}, uint64_t{4}}) {
    std::byte* const moved_a = allocate(kBytes + 256) + offset;
    std::byte* const moved_y = allocate(kBytes + 256) + offset;
    fill(moved_a, 7);
    executable->bind(a, moved_a);
    executable->bind(y, moved_y);
    executable->run();
    backend->synchronize();
    EXPECT_EQ(corner(moved_y), std::pair(35.0f, 35.0f)) << offset;
    EXPECT_EQ(corner(bindings.tensors[y]), std::pair(15.0f, 15.0f));
  }
}

TEST(MatMul, TheEnvironmentIsReported) {
  SKIP_WITHOUT_CARD();
  setenv("NVIDIA_TF32_OVERRIDE", "0", 1);
  const std::unique_ptr<Backend> backend = open_backend("cuda");
  unsetenv("NVIDIA_TF32_OVERRIDE");
  bool found = false;
  for (const std::string& note : backend->capabilities().notes)
    found = found || note == "NVIDIA_TF32_OVERRIDE=0 in the environment";
  EXPECT_TRUE(found);
}

}  // namespace
}  // namespace tape
