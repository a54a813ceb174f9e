#include "nereus/data/safetensors.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <fstream>
#include <optional>
#include <utility>
#include <vector>

#include "nereus/base/error.h"
#include "nereus/data/files.h"

namespace nereus {

namespace {

// The length field of the file is little-endian; so are the tensors, which are copied as they are.
static_assert(std::endian::native == std::endian::little);

constexpr uint64_t kLengthBytes = sizeof(uint64_t);
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the reference implementation
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

// Where a tensor lies in the data part of the file.
struct Entry {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;
  uint64_t begin = 0;
  uint64_t end = 0;
};

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

Entry parse_entry(const std::string& name, const Json& j, const std::filesystem::path& file) {
  const std::string where = file.string() + ": tensor \"" + name + "\"";
  const auto dtype_name = require<std::string>(j, "dtype", where);
  const auto dtype = dtype_of(dtype_name);
  if (!dtype) {
    refuse(file, "tensor \"" + name + "\" has dtype " + dtype_name +
                     "; supported: F64, F32, F16, BF16, I64, I32, U8, BOOL");
  }
  const auto offsets = require<std::vector<uint64_t>>(j, "data_offsets", where);
  Entry entry = {
      .name = name, .dtype = *dtype, .shape = require<std::vector<int64_t>>(j, "shape", where)};
  if (offsets.size() != 2 || offsets[1] < offsets[0] ||
      byte_size(entry.shape, *dtype) != offsets[1] - offsets[0]) {
    refuse(file, "tensor \"" + name + "\": data_offsets " + Json(offsets).dump() +
                     " do not suit shape " + Json(entry.shape).dump() + " of " + dtype_name);
  }
  entry.begin = offsets[0];
  entry.end = offsets[1];
  return entry;
}

// The entries must cover the data part exactly, without gap or overlap.
void verify_coverage(const std::vector<Entry>& entries, uint64_t data_bytes,
                     const std::filesystem::path& file) {
  uint64_t position = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != position) {
      refuse(file, "tensor \"" + entry.name + "\" begins at byte " + std::to_string(entry.begin) +
                       " of the data, but the tensor before it ends at " +
                       std::to_string(position));
    }
    position = entry.end;
  }
  if (position != data_bytes) {
    refuse(file, "the header describes " + std::to_string(position) +
                     " bytes of data, the file has " + std::to_string(data_bytes) +
                     (position > data_bytes ? ": it is truncated" : ""));
  }
}

// All entries in the order of their bytes.
std::vector<Entry> parse_header(const Json& header, uint64_t data_bytes,
                                const std::filesystem::path& file) {
  if (!header.is_object()) refuse(file, "its header is not a JSON object");
  std::vector<Entry> entries;
  for (const auto& [name, j] : header.items()) {
    if (name != kMetadataKey) entries.push_back(parse_entry(name, j, file));
  }
  std::ranges::sort(entries, {}, [](const Entry& e) { return std::pair(e.begin, e.end); });
  verify_coverage(entries, data_bytes, file);
  return entries;
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

TensorMap read_safetensors(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary | std::ios::ate);
  if (!stream || std::filesystem::is_directory(file)) refuse(file, "cannot be read: no such file?");
  const auto file_bytes = static_cast<uint64_t>(stream.tellg());
  stream.seekg(0);
  uint64_t header_bytes = 0;
  if (file_bytes >= kLengthBytes) {
    stream.read(reinterpret_cast<char*>(&header_bytes), kLengthBytes);
  }
  if (file_bytes < kLengthBytes || header_bytes > file_bytes - kLengthBytes ||
      header_bytes > kMaxHeaderBytes) {
    refuse(file, "not a safetensors file, or truncated: " + std::to_string(file_bytes) +
                     " bytes with a header of " + std::to_string(header_bytes));
  }
  std::string text(header_bytes, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(header_bytes));
  const Json header = parse_json(text, file.string() + " (header)");

  TensorMap tensors;
  for (const Entry& entry : parse_header(header, file_bytes - kLengthBytes - header_bytes, file)) {
    at::Tensor tensor = at::empty(entry.shape, at::TensorOptions(entry.dtype));
    stream.read(static_cast<char*>(tensor.data_ptr()),
                static_cast<std::streamsize>(entry.end - entry.begin));
    tensors.emplace(entry.name, std::move(tensor));
  }
  if (!stream) refuse(file, "reading stopped before the end of the file");
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
