#include "nereus/runtime/live/executor.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "nereus/core/base/stop_token.h"

namespace nereus {

Executor::Executor(const Workflow& workflow, std::span<const std::vector<DeviceId>> busy,
                   Stopwatch timer)
    : workflow_(workflow),
      before_(waits_for(workflow, busy)),
      timer_(timer),
      progress_(workflow.nodes.size()) {}

bool Executor::may_start(NodeId node) const {
  return progress_[index(node)].state == State::kWaiting &&
         std::ranges::all_of(before_[index(node)], [&](NodeId other) {
           return progress_[index(other)].state == State::kEnded;
         });
}

void Executor::run(const Body& body) {
  std::vector<std::jthread> threads;
  std::unique_lock lock(mutex_);
  error_ = nullptr;
  while (true) {
    for (const NodeId node : node_ids(workflow_)) {
      if (error_ || !may_start(node)) continue;
      threads.emplace_back([this, node, &body] { work(node, body); });
      progress_[index(node)].state = State::kAtWork;
      ++at_work_;
    }
    if (at_work_ == 0) break;
    ended_.wait(lock);
  }
  if (error_) std::rethrow_exception(error_);
}

void Executor::work(NodeId node, const Body& body) {
  const Seconds start = timer_.elapsed();
  PassResult result;
  std::exception_ptr error;
  bool is_stop = false;
  try {
    result = body(node);
  } catch (const Stopped&) {
    error = std::current_exception();
    is_stop = true;
  } catch (...) {
    error = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  progress_[index(node)] = {error ? State::kWaiting : State::kEnded, start, timer_.elapsed(),
                            std::move(result)};
  if (error && (!error_ || (stopped_only_ && !is_stop))) {
    error_ = error;
    stopped_only_ = is_stop;
  }
  --at_work_;
  ended_.notify_one();
}

Metrics Executor::metrics() const {
  Metrics all;
  for (const Progress& node : progress_) {
    all.insert(node.result.metrics.begin(), node.result.metrics.end());
  }
  return all;
}

std::vector<Span> Executor::spans(int step) const {
  std::vector<Span> spans;
  for (const NodeId id : node_ids(workflow_)) {
    const Progress& node = progress_[index(id)];
    if (node.state != State::kEnded) continue;
    spans.push_back({.step = step,
                     .node = id,
                     .name = workflow_.at(id).name,
                     .start = node.start,
                     .end = node.end,
                     .by_class = node.result.by_class,
                     .tokens = node.result.tokens,
                     .idle = node.result.idle});
  }
  return spans;
}

}  // namespace nereus
