// Ctrl-C, SIGTERM and SIGHUP (a lost terminal) as a flag that the job looks at.
#pragma once

#include <csignal>

#include <atomic>
#include <filesystem>
#include <map>
#include <vector>

#include "nereus/core/base/stop_token.h"

namespace nereus {

// While one lives, these signals stop the job; what it does about it is said on stderr at once.
// Before protect(), while there is nothing to lose, the first one ends the process with 128 + its
// number. After it, the first one sets the flag; others within 10 seconds change nothing, later
// ones end the process as usual: until the process ends, if one came, also after this object.
// SIGPIPE and SIGXFSZ do nothing meanwhile: a write fails instead. One at a time.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // A signal before protect() takes these files and empty directories away, in this order.
  void leave_nothing_of(const std::vector<std::filesystem::path>& made);
  // From now on there is something to save.
  void protect();
  // The steps that are done, for what is said.
  void at_step(int steps);

  const std::atomic<bool>& requested() const;
  StopToken token() const { return StopToken(requested()); }
  int number() const;  // of the signal that came first; 0: none

 private:
  std::map<int, struct sigaction> before_;
};

}  // namespace nereus
