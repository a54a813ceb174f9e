// One process at a time works on a run.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace nereus {

// The system takes the lock away when its process ends, however it ends. It is the process's alone:
// children do not inherit it, whether they are forked or spawned. (So a second one in the same
// process is not refused, and nothing else there may open the file: closing it gives the lock up.)
// The file stays where it is as long as the directory does: who begins anew moves its contents
// aside, not the directory.
class RunLock final {
 public:
  // Takes root/lock, creating the directory if need be. Throws Error(kInvalidInput) naming the
  // process that has it, Error(kIo) if the file cannot be made.
  explicit RunLock(const std::filesystem::path& root);
  // Takes away the file and the directories that it has made, unless keep() was called.
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  // The run has begun: what was made stays.
  void keep();
  // What the destructor will take away, in that order.
  std::vector<std::filesystem::path> made() const;

 private:
  // False if somebody took file or directory away meanwhile: to be tried again.
  bool take();
  void make_directories();
  bool is_in_place() const;
  void remove_what_was_made();

  std::filesystem::path root_;
  std::filesystem::path file_;
  std::vector<std::filesystem::path> made_;  // outermost directory first
  bool made_file_ = false;
  int descriptor_ = -1;
};

}  // namespace nereus
