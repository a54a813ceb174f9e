// Transitions while the GPUs do something else.
#include <ATen/ATen.h>

#include <atomic>
#include <future>
#include <thread>

#include "gpu_common/generation.h"
#include "gpu_transitions/chain.h"
#include "gpu_transitions/measure.h"

namespace nereus::bench {

namespace {

struct Rounds {
  std::atomic<bool> stop{false};
  std::atomic<int64_t> done{0};
};

// Extend and Destroy, over and over, while both GPUs do `work` over and over.
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
        [](const std::string&) {});
  });
  // Rounds per second over a stretch of time.
  const auto pace = [&](const std::function<void()>& meanwhile) {
    const int64_t before = rounds.done;
    const Stopwatch timer;
    meanwhile();
    return static_cast<double>(rounds.done - before) / timer.elapsed().count();
  };
  const double alone = pace([] { std::this_thread::sleep_for(std::chrono::seconds(1)); });
  std::vector<double> movement;
  const double together = pace([&] {
    for (int i = 0; i < 6; ++i) {
      movement.push_back(state.run(*state.compile(one, two), &second).measured.count());
      state.run(*state.compile(two, one), &second);
    }
  });
  rounds.stop = true;
  busy.get();
  return {{"work", name}, {"movement_s", median(movement)}, {"slowdown", alone / together - 1}};
}

struct Samples {
  std::vector<double> alone, stage, movement, exposed;
  Bytes moved;
};

}  // namespace

std::vector<Json> measure_hidden(GpuState& state, ModelStage model_stage) {
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

std::vector<Json> measure_hidden_by_generation(GpuState& state, ModelStage model_stage,
                                               const std::string& shape, int repeats) {
  constexpr int64_t kTokens = 64;
  Generation generation({.shape = shape, .dp = 2});
  generation.seconds(kTokens);                                // warms up
  const double begin_at = 0.6 * generation.seconds(kTokens);  // among the decode steps
  std::vector<Samples> samples(kChain.size());
  Plan current = actor_plan(model_stage, Layout(), 1);
  const StageHashes expected = state.hashes(current);
  for (int repeat = 0; repeat < repeats; ++repeat) {
    for (size_t i = 0; i < kChain.size(); ++i) {
      const Plan next = actor_plan(model_stage, kChain[i].layout, kChain[i].units);
      const auto dag = state.compile(current, next);
      if (!dag) throw Error(ErrorCode::kInternal, dag.error());
      Samples& s = samples[i];
      s.alone.push_back(generation.seconds(kTokens));

      const Stopwatch from_start;
      auto stage = std::async(std::launch::async, [&] { return generation.seconds(kTokens); });
      std::this_thread::sleep_for(std::chrono::duration<double>(begin_at));
      const TransitionReport report = state.run(*dag);
      NEREUS_CHECK(!report.failure, report.failure ? report.failure->reason : "");
      s.stage.push_back(stage.get());
      s.exposed.push_back(from_start.elapsed().count() - s.alone.back());
      s.movement.push_back(report.measured.count());
      s.moved = report.moved;
      current = next;
    }
  }
  NEREUS_CHECK(state.hashes(current) == expected, "a hidden transition changed the state");
  std::vector<Json> rows;
  for (size_t i = 0; i < kChain.size(); ++i) {
    const Samples& s = samples[i];
    const double alone = median(s.alone), movement = median(s.movement);
    rows.push_back({{"transition", kChain[i].name},
                    {"moved_gb", gigabytes(s.moved)},
                    {"movement_s", movement},
                    {"stage_alone_s", alone},
                    {"stage_s", median(s.stage)},
                    {"slowdown", median(s.stage) / alone - 1},
                    {"exposed_s", median(s.exposed)},
                    {"share_hidden", 1 - median(s.exposed) / movement}});
  }
  return rows;
}

}  // namespace nereus::bench
