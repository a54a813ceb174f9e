// One process at a time works on a run.
#pragma once

#include <filesystem>

namespace nereus {

// The system takes the lock away when its process ends, however it ends.
class RunLock final {
 public:
  // Takes root/lock, creating the directory if need be. Throws Error(kInvalidInput) naming the
  // process that has it, Error(kIo) if the file cannot be made.
  explicit RunLock(const std::filesystem::path& root);
  ~RunLock();
  RunLock(RunLock&& other) noexcept;
  RunLock& operator=(RunLock&& other) noexcept;

 private:
  int descriptor_ = -1;
};

}  // namespace nereus
