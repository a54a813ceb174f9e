// nereus_replay CONFIG OUT [key=value …]: runs a job's steps and writes what tests/parity needs to
// compute them again by other means:
//   OUT/step_N.json  the samples of step N (from 1) before anything was learnt from them, with all
//                    that was computed of them, and the step's metrics
//   OUT/state/       a checkpoint of the end
#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>

#include "nereus/app/driver/live_options.h"
#include "nereus/app/driver/start.h"
#include "nereus/runtime/files/files.h"
#include "nereus/runtime/live/live_job.h"

namespace nereus {

namespace {

Json to_json(const Experience& experience) {
  Json samples = Json::array();
  for (const Sample& sample : experience) {
    samples.push_back({{"id", sample.id},
                       {"group", sample.group},
                       {"prompt", sample.prompt},
                       {"response", sample.response},
                       {"rollout_log_probs", sample.rollout_log_probs},
                       {"old_log_probs", sample.old_log_probs},
                       {"ref_log_probs", sample.ref_log_probs},
                       {"values", sample.values},
                       {"scored", sample.scored},
                       {"token_scores", sample.token_scores},
                       {"rewards", sample.rewards},
                       {"advantages", sample.advantages},
                       {"returns", sample.returns}});
  }
  return samples;
}

void run(const std::filesystem::path& file, const std::filesystem::path& out,
         const std::vector<std::string>& overrides) {
  const Config config = load_config(file, overrides);
  LiveOptions options = to_live_options(config);
  options.failure_directory.clear();
  options.ppo.always_old_log_probs = true;
  Json samples;
  options.on_experience = [&](const Experience& experience) { samples = to_json(experience); };
  LiveJob job(options, find_start(config, options).plan);
  while (!job.done()) {
    const StepReport report = job.run_step();
    const Json step = {{"samples", samples}, {"metrics", report.metrics}};
    write_text(out / ("step_" + std::to_string(report.step + 1) + ".json"), step.dump());
  }
  job.save(out / "state", Json(), /*keep=*/0);
}

}  // namespace

}  // namespace nereus

int main(int argc, char** argv) {
  CLI::App app("Runs a job and writes what tests/parity needs to compute its steps again");
  std::string config, out;
  std::vector<std::string> overrides;
  app.add_option("config", config, "YAML file")->required();
  app.add_option("out", out, "folder for the results")->required();
  app.add_option("overrides", overrides, "key=value");
  CLI11_PARSE(app, argc, argv);
  try {
    nereus::run(config, out, overrides);
  } catch (const std::exception& error) {
    std::cerr << "nereus_replay: " << error.what() << '\n';
    return 1;
  }
}
