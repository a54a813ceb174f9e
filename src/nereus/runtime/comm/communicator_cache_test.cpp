#include "nereus/runtime/comm/communicator_cache.h"

#include <gtest/gtest.h>

namespace nereus {
namespace {

const std::vector<DeviceId> kPair = {{0, 0}, {0, 1}};

TEST(CommunicatorCache, GivesTheSameGroupAgain) {
  CommunicatorCache cache(Backend{});
  const auto first = cache.group(kPair);
  ASSERT_EQ(first.size(), 2);
  EXPECT_EQ(first[1]->rank(), 1);
  EXPECT_EQ(cache.group(kPair), first);
  EXPECT_NE(cache.group({{0, 1}, {0, 0}}).front(), first.back()) << "other ranks";
}

TEST(CommunicatorCache, ReplacesAnAbortedGroup) {
  CommunicatorCache cache(Backend{});
  const auto first = cache.group(kPair);
  first[1]->abort("device 0:1 was lost");
  const auto second = cache.group(kPair);
  EXPECT_NE(second, first);
  EXPECT_FALSE(second.front()->is_aborted());
}

TEST(CommunicatorCache, GivesUpOnlyWhatNobodyUses) {
  CommunicatorCache cache(Backend{});
  const auto used = cache.group(kPair);
  const std::weak_ptr<Communicator> unused = cache.group({{0, 2}, {0, 3}}).front();
  EXPECT_FALSE(unused.expired());
  cache.trim();
  EXPECT_TRUE(unused.expired());
  EXPECT_EQ(cache.group(kPair), used);
}

}  // namespace
}  // namespace nereus
