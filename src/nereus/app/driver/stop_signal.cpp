#include "nereus/app/driver/stop_signal.h"

#include <poll.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

namespace nereus {

namespace {

constexpr int64_t kPatience = 10;  // seconds

// A signal handler can reach nothing but what is static.
std::atomic<bool> stop_requested = false;
std::atomic<bool> something_to_save = false;
std::atomic<int> first_signal = 0;
std::atomic<int64_t> first_at = 0;
std::atomic<int> steps_done = 0;
std::vector<std::string> to_remove;  // written while no signal can come
static_assert(std::atomic<int>::is_always_lock_free, "signal handlers may not lock");
static_assert(std::atomic<int64_t>::is_always_lock_free, "signal handlers may not lock");

int64_t seconds() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec;
}

// A short line, put together without the heap, which a handler may not use.
class Line final {
 public:
  void add(const char* text) {
    while (*text != 0 && size_ < text_.size()) text_[size_++] = *text++;
  }
  void add(int number) {
    if (number >= 10) add(number / 10);
    const std::array<char, 2> digit = {static_cast<char>('0' + number % 10), 0};
    add(digit.data());
  }
  // Not if that would have to be waited for.
  void say() const {
    pollfd descriptor = {STDERR_FILENO, POLLOUT, 0};
    if (poll(&descriptor, 1, 0) != 1 || (descriptor.revents & POLLOUT) == 0) return;
    const ssize_t written = write(STDERR_FILENO, text_.data(), size_);
    static_cast<void>(written);
  }

 private:
  std::array<char, 256> text_;
  size_t size_ = 0;
};

// As the shell says it of a program that a signal ended.
constexpr int kSignalled = 128;

void request_stop(int signal) {
  const int error = errno;
  int none = 0;
  if (first_signal.compare_exchange_strong(none, signal)) {
    first_at = seconds();
    Line line;
    if (!something_to_save) {
      for (const std::string& path : to_remove) {
        if (unlink(path.c_str()) != 0) rmdir(path.c_str());
      }
      line.add("\nStopped before the run began.\n");
      line.say();
      _exit(kSignalled + signal);
    }
    stop_requested = true;
    line.add("\nStopping: what step ");
    line.add(steps_done + 1);
    line.add(
        " has not put into weights yet is given up, and the state is saved. Another signal "
        "within 10 s changes nothing, a later one ends the process at once.\n");
    line.say();
  } else if (something_to_save && seconds() - first_at >= kPatience) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);  // when this handler returns
  }
  errno = error;
}

// Unlike an ignored one, a handled signal is as usual again in programs that the job starts.
void do_nothing(int) {}

}  // namespace

StopSignal::StopSignal() {
  stop_requested = false;
  something_to_save = false;
  first_signal = 0;
  struct sigaction action = {};
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ}) {
    action.sa_handler = signal == SIGPIPE || signal == SIGXFSZ ? do_nothing : request_stop;
    sigaction(signal, &action, &before_[signal]);
    // Who ignores it (nohup) goes on doing so.
    if (before_[signal].sa_handler == SIG_IGN) sigaction(signal, &before_[signal], nullptr);
  }
}

StopSignal::~StopSignal() {
  // A second signal may come while the process takes itself down: it changes nothing then either.
  if (number() != 0) return;
  for (const auto& [signal, action] : before_) sigaction(signal, &action, nullptr);
}

void StopSignal::leave_nothing_of(const std::vector<std::filesystem::path>& made) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  to_remove.assign(made.begin(), made.end());
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void StopSignal::protect() { something_to_save = true; }
void StopSignal::at_step(int steps) { steps_done = steps; }
const std::atomic<bool>& StopSignal::requested() const { return stop_requested; }
int StopSignal::number() const { return first_signal; }

}  // namespace nereus
