// Files that grow by whole records, also through times in which the disk is full.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace nereus {

// Not thread-safe.
class AppendLog final {
 public:
  // Opens the file, creating it, to go on behind what is there. Throws Error(kIo).
  explicit AppendLog(std::filesystem::path file);
  ~AppendLog();
  AppendLog(AppendLog&& other) noexcept;
  AppendLog& operator=(AppendLog&&) = delete;

  // The record, and every earlier one, is in the file; or none of it is, which is said on the log
  // once: then records are kept in memory, and the next call tries again.
  void append(std::string_view record);
  // Throws Error(kIo) saying why if there are records that could not be written.
  void flush();

 private:
  // Why it cannot be written; empty if it was.
  std::string write_pending();

  std::filesystem::path file_;
  int descriptor_ = -1;
  off_t size_ = 0;  // of whole records
  std::string pending_;
  bool failing_ = false;
};

}  // namespace nereus
