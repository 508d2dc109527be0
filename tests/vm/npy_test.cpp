// Array files and host conversions. The .npy and .npz bytes, the half patterns and the shortest texts are NumPy's
// (2.4), the bf16 patterns exact arithmetic; hostile files give an Error that names them.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

#include "bytes.h"
#include "vm/error.h"
#include "vm/host_array.h"
#include "vm/io/files.h"

namespace tape {
namespace {

template <class T>
std::vector<T> values_of(const Bytes& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

/// A header as NumPy writes it, padded to `total` bytes with the data after it.
Bytes npy(const std::string& dict, size_t total, std::string_view data, char major = 1) {
  std::string head = std::string("\x93NUMPY") + major + '\0';
  const size_t prefix = major == 1 ? 10 : 12;
  const size_t length = total - prefix;
  head += static_cast<char>(length & 0xFF);
  head += static_cast<char>(length >> 8);
  if (major > 1) head += std::string(2, '\0');
  head += dict;
  head.resize(total - 1, ' ');
  head += '\n';
  head += data;
  return bytes_of(head);
}

std::string refusal(const Bytes& file) {
  try {
    static_cast<void>(io::parse_npy(file, "a.npy"));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::Format);
    return error.what();
  }
  return "";
}

class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& name)
      : path_((std::filesystem::path(testing::TempDir()) / name).string()) {}
  ~TemporaryFile() { std::filesystem::remove(path_); }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(Npy, WritesTheBytesOfNumPy) {
  const HostArray array{DType::I32, {2, 3}, raw<int32_t>({1, 2, 3, 4, -5, 6})};
  const Bytes file = io::npy_bytes(array, "a.npy");
  const std::string_view data("\1\0\0\0\2\0\0\0\3\0\0\0\4\0\0\0\xfb\xff\xff\xff\6\0\0\0", 24);
  EXPECT_EQ(file, npy("{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3), }", 128, data));
  const HostArray scalar{DType::Bool, {}, raw<uint8_t>({1})};
  EXPECT_EQ(io::npy_bytes(scalar, "a.npy"), npy("{'descr': '|b1', 'fortran_order': False, 'shape': (), }", 128, "\1"));
  const HostArray row{DType::F16, {1}, raw<uint16_t>({0x3C00})};
  EXPECT_EQ(io::npy_bytes(row, "a.npy"),
            npy("{'descr': '<f2', 'fortran_order': False, 'shape': (1,), }", 128, std::string_view("\0\x3c", 2)));
}

TEST(Npy, ReadsOrdersAndVersions) {
  const std::string_view big("\x00\x01\x00\x02\x00\x03\x00\x04\xff\xfb\x00\x06", 12);
  const HostArray swapped =
      io::parse_npy(npy("{'descr': '>i2', 'fortran_order': False, 'shape': (2, 3), }", 128, big), "a");
  EXPECT_EQ(swapped.dtype, DType::I16);
  EXPECT_EQ(values_of<int16_t>(swapped.bytes), (std::vector<int16_t>{1, 2, 3, 4, -5, 6}));
  const HostArray wider =
      io::parse_npy(npy("{'descr': '>u2', 'fortran_order': False, 'shape': (2, 3), }", 128, big), "a");
  EXPECT_EQ(wider.dtype, DType::I32);
  EXPECT_EQ(values_of<int32_t>(wider.bytes), (std::vector<int32_t>{1, 2, 3, 4, 65531, 6}));
  const std::string_view columns("\x00\x00\x00\x00\x00\x00@@\x00\x00\x80?\x00\x00\x80@\x00\x00\x00@\x00\x00\xa0@", 24);
  const HostArray fortran =
      io::parse_npy(npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }", 128, columns), "a");
  EXPECT_EQ(fortran.shape, (Shape{2, 3}));
  EXPECT_EQ(values_of<float>(fortran.bytes), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  const HostArray scalar = io::parse_npy(
      npy("{'descr': '<f8', 'fortran_order': False, 'shape': (), }", 128, std::string_view("\0\0\0\0\0\0\4\x40", 8), 2),
      "a");
  EXPECT_EQ(scalar.shape, Shape{});
  EXPECT_EQ(values_of<double>(scalar.bytes), std::vector<double>{2.5});
  const HostArray empty =
      io::parse_npy(npy("{'descr': '|u1', 'fortran_order': True, 'shape': (0, 5), }", 128, ""), "a");
  EXPECT_EQ(empty.shape, (Shape{0, 5}));
  const HostArray truth = io::parse_npy(
      npy("{'descr': '|b1', 'fortran_order': False, 'shape': (3,), }", 128, std::string_view("\0\2\1", 3)), "a");
  EXPECT_EQ(values_of<uint8_t>(truth.bytes), (std::vector<uint8_t>{0, 1, 1}));
}

TEST(Npy, RefusesWhatItCannotRead) {
  const auto dict = [](const std::string& descr, const std::string& shape) {
    return "{'descr': " + descr + ", 'fortran_order': False, 'shape': " + shape + ", }";
  };
  EXPECT_EQ(refusal({}), "a.npy: the file is empty");
  EXPECT_EQ(refusal(bytes_of("hello, this is text")), "a.npy: not a .npy file");
  EXPECT_EQ(refusal(npy(dict("'<f4'", "(2,)"), 128, "1234")), "a.npy: <f4 of shape [2] is 8 bytes, the file has 4");
  EXPECT_EQ(refusal(npy(dict("'<f4'", "(1,)"), 128, "12345")), "a.npy: <f4 of shape [1] is 4 bytes, the file has 5");
  EXPECT_EQ(refusal(npy(dict("'<c8'", "(1,)"), 128, "12345678")),
            "a.npy: dtype '<c8' is not supported; wanted f8 f4 f2, an integer or bool");
  EXPECT_EQ(refusal(npy(dict("[('a', '<f4')]", "(1,)"), 128, "1234")),
            "a.npy: a structured dtype; wanted an array of plain numbers");
  EXPECT_EQ(refusal(npy(dict("'|u1'", "(1,1,1,1,1,1,1,1,1)"), 128, "1")), "a.npy: more than 8 dimensions (max_rank)");
  EXPECT_EQ(refusal(npy(dict("'|u1'", "(4294967296, 4294967296)"), 128, "1")),
            "a.npy: shape [4294967296,4294967296] has more than 70368744177664 elements (max_elements)");
  EXPECT_NE(refusal(npy(dict("'|u1'", "(99999999999999999999,)"), 128, "1")), "");
  EXPECT_NE(refusal(npy("{'descr': '|u1', 'shape': (1,), }", 128, "1")), "");
  Bytes cut = npy(dict("'|u1'", "(1,)"), 128, "1");
  cut[8] = std::byte{0xFF};
  cut[9] = std::byte{0xFF};
  EXPECT_EQ(refusal(cut), "a.npy: the .npy header has 65535 bytes, the file 129");
  EXPECT_EQ(refusal(npy(dict("'<u8'", "(1,)"), 128, "\xff\xff\xff\xff\xff\xff\xff\xff")),
            "a.npy: element 0 is 18446744073709551615, which does not fit i64");
}

TEST(Npy, NeverCrashesOnDamage) {
  const Bytes file = io::npy_bytes({DType::F32, {2, 2}, raw<float>({1, 2, 3, 4})}, "a.npy");
  for (size_t n = 0; n < file.size(); ++n)
    EXPECT_NE(refusal({file.begin(), file.begin() + static_cast<ptrdiff_t>(n)}), "");
  for (size_t i = 0; i < 128; ++i)
    for (int bit = 0; bit < 8; ++bit) {
      Bytes bad = file;
      bad[i] ^= static_cast<std::byte>(1 << bit);
      try {
        const HostArray array = io::parse_npy(bad, "a.npy");
        EXPECT_EQ(array.bytes.size(), static_cast<size_t>(array.shape.elements()) * size_of(array.dtype));
      } catch (const Error& error) {
        EXPECT_TRUE(std::string_view(error.what()).starts_with("a.npy: "));
      }
    }
}

TEST(Npz, RoundTripsAndNamesItsKeys) {
  const TemporaryFile file("npy_test.npz");
  const io::NamedArrays arrays{{"w", {DType::F32, {2}, raw<float>({1, -0.0f})}},
                               {"w.adam.m", {DType::F64, {}, raw<double>({2.5})}},
                               {"rows.cursor", {DType::I64, {2}, raw<int64_t>({3, 64})}},
                               {"none", {DType::U8, {0, 3}, {}}}};
  io::write_npz(file.path(), arrays);
  const Bytes first = io::read_file(file.path());
  io::write_npz(file.path(), arrays);
  EXPECT_EQ(io::read_file(file.path()), first);
  const io::NamedArrays back = io::read_npz(file.path());
  ASSERT_EQ(back.size(), arrays.size());
  for (size_t i = 0; i < arrays.size(); ++i) {
    EXPECT_EQ(back[i].first, arrays[i].first);
    EXPECT_EQ(back[i].second.shape, arrays[i].second.shape);
    EXPECT_EQ(back[i].second.bytes, arrays[i].second.bytes);
  }
  EXPECT_EQ(io::read_array(file.path() + ":w.adam.m").bytes, arrays[1].second.bytes);
  try {
    static_cast<void>(io::read_array(file.path() + ":w.adam.n"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(
        error.what(),
        file.path() + ": no array named w.adam.n, did you mean w.adam.m?; it holds: w, w.adam.m, rows.cursor, none");
  }
  io::write_npz(file.path(), {});
  EXPECT_TRUE(io::read_npz(file.path()).empty());
  EXPECT_THROW(io::write_npz(file.path(), {{"b", {DType::BF16, {1}, raw<uint16_t>({0})}}}), Error);
  EXPECT_TRUE(io::read_npz(file.path()).empty()) << "a failed write leaves the file as it was";
}

// numpy.savez_compressed(a=arange(3, dtype=i4), **{'w.m': [[0.5]] as f4})
constexpr unsigned char kCompressed[] = {
    0x50, 0x4b, 0x03, 0x04, 0x2d, 0x00, 0x00, 0x00, 0x08, 0x00, 0x00, 0x00, 0x21, 0x00, 0x02, 0xec, 0xbd, 0xa9, 0xff,
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x05, 0x00, 0x14, 0x00, 0x61, 0x2e, 0x6e, 0x70, 0x79, 0x01, 0x00, 0x10,
    0x00, 0x8c, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x4c, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x9b, 0xec,
    0x17, 0xea, 0x1b, 0x10, 0xc9, 0xc8, 0x50, 0xc6, 0x50, 0xad, 0x9e, 0x92, 0x5a, 0x9c, 0x5c, 0xa4, 0x6e, 0xa5, 0xa0,
    0x6e, 0x93, 0x69, 0xa2, 0xae, 0xa3, 0xa0, 0x9e, 0x96, 0x5f, 0x54, 0x52, 0x94, 0x98, 0x17, 0x9f, 0x5f, 0x94, 0x92,
    0x0a, 0x12, 0x77, 0x4b, 0xcc, 0x29, 0x4e, 0x05, 0x8a, 0x17, 0x67, 0x24, 0x16, 0xa4, 0x02, 0xf9, 0x1a, 0xc6, 0x3a,
    0x9a, 0x3a, 0x0a, 0xb5, 0x0a, 0x14, 0x00, 0x2e, 0x06, 0x20, 0x60, 0x04, 0x62, 0x26, 0x20, 0x06, 0x00, 0x50, 0x4b,
    0x03, 0x04, 0x2d, 0x00, 0x00, 0x00, 0x08, 0x00, 0x00, 0x00, 0x21, 0x00, 0xb7, 0xeb, 0x96, 0xd8, 0xff, 0xff, 0xff,
    0xff, 0xff, 0xff, 0xff, 0xff, 0x07, 0x00, 0x14, 0x00, 0x77, 0x2e, 0x6d, 0x2e, 0x6e, 0x70, 0x79, 0x01, 0x00, 0x10,
    0x00, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x4a, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x9b, 0xec,
    0x17, 0xea, 0x1b, 0x10, 0xc9, 0xc8, 0x50, 0xc6, 0x50, 0xad, 0x9e, 0x92, 0x5a, 0x9c, 0x5c, 0xa4, 0x6e, 0xa5, 0xa0,
    0x6e, 0x93, 0x66, 0xa2, 0xae, 0xa3, 0xa0, 0x9e, 0x96, 0x5f, 0x54, 0x52, 0x94, 0x98, 0x17, 0x9f, 0x5f, 0x94, 0x92,
    0x0a, 0x12, 0x77, 0x4b, 0xcc, 0x29, 0x4e, 0x05, 0x8a, 0x17, 0x67, 0x24, 0x16, 0xa4, 0x02, 0xf9, 0x1a, 0x86, 0x3a,
    0x0a, 0x86, 0x9a, 0x3a, 0x0a, 0xb5, 0x0a, 0x64, 0x03, 0x2e, 0x06, 0x06, 0x06, 0x7b, 0x00, 0x50, 0x4b, 0x01, 0x02,
    0x2d, 0x03, 0x2d, 0x00, 0x00, 0x00, 0x08, 0x00, 0x00, 0x00, 0x21, 0x00, 0x02, 0xec, 0xbd, 0xa9, 0x4c, 0x00, 0x00,
    0x00, 0x8c, 0x00, 0x00, 0x00, 0x05, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x80, 0x01,
    0x00, 0x00, 0x00, 0x00, 0x61, 0x2e, 0x6e, 0x70, 0x79, 0x50, 0x4b, 0x01, 0x02, 0x2d, 0x03, 0x2d, 0x00, 0x00, 0x00,
    0x08, 0x00, 0x00, 0x00, 0x21, 0x00, 0xb7, 0xeb, 0x96, 0xd8, 0x4a, 0x00, 0x00, 0x00, 0x84, 0x00, 0x00, 0x00, 0x07,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x80, 0x01, 0x83, 0x00, 0x00, 0x00, 0x77, 0x2e,
    0x6d, 0x2e, 0x6e, 0x70, 0x79, 0x50, 0x4b, 0x05, 0x06, 0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x02, 0x00, 0x68, 0x00,
    0x00, 0x00, 0x06, 0x01, 0x00, 0x00, 0x00, 0x00,
};

TEST(Npz, ReadsCompressedArchivesOfNumPy) {
  const TemporaryFile file("npy_test_compressed.npz");
  io::write_file(file.path(), std::as_bytes(std::span(kCompressed)));
  const io::NamedArrays arrays = io::read_npz(file.path());
  ASSERT_EQ(arrays.size(), 2u);
  EXPECT_EQ(arrays[0].first, "a");
  EXPECT_EQ(values_of<int32_t>(arrays[0].second.bytes), (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(arrays[1].first, "w.m");
  EXPECT_EQ(arrays[1].second.shape, (Shape{1, 1}));
  EXPECT_EQ(values_of<float>(arrays[1].second.bytes), std::vector<float>{0.5f});
}

TEST(Npz, DamageIsNamed) {
  const TemporaryFile file("npy_test_damaged.npz");
  io::write_npz(file.path(), {{"w", {DType::F32, {2}, raw<float>({1, 2})}}});
  const Bytes good = io::read_file(file.path());
  for (size_t i = 0; i < good.size(); ++i)
    for (const bool cut : {false, true}) {
      Bytes bad = good;
      if (cut)
        bad.resize(i);
      else
        bad[i] ^= std::byte{0x10};
      io::write_file(file.path(), std::span<const std::byte>(bad));
      try {
        EXPECT_LE(io::read_npz(file.path()).size(), 1u);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::Format);
        EXPECT_TRUE(std::string_view(error.what()).starts_with(file.path())) << error.what();
      }
    }
}

TEST(Files, AreWrittenWholeOrNotAtAll) {
  const TemporaryFile file("npy_test.txt");
  io::write_file(file.path(), std::string_view("old"));
  EXPECT_THROW(io::write_file(file.path() + "/below", std::string_view("x")), Error);
  EXPECT_THROW(io::write_file(testing::TempDir(), std::string_view("x")), Error);
  const std::string link = file.path() + ".link";
  std::filesystem::create_symlink(file.path(), link);
  io::write_file(link, std::string_view("new"));
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(io::read_file(file.path()), bytes_of("new"));
  std::filesystem::remove(link);
  io::write_file("/dev/null", std::string_view("x"));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

template <class From>
std::vector<uint16_t> to_16(std::initializer_list<From> values, DType from, DType to) {
  Bytes result(values.size() * 2);
  convert(raw(values), from, result, to);
  return values_of<uint16_t>(result);
}

TEST(Convert, RoundsToHalvesOnce) {
  const std::initializer_list<double> values{0.1,
                                             65504,
                                             65519.99,
                                             65520,
                                             1e-8,
                                             2049,
                                             2051,
                                             -0.0,
                                             5.9604645e-08,
                                             2.98e-8,
                                             2.9802322387695313e-08,
                                             2.980232238769532e-08,
                                             HUGE_VAL,
                                             1.0 / 3};
  EXPECT_EQ(to_16(values, DType::F64, DType::F16), (std::vector<uint16_t>{0x2e66, 0x7bff, 0x7bff, 0x7c00, 0, 0x6800,
                                                                          0x6802, 0x8000, 1, 0, 0, 1, 0x7c00, 0x3555}));
  // 1 + 2^-8 is half way between two values; 2^-40 more or less decides, and is lost in f32.
  EXPECT_EQ(to_16({0.1, 1 + 0x1p-8, 1 + 3 * 0x1p-8, 1 + 0x1p-8 + 0x1p-40, 1 + 0x1p-8 - 0x1p-40, -(1 + 0x1p-8 + 0x1p-40),
                   0x1.FEp127, 0x1.FFp127, 1e-40, -1.0 / 3, 1e300, -HUGE_VAL, std::nan("")},
                  DType::F64, DType::BF16),
            (std::vector<uint16_t>{0x3dcd, 0x3f80, 0x3f82, 0x3f81, 0x3f80, 0xbf81, 0x7f7f, 0x7f80, 1, 0xbeab, 0x7f80,
                                   0xff80, 0x7fc0}));
  // 2^62 + 2^54 is half way; one more decides, and is lost in f64.
  EXPECT_EQ(to_16<int64_t>({(int64_t{1} << 62) + (int64_t{1} << 54), (int64_t{1} << 62) + (int64_t{1} << 54) + 1, -3},
                           DType::I64, DType::BF16),
            (std::vector<uint16_t>{0x5e80, 0x5e81, 0xc040}));
}

TEST(Convert, SaturatesTruncatesAndWraps) {
  const Bytes from = raw<double>({-1e30, 1e30, std::nan(""), 2.9, -2.9, 9223372036854774784.0, 0x1p63, -0x1p63});
  Bytes to(8 * 8);
  convert(from, DType::F64, to, DType::I64);
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min(), kMax = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(values_of<int64_t>(to), (std::vector<int64_t>{kMin, kMax, 0, 2, -2, 9223372036854774784, kMax, kMin}));
  Bytes small(4);
  convert(raw<float>({-0.5f, 255.9f, 256, -3}), DType::F32, small, DType::U8);
  EXPECT_EQ(values_of<uint8_t>(small), (std::vector<uint8_t>{0, 255, 255, 0}));
  convert(raw<int64_t>({256, -1, 300, 7}), DType::I64, small, DType::U8);
  EXPECT_EQ(values_of<uint8_t>(small), (std::vector<uint8_t>{0, 255, 44, 7}));
  convert(raw<float>({0, -0.0f, NAN, 1e-40f}), DType::F32, small, DType::Bool);
  EXPECT_EQ(values_of<uint8_t>(small), (std::vector<uint8_t>{0, 0, 1, 1}));
  convert(raw<uint8_t>({0, 1, 2, 255}), DType::Bool, small, DType::Bool);
  EXPECT_EQ(values_of<uint8_t>(small), (std::vector<uint8_t>{0, 1, 1, 1}));
}

std::string input_refusal(const HostArray& array, DType wanted) {
  try {
    static_cast<void>(convert_input(array, wanted, "x"));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::Usage);
    return error.what();
  }
  return "";
}

TEST(ConvertInput, TakesWhatFitsAndNamesWhatDoesNot) {
  const HostArray ints{DType::I64, {3}, raw<int64_t>({0, 1, 255})};
  EXPECT_EQ(values_of<uint8_t>(convert_input(ints, DType::U8, "x").bytes), (std::vector<uint8_t>{0, 1, 255}));
  EXPECT_EQ(values_of<float>(convert_input(ints, DType::F32, "x").bytes), (std::vector<float>{0, 1, 255}));
  EXPECT_EQ(input_refusal(ints, DType::Bool), "x: wanted bool, got i64: element 2 is 255, which does not fit");
  EXPECT_EQ(input_refusal({DType::I32, {1}, raw<int32_t>({-1})}, DType::U8),
            "x: wanted u8, got i32: element 0 is -1, which does not fit");
  EXPECT_EQ(input_refusal({DType::I64, {1}, raw<int64_t>({16777217})}, DType::F32),
            "x: wanted f32, got i64: element 0 is 16777217, which does not fit");
  EXPECT_EQ(input_refusal({DType::I64, {1}, raw<int64_t>({std::numeric_limits<int64_t>::max()})}, DType::F64),
            "x: wanted f64, got i64: element 0 is 9223372036854775807, which does not fit");
  EXPECT_EQ(input_refusal({DType::F64, {1}, raw<double>({1})}, DType::F32),
            "x: wanted f32, got f64: a float converts only to a wider float");
  EXPECT_EQ(input_refusal({DType::F16, {1}, raw<uint16_t>({0})}, DType::BF16),
            "x: wanted bf16, got f16: a float converts only to a wider float");
  EXPECT_EQ(values_of<float>(convert_input({DType::F16, {1}, raw<uint16_t>({0x3555})}, DType::F32, "x").bytes),
            std::vector<float>{0.333251953125f});
}

TEST(ElementText, IsShortestAndReadsBack) {
  const auto text = [](auto value, DType dtype) { return element_text(raw({value}), dtype, 0); };
  EXPECT_EQ(text(0.1f, DType::F32), "0.1");
  EXPECT_EQ(text(1.0f / 3, DType::F32), "0.33333334");
  EXPECT_EQ(text(-0.0, DType::F64), "-0");
  EXPECT_EQ(text(1e-45f, DType::F32), "1e-45");
  EXPECT_EQ(text(std::nan(""), DType::F64), "nan");
  EXPECT_EQ(text(-HUGE_VAL, DType::F64), "-inf");
  EXPECT_EQ(text(uint16_t{0x2e66}, DType::F16), "0.1");
  EXPECT_EQ(text(uint16_t{0x3555}, DType::F16), "0.3333");
  EXPECT_EQ(text(uint16_t{1}, DType::F16), "6e-08");
  EXPECT_EQ(text(uint16_t{0x3dcd}, DType::BF16), "0.1");
  EXPECT_EQ(text(int64_t{-9}, DType::I64), "-9");
  EXPECT_EQ(text(uint8_t{3}, DType::Bool), "1");
}

// Every f16 value and every bf16 value: exact in f32, back to the same bits, and its text means the same value.
TEST(ElementText, HoldsForEveryHalf) {
  for (const DType dtype : {DType::F16, DType::BF16})
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      const Bytes half = raw<uint16_t>({static_cast<uint16_t>(bits)});
      const double value = element_as_f64(half, dtype, 0);
      if (std::isnan(value)) continue;
      EXPECT_EQ(to_16<float>({static_cast<float>(value)}, DType::F32, dtype)[0], bits);
      if (std::isinf(value)) continue;
      const double read = std::strtod(element_text(half, dtype, 0).c_str(), nullptr);
      EXPECT_EQ(to_16<double>({read}, DType::F64, dtype)[0], bits);
    }
}

}  // namespace
}  // namespace tape
