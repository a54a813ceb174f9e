#include "nereus/core/cluster/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nereus/core/base/error.h"

namespace nereus {
namespace {

TEST(BackendTest, TextIsReadBack) {
  for (const char* text : {"cpu", "cuda:0", "cuda:3,1", "cuda:0,0,1"}) {
    EXPECT_EQ(to_string(parse_backend(text)), text);
  }
}

TEST(BackendTest, DevicesMayShareAGpu) {
  const Backend backend = parse_backend("cuda:2,0,2");
  EXPECT_EQ(backend.gpu_of({1, 2}), 2);
  EXPECT_EQ(backend.sharing({0, 0}), 2);
  EXPECT_EQ(backend.sharing({0, 1}), 1);
  EXPECT_THROW(backend.gpu_of({0, 3}), Error);
}

TEST(BackendTest, RefusesWhatNamesNoDevices) {
  for (const char* text : {"", "gpu", "cuda", "cuda:", "cuda:0,", "cuda:-1", "cuda:1x", "cpu:2"}) {
    try {
      parse_backend(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("cuda:0,1")) << text;
    }
  }
}

}  // namespace
}  // namespace nereus
