#include "nereus/runtime/engine/execution.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <set>

#include "nereus/runtime/engine/rendezvous.h"
#include "nereus/runtime/engine/state_copier.h"
#include "nereus/runtime/engine/stopwatch.h"

namespace nereus {

namespace {

using What = TransitionEvent::What;

// What one device does in one primitive.
struct Share {
  const Primitive* primitive = nullptr;
  std::vector<UnitState*> targets;                  // its ranks of the units that are made
  std::vector<UnitState*> frees;                    // its ranks of those that are freed
  std::map<int, std::vector<const Move*>> arrives;  // by chunk
};

// The chunks in the order in which they are copied: what crosses a link first, because links take
// longest, and what is copied within the device meanwhile.
std::vector<int> copying_order(const Share& share, LayerRange chunks) {
  const auto crosses = [&](int chunk) {
    const auto arrives = share.arrives.find(chunk);
    return arrives != share.arrives.end() &&
           std::ranges::any_of(arrives->second, [](const Move* m) { return m->from != m->to; });
  };
  std::vector<int> order(chunks.end - chunks.begin);
  std::iota(order.begin(), order.end(), chunks.begin);
  std::ranges::stable_partition(order, crosses);
  return order;
}

// Memory to reserve before chunks are allocated, by the first chunk of each piece: few pieces,
// because each takes its time, but the first one small enough that copies soon begin.
std::map<int, Bytes> reservations(const Share& share, const std::vector<int>& chunks) {
  constexpr Bytes kPiece(int64_t{4} << 30);
  std::map<int, Bytes> pieces;
  Bytes* piece = nullptr;
  for (const int c : chunks) {
    if (piece == nullptr) piece = &pieces[c];
    for (const UnitState* target : share.targets) {
      if (target->chunk(c) == ChunkState::kAbsent) *piece += target->chunk_bytes(c);
    }
    if (*piece >= kPiece) piece = nullptr;
  }
  return pieces;
}

// When a primitive ran, over all its devices.
struct Span {
  std::optional<Seconds> start;
  Seconds end;
};

class TransitionRun {
 public:
  TransitionRun(const TransitionDag& dag, const std::vector<ReshardPlan>& moves, StateStore& store,
                const std::function<StateSchema(ModelStage)>& schema_of,
                const ExecuteOptions& options)
      : dag_(dag),
        moves_(moves),
        store_(store),
        options_(options),
        workers_(workers_for(store, options)),
        spans_(dag.primitives.size()) {
    for (const Primitive& primitive : dag.primitives) {
      const ModelStage stage = primitive.model_stage;
      if (!schemas_.contains(stage)) schemas_[stage] = schema_of(stage);
      prepare_targets(primitive);
    }
    std::vector<int> participants;
    for (const Primitive& primitive : dag.primitives) {
      participants.push_back(distribute(primitive));
    }
    rendezvous_.emplace(dag, std::move(participants));
  }

  TransitionReport run();

 private:
  void prepare_targets(const Primitive& primitive);
  int distribute(const Primitive& primitive);
  std::vector<LayerRange> steps_of(const Primitive& primitive) const;
  void run_device(Worker& worker);
  void run_share(Worker& worker, const Share& share);
  void receive(Worker& worker, const Share& share, LayerRange chunks);
  Bytes begin_copies(StateCopier& copier, const Share& share, int chunk);
  void tell(const Worker& worker, const Share& share, int chunk, What what);
  void note_failure(const std::string& reason, std::optional<DeviceId> lost);
  TransitionReport report() const;

  const TransitionDag& dag_;
  const std::vector<ReshardPlan>& moves_;
  StateStore& store_;
  const ExecuteOptions& options_;
  const WorkerPool& workers_;
  const Stopwatch timer_;
  std::map<ModelStage, StateSchema> schemas_;
  std::map<DeviceId, std::vector<Share>> shares_;
  std::optional<Rendezvous> rendezvous_;

  std::mutex mutex_;  // guards what follows while the devices run
  std::vector<Span> spans_;
  std::optional<TransitionFailure> failure_;
};

// Counters are the same in all units of a model-stage, and a transition does not change them.
void TransitionRun::prepare_targets(const Primitive& primitive) {
  const UnitState* known = nullptr;
  for (const Emu& unit : store_.units()) {
    if (unit.model_stage != primitive.model_stage) continue;
    for (const DeviceId device : unit.devices) {
      if (known == nullptr) known = store_.find(unit, device);
    }
  }
  NEREUS_CHECK(known != nullptr, "no unit of " + to_string(primitive.model_stage));
  for (const Emu& unit : units_at(dag_, primitive.targets)) {
    store_.prepare(unit, schemas_.at(primitive.model_stage));
    for (const DeviceId device : unit.devices) {
      UnitState& state = store_.at(unit, device);
      state.updates = known->updates;
      state.version = known->version;
    }
  }
}

// Gives each device its share; returns how many devices have one. Sources need not take part.
int TransitionRun::distribute(const Primitive& primitive) {
  std::map<DeviceId, Share> shares;
  const auto collect = [&](const std::vector<int>& units, std::vector<UnitState*> Share::* list) {
    for (const Emu& unit : units_at(dag_, units)) {
      for (const DeviceId device : unit.devices) {
        UnitState* state = store_.find(unit, device);
        if (state != nullptr) (shares[device].*list).push_back(state);
      }
    }
  };
  collect(primitive.targets, &Share::targets);
  collect(primitive.frees, &Share::frees);
  const StateSchema& schema = schemas_.at(primitive.model_stage);
  for (const Move& move : moves_[primitive.id].moves) {
    const int chunk = chunk_of(schema.tensors[move.tensor], schema.num_layers);
    shares.at(move.to).arrives[chunk].push_back(&move);
  }
  for (auto& [device, share] : shares) {
    share.primitive = &primitive;
    shares_[device].push_back(std::move(share));
  }
  return static_cast<int>(shares.size());
}

TransitionReport TransitionRun::run() {
  std::vector<DeviceId> devices;
  for (const auto& [device, shares] : shares_) devices.push_back(device);
  workers_.run(devices, [this](Worker& worker) { run_device(worker); }, [](const std::string&) {});
  if (failure_) {
    std::ranges::sort(failure_->lost);
    return report();
  }
  std::set<Emu> wanted;
  for (const StagePlan& stage : dag_.to.stages) {
    for (const Emu& unit : units_of(stage)) wanted.insert(unit);
  }
  for (const Emu& unit : dag_.units) {
    if (!wanted.contains(unit)) store_.destroy(unit);
  }
  return report();
}

void TransitionRun::run_device(Worker& worker) {
  try {
    for (const Share& share : shares_.at(worker.id())) run_share(worker, share);
    return;
  } catch (const DeviceLost& loss) {
    note_failure(loss.what(), loss.device());
  } catch (const std::exception& error) {
    note_failure(error.what(), std::nullopt);
  }
  worker.synchronise();  // whatever it copies to may be given up now
}

// Everybody who stops because another one failed comes later than that one.
void TransitionRun::note_failure(const std::string& reason, std::optional<DeviceId> lost) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = TransitionFailure{reason, {}};
    if (lost) failure_->lost.push_back(*lost);
  }
  rendezvous_->abort(reason);
}

// Ranges of chunks that move together, in order.
std::vector<LayerRange> TransitionRun::steps_of(const Primitive& primitive) const {
  const int layers = schemas_.at(primitive.model_stage).num_layers;
  if (!primitive.chunked || primitive.targets.empty()) return {{0, num_chunks(layers)}};
  std::vector<LayerRange> steps;
  const int from = dag_.units[primitive.sources.front()].layout.pp;
  const int to = dag_.units[primitive.targets.front()].layout.pp;
  for (const int chunk : chunk_order(layers, from, to)) steps.push_back({chunk, chunk + 1});
  return steps;
}

void TransitionRun::run_share(Worker& worker, const Share& share) {
  const Primitive& primitive = *share.primitive;
  rendezvous_->await_predecessors(primitive.id);
  {
    const std::lock_guard lock(mutex_);
    Span& span = spans_[primitive.id];
    if (!span.start) span.start = timer_.elapsed();
  }
  tell(worker, share, 0, What::kStarted);
  for (const LayerRange current : steps_of(primitive)) {
    receive(worker, share, current);
    tell(worker, share, current.begin, What::kCopied);
    // Only when it is valid on all devices may what it was copied from be given up anywhere.
    rendezvous_->meet(primitive.id);
    for (UnitState* freed : share.frees) {
      for (int c = current.begin; c < current.end; ++c) freed->release(c);
    }
    tell(worker, share, current.begin, What::kReleased);
  }
  rendezvous_->complete(primitive.id);
  const std::lock_guard lock(mutex_);
  spans_[primitive.id].end = std::max(spans_[primitive.id].end, timer_.elapsed());
}

void TransitionRun::receive(Worker& worker, const Share& share, LayerRange chunks) {
  const auto start = std::chrono::steady_clock::now();
  Bytes crossed;
  StateCopier copier;
  const std::vector<int> order = copying_order(share, chunks);
  const std::map<int, Bytes> pieces = reservations(share, order);
  // An accelerator copies one chunk while memory for the next ones is found.
  for (const int c : order) {
    if (const auto piece = pieces.find(c); piece != pieces.end()) {
      worker.memory().reserve(piece->second);
    }
    for (UnitState* target : share.targets) {
      if (target->chunk(c) == ChunkState::kAbsent) target->allocate(c);
    }
    crossed += begin_copies(copier, share, c);
  }
  copier.join();
  tell(worker, share, chunks.begin, What::kAllocated);
  worker.synchronise();
  if (options_.link_bandwidth > 0) {
    const std::chrono::duration<double> share_of_link(static_cast<double>(crossed.count()) /
                                                      options_.link_bandwidth);
    rendezvous_->sleep_until(
        start + std::chrono::duration_cast<std::chrono::steady_clock::duration>(share_of_link));
  }
  for (UnitState* target : share.targets) {
    for (int c = chunks.begin; c < chunks.end; ++c) {
      if (target->chunk(c) == ChunkState::kAllocated) target->mark_valid(c);
    }
  }
}

// Returns the bytes that come from other devices.
Bytes TransitionRun::begin_copies(StateCopier& copier, const Share& share, int chunk) {
  const auto arrives = share.arrives.find(chunk);
  if (arrives == share.arrives.end()) return {};
  const Primitive& primitive = *share.primitive;
  Bytes crossed;
  for (const Move* move : arrives->second) {
    rendezvous_->check();
    const Emu& source = dag_.units[primitive.sources[move->source_unit]];
    const Emu& target = dag_.units[primitive.targets[move->target_unit]];
    copier.add(store_.at(source, move->from), store_.at(target, move->to), *move);
    if (move->from != move->to) crossed += bytes_of(*move, schemas_.at(primitive.model_stage));
  }
  copier.enqueue();
  return crossed;
}

void TransitionRun::tell(const Worker& worker, const Share& share, int chunk, What what) {
  rendezvous_->check();
  if (options_.on_event) options_.on_event({share.primitive->id, chunk, worker.id(), what});
}

TransitionReport TransitionRun::report() const {
  TransitionReport report;
  report.measured = timer_.elapsed();
  report.exposed = report.measured;
  report.failure = failure_;
  for (const Primitive& primitive : dag_.primitives) {
    if (!rendezvous_->is_complete(primitive.id)) continue;
    const Span& span = spans_[primitive.id];
    const ReshardPlan& plan = moves_[primitive.id];
    const Seconds start = span.start.value_or(Seconds());
    report.primitives.push_back({primitive.id, span.end - start, plan.moved, start, plan.resident});
    report.moved += plan.moved;
    report.resident += plan.resident;
  }
  for (const DeviceId device : workers_.devices()) {
    report.peak_bytes[device] = workers_.at(device).memory().peak();
  }
  return report;
}

}  // namespace

EmuCollection units_at(const TransitionDag& dag, const std::vector<int>& indices) {
  EmuCollection units;
  for (const int index : indices) units.push_back(dag.units[index]);
  return units;
}

TransitionReport run_primitives(const TransitionDag& dag, const std::vector<ReshardPlan>& moves,
                                StateStore& store,
                                const std::function<StateSchema(ModelStage)>& schema_of,
                                const ExecuteOptions& options) {
  return TransitionRun(dag, moves, store, schema_of, options).run();
}

}  // namespace nereus
