// The seam between what decides and what runs: values only. Implemented by live jobs and
// simulations.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "nereus/cost/op_class.h"
#include "nereus/transition/transition_dag.h"

namespace nereus {

struct NodeTiming {
  std::string name;                     // the workflow node's
  Seconds total;                        // wall time
  std::map<OpClass, Seconds> by_class;  // mean over the devices, by class
};

struct StepReport {
  int step = 0;  // counted from 0
  Seconds step_s;
  std::vector<NodeTiming> nodes;
  std::map<DeviceId, Bytes> peak_bytes;      // measured, whole step
  std::map<DeviceId, Bytes> resident_bytes;  // measured, at the end of the step
  Workload workload;                         // as executed: response_mean is measured
  Workload next_workload;                    // what the next step will be asked to do
  DevicePool next_pool;                      // the devices that are there for the next step
  int64_t response_tokens = 0;
  int64_t prompt_tokens = 0;
  std::map<std::string, double> metrics;  // verl's names
  bool last = false;                      // no step follows
};

struct PrimitiveReport {
  int id = 0;
  Seconds measured;
  Bytes moved;
};

struct TransitionReport {
  std::vector<PrimitiveReport> primitives;
  Seconds measured;      // whole transition, verification excluded
  Seconds verification;  // hashing before and after
  Bytes moved;
  bool verified = false;  // logical state bit-equal before and after
  std::map<DeviceId, Bytes> peak_bytes;
};

struct Inventory {
  Cluster cluster;
  DevicePool pool;
};

class Job {
 public:
  virtual ~Job() = default;
  // What there is now. Pure read.
  virtual Inventory inventory() const = 0;
  // Plan in force.
  virtual const Plan& plan() const = 0;
  virtual bool done() const = 0;
  // Runs one RL step to its safe boundary. Throws Error; the job then goes on from a checkpoint
  // only.
  virtual StepReport run_step() = 0;
  // Executes a transition at a boundary: afterwards plan() == dag.to. Throws Error.
  virtual TransitionReport apply(const TransitionDag& dag) = 0;
};

void to_json(Json& j, const TransitionReport& report);
void to_json(Json& j, const NodeTiming& timing);

}  // namespace nereus
