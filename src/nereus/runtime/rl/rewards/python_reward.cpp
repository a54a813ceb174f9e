#include "nereus/runtime/rl/rewards/python_reward.h"

#include "nereus/core/base/error.h"
#include "nereus/runtime/bridge/python_sources.h"
#include "nereus/runtime/files/files.h"
#include "nereus/runtime/rl/rewards/python_arguments.h"

namespace nereus {

namespace {

// Files may be of any encoding: each byte becomes a character.
std::string bytes_as_text(const std::string& bytes) {
  constexpr unsigned kAscii = 0x80;
  std::string text;
  for (const char byte : bytes) {
    const auto code = static_cast<unsigned char>(byte);
    if (code >= kAscii) text += static_cast<char>(0xC0U | (code >> 6U));
    text += static_cast<char>(code < kAscii ? code : 0x80U | (code & 0x3FU));
  }
  return text;
}

std::unique_ptr<PythonWorkers> open_pool(const std::filesystem::path& file,
                                         const std::string& function, const RewardLimits& limits) {
  const std::string keys = " (custom_reward_function.path, custom_reward_function.name)";
  if (!std::filesystem::is_regular_file(file)) {
    throw Error(ErrorCode::kInvalidInput, "no such file: " + file.string() + keys);
  }
  constexpr double kLoading = 10;
  const std::string path = std::filesystem::absolute(file).string();
  try {
    return std::make_unique<PythonWorkers>(
        PythonWorkersOptions{.source = custom_reward_source(),
                             .arguments = {{"file", path},
                                           {"function", function},
                                           {"source", bytes_as_text(read_text(file))}},
                             .workers = limits.workers,
                             .timeout = limits.timeout,
                             .start_timeout = Seconds(limits.timeout.count() * kLoading),
                             .memory = limits.memory});
  } catch (const Error& error) {
    throw Error(error.code(), file.string() + " cannot be loaded: " + error.what() + keys);
  }
}

}  // namespace

PythonReward::PythonReward(const std::filesystem::path& file, const std::string& function,
                           const RewardLimits& limits)
    : name_(file.string() + ": " + function), pool_(open_pool(file, function, limits)) {}

RewardOutput PythonReward::score(const RewardInput& input) const {
  const RewardResult result = score_all({input}, {}).front();
  if (result.failure == RewardFailure::kNone) return result.output;
  throw Error(ErrorCode::kInvalidInput, result.reason);
}

std::vector<RewardResult> PythonReward::score_all(const std::vector<RewardInput>& inputs,
                                                  const StopToken& stop) const {
  std::vector<std::string> arguments;
  for (const RewardInput& input : inputs) arguments.push_back(python_arguments(input));
  const std::lock_guard turn(turn_);
  stop.check();
  std::vector<RewardResult> results;
  for (const PythonAnswer& answer : pool_->call(arguments, stop)) {
    results.push_back(result_of(answer));
  }
  return results;
}

class PythonReward::Calls final : public RewardCalls {
 public:
  explicit Calls(const PythonReward& reward) : reward_(reward), turn_(reward.turn_) {}
  ~Calls() override { reward_.pool_->drop(); }

  void add(size_t index, const RewardInput& input) override {
    indices_[reward_.pool_->post(python_arguments(input))] = index;
  }
  std::map<size_t, RewardResult> poll(std::chrono::milliseconds patience) override {
    std::map<size_t, RewardResult> results;
    for (const auto& [number, answer] : reward_.pool_->poll(patience)) {
      results[indices_.at(number)] = reward_.result_of(answer);
    }
    return results;
  }

 private:
  const PythonReward& reward_;
  std::unique_lock<std::mutex> turn_;
  std::map<uint64_t, size_t> indices_;  // by the number of the call
};

std::unique_ptr<RewardCalls> PythonReward::begin() const { return std::make_unique<Calls>(*this); }

RewardResult PythonReward::result_of(const PythonAnswer& answer) const {
  if (answer.failure.empty()) {
    return {{.score = answer.value.at("score").get<double>(),
             .extra = answer.value.at("extra").get<std::map<std::string, double>>()},
            RewardFailure::kNone,
            ""};
  }
  const std::map<std::string, std::pair<RewardFailure, const char*>> kinds = {
      {"timeout", {RewardFailure::kTimeout, " (reward.timeout)"}},
      {"memory", {RewardFailure::kDied, " (reward.memory)"}},
      {"died", {RewardFailure::kDied, ""}}};
  const auto found = kinds.find(answer.failure);
  const auto [failure, key] =
      found == kinds.end() ? std::pair(RewardFailure::kRaised, "") : found->second;
  return {{}, failure, name_ + ": " + answer.reason + key};
}

}  // namespace nereus
