// The safetensors format, in and out.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "nereus/core/base/json.h"

namespace nereus {

using TensorMap = std::map<std::string, at::Tensor>;

// What a file says of one of its tensors.
struct TensorInfo {
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // of its bytes, in the data part of the file
  uint64_t end = 0;
};

// One file of which the header was read and verified, so that names, dtypes and shapes can be
// judged before memory is taken for any tensor. Not thread-safe.
class SafetensorsFile {
 public:
  // Dtypes F64, F32, F16, BF16, I64, I32, U8, BOOL. Throws Error(kInvalidInput) naming the file and
  // what is wrong: not a regular file, truncated, header too long or not JSON, unknown keys,
  // offsets out of order or range, unknown dtype, more data than the machine has memory.
  explicit SafetensorsFile(std::filesystem::path file);

  const std::filesystem::path& path() const { return file_; }
  const std::map<std::string, TensorInfo>& tensors() const { return tensors_; }
  // A CPU tensor that owns its bytes. Throws Error(kInvalidInput) if the file became shorter,
  // Error(kOutOfMemory) if there is no memory for it, Error(kInternal) for another name.
  at::Tensor read(const std::string& name);

 private:
  std::filesystem::path file_;
  std::ifstream stream_;
  uint64_t data_begin_ = 0;
  std::map<std::string, TensorInfo> tensors_;
};

// Reads all of one file; throws as SafetensorsFile does.
TensorMap read_safetensors(const std::filesystem::path& file);

// Writes one file crash-safely (beside, fsync, rename). `metadata` is string → string.
void write_safetensors(const std::filesystem::path& file, const TensorMap& tensors,
                       const std::map<std::string, std::string>& metadata = {});

// The memory of a contiguous CPU tensor; valid while the tensor lives.
std::span<const std::byte> bytes_of(const at::Tensor& tensor);

}  // namespace nereus
