// Files that grow by whole records, also through times in which the disk is full.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace nereus {

// Not thread-safe.
class AppendLog final {
 public:
  // Opens the file, creating it, to go on behind what is there, but before `tail`, which the file
  // ends with after every call. Throws Error(kIo).
  explicit AppendLog(std::filesystem::path file, std::string tail = "");
  ~AppendLog();
  AppendLog(AppendLog&& other) noexcept;
  AppendLog& operator=(AppendLog&&) = delete;

  // The record, and every earlier one, is in the file; or none of it is, which is said on the log
  // once: then records are kept in memory, and the next call tries again.
  void append(std::string_view record);
  // True if there is no record.
  bool empty() const { return size_ == 0 && pending_.empty(); }
  // Throws Error(kIo) saying why if there are records that could not be written.
  void flush();

 private:
  // Why it cannot be written; empty if it was.
  std::string write_pending();
  std::string write_at(std::string_view text, off_t offset) const;

  std::filesystem::path file_;
  std::string tail_;
  int descriptor_ = -1;
  off_t size_ = 0;  // of whole records
  std::string pending_;
  bool failing_ = false;
};

}  // namespace nereus
