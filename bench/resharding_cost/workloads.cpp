#include "resharding_cost/workloads.h"

#include "common/jobs.h"

namespace nereus::bench {

namespace {

// The first `devices` devices of as many hosts as they need.
struct Machine {
  Cluster cluster;
  std::vector<DeviceId> devices;
};
Machine machine(const std::string& name, int devices) {
  const int host_devices = named_cluster(name, 1).hosts.front().devices;
  Cluster cluster = named_cluster(name, (devices + host_devices - 1) / host_devices);
  std::vector<DeviceId> all = all_devices(cluster).devices();
  all.resize(devices);
  return {std::move(cluster), std::move(all)};
}

std::vector<Workload> growth(const std::string& cluster) {
  // Of Table 4, by devices before: Nereus; the range is all that the paper's text gives of the
  // others.
  const std::map<int, std::string> nereus{{4, "2.45"}, {8, "5.58"}, {16, "6.52"}, {32, "8.48"}};
  std::vector<Workload> workloads;
  for (const bool all_of_ppo : {false, true}) {
    for (const auto& [before, seconds] : nereus) {
      const Machine grown = machine(cluster, 2 * before);
      // One replica on four devices while there are four, then one a host.
      const Layout training = before == 4 ? Layout{.tp = 4} : Layout{.tp = 4, .pp = 2};
      const Layout serving{.tp = training.devices()};
      const auto plan = [&](size_t devices) {
        const auto some = std::span(grown.devices).first(devices);
        std::vector<StagePlan> stages{stage_on(kActorGeneration, serving, some),
                                      stage_on(kCriticTraining, training, some)};
        if (all_of_ppo) {
          stages.push_back(stage_on(kActorTraining, training, some));
          stages.push_back(stage_on(kReferenceInference, serving, some));
        }
        return plan_of(std::move(stages));
      };
      std::map<std::string, std::string> paper;
      if (!all_of_ppo) {
        paper = {{"Nereus", seconds},
                 {"Oobleck", "10.54-83.72"},
                 {"Gemini", "26.56-87.25"},
                 {"Tenplex", "39.72-89.92"},
                 {"UCP", "695.94-981.21"}};
      }
      const std::string name =
          "8B " + std::to_string(before) + " → " + std::to_string(2 * before) +
          (all_of_ppo ? ", all of PPO" : ", actor generation + critic training");
      workloads.push_back({"Table 4", name, ppo_job(llama_8b()), grown.cluster, plan(before),
                           plan(2 * before), paper});
    }
  }
  return workloads;
}

Workload relayout(const std::string& cluster, const std::string& model, const JobSpec& job,
                  int devices, Layout from, Layout to,
                  const std::map<std::string, std::string>& paper) {
  const Machine whole = machine(cluster, devices);
  const auto plan = [&](Layout layout) {
    return plan_of({stage_on(kActorTraining, layout, whole.devices)});
  };
  const std::string step = to.devices() < from.devices() ? " split " : " merge ";
  const Plan before = plan(from);
  return {"Figure 12",
          model + step + to_string(from) + " → " + to_string(to) + " on " + std::to_string(devices),
          job,
          whole.cluster,
          before,
          placed(before, plan(to), job, whole.cluster),
          paper};
}

std::vector<Workload> relayouts(const std::string& cluster) {
  std::vector<Workload> workloads;
  const JobSpec small = ppo_job(llama_8b());
  constexpr Layout kSmall{.tp = 4, .pp = 2};
  for (const int devices : {8, 16, 32, 64}) {
    for (const Layout half : {Layout{.tp = 2, .pp = 2}, Layout{.tp = 4, .pp = 1}}) {
      const std::map<std::string, std::string> paper{
          {"Nereus", "15.7-16.1"}, {"Tenplex", "62.7-65.0"}, {"MCP", "329.9-486.5"}};
      workloads.push_back(relayout(cluster, "8B", small, devices, kSmall, half, paper));
      workloads.push_back(relayout(cluster, "8B", small, devices, half, kSmall, paper));
    }
  }
  const JobSpec large = ppo_job(llama_70b());
  constexpr Layout kLarge{.tp = 8, .pp = 4};
  for (const Layout half : {Layout{.tp = 4, .pp = 4}, Layout{.tp = 8, .pp = 2}}) {
    const std::map<std::string, std::string> paper{
        {"Nereus", "-99.1 % vs MCP, -96.7 % vs Tenplex"}};
    workloads.push_back(relayout(cluster, "70B", large, 64, kLarge, half, paper));
    workloads.push_back(relayout(cluster, "70B", large, 64, half, kLarge, paper));
  }
  return workloads;
}

}  // namespace

std::vector<Workload> workloads(const std::string& cluster) {
  std::vector<Workload> all = growth(cluster);
  for (Workload& workload : relayouts(cluster)) all.push_back(std::move(workload));
  return all;
}

}  // namespace nereus::bench
