#include "nereus/runtime/data/safetensors.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "nereus/runtime/files/files.h"
#include "nereus/runtime/files/testing.h"

namespace nereus {
namespace {

using ::testing::HasSubstr;

// A file from its header and as many bytes of data as asked for.
std::filesystem::path file_with(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string content(reinterpret_cast<const char*>(&length), sizeof length);
  const auto file = fresh_directory() / "made.safetensors";
  write_text(file, content + header + std::string(data_bytes, '\0'));
  return file;
}

std::string refusal(const std::filesystem::path& file) {
  return error_message(ErrorCode::kInvalidInput, [&] { read_safetensors(file); });
}

TEST(Safetensors, EveryDtypeSurvivesBitForBit) {
  const auto file = fresh_directory() / "t.safetensors";
  TensorMap written;
  for (const auto dtype : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt,
                           at::kByte, at::kBool}) {
    written[at::toString(dtype)] = at::arange(6, at::kFloat).reshape({2, 3}).to(dtype);
  }
  written["scalar"] = at::scalar_tensor(3.5);
  written["empty"] = at::empty({0, 4});
  write_safetensors(file, written, {{"format", "pt"}});

  const TensorMap read = read_safetensors(file);
  ASSERT_EQ(read.size(), written.size());
  for (const auto& [name, tensor] : written) {
    EXPECT_EQ(read.at(name).scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(at::equal(read.at(name), tensor)) << name;
  }
}

TEST(Safetensors, NonContiguousTensorsAreWrittenInLogicalOrder) {
  const auto file = fresh_directory() / "t.safetensors";
  const at::Tensor transposed = at::arange(6).reshape({2, 3}).t();
  write_safetensors(file, {{"t", transposed}});
  EXPECT_TRUE(at::equal(read_safetensors(file).at("t"), transposed));
}

TEST(Safetensors, MissingFile) {
  const auto file = fresh_directory() / "absent.safetensors";
  EXPECT_THAT(refusal(file), HasSubstr(file.string()));
}

TEST(Safetensors, AnyTruncationIsRefused) {
  const auto file = fresh_directory() / "t.safetensors";
  write_safetensors(file, {{"a", at::ones({4})}, {"b", at::ones({3}, at::kHalf)}});
  const std::string whole = read_text(file);
  for (size_t size = 0; size < whole.size(); ++size) {
    write_text(file, whole.substr(0, size));
    EXPECT_THAT(refusal(file), HasSubstr("t.safetensors")) << size;
  }
  write_text(file, whole.substr(0, whole.size() - 1));
  EXPECT_THAT(refusal(file), HasSubstr("truncated"));
}

TEST(Safetensors, BadHeaders) {
  EXPECT_THAT(refusal(file_with("not json", 0)), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal(file_with("[]", 0)), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal(file_with(R"({"a":{"dtype":"F8","shape":[1],"data_offsets":[0,1]}})", 1)),
              HasSubstr("F8"));
  EXPECT_THAT(refusal(file_with(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,1]}})", 1)),
              HasSubstr("do not suit shape [2]"));
  EXPECT_THAT(refusal(file_with(R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1)),
              HasSubstr("[-1]"));
  EXPECT_THAT(refusal(file_with(R"({"a":{"shape":[1],"data_offsets":[0,1]}})", 1)),
              HasSubstr("dtype"));
  EXPECT_THAT(refusal(file_with(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2)),
              HasSubstr("begins at byte 1"));
  EXPECT_THAT(refusal(file_with(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},
                                    "b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                                1)),
              HasSubstr("begins at byte 0"));
  EXPECT_THAT(refusal(file_with(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 9)),
              HasSubstr("the file has 9"));
}

TEST(Safetensors, HeaderLongerThanTheFile) {
  const auto file = fresh_directory() / "t.safetensors";
  write_text(file, std::string(8, '\x7f') + "{}");
  EXPECT_THAT(refusal(file), HasSubstr("not a safetensors file"));
}

TEST(Safetensors, SizesAreJudgedBeforeMemoryIsTaken) {
  const auto header = [](const std::string& shape, const std::string& offsets) {
    return R"({"a":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  for (const char* shape :
       {"[4294967296,4294967296]", "[9223372036854775807]", "[4611686018427387904,4]",
        "[18446744073709551615]", "[1e30]", "[1.0]", "[true]", "3"}) {
    EXPECT_THAT(refusal(file_with(header(shape, "[0,4]"), 4)), HasSubstr("\"a\"")) << shape;
  }
  for (const char* offsets :
       {"[0,18446744073709551615]", "[4,0]", "[0]", "[0,4,8]", "[-4,0]", "[0,1e400]"}) {
    EXPECT_THAT(refusal(file_with(header("[1]", offsets), 4)), HasSubstr("made.safetensors"));
  }
  std::string ones = "[1";
  for (int i = 0; i < 100; ++i) ones += ",1";
  EXPECT_THAT(refusal(file_with(header(ones + "]", "[0,4]"), 4)), HasSubstr("101 dimensions"));

  const auto sparse = file_with(header("[274877906944]", "[0,1099511627776]"), 0);
  std::filesystem::resize_file(sparse, std::filesystem::file_size(sparse) + (uint64_t{1} << 40));
  EXPECT_THAT(refusal(sparse), HasSubstr("of memory"));
}

TEST(Safetensors, UnknownAndDeepPartsOfAHeaderAreRefused) {
  EXPECT_THAT(
      refusal(file_with(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"shpae":[2]}})", 1)),
      HasSubstr("unknown key \"shpae\""));
  EXPECT_THAT(refusal(file_with(R"({"__metadata__":{"format":1}})", 0)), HasSubstr("__metadata__"));
  EXPECT_THAT(refusal(file_with(std::string(60'000, '['), 0)), HasSubstr("nested deeper"));
}

TEST(Safetensors, OnlyRegularFiles) {
  EXPECT_THAT(refusal("/dev/zero"), HasSubstr("a device"));
  EXPECT_THAT(refusal(fresh_directory()), HasSubstr("a directory"));
}

}  // namespace
}  // namespace nereus
