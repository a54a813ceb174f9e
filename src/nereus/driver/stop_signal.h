// Ctrl-C and SIGTERM as a flag that the loop reads at its boundaries.
#pragma once

#include <csignal>

#include <atomic>

namespace nereus {

// While one lives, the first SIGINT or SIGTERM sets requested(); a second one ends the process as
// usual. One at a time.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  const std::atomic<bool>& requested() const;

 private:
  struct sigaction interrupt_ = {};
  struct sigaction terminate_ = {};
};

}  // namespace nereus
