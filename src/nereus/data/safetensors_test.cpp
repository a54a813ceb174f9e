#include "nereus/data/safetensors.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "nereus/data/files.h"
#include "nereus/data/testing.h"

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

}  // namespace
}  // namespace nereus
