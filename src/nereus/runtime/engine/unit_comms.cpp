#include "nereus/runtime/engine/unit_comms.h"

#include <vector>

namespace nereus {

void UnitComms::abort(const std::string& reason) const {
  tp->abort(reason);
  pp->abort(reason);
  dp->abort(reason);
}

void UnitComms::throw_if_aborted() const {
  tp->throw_if_aborted();
  pp->throw_if_aborted();
  dp->throw_if_aborted();
}

std::map<DeviceId, UnitComms> connect(const StagePlan& stage, CommunicatorCache& cache) {
  std::map<DeviceId, UnitComms> comms;
  const auto group = [&](const std::vector<DeviceId>& members,
                         std::shared_ptr<Communicator> UnitComms::* which) {
    const auto handles = cache.group(members);
    for (size_t i = 0; i < members.size(); ++i) comms[members[i]].*which = handles[i];
  };
  const int tp = stage.layout.tp;
  const int pp = stage.layout.pp;
  for (const auto& unit : stage.units) {
    for (int p = 0; p < pp; ++p) {
      group({unit.begin() + p * tp, unit.begin() + (p + 1) * tp}, &UnitComms::tp);
    }
    for (int t = 0; t < tp; ++t) {
      std::vector<DeviceId> column;
      for (int p = 0; p < pp; ++p) column.push_back(unit[p * tp + t]);
      group(column, &UnitComms::pp);
    }
  }
  for (int index = 0; index < stage.layout.devices(); ++index) {
    std::vector<DeviceId> replicas;
    for (const auto& unit : stage.units) replicas.push_back(unit[index]);
    group(replicas, &UnitComms::dp);
  }
  return comms;
}

}  // namespace nereus
