// nereus_gpu_transitions [--shape 3b] [--state training|weights] [--repeats N] [--output FILE]:
// moves the state of a Llama shape between layouts on two GPUs and times each transition, beside
// what the link between the GPUs can do, NCCL broadcasts of every tensor, and work that goes on
// meanwhile. Every transition is checked bit by bit.
#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>

#include "common/record.h"
#include "gpu_transitions/measure.h"

namespace {

using namespace nereus;
using namespace nereus::bench;

struct Arguments {
  std::string shape = "3b";
  std::string state = "training";
  int repeats = 3;
  std::filesystem::path output;
};

void print(const Json& row) {
  std::printf("%-24s %8.2f GB  move %8.4f s  %6.1f GB/s  %5.1f %% of limit  pause %8.4f s\n",
              row.at("transition").get<std::string>().c_str(),
              row.at("most_received_gb").get<double>(), row.at("movement_s").get<double>(),
              row.at("gb_per_s").get<double>(), 100 * row.at("share_of_limit").get<double>(),
              row.at("pause_s").get<double>());
}

int run(const Arguments& arguments, int argc, const char* const* argv) {
  const ModelStage stage{Role::kActor,
                         arguments.state == "training" ? Stage::kTraining : Stage::kGeneration};
  GpuState state(shape_named(arguments.shape), stage, 2);
  Json record = record_head(argc, argv);
  record["shape"] = arguments.shape;
  record["state"] = arguments.state;
  record["bytes"] = state.bytes().count();
  record["link"] = measure_link(state);
  const double limit = record["link"]["one_way_gb_per_s"].get<double>();

  record["transitions"] = Json::array();
  for (const bool cold : {false, true}) {
    for (Json& row : measure_chain(state, stage, arguments.repeats, cold, limit)) {
      print(row);
      record["transitions"].push_back(std::move(row));
    }
  }
  record["nccl_broadcast"] = measure_broadcast(state, stage);
  record["hidden"] = measure_hidden(state, stage);
  record["hidden_by_generation"] =
      measure_hidden_by_generation(state, stage, arguments.shape, arguments.repeats);
  record["communicator"] = measure_communicators();
  std::cout << record << "\n";
  if (!arguments.output.empty()) write_record(arguments.output, record);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Transitions of real state between the GPUs of one host");
  Arguments arguments;
  app.add_option("--shape", arguments.shape, "Llama shape: 1b, 3b, 8b");
  app.add_option("--state", arguments.state, "training (14 bytes a parameter) or weights");
  app.add_option("--repeats", arguments.repeats, "Of each transition; medians are reported");
  app.add_option("--output", arguments.output, "JSON file");
  CLI11_PARSE(app, argc, argv);
  try {
    return run(arguments, argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
  }
}
