// What threads of one process that form a group share: a meeting point, mailboxes, and the news
// that somebody failed.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace nereus {

// A tensor on the sender's device; on an accelerator it has its content once `ready` has passed.
struct Message {
  at::Tensor tensor;
  std::optional<c10::Event> ready;
};

// Thread-safe. Everything throws Error(kAborted, reason) after abort(), waiting threads included.
class HostGroup final {
 public:
  explicit HostGroup(int size);

  int size() const { return static_cast<int>(mailboxes_.size()); }

  // Returns when all ranks have arrived. Waiting sleeps (threads may outnumber cores).
  void meet();
  void post(int from, int to, Message message);
  // The next message from `from`, in the order of post().
  Message take(int from, int to);

  // True for the first abort of all.
  bool abort(const std::string& reason);
  bool is_aborted() const { return aborted_.load(); }
  void throw_if_aborted() const;

 private:
  struct Mailbox {  // of one receiver
    std::mutex mutex;
    std::condition_variable arrived;
    std::vector<std::deque<Message>> from;  // one queue per sender
  };

  std::atomic<int> arrivals_{0};
  std::atomic<uint32_t> meeting_{0};
  std::vector<Mailbox> mailboxes_;
  std::atomic<bool> aborted_{false};
  mutable std::mutex reason_mutex_;
  std::string reason_;
};

}  // namespace nereus
