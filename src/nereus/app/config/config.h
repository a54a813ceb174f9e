// Every option of Nereus, typed. Words are verl's where verl has one. describe.h lists each field
// once with its key and meaning; docs/config.md is generated from that list. Where a room below has
// an option of the same meaning, its default is taken from there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nereus/core/base/units.h"
#include "nereus/core/controller/controller.h"
#include "nereus/core/workflow/objective.h"
#include "nereus/core/workflow/sampling_params.h"

namespace nereus {

// A number that changes while the job runs: (first step, value), the first at step 0.
struct StepSchedule {
  std::vector<std::pair<int, int64_t>> entries;
  bool operator==(const StepSchedule&) const = default;
};

// Device supply over the steps: a trace file, or the entries themselves, or (both empty) all
// devices.
struct SupplySetting {
  std::filesystem::path file;
  StepSchedule counts;
  bool operator==(const SupplySetting&) const = default;
};

// One model-stage's share of a configured plan. micro_batch 0: the largest allowed that divides a
// replica's share of the mini-batch. waves are those of generation.
struct StageSetting {
  int tp = 1;
  int pp = 1;
  int dp = 1;
  int micro_batch = 0;
  bool recompute = false;
  int waves = 1;
  bool operator==(const StageSetting&) const = default;
};

// The plan to start with: a plan's JSON file, or the short form by model-stage ("actor/training";
// "all" for those not named), or (both empty) the planner's choice.
struct PlanSetting {
  std::filesystem::path file;
  std::map<std::string, StageSetting> stages;
  bool empty() const { return file.empty() && stages.empty(); }
  bool operator==(const PlanSetting&) const = default;
};

struct DataConfig {
  std::filesystem::path train_files;
  std::filesystem::path val_files;
  std::string prompt_key = "prompt";
  std::filesystem::path tokenizer;
  int64_t max_prompt_length = 512;
  StepSchedule max_response_length{{{0, 512}}};
  int64_t train_batch_size = 1024;
  bool filter_overlong_prompts = false;
  bool shuffle = true;
};

struct OptimConfig {
  double lr = OptimizerOptions().lr;
  std::vector<double> betas = {OptimizerOptions().beta1, OptimizerOptions().beta2};
  double eps = OptimizerOptions().eps;
  double weight_decay = OptimizerOptions().weight_decay;
  int64_t lr_warmup_steps = -1;
  double lr_warmup_steps_ratio = 0;
  std::string lr_scheduler_type = OptimizerOptions().lr_scheduler;
  double min_lr_ratio = OptimizerOptions().min_lr_ratio;
};

struct ModelConfig {
  std::filesystem::path path;
  bool random_weights = false;
};

struct ActorConfig {
  OptimConfig optim;
  int64_t ppo_mini_batch_size = 256;
  std::vector<int> ppo_micro_batch_size_per_gpu;
  int ppo_epochs = PpoOptions().epochs;
  std::string calculate_old_log_prob = "auto";
  double clip_ratio = PolicyLossOptions().clip_ratio_low;
  std::optional<double> clip_ratio_low;
  std::optional<double> clip_ratio_high;
  double clip_ratio_c = PolicyLossOptions().clip_ratio_c;
  double entropy_coeff = PolicyLossOptions().entropy_coeff;
  bool use_kl_loss = PolicyLossOptions().use_kl_loss;
  double kl_loss_coef = PolicyLossOptions().kl_loss_coef;
  std::string kl_loss_type = to_string(PolicyLossOptions().kl_loss_type);
  std::string loss_agg_mode = to_string(PolicyLossOptions().aggregation);
  double grad_clip = OptimizerOptions().grad_clip;
};

struct ValKwargsConfig {
  int64_t n = 1;
  bool do_sample = false;
  double temperature = 0;
  int64_t top_k = SamplingParams().top_k;
  double top_p = SamplingParams().top_p;
};

struct RolloutConfig {
  int64_t n = 1;
  double temperature = SamplingParams().temperature;
  int64_t top_k = SamplingParams().top_k;
  double top_p = SamplingParams().top_p;
  bool do_sample = !SamplingParams().greedy;
  bool ignore_eos = false;
  ValKwargsConfig val_kwargs;
};

struct CriticConfig {
  ModelConfig model;
  OptimConfig optim{.lr = 1e-5};
  double cliprange_value = ValueLossOptions().cliprange_value;
  double grad_clip = OptimizerOptions().grad_clip;
};

struct KlControlConfig {
  std::string type = "fixed";
  double kl_coef = PpoOptions().kl_coef;
  double target_kl = PpoOptions().target_kl;
  double horizon = PpoOptions().kl_horizon;
};

struct AlgorithmConfig {
  std::string adv_estimator = to_string(AdvantageOptions().estimator);
  bool norm_adv_by_std_in_grpo = AdvantageOptions().norm_by_std;
  double gamma = AdvantageOptions().gamma;
  double lam = AdvantageOptions().lam;
  bool use_kl_in_reward = PpoOptions().use_kl_in_reward;
  std::string kl_penalty = to_string(PpoOptions().kl_penalty);
  KlControlConfig kl_ctrl;
};

struct RewardConfig {
  std::string name;
  std::filesystem::path custom_path;  // custom_reward_function.path
  std::string custom_name = "compute_score";
  std::filesystem::path lexicon;
  int sign = 1;
  double max_failures = 0.05;
  std::string unscored = "exclude";
  int workers = 0;
  double timeout = 60;
  Bytes memory{int64_t{4} << 30};
};

struct RewardModelConfig {
  bool enable = false;
  ModelConfig model;
  std::vector<int> micro_batch_size_per_gpu;
};

struct TrainerConfig {
  int total_training_steps = 0;
  int save_freq = -1;
  double save_minutes = 20;
  int test_freq = -1;
  bool val_before_train = true;
  int64_t seed = 1;
  std::string project_name;
  std::string experiment_name;
  std::string default_local_dir;
  std::string rollout_data_dir;
  std::string resume_mode = "disable";
  int max_actor_ckpt_to_keep = 2;
  std::vector<std::string> logger = {"console", "tensorboard"};
};

struct ClusterConfig {
  std::string device = "auto";
  int devices = 0;
  Bytes memory_per_device;
  int cores = 0;
  int hosts = 1;
  Bytes host_memory;
  Bytes link_bandwidth;
};

struct AdaptationConfig {
  bool enabled = ControllerOptions().enabled;
  double gamma = ControllerOptions().gamma;
  double length_threshold = MonitorOptions().length_threshold;
  double efficiency_threshold = MonitorOptions().efficiency_threshold;
  double min_gain = ControllerOptions().min_gain;
  double headroom = PlannerOptions().headroom;
  bool allow_recompute = PlannerOptions().allow_recompute;
  bool verify = true;
  std::string transition = "boundary";
};

struct Config {
  DataConfig data;
  ModelConfig model;  // actor_rollout_ref.model: the actor and, frozen, the reference
  std::string dtype = "float32";
  ActorConfig actor;
  RolloutConfig rollout;
  CriticConfig critic;
  AlgorithmConfig algorithm;
  RewardConfig reward;
  RewardModelConfig reward_model;
  TrainerConfig trainer;
  ClusterConfig cluster;
  SupplySetting supply;
  PlanSetting plan;
  AdaptationConfig adaptation;
};

// Reads a YAML file, then applies `overrides` ("key=value", "+key=value"; Hydra's command line).
// Keys that name files are looked up from the working directory, then from the config's directory
// and its parents. Throws Error(kInvalidInput) with file, line, key, value and what was expected:
// unknown keys (with the nearest known one), wrong types, files that are not there, and
// contradictions (verify()).
Config load_config(const std::filesystem::path& file,
                   const std::vector<std::string>& overrides = {});

// The same from text; `where` stands for the file in messages, `directory` for its place.
Config parse_config(const std::string& yaml, const std::string& where,
                    const std::filesystem::path& directory,
                    const std::vector<std::string>& overrides = {});

// Every option with its value, as YAML that load_config() reads back to the same Config.
std::string to_yaml(const Config& config);

// The reference page: every key with type, default and meaning.
std::string config_reference();

// Throws Error(kInvalidInput) naming the keys and values that contradict each other.
void verify(const Config& config);

// Where the run directory goes: default_local_dir, or runs/[project_name/]experiment_name.
std::filesystem::path run_directory(const Config& config);

}  // namespace nereus
