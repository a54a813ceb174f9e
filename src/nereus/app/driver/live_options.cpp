#include "nereus/app/driver/live_options.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "nereus/app/assemble/devices.h"
#include "nereus/app/assemble/job.h"
#include "nereus/core/base/error.h"

namespace nereus {

namespace {

ValidationOptions validation_options(const Config& config) {
  const ValKwargsConfig& sampling = config.rollout.val_kwargs;
  return {.file = config.data.val_files,
          .every = config.trainer.test_freq,
          .before_training = config.trainer.val_before_train,
          .samples_per_prompt = sampling.n,
          .sampling = {.temperature = sampling.temperature,
                       .top_k = sampling.top_k,
                       .top_p = sampling.top_p,
                       .greedy = !sampling.do_sample}};
}

Json reward_options(const RewardConfig& reward) {
  if (!reward.custom_path.empty()) {
    return {{"path", reward.custom_path.string()}, {"function", reward.custom_name}};
  }
  if (reward.name == "response_length") return {{"sign", reward.sign}};
  if (reward.name != "vader_sentiment") return Json::object();
  return {{"lexicon", reward.lexicon.string()}, {"sign", reward.sign}};
}

}  // namespace

LiveOptions to_live_options(const Config& config) {
  if (config.cluster.hosts != 1) {
    throw Error(ErrorCode::kInvalidInput,
                "cluster.hosts = " + std::to_string(config.cluster.hosts) +
                    ": training runs on one host so far");
  }
  LiveOptions options;
  options.cluster = to_cluster(config);
  options.backend = host_devices(config.cluster, std::ssize(visible_gpus())).backend;
  options.models = model_sources(config);
  options.dtype = parse_dtype(config.dtype);
  options.data = {.train_file = config.data.train_files,
                  .prompt_key = config.data.prompt_key,
                  .tokenizer = config.data.tokenizer,
                  .train_batch_size = config.data.train_batch_size,
                  .samples_per_prompt = config.rollout.n,
                  .max_prompt_length = config.data.max_prompt_length,
                  .filter_overlong_prompts = config.data.filter_overlong_prompts,
                  .shuffle = config.data.shuffle};
  options.validation = validation_options(config);
  options.ppo = to_ppo_options(config);
  options.actor_optimizer = to_actor_optimizer(config);
  options.critic_optimizer = to_critic_optimizer(config);
  options.sampling = {.temperature = config.rollout.temperature,
                      .top_k = config.rollout.top_k,
                      .top_p = config.rollout.top_p,
                      .greedy = !config.rollout.do_sample,
                      .seed = static_cast<uint64_t>(config.trainer.seed)};
  options.ignore_eos = config.rollout.ignore_eos;
  options.response_length = to_response_length(config);
  options.supply = to_supply(config.supply, options.cluster);
  options.reward = config.reward.custom_path.empty() ? config.reward.name : "python";
  options.reward_options = reward_options(config.reward);
  options.max_reward_failures = config.reward.unscored == "stop" ? 0 : config.reward.max_failures;
  options.exclude_unscored = config.reward.unscored != "zero";
  options.reward_limits = {.workers = config.reward.workers,
                           .timeout = Seconds(config.reward.timeout),
                           .memory = config.reward.memory};
  options.total_steps = config.trainer.total_training_steps;
  options.seed = static_cast<uint64_t>(config.trainer.seed);
  options.failure_directory = run_directory(config);
  options.rollout_directory = config.trainer.rollout_data_dir;
  options.verify_transitions = config.adaptation.verify;
  options.link_bandwidth = static_cast<double>(config.cluster.link_bandwidth.count());
  return options;
}

}  // namespace nereus
