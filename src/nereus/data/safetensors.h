// The safetensors format, in and out.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "nereus/base/json.h"

namespace nereus {

using TensorMap = std::map<std::string, at::Tensor>;

// Reads one file. CPU tensors that own their bytes, in the file's dtypes (F64, F32, F16, BF16, I64,
// I32, U8, BOOL). Throws Error(kInvalidInput) naming the file and what is wrong: missing,
// truncated, header too long or not JSON, offsets out of order or range, unknown dtype.
TensorMap read_safetensors(const std::filesystem::path& file);

// Writes one file crash-safely (beside, fsync, rename). `metadata` is string → string.
void write_safetensors(const std::filesystem::path& file, const TensorMap& tensors,
                       const std::map<std::string, std::string>& metadata = {});

// The memory of a contiguous CPU tensor; valid while the tensor lives.
std::span<const std::byte> bytes_of(const at::Tensor& tensor);

}  // namespace nereus
