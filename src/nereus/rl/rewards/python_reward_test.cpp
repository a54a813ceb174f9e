#include "nereus/rl/rewards/python_reward.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "nereus/base/error.h"

namespace nereus {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class PythonRewardTest : public ::testing::Test {
 protected:
  PythonRewardTest() {
    std::filesystem::create_directories(directory_);
    std::ofstream(directory_ / "helper.py") << "BONUS = 0.25\n";
    std::ofstream(directory_ / "rewards.py") << R"(
import numbers
from helper import BONUS

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    if solution_str == "raise":
        raise ValueError("what a response")
    if solution_str == "nan":
        return float("nan")
    if solution_str == "nothing":
        return None
    right = solution_str == ground_truth and data_source == "sums"
    return right + BONUS * extra_info["level"] * extra_info["finished"]

def detailed(solution_str, **others):
    return {"score": len(solution_str), "format": True, "why": "long"}
)";
  }
  ~PythonRewardTest() override { std::filesystem::remove_all(directory_); }

  std::unique_ptr<Reward> open(const std::string& function = "compute_score") const {
    return std::make_unique<PythonReward>(directory_ / "rewards.py", function);
  }
  static RewardInput input(const std::string& response) {
    return {.prompt = "1 + 1",
            .response = response,
            .ground_truth = "2",
            .response_tokens = 3,
            .finished = true,
            .data_source = "sums",
            .extra_info = {{"level", 2}}};
  }
  static std::string refusal(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidInput);
      return error.what();
    }
    return "no error";
  }

  std::filesystem::path directory_ = std::filesystem::temp_directory_path() /
                                     ("nereus_python_reward_" + std::to_string(::getpid()));
};

TEST_F(PythonRewardTest, IsCalledAsVerlDoes) {
  const auto reward = open();
  EXPECT_EQ(reward->score(input("2")).score, 1.5);
  EXPECT_EQ(reward->score(input("3")).score, 0.5);
}

TEST_F(PythonRewardTest, OtherNumbersOfADictAreKept) {
  const RewardOutput output = open("detailed")->score(input("four"));
  EXPECT_EQ(output.score, 4);
  EXPECT_EQ(output.extra, (std::map<std::string, double>{{"format", 1}}));
}

TEST_F(PythonRewardTest, FailuresNameTheFileAndWhatWasWrong) {
  const auto reward = open();
  EXPECT_THAT(refusal([&] { reward->score(input("raise")); }),
              AllOf(HasSubstr("rewards.py: compute_score"), HasSubstr("what a response")));
  EXPECT_THAT(refusal([&] { reward->score(input("nan")); }), HasSubstr("its answer is nan"));
  EXPECT_THAT(refusal([&] { reward->score(input("nothing")); }), HasSubstr("is null, not"));
  EXPECT_EQ(reward->score(input("2")).score, 1.5) << "still usable";
  EXPECT_THAT(refusal([&] { open("compute"); }),
              AllOf(HasSubstr("no function compute"), HasSubstr("custom_reward_function.name")));
  EXPECT_THAT(refusal([&] { PythonReward(directory_ / "absent.py", "f"); }),
              HasSubstr("no such file"));
  std::ofstream(directory_ / "broken.py") << "import absent_module\n";
  EXPECT_THAT(refusal([&] { PythonReward(directory_ / "broken.py", "f"); }),
              AllOf(HasSubstr("broken.py"), HasSubstr("absent_module")));
}

}  // namespace
}  // namespace nereus
