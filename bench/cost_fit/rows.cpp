#include "cost_fit/rows.h"

#include <algorithm>

#include "nereus/core/cost/collectives.h"
#include "nereus/core/cost/step_latency.h"

namespace nereus::bench {
namespace {

constexpr double kLaunchSeconds = 5e-6;
constexpr double kHalf = 2;  // bytes of a bf16 element

double number(const Json& row, const char* key) { return require<double>(row, key, "row"); }
int64_t count(const Json& row, const char* key, int64_t other = 1) {
  return optional(row, key, other, "row");
}

Operations matrix_product(const Json& row, const DeviceSpec& device) {
  const double tokens = number(row, "tokens"), in = number(row, "in"), out = number(row, "out");
  const double bytes = kHalf * (tokens * in + in * out + tokens * out);
  return Operations(OpClass::kGemm, 2 * tokens * in * out / device.flops) +
         Operations(OpClass::kOperands, bytes / device.memory_bandwidth) +
         Operations(OpClass::kLaunch, kLaunchSeconds);
}

Operations memory_bound(const Json& row, OpClass operation, const DeviceSpec& device) {
  return Operations(operation, number(row, "bytes") / device.memory_bandwidth) +
         Operations(OpClass::kLaunch, kLaunchSeconds);
}

// So many ranks on each host.
Operations ring(const Json& row, Cluster cluster) {
  const auto ranks = static_cast<int>(count(row, "ranks"));
  const auto per_host = static_cast<int>(count(row, "per_host"));
  cluster.hosts.resize(static_cast<size_t>((ranks + per_host - 1) / per_host),
                       cluster.hosts.front());
  std::vector<DeviceId> devices;
  for (int i = 0; i < ranks; ++i) devices.push_back({i / per_host, i % per_host});
  const LinkUse link = ring_link(cluster, count_by_host(devices));
  const double bytes = number(row, "bytes");
  return require<std::string>(row, "kind", "row") == "send" ? send(bytes, link)
                                                            : all_reduce(bytes, ranks, link);
}

// Devices one after the other, unit by unit. With ZeRO-1 the data-parallel ranks form one unit.
StagePlan contiguous(ModelStage model_stage, Layout layout, int64_t gpus, int per_host) {
  StagePlan stage{.model_stage = model_stage, .layout = layout};
  for (int device = 0; device + layout.devices() <= gpus;) {
    std::vector<DeviceId>& unit = stage.units.emplace_back();
    for (int i = 0; i < layout.devices(); ++i, ++device) {
      unit.push_back({device / per_host, device % per_host});
    }
  }
  return stage;
}

Workload workload_of(const Json& row) {
  const int64_t batch = count(row, "batch");
  const double response = optional(row, "response", double(count(row, "length")), "row");
  return {.samples = batch,
          .prompt_tokens = count(row, "prompt", 0),
          .response_mean = response,
          .response_limit = count(row, "limit", static_cast<int64_t>(response + 0.5)),
          .mini_batch = count(row, "mini_batch", batch)};
}

// The work of the named passes of a step, one after the other.
Operations step_work(const Json& row, const Hardware& hardware, Cluster cluster) {
  const auto name = require<std::string>(row, "model", "row");
  const int64_t gpus = count(row, "gpus");
  const int per_host = cluster.hosts.front().devices;
  cluster.hosts.resize(static_cast<size_t>((gpus + per_host - 1) / per_host),
                       cluster.hosts.front());
  if (count(row, "float8", 0) != 0) cluster.device.flops *= 2;

  // Context parallelism cuts a sequence as sequence-parallel TP does, but not the weights; here it
  // is more data parallelism with the same work for each device.
  const Layout cut{.tp = static_cast<int>(count(row, "tp")),
                   .pp = static_cast<int>(count(row, "pp"))};
  Layout layout = cut;
  layout.zero = static_cast<int>(gpus) / cut.devices();
  Plan plan;
  plan.stages.push_back(contiguous(kActorGeneration,
                                   {.tp = static_cast<int>(count(row, "generation_tp", cut.tp))},
                                   gpus, per_host));
  plan.stages.push_back(contiguous(kActorTraining, layout, gpus, per_host));
  plan.stages.back().micro_batch = static_cast<int>(count(row, "micro_batch"));
  plan.stages.back().recompute = count(row, "recompute", 0) != 0;

  const JobSpec job{.workflow = {},
                    .models = {{Role::kActor, {hardware.models.at(name), DType::kBFloat16}}},
                    .workload = workload_of(row),
                    .execution = {.paged_cache = true,
                                  .sequence_parallel = true,
                                  .pipeline_chunks = static_cast<int>(count(row, "chunks")),
                                  .gradient_overlap = 1}};
  const std::map<std::string, WorkflowNode> nodes = {
      {"train", {"train", Pass::kTrain, kActorTraining}},
      {"log_probs", {"log_probs", Pass::kLogProbs, kActorTraining}},
      {"generate", {"generate", Pass::kGenerate, kActorGeneration}}};
  Operations all;
  for (const auto& pass : require<std::vector<std::string>>(row, "passes", "row")) {
    for (const auto& [whole, operations] : ideal_node_work(nodes.at(pass), plan, job, cluster)) {
      all += operations;
    }
  }
  return all;
}

}  // namespace

Hardware hardware(const Json& document) {
  Hardware all;
  for (const auto& [name, cluster] : document.at("clusters").items()) {
    all.clusters[name] = cluster.get<Cluster>();
  }
  for (const auto& [name, config] : document.at("models").items()) {
    all.models[name] = parse_model_config(config, "model " + name);
  }
  return all;
}

Operations ideal_work(const Json& row, const Hardware& hardware) {
  const auto kind = require<std::string>(row, "kind", "row");
  const Cluster& cluster = hardware.clusters.at(require<std::string>(row, "cluster", "row"));
  if (kind == "gemm") return matrix_product(row, cluster.device);
  if (kind == "norm") return memory_bound(row, OpClass::kNorm, cluster.device);
  if (kind == "elementwise") return memory_bound(row, OpClass::kElementwise, cluster.device);
  if (kind == "rotary") return memory_bound(row, OpClass::kRotary, cluster.device);
  if (kind == "all_reduce" || kind == "send") return ring(row, cluster);
  if (kind == "step") return step_work(row, hardware, cluster);
  throw Error(ErrorCode::kInvalidInput, "unknown kind of row: " + kind);
}

}  // namespace nereus::bench
