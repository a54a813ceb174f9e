// Chooses one plan of Figure 10b many times and prints what that took: called by run.py, which also
// solves the same problem with SCIP. With --decision, the whole decision that the search is part
// of.
#include <CLI/CLI.hpp>

#include <fstream>
#include <iostream>
#include <optional>

#include "common/jobs.h"
#include "common/record.h"
#include "nereus/core/planner/report.h"
#include "nereus/core/planner/search.h"
#include "plan_search/decision.h"

namespace nereus::bench {

namespace {

struct Arguments {
  int devices = 32;
  bool colocated = false;
  bool decision = false;
  int keep = 8;
  int repeats = 50;
  std::string instance;
};

// Peak resident set of this process.
Bytes peak_memory() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("VmHWM:")) return Bytes(std::stoll(line.substr(6)) * 1024);
  }
  throw Error(ErrorCode::kIo, "/proc/self/status has no VmHWM");
}

Json placement_json(const Placement& placement, int devices) {
  const Setting& front = placement.settings.front();
  Json variants = Json::array();
  for (const Variant& variant : front.variants) {
    variants.push_back({{"passes", variant.passes}, {"transient", variant.transient}});
  }
  std::vector<int16_t> ranks = front.footprint.ranks;
  ranks.resize(size_t(devices), -1);
  return {{"layout", to_string(placement.stage.layout)},
          {"ranks", ranks},
          {"resident", placement.resident},
          {"variants", variants}};
}

// What scip.py needs to know of the colocated problem.
Json formulate(Problem& problem, const JobSpec& job, const Cluster& cluster, Bytes usable) {
  Json stages = Json::array(), sync = Json::array(), nodes = Json::array();
  for (const StageCandidates& stage : problem.stages()) {
    Json placements = Json::array();
    for (const Placement& placement : stage.placements) {
      placements.push_back(placement_json(placement, problem.devices()));
    }
    stages.push_back({{"nodes", stage.nodes}, {"placements", placements}});
  }
  for (size_t t = 0; t < problem.stages()[0].placements.size(); ++t) {
    Json row = Json::array();
    for (size_t g = 0; g < problem.stages()[1].placements.size(); ++g) {
      row.push_back(problem.sync_time(static_cast<int>(t), 0, static_cast<int>(g), 0));
    }
    sync.push_back(std::move(row));
  }
  const std::vector<std::vector<NodeId>> before = predecessors(job.workflow);
  for (size_t i = 0; i < job.workflow.nodes.size(); ++i) {
    const WorkflowNode& node = job.workflow.nodes[i];
    const bool host = !runs_on_devices(node.pass);
    const Seconds time =
        host ? predicted_time(ideal_node_work(node, {}, job, cluster), {}) : Seconds();
    Json after = Json::array();
    for (const NodeId from : before[i]) after.push_back(index(from));
    nodes.push_back({{"host_s", time},
                     {"on_devices", !host},
                     {"syncs", node.pass == Pass::kSyncWeights},
                     {"after", after}});
  }
  return {{"usable_bytes", usable},
          {"stages", stages},
          {"sync_s", sync},
          {"nodes", nodes},
          {"order", topological_order(job.workflow)}};
}

// How each model-stage is laid out; the devices of a plan for 1,024 of them would fill pages.
Json layouts(const Plan& plan) {
  Json texts = Json::array();
  for (const StagePlan& stage : plan.stages) {
    const std::string text = to_string(stage);
    texts.push_back(text.substr(0, text.find(" [")));
  }
  return texts;
}

// What holds of every search. Throws Error(kInternal) if it does not.
void check(const Found& best, const std::vector<Found>& ranked, double tolerance) {
  if (ranked.empty() || ranked.front().total != best.total) {
    throw Error(ErrorCode::kInternal, "another best plan with runners-up than without");
  }
  for (size_t i = 1; i < ranked.size(); ++i) {
    const Seconds total = ranked[i].total;
    if (total < ranked[i - 1].total || total > best.total * (1 + tolerance)) {
      throw Error(ErrorCode::kInternal, "runner-up " + std::to_string(i) + " is out of order");
    }
  }
}

void run(const Arguments& arguments) {
  const Cluster cluster = named_cluster("h200x8", arguments.devices / 8);
  const JobSpec job = ppo_job(llama_8b());
  const DevicePool pool = all_devices(cluster);
  const PlannerOptions planner{.side_by_side = !arguments.colocated, .keep = arguments.keep};
  if (arguments.decision) {
    std::cout << time_decision(job, cluster, planner, arguments.repeats).dump() << "\n";
    return;
  }
  const Bytes usable = usable_memory(cluster.device, planner.headroom);
  const SearchOptions ranking = search_options(planner, usable);
  SearchOptions only_best = ranking;
  only_best.keep = 0;

  std::optional<Problem> made;
  const Seconds costing =
      cpu_time([&] { made.emplace(job, cluster, pool, Calibration(), planner, nullptr); });
  Problem& problem = *made;
  std::vector<Found> found, ranked;
  const Seconds first = cpu_time([&] { found = search(problem, only_best); });
  std::vector<double> selections, rankings;
  for (int i = 0; i < arguments.repeats; ++i) {
    selections.push_back(cpu_time([&] { found = search(problem, only_best); }).count());
    rankings.push_back(cpu_time([&] { ranked = search(problem, ranking); }).count());
  }
  if (found.empty()) throw Error(ErrorCode::kInfeasible, "no plan fits");
  check(found.front(), ranked, planner.tolerance);
  size_t placements = 0, variants = 0;
  for (const StageCandidates& stage : problem.stages()) {
    placements += stage.placements.size();
    for (const Placement& placement : stage.placements) {
      for (const Setting& setting : placement.settings) variants += setting.variants.size();
    }
  }
  const Bytes peak = peak_memory();
  const Seconds report = cpu_time([&] {
    Problem again(job, cluster, pool, Calibration(), planner, nullptr);
    report_plan(again, planner);
    what_would_help(again, planner);
  });
  std::cout << Json{{"devices", arguments.devices},
                    {"placements", placements},
                    {"candidates", variants},
                    {"costing_s", costing},
                    {"first_selection_s", first},
                    {"selection_s", quantile(selections, 0)},
                    {"selection_median_s", quantile(selections, 0.5)},
                    {"ranking_s", quantile(rankings, 0)},
                    {"report_s", report},
                    {"step_s", found.front().total},
                    {"plan", layouts(problem.plan(found.front()))},
                    {"peak_bytes", peak}}
                   .dump()
            << "\n";
  if (!arguments.instance.empty()) {
    write_record(arguments.instance, formulate(problem, job, cluster, usable));
  }
}

}  // namespace

}  // namespace nereus::bench

int main(int argc, char** argv) {
  nereus::bench::Arguments arguments;
  CLI::App app{"Plan selection time of a PPO job with 8B models on h200x8"};
  app.add_option("--devices", arguments.devices, "A multiple of 8")->check(CLI::Range(8, 8192));
  app.add_flag("--colocated", arguments.colocated, "All model-stages share devices");
  app.add_flag("--decision", arguments.decision, "The whole decision, from half of the devices");
  app.add_option("--keep", arguments.keep, "Runners-up")->check(CLI::NonNegativeNumber);
  app.add_option("--repeats", arguments.repeats)->check(CLI::PositiveNumber);
  app.add_option("--instance", arguments.instance, "Write the colocated problem here");
  CLI11_PARSE(app, argc, argv);
  try {
    nereus::bench::run(arguments);
    return 0;
  } catch (const nereus::Error& error) {
    std::cerr << "error: " << error.what() << "\n";
    return nereus::exit_code(error.code());
  }
}
