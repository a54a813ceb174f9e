// TensorBoard event files: scalars only, written by hand because no C++ library serves the format.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "nereus/app/observe/append_log.h"

namespace nereus {

// CRC-32C (Castagnoli) of the bytes, as TFRecord wants it.
uint32_t crc32c(std::string_view bytes);

// Appends to one new event file in `directory` (created if missing). `first_step` > 0 tells
// TensorBoard that the run went on from there, so that it forgets later points of earlier files.
// Not thread-safe.
class TensorBoardWriter {
 public:
  // `wall_time`: seconds since 1970. Throws Error(kIo).
  TensorBoardWriter(const std::filesystem::path& directory, double wall_time, int first_step);
  // Adds one point per metric at `step` and flushes.
  void write(int step, double wall_time, const std::map<std::string, double>& metrics);

 private:
  void record(const std::string& event);
  std::optional<AppendLog> file_;
};

}  // namespace nereus
