#include "nereus/app/observe/run_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <ranges>
#include <system_error>
#include <utility>

#include "nereus/core/base/error.h"

namespace nereus {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void throw_io(const std::string& what, const fs::path& path, int error) {
  throw Error(ErrorCode::kIo, "cannot " + what + " " + path.string() + ": " +
                                  std::generic_category().message(error) +
                                  "; choose another --run-dir");
}

// Who has the lock, as far as the system or the file itself can tell.
std::string owner_of(int descriptor) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (::fcntl(descriptor, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK && lock.l_pid > 0) {
    return std::to_string(lock.l_pid);
  }
  std::string text(64, '\0');
  const ssize_t size = ::pread(descriptor, text.data(), text.size(), 0);
  text.resize(size < 0 ? 0 : static_cast<size_t>(size));
  const size_t digits = text.find_first_of("0123456789");
  return digits == std::string::npos ? "that is not named" : text.substr(digits);
}

}  // namespace

RunLock::RunLock(const fs::path& root) : root_(root), file_(root / "lock") {
  constexpr int kAttempts = 100;
  try {
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      if (take()) return;
    }
    throw_io("open", file_, ENOENT);
  } catch (const Error&) {
    remove_what_was_made();
    throw;
  }
}

RunLock::~RunLock() { remove_what_was_made(); }

void RunLock::keep() {
  made_.clear();
  made_file_ = false;
}

std::vector<fs::path> RunLock::made() const {
  std::vector<fs::path> all(made_.rbegin(), made_.rend());
  if (made_file_) all.insert(all.begin(), file_);
  return all;
}

bool RunLock::take() {
  make_directories();
  constexpr int kFlags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
  descriptor_ = ::open(file_.c_str(), kFlags | O_CREAT | O_EXCL, 0644);
  const bool made = descriptor_ >= 0;
  if (!made && errno == EEXIST) descriptor_ = ::open(file_.c_str(), kFlags);
  if (descriptor_ < 0 && errno == ENOENT) return false;
  if (descriptor_ < 0) throw_io("open", file_, errno);

  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (::fcntl(descriptor_, F_SETLK, &lock) != 0) {
    const int error = errno;
    const std::string owner = owner_of(descriptor_);
    ::close(std::exchange(descriptor_, -1));
    if (error != EACCES && error != EAGAIN) throw_io("lock", file_, error);
    throw Error(ErrorCode::kInvalidInput, root_.string() + " is in use by process " + owner +
                                              "; wait for it, stop it, or choose another "
                                              "--run-dir");
  }
  if (!is_in_place()) {
    ::close(std::exchange(descriptor_, -1));
    return false;
  }
  made_file_ = made_file_ || made;
  const std::string owner = std::to_string(::getpid());
  // Said for people only, who may do without: the lock itself is the system's.
  const bool said =
      ::ftruncate(descriptor_, 0) == 0 && ::pwrite(descriptor_, owner.data(), owner.size(), 0) >= 0;
  static_cast<void>(said);
  return true;
}

void RunLock::make_directories() {
  std::vector<fs::path> missing;  // innermost first
  std::error_code error;
  for (fs::path path = root_; !path.empty() && !fs::exists(path, error);) {
    missing.push_back(path);
    if (path == path.parent_path()) break;
    path = path.parent_path();
  }
  for (const fs::path& path : std::views::reverse(missing)) {
    if (::mkdir(path.c_str(), 0777) == 0) {
      made_.push_back(path);
    } else if (errno != EEXIST && errno != ENOENT) {
      throw_io("make the directory", path, errno);
    }
  }
}

// Whoever locked a file that has been taken away has locked nothing.
bool RunLock::is_in_place() const {
  struct stat ours = {};
  struct stat there = {};
  return ::fstat(descriptor_, &ours) == 0 && ::stat(file_.c_str(), &there) == 0 &&
         ours.st_dev == there.st_dev && ours.st_ino == there.st_ino;
}

void RunLock::remove_what_was_made() {
  // What is not empty by now is somebody else's as well.
  for (const fs::path& path : made()) ::remove(path.c_str());
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

}  // namespace nereus
