#include "nereus/runtime/comm/host_group.h"

#include <utility>

#include "nereus/core/base/error.h"

namespace nereus {

HostGroup::HostGroup(int size) : mailboxes_(size) {
  for (Mailbox& mailbox : mailboxes_) mailbox.from.resize(size);
}

void HostGroup::throw_if_aborted() const {
  if (!aborted_.load()) return;
  const std::lock_guard lock(reason_mutex_);
  throw Error(ErrorCode::kAborted, reason_);
}

void HostGroup::meet() {
  // Read before `aborted_`: abort() writes them in the other order, so that no wake-up is missed.
  const uint32_t now = meeting_.load();
  throw_if_aborted();
  if (arrivals_.fetch_add(1) + 1 == size()) {
    arrivals_.store(0);
    meeting_.fetch_add(1);
    meeting_.notify_all();
  } else {
    meeting_.wait(now);
  }
  throw_if_aborted();
}

void HostGroup::post(int from, int to, Message message) {
  throw_if_aborted();
  Mailbox& mailbox = mailboxes_[to];
  const std::lock_guard lock(mailbox.mutex);
  mailbox.from[from].push_back(std::move(message));
  mailbox.arrived.notify_all();
}

Message HostGroup::take(int from, int to) {
  Mailbox& mailbox = mailboxes_[to];
  std::unique_lock lock(mailbox.mutex);
  std::deque<Message>& queue = mailbox.from[from];
  mailbox.arrived.wait(lock, [&] { return aborted_.load() || !queue.empty(); });
  throw_if_aborted();
  Message message = std::move(queue.front());
  queue.pop_front();
  return message;
}

bool HostGroup::abort(const std::string& reason) {
  {
    const std::lock_guard lock(reason_mutex_);
    if (aborted_.load()) return false;
    reason_ = reason;
    aborted_.store(true);
  }
  meeting_.fetch_add(1);
  meeting_.notify_all();
  for (Mailbox& mailbox : mailboxes_) {
    const std::lock_guard lock(mailbox.mutex);  // a receiver is either before its check or asleep
    mailbox.arrived.notify_all();
  }
  return true;
}

}  // namespace nereus
