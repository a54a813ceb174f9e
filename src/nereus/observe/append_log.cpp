#include "nereus/observe/append_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "nereus/base/error.h"
#include "nereus/base/log.h"

namespace nereus {

namespace {

std::string reason() { return std::generic_category().message(errno); }

}  // namespace

AppendLog::AppendLog(std::filesystem::path file) : file_(std::move(file)) {
  descriptor_ = ::open(file_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor_ < 0) {
    throw Error(ErrorCode::kIo, "cannot open " + file_.string() + ": " + reason());
  }
  size_ = ::lseek(descriptor_, 0, SEEK_END);
}

AppendLog::~AppendLog() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

AppendLog::AppendLog(AppendLog&& other) noexcept
    : file_(std::move(other.file_)),
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
  size_t done = 0;
  while (done < pending_.size()) {
    const ssize_t written =
        ::pwrite(descriptor_, pending_.data() + done, pending_.size() - done, size_ + done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      std::string why = reason();
      // Half a record would make the file unreadable from there on.
      if (::ftruncate(descriptor_, size_) != 0) return why + ", and then: " + reason();
      return why;
    }
    done += static_cast<size_t>(written);
  }
  size_ += static_cast<off_t>(done);
  pending_.clear();
  return {};
}

}  // namespace nereus
