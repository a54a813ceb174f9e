// Table 4 and Figure 12, PREDICTED: what Nereus' transitions would cost on a modelled cluster, the
// paper's four primitives and fused, beside what the paper measured. Nothing here was run on such a
// cluster.
//
//   build/release/bench/nereus_resharding_cost --output bench/results/resharding_cost.json
//
// Fails if a fused transition moves more bytes or takes longer than its four primitives, if what
// its targets need neither was there nor came, or if a device would hold more than it has.
//
// Moving is predicted at the efficiency that large sends reached on 2 × H200. Set-up (creating
// communicators) is listed beside it: Nereus makes them in the background before the boundary, the
// paper's seconds include it. Its constants were measured on 2 × H200 with NCCL 2.28.9.
#include <CLI/CLI.hpp>

#include <cstdio>
#include <iostream>

#include "common/jobs.h"
#include "common/record.h"
#include "nereus/core/base/text.h"
#include "nereus/core/state/reshard.h"
#include "nereus/core/transition/compile.h"
#include "resharding_cost/workloads.h"

namespace nereus::bench {

namespace {

constexpr double kFirstCommunicator = 0.54;  // seconds
constexpr double kLaterCommunicator = 0.04;

struct Traffic {
  Bytes local;
  Bytes in_host;
  Bytes between_hosts;
  Bytes host_memory;
};

EmuCollection pick(const std::vector<int>& indices, const EmuCollection& units) {
  EmuCollection picked;
  for (const int index : indices) picked.push_back(units[index]);
  return picked;
}

Traffic traffic_of(const TransitionDag& dag, const JobSpec& job) {
  Traffic traffic;
  for (const Primitive& primitive : dag.primitives) {
    if (primitive.targets.empty()) continue;
    const StateSchema schema =
        state_schema(job.models.at(primitive.model_stage.role), primitive.model_stage);
    const ReshardPlan plan =
        reshard(pick(primitive.sources, dag.units), pick(primitive.targets, dag.units), schema);
    traffic.local += plan.resident;
    for (const LinkLoad& load : link_loads(plan, schema)) {
      if (is_host_memory(load.from) || is_host_memory(load.to)) {
        traffic.host_memory += load.bytes;
      } else if (load.from.host == load.to.host) {
        traffic.in_host += load.bytes;
      } else {
        traffic.between_hosts += load.bytes;
      }
    }
  }
  return traffic;
}

// Each device joins one communicator for each new unit that it is in, and one for transfers if
// anything crosses between hosts; devices work at once, one after the other on each.
Seconds set_up(const TransitionDag& dag, const Traffic& traffic) {
  std::map<DeviceId, int> joins;
  for (const Primitive& primitive : dag.primitives) {
    for (const Emu& unit : pick(primitive.targets, dag.units)) {
      for (const DeviceId device : unit.devices) ++joins[device];
    }
  }
  int most = 0;
  for (const auto& [device, count] : joins) most = std::max(most, count);
  if (traffic.between_hosts > Bytes()) ++most;
  return Seconds(most == 0 ? 0 : kFirstCommunicator + kLaterCommunicator * (most - 1));
}

struct Cost {
  Json json;
  Seconds moving;
  Seconds set_up;
  Traffic traffic;
  Bytes peak;
};

Bytes crossing(const Traffic& traffic) {
  return traffic.in_host + traffic.between_hosts + traffic.host_memory;
}

// The bytes of the plan's units that are not units of the other one already.
Bytes made(const Plan& plan, const Plan& before, const JobSpec& job) {
  Bytes sum;
  for (const StagePlan& stage : plan.stages) {
    const StateSchema schema =
        state_schema(job.models.at(stage.model_stage.role), stage.model_stage);
    const EmuCollection old = units_of(at(before, stage.model_stage));
    for (const Emu& unit : units_of(stage)) {
      if (std::ranges::find(old, unit) != old.end()) continue;
      for (int i = 0; i < unit.layout.devices(); ++i) sum += state_bytes(schema, unit.layout, i);
    }
  }
  return sum;
}

// Throws Error(kInternal) if a law does not hold.
void check(const Workload& workload, const Cost& unfused, const Cost& fused) {
  const auto require = [&](bool holds, const std::string& law) {
    if (!holds) throw Error(ErrorCode::kInternal, workload.name + ": " + law);
  };
  require(fused.moving <= unfused.moving * (1 + 1e-9), "fused takes longer");
  require(crossing(fused.traffic) <= crossing(unfused.traffic), "fused moves more bytes");
  const Bytes needed = made(workload.to, workload.from, workload.job);
  require(needed > Bytes(), "nothing is made");
  require(
      fused.traffic.local + crossing(fused.traffic) == needed,
      to_string(fused.traffic.local + crossing(fused.traffic)) + " came of " + to_string(needed));
  for (const Cost& cost : {unfused, fused}) {
    require(cost.moving > Seconds() && cost.peak > Bytes(), "costs nothing");
    require(cost.peak <= workload.cluster.device.memory, "does not fit");
  }
}

Cost cost_of(const Workload& workload, bool fuse) {
  const auto dag = compile_transition(workload.from, workload.to, workload.job, workload.cluster,
                                      measured_calibration(), {.fuse = fuse});
  if (!dag) throw Error(ErrorCode::kInfeasible, workload.name + ": " + dag.error());
  const Traffic traffic = traffic_of(*dag, workload.job);
  const Seconds setting_up = set_up(*dag, traffic);
  Bytes peak;
  for (const auto& [device, bytes] : dag->peak_bytes) peak = std::max(peak, bytes);
  const Seconds moving = dag->makespan - dag->connecting;  // set-up has a column of its own
  Json json{{"moving_s", moving},
            {"set_up_s", setting_up},
            {"primitives", dag->primitives.size()},
            {"bytes",
             {{"local", traffic.local},
              {"in_host", traffic.in_host},
              {"between_hosts", traffic.between_hosts},
              {"host_memory", traffic.host_memory}}},
            {"peak_bytes", peak}};
  return {std::move(json), moving, setting_up, traffic, peak};
}

std::string gigabytes(Bytes bytes) { return format_number(double(bytes.count()) / 1e9, "%.1f"); }

void run(const std::string& cluster, const std::string& output, Json record) {
  record["label"] = "predicted";
  record["cluster"] = named_cluster(cluster, 1);
  std::printf("PREDICTED on %s; the paper's numbers are measured ones\n\n", cluster.c_str());
  std::printf("%-56s %9s %9s %7s %9s %9s %9s   %s\n", "", "unfused", "fused", "set-up", "local",
              "in-host", "NIC", "paper");
  std::printf("%-56s %9s %9s %7s %29s   %s\n", "", "s", "s", "s", "GB, fused", "s");
  for (const Workload& workload : workloads(cluster)) {
    const Cost unfused = cost_of(workload, false);
    const Cost fused = cost_of(workload, true);
    check(workload, unfused, fused);
    std::vector<std::string> paper;
    for (const auto& [system, seconds] : workload.paper) paper.push_back(system + " " + seconds);
    std::printf("%-56s %9.3f %9.3f %7.2f %9s %9s %9s   %s\n", workload.name.c_str(),
                unfused.moving.count(), fused.moving.count(), fused.set_up.count(),
                gigabytes(fused.traffic.local).c_str(), gigabytes(fused.traffic.in_host).c_str(),
                gigabytes(fused.traffic.between_hosts).c_str(), join(paper, ", ").c_str());
    record["rows"].push_back({{"figure", workload.figure},
                              {"workload", workload.name},
                              {"unfused_predicted", unfused.json},
                              {"fused_predicted", fused.json},
                              {"paper_measured_s", workload.paper}});
  }
  if (!output.empty()) write_record(output, record);
}

}  // namespace

}  // namespace nereus::bench

int main(int argc, char** argv) {
  std::string cluster = "h200x8";
  std::string output;
  CLI::App app{"Table 4 and Figure 12, predicted on a modelled cluster"};
  app.add_option("--cluster", cluster, "h200x8, a100x4 or mi250x8");
  app.add_option("--output", output, "Where the record goes, JSON");
  CLI11_PARSE(app, argc, argv);
  try {
    nereus::bench::run(cluster, output, nereus::bench::record_head(argc, argv));
    return 0;
  } catch (const nereus::Error& error) {
    std::cerr << "error: " << error.what() << "\n";
    return nereus::exit_code(error.code());
  }
}
