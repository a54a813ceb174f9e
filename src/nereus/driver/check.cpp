#include "nereus/driver/check.h"

#include <set>

#include "nereus/base/error.h"
#include "nereus/bridge/tokenizer.h"
#include "nereus/config/options.h"
#include "nereus/data/hf_model.h"
#include "nereus/driver/starting_plan.h"
#include "nereus/live/prompt_source.h"
#include "nereus/live/rewarding.h"
#include "nereus/observe/progress.h"

namespace nereus {

namespace {

std::string check_model(const std::string& role, const ModelSource& source, const ModelSpec& spec,
                        DType dtype) {
  if (!source.random_weights) read_model(source.path, spec, dtype);
  return role + ": " + spec.model_type + " of " + std::to_string(parameter_count(spec)) +
         " parameters, " + (source.random_weights ? "random" : "from " + source.path.string());
}

std::string check_prompts(const LiveOptions& options, int64_t vocab_size) {
  const auto tokenizer = Tokenizer::open(options.data.tokenizer);
  const PromptSource prompts(options.data, *tokenizer, vocab_size, options.seed);
  return "prompts: longest " + std::to_string(prompts.longest()) + " tokens, " +
         std::to_string(prompts.dropped()) + " dropped as too long";
}

// The steps at which supply or response length change.
std::set<int> phases(const LiveOptions& options) {
  std::set<int> steps;
  for (const auto& [step, pool] : options.supply.pools) steps.insert(step);
  for (const auto& [step, limit] : options.response_length.limits) steps.insert(step);
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
  const PlannerOptions planner = to_controller_options(config).planner;
  const JobSpec job = job_spec(options, 0);
  std::vector<std::string> lines;
  lines.push_back(check_prompts(options, job.model(Role::kActor).vocab_size));
  lines.push_back(check_model("actor", options.actor, job.model(Role::kActor), options.dtype));
  if (options.critic) {
    lines.push_back(
        check_model("critic", *options.critic, job.model(Role::kCritic), options.dtype));
  }
  open_reward(options);
  lines.push_back("reward: " + options.reward);
  const Plan plan = starting_plan(config.plan, job, options.cluster, options.supply.at(0), planner);
  lines.push_back("starting plan");
  for (const StagePlan& stage : plan.stages) lines.push_back("  " + to_string(stage));
  for (int step : phases(options)) lines.push_back(check_phase(options, planner, step));
  return lines;
}

}  // namespace nereus
