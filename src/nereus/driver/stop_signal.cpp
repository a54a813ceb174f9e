#include "nereus/driver/stop_signal.h"

namespace nereus {

namespace {

// A signal handler can reach nothing but what is static.
std::atomic<bool> stop_requested = false;
static_assert(std::atomic<bool>::is_always_lock_free, "signal handlers may not lock");

void request_stop(int) { stop_requested = true; }

}  // namespace

StopSignal::StopSignal() {
  stop_requested = false;
  struct sigaction action = {};
  action.sa_handler = request_stop;
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, &interrupt_);
  sigaction(SIGTERM, &action, &terminate_);
}

StopSignal::~StopSignal() {
  sigaction(SIGINT, &interrupt_, nullptr);
  sigaction(SIGTERM, &terminate_, nullptr);
}

const std::atomic<bool>& StopSignal::requested() const { return stop_requested; }

}  // namespace nereus
