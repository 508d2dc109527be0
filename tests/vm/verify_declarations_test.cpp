// The verifier on declarations: names, roles, links, initialisers, blobs, streams, versions, line maps.
#include <gtest/gtest.h>

#include <limits>

#include "tests/vm/module_maker.h"
#include "vm/container.h"

namespace tape {
namespace {

using enum DType;

/// Mistakes of a module with one tensor.
std::string only(const Tensor& tensor) {
  ModuleMaker m;
  m.module.tensors.push_back(tensor);
  return m.mistakes();
}

Tensor made(std::string name, DType dtype, Shape shape, Role role) {
  Tensor t;
  t.name = std::move(name);
  t.dtype = dtype;
  t.shape = shape;
  t.role = role;
  return t;
}

Tensor with_init(Tensor tensor, InitKind kind, double a = 0, double b = 0) {
  tensor.init = {kind, a, b, 0};
  return tensor;
}

TEST(VerifyDeclarations, AnEmptyModuleIsValid) {
  EXPECT_EQ(ModuleMaker().mistakes(), "");
}

TEST(VerifyDeclarations, Names) {
  const auto name = [](std::string text) { return only(made(std::move(text), F32, {}, Role::State)); };
  EXPECT_EQ(name("w1.adamw_1.m"), "");
  EXPECT_EQ(name("_"), "");
  EXPECT_EQ(name(std::string(255, 'a')), "");
  EXPECT_EQ(name(""), "the name '' of a tensor is empty");
  EXPECT_EQ(name("1w"), "the name '1w' of a tensor does not begin with a letter or _");
  EXPECT_EQ(name(".w"), "the name '.w' of a tensor does not begin with a letter or _");
  EXPECT_EQ(name("a-b"), "the name 'a-b' of a tensor has a character other than letters, digits, _ and .");
  EXPECT_EQ(name("a\x1b[2J"), "the name 'a?[2J' of a tensor has a character other than letters, digits, _ and .");
  for (const std::string reserved : {"inf", "nan", "min", "max"})
    EXPECT_EQ(name(reserved), "the name '" + reserved + "' of a tensor is reserved");
  EXPECT_EQ(name(std::string(256, 'a')),
            "the name '" + std::string(60, 'a') + "...' of a tensor has 256 bytes; the limit max_name is 255");
}

TEST(VerifyDeclarations, OneNameSpace) {
  ModuleMaker m;
  m.f32("x", {}, Role::State);
  m.f32("x", {}, Role::Param);
  m.tape("x");
  m.module.sinks.push_back({"x", F32, {}, {}});
  EXPECT_EQ(m.mistakes(),
            "x is declared twice: as tensor and as tensor\n"
            "x is declared twice: as tensor and as tape\n"
            "x is declared twice: as tensor and as sink");
}

TEST(VerifyDeclarations, PrivateNamesPerTape) {
  ModuleMaker m;
  const TapeId a = m.tape("a"), b = m.tape("b");
  m.own(a, "x", {});
  m.own(b, "x", {});
  EXPECT_EQ(m.mistakes(), "");
  m.own(a, "x", {});
  m.own(a, "b", {});
  EXPECT_EQ(m.mistakes(),
            "x is declared twice: as tensor and as tensor\n"
            "b is private to a tape, but the module has a tape of that name");
}

TEST(VerifyDeclarations, CodesOfNothing) {
  EXPECT_EQ(only(made("x", static_cast<DType>(77), {}, Role::State)), "'x': 77 is the code of no dtype");
  EXPECT_EQ(only(made("x", F32, {}, static_cast<Role>(10))), "'x': 10 is the code of no role");
  EXPECT_EQ(only(with_init(made("x", F32, {}, Role::State), static_cast<InitKind>(14))),
            "'x': 14 is the code of no initialiser");
}

TEST(VerifyDeclarations, ShapesAreCheckedIn64Bits) {
  const int64_t half = int64_t{1} << 32;
  EXPECT_EQ(only(made("x", F32, {half, half}, Role::State)),
            "'x': shape [4294967296,4294967296] exceeds max_elements, 70368744177664");
  EXPECT_EQ(only(made("x", F32, {-1}, Role::State)), "'x': shape [-1] has a negative dimension");
  EXPECT_EQ(only(made("x", F32, {std::numeric_limits<int64_t>::max(), 0}, Role::State)),
            "'x': shape [9223372036854775807,0] exceeds max_elements, 70368744177664");
  EXPECT_EQ(only(made("x", F32, {0, 3}, Role::State)), "");
}

TEST(VerifyDeclarations, TheSumOfAllBytesIsBounded) {
  ModuleMaker m;
  for (int i = 0; i < 2100; ++i) m.tensor("t" + std::to_string(i), F64, {limits::max_elements}, Role::Local);
  EXPECT_EQ(m.mistakes(), "the tensors take more than 1152921504606846976 bytes (max_bytes)");
}

TEST(VerifyDeclarations, FlagsAndOwners) {
  Tensor t = made("x", F32, {}, Role::State);
  t.writable = true;
  EXPECT_EQ(only(t), "x: only an extern is declared write, not a state");
  t = made("x", F32, {}, Role::Local);
  t.persistent_grad = true;
  EXPECT_EQ(only(t), "x: a local cannot be a persistent gradient");
  t = made("x", F32, {}, Role::Local);
  t.owner = 0;
  EXPECT_EQ(only(t), "x: is private to tape 0, but the module has 0 tapes");
  ModuleMaker m;
  m.tensor("p", F32, {}, Role::Param, m.tape("main"));
  EXPECT_EQ(m.mistakes(), "p: a param cannot be private to a tape");
}

TEST(VerifyDeclarations, Gradients) {
  ModuleMaker m;
  const TensorId w = m.tensor("w", BF16, {2, 3}, Role::Param);
  const auto grad = [&](std::string name, DType dtype, Shape shape, uint32_t link) {
    ModuleMaker with = m;
    Tensor t = made(std::move(name), dtype, shape, Role::Grad);
    t.link = link;
    t.persistent_grad = true;
    with.module.tensors.push_back(t);
    return with.mistakes();
  };
  EXPECT_EQ(grad("w_grad", BF16, {2, 3}, w), "");
  EXPECT_EQ(grad("w_grad", F32, {2, 3}, w), "");
  EXPECT_EQ(grad("w_grad", F16, {2, 3}, w), "w_grad: is f16, wants bf16 or f32, as its primal w");
  EXPECT_EQ(grad("w_grad", F32, {3, 2}, w), "w_grad: has shape [3,2], its primal w has [2,3]");
  EXPECT_EQ(grad("g", F32, {2, 3}, w), "g: the gradient of w is named w_grad");
  EXPECT_EQ(grad("w_grad", F32, {2, 3}, kNone), "w_grad: a gradient needs a link to its primal");
  EXPECT_EQ(grad("w_grad", F32, {2, 3}, 1), "w_grad: its link is no other tensor of the module");
  EXPECT_EQ(grad("w_grad", F32, {2, 3}, 9), "w_grad: its link is no other tensor of the module");
}

TEST(VerifyDeclarations, GradientsOfFloatsOnly) {
  ModuleMaker m;
  const TensorId n = m.tensor("n", I32, {}, Role::Input);
  Tensor t = made("n_grad", F32, {}, Role::Grad);
  t.link = n;
  m.module.tensors.push_back(t);
  EXPECT_EQ(m.mistakes(), "n_grad: is the gradient of n, which is i32");
}

TEST(VerifyDeclarations, GradientNamesAreNotDeclaredByHand) {
  for (const Role role : {Role::Output, Role::Local, Role::State}) {
    ModuleMaker m;
    m.f32("w", {}, Role::Param);
    m.f32("w_grad", {}, role);
    EXPECT_EQ(m.mistakes(), "w_grad: is the name of the gradient of w, which only .extern may declare");
  }
  ModuleMaker m;
  m.f32("w", {}, Role::Param);
  m.f32("w_grad", {}, Role::Extern);
  m.f32("other_grad", {}, Role::State);
  EXPECT_EQ(m.mistakes(), "");
}

TEST(VerifyDeclarations, OptimizerState) {
  const auto state = [](DType param, DType dtype, Shape shape, Role role) {
    ModuleMaker m;
    const TensorId w = m.tensor("w", param, {2}, role);
    Tensor t = made("w.sgd.m", dtype, shape, Role::State);
    t.link = w;
    m.module.tensors.push_back(t);
    return m.mistakes();
  };
  EXPECT_EQ(state(BF16, F32, {2}, Role::Param), "");
  EXPECT_EQ(state(F64, F64, {2}, Role::Param), "");
  EXPECT_EQ(state(F32, F32, {2}, Role::Extern), "");
  EXPECT_EQ(state(F64, F32, {2}, Role::Param), "w.sgd.m: is f32, wants f64: optimizer state of w f64");
  EXPECT_EQ(state(F32, F32, {3}, Role::Param), "w.sgd.m: has shape [3], its parameter w has [2]");
  EXPECT_EQ(state(F32, F32, {2}, Role::Input), "w.sgd.m: optimizer state belongs to a param, not to the input w");
}

TEST(VerifyDeclarations, Initialisers) {
  const auto param = [](DType dtype, Shape shape, InitKind kind, double a = 0, double b = 0) {
    return only(with_init(made("w", dtype, shape, Role::Param), kind, a, b));
  };
  using enum InitKind;
  EXPECT_EQ(param(F32, {3, 4}, KaimingNormal), "");
  EXPECT_EQ(param(F32, {3}, KaimingNormal), "w: kaiming_normal needs rank 2 or more, not [3]");
  EXPECT_EQ(param(I32, {3, 4}, XavierUniform), "w: xavier_uniform needs a float dtype, not i32");
  EXPECT_EQ(param(F32, {3}, Orthogonal, 1), "w: orthogonal needs rank 2 or more, not [3]");
  EXPECT_EQ(param(F32, {3}, Uniform, 2, 1), "w: uniform lo=2 exceeds hi=1");
  EXPECT_EQ(param(F32, {3}, Normal, 0, -1), "w: normal std=-1 is negative");
  EXPECT_EQ(param(F32, {3}, Normal, std::numeric_limits<double>::infinity(), 1), "w: normal mean=inf is not finite");
  EXPECT_EQ(param(U8, {3}, Fill, 255), "");
  EXPECT_EQ(param(U8, {3}, Fill, 256), "w: fill value=256 does not fit u8");
  EXPECT_EQ(param(I32, {3}, Fill, 0.5), "w: fill value=0.5 does not fit i32");
  EXPECT_EQ(param(Bool, {3}, Fill, 2), "w: fill value=2 does not fit bool");
  EXPECT_EQ(param(F32, {3}, Fill, 0.5), "");
  EXPECT_EQ(param(Bool, {3}, Iota), "w: iota needs numbers, not bool");
  EXPECT_EQ(param(F32, {3}, Eye), "w: eye needs rank 2, not [3]");
  EXPECT_EQ(param(I64, {2}, Seed), "w: seed= alone initialises only an .rng");
  EXPECT_EQ(only(with_init(made("x", F32, {}, Role::Output), Zeros)), "x: an output has no initialiser");
  EXPECT_EQ(only(made("x", F32, {}, Role::Data)), "x: a data tensor needs data or an initialiser");
}

TEST(VerifyDeclarations, Generators) {
  Tensor t = made("g", I64, {2}, Role::Rng);
  EXPECT_EQ(only(t), "g: a generator needs seed=");
  EXPECT_EQ(only(with_init(t, InitKind::Seed)), "");
  t.shape = Shape{3};
  EXPECT_EQ(only(with_init(t, InitKind::Seed)), "g: is i64[3], a generator is i64[2]");
}

TEST(VerifyDeclarations, Blobs) {
  const auto blob = [](size_t bytes, Role role, uint32_t index) {
    ModuleMaker m;
    static const std::byte data[64] = {};
    m.module.blobs.push_back({nullptr, {data, bytes}, 0, true});
    Tensor t = made("x", F32, {2, 3}, role);
    t.blob = index;
    m.module.tensors.push_back(t);
    return m.mistakes();
  };
  EXPECT_EQ(blob(24, Role::Data, 0), "");
  EXPECT_EQ(blob(23, Role::Data, 0), "x: f32[2,3] takes 24 bytes, its data has 23");
  EXPECT_EQ(blob(24, Role::Data, 1), "x: has data 1, but the module has 1 blobs");
  EXPECT_EQ(blob(24, Role::Local, 0), "x: a local has no data");
}

TEST(VerifyDeclarations, Streams) {
  const auto columns = [](std::vector<Column> list) {
    ModuleMaker m;
    m.stream("rows", std::move(list));
    return m.mistakes();
  };
  EXPECT_EQ(columns({{"images", U8, {64}, "data/train_images.npy"}, {"labels", I32, {}, ""}}), "");
  EXPECT_EQ(columns({}), "stream rows: has no column");
  EXPECT_EQ(columns({{"x", U8, {}, ""}, {"x", I32, {}, ""}}), "stream rows: has two columns x");
  EXPECT_EQ(columns({{"1", U8, {}, ""}}), "stream rows: the column name '1' does not begin with a letter or _");
  EXPECT_EQ(columns({{"x", U8, {1, 1, 1, 1, 1, 1, 1, 1}, ""}}),
            "rows.x: rows of rank 8 leave no axis for * (max_rank is 8)");
  EXPECT_EQ(columns({{"x", U8, {}, "/etc/passwd"}}),
            "stream rows: the path '/etc/passwd' of column x leaves the folder of the module");
  EXPECT_EQ(columns({{"x", U8, {}, "a/../../b"}}),
            "stream rows: the path 'a/../../b' of column x leaves the folder of the module");
  EXPECT_EQ(columns(std::vector<Column>(1, {"x", static_cast<DType>(0), {}, ""})), "'x': 0 is the code of no dtype");
}

TEST(VerifyDeclarations, Cursors) {
  ModuleMaker m;
  m.stream("rows", {{"x", U8, {}, ""}});
  ModuleMaker gone = m;
  gone.module.streams[0].cursor = 7;
  EXPECT_EQ(gone.mistakes(), "stream rows: has no cursor tensor");
  ModuleMaker renamed = m;
  renamed.module.tensors[0].name = "place";
  EXPECT_EQ(renamed.mistakes(), "stream rows: the cursor is named place, wants rows.cursor");
  ModuleMaker typed = m;
  typed.module.tensors[0].dtype = I32;
  EXPECT_EQ(typed.mistakes(), "stream rows: the cursor rows.cursor is state i32[2], wants state i64[2]");
}

TEST(VerifyDeclarations, NewerVersionsAreRefusedNamingBoth) {
  ModuleMaker m;
  m.module.minor = kMinor + 1;
  EXPECT_EQ(m.mistakes(), "the module is of version 1.1, newer than 1.0, the newest that can be played");
  m.module.major = kMajor + 1;
  m.module.minor = 0;
  EXPECT_EQ(m.mistakes(), "the module is of version 2.0, newer than 1.0, the newest that can be played");
}

TEST(VerifyDeclarations, LineMaps) {
  ModuleMaker m;
  const TapeId main = m.tape("main");
  m.add(main, Opcode::Nop, {});
  m.module.files = {"f.tape"};
  const auto with_line = [&](LineEntry entry) {
    ModuleMaker other = m;
    other.module.tapes[0].lines.push_back(entry);
    return other.mistakes();
  };
  const std::string bad = "tape 'main': entry 0 of its line map is out of order or names no word, file or chain";
  EXPECT_EQ(with_line({0, {0, 1, 1, 0}}), "");
  EXPECT_EQ(with_line({1, {0, 1, 1, 0}}), bad);
  EXPECT_EQ(with_line({0, {1, 1, 1, 0}}), bad);
  EXPECT_EQ(with_line({0, {0, 1, 1, 1}}), bad);
  m.module.tensors.push_back(made("x", F32, {}, Role::State));
  m.module.tensors[0].location = {3, 1, 1, 0};
  EXPECT_EQ(m.mistakes(), "the place of 'x' names no file or chain");
}

TEST(VerifyDeclarations, ChainsEnd) {
  ModuleMaker m;
  m.module.files = {"f.tape"};
  m.module.chains = {{{0, 1, 1, 0}, "macro a"}, {{0, 1, 1, 1}, "macro b"}};
  EXPECT_EQ(m.mistakes(), "");
  m.module.chains[0].at.chain = 2;  // a, b, a, ...
  EXPECT_EQ(m.mistakes(), "line map: chain 1 goes on with chain 2, which is not before it");
  m.module.chains[0].at = {4, 1, 1, 0};
  EXPECT_EQ(m.mistakes(), "line map: chain 1 is in file 4 of 1");
}

TEST(VerifyDeclarations, GradientTapes) {
  ModuleMaker m;
  const TapeId forward = m.tape("forward"), backward = m.tape("backward");
  m.module.tapes[backward].gradient_of = forward;
  EXPECT_EQ(m.mistakes(), "");
  m.module.tapes[backward].gradient_of = backward;
  EXPECT_EQ(m.mistakes(), "backward: is the gradient of no other tape of the module");
  m.module.tapes[backward].gradient_of = 5;
  EXPECT_EQ(m.mistakes(), "backward: is the gradient of no other tape of the module");
}

TEST(VerifyDeclarations, CountsOfThings) {
  std::vector<Column> columns;
  for (int i = 0; i <= limits::max_columns; ++i) columns.push_back({"c" + std::to_string(i), U8, {}, ""});
  ModuleMaker wide;
  wide.stream("rows", columns);
  EXPECT_EQ(wide.mistakes(), "stream rows: has 65 columns; the limit max_columns is 64");
  ModuleMaker sinks;
  for (int i = 0; i <= limits::max_streams; ++i) sinks.module.sinks.push_back({"s" + std::to_string(i), F32, {}, {}});
  EXPECT_EQ(sinks.mistakes(), "the module has 4097 sinks; the limit max_streams is 4096");
}

}  // namespace
}  // namespace tape
