#include "nereus/data/files.h"

#include <gmock/gmock.h>

#include "nereus/data/testing.h"

namespace nereus {
namespace {

using ::testing::HasSubstr;

TEST(Files, WriteReplacesAndCreatesDirectories) {
  const auto file = fresh_directory() / "a" / "b.txt";
  write_text(file, "first, and longer");
  write_text(file, "second");
  EXPECT_EQ(read_text(file), "second");
  EXPECT_FALSE(std::filesystem::exists(file.string() + ".partial"));
}

TEST(Files, ReadNamesTheMissingFile) {
  const auto file = fresh_directory() / "absent.txt";
  EXPECT_THAT(error_message(ErrorCode::kInvalidInput, [&] { read_text(file); }),
              HasSubstr(file.string()));
}

TEST(Files, WriteBelowAFileIsAnIoError) {
  const auto file = fresh_directory() / "file";
  write_text(file, "x");
  EXPECT_THAT(error_message(ErrorCode::kIo, [&] { write_text(file / "below", "y"); }),
              HasSubstr(file.string()));
}

}  // namespace
}  // namespace nereus
