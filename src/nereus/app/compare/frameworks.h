// Parallel settings of verl, NeMo-RL and OpenRLHF as plans of ours, so that they can be predicted.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "nereus/app/compare/foreign_text.h"
#include "nereus/app/config/config.h"
#include "nereus/core/workflow/job_spec.h"

namespace nereus {

enum class Framework { kVerl, kNemoRl, kOpenRlhf };
std::string to_string(Framework framework);          // "verl", "nemo-rl", "openrlhf"
Framework parse_framework(const std::string& text);  // throws Error(kInvalidInput)
Framework recognise(const ForeignKeys& keys);        // throws Error(kInvalidInput)

// Sequences per micro-batch as frameworks say it: for one data-parallel rank, for all of them
// together, or by a budget of tokens. Nothing given: 1.
struct ForeignMicroBatch {
  std::optional<int64_t> per_rank;
  std::optional<int64_t> of_all;
  std::optional<int64_t> tokens;
};

// How one model-stage is cut and where it runs; as many replicas as its devices hold.
struct ForeignStage {
  int tp = 1;
  int pp = 1;
  int shards = 1;  // data-parallel ranks that share the optimizer state; 0: all
  size_t group = 0;
  ForeignMicroBatch micro_batch;
  bool recompute = false;
  bool offload = false;
};

// The size of a step where the setting gives it.
struct ForeignJob {
  std::optional<bool> critic;  // whether the algorithm has one
  std::optional<int64_t> prompts;
  std::optional<int64_t> samples_per_prompt;
  std::optional<int64_t> mini_batch_prompts;    // of an optimizer step
  std::optional<int64_t> mini_batch_sequences;  // the same, if the framework counts these
  std::optional<int64_t> epochs;
  std::optional<int64_t> prompt_length;
  std::optional<int64_t> response_length;
  std::optional<int64_t> total_length;  // of prompt and response
};

// A key of the setting and what became of it.
struct KeyNote {
  std::string key;
  std::string note;
  bool operator==(const KeyNote&) const = default;
};

struct ForeignSetting {
  Framework framework = Framework::kVerl;
  std::vector<int> groups;  // devices of each group of model-stages; groups lie side by side
  std::map<ModelStage, ForeignStage> stages;  // actor, critic, reference and reward model
  Execution execution;
  bool asynchronous = false;
  ForeignJob job;
  std::vector<KeyNote> approximated;
  std::vector<KeyNote> ignored;
  std::vector<KeyNote> unknown;  // with the nearest known key, if there is one
  int devices() const;
};

// Keys not given stand at the framework's own defaults. Throws Error(kInvalidInput) naming key and
// value: what is no number, and parallelism that plans have no word for (context, expert).
ForeignSetting translate(Framework framework, const ForeignKeys& keys);

// The job's part of the setting as overrides of our config ("data.train_batch_size=1024"), for
// load_config(); what it leaves open is as in `config`.
std::vector<std::string> job_overrides(const ForeignSetting& setting, const Config& config);

// The job as the framework runs it: its execution, and whether it waits for generation.
JobSpec as_run_by(const ForeignSetting& setting, JobSpec job);

// The setting on the first devices of the pool. Throws Error(kInvalidInput) for what does not
// suit devices or models.
Plan to_plan(const ForeignSetting& setting, const JobSpec& job, const DevicePool& pool);

}  // namespace nereus
