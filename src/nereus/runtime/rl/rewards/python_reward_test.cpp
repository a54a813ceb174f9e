#include "nereus/runtime/rl/rewards/python_reward.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>

#include "nereus/core/base/error.h"

namespace nereus {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Named like a module of the standard library, which it uses, as its neighbour is.
constexpr const char* kRewards = R"python(
import json
import math
import random
import time
from decimal import Decimal
from helper import BONUS

ANSWERS = {"nan": math.nan, "nothing": None, "text": "1", "list": [1], "bytes": b"1", "huge": 10**400,
           "complex": 1j, "no score": {"points": 1}, "generator": (x for x in "1")}
NUMBERS = {"true": True, "decimal": Decimal("0.5"), "large": 2**70}

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    if solution_str == "raise":
        raise ValueError("what a\nresponse")
    if solution_str == "late":
        time.sleep(1000)
    if solution_str in ANSWERS:
        return ANSWERS[solution_str]
    if solution_str in NUMBERS:
        return NUMBERS[solution_str]
    right = solution_str == ground_truth and data_source == "sums"
    return right + BONUS * extra_info["level"] * extra_info["finished"] * (random.random() < 1)

def detailed(solution_str, **others):
    result = {"score": len(solution_str), "format": True, "why": "long", "loss": math.nan, 5: 5}
    result["itself"] = result
    return result

async def later(solution_str, **others):
    return 0.125

def promised(**arguments):
    return later(**arguments)
)python";

class PythonRewardTest : public ::testing::Test {
 protected:
  PythonRewardTest() {
    std::filesystem::create_directories(directory_);
    std::ofstream(directory_ / "helper.py") << "BONUS = 0.25\n";
    std::ofstream(directory_ / "random.py") << "raise ImportError('the wrong one')\n";
    std::ofstream(directory_ / "math.py") << kRewards;
  }
  ~PythonRewardTest() override { std::filesystem::remove_all(directory_); }

  std::unique_ptr<Reward> open(const std::string& function = "compute_score") const {
    const RewardLimits limits{.workers = 2, .timeout = Seconds(2), .memory = Bytes(1 << 30)};
    return std::make_unique<PythonReward>(directory_ / "math.py", function, limits);
  }
  static RewardInput input(const std::string& response) {
    return {.prompt = "1 + 1",
            .response = response,
            .ground_truth = "2",
            .response_tokens = 3,
            .finished = true,
            .data_source = "sums",
            .extra_info = R"({"level": 2})"};
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
  std::string refused_file(const std::string& text) const {
    std::ofstream(directory_ / "other.py") << text;
    return refusal([&] { PythonReward(directory_ / "other.py", "f", {}); });
  }

  std::filesystem::path directory_ = std::filesystem::temp_directory_path() /
                                     ("nereus_python_reward_" + std::to_string(::getpid()));
};

TEST_F(PythonRewardTest, GroundTruthAndExtraInfoAreWhatTheRowHas) {
  std::ofstream(directory_ / "math.py", std::ios::app) << R"(
def exact(data_source, solution_str, ground_truth, extra_info):
    assert extra_info == {"prompt": "of the row", "response_tokens": 3, "finished": True, "id": 12345678901234567890123}
    assert type(extra_info["id"]) is int
    return repr(ground_truth) == solution_str
)";
  const auto reward = open("exact");
  RewardInput given = input("");
  given.extra_info = R"( {"id": 12345678901234567890123, "prompt": "of the row"})";
  const std::vector<std::pair<std::string, std::string>> values = {
      {"12345678901234567890123", "12345678901234567890123"},
      {"0.30000000000000004", "0.30000000000000004"},
      {"[\"a\", 1.50, null]", "['a', 1.5, None]"},
      {"{\"t\": true}", "{'t': True}"},
      {"null", "None"},
      {"\"4\\u0032\"", "'42'"},
      {"", "'2'"}};  // the text
  for (const auto& [json, python] : values) {
    given.ground_truth_json = json;
    given.response = python;
    EXPECT_EQ(reward->score(given).score, 1) << json;
  }
}

TEST_F(PythonRewardTest, IsCalledAsVerlDoes) {
  const auto reward = open();
  EXPECT_EQ(reward->score(input("2")).score, 1.5);
  EXPECT_EQ(reward->score(input("3")).score, 0.5);
  EXPECT_EQ(open("later")->score(input("")).score, 0.125);
  EXPECT_EQ(open("promised")->score(input("")).score, 0.125);
}

TEST_F(PythonRewardTest, NumbersOfManyTypes) {
  const auto reward = open();
  EXPECT_EQ(reward->score(input("true")).score, 1);
  EXPECT_EQ(reward->score(input("decimal")).score, 0.5);
  EXPECT_EQ(reward->score(input("large")).score, std::ldexp(1.0, 70));
}

TEST_F(PythonRewardTest, OtherFiniteNumbersOfADictAreKept) {
  const RewardOutput output = open("detailed")->score(input("four"));
  EXPECT_EQ(output.score, 4);
  EXPECT_EQ(output.extra, (std::map<std::string, double>{{"format", 1}}));
}

TEST_F(PythonRewardTest, AFailureIsOneResponsesOwn) {
  const std::vector<std::tuple<const char*, RewardFailure, const char*>> cases = {
      {"2", RewardFailure::kNone, ""},
      {"raise", RewardFailure::kRaised, "ValueError: what a response (math.py line 15)"},
      {"nan", RewardFailure::kRaised, "its answer is nan, not a finite number"},
      {"nothing", RewardFailure::kRaised, "its answer is None"},
      {"text", RewardFailure::kRaised, "its answer is '1'"},
      {"list", RewardFailure::kRaised, "its answer is [1]"},
      {"bytes", RewardFailure::kRaised, "its answer is b'1'"},
      {"huge", RewardFailure::kRaised, "OverflowError"},
      {"complex", RewardFailure::kRaised, "its answer is 1j"},
      {"no score", RewardFailure::kRaised, "has no \"score\""},
      {"generator", RewardFailure::kRaised, "generator object"},
      {"late", RewardFailure::kTimeout, "took longer than 2 s (reward.timeout)"},
      {"3", RewardFailure::kNone, ""}};
  std::vector<RewardInput> inputs;
  for (const auto& [response, failure, reason] : cases) inputs.push_back(input(response));
  const std::vector<RewardResult> results = open()->score_all(inputs, {});
  ASSERT_EQ(results.size(), cases.size());
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto& [response, failure, reason] = cases[i];
    EXPECT_EQ(results[i].failure, failure) << response;
    EXPECT_THAT(results[i].reason, HasSubstr(reason));
  }
  EXPECT_THAT(results[1].reason, HasSubstr("math.py: compute_score: "));
  EXPECT_EQ(results.back().output.score, 0.5);
}

TEST_F(PythonRewardTest, AFileThatCannotBeLoadedIsRefusedWithItsReason) {
  EXPECT_THAT(refusal([&] { open("compute"); }),
              AllOf(HasSubstr("math.py"), HasSubstr("no function compute"),
                    HasSubstr("custom_reward_function.name")));
  EXPECT_THAT(refusal([&] { PythonReward(directory_ / "absent.py", "f", {}); }),
              HasSubstr("no such file"));
  EXPECT_THAT(refused_file("import absent_module\n"),
              AllOf(HasSubstr("other.py"), HasSubstr("absent_module")));
  EXPECT_THAT(refused_file("def f(:\n"), HasSubstr("SyntaxError"));
  EXPECT_THAT(refused_file("import sys\nsys.exit(3)\n"), HasSubstr("SystemExit: 3"));
  EXPECT_THAT(refused_file("f = 3\n"), HasSubstr("no function f"));
}

}  // namespace
}  // namespace nereus
