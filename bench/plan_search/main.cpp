// Chooses one plan of Figure 10b many times and prints what that took: called by run.py, which also
// solves the same problem with SCIP.
#include <CLI/CLI.hpp>

#include <fstream>
#include <iostream>

#include "common/jobs.h"
#include "common/record.h"
#include "nereus/planner/search.h"

namespace nereus::bench {

namespace {

struct Arguments {
  int devices = 32;
  bool colocated = false;
  int keep = 0;
  int repeats = 50;
  std::string instance;
};

Seconds since(std::chrono::steady_clock::time_point start) {
  return Seconds(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
}

// Peak resident set of this process.
Bytes peak_memory() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("VmHWM:")) return Bytes(std::stoll(line.substr(6)) * 1024);
  }
  throw Error(ErrorCode::kIo, "/proc/self/status has no VmHWM");
}

void run(const Arguments& arguments) {
  const Cluster cluster = named_cluster("h200x8", arguments.devices / 8);
  const JobSpec job = ppo_job(llama_8b());
  const PlannerOptions planner{.side_by_side = !arguments.colocated, .keep = arguments.keep};
  const SearchOptions options{.usable = usable_memory(cluster.device, planner.headroom),
                              .keep = planner.keep,
                              .tolerance = planner.tolerance,
                              .side_by_side = planner.side_by_side};

  auto start = std::chrono::steady_clock::now();
  Problem problem(job, cluster, all_devices(cluster), {}, planner, nullptr);
  const Seconds candidates = since(start);
  start = std::chrono::steady_clock::now();
  std::vector<Found> found = search(problem, options);
  const Seconds first = since(start);
  std::vector<double> selections;
  for (int i = 0; i < arguments.repeats; ++i) {
    start = std::chrono::steady_clock::now();
    found = search(problem, options);
    selections.push_back(since(start).count());
  }
  if (found.empty()) throw Error(ErrorCode::kInfeasible, "no plan fits");
  size_t placements = 0, variants = 0;
  for (const StageCandidates& stage : problem.stages()) {
    placements += stage.placements.size();
    for (const Placement& placement : stage.placements) variants += placement.variants.size();
  }
  const Plan plan = problem.plan(found.front());
  std::cout << Json{{"devices", arguments.devices},
                    {"placements", placements},
                    {"candidates", variants},
                    {"candidates_s", candidates},
                    {"first_selection_s", first},
                    {"selection_s", quantile(selections, 0)},
                    {"selection_median_s", quantile(selections, 0.5)},
                    {"step_s", found.front().total},
                    {"plan", plan},
                    {"peak_bytes", peak_memory()}}
                   .dump()
            << "\n";
  std::cerr << to_string(plan);
}

}  // namespace

}  // namespace nereus::bench

int main(int argc, char** argv) {
  nereus::bench::Arguments arguments;
  CLI::App app{"Plan selection time of a PPO job with 8B models on h200x8"};
  app.add_option("--devices", arguments.devices, "A multiple of 8")->check(CLI::Range(8, 8192));
  app.add_flag("--colocated", arguments.colocated, "All model-stages share devices");
  app.add_option("--keep", arguments.keep, "Runners-up")->check(CLI::NonNegativeNumber);
  app.add_option("--repeats", arguments.repeats)->check(CLI::PositiveNumber);
  app.add_option("--instance", arguments.instance, "Write the problem here");
  CLI11_PARSE(app, argc, argv);
  try {
    nereus::bench::run(arguments);
    return 0;
  } catch (const nereus::Error& error) {
    std::cerr << "error: " << error.what() << "\n";
    return nereus::exit_code(error.code());
  }
}
