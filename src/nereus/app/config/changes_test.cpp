#include "nereus/app/config/changes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nereus {
namespace {

TEST(ChangedSettings, NamesWhatDiffersAndNothingElse) {
  Config config;
  const std::string before = to_yaml(config);
  EXPECT_TRUE(changed_settings(before, config).empty());
  config.data.train_batch_size = 96;
  config.trainer.resume_mode = "auto";
  const std::string old_size = std::to_string(Config().data.train_batch_size);
  EXPECT_THAT(changed_settings(before, config),
              testing::ElementsAre("data.train_batch_size " + old_size + " → 96"));
  EXPECT_TRUE(changed_settings("{cut o", config).empty());
}

}  // namespace
}  // namespace nereus
