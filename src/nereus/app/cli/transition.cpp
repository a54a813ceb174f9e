#include <iostream>

#include "nereus/app/assemble/devices.h"
#include "nereus/app/assemble/job.h"
#include "nereus/app/assemble/starting_plan.h"
#include "nereus/app/cli/commands.h"
#include "nereus/app/observe/tables.h"
#include "nereus/core/base/error.h"
#include "nereus/core/base/text.h"
#include "nereus/core/transition/compile.h"

namespace nereus {

namespace {

struct TransitionArguments {
  std::string from;
  std::string to;
  std::string config;
  std::vector<std::string> overrides;
  bool unfused = false;
  bool run = false;
  bool json = false;
  bool dot = false;
};

Plan read_and_verify(const std::string& file, const Cluster& cluster, const JobSpec& job) {
  Plan plan = read_plan(file);
  try {
    verify(plan, all_devices(cluster), job);
  } catch (const Error& error) {
    throw Error(error.code(), file + ": " + error.what());
  }
  return plan;
}

// Predicted peaks, and measured ones if it was run, beside what each device has.
std::string memory_table(const TransitionDag& dag, const Cluster& cluster,
                         const TransitionReport* report) {
  std::vector<std::vector<std::string>> rows{{"device", "peak", "capacity"}};
  if (report != nullptr) rows[0].insert(rows[0].begin() + 2, "measured");
  for (const auto& [device, peak] : dag.peak_bytes) {
    const Bytes capacity =
        is_host_memory(device) ? cluster.hosts.at(device.host).memory : cluster.device.memory;
    rows.push_back({to_string(device), to_string(peak), to_string(capacity)});
    if (report == nullptr) continue;
    const auto measured = report->peak_bytes.find(device);
    rows.back().insert(rows.back().begin() + 2,
                       measured == report->peak_bytes.end() ? "-" : to_string(measured->second));
  }
  return render_table(rows);
}

std::string measured_table(const TransitionDag& dag, const TransitionReport& report) {
  std::vector<std::vector<std::string>> rows{{"id", "kind", "predicted", "measured", "moved"}};
  for (const PrimitiveReport& measured : report.primitives) {
    const Primitive& primitive = dag.primitives.at(measured.id);
    rows.push_back({std::to_string(measured.id), to_string(primitive.kind),
                    to_string(primitive.predicted), to_string(measured.measured),
                    to_string(measured.moved)});
  }
  return render_table(rows);
}

void print(const TransitionDag& dag, const Cluster& cluster, const TransitionReport* report) {
  if (dag.empty()) {
    std::cout << "Nothing moves: both plans place all state alike.\n";
    return;
  }
  Bytes moved;
  Bytes resident;
  for (const Primitive& primitive : dag.primitives) {
    moved += primitive.bytes_moved;
    resident += primitive.bytes_resident;
  }
  std::cout << to_table(dag) << "\n"
            << to_string(moved) << " move between devices, " << to_string(resident)
            << " stay on theirs; predicted " << to_string(dag.makespan) << "\n\nPeak memory\n"
            << memory_table(dag, cluster, report);
  if (report == nullptr) return;
  std::cout << "\nRun on virtual devices with random state\n"
            << measured_table(dag, *report) << "\n"
            << to_string(report->measured) << " measured, " << to_string(dag.makespan)
            << " predicted; all state bit-equal, which took " << to_string(report->verification)
            << " to prove\n";
}

void print_json(const TransitionDag& dag, const TransitionReport* report) {
  Json json = dag;
  if (report != nullptr) {
    for (const PrimitiveReport& measured : report->primitives) {
      json["primitives"][measured.id]["measured_s"] = measured.measured;
    }
    json["run"] = *report;
  }
  std::cout << json.dump(2) << "\n";
}

int transition(const TransitionArguments& arguments, const DeviceCommands& devices) {
  const Config config = load_config(arguments.config, arguments.overrides);
  const Cluster cluster = to_cluster(config);
  const JobSpec job = to_job_spec(config, is_accelerator(cluster.device));
  const Plan from = read_and_verify(arguments.from, cluster, job);
  const Plan to = read_and_verify(arguments.to, cluster, job);
  const Expected<TransitionDag> dag =
      compile_transition(from, to, job, cluster, Calibration(), {.fuse = !arguments.unfused});
  if (!dag) {
    throw Error(ErrorCode::kInfeasible,
                "no order of primitives fits: " + dag.error() +
                    "; a plan in between that uses fewer devices makes room, and so does a larger "
                    "cluster.memory_per_device");
  }
  std::optional<TransitionReport> report;
  if (arguments.run) report = devices.try_transition(*dag, job, cluster);
  const TransitionReport* measured = report ? &*report : nullptr;
  if (arguments.json) {
    print_json(*dag, measured);
  } else if (arguments.dot) {
    std::cout << to_dot(*dag);
  } else {
    print(*dag, cluster, measured);
  }
  return 0;
}

}  // namespace

void add_transition(CLI::App& app, const DeviceCommands& devices, Action& action) {
  CLI::App* command =
      app.add_subcommand("transition", "Compile the transition between two plans and cost it");
  command->footer(
      "Examples:  ./nereus transition examples/transition/from.json examples/transition/to.json "
      "--config examples/quickstart.yaml cluster.memory_per_device=8MiB --run\n"
      "           ./nereus transition … --unfused --dot | dot -Tsvg > transition.svg\n"
      "A plan is what `nereus plan CONFIG --json` prints, or a file of a run's plans/.");
  auto arguments = std::make_shared<TransitionArguments>();
  command->add_option("from", arguments->from, "Plan in force, JSON")->required();
  command->add_option("to", arguments->to, "Plan wanted, JSON")->required();
  command->add_option("overrides", arguments->overrides, "key=value of the config");
  command->add_option("--config", arguments->config, "Whose models and devices")->required();
  command->add_flag("--unfused", arguments->unfused,
                    "Only split, merge, extend and destroy: no direct routes");
  command->add_flag("--run", arguments->run,
                    "Run it on virtual devices of this machine with random state, and verify");
  command->add_flag("--json", arguments->json, "Print JSON");
  command->add_flag("--dot", arguments->dot, "Print Graphviz")->excludes("--json");
  command->callback([=, &devices, &action] {
    action = [=, &devices] { return transition(*arguments, devices); };
  });
}

}  // namespace nereus
