// ATTENTION, the recurrent cells and MATMUL with an epilogue at sizes above their tiles: any number of threads gives
// the same bits, and each is what ordinary commands make of it.
#include <gtest/gtest.h>

#include <cmath>

#include "assembler/assembler.h"
#include "cpu_reference/cpu_backend.h"
#include "embed/backends.h"
#include "vm/machine.h"

namespace tape::test {
namespace {

Machine played(const std::string& text, std::unique_ptr<Backend> backend) {
  Diagnostics diagnostics;
  auto assembly = assemble(text, "<text>", {}, diagnostics);
  auto module = assembly ? verify(std::move(assembly->module), diagnostics) : std::nullopt;
  if (!module) throw std::runtime_error(diagnostics.text());
  Machine machine(std::move(backend));
  machine.add(*module);
  machine.run("f");
  return machine;
}
Machine played(const std::string& text, unsigned threads, const std::string& backend = "cpu") {
  return played(text, open_backend(backend, {threads, false}));
}

std::string attention_text(const std::string& dtype) {
  return ".rng noise seed=3\n.input n i32[2] = 190 131\n.output y " + dtype +
         "[2,4,150,24]\n.output lse f32[2,4,150]\n" + ".output dq " + dtype + "[2,4,150,20]\n.output dk " + dtype +
         "[2,2,200,20]\n.output dv " + dtype + "[2,2,200,24]\n.local q " + dtype + "[2,4,150,20]\n.local k " + dtype +
         "[2,2,200,20]\n.local v " + dtype + "[2,2,200,24]\n.local g " + dtype + R"([2,4,150,24]
.tape f
  RANDOM_NORMAL q, noise
  RANDOM_NORMAL k, noise
  RANDOM_NORMAL v, noise
  RANDOM_NORMAL g, noise
  ATTENTION y, q, k, v, causal=1, kv_len=n, lse=lse
  ATTENTION_GRAD dq, dk, dv, q, k, v, y, g, causal=1, kv_len=n, lse=lse
.end
)";
}

const char* const kCells = R"(.rng noise seed=3
.output h f32[70,65]
.output c f32[70,65]
.output u f32[70,65]
.output y f32[300,260]
.local x f32[70,90]
.local p f32[70,65]
.local w f32[260,90]
.local v f32[260,65]
.local s f32[195,90]
.local t f32[195,65]
.local b f32[260]
.local m f32[300,90]
.tape f
  RANDOM_NORMAL x, noise
  RANDOM_NORMAL p, noise
  RANDOM_NORMAL w, noise, std=0.1
  RANDOM_NORMAL v, noise, std=0.1
  RANDOM_NORMAL s, noise, std=0.1
  RANDOM_NORMAL t, noise, std=0.1
  RANDOM_NORMAL b, noise
  RANDOM_NORMAL m, noise
  LSTM_CELL h, c, x, p, p, w, v, bias_ih=b
  GRU_CELL u, x, p, s, t
  MATMUL y, m, w, trans_b=1, bias=b, act=gelu
.end
)";

void expect_same_bits(const std::string& text, const std::vector<std::string>& names) {
  Machine one = played(text, 1);
  for (const unsigned threads : {2u, 3u, 8u}) {
    Machine many = played(text, threads);
    for (const std::string& name : names)
      EXPECT_EQ(one.retrieve(name).bytes, many.retrieve(name).bytes) << name << " with " << threads << " threads";
  }
}

TEST(AttentionThreads, AnyNumberGivesTheSameBits) {
  for (const std::string dtype : {"f32", "f16"})
    expect_same_bits(attention_text(dtype), {"y", "lse", "dq", "dk", "dv"});
}

TEST(CellThreads, AnyNumberGivesTheSameBits) {
  expect_same_bits(kCells, {"h", "c", "u", "y"});
}

TEST(AttentionLevels, BaselineAndV3GiveTheSameBits) {
  for (const std::string& text : {attention_text("f32"), std::string(kCells)}) {
    Machine baseline = played(text, make_cpu_backend({2, false, false, true}));
    Machine best = played(text, make_cpu_backend({2, false, false, false}));
    for (const char* name : {"y", "lse", "dq", "dk", "dv", "h", "c", "u"})
      if (baseline.find(name)) {
        EXPECT_EQ(baseline.retrieve(name).bytes, best.retrieve(name).bytes) << name;
      }
  }
}

double worst(Machine& a, Machine& b, const std::string& name) {
  const HostArray x = a.retrieve(name), y = b.retrieve(name);
  double found = 0;
  for (int64_t i = 0; i < x.shape.elements(); ++i) {
    const double left = element_as_f64(x.bytes, x.dtype, static_cast<uint64_t>(i));
    const double right = element_as_f64(y.bytes, y.dtype, static_cast<uint64_t>(i));
    if (left == right) continue;  // rows that see nothing: -inf
    const double difference = std::abs(left - right);
    found = std::isnan(difference) ? INFINITY : std::max(found, difference);
  }
  return found;
}

TEST(Attention, BlocksAgreeWithTheOracle) {
  Machine fast = played(attention_text("f32"), 2), oracle = played(attention_text("f32"), 2, "cpu64");
  // Sums over up to 200 keys and 150 rows of values of order 1, in f32.
  for (const char* name : {"y", "lse", "dq", "dk", "dv"}) EXPECT_LT(worst(fast, oracle, name), 2e-5) << name;
}

TEST(Attention, AgreesWithOrdinaryCommands) {
  Machine machine = played(R"(.rng noise seed=5
.output difference f64[]
.local q f64[3,70,6]
.local k f64[3,140,6]
.local v f64[3,140,5]
.tape f
  RANDOM_NORMAL q, noise
  RANDOM_NORMAL k, noise
  RANDOM_NORMAL v, noise
  ATTENTION y, q, k, v, scale=0.5
  MATMUL s, q, k, trans_b=1, alpha=0.5
  SOFTMAX p, s
  MATMUL z, p, v
  SUB d, y, z
  ABS d, d
  REDUCE_MAX difference, d
.end
)",
                           2);
  const HostArray difference = machine.retrieve("difference");
  EXPECT_LT(element_as_f64(difference.bytes, DType::F64, 0), 1e-14);
}

}  // namespace
}  // namespace tape::test
