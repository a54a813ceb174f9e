#include "nereus/runtime/files/files.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <utility>

#include "nereus/runtime/files/testing.h"

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

TEST(Files, OnlyRegularFilesAreRead) {
  const auto folder = fresh_directory();
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink("/dev/zero", folder / "link");
  std::filesystem::create_symlink("absent", folder / "dangling");
  const std::pair<std::filesystem::path, const char*> cases[] = {
      {folder / "pipe", "a pipe"},
      {folder / "link", "a device"},
      {"/dev/zero", "a device"},
      {folder, "a directory"},
      {folder / "dangling", "no such file"},
      {folder / "pipe" / "below", "no such file"},
      {folder / std::string(5000, 'a'), "too long"}};
  for (const auto& [path, why] : cases) {
    EXPECT_THAT(error_message(ErrorCode::kInvalidInput, [&] { read_text(path); }), HasSubstr(why));
  }
  write_text(folder / "file", "text");
  std::filesystem::create_symlink("file", folder / "fine");
  EXPECT_EQ(read_text(folder / "fine"), "text");
}

TEST(Files, LargeOnesAreRefusedUnread) {
  const auto file = fresh_directory() / "sparse";
  write_text(file, "x");
  std::filesystem::resize_file(file, uint64_t{1} << 40);
  EXPECT_THAT(error_message(ErrorCode::kInvalidInput, [&] { read_text(file); }),
              HasSubstr("1099511627776 bytes"));
}

}  // namespace
}  // namespace nereus
