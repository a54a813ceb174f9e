// The process of a pool of Python workers, and the messages to and from it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace nereus {

struct PoolMessage {
  uint64_t number = 0;
  std::string text;  // JSON
};

// A child process, made by executing the Python interpreter (python_interpreter()) and never by a
// bare fork: it inherits neither descriptors (locks, files of the run), nor signal handlers, nor
// blocked signals, and has a session of its own, so that Ctrl-C at the terminal does not reach it.
// It ends with all that was started below it when this object or this process does. Used by one
// thread at a time.
class PoolProcess final {
 public:
  // Throws Error(kInvalidInput) naming the interpreter if it does not start.
  PoolProcess();
  ~PoolProcess();  // waits for its end
  PoolProcess(const PoolProcess&) = delete;
  PoolProcess& operator=(const PoolProcess&) = delete;

  // To be sent by the exchange() that follows.
  void post(uint64_t number, const std::string& text);
  // Sends and receives what can be without waiting for longer than `patience`; whole messages.
  std::vector<PoolMessage> exchange(std::chrono::milliseconds patience);
  // Whether the process has closed its end: nothing will come any more.
  bool gone() const { return gone_; }

 private:
  void send_posted();
  void receive_bytes();
  std::vector<PoolMessage> whole_messages();

  int socket_ = -1;
  pid_t process_ = -1;
  bool gone_ = false;
  std::string to_send_;
  size_t sent_ = 0;  // bytes of to_send_
  std::string received_;
};

}  // namespace nereus
