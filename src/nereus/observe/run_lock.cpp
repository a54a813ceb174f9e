#include "nereus/observe/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "nereus/base/error.h"
#include "nereus/data/files.h"

namespace nereus {

namespace fs = std::filesystem;

RunLock::RunLock(const fs::path& root) {
  std::error_code error;
  fs::create_directories(root, error);
  const fs::path file = root / "lock";
  if (!error) {
    descriptor_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (descriptor_ < 0) error.assign(errno, std::generic_category());
  }
  if (error) throw Error(ErrorCode::kIo, "cannot open " + file.string() + ": " + error.message());
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    ::close(descriptor_);
    throw Error(ErrorCode::kInvalidInput,
                root.string() + " is in use by process " + read_text(file) +
                    "; wait for it, stop it, or choose another --run-dir");
  }
  const std::string owner = std::to_string(::getpid());
  if (::ftruncate(descriptor_, 0) != 0 ||
      ::pwrite(descriptor_, owner.data(), owner.size(), 0) < 0) {
    // Who holds it is said for people only: the lock itself is the system's.
    return;
  }
}

RunLock::~RunLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

RunLock::RunLock(RunLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

RunLock& RunLock::operator=(RunLock&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

}  // namespace nereus
