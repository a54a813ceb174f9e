// Table 5: transitions in which model-stages take over each other's devices, 100 randomised trials
// of each of three overlap types (scenario.h), by Nereus' global DAG and by components that migrate
// on their own (migration.h), both executed on virtual devices with real state. Both end with a
// comparison of every tensor's hash.
//
//   build/release/bench/nereus_coordination --output bench/results/coordination.json
//
// A deadlock is a circle of waiting threads that was seen in the executed run and did not change
// for --patience seconds; the record holds each one. It counts as the full time limit of 20 s. With
// --patience 20 every deadlock is waited out. Fails if any of Nereus' trials does.
#include <CLI/CLI.hpp>

#include <cstdio>
#include <iostream>

#include "common/record.h"
#include "coordination/migration.h"
#include "nereus/core/base/text.h"

namespace nereus::bench {

namespace {

constexpr double kTimeLimit = 20;  // seconds

struct Arguments {
  int trials = 100;
  uint64_t seed = 1;
  double patience = 2;
  std::string output;
};

// All outcomes of one way over the trials of one overlap type.
class Tally {
 public:
  void add(const Outcome& outcome) {
    seconds_.push_back(outcome.completed ? outcome.elapsed.count() : kTimeLimit);
    if (outcome.completed) completed_seconds_.push_back(outcome.elapsed.count());
    edges_.push_back(outcome.resource_edges);
    if (!outcome.circle.empty()) ++deadlocks_;
    if (!outcome.completed) {
      failures_.push_back("trial " + std::to_string(seconds_.size() - 1) + ": " +
                          (outcome.circle.empty() ? outcome.failure : join(outcome.circle, ", ")));
    }
  }
  double success_percent() const {
    return 100.0 * double(completed_seconds_.size()) / double(seconds_.size());
  }
  double median_edges() const { return quantile(edges_, 0.5); }
  double median_seconds() const {
    return completed_seconds_.empty() ? kTimeLimit : quantile(completed_seconds_, 0.5);
  }
  Json json() const {
    return {{"success_percent", success_percent()},
            {"deadlocks", deadlocks_},
            {"median_s_of_completed", median_seconds()},
            {"slowest_s", quantile(seconds_, 1)},
            {"resource_edges",
             {{"median", median_edges()},
              {"least", quantile(edges_, 0)},
              {"most", quantile(edges_, 1)}}},
            {"failures", failures_}};
  }

 private:
  std::vector<double> seconds_;  // of failures: the time limit
  std::vector<double> completed_seconds_;
  std::vector<double> edges_;
  int deadlocks_ = 0;
  std::vector<std::string> failures_;
};

struct Row {
  Json json;
  bool complete = false;  // Nereus' trials all succeeded
};

Row run(const Overlap& overlap, uint64_t first_seed, const Arguments& arguments) {
  const JobSpec job = job_of(overlap);
  const Cluster cluster = cluster_of(overlap, job);
  const int devices = all_devices(cluster).size();
  Tally coordinated;
  Tally per_component;
  for (int i = 0; i < arguments.trials; ++i) {
    const Trial trial = make_trial(overlap, first_seed + uint64_t(i));
    coordinated.add(migrate_coordinated(trial, job, cluster));
    per_component.add(migrate_per_component(trial, job, cluster, Seconds(arguments.patience)));
  }
  std::printf("%-6s %7d  %11.0f %% (paper %d %%) %11.0f %% (100 %%) %9.3f s %9.3f s %7.0f (%d)\n",
              overlap.name.c_str(), devices, per_component.success_percent(), overlap.paper_success,
              coordinated.success_percent(), per_component.median_seconds(),
              coordinated.median_seconds(), coordinated.median_edges(), overlap.paper_edges);
  Json json{{"overlap", overlap.name},
            {"meaning", overlap.meaning},
            {"devices", devices},
            {"first_seed", first_seed},
            {"trials", arguments.trials},
            {"nereus", coordinated.json()},
            {"per_component", per_component.json()},
            {"paper",
             {{"nereus_success_percent", 100},
              {"per_component_success_percent", overlap.paper_success},
              {"resource_edges", overlap.paper_edges}}}};
  return {std::move(json), coordinated.success_percent() == 100};
}

// True if Nereus never failed.
bool run_all(const Arguments& arguments, Json record) {
  std::printf("%-6s %7s  %29s %19s %23s %11s\n", "", "devices", "per component: success", "nereus",
              "median time of successes", "edges");
  record["time_limit_s"] = kTimeLimit;
  record["patience_s"] = arguments.patience;
  bool complete = true;
  uint64_t seed = arguments.seed;
  for (const Overlap& overlap : overlaps()) {
    Row row = run(overlap, seed, arguments);
    seed += uint64_t(arguments.trials);
    record["overlaps"].push_back(std::move(row.json));
    complete = complete && row.complete;
    std::fflush(stdout);
  }
  if (!arguments.output.empty()) write_record(arguments.output, record);
  return complete;
}

}  // namespace

}  // namespace nereus::bench

int main(int argc, char** argv) {
  nereus::bench::Arguments arguments;
  CLI::App app{"Table 5: coordinated against per-component migration"};
  app.add_option("--trials", arguments.trials, "Of each overlap type")->check(CLI::PositiveNumber);
  app.add_option("--seed", arguments.seed, "Of the first trial");
  app.add_option("--patience", arguments.patience, "Seconds until a circle counts as a deadlock")
      ->check(CLI::Range(0.1, 20.0));
  app.add_option("--output", arguments.output, "Where the record goes, JSON");
  CLI11_PARSE(app, argc, argv);
  try {
    return nereus::bench::run_all(arguments, nereus::bench::record_head(argc, argv)) ? 0 : 1;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
}
