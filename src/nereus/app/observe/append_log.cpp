#include "nereus/app/observe/append_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "nereus/core/base/error.h"
#include "nereus/core/base/log.h"

namespace nereus {

namespace {

std::string reason() { return std::generic_category().message(errno); }

}  // namespace

AppendLog::AppendLog(std::filesystem::path file, std::string tail)
    : file_(std::move(file)), tail_(std::move(tail)) {
  descriptor_ = ::open(file_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor_ < 0) {
    throw Error(ErrorCode::kIo, "cannot open " + file_.string() + ": " + reason());
  }
  const off_t end = ::lseek(descriptor_, 0, SEEK_END);
  size_ = std::max<off_t>(0, end - std::ssize(tail_));
}

AppendLog::~AppendLog() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

AppendLog::AppendLog(AppendLog&& other) noexcept
    : file_(std::move(other.file_)),
      tail_(std::move(other.tail_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_),
      pending_(std::move(other.pending_)),
      failing_(other.failing_) {}

void AppendLog::append(std::string_view record) {
  pending_ += record;
  const std::string why = write_pending();
  if (!why.empty() && !failing_) {
    log::warn("cannot write " + file_.string() + ": " + why +
              "; what belongs there is kept in memory until it can be written");
  }
  if (why.empty() && failing_) log::warn(file_.string() + " is written again, nothing is missing");
  failing_ = !why.empty();
}

void AppendLog::flush() {
  const std::string why = write_pending();
  if (!why.empty()) throw Error(ErrorCode::kIo, "cannot write " + file_.string() + ": " + why);
}

std::string AppendLog::write_pending() {
  std::string why = write_at(pending_ + tail_, size_);
  if (why.empty()) {
    size_ += std::ssize(pending_);
    pending_.clear();
    return why;
  }
  // Half a record would make the file unreadable from there on. The tail goes where it was.
  if (::ftruncate(descriptor_, size_ + std::ssize(tail_)) != 0) {
    why += ", and then: " + reason();
  } else if (const std::string again = write_at(tail_, size_); !again.empty()) {
    why += ", and then: " + again;
  }
  return why;
}

std::string AppendLog::write_at(std::string_view text, off_t offset) const {
  while (!text.empty()) {
    const ssize_t written = ::pwrite(descriptor_, text.data(), text.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written == 0 ? "nothing was written" : reason();
    text.remove_prefix(static_cast<size_t>(written));
    offset += written;
  }
  return {};
}

}  // namespace nereus
