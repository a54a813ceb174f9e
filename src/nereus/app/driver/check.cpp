#include "nereus/app/driver/check.h"

#include <filesystem>
#include <set>
#include <sstream>

#include "nereus/app/assemble/devices.h"
#include "nereus/app/assemble/job.h"
#include "nereus/app/assemble/starting_plan.h"
#include "nereus/app/driver/live_options.h"
#include "nereus/app/observe/progress.h"
#include "nereus/core/base/error.h"
#include "nereus/runtime/bridge/tokenizer.h"
#include "nereus/runtime/cuda/device.h"
#include "nereus/runtime/data/hf_model.h"
#include "nereus/runtime/files/files.h"
#include "nereus/runtime/live/initial_state.h"
#include "nereus/runtime/live/prompt_source.h"
#include "nereus/runtime/live/rewarding.h"
#include "nereus/runtime/live/validation.h"

namespace nereus {

namespace {

std::string check_model(Role role, const ModelSource& source, const JobSpec& job) {
  const auto& [spec, dtype] = job.models.at(role);
  if (!source.random_weights) read_model(source.path, spec, dtype, score_head(role));
  return to_string(role) + ": " + spec.model_type + " of " + std::to_string(parameter_count(spec)) +
         " parameters, " + (source.random_weights ? "random" : "from " + source.path.string());
}

std::string describe_prompts(const std::string& key, const PromptSource& prompts) {
  return "prompts of " + key + ": longest " + std::to_string(prompts.longest()) + " tokens, " +
         std::to_string(prompts.dropped()) + " dropped as too long";
}

// "file line N" of a row of the prompts, which are the lines that are not blank.
std::string place_of(const std::filesystem::path& file, int64_t row) {
  std::istringstream lines(read_text(file, kMostPromptBytes));
  int64_t number = 0;
  for (std::string line; row >= 0 && std::getline(lines, line); ++number) {
    if (line.find_first_not_of(" \t\r") != std::string::npos) --row;
  }
  return file.string() + " line " + std::to_string(number);
}

// As the job would, bears with a share of prompts that cannot be scored, but says so.
std::string check_reward(const LiveOptions& options, const std::string& key,
                         const Tokenizer& tokenizer, const PromptSource& prompts,
                         int64_t vocab_size) {
  const auto reward = open_reward(options);
  const RewardTrial trial = try_reward(*reward, tokenizer, prompts, vocab_size);
  if (trial.failures == 0) {
    return "reward: " + options.reward + ", tried on a made-up response to each of " +
           std::to_string(prompts.size()) + " prompts";
  }
  const std::string what = "the reward \"" + options.reward + "\" cannot score responses to " +
                           std::to_string(trial.failures) + " of " +
                           std::to_string(prompts.size()) + " prompts; of the first, " +
                           place_of(options.data.train_file, trial.first) +
                           ", it says: " + trial.message;
  const double share = static_cast<double>(trial.failures) / static_cast<double>(prompts.size());
  if (share > options.max_reward_failures) {
    throw Error(ErrorCode::kInvalidInput,
                what + "\nCorrect " + key + ", or choose another reward.name");
  }
  return "warning: " + what;
}

// The prompts that config calls `key`, and the reward on them unless that is a model.
std::vector<std::string> check_prompts(const LiveOptions& options, const std::string& key,
                                       const Tokenizer& tokenizer, int64_t vocab_size) {
  const PromptSource prompts(options.data, tokenizer, vocab_size, options.seed);
  std::vector<std::string> lines = {describe_prompts(key, prompts)};
  if (!options.models.contains(Role::kReward)) {
    lines.push_back(check_reward(options, key, tokenizer, prompts, vocab_size));
  }
  return lines;
}

// The steps of the run at which supply or response length change.
std::set<int> phases(const LiveOptions& options) {
  std::set<int> steps;
  for (const auto& [step, pool] : options.supply.pools) steps.insert(step);
  for (const auto& [step, limit] : options.response_length.limits) steps.insert(step);
  steps.erase(steps.lower_bound(options.total_steps), steps.end());
  return steps;
}

std::string check_phase(const LiveOptions& options, const PlannerOptions& planner, int step) {
  const std::string phase = "after " + std::to_string(step) + " steps (" +
                            std::to_string(options.supply.at(step).size()) +
                            " devices, responses up to " +
                            std::to_string(options.response_length.at(step)) + " tokens): ";
  const auto choice = choose_plan(job_spec(options, step), options.cluster, options.supply.at(step),
                                  Calibration(), planner);
  return choice ? phase + short_plan(choice->best.plan) : "warning: " + phase + choice.error();
}

}  // namespace

std::vector<std::string> check(const Config& config) {
  const LiveOptions options = to_live_options(config);
  require_gpus(options.backend, cuda::device_count());
  const PlannerOptions planner = to_controller_options(config).planner;
  const JobSpec job = job_spec(options, 0);
  const int64_t vocab_size = job.model(Role::kActor).vocab_size;
  const auto tokenizer = Tokenizer::open(options.data.tokenizer);
  std::vector<std::string> lines =
      check_prompts(options, "data.train_files", *tokenizer, vocab_size);
  if (!options.validation.file.empty()) {
    const auto validation =
        check_prompts(for_validation(options), "data.val_files", *tokenizer, vocab_size);
    lines.insert(lines.end(), validation.begin(), validation.end());
  }
  for (const auto& [role, source] : options.models) {
    // The reference is the actor as it was.
    if (role != Role::kReference) lines.push_back(check_model(role, source, job));
  }
  const Plan plan = starting_plan(config.plan, job, options.cluster, options.supply.at(0), planner);
  lines.push_back("starting plan");
  for (const StagePlan& stage : plan.stages) lines.push_back("  " + to_string(stage));
  for (int step : phases(options)) lines.push_back(check_phase(options, planner, step));
  return lines;
}

}  // namespace nereus
