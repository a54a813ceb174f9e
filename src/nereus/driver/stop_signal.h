// Ctrl-C, SIGTERM and SIGHUP (a lost terminal) as a flag that the loop reads at its boundaries.
#pragma once

#include <csignal>

#include <atomic>
#include <map>

namespace nereus {

// While one lives, the first of these signals sets requested(); a second one ends the process as
// usual. One at a time.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  const std::atomic<bool>& requested() const;
  int number() const;  // of the signal that came first; 0: none

 private:
  std::map<int, struct sigaction> before_;
};

}  // namespace nereus
