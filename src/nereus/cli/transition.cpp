#include "nereus/transition/transition_dag.h"

#include <iostream>

#include "nereus/base/error.h"
#include "nereus/cli/commands.h"
#include "nereus/config/options.h"
#include "nereus/driver/starting_plan.h"

namespace nereus {

namespace {

struct TransitionArguments {
  std::string from;
  std::string to;
  std::string config;
  bool json = false;
  bool dot = false;
};

int transition(const TransitionArguments& arguments) {
  const LiveOptions options = to_live_options(load_config(arguments.config));
  const JobSpec job = job_spec(options, 0);
  const Plan from = read_plan(arguments.from);
  const Plan to = read_plan(arguments.to);
  for (const Plan& plan : {from, to}) verify(plan, all_devices(options.cluster), job);
  const Expected<TransitionDag> dag =
      compile_transition(from, to, job, options.cluster, Calibration());
  if (!dag) throw Error(ErrorCode::kInfeasible, "no order of primitives fits: " + dag.error());
  if (arguments.json) {
    std::cout << Json(*dag).dump(2) << "\n";
  } else {
    std::cout << (arguments.dot ? to_dot(*dag) : to_table(*dag));
  }
  return 0;
}

}  // namespace

void add_transition(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("transition", "Compile the transition between two plans and cost it");
  command->footer(
      "Example:  ./nereus transition runs/quickstart/plans/000.json "
      "runs/quickstart/plans/001.json --config examples/quickstart.yaml");
  auto arguments = std::make_shared<TransitionArguments>();
  command->add_option("from", arguments->from, "Plan in force, JSON")->required();
  command->add_option("to", arguments->to, "Plan wanted, JSON")->required();
  command->add_option("--config", arguments->config, "Whose models and devices")->required();
  command->add_flag("--json", arguments->json, "Print JSON");
  command->add_flag("--dot", arguments->dot, "Print Graphviz")->excludes("--json");
  command->callback([=, &action] { action = [=] { return transition(*arguments); }; });
}

}  // namespace nereus
