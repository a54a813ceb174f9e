#include "nereus/core/state/residency.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "nereus/core/state/assignment.h"
#include "nereus/core/state/overlap.h"

namespace nereus {

namespace {

constexpr int kIdle = -1;

// What a device does in a plan: for each model-stage that counts its index within its unit, or
// kIdle. Replicas are alike, so devices with equal parts are.
using Part = std::vector<int>;

std::map<DeviceId, Part> parts_in(const Plan& plan, const std::vector<ModelStage>& model_stages) {
  std::map<DeviceId, Part> parts;
  const DevicePool used = devices_of(plan);
  for (const DeviceId device : used.devices()) {
    parts[device] = Part(model_stages.size(), kIdle);
  }
  for (size_t s = 0; s < model_stages.size(); ++s) {
    for (const auto& unit : at(plan, model_stages[s]).units) {
      for (size_t index = 0; index < unit.size(); ++index) {
        parts[unit[index]][s] = static_cast<int>(index);
      }
    }
  }
  return parts;
}

// The devices of one host, by index, with their parts.
using HostParts = std::map<int, Part>;

std::map<int, HostParts> by_host(const std::map<DeviceId, Part>& parts) {
  std::map<int, HostParts> hosts;
  for (const auto& [device, part] : parts) hosts[device.host][device.index] = part;
  return hosts;
}

using Renaming = std::map<DeviceId, DeviceId>;

// A host of the target on a host of the pool.
struct HostMatch {
  int64_t resident = 0;         // bytes
  std::map<int, int> index_of;  // label → index of a device
};

struct Candidate {
  int from = 0;
  int to = 0;
  const HostMatch* match = nullptr;
};

class Relabeler {
 public:
  Relabeler(const Plan& from, const Plan& to, const std::map<ModelStage, StateSchema>& schemas) {
    for (const auto& [model_stage, schema] : schemas) {
      const StagePlan *before = find(from, model_stage), *after = find(to, model_stage);
      if (before == nullptr || after == nullptr) continue;
      model_stages_.push_back(model_stage);
      tables_.emplace_back(summarize(schema), before->layout, after->layout);
    }
    before_ = parts_in(from, model_stages_);
    after_ = parts_in(to, model_stages_);
  }

  Renaming unchanged() const {
    Renaming renaming;
    for (const auto& [label, part] : after_) renaming[label] = label;
    return renaming;
  }

  // Bytes that the parts of the target find on the devices that they get.
  int64_t resident(const Renaming& renaming) const {
    int64_t sum = 0;
    for (const auto& [label, part] : after_) sum += common(held_by(renaming.at(label)), part);
    return sum;
  }

  // Each host of the target on a host of the pool of its own, the pair with most resident bytes
  // first; or each on itself, if hosts stay. Nothing if a host finds no room.
  std::optional<Renaming> rename(const DevicePool& pool, bool hosts_stay) {
    std::map<DeviceId, Part> parts;
    for (const DeviceId device : pool.devices()) parts[device] = held_by(device);
    const std::map<int, HostParts> wanted = by_host(after_), there = by_host(parts);
    std::vector<Candidate> candidates;
    for (const auto& [host, labels] : wanted) {
      for (const auto& [other, devices] : there) {
        if (devices.size() < labels.size() || (hosts_stay && other != host)) continue;
        candidates.push_back({host, other, &match(labels, devices)});
      }
    }
    std::ranges::stable_sort(candidates, {}, [](const Candidate& c) {
      return std::pair(-c.match->resident, c.from != c.to);
    });
    std::set<int> matched, taken;
    Renaming renaming;
    for (const Candidate& c : candidates) {
      if (matched.contains(c.from) || !taken.insert(c.to).second) continue;
      matched.insert(c.from);
      for (const auto& [label, index] : c.match->index_of) {
        renaming[{c.from, label}] = {c.to, index};
      }
    }
    return matched.size() == wanted.size() ? std::optional(renaming) : std::nullopt;
  }

 private:
  Part held_by(DeviceId device) const {
    const auto held = before_.find(device);
    return held == before_.end() ? Part(model_stages_.size(), kIdle) : held->second;
  }

  int64_t common(const Part& held, const Part& wanted) const {
    int64_t bytes = 0;
    for (size_t s = 0; s < tables_.size(); ++s) {
      if (held[s] == kIdle || wanted[s] == kIdle) continue;
      bytes += tables_[s].common(held[s], wanted[s]).count();
    }
    return bytes;
  }

  // Few pairs of hosts differ: each kind of pair is solved once.
  const HostMatch& match(const HostParts& labels, const HostParts& devices) {
    const auto kind = [&](const HostParts& parts) {
      return kinds_.try_emplace(parts, kinds_.size()).first->second;
    };
    const auto [known, is_new] = matches_.try_emplace({kind(labels), kind(devices)});
    if (is_new) known->second = solve(labels, devices);
    return known->second;
  }

  HostMatch solve(const HostParts& labels, const HostParts& devices) const {
    // Bytes count first; among equals, as many labels as possible keep their index.
    const auto scale = static_cast<int64_t>(labels.size()) + 1;
    std::vector<std::vector<int64_t>> worth;
    for (const auto& [label, wanted] : labels) {
      auto& row = worth.emplace_back();
      for (const auto& [index, held] : devices) {
        row.push_back(common(held, wanted) * scale + (label == index ? 1 : 0));
      }
    }
    const std::vector<int> column_of = best_assignment(worth);
    HostMatch match;
    for (const auto& [label, wanted] : labels) {
      const auto& [index, held] = *std::next(devices.begin(), column_of[match.index_of.size()]);
      match.index_of[label] = index;
      match.resident += common(held, wanted);
    }
    return match;
  }

  std::vector<ModelStage> model_stages_;  // in both plans
  std::vector<OverlapTable> tables_;      // one for each
  std::map<DeviceId, Part> before_;
  std::map<DeviceId, Part> after_;
  std::map<HostParts, size_t> kinds_;
  std::map<std::pair<size_t, size_t>, HostMatch> matches_;
};

}  // namespace

Bytes resident_bytes(const Plan& from, const Plan& to,
                     const std::map<ModelStage, StateSchema>& schemas) {
  const Relabeler relabeler(from, to, schemas);
  return Bytes(relabeler.resident(relabeler.unchanged()));
}

Plan relabel_for_residency(const Plan& from, Plan to,
                           const std::map<ModelStage, StateSchema>& schemas,
                           const DevicePool& pool) {
  Relabeler relabeler(from, to, schemas);
  Renaming best = relabeler.unchanged();
  for (const bool hosts_stay : {true, false}) {
    const std::optional<Renaming> other = relabeler.rename(pool, hosts_stay);
    if (other && relabeler.resident(*other) > relabeler.resident(best)) best = *other;
  }
  for (StagePlan& stage : to.stages) {
    for (auto& unit : stage.units) {
      for (DeviceId& device : unit) device = best.at(device);
    }
  }
  return to;
}

}  // namespace nereus
