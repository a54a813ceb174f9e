#include "nereus/app/observe/tensorboard.h"

#include <gtest/gtest.h>

#include <fstream>

#include <sstream>

namespace nereus {
namespace {

// RFC 3720, appendix B.4.
TEST(Crc32c, MatchesThePublishedValues) {
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
}

TEST(TensorBoard, RecordsHaveTheirLengthAndFileVersion) {
  const auto directory = std::filesystem::path(testing::TempDir()) / "nereus_tensorboard_test";
  std::filesystem::remove_all(directory);
  TensorBoardWriter(directory, 1.5, 0).write(3, 2.5, {{"critic/score/mean", 0.25}});
  const auto file = *std::filesystem::directory_iterator(directory);
  EXPECT_TRUE(file.path().filename().string().starts_with("events.out.tfevents."));
  std::ostringstream bytes;
  bytes << std::ifstream(file.path(), std::ios::binary).rdbuf();
  // 8 length, 4 checksum, 9 wall time, 2 step, 15 version, 4 checksum.
  EXPECT_EQ(bytes.str()[0], 26);
  EXPECT_EQ(bytes.str().substr(25, 13), "brain.Event:2");
  EXPECT_NE(bytes.str().find("critic/score/mean"), std::string::npos);
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace nereus
