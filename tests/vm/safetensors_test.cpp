// .safetensors files: the bytes of the published format both ways, every dtype, and for each way in which a file can
// lie an Error that names it. tests/golden/safetensors.tape reads a file that Python wrote.
#include "vm/io/safetensors.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "bytes.h"
#include "vm/error.h"

namespace tape {
namespace {

/// A file of that header and `data_bytes` zeros; `length` is what its first eight bytes say.
Bytes file_of(std::string_view header, size_t data_bytes = 0, std::optional<uint64_t> length = {}) {
  Bytes bytes = raw<uint64_t>({length.value_or(header.size())});
  const Bytes text = bytes_of(header);
  bytes.insert(bytes.end(), text.begin(), text.end());
  bytes.resize(bytes.size() + data_bytes);
  return bytes;
}

std::string refusal(const Bytes& file) {
  try {
    static_cast<void>(io::parse_safetensors(file, "w.safetensors"));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::Format);
    return error.what();
  }
  return "";
}

/// `header` with two tensors a and b, for cases about one of them.
std::string two(std::string_view a, std::string_view b) {
  return "{\"a\":" + std::string(a) + ",\"b\":" + std::string(b) + "}";
}
std::string f32(int64_t elements, int64_t begin, int64_t end) {
  return "{\"dtype\":\"F32\",\"shape\":[" + std::to_string(elements) + "],\"data_offsets\":[" + std::to_string(begin) +
         "," + std::to_string(end) + "]}";
}

TEST(Safetensors, WritesThePublishedBytes) {
  const io::NamedArrays arrays = {{"y", {DType::U8, {3}, raw<uint8_t>({7, 8, 9})}},
                                  {"b", {DType::Bool, {}, raw<uint8_t>({1})}},
                                  {"x", {DType::F32, {1, 2}, raw<float>({1, -2})}}};
  // The f32 comes first in the data, so that it is aligned; the names are sorted.
  const std::string header =
      "{\"b\":{\"dtype\":\"BOOL\",\"shape\":[],\"data_offsets\":[8,9]},"
      "\"x\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]},"
      "\"y\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[9,12]}}";
  std::string padded = header;
  padded.resize((header.size() + 7) / 8 * 8, ' ');
  Bytes wanted = file_of(padded);
  const Bytes data = bytes_of(std::string_view("\0\0\x80\x3f\0\0\0\xc0\1\7\10\11", 12));
  wanted.insert(wanted.end(), data.begin(), data.end());
  EXPECT_EQ(io::safetensors_bytes(arrays, "w"), wanted);
  EXPECT_EQ(io::safetensors_bytes({}, "w"), file_of("{}      "));
}

TEST(Safetensors, EveryDtypeComesBack) {
  io::NamedArrays arrays;
  for (const DTypeInfo& info : kDTypes) {
    HostArray array{info.dtype, {2, 3}, Bytes(6 * info.bytes)};
    for (size_t i = 0; i < array.bytes.size(); ++i)
      array.bytes[i] = static_cast<std::byte>(info.dtype == DType::Bool ? i % 2 : 17 * i + 1);
    arrays.emplace_back("t." + std::string(info.name), std::move(array));
  }
  arrays.emplace_back("empty", HostArray{DType::F16, {0, 4}, {}});
  arrays.emplace_back("scalar \"\\\xc3\xa4", HostArray{DType::I64, {}, raw<int64_t>({-5})});
  const std::string path = (std::filesystem::path(testing::TempDir()) / "dtypes.safetensors").string();
  io::write_safetensors(path, arrays);
  const io::NamedArrays all = io::read_safetensors(path);
  EXPECT_EQ(all.size(), arrays.size());
  for (const auto& [name, array] : arrays) {
    const HostArray one = io::read_safetensors(path, name);
    EXPECT_EQ(one.dtype, array.dtype) << name;
    EXPECT_EQ(one.shape, array.shape) << name;
    EXPECT_EQ(one.bytes, array.bytes) << name;
    const auto same =
        std::find_if(all.begin(), all.end(), [&, &key = name](const auto& item) { return item.first == key; });
    ASSERT_NE(same, all.end()) << name;
    EXPECT_EQ(same->second.bytes, array.bytes) << name;
  }
  try {
    static_cast<void>(io::read_safetensors(path, "t.f31"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), path +
                                ": no tensor named t.f31, did you mean t.f32?; it holds: empty, scalar \"\\\xc3\xa4" +
                                ", t.bf16, t.bool, t.f16, t.f32, t.f64, " +
                                std::string(error.what()).substr(std::string(error.what()).find("t.i")));
  }
  EXPECT_EQ(io::read_array(path + ":t.f32").bytes, io::read_safetensors(path, "t.f32").bytes);
  std::filesystem::remove(path);
}

TEST(Safetensors, WriterRefusesNamesTheFormatCannotHold) {
  const HostArray one{DType::U8, {}, raw<uint8_t>({1})};
  const std::pair<io::NamedArrays, const char*> cases[] = {
      {{{"a", one}, {"b", one}, {"a", one}}, "w: the name a is there twice"},
      {{{"__metadata__", one}}, "w: __metadata__ is the format's own name"},
      {{{"\xff", one}}, "w: the name of a tensor is no UTF-8"},
  };
  for (const auto& [arrays, message] : cases) try {
      static_cast<void>(io::safetensors_bytes(arrays, "w"));
      ADD_FAILURE() << message;
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), message);
    }
}

TEST(Safetensors, ReadsWhatTheFormatAllows) {
  const std::string a = f32(2, 0, 8), b = f32(0, 8, 8);
  const Bytes good[] = {
      file_of("{}"),
      file_of("{}    \n "),
      file_of("{\"__metadata__\":{\"format\":\"pt\",\"empty\":\"\"}}"),
      file_of(two(a, b), 8),
      file_of(two(f32(1, 4, 8), f32(1, 0, 4)), 8),  // the order of the header says nothing
      file_of("{\"\":{\"shape\":[0,4194304],\"data_offsets\":[0,0],\"dtype\":\"F64\"}}"),
  };
  for (const Bytes& file : good) EXPECT_EQ(refusal(file), "");
  Bytes truth = file_of("{\"t\":{\"dtype\":\"BOOL\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2);
  truth.back() = std::byte{7};
  EXPECT_EQ(io::parse_safetensors(truth, "w")[0].second.bytes, raw<uint8_t>({0, 1}));
}

TEST(Safetensors, EveryLieHasItsMessage) {
  const auto one = [](std::string_view fields) { return "{\"a\":{" + std::string(fields) + "}}"; };
  const std::string rest = "\"shape\":[1],\"data_offsets\":[0,4]";
  std::string deep = "{\"a\":";
  deep.append(100'000, '[');
  const std::pair<Bytes, const char*> cases[] = {
      {{}, "the file is empty"},
      {bytes_of("\1\2\3"), "the file has 3 bytes, wanted 8 with the length of the header"},
      {file_of("{}", 0, 3), "the header has 3 bytes, the file only 2 behind its length"},
      {file_of("{}", 0, ~uint64_t{0}), "the header has 18446744073709551615 bytes, more than the 100000000"},
      {file_of("{}", 0, 100'000'001), "the header has 100000001 bytes, more than the 100000000"},
      {file_of(""), "the header does not begin with {"},
      {file_of(" {}"), "the header does not begin with {"},
      {file_of("\xef\xbb\xbf{}"), "the header does not begin with {"},
      {file_of("{\"a\":"), "the header is no JSON at its byte 6"},
      {file_of("{} x"), "the header is no JSON at its byte 4"},
      {file_of("{\"\xff\":0}"), "the header is no JSON at its byte 3"},
      {file_of(std::string_view("{}\0\0", 4)), "the header is no JSON at its byte 3"},
      {file_of(deep), "tensor a: got an array, wanted an object"},
      {file_of("{\"a\":null}"), "tensor a: got null, wanted an object"},
      {file_of("{\"__metadata__\":3}"), "__metadata__ is 3, wanted an object of strings"},
      {file_of("{\"__metadata__\":{\"n\":3}}"), "__metadata__ holds 3, wanted strings only"},
      {file_of("{\"__metadata__\":{\"n\":{}}}"), "__metadata__ holds an object, wanted strings only"},
      {file_of("{\"__metadata__\":{\"n\":\"\",\"n\":\"\"}}"), "__metadata__ has n twice"},
      {file_of("{\"a\":" + f32(0, 0, 0) + ",\"a\":" + f32(0, 0, 0) + "}"), "the name a is there twice"},
      {file_of(one("\"dtype\":\"F32\",\"dtype\":\"F32\"," + rest), 4), "tensor a: has dtype twice"},
      {file_of(one(rest), 4), "tensor a: has no dtype"},
      {file_of(one("\"dtype\":\"F32\",\"data_offsets\":[0,4]"), 4), "tensor a: has no shape"},
      {file_of(one("\"dtype\":\"F32\",\"shape\":[1]"), 4), "tensor a: has no data_offsets"},
      {file_of(one("\"dtype\":\"F32\",\"strides\":[1]," + rest), 4), "tensor a: has an unknown field strides"},
      {file_of(one("\"dtype\":\"F8_E4M3\"," + rest), 4), "tensor a: dtype F8_E4M3 is not supported; wanted one of F64"},
      {file_of(one("\"dtype\":2," + rest), 4), "tensor a: got 2, wanted a string as dtype"},
      {file_of(one("\"dtype\":\"F32\",\"shape\":4,\"data_offsets\":[0,4]"), 4),
       "tensor a: got 4, wanted an array as shape"},
      {file_of(one("\"dtype\":\"F32\",\"shape\":[[1]],\"data_offsets\":[0,4]"), 4),
       "tensor a: got an array, wanted whole"},
      {file_of(one("\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]"), 4),
       "tensor a: got -1, wanted whole numbers"},
      {file_of(one("\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]"), 4), "tensor a: got 1.0, wanted whole"},
      {file_of(one("\"dtype\":\"F32\",\"shape\":[9223372036854775808],\"data_offsets\":[0,0]")),
       "tensor a: got 9223372036"},
      {file_of(one("\"dtype\":\"U8\",\"shape\":[4194305,4194305,211106198978564],\"data_offsets\":[0,4]"), 4),
       "tensor a: shape [4194305,4194305,211106198978564] has more than"},
      {file_of(one("\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]"), 1),
       "tensor a: has more than 8 dimensions (max_rank)"},
      {file_of(one("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]"), 4),
       "tensor a: got -4, wanted whole numbers from 0 in data_offsets"},
      {file_of(one("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]"), 4),
       "tensor a: data_offsets has 1 numbers, wanted 2"},
      {file_of(one("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]"), 4),
       "tensor a: data_offsets has 3 numbers, wanted 2"},
      {file_of("{\"a\":" + f32(1, 4, 0) + "}", 4), "tensor a: data_offsets [4, 0] are not within the 4 bytes of data"},
      {file_of("{\"a\":" + f32(2, 0, 8) + "}", 4), "tensor a: data_offsets [0, 8] are not within the 4 bytes of data"},
      {file_of("{\"a\":" + f32(3, 0, 8) + "}", 8), "tensor a: F32[3] is 12 bytes, data_offsets [0, 8] are 8"},
      {file_of(two(f32(2, 0, 8), f32(1, 4, 8)), 8),
       "tensor b: its bytes begin at 4, within those of a, which end at 8"},
      {file_of(two(f32(2, 0, 8), f32(0, 4, 4)), 8), "tensor b: its bytes begin at 4, within those of a"},
      {file_of(two(f32(1, 0, 4), f32(1, 8, 12)), 12), "bytes 4 to 8 of the data belong to no tensor"},
      {file_of(two(f32(1, 4, 8), f32(1, 8, 12)), 12), "bytes 0 to 4 of the data belong to no tensor"},
      {file_of("{\"a\":" + f32(1, 0, 4) + "}", 5), "bytes 4 to 5 of the data belong to no tensor"},
      {file_of("{}", 1), "bytes 0 to 1 of the data belong to no tensor"},
  };
  for (const auto& [file, message] : cases)
    EXPECT_EQ(refusal(file).find("w.safetensors: " + std::string(message)), 0u) << refusal(file) << "\nnot " << message;
  EXPECT_EQ(refusal(file_of("{\"\\n\\u0007\":1}")), "w.safetensors: tensor ??: got 1, wanted an object");
}

TEST(Safetensors, UnsignedIntegersThatFitNothingAreRefused) {
  const std::string header = "{\"n\":{\"dtype\":\"U64\",\"shape\":[2],\"data_offsets\":[0,16]}}";
  Bytes file = file_of(header, 16);
  EXPECT_EQ(io::parse_safetensors(file, "w")[0].second.dtype, DType::I64);
  file.back() = std::byte{0x80};
  EXPECT_EQ(refusal(file), "w.safetensors:n: element 1 is 9223372036854775808, which does not fit i64");
}

// Whatever one or two changed bytes make of a good file, it is read or refused, cut anywhere as well.
TEST(Safetensors, DamagedFilesAreReadOrRefused) {
  const io::NamedArrays arrays = {{"w1", {DType::F32, {2, 2}, raw<float>({1, 2, 3, 4})}},
                                  {"opt.t", {DType::I64, {}, raw<int64_t>({9})}},
                                  {"mask", {DType::Bool, {3}, raw<uint8_t>({1, 0, 1})}}};
  const Bytes good = io::safetensors_bytes(arrays, "w");
  std::mt19937 random(7);
  for (int i = 0; i < 20'000; ++i) {
    Bytes bad = good;
    for (int changes = 1 + i % 2; changes > 0; --changes)
      bad[random() % bad.size()] = static_cast<std::byte>(i % 4 == 0 ? random() : "{}[]\":,0149-e"[random() % 13]);
    static_cast<void>(refusal(bad));
  }
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_NE(refusal({good.begin(), good.begin() + static_cast<ptrdiff_t>(size)}), "") << size;
}

}  // namespace
}  // namespace tape
