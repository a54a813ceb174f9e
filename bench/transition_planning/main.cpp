// Compiles one transition of Figure 13 many times and prints what that took: called by run.py,
// which also solves the same scheduling problem with SCIP.
#include <CLI/CLI.hpp>

#include <iostream>
#include <random>

#include "common/jobs.h"
#include "common/record.h"
#include "nereus/core/transition/compile.h"
#include "nereus/runtime/engine/stopwatch.h"

namespace nereus::bench {

namespace {

// What a plan leaves free of each device.
constexpr double kHeadroom = 0.1;

struct Case {
  Plan from;
  Plan to;
};

// All model-stages on all devices; training changes from tp4·pp2 to tp2·pp4, generation from tp2 to
// tp4.
Case relayout(std::span<const DeviceId> all) {
  const auto plan = [&](Layout training, Layout generation) {
    return plan_of(
        {stage_on(kActorGeneration, generation, all), stage_on(kActorTraining, training, all),
         stage_on(kCriticTraining, training, all), stage_on(kReferenceInference, {.tp = 2}, all)});
  };
  return {plan({.tp = 4, .pp = 2}, {.tp = 2}), plan({.tp = 2, .pp = 4}, {.tp = 4})};
}

// All model-stages grow from half of the devices to all of them.
Case growth(std::span<const DeviceId> all) {
  const auto plan = [](std::span<const DeviceId> devices) {
    return plan_of({stage_on(kActorGeneration, {.tp = 2}, devices),
                    stage_on(kActorTraining, {.tp = 4, .pp = 2}, devices),
                    stage_on(kCriticTraining, {.tp = 4, .pp = 2}, devices),
                    stage_on(kReferenceInference, {.tp = 2}, devices)});
  };
  return {plan(all.first(all.size() / 2)), plan(all)};
}

// Generation and reference stay on all devices; the actor's training grows from half to three
// quarters of them onto what the critic's gives up. 16 + 16 + 53 GB are there already, so another
// 56 GB fit beside the headroom only after the critic has left.
Case handover(std::span<const DeviceId> all) {
  const auto plan = [&](size_t actor) {
    return plan_of({stage_on(kActorGeneration, {}, all), stage_on(kReferenceInference, {}, all),
                    stage_on(kActorTraining, {.tp = 2}, all.first(actor)),
                    stage_on(kCriticTraining, {.tp = 2}, all.subspan(actor))});
  };
  return {plan(all.size() / 2), plan(all.size() * 3 / 4)};
}

Case make_case(const std::string& kind, const Cluster& cluster, uint64_t seed) {
  // The seed decides which host is which.
  std::vector<int> hosts(cluster.hosts.size());
  std::iota(hosts.begin(), hosts.end(), 0);
  std::mt19937_64 random(seed);
  std::shuffle(hosts.begin(), hosts.end(), random);
  std::vector<DeviceId> devices = all_devices(cluster).devices();
  for (DeviceId& device : devices) device.host = hosts[device.host];
  if (kind == "relayout") return relayout(devices);
  if (kind == "growth") return growth(devices);
  return handover(devices);
}

struct Arguments {
  int devices = 32;
  std::string kind = "relayout";
  bool unfused = false;
  int repeats = 20;
  uint64_t seed = 0;
  std::string instance;
};

void run(const Arguments& arguments) {
  const Cluster cluster = named_cluster("h200x8", arguments.devices / 8);
  const JobSpec job = ppo_job(llama_8b());
  auto [from, to] = make_case(arguments.kind, cluster, arguments.seed);
  to = placed(from, to, job, cluster);
  TransitionOptions options{.fuse = !arguments.unfused};
  const DevicePool pool = all_devices(cluster);
  for (const DeviceId device : pool.devices()) {
    options.reserved[device] = cluster.device.memory * kHeadroom;
  }

  const Stopwatch cold_watch;
  TransitionCompiler compiler(job, cluster);
  Expected<TransitionDag> dag = compiler.compile(from, to, measured_calibration(), options);
  const Seconds cold = cold_watch.elapsed();
  std::vector<double> warm;
  bool same = true;
  for (int i = 0; i < arguments.repeats; ++i) {
    const Stopwatch watch;
    const auto again = compiler.compile(from, to, measured_calibration(), options);
    warm.push_back(watch.elapsed().count());
    same = same && again.has_value() == dag.has_value() && (!dag || *again == *dag);
  }
  if (!dag) throw Error(ErrorCode::kInfeasible, dag.error());
  if (!same) throw Error(ErrorCode::kInternal, "a later call compiled another transition");
  if (!arguments.instance.empty()) {
    write_record(arguments.instance, compiler.formulate(from, to, measured_calibration(), options));
  }
  // What SCIP solves has no communicators to make.
  const auto resource = std::ranges::count(dag->edges, EdgeKind::kResource, &Edge::kind);
  std::cout << Json{{"devices", arguments.devices},
                    {"kind", arguments.kind},
                    {"seed", arguments.seed},
                    {"fused", options.fuse},
                    {"planning_cold_s", cold},
                    {"planning_s", quantile(warm, 0.5)},
                    {"makespan_s", dag->makespan - dag->connecting},
                    {"primitives", dag->primitives.size()},
                    {"edges", dag->edges.size()},
                    {"resource_edges", resource}}
                   .dump()
            << "\n";
}

}  // namespace

}  // namespace nereus::bench

int main(int argc, char** argv) {
  nereus::bench::Arguments arguments;
  CLI::App app{"Planning time of one transition of a PPO job with 8B models on h200x8"};
  app.add_option("--devices", arguments.devices, "A multiple of 8")->check(CLI::Range(32, 8192));
  app.add_option("--kind", arguments.kind)
      ->check(CLI::IsMember({"relayout", "growth", "handover"}));
  app.add_flag("--unfused", arguments.unfused, "The paper's four primitives");
  app.add_option("--repeats", arguments.repeats, "After the first, cold call")
      ->check(CLI::PositiveNumber);
  app.add_option("--seed", arguments.seed, "Which host is which");
  app.add_option("--instance", arguments.instance, "Write the scheduling problem here");
  CLI11_PARSE(app, argc, argv);
  try {
    nereus::bench::run(arguments);
    return 0;
  } catch (const nereus::Error& error) {
    std::cerr << "error: " << error.what() << "\n";
    return nereus::exit_code(error.code());
  }
}
