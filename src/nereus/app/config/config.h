// Every option of Nereus, typed. Words are verl's where verl has one. describe.h lists each field
// once with its key and meaning; docs/config.md is generated from that list.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nereus/core/base/units.h"

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
  double lr = 1e-6;
  std::vector<double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0.01;
  int64_t lr_warmup_steps = -1;
  double lr_warmup_steps_ratio = 0;
  std::string lr_scheduler_type = "constant";
  double min_lr_ratio = 0;
};

struct ModelConfig {
  std::filesystem::path path;
  bool random_weights = false;
};

struct ActorConfig {
  OptimConfig optim;
  int64_t ppo_mini_batch_size = 256;
  std::vector<int> ppo_micro_batch_size_per_gpu;
  int ppo_epochs = 1;
  std::string calculate_old_log_prob = "auto";
  double clip_ratio = 0.2;
  std::optional<double> clip_ratio_low;
  std::optional<double> clip_ratio_high;
  double clip_ratio_c = 3;
  double entropy_coeff = 0;
  bool use_kl_loss = false;
  double kl_loss_coef = 0.001;
  std::string kl_loss_type = "low_var_kl";
  std::string loss_agg_mode = "token-mean";
  double grad_clip = 1;
};

struct ValKwargsConfig {
  int64_t n = 1;
  bool do_sample = false;
  double temperature = 0;
  int64_t top_k = -1;
  double top_p = 1;
};

struct RolloutConfig {
  int64_t n = 1;
  double temperature = 1;
  int64_t top_k = -1;
  double top_p = 1;
  bool do_sample = true;
  bool ignore_eos = false;
  ValKwargsConfig val_kwargs;
};

struct CriticConfig {
  ModelConfig model;
  OptimConfig optim{.lr = 1e-5};
  double cliprange_value = 0.5;
  double grad_clip = 1;
};

struct KlControlConfig {
  std::string type = "fixed";
  double kl_coef = 0.001;
  double target_kl = 0.1;
  double horizon = 10000;
};

struct AlgorithmConfig {
  std::string adv_estimator = "gae";
  bool norm_adv_by_std_in_grpo = true;
  double gamma = 1;
  double lam = 1;
  bool use_kl_in_reward = false;
  std::string kl_penalty = "kl";
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
  bool enabled = true;
  double gamma = 0.5;
  double length_threshold = 0.3;
  double efficiency_threshold = 0.3;
  double min_gain = 0.02;
  double headroom = 0.1;
  bool allow_recompute = true;
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
