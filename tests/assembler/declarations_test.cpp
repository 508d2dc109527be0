// Declarations: what each directive makes of its line, element for element.
#include <cmath>

#include "support.h"
#include "vm/io/files.h"

namespace tape::test {
namespace {

TEST(Declarations, RolesDtypesAndShapes) {
  const Module module = module_of(
      ".input a f64[2, 3]\n.param b f32[]\n.state c i64[0, 5]\n.data d u8[1] = 7\n.output e bool[4]\n.local f bf16[2]\n"
      ".extern g f16[8]\n.extern h i32[1] write\n.rng r seed=9\n");
  const Role roles[] = {Role::Input, Role::Param,  Role::State,  Role::Data, Role::Output,
                        Role::Local, Role::Extern, Role::Extern, Role::Rng};
  const DType dtypes[] = {DType::F64,  DType::F32, DType::I64, DType::U8, DType::Bool,
                          DType::BF16, DType::F16, DType::I32, DType::I64};
  ASSERT_EQ(module.tensors.size(), 9u);
  for (size_t i = 0; i < 9; ++i) {
    EXPECT_EQ(module.tensors[i].role, roles[i]) << i;
    EXPECT_EQ(module.tensors[i].dtype, dtypes[i]) << i;
    EXPECT_EQ(module.tensors[i].owner, kNone) << i;
    EXPECT_EQ(module.tensors[i].writable, i == 7) << i;
  }
  EXPECT_EQ(module.tensors[0].shape, (Shape{2, 3}));
  EXPECT_EQ(module.tensors[1].shape, Shape{});
  EXPECT_EQ(module.tensors[2].shape, (Shape{0, 5}));
  EXPECT_EQ(module.tensors[8].shape, Shape{2});
  EXPECT_EQ(module.tensors[8].init, (Init{InitKind::Seed, 0, 0, 9}));
}

TEST(Declarations, Initialisers) {
  const struct {
    const char* text;
    Init init;
  } cases[] = {
      {"zeros", {InitKind::Zeros, 0, 0, 0}},
      {"ones", {InitKind::Ones, 0, 0, 0}},
      {"fill value=-2.5", {InitKind::Fill, -2.5, 0, 0}},
      {"uniform", {InitKind::Uniform, 0, 1, 0}},
      {"uniform lo=-1 hi=1 seed=3", {InitKind::Uniform, -1, 1, 3}},
      {"uniform seed=-3 hi=2", {InitKind::Uniform, 0, 2, -3}},
      {"normal", {InitKind::Normal, 0, 1, 0}},
      {"normal mean=1 std=0.5 seed=1", {InitKind::Normal, 1, 0.5, 1}},
      {"kaiming_uniform seed=1", {InitKind::KaimingUniform, 0, 0, 1}},
      {"kaiming_normal", {InitKind::KaimingNormal, 0, 0, 0}},
      {"xavier_uniform", {InitKind::XavierUniform, 0, 0, 0}},
      {"xavier_normal", {InitKind::XavierNormal, 0, 0, 0}},
      {"orthogonal", {InitKind::Orthogonal, 1, 0, 0}},
      {"orthogonal gain=1.5 seed=4", {InitKind::Orthogonal, 1.5, 0, 4}},
      {"iota", {InitKind::Iota, 0, 0, 0}},
      {"eye", {InitKind::Eye, 0, 0, 0}},
  };
  for (const auto& one : cases)
    EXPECT_EQ(tensor_of(module_of(".param w f32[4, 4] " + std::string(one.text) + "\n"), "w").init, one.init)
        << one.text;
}

TEST(Declarations, StreamsHaveColumnsAndACursor) {
  const Module module =
      module_of(".stream rows images u8[*, 8, 8] = @\"data/x.npy\", labels i32[*]\n.sink log f32[*, 2]\n");
  ASSERT_EQ(module.streams.size(), 1u);
  const Stream& stream = module.streams[0];
  ASSERT_EQ(stream.columns.size(), 2u);
  EXPECT_EQ(stream.columns[0], (Column{"images", DType::U8, Shape{8, 8}, "data/x.npy"}));
  EXPECT_EQ(stream.columns[1], (Column{"labels", DType::I32, Shape{}, ""}));
  const Tensor& cursor = tensor_of(module, "rows.cursor");
  EXPECT_EQ(&module.tensors[stream.cursor], &cursor);
  EXPECT_EQ(cursor.role, Role::State);
  EXPECT_EQ(cursor.dtype, DType::I64);
  EXPECT_EQ(cursor.shape, Shape{2});
  ASSERT_EQ(module.sinks.size(), 1u);
  EXPECT_EQ(module.sinks[0].row, Shape{2});
}

TEST(Declarations, AStreamOfAnIncludedFileIsRelativeToTheModule) {
  const TemporaryFolder folder;
  folder.write("data/rows.tape", ".stream rows x f32[*] = @\"x.npy\"\n");
  EXPECT_EQ(assembly_of(".include \"data/rows.tape\"\n", {}, folder.file("m.tape")).module.streams[0].columns[0].path,
            "data/x.npy");
}

TEST(Declarations, ValuesFromFiles) {
  const TemporaryFolder folder;
  const float values[] = {1.5f, -2.0f};
  HostArray array{DType::F32, Shape{2}, std::vector<std::byte>(8)};
  std::memcpy(array.bytes.data(), values, 8);
  io::write_npy(folder.file("a.npy"), array);
  io::write_npz(folder.file("b.npz"), {{"key", array}});
  folder.write("raw.bin", std::string("xxxx\0\0\x80\x3f\0\0\0\x40", 12));
  const Module module = assembly_of(
                            ".data a f32[2] = @\"a.npy\"\n.data b f32[2] = @\"b.npz:key\"\n.data c f32[2] = "
                            "@\"raw.bin\":4\n.data d f64[2] = @\"a.npy\"\n",
                            {}, folder.file("m.tape"))
                            .module;
  EXPECT_EQ(data_of<float>(module, "a"), (std::vector<float>{1.5f, -2.0f}));
  EXPECT_EQ(data_of<float>(module, "b"), (std::vector<float>{1.5f, -2.0f}));
  EXPECT_EQ(data_of<float>(module, "c"), (std::vector<float>{1.0f, 2.0f}));
  EXPECT_EQ(data_of<double>(module, "d"), (std::vector<double>{1.5, -2.0}));
  const auto wrong = [&](const std::string& text) { return errors_of(text, {}, folder.file("m.tape")); };
  EXPECT_EQ(wrong(".data a f32[3] = @\"a.npy\"\n"), "1:18 a is [3], the file has [2]\n");
  EXPECT_NE(wrong(".data a i32[2] = @\"a.npy\"\n"), "") << "1.5 is no i32";
  EXPECT_NE(wrong(".data a f32[2] = @\"b.npz:other\"\n"), "");
  EXPECT_NE(wrong(".data a f32[2] = @\"raw.bin\":5\n"), "");
}

TEST(Declarations, CommonNamesMayComeAfterTheTape) {
  EXPECT_EQ(
      commands_of(".tape main\n  NEG y, x\n  CALL other\n.end\n.input x f32[2]\n.output y f32[2]\n.tape other\n.end\n"),
      "NEG y, x\nCALL other\n");
}

TEST(Declarations, PrivatesBelongToTheirTape) {
  const Module module =
      module_of(".input x f32[2]\n.tape a\n.local t f32[2]\nNEG t, x\n.end\n.tape b\nCAST t, x, dtype=f64\n.end\n");
  EXPECT_EQ(tensor_of(module, "t", "a").dtype, DType::F32);
  EXPECT_EQ(tensor_of(module, "t", "b").dtype, DType::F64);
  EXPECT_EQ(module.find_tensor("t"), kNone);
}

TEST(Declarations, IdsAreCommonFirstThenByTape) {
  const Module module =
      module_of(".tape a\nNEG p, x\n.end\n.input x f32[2]\n.tape b\nNEG q, x\n.end\n.output y f32[2]\n");
  std::vector<std::string> names;
  for (const Tensor& tensor : module.tensors) names.push_back(tensor.name);
  EXPECT_EQ(names, (std::vector<std::string>{"x", "y", "p", "q"}));
}

TEST(Declarations, NamesAreOneSpace) {
  for (const char* other : {".const n = 1", ".input n f32[2]", ".stream n a u8[*]", ".sink n u8[*]", ".tape n\n.end"}) {
    const std::string errors = errors_of(".local n f32[2]\n" + std::string(other) + "\n");
    EXPECT_NE(errors.find("n is already a tensor"), std::string::npos) << other << errors;
  }
}

TEST(Declarations, AFailedOneIsReportedOnce) {
  EXPECT_EQ(errors_of(".input x f32[2, oops]\n.tape main\nNEG y, x\nADD z, y, x\nNEG w, z\n.end\n.expect y == 1\n"),
            "1:17 no constant is named oops\n");
  EXPECT_EQ(errors_of(".const N = 1 +\n.input x f32[N]\n.tape main\nNEG y, x\n.end\n"), "1:15 expected a number\n");
  EXPECT_EQ(errors_of(".stream s a u9[*]\n.tape main\nLOAD a, s, rows=1\nCAST b, a, dtype=f32\n.end\n"),
            "1:13 no dtype is named u9; did you mean u8?\n");
}

TEST(Declarations, LimitsAreNamed) {
  EXPECT_EQ(errors_of(".input x f32[70368744177665]\n"),
            "1:13 [70368744177665] has more than 70368744177664 elements (max_elements)\n");
  EXPECT_EQ(errors_of(".input x f32[4294967296, 4294967296]\n"),
            "1:13 [4294967296,4294967296] has more than 70368744177664 elements (max_elements)\n");
  std::string text = ".stream s a0 u8[*]";
  for (int i = 1; i < 65; ++i) text += ", a" + std::to_string(i) + " u8[*]";
  EXPECT_EQ(errors_of(text + "\n"), "1:9 more than 64 columns (max_columns)\n");
}

}  // namespace
}  // namespace tape::test
