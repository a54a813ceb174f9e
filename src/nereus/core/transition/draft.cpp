#include "nereus/core/transition/draft.h"

#include <algorithm>
#include <utility>

namespace nereus {

namespace {

// What a device packs and unpacks for other hosts: two buffers, each of a layer at most.
constexpr Bytes kStagingBuffer{int64_t{32} << 20};

// Release before acquire: a Destroy only frees, a Merge frees more than it takes.
int urgency(PrimitiveKind kind) {
  if (kind == PrimitiveKind::kDestroy) return 0;
  return kind == PrimitiveKind::kMerge ? 1 : 2;
}

// Replicas of one layout that only come or only go are copied or freed, each in one primitive.
bool may_pass_through(const StagePlan& from, const StagePlan& to) {
  if (from.layout != to.layout) return true;
  using Unit = std::vector<DeviceId>;
  const auto all_in = [](const StagePlan& few, const StagePlan& many) {
    // No device is in two units, so the first device finds the unit.
    const auto first = [](const Unit* unit) { return unit->front(); };
    std::vector<const Unit*> units;
    for (const Unit& unit : many.units) units.push_back(&unit);
    std::ranges::sort(units, {}, first);
    return std::ranges::all_of(few.units, [&](const Unit& unit) {
      const auto found = std::ranges::lower_bound(units, unit.front(), {}, first);
      return found != units.end() && **found == unit;
    });
  };
  return from.units.size() <= to.units.size() ? !all_in(from, to) : !all_in(to, from);
}

struct Totals {
  Bytes moved;
  Seconds longest_path;
};

Totals totals(const Draft& draft) {
  Totals sum;
  std::vector<Seconds> end(draft.primitives.size());
  for (const Primitive& p : draft.primitives) {
    sum.moved += p.bytes_moved;
    for (const int need : draft.problem.tasks[p.id].needs)
      end[p.id] = std::max(end[p.id], end[need]);
    end[p.id] += p.set_up + p.transfer;
    sum.longest_path = std::max(sum.longest_path, end[p.id]);
  }
  return sum;
}

}  // namespace

Seconds predicted_duration(const Primitive& primitive, const Slowness& slowness) {
  return primitive.set_up * slowness.set_up + primitive.transfer * slowness.transfer;
}

Drafter::Drafter(const JobSpec& job, const Cluster& cluster)
    : cluster_(cluster),
      numbers_(cluster_),
      meter_(cluster_, numbers_),
      taken_(static_cast<size_t>(numbers_.count())),
      freed_(static_cast<size_t>(numbers_.count())) {
  for (const ModelStage stage : model_stages(job.workflow)) {
    tables_.emplace(stage, state_schema(job.models.at(stage.role), stage));
  }
}

Draft Drafter::draft(const Plan& from, const Plan& to,
                     const std::map<ModelStage, Passage>& passages, const Calibration& calibration,
                     Bytes capacity, const std::map<DeviceId, Bytes>& reserved) {
  std::vector<ModelStage> order;
  for (const auto& [stage, passage] : passages) order.push_back(stage);
  std::ranges::sort(order, {}, [](ModelStage m) { return std::pair(m.stage, m.role); });
  Draft draft;
  const Slowness slowness(calibration);
  for (const ModelStage stage : order) {
    add_stage(draft, at(from, stage), at(to, stage), passages.at(stage), slowness);
  }
  fill_devices(draft.problem, from, capacity, reserved);
  return draft;
}

void Drafter::add_stage(Draft& draft, const StagePlan& from, const StagePlan& to, Passage passage,
                        const Slowness& slowness) {
  const int host = passage == Passage::kHostStaging ? staging_host(from).value() : 0;
  LocalDag local = compile_local(from, to, passage, draft.units, host);
  StageTables& tables = tables_.at(from.model_stage);
  std::vector<Task>& tasks = draft.problem.tasks;
  const size_t first = tasks.size();
  tasks.reserve(first + local.primitives.size());
  draft.primitives.reserve(first + local.primitives.size());
  for (Primitive& p : local.primitives) {
    TransferCost cost = meter_.measure(p, draft.units, tables);
    p.id += static_cast<int>(first);
    p.bytes_moved = cost.moved;
    p.bytes_resident = cost.resident;
    p.set_up = cluster_.local.latency;
    p.transfer = cost.transfer;
    tasks.push_back({predicted_duration(p, slowness),
                     urgency(p.kind),
                     uses_of(p, draft.units, cost),
                     std::move(cost.nics),
                     {}});
    draft.primitives.push_back(std::move(p));
  }
  for (const auto& [need, id] : local.needs) {
    tasks[first + static_cast<size_t>(id)].needs.push_back(static_cast<int>(first) + need);
  }
}

bool Drafter::worth_fusing(const StagePlan& from, const StagePlan& to) {
  if (!may_pass_through(from, to)) return false;
  // Split and Merge both move what one route moves once.
  const Layout sub = common_part(from.layout, to.layout);
  if (sub != from.layout && sub != to.layout) return true;
  const Slowness none{Calibration()};
  Draft chain;
  add_stage(chain, from, to, Passage::kPrimitives, none);
  Draft route;
  add_stage(route, from, to, Passage::kRoute, none);
  const Totals apart = totals(chain);
  const Totals fused = totals(route);
  if (fused.moved != apart.moved) return fused.moved < apart.moved;
  return fused.longest_path < apart.longest_path;
}

Bytes Drafter::state_bytes(ModelStage model_stage) {
  return tables_.at(model_stage).rank_bytes(Layout{}, 0);
}

std::optional<int> Drafter::staging_host(const StagePlan& stage) {
  const Bytes needed = state_bytes(stage.model_stage);
  const auto holds = [&](int host) { return cluster_.hosts[host].memory >= needed; };
  const int own = stage.units.front().front().host;
  if (holds(own)) return own;
  for (int host = 0; host < static_cast<int>(cluster_.hosts.size()); ++host) {
    if (holds(host)) return host;
  }
  return std::nullopt;
}

void Drafter::fill_devices(ScheduleProblem& problem, const Plan& from, Bytes capacity,
                           const std::map<DeviceId, Bytes>& reserved) {
  problem.used.resize(static_cast<size_t>(numbers_.count()));
  problem.capacity.assign(problem.used.size(), capacity);
  for (int host = 0; host < static_cast<int>(cluster_.hosts.size()); ++host) {
    problem.capacity[numbers_.of({host, kHostMemory})] = cluster_.hosts[host].memory;
    problem.lanes.push_back(nic_lanes(cluster_, host));
  }
  for (const auto& [device, bytes] : reserved) problem.capacity[numbers_.of(device)] -= bytes;
  for (const StagePlan& stage : from.stages) {
    StageTables& tables = tables_.at(stage.model_stage);
    for (const std::vector<DeviceId>& unit : stage.units) {
      for (size_t index = 0; index < unit.size(); ++index) {
        problem.used[numbers_.of(unit[index])] +=
            tables.rank_bytes(stage.layout, static_cast<int>(index));
      }
    }
  }
}

std::vector<DeviceUse> Drafter::uses_of(const Primitive& primitive, std::span<const Emu> units,
                                        const TransferCost& cost) {
  std::vector<int>& devices = touched_;
  devices.assign(cost.senders.begin(), cost.senders.end());
  for (const auto& [ids, holdings] :
       {std::pair(&primitive.targets, &taken_), std::pair(&primitive.frees, &freed_)}) {
    for (const int id : *ids) {
      const Emu& unit = units[id];
      for (int index = 0; index < unit.layout.devices(); ++index) {
        devices.push_back(numbers_.of(unit.devices[index]));
        (*holdings)[devices.back()] = Holding{unit.layout, index};
      }
    }
  }
  std::ranges::sort(devices);
  const auto rest = std::ranges::unique(devices);
  devices.erase(rest.begin(), rest.end());

  StageTables& tables = tables_.at(primitive.model_stage);
  Bytes staging;
  if (!cost.nics.empty()) {
    const Layout layout = units[primitive.sources.front()].layout;
    staging = std::min(kStagingBuffer, tables.largest_layer({layout, 0})) * 2;
  }
  std::vector<DeviceUse> uses;
  uses.reserve(devices.size());
  for (const int device : devices) {
    uses.push_back(use_of(tables, device, staging));
    taken_[device].reset();
    freed_[device].reset();
  }
  return uses;
}

DeviceUse Drafter::use_of(StageTables& tables, int device, Bytes staging) const {
  const std::optional<Holding>& taken = taken_[device];
  const std::optional<Holding>& freed = freed_[device];
  DeviceUse use{device, staging, staging, {}};
  if (taken) {
    use.net = tables.rank_bytes(taken->layout, taken->index);
    use.rise += use.net;
    use.chunked_rise += tables.chunked_rise(taken, freed);
  }
  if (freed) use.net -= tables.rank_bytes(freed->layout, freed->index);
  return use;
}

}  // namespace nereus
