#include "gpu_transitions/measure.h"

#include <ATen/ATen.h>
#include <c10/core/CachingDeviceAllocator.h>

#include "gpu_transitions/chain.h"
#include "nereus/runtime/comm/communicator_cache.h"
#include "nereus/runtime/cuda/device.h"
#include "nereus/runtime/cuda/state_ops.h"

namespace nereus::bench {

namespace {

void ignore(const std::string&) {}

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
  constexpr int64_t kPiece = int64_t{9} << 20, kGap = 64;  // as large as parts of weights are
  const auto fetch_pieces = [&](Worker& worker) {
    const int gpu = worker.id().index;
    cuda::Copies copies;
    for (int64_t at = 0; at + kPiece <= kBytes; at += kPiece + kGap) {
      copies.add(to[gpu].narrow(0, at, kPiece), from[1 - gpu].narrow(0, at, kPiece));
    }
    copies.enqueue();
    copies.join();
  };
  constexpr double kInPieces = kBytes / (kPiece + kGap) * kPiece;
  timed(workers, kGpus, fetch);  // enables peer access
  std::vector<double> one_way, both_ways, pieces;
  for (int i = 0; i < 5; ++i) {
    one_way.push_back(kBytes / timed(workers, {kGpus[1]}, fetch) / 1e9);
    both_ways.push_back(kBytes / timed(workers, kGpus, fetch) / 1e9);
    pieces.push_back(kInPieces / timed(workers, kGpus, fetch_pieces) / 1e9);
  }
  from.clear();
  to.clear();
  empty_cache();
  return {{"one_way_gb_per_s", median(one_way)},
          {"each_of_both_ways_gb_per_s", median(both_ways)},
          {"each_of_both_ways_in_pieces_of_9_mib_gb_per_s", median(pieces)}};
}

namespace {

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
    const double received = gigabytes(s.most_received);
    rows.push_back({{"transition", kChain[i].name},
                    {"cold_allocator", cold},
                    {"moved_gb", gigabytes(s.moved)},
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
  return {{"seconds", median(seconds)}, {"gb_per_s", gigabytes(state.bytes()) / median(seconds)}};
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
