#include "nereus/cost/memory.h"

#include <algorithm>
#include <optional>

#include "nereus/base/text.h"
#include "nereus/cost/shape.h"

namespace nereus {
namespace {

// What autograd keeps of one token in one block, counted in our decoder: input and output of two
// RMSNorms; rotated q and k, v, what attention gives and its copy for o_proj; and of SwiGLU gate,
// up, silu(gate) and their product.
constexpr double kHiddenCopies = 4;  // not cut by tensor parallelism
constexpr double kQueryCopies = 3;
constexpr double kKeyValueCopies = 2;
constexpr double kFeedForwardCopies = 4;
// The head's input: hidden states of response tokens, normalised, and their gradient.
constexpr double kHeadCopies = 3;
// Logits, the same divided by the temperature, log-softmax and gradient.
constexpr double kTrainingLogits = 4;
// Without a backward pass.
constexpr double kInferenceLogits = 2;

Bytes bytes(double elements, double element_size) {
  return Bytes(static_cast<int64_t>(elements * element_size));
}

// Elements of one token in one block that `spec` cut by `tp` keeps for backward.
double block_activation(const ModelSpec& spec, int tp) {
  const double query = double(largest_share(spec.num_heads, tp)) * spec.head_dim;
  const double key_value = double(largest_share(spec.num_kv_heads, tp)) * spec.head_dim;
  const double ffn = double(largest_share(spec.intermediate_size, tp));
  return kHiddenCopies * double(spec.hidden_size) + kQueryCopies * query +
         kKeyValueCopies * key_value + kFeedForwardCopies * ffn;
}

// Without autograd a block's tensors die as soon as they are used: the larger half counts.
double block_workspace(const ModelSpec& spec, int tp) {
  const double query = double(largest_share(spec.num_heads, tp)) * spec.head_dim;
  const double key_value = double(largest_share(spec.num_kv_heads, tp)) * spec.head_dim;
  const double ffn = double(largest_share(spec.intermediate_size, tp));
  return 3 * double(spec.hidden_size) +
         std::max(kQueryCopies * query + kKeyValueCopies * key_value, 3 * ffn);
}

double logit_columns(const ModelSpec& spec, int tp) {
  return spec.head == Head::kScalar ? 1 : double(largest_share(spec.vocab_size, tp));
}

// Log-probabilities are computed in at least single precision.
double logit_size(DType weights) { return std::max<double>(4, double(size_of(weights).count())); }

int64_t longest(const Workload& workload) {
  return workload.prompt_tokens + workload.response_limit;
}

// Collects the entries of one rank of the first unit.
class RankEntries {
 public:
  RankEntries(const StagePlan& stage, int index)
      : device_(stage.units.at(0).at(index)), model_stage_(stage.model_stage) {}

  void add(const char* component, Bytes bytes, bool resident = false) {
    if (bytes.count() > 0) entries_.push_back({device_, model_stage_, component, bytes, resident});
  }
  std::vector<MemoryEntry> take() { return std::move(entries_); }

 private:
  DeviceId device_;
  ModelStage model_stage_;
  std::vector<MemoryEntry> entries_;
};

std::vector<MemoryEntry> resident_entries(const StagePlan& stage, const ModelUse& model,
                                          int64_t elements, int index) {
  RankEntries entries(stage, index);
  const double count = double(elements);
  entries.add("weights", bytes(count, double(size_of(model.weights).count())), true);
  if (stage.model_stage.stage != Stage::kTraining) return entries.take();
  const bool half = size_of(model.weights).count() < 4;
  if (half) entries.add("master", bytes(count, 4), true);
  entries.add("moments", bytes(count, 2 * logit_size(model.weights)), true);
  return entries.take();
}

std::vector<MemoryEntry> transient_entries(const StagePlan& stage, const ModelUse& model,
                                           const Workload& workload, int index) {
  switch (stage.model_stage.stage) {
    case Stage::kGeneration:
      return generation_transient(stage, model, workload, index);
    case Stage::kInference:
      return inference_transient(stage, model, workload, index);
    case Stage::kTraining:
      break;
  }
  return training_transient(stage, model, workload, index);
}

// True if generation on `device` may use the bytes of the actor's training weights.
bool aliased(const StagePlan& generation, const std::vector<DeviceId>& unit, DeviceId device,
             const StagePlan* training) {
  if (training == nullptr || training->layout != generation.layout) return false;
  const Emu mine{generation.model_stage, generation.layout, unit};
  return std::ranges::any_of(training->units, [&](const std::vector<DeviceId>& theirs) {
    return same_shards(mine, {training->model_stage, training->layout, theirs}, device);
  });
}

void append_stage(std::vector<MemoryEntry>& all, const StagePlan& stage, const ModelUse& model,
                  const Workload& workload, const StagePlan* aliasing) {
  const std::vector<int64_t> elements = weight_elements(model.spec, stage.layout);
  for (int index = 0; index < stage.layout.devices(); ++index) {
    std::vector<MemoryEntry> entries = resident_entries(stage, model, elements[index], index);
    for (MemoryEntry& entry : transient_entries(stage, model, workload, index)) {
      entries.push_back(std::move(entry));
    }
    for (const std::vector<DeviceId>& unit : stage.units) {
      const DeviceId device = unit.at(index);
      const bool shared = aliased(stage, unit, device, aliasing);
      for (MemoryEntry entry : entries) {
        if (entry.resident && shared) continue;
        entry.device = device;
        all.push_back(std::move(entry));
      }
    }
  }
}

// The transient bytes of each model-stage on each device, uncalibrated.
using PassBytes = std::map<DeviceId, std::map<ModelStage, Bytes>>;

PassBytes pass_bytes(const std::vector<MemoryEntry>& entries) {
  PassBytes sums;
  for (const MemoryEntry& entry : entries) {
    if (!entry.resident) sums[entry.device][entry.model_stage] += entry.bytes;
  }
  return sums;
}

// The model-stage whose pass sets the peak of a device.
std::optional<ModelStage> largest_pass(const std::map<ModelStage, Bytes>& passes) {
  std::optional<ModelStage> largest;
  for (const auto& [model_stage, bytes] : passes) {
    if (!largest || bytes > passes.at(*largest)) largest = model_stage;
  }
  return largest;
}

// "actor/training activations 3.1 MiB, …": the three largest of what is there at the peak.
std::string largest_components(const MemoryPrediction& prediction, DeviceId device) {
  const PassBytes passes = pass_bytes(prediction.entries);
  const auto on_device = passes.find(device);
  const std::optional<ModelStage> pass =
      on_device == passes.end() ? std::nullopt : largest_pass(on_device->second);
  std::vector<MemoryEntry> present;
  for (const MemoryEntry& entry : prediction.entries) {
    const bool there = entry.resident || entry.model_stage == pass;
    if (entry.device == device && there) present.push_back(entry);
  }
  std::ranges::stable_sort(present, std::greater<>(), &MemoryEntry::bytes);
  present.resize(std::min<size_t>(3, present.size()));
  std::vector<std::string> words;
  for (const MemoryEntry& entry : present) {
    words.push_back(to_string(entry.model_stage) + " " + entry.component + " " +
                    to_string(entry.bytes));
  }
  return join(words, ", ");
}

}  // namespace

std::vector<MemoryEntry> training_transient(const StagePlan& stage, const ModelUse& model,
                                            const Workload& workload, int index) {
  const ModelSpec& spec = model.spec;
  const Layout layout = stage.layout;
  const Rank rank = rank_at(layout, index);
  const double size = double(size_of(model.weights).count());
  const MicroBatches batches = micro_batches(workload.mini_batch, stage);
  const double tokens = double(batches.size * longest(workload));
  const LayerRange layers = stage_layers(spec.num_layers, layout.pp, rank.pp);
  const double blocks = layers.end - layers.begin;
  // 1F1B: an early stage holds a micro-batch until its gradient comes back.
  const double alive = double(std::min<int64_t>(layout.pp - rank.pp, batches.count));

  RankEntries entries(stage, index);
  // One flat buffer, there during the training pass only, in the precision of the master copy.
  entries.add("gradients",
              bytes(double(weight_elements(spec, layout)[index]), logit_size(model.weights)));
  const double full = block_activation(spec, layout.tp);
  const double kept = alive * blocks * (stage.recompute ? double(spec.hidden_size) : full);
  const bool last = rank.pp == layout.pp - 1;
  const double responses = last ? double(batches.size * workload.response_limit) : 0;
  const double head_input = responses * kHeadCopies * double(spec.hidden_size) * size;
  const double logits =
      responses * kTrainingLogits * logit_columns(spec, layout.tp) * logit_size(model.weights);
  // Backward works on one block at a time, with its gradients and its recomputed tensors. By then
  // the logits are gone, so only what exceeds them adds to the peak.
  const double block = tokens * (block_workspace(spec, layout.tp) + (stage.recompute ? full : 0));
  const double working = std::max(0.0, block * size - logits);
  entries.add("activations", bytes(tokens * kept * size + head_input + working, 1));
  entries.add("logits", bytes(logits, 1));
  return entries.take();
}

std::vector<MemoryEntry> inference_transient(const StagePlan& stage, const ModelUse& model,
                                             const Workload& workload, int index) {
  const ModelSpec& spec = model.spec;
  const MicroBatches batches = micro_batches(workload.samples, stage);
  const double size = double(size_of(model.weights).count());

  RankEntries entries(stage, index);
  entries.add("activations", bytes(double(batches.size * longest(workload)) *
                                       block_workspace(spec, stage.layout.tp),
                                   size));
  if (rank_at(stage.layout, index).pp == stage.layout.pp - 1) {
    const double responses = double(batches.size * workload.response_limit);
    entries.add("logits", bytes(kInferenceLogits * responses * logit_columns(spec, stage.layout.tp),
                                logit_size(model.weights)));
  }
  return entries.take();
}

std::vector<MemoryEntry> generation_transient(const StagePlan& stage, const ModelUse& model,
                                              const Workload& workload, int index) {
  const ModelSpec& spec = model.spec;
  const Layout layout = stage.layout;
  const Rank rank = rank_at(layout, index);
  const double size = double(size_of(model.weights).count());
  const double sequences = double(ceil_div(workload.samples, stage.dp()));
  const LayerRange layers = stage_layers(spec.num_layers, layout.pp, rank.pp);
  const double per_token = 2.0 * (layers.end - layers.begin) * spec.head_dim *
                           double(largest_share(spec.num_kv_heads, layout.tp));

  RankEntries entries(stage, index);
  entries.add("kv_cache", bytes(sequences * double(longest(workload)) * per_token, size));
  entries.add(
      "activations",
      bytes(sequences * double(workload.prompt_tokens) * block_workspace(spec, layout.tp), size));
  if (rank.pp == layout.pp - 1) {
    // Every rank samples from the whole vocabulary.
    entries.add("logits", bytes(kInferenceLogits * sequences * logit_columns(spec, 1),
                                logit_size(model.weights)));
  }
  return entries.take();
}

MemoryPrediction predict_memory(const Plan& plan, const JobSpec& job,
                                const Calibration& calibration) {
  MemoryPrediction prediction;
  const StagePlan* training = find(plan, {Role::kActor, Stage::kTraining});
  for (const StagePlan& stage : plan.stages) {
    const bool may_alias = stage.model_stage == ModelStage{Role::kActor, Stage::kGeneration};
    append_stage(prediction.entries, stage, job.models.at(stage.model_stage.role), job.workload,
                 may_alias ? training : nullptr);
  }
  for (const MemoryEntry& entry : prediction.entries) {
    prediction.resident[entry.device] += entry.resident ? entry.bytes : Bytes();
  }
  prediction.peak = prediction.resident;
  for (const auto& [device, passes] : pass_bytes(prediction.entries)) {
    prediction.peak[device] += passes.at(*largest_pass(passes)) * calibration.memory_factor();
  }
  return prediction;
}

std::vector<std::string> memory_violations(const MemoryPrediction& prediction,
                                           const Cluster& cluster, double headroom) {
  const Bytes usable = cluster.device.memory * (1 - headroom);
  std::vector<std::pair<Bytes, DeviceId>> over;
  for (const auto& [device, bytes] : prediction.peak) {
    if (bytes > usable) over.emplace_back(bytes, device);
  }
  std::ranges::sort(over, [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  std::vector<std::string> sentences;
  for (const auto& [bytes, device] : over) {
    sentences.push_back("device " + to_string(device) + " needs " + to_string(bytes) +
                        " but may use " + to_string(usable) + " (" +
                        to_string(cluster.device.memory) + " less " +
                        format_number(100 * headroom) +
                        " % headroom); largest: " + largest_components(prediction, device));
  }
  return sentences;
}

}  // namespace nereus
