// How the devices of a transition wait for each other.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "nereus/core/transition/transition_dag.h"

namespace nereus {

// Thread-safe. Every device takes its share of the primitives in the order of the DAG, and every
// edge points forward in it; so the first primitive that is not complete can always go on, and
// nobody waits for ever. After abort() every call throws Error(kAborted) with its reason, also in
// threads that wait already.
class Rendezvous final {
 public:
  // `participants`: how many devices take part in each primitive.
  Rendezvous(const TransitionDag& dag, std::vector<int> participants);

  // Until every predecessor of the primitive is complete on all its devices.
  void await_predecessors(int primitive);
  // Until all participants of the primitive have met as often as this one.
  void meet(int primitive);
  // This participant has finished its share.
  void complete(int primitive);
  void sleep_until(std::chrono::steady_clock::time_point time);

  void check() const;  // throws if aborted
  void abort(const std::string& reason);
  // True when all participants have completed the primitive.
  bool is_complete(int primitive) const;

 private:
  // Requires the mutex.
  void throw_if_aborted() const;
  bool all_completed(int primitive) const {
    return completed_[primitive] == participants_[primitive];
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int> participants_;
  std::vector<std::vector<int>> predecessors_;
  std::vector<int> meetings_;   // calls of meet() so far, by primitive
  std::vector<int> completed_;  // participants that are done, by primitive
  bool aborted_ = false;
  std::string reason_;
};

}  // namespace nereus
