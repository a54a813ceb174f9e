#include "gpu_transitions/measure.h"

#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <atomic>
#include <future>

#include "common/record.h"
#include "nereus/comm/communicator_cache.h"
#include "nereus/cuda/device.h"
#include "nereus/cuda/state_ops.h"
#include "nereus/engine/stopwatch.h"

namespace nereus::bench {

namespace {

constexpr double kGiga = 1e9;
const std::vector<DeviceId> kGpus = {{0, 0}, {0, 1}};

void ignore(const std::string&) {}

double median(std::vector<double> values) { return quantile(std::move(values), 0.5); }

// Seconds of body(worker) on the given devices at once.
double timed(const WorkerPool& workers, const std::vector<DeviceId>& devices,
             const std::function<void(Worker&)>& body) {
  const Stopwatch timer;
  workers.run(
      devices,
      [&](Worker& worker) {
        body(worker);
        worker.synchronise();
      },
      ignore);
  return timer.elapsed().count();
}

void empty_cache() { c10::getDeviceAllocator(at::kCUDA)->emptyCache(); }

}  // namespace

Json measure_link(GpuState& state) {
  constexpr int64_t kBytes = int64_t{4} << 30;
  std::vector<at::Tensor> from(2), to(2);
  const WorkerPool& workers = state.workers();
  workers.run(
      kGpus,
      [&](Worker& worker) {
        const int gpu = worker.id().index;
        from[gpu] = at::ones({kBytes}, worker.where().dtype(at::kByte));
        to[gpu] = at::empty({kBytes}, worker.where().dtype(at::kByte));
        worker.synchronise();
      },
      ignore);
  const auto fetch = [&](Worker& worker) {
    const int gpu = worker.id().index;
    cuda::Copies copies;
    copies.add(to[gpu], from[1 - gpu]);
    copies.enqueue();
    copies.join();
  };
  timed(workers, kGpus, fetch);  // enables peer access
  std::vector<double> one_way, both_ways;
  for (int i = 0; i < 5; ++i) {
    one_way.push_back(kBytes / timed(workers, {kGpus[1]}, fetch) / kGiga);
    both_ways.push_back(kBytes / timed(workers, kGpus, fetch) / kGiga);
  }
  from.clear();
  to.clear();
  empty_cache();
  return {{"one_way_gb_per_s", median(one_way)}, {"each_of_both_ways_gb_per_s", median(both_ways)}};
}

namespace {

struct Hop {
  const char* name;
  Layout layout;
  int units;
};

// From one unit on GPU 0.
const std::vector<Hop> kChain = {
    {"Extend 1->2", {1, 1}, 2},       {"Destroy 2->1", {1, 1}, 1},
    {"Extend 1->2 again", {1, 1}, 2}, {"Merge 2xTP1->TP2", {2, 1}, 1},
    {"TP2->PP2", {1, 2}, 1},          {"PP2->TP2", {2, 1}, 1},
    {"Split TP2->2xTP1", {1, 1}, 2},  {"Destroy 2->1 again", {1, 1}, 1}};

struct Samples {
  std::vector<double> compile, movement, pause, verification;
  Bytes moved, most_received;
};

}  // namespace

std::vector<Json> measure_chain(GpuState& state, ModelStage model_stage, int repeats, bool cold,
                                double limit_gb_per_s) {
  Plan current = actor_plan(model_stage, Layout(), 1);
  if (state.store().units().empty()) state.fill(current);
  const StageHashes expected = state.hashes(current);
  std::vector<Samples> samples(kChain.size());
  for (int repeat = 0; repeat < repeats; ++repeat) {
    for (size_t i = 0; i < kChain.size(); ++i) {
      const Plan next = actor_plan(model_stage, kChain[i].layout, kChain[i].units);
      if (cold) empty_cache();
      Samples& s = samples[i];
      const Stopwatch pause;
      const auto dag = state.compile(current, next);
      if (!dag) throw Error(ErrorCode::kInternal, dag.error());
      s.compile.push_back(pause.elapsed().count());
      const TransitionReport report = state.run(*dag);
      s.pause.push_back(pause.elapsed().count());
      NEREUS_CHECK(!report.failure, report.failure ? report.failure->reason : "");
      s.movement.push_back(report.measured.count());
      s.moved = report.moved;
      s.most_received = state.most_received(current, next);
      const Stopwatch hashing;
      const StageHashes hashes = state.hashes(next);
      s.verification.push_back(hashing.elapsed().count());
      NEREUS_CHECK(hashes == expected, std::string(kChain[i].name) + " changed the state");
      current = next;
    }
  }
  std::vector<Json> rows;
  for (size_t i = 0; i < kChain.size(); ++i) {
    const Samples& s = samples[i];
    const double movement = median(s.movement);
    const double received = static_cast<double>(s.most_received.count()) / kGiga;
    rows.push_back({{"transition", kChain[i].name},
                    {"cold_allocator", cold},
                    {"moved_gb", static_cast<double>(s.moved.count()) / kGiga},
                    {"most_received_gb", received},
                    {"compile_s", median(s.compile)},
                    {"movement_s", movement},
                    {"pause_s", median(s.pause)},
                    {"verification_s", median(s.verification)},
                    {"gb_per_s", received / movement},
                    {"share_of_limit", received / movement / limit_gb_per_s},
                    {"bit_equal", true}});
  }
  return rows;
}

Json measure_broadcast(GpuState& state, ModelStage model_stage) {
  const Emu unit = units_of(actor_plan(model_stage, Layout(), 1).stages.front()).front();
  CommunicatorCache cache(first_gpus(cuda::device_count()));
  const auto handles = cache.group(kGpus);
  const UnitState& source = state.store().at(unit, kGpus[0]);
  std::vector<at::Tensor> tensors;
  for (const StateComponent& component : source.schema().components) {
    for (int i = 0; i < static_cast<int>(source.schema().tensors.size()); ++i) {
      tensors.push_back(source.tensor(i, component.kind));
    }
  }
  const auto broadcast = [&](Worker& worker) {
    for (const at::Tensor& tensor : tensors) {
      at::Tensor here = worker.id() == kGpus[0]
                            ? tensor
                            : at::empty(tensor.sizes(), worker.where().dtype(tensor.scalar_type()));
      handles[worker.id().index]->broadcast(here, 0);
    }
  };
  std::vector<double> seconds;
  for (int i = 0; i < 3; ++i) seconds.push_back(timed(state.workers(), kGpus, broadcast));
  return {{"seconds", median(seconds)},
          {"gb_per_s", static_cast<double>(state.bytes().count()) / kGiga / median(seconds)}};
}

namespace {

// Runs `work` on both GPUs until `until`; returns the mean seconds of one round.
struct Rounds {
  std::atomic<bool> stop{false};
  std::atomic<int64_t> done{0};
};

Json beside(GpuState& state, ModelStage model_stage, const std::string& name,
            const std::function<void(Worker&)>& work) {
  const WorkerPool second = state.workers().beside();
  const Plan one = actor_plan(model_stage, Layout(), 1), two = actor_plan(model_stage, Layout(), 2);
  Rounds rounds;
  auto busy = std::async(std::launch::async, [&] {
    state.workers().run(
        kGpus,
        [&](Worker& worker) {
          while (!rounds.stop) {
            work(worker);
            worker.synchronise();
            ++rounds.done;
          }
        },
        ignore);
  });
  // Rounds per second over a stretch of time.
  const auto pace = [&](const std::function<void()>& meanwhile) {
    const int64_t before = rounds.done;
    const Stopwatch timer;
    meanwhile();
    return std::pair(static_cast<double>(rounds.done - before) / timer.elapsed().count(),
                     timer.elapsed().count());
  };
  const auto alone = pace([] { std::this_thread::sleep_for(std::chrono::seconds(1)); });
  std::vector<double> movement;
  const auto together = pace([&] {
    for (int i = 0; i < 6; ++i) {
      movement.push_back(state.run(*state.compile(one, two), &second).measured.count());
      state.run(*state.compile(two, one), &second);
    }
  });
  rounds.stop = true;
  busy.get();
  return {{"work", name},
          {"movement_s", median(movement)},
          {"slowdown", alone.first / together.first - 1},
          {"seconds_together", together.second}};
}

}  // namespace

Json measure_hidden(GpuState& state, ModelStage model_stage) {
  constexpr int64_t kSize = 8192, kBytes = int64_t{4} << 30;
  std::vector<at::Tensor> a(2), b(2), memory(2);
  timed(state.workers(), kGpus, [&](Worker& worker) {
    const int gpu = worker.id().index;
    a[gpu] = at::randn({kSize, kSize}, worker.where().dtype(at::kBFloat16));
    b[gpu] = at::empty_like(a[gpu]);
    memory[gpu] = at::ones({kBytes / 4}, worker.where().dtype(at::kFloat));
  });
  return {beside(state, model_stage, "matrix products",
                 [&](Worker& worker) {
                   const int gpu = worker.id().index;
                   for (int i = 0; i < 4; ++i) at::mm_out(b[gpu], a[gpu], a[gpu]);
                 }),
          beside(state, model_stage, "reading memory",
                 [&](Worker& worker) { (void)memory[worker.id().index].sum(); })};
}

Json measure_communicators() {
  CommunicatorCache cache(first_gpus(cuda::device_count()));
  const Stopwatch making;
  auto handles = cache.group(kGpus);
  const double made = making.elapsed().count();
  handles.clear();
  const Stopwatch giving_up;
  cache.trim();
  return {{"make_s", made}, {"destroy_s", giving_up.elapsed().count()}};
}

}  // namespace nereus::bench
