#include "nereus/runtime/data/safetensors.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "nereus/core/base/error.h"
#include "nereus/core/base/text.h"
#include "nereus/runtime/files/files.h"
#include "nereus/runtime/files/regular_file.h"

namespace nereus {

namespace {

// The length field of the file is little-endian; so are the tensors, which are copied as they are.
static_assert(std::endian::native == std::endian::little);

constexpr uint64_t kLengthBytes = sizeof(uint64_t);
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the reference implementation
constexpr size_t kMostDimensions = 64;
constexpr const char* kMetadataKey = "__metadata__";

constexpr std::array<std::pair<const char*, at::ScalarType>, 8> kDTypes = {{{"F64", at::kDouble},
                                                                            {"F32", at::kFloat},
                                                                            {"F16", at::kHalf},
                                                                            {"BF16", at::kBFloat16},
                                                                            {"I64", at::kLong},
                                                                            {"I32", at::kInt},
                                                                            {"U8", at::kByte},
                                                                            {"BOOL", at::kBool}}};

std::optional<at::ScalarType> dtype_of(const std::string& name) {
  for (const auto& [text, dtype] : kDTypes) {
    if (name == text) return dtype;
  }
  return std::nullopt;
}

const char* name_of(at::ScalarType dtype) {
  for (const auto& [text, value] : kDTypes) {
    if (value == dtype) return text;
  }
  throw Error(ErrorCode::kInternal, std::string("safetensors cannot hold ") + at::toString(dtype));
}

[[noreturn]] void refuse(const std::filesystem::path& file, const std::string& what) {
  throw Error(ErrorCode::kInvalidInput, file.string() + ": " + what);
}

// Bytes of a tensor, or nothing if the shape is negative or its size does not fit 64 bits.
std::optional<uint64_t> byte_size(const std::vector<int64_t>& shape, at::ScalarType dtype) {
  int64_t bytes = static_cast<int64_t>(at::elementSize(dtype));
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
  }
  return static_cast<uint64_t>(bytes);
}

TensorInfo parse_info(const std::string& name, const Json& j, const std::filesystem::path& file) {
  const std::string shown_name = shown(name);
  const std::string where = file.string() + ": tensor " + shown_name;
  refuse_unknown_keys(j, {"dtype", "shape", "data_offsets"}, where);
  const auto dtype_name = require<std::string>(j, "dtype", where);
  const auto dtype = dtype_of(dtype_name);
  if (!dtype) {
    refuse(file, "tensor " + shown_name + " has dtype " + shown(dtype_name) +
                     "; supported: F64, F32, F16, BF16, I64, I32, U8, BOOL");
  }
  const auto offsets = require<std::vector<uint64_t>>(j, "data_offsets", where);
  TensorInfo info = {.dtype = *dtype, .shape = require<std::vector<int64_t>>(j, "shape", where)};
  if (info.shape.size() > kMostDimensions) {
    refuse(file, "tensor " + shown_name + " has " + std::to_string(info.shape.size()) +
                     " dimensions; at most " + std::to_string(kMostDimensions) + " are legal");
  }
  if (offsets.size() != 2 || offsets[1] < offsets[0] ||
      byte_size(info.shape, *dtype) != offsets[1] - offsets[0]) {
    refuse(file, "tensor " + shown_name + ": data_offsets " + shown_json(offsets) +
                     " do not suit shape " + shown_json(info.shape) + " of " + dtype_name);
  }
  info.begin = offsets[0];
  info.end = offsets[1];
  return info;
}

// The tensors must cover the data part exactly, without gap or overlap.
void verify_coverage(const std::map<std::string, TensorInfo>& tensors, uint64_t data_bytes,
                     const std::filesystem::path& file) {
  std::vector<std::pair<std::pair<uint64_t, uint64_t>, std::string>> order;
  for (const auto& [name, info] : tensors) order.push_back({{info.begin, info.end}, name});
  std::ranges::sort(order);
  uint64_t position = 0;
  for (const auto& [range, name] : order) {
    if (range.first != position) {
      refuse(file, "tensor " + shown(name) + " begins at byte " + std::to_string(range.first) +
                       " of the data, but the tensor before it ends at " +
                       std::to_string(position));
    }
    position = range.second;
  }
  if (position != data_bytes) {
    refuse(file, "the header describes " + std::to_string(position) +
                     " bytes of data, the file has " + std::to_string(data_bytes) +
                     (position > data_bytes ? ": it is truncated" : ""));
  }
}

std::map<std::string, TensorInfo> parse_header(const Json& header, uint64_t data_bytes,
                                               const std::filesystem::path& file) {
  if (!header.is_object()) refuse(file, "its header is not a JSON object");
  optional(header, kMetadataKey, std::map<std::string, std::string>(), file.string());
  std::map<std::string, TensorInfo> tensors;
  for (const auto& [name, j] : header.items()) {
    if (name != kMetadataKey) tensors[name] = parse_info(name, j, file);
  }
  verify_coverage(tensors, data_bytes, file);
  return tensors;
}

// No file needs to be read whose tensors the machine could not hold: a sparse one takes no disk.
void verify_memory(uint64_t data_bytes, const std::filesystem::path& file) {
  const auto memory = static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                      static_cast<uint64_t>(::sysconf(_SC_PAGE_SIZE));
  if (data_bytes > memory) {
    refuse(file, "its tensors need " + std::to_string(data_bytes) + " bytes, this machine has " +
                     std::to_string(memory) + " of memory");
  }
}

Json header_of(const std::vector<std::pair<std::string, at::Tensor>>& tensors,
               const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header[kMetadataKey] = metadata;
  uint64_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    header[name] = {{"dtype", name_of(tensor.scalar_type())},
                    {"shape", tensor.sizes().vec()},
                    {"data_offsets", {offset, offset + tensor.nbytes()}}};
    offset += tensor.nbytes();
  }
  return header;
}

}  // namespace

SafetensorsFile::SafetensorsFile(std::filesystem::path file) : file_(std::move(file)) {
  const uint64_t file_bytes = regular_file_size(file_);
  stream_.open(file_, std::ios::binary);
  uint64_t header_bytes = 0;
  if (file_bytes >= kLengthBytes) {
    stream_.read(reinterpret_cast<char*>(&header_bytes), kLengthBytes);
  }
  if (file_bytes < kLengthBytes || header_bytes > file_bytes - kLengthBytes ||
      header_bytes > kMaxHeaderBytes) {
    refuse(file_, "not a safetensors file, or truncated: " + std::to_string(file_bytes) +
                      " bytes with a header of " + std::to_string(header_bytes));
  }
  std::string text(header_bytes, '\0');
  stream_.read(text.data(), static_cast<std::streamsize>(header_bytes));
  if (!stream_) refuse(file_, "reading stopped within the header");
  data_begin_ = kLengthBytes + header_bytes;
  verify_memory(file_bytes - data_begin_, file_);
  tensors_ =
      parse_header(parse_json(text, file_.string() + " (header)"), file_bytes - data_begin_, file_);
}

at::Tensor SafetensorsFile::read(const std::string& name) {
  const auto found = tensors_.find(name);
  NEREUS_CHECK(found != tensors_.end(), file_.string() + " has no tensor " + name);
  const TensorInfo& info = found->second;
  const uint64_t bytes = info.end - info.begin;
  at::Tensor tensor;
  try {
    tensor = at::empty(info.shape, at::TensorOptions(info.dtype));
  } catch (const c10::Error&) {
    throw Error(ErrorCode::kOutOfMemory, file_.string() + ": no memory for the " +
                                             std::to_string(bytes) + " bytes of tensor " +
                                             shown(name));
  }
  stream_.seekg(static_cast<std::streamoff>(data_begin_ + info.begin));
  stream_.read(static_cast<char*>(tensor.data_ptr()), static_cast<std::streamsize>(bytes));
  if (!stream_) refuse(file_, "reading stopped before the end of the file");
  return tensor;
}

TensorMap read_safetensors(const std::filesystem::path& file) {
  SafetensorsFile opened(file);
  TensorMap tensors;
  for (const auto& [name, info] : opened.tensors()) tensors.emplace(name, opened.read(name));
  return tensors;
}

void write_safetensors(const std::filesystem::path& file, const TensorMap& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<std::pair<std::string, at::Tensor>> ordered;
  for (const auto& [name, tensor] : tensors) {
    ordered.emplace_back(name, tensor.detach().to(at::kCPU).contiguous());
  }
  // Wide elements first, as the reference implementation does: every tensor is aligned.
  std::ranges::stable_sort(ordered, std::greater<>(),
                           [](const auto& item) { return item.second.element_size(); });

  std::string text = header_of(ordered, metadata).dump();
  text.resize((text.size() + kLengthBytes - 1) / kLengthBytes * kLengthBytes, ' ');
  const uint64_t header_bytes = text.size();
  std::vector<std::span<const std::byte>> pieces = {std::as_bytes(std::span(&header_bytes, 1)),
                                                    std::as_bytes(std::span(text))};
  for (const auto& item : ordered) pieces.push_back(bytes_of(item.second));
  write_pieces(file, pieces);
}

std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

}  // namespace nereus
