// The seam between what decides and what runs: values only. Implemented by live jobs and
// simulations.
#pragma once

#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "nereus/core/cost/op_class.h"
#include "nereus/core/transition/transition_dag.h"

namespace nereus {

// When a node of the workflow ran, and what its time went into.
struct Span {
  int step = 0;  // whose work it was
  NodeId node{};
  std::string name;                     // the node's, for people
  Seconds start;                        // counted from the beginning of the reported step
  Seconds end;                          // of the slowest device
  std::vector<DeviceId> devices;        // that it kept busy, sorted; none: the host
  std::map<OpClass, Seconds> by_class;  // mean over the devices, by class
  int64_t tokens = 0;                   // that it wrote, if it generates
  bool idle = false;                    // there was nothing to be done

  Seconds took() const { return end - start; }
};

// Throws Error(kInternal) unless the spans are those of the workflow's nodes, each exactly once and
// in their order, none of which ends before it starts.
void verify_spans(const std::vector<Span>& spans, const Workflow& workflow);

struct PrimitiveReport {
  int id = 0;
  Seconds measured;  // from its start on the first device to its end on the last one
  Bytes moved;       // between devices
  Seconds start;     // counted from the beginning of the transition
  Bytes resident;    // copied within a device
};

// Why a transition stopped. Every layer of every unit is then either valid or not there.
struct TransitionFailure {
  std::string reason;
  std::vector<DeviceId> lost;  // devices that died, sorted; their state is gone
};

struct TransitionReport {
  std::vector<PrimitiveReport> primitives;  // those that were completed
  Seconds measured;                         // whole transition, verification excluded
  Seconds exposed;       // of that, what the job waited for: all of it, unless it ran beside a step
  Seconds verification;  // hashing before and after
  // What the job waited for besides `exposed`: hashing, communicators, engines, generation's
  // weights.
  Seconds settling;
  Bytes moved;
  Bytes resident;
  bool verified = false;  // logical state bit-equal before and after
  std::map<DeviceId, Bytes> peak_bytes;
  std::optional<TransitionFailure> failure;
};

struct StepReport {
  int step = 0;  // counted from 0
  Seconds step_s;
  // One for each node of the workflow, in its order, verified where they are made; none if the step
  // came to nothing.
  std::vector<Span> spans;
  std::map<DeviceId, Bytes> peak_bytes;      // measured, whole step
  std::map<DeviceId, Bytes> resident_bytes;  // measured, at the end of the step
  Workload workload;                         // as executed: response_mean is measured
  Workload next_workload;                    // what the next step will be asked to do
  DevicePool next_pool;                      // the devices that are there for the next step
  int64_t response_tokens = 0;
  int64_t prompt_tokens = 0;
  std::map<std::string, double> metrics;             // verl's names
  int steps_left = std::numeric_limits<int>::max();  // that follow this one
  // The plan in force at the end, if memory ran out in a pass and the job went on with smaller
  // micro-batches or more waves.
  std::optional<Plan> adjusted_plan;
  // Of the transition that ran beside the step, if one did. If it failed, the step came to nothing:
  // recover() must follow, and then the same step again.
  std::optional<TransitionReport> transition;
  // The job was told to stop before the step had changed a weight: it came to nothing, and the job
  // is at the boundary before it.
  bool abandoned = false;
};

// Owned and called by one thread. Nothing but save(), intact() and what reads may be called after
// something threw.
class Job {
 public:
  virtual ~Job() = default;
  // Plan in force.
  virtual const Plan& plan() const = 0;
  virtual bool done() const = 0;
  // Runs one RL step to its safe boundary. Throws Error; only a job that is still at a boundary can
  // be saved then, and go on from there.
  virtual StepReport run_step() = 0;
  // Executes a transition at a boundary: afterwards plan() == dag.to, unless the report tells of a
  // failure: then only recover() may follow. Throws Error.
  virtual TransitionReport apply(const TransitionDag& dag) = 0;
  // The same beside the next step's generation, whose state `dag` leaves alone. When that step
  // ends, generation's units become those of `to`, which else equals dag.to, and get their weights
  // from the training units as they do after every step. run_step() reports it.
  virtual void overlap(TransitionDag dag, Plan to) = 0;
  // After a transition that failed: builds the units of `to`, on devices that are
  // left, from whatever state is intact anywhere. Throws Error(kAborted) saying what was lost, and
  // the checkpoint to fall back to, if some of it is nowhere any more.
  virtual TransitionReport recover(const Plan& to) = 0;

  // Number of the next step.
  virtual int step() const = 0;
  // True if the training state is that of the boundary before step(): after every call that
  // returned, unless it reported a transition that failed, and after every one that threw before it
  // had changed a weight.
  virtual bool intact() const = 0;
  // Prompts, those of a validation included, left out because they were too long.
  virtual int64_t dropped_prompts() const = 0;
  // The metrics of the validation before the first step, or of that after the last one if it was
  // cut off before the checkpoint was made; none if neither is due, or if the job is told to stop.
  // Those of others are among the metrics of the step that they follow.
  virtual std::map<std::string, double> validate_at_start() = 0;

  // Writes root/step_N (N = steps done) with all logical state; `extra` is kept with it (the
  // controller's). `keep`: of the newest checkpoints; 0: all. Throws Error: kAborted if the job is
  // not intact(), kIo.
  virtual void save(const std::filesystem::path& root, const Json& extra, int keep) const = 0;
  // The trained model as a Hugging Face model directory.
  virtual void export_model(const std::filesystem::path& directory) const = 0;
};

void to_json(Json& j, const TransitionFailure& failure);
void to_json(Json& j, const TransitionReport& report);  // "failure" only if there was one
void to_json(Json& j, const Span& span);

}  // namespace nereus
