#include "nereus/driver/stop_signal.h"

namespace nereus {

namespace {

// A signal handler can reach nothing but what is static.
std::atomic<bool> stop_requested = false;
std::atomic<int> first_signal = 0;
static_assert(std::atomic<int>::is_always_lock_free, "signal handlers may not lock");

void request_stop(int signal) {
  int none = 0;
  first_signal.compare_exchange_strong(none, signal);
  stop_requested = true;
}

}  // namespace

StopSignal::StopSignal() {
  stop_requested = false;
  first_signal = 0;
  struct sigaction action = {};
  action.sa_handler = request_stop;
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    sigaction(signal, &action, &before_[signal]);
    // Who ignores it (nohup) goes on doing so.
    if (before_[signal].sa_handler == SIG_IGN) sigaction(signal, &before_[signal], nullptr);
  }
}

StopSignal::~StopSignal() {
  for (const auto& [signal, action] : before_) sigaction(signal, &action, nullptr);
}

const std::atomic<bool>& StopSignal::requested() const { return stop_requested; }
int StopSignal::number() const { return first_signal; }

}  // namespace nereus
