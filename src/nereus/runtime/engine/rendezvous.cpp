#include "nereus/runtime/engine/rendezvous.h"

#include <algorithm>

#include "nereus/core/base/error.h"

namespace nereus {

Rendezvous::Rendezvous(const TransitionDag& dag, std::vector<int> participants)
    : participants_(std::move(participants)),
      predecessors_(dag.primitives.size()),
      meetings_(dag.primitives.size()),
      completed_(dag.primitives.size()) {
  for (const Edge& edge : dag.edges) predecessors_[edge.to].push_back(edge.from);
}

void Rendezvous::throw_if_aborted() const {
  if (aborted_) throw Error(ErrorCode::kAborted, reason_);
}

void Rendezvous::await_predecessors(int primitive) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    return aborted_ || std::ranges::all_of(predecessors_[primitive],
                                           [this](int before) { return all_completed(before); });
  });
  throw_if_aborted();
}

void Rendezvous::meet(int primitive) {
  std::unique_lock lock(mutex_);
  const int members = participants_[primitive];
  const int round_ends = (meetings_[primitive] / members + 1) * members;
  ++meetings_[primitive];
  changed_.notify_all();
  changed_.wait(lock, [&] { return aborted_ || meetings_[primitive] >= round_ends; });
  throw_if_aborted();
}

void Rendezvous::complete(int primitive) {
  const std::lock_guard lock(mutex_);
  throw_if_aborted();
  ++completed_[primitive];
  changed_.notify_all();
}

void Rendezvous::sleep_until(std::chrono::steady_clock::time_point time) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, time, [this] { return aborted_; });
  throw_if_aborted();
}

void Rendezvous::check() const {
  const std::lock_guard lock(mutex_);
  throw_if_aborted();
}

void Rendezvous::abort(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (aborted_) return;
  aborted_ = true;
  reason_ = reason;
  changed_.notify_all();
}

bool Rendezvous::is_complete(int primitive) const {
  const std::lock_guard lock(mutex_);
  return all_completed(primitive);
}

}  // namespace nereus
