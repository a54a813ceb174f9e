#include "nereus/app/observe/explain.h"

#include <iostream>

#include "nereus/app/cli/commands.h"
#include "nereus/core/base/error.h"

namespace nereus {

namespace {

int explain(const std::filesystem::path& run, int step) {
  const auto file = run / "events.jsonl";
  if (!std::filesystem::exists(file)) {
    throw Error(ErrorCode::kInvalidInput,
                run.string() + " is no run directory: it has no events.jsonl");
  }
  std::cout << render_explain(read_events(file),
                              step < 0 ? std::nullopt : std::optional<int>(step));
  return 0;
}

}  // namespace

void add_explain(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("explain", "Tell why a run changed its plan, or did not");
  command->footer("Example:  ./nereus explain runs/quickstart --step 15");
  auto run = std::make_shared<std::string>();
  auto step = std::make_shared<int>(-1);
  command->add_option("run", *run, "Run directory")->required();
  command->add_option("--step", *step, "Only what happened after so many steps");
  command->callback([=, &action] { action = [=] { return explain(*run, *step); }; });
}

}  // namespace nereus
