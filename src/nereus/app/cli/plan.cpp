#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <system_error>
#include <utility>

#include "nereus/app/assemble/devices.h"
#include "nereus/app/assemble/job.h"
#include "nereus/app/cli/commands.h"
#include "nereus/app/cli/plan_text.h"
#include "nereus/app/compare/plan_compare.h"
#include "nereus/core/base/error.h"
#include "nereus/core/cluster/limits.h"
#include "nereus/core/planner/report.h"
#include "nereus/runtime/files/files.h"

namespace nereus {

namespace {

struct PlanArguments {
  std::string cluster;  // a name or a JSON file; "": as configured
  int devices = 0;      // in all with --cluster, else per host; 0: as configured
  int64_t length = 0;   // longest response; 0: as configured
  bool colocated = false;
  bool offload = false;
  int zero = 1;
  bool json = false;
  std::string heat_map;
  std::vector<std::string> compare;  // a setting of another framework: files, or its own words
  std::string compare_format;        // "": recognised by its keys
};

struct Place {
  Cluster cluster;
  DevicePool pool;
};

Cluster described_cluster(const std::string& description, int devices) {
  if (!description.ends_with(".json")) {
    if (devices > kMostDevices) {
      throw Error(ErrorCode::kInvalidInput, std::to_string(devices) + " devices: at most " +
                                                std::to_string(kMostDevices) + " are legal");
    }
    const int per_host = named_cluster(description, 1).hosts.front().devices;
    return named_cluster(description, std::max(1, (devices + per_host - 1) / per_host));
  }
  const Json json = parse_json(read_text(description), description);
  try {
    Cluster cluster = as<Cluster>(json);
    verify(cluster);
    return cluster;
  } catch (const Error& error) {
    throw Error(error.code(), description + ": " + error.what());
  }
}

// The first `devices` of a described cluster; all of it for 0.
Place described_place(const PlanArguments& arguments) {
  Cluster cluster = described_cluster(arguments.cluster, arguments.devices);
  std::vector<DeviceId> devices = all_devices(cluster).devices();
  if (arguments.devices > static_cast<int>(devices.size())) {
    throw Error(ErrorCode::kInvalidInput, "--gpus " + std::to_string(arguments.devices) + ": " +
                                              arguments.cluster + " has " +
                                              std::to_string(devices.size()) + " devices");
  }
  if (arguments.devices > 0) devices.resize(arguments.devices);
  return {std::move(cluster), DevicePool(std::move(devices))};
}

Place configured_place(const Config& config) {
  const Cluster cluster = to_cluster(config);
  return {cluster, to_supply(config.supply, cluster).at(0)};
}

void write_text(const std::filesystem::path& file, const std::string& text) {
  std::ofstream stream(file);
  stream << text;
  if (!stream) throw Error(ErrorCode::kIo, "cannot write " + file.string());
}

// The text of a setting: of a file, or what the words say.
std::string setting_text(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    std::error_code none;  // a word may be too long for a path
    const auto status = std::filesystem::status(word, none);
    if (std::filesystem::exists(status) && !std::filesystem::is_directory(status)) {
      text += read_text(word) + "\n";
    } else if (word.find('=') != std::string::npos || word.find("--") != std::string::npos) {
      text += word + "\n";
    } else {
      throw Error(ErrorCode::kInvalidInput, "--compare " + word +
                                                ": there is no such file, and it is no setting "
                                                "(key=value, or \"--key value\")");
    }
  }
  return text;
}

std::optional<ForeignSetting> compared_setting(const PlanArguments& arguments) {
  if (arguments.compare.empty()) return std::nullopt;
  const ForeignKeys keys = read_foreign_keys(setting_text(arguments.compare));
  return translate(arguments.compare_format.empty() ? recognise(keys)
                                                    : parse_framework(arguments.compare_format),
                   keys);
}

// What is planned, from all arguments.
struct Question {
  JobSpec job;
  Place place;
  PlannerOptions planner;
  std::optional<ForeignSetting> setting;
  std::vector<std::string> job_changes;  // what the setting changed of the configured job
};

Question question(ConfigArguments given, PlanArguments arguments) {
  Question question{.setting = compared_setting(arguments)};
  Config config = given.load();
  if (question.setting) {
    question.job_changes = job_overrides(*question.setting, config);
    given.overrides.insert(given.overrides.end(), question.job_changes.begin(),
                           question.job_changes.end());
    config = given.load();
    if (arguments.devices == 0 && !arguments.cluster.empty()) {
      arguments.devices = question.setting->devices();
    }
  }
  if (arguments.cluster.empty() && arguments.devices > 0) {
    if (config.cluster.device.starts_with("cuda:")) config.cluster.device = "cuda";
    config.cluster.devices = arguments.devices;
    config.supply = {};
  }
  if (arguments.length > 0) config.data.max_response_length = {{{0, arguments.length}}};
  question.place =
      arguments.cluster.empty() ? configured_place(config) : described_place(arguments);
  question.job = to_job_spec(config, is_accelerator(question.place.cluster.device));
  question.planner = to_controller_options(config).planner;
  question.planner.side_by_side = !arguments.colocated;
  question.planner.allow_offload = arguments.offload;
  question.planner.most_zero = arguments.zero;
  if (question.setting) {
    question.job = as_run_by(*question.setting, std::move(question.job));
    // What these frameworks can do.
    question.planner.allow_offload = true;
    question.planner.most_zero = question.setting->devices();
    question.planner.side_by_side = question.setting->groups.size() > 1;
  }
  return question;
}

int plan(const ConfigArguments& given, const PlanArguments& arguments) {
  const auto [job, place, planner, setting, job_changes] = question(given, arguments);
  const auto& [cluster, pool] = place;
  std::optional<Comparison> comparison;
  if (setting) {
    comparison = predict_setting(*setting, job_changes, job, cluster, pool, planner.headroom);
  }
  Problem problem(job, cluster, pool, Calibration(), planner, nullptr);
  const auto report = report_plan(problem, planner);
  const std::vector<Change> changes = what_would_help(problem, planner);
  if (!report) {
    throw Error(ErrorCode::kInfeasible,
                report.error() + "\nWhat would help\n" + render_changes(changes, std::nullopt));
  }
  if (comparison) comparison->best = best_on_as_many(*setting, job, cluster, pool, planner);
  if (!arguments.heat_map.empty()) {
    write_text(arguments.heat_map,
               render_heat_map(report->layouts, "Step by layout of actor training, " +
                                                    std::to_string(pool.size()) + " devices"));
  }
  if (arguments.json) {
    Json json = to_json(*report, Calibration());
    json["would_help"] = to_json(changes);
    if (comparison) json["compare"] = to_json(*comparison, *report);
    std::cout << json.dump(2) << "\n";
  } else {
    std::cout << render_report(*report, changes, cluster, Calibration());
    if (comparison) std::cout << render_comparison(*comparison, *report, cluster);
  }
  return 0;
}

constexpr int64_t kMostTokens = int64_t{1} << 24U;  // of a response, as in a config

// As CLI::Range, which takes fractions and shows its limits as such.
CLI::Validator up_to(int64_t most) {
  const auto verify = [most](const std::string& word) -> std::string {
    int64_t value = 0;
    if (!CLI::detail::lexical_cast(word, value) || value < 1) {
      return word + " is not a whole number of at least 1";
    }
    return value <= most ? "" : word + " is too large: 1 to " + std::to_string(most) + " are legal";
  };
  return {verify, "1 TO " + std::to_string(most)};
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("plan", "Show the fastest plan that fits, and why");
  command->footer(
      "Examples:  ./nereus plan examples/quickstart.yaml --gpus 2 --length 128\n"
      "           ./nereus plan my.yaml --cluster h200x8 --gpus 64 --heat-map layouts.svg\n"
      "           ./nereus plan my.yaml --cluster h200x8 --compare trainer.nnodes=2 "
      "actor_rollout_ref.rollout.tensor_model_parallel_size=4\n"
      "           ./nereus plan my.yaml --cluster h200x8 --compare run_verl.sh\n"
      "           ./nereus plan my.yaml --cluster h200x8 --compare nemo_rl.yaml "
      "cluster.num_nodes=4\n"
      "           ./nereus plan my.yaml --cluster h200x8 "
      "--compare='--vllm.num_engines 4 --vllm.tensor_parallel_size 2 --train.colocate_all'");
  auto config = add_config_arguments(*command);
  auto arguments = std::make_shared<PlanArguments>();
  command->add_option("--cluster", arguments->cluster,
                      "h200x8, a100x4, mi250x8 or a JSON file instead of the configured one");
  command
      ->add_option("--gpus", arguments->devices,
                   "Devices per host instead of the configured ones; with --cluster: in all")
      ->check(up_to(kMostDevices));
  command
      ->add_option("--length", arguments->length, "Longest response instead of the configured one")
      ->check(up_to(kMostTokens));
  command->add_flag("--colocated", arguments->colocated,
                    "Only plans whose model-stages all begin with the same device; else they may "
                    "have devices of their own and run at once");
  command->add_flag("--offload", arguments->offload,
                    "For frameworks that can: idle state may wait in host memory");
  command
      ->add_option("--zero", arguments->zero,
                   "For frameworks that can: optimizer state over at most so many data-parallel "
                   "ranks (ZeRO-1)")
      ->check(up_to(kMostDevices));
  command->add_flag("--json", arguments->json, "Print JSON");
  command->add_option("--heat-map", arguments->heat_map, "Write an SVG image of step by TP and PP");
  command
      ->add_option("--compare", arguments->compare,
                   "A setting of verl, NeMo-RL or OpenRLHF to predict beside it, on as many "
                   "devices: a file (launch script or YAML) or its words")
      ->expected(1, -1);
  command->add_option("--compare-format", arguments->compare_format,
                      "verl, nemo-rl or openrlhf, if the keys do not tell");
  command->callback([=, &action] { action = [=] { return plan(*config, *arguments); }; });
}

}  // namespace nereus
