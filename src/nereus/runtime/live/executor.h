// Executes the nodes of a step's workflow: each as soon as all that it waits for has ended.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "nereus/core/job/job.h"
#include "nereus/runtime/engine/stopwatch.h"

namespace nereus {

using Metrics = std::map<std::string, double>;  // verl's names

// What a node came to.
struct PassResult {
  std::map<OpClass, Seconds> by_class;  // mean over the devices
  Metrics metrics;
  int64_t tokens = 0;  // that it wrote, if it generates
  bool idle = false;   // there was nothing to be done
};

// Nodes without a device in common run at once, each on a thread of its own; every device does its
// nodes in topological order (waits_for()), which is what predict_step() counts on.
class Executor final {
 public:
  // `busy`: for each node the devices on which no other node may be at work meanwhile. `timer` runs
  // since the beginning of the step. The workflow outlives it.
  Executor(const Workflow& workflow, std::span<const std::vector<DeviceId>> busy, Stopwatch timer);

  // Runs all nodes that have not ended yet. Called by one thread; body(node) is called on others.
  // After an error no node starts any more; when those at work have ended, the first error is
  // thrown that is not Stopped, else Stopped. May then be called again, and goes on with the nodes
  // that have not ended, those that threw among them.
  using Body = std::function<PassResult(NodeId)>;
  void run(const Body& body);

  // What has become of the nodes that have ended: their metrics all together, and their spans, in
  // order; devices are left out.
  Metrics metrics() const;
  std::vector<Span> spans(int step) const;

 private:
  enum class State { kWaiting, kAtWork, kEnded };
  struct Progress {
    State state = State::kWaiting;
    Seconds start;
    Seconds end;
    PassResult result;
  };

  bool may_start(NodeId node) const;
  // On a thread of the node's own.
  void work(NodeId node, const Body& body);

  const Workflow& workflow_;
  std::vector<std::vector<NodeId>> before_;
  Stopwatch timer_;

  std::mutex mutex_;
  std::condition_variable ended_;
  std::vector<Progress> progress_;
  int at_work_ = 0;
  std::exception_ptr error_;   // of the present run()
  bool stopped_only_ = false;  // error_ is Stopped
};

}  // namespace nereus
