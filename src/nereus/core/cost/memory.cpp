#include "nereus/core/cost/memory.h"

#include <algorithm>
#include <optional>

#include "nereus/core/base/text.h"
#include "nereus/core/cost/pass_memory.h"

namespace nereus {
namespace {

// Estimates, not measurements: half a GiB of context, and a quarter for the buffers of each of
// three communicators (TP, PP, DP).
constexpr Bytes kAcceleratorRuntime{5 * (int64_t{1} << 28)};
constexpr double kAcceleratorFragmentation = 0.05;

MemoryEntry state_entry(const StagePlan& stage, const char* component, int64_t elements,
                        int64_t element_size) {
  return {.model_stage = stage.model_stage,
          .component = component,
          .bytes = Bytes(elements * element_size),
          .resident = !stage.offload,
          .state = true};
}

// All that the rank at `index` of a unit needs on its device.
std::vector<MemoryEntry> rank_entries(const StagePlan& stage, const StateElements& elements,
                                      const JobSpec& job, int index) {
  const DType type = job.models.at(stage.model_stage.role).weights;
  const StateWidths width = state_widths(type, stage.model_stage.stage);
  const int64_t weights = elements.weights[size_t(index)];
  const int64_t optimizer = elements.optimizer[size_t(index)];
  std::vector<MemoryEntry> entries = {state_entry(stage, "weights", weights, width.weights)};
  if (width.master > 0) entries.push_back(state_entry(stage, "master", optimizer, width.master));
  if (width.moments > 0) entries.push_back(state_entry(stage, "moments", optimizer, width.moments));
  for (NamedBytes& need : transient(stage, job, index, weights)) {
    entries.push_back({.model_stage = stage.model_stage,
                       .component = std::move(need.component),
                       .bytes = need.bytes});
  }
  return entries;
}

// The rank of actor training on each device whose bytes generation of the same rank may use.
using TrainingRanks = std::map<DeviceId, int>;

TrainingRanks shared_ranks(const StagePlan& training, const StagePlan& generation) {
  TrainingRanks ranks;
  if (training.layout != generation.layout || training.offload || generation.offload) return ranks;
  for (const std::vector<DeviceId>& unit : training.units) {
    for (size_t i = 0; i < unit.size(); ++i) ranks[unit[i]] = static_cast<int>(i);
  }
  return ranks;
}

void append_stage(std::vector<MemoryEntry>& all, const StagePlan& stage, const JobSpec& job,
                  const TrainingRanks& shared) {
  const StateElements elements = state_elements(job.model(stage.model_stage.role), stage.layout);
  for (int index = 0; index < stage.layout.devices(); ++index) {
    const std::vector<MemoryEntry> entries = rank_entries(stage, elements, job, index);
    for (const std::vector<DeviceId>& unit : stage.units) {
      const DeviceId device = unit.at(size_t(index));
      const auto there = shared.find(device);
      const bool is_shared = there != shared.end() && there->second == index;
      for (MemoryEntry entry : entries) {
        if (entry.state && is_shared) continue;
        entry.device = device;
        all.push_back(entry);
        if (!entry.state || entry.resident) continue;
        entry.device = {device.host, kHostMemory};
        entry.resident = true;
        all.push_back(std::move(entry));
      }
    }
  }
}

// What an entry counts for.
Bytes calibrated(const MemoryEntry& entry, double factor) {
  return entry.state ? entry.bytes : entry.bytes * factor;
}

// What each model-stage's passes need on each device.
using PassBytes = std::map<DeviceId, std::map<ModelStage, Bytes>>;

PassBytes pass_bytes(const std::vector<MemoryEntry>& entries, double factor) {
  PassBytes sums;
  for (const MemoryEntry& entry : entries) {
    if (entry.resident) continue;
    sums[entry.device][entry.model_stage] += calibrated(entry, factor);
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
  const PassBytes passes = pass_bytes(prediction.entries, 1);
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

// " (141 GB less 10 % headroom …)"
std::string less_what(const DeviceSpec& device, double headroom) {
  const RuntimeMemory runtime = runtime_memory(device);
  std::string text =
      " (" + to_string(device.memory) + " less " + format_number(100 * headroom) + " % headroom";
  if (runtime.fixed > Bytes()) {
    text += ", " + to_string(runtime.fixed) + " of context and communicators and " +
            format_number(100 * runtime.fragmentation) + " % fragmentation";
  }
  return text + ")";
}

}  // namespace

MemoryPrediction predict_memory(const Plan& plan, const JobSpec& job,
                                const Calibration& calibration) {
  MemoryPrediction prediction;
  const StagePlan* training = find(plan, kActorTraining);
  for (const StagePlan& stage : plan.stages) {
    const bool may_alias = training != nullptr && stage.model_stage == kActorGeneration;
    append_stage(prediction.entries, stage, job,
                 may_alias ? shared_ranks(*training, stage) : TrainingRanks());
  }
  for (const MemoryEntry& entry : prediction.entries) {
    prediction.resident[entry.device] += entry.resident ? entry.bytes : Bytes();
  }
  prediction.peak = prediction.resident;
  for (const auto& [device, passes] : pass_bytes(prediction.entries, calibration.memory_factor())) {
    prediction.peak[device] += passes.at(*largest_pass(passes));
  }
  return prediction;
}

std::vector<RankBytes> rank_bytes(const StagePlan& stage, const StateElements& elements,
                                  const JobSpec& job, const Calibration& calibration) {
  std::vector<RankBytes> ranks;
  for (int index = 0; index < stage.layout.devices(); ++index) {
    // Neighbours in a pipeline stage that hold as much need as much.
    const auto i = size_t(index);
    if (index % stage.layout.tp != 0 && elements.weights[i] == elements.weights[i - 1] &&
        elements.optimizer[i] == elements.optimizer[i - 1]) {
      ranks.push_back(ranks.back());
      continue;
    }
    RankBytes& rank = ranks.emplace_back();
    for (const MemoryEntry& entry : rank_entries(stage, elements, job, index)) {
      (entry.resident ? rank.resident : rank.passing) +=
          calibrated(entry, calibration.memory_factor());
      if (entry.state && !entry.resident) rank.parked += entry.bytes;
    }
  }
  return ranks;
}

RuntimeMemory runtime_memory(const DeviceSpec& device) {
  if (!is_accelerator(device)) return {};
  return {kAcceleratorRuntime, kAcceleratorFragmentation};
}

Bytes usable_memory(const DeviceSpec& device, double headroom) {
  const RuntimeMemory runtime = runtime_memory(device);
  const Bytes left = device.memory * (1 - headroom) - runtime.fixed;
  return std::max(Bytes(), left * (1 / (1 + runtime.fragmentation)));
}

std::vector<std::string> memory_violations(const MemoryPrediction& prediction,
                                           const Cluster& cluster, double headroom) {
  const auto usable = [&](DeviceId device) {
    return is_host_memory(device) ? cluster.hosts.at(static_cast<size_t>(device.host)).memory
                                  : usable_memory(cluster.device, headroom);
  };
  std::vector<std::pair<Bytes, DeviceId>> over;
  for (const auto& [device, bytes] : prediction.peak) {
    if (bytes > usable(device)) over.emplace_back(bytes, device);
  }
  std::ranges::sort(over, [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  std::vector<std::string> sentences;
  for (const auto& [bytes, device] : over) {
    const std::string limit = is_host_memory(device) ? "" : less_what(cluster.device, headroom);
    sentences.push_back((is_host_memory(device) ? "host memory " : "device ") + to_string(device) +
                        " needs " + to_string(bytes) + " but may use " + to_string(usable(device)) +
                        limit + "; largest: " + largest_components(prediction, device));
  }
  return sentences;
}

}  // namespace nereus
