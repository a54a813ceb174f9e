#include <iostream>

#include "nereus/base/error.h"
#include "nereus/base/text.h"
#include "nereus/cli/commands.h"
#include "nereus/config/options.h"
#include "nereus/observe/tables.h"
#include "nereus/planner/planner.h"

namespace nereus {

namespace {

// The stages of a plan that are not as in the best one.
std::string differences(const Plan& plan, const Plan& best) {
  std::vector<std::string> stages;
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    if (plan.stages[i] != best.stages.at(i)) stages.push_back(to_string(plan.stages[i]));
  }
  return join(stages, "; ");
}

void print(const PlanChoice& choice, const Cluster& cluster) {
  const Calibration calibration;
  std::cout << "Plan\n"
            << to_string(choice.best.plan) << "\nPredicted step\n"
            << render_latency(choice.best.latency, calibration) << "\nPredicted memory\n"
            << render_memory(choice.best.memory, cluster);
  if (!choice.rejected.empty()) std::cout << "\nRunners-up, where they differ\n";
  for (const Rejection& rejection : choice.rejected) {
    std::cout << to_string(rejection.step) << "  " << rejection.why << "\n    "
              << differences(rejection.plan, choice.best.plan) << "\n";
  }
}

// The job of `config` on `devices` per host and with responses of up to `length` tokens (0: as
// configured).
int plan(Config config, int devices, int64_t length, bool json) {
  if (devices > 0) {
    config.cluster.devices = devices;
    config.supply = {};
  }
  if (length > 0) config.data.max_response_length = {{{0, length}}};
  const int hosts = config.cluster.hosts;
  config.cluster.hosts = 1;
  const LiveOptions options = to_live_options(config);
  config.cluster.hosts = hosts;
  const Cluster cluster = to_cluster(config);
  const DevicePool pool = hosts > 1 ? all_devices(cluster) : options.supply.at(0);
  const auto choice = choose_plan(job_spec(options, 0), cluster, pool, Calibration(),
                                  to_controller_options(config).planner);
  if (!choice) throw Error(ErrorCode::kInfeasible, "no plan fits: " + choice.error());
  if (json) {
    std::cout << to_json(*choice, Calibration()).dump(2) << "\n";
  } else {
    print(*choice, cluster);
  }
  return 0;
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("plan", "Show the fastest plan that fits, and why");
  command->footer("Example:  ./nereus plan examples/quickstart.yaml --gpus 2 --length 128");
  auto arguments = add_config_arguments(*command);
  auto devices = std::make_shared<int>(0);
  auto length = std::make_shared<int64_t>(0);
  auto json = std::make_shared<bool>(false);
  command->add_option("--gpus", *devices, "Devices per host instead of the configured ones")
      ->check(CLI::PositiveNumber);
  command->add_option("--length", *length, "Longest response instead of the configured one")
      ->check(CLI::PositiveNumber);
  command->add_flag("--json", *json, "Print JSON");
  command->callback(
      [=, &action] { action = [=] { return plan(arguments->load(), *devices, *length, *json); }; });
}

}  // namespace nereus
