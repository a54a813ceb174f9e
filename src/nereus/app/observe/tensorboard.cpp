#include "nereus/app/observe/tensorboard.h"

#include <array>
#include <bit>

#include "nereus/core/base/error.h"
#include "nereus/core/base/text.h"

namespace nereus {

namespace {

static_assert(std::endian::native == std::endian::little, "records are little-endian");

constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < table.size(); ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
    table[i] = crc;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kCrcTable = make_crc_table();

// TFRecord's masked checksum.
uint32_t masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return std::rotr(crc, 15) + 0xa282ead8u;
}

template <class T>
std::string raw(T value) {
  const auto bytes = std::bit_cast<std::array<char, sizeof(T)>>(value);
  return {bytes.data(), bytes.size()};
}

// Protocol buffers' wire format: varint, 64-bit, length-delimited and 32-bit fields.
std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>((value & 0x7f) | 0x80);
  return bytes + static_cast<char>(value);
}
std::string tag(int field, int wire_type) {
  return varint(static_cast<uint64_t>(field << 3 | wire_type));
}
std::string integer(int field, uint64_t value) { return tag(field, 0) + varint(value); }
std::string number(int field, double value) { return tag(field, 1) + raw(value); }
std::string text(int field, const std::string& value) {
  return tag(field, 2) + varint(value.size()) + value;
}
std::string small_number(int field, float value) { return tag(field, 5) + raw(value); }

// Fields of tensorflow.Event and tensorflow.Summary.Value.
std::string event(double wall_time, int step) {
  return number(1, wall_time) + integer(2, static_cast<uint64_t>(step));
}
std::string file_version() { return text(3, "brain.Event:2"); }
std::string session_start() { return text(7, integer(1, 1)); }
std::string scalar(const std::string& name, double value) {
  return text(1, text(1, name) + small_number(2, static_cast<float>(value)));
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = 0xffffffffu;
  for (char byte : bytes) {
    crc = (crc >> 8) ^ kCrcTable[(crc ^ static_cast<unsigned char>(byte)) & 0xff];
  }
  return ~crc;
}

TensorBoardWriter::TensorBoardWriter(const std::filesystem::path& directory, double wall_time,
                                     int first_step) {
  std::filesystem::create_directories(directory);
  const auto file =
      directory / ("events.out.tfevents." + format_number(wall_time, "%.6f") + ".nereus");
  file_.emplace(file);
  record(event(wall_time, 0) + file_version());
  if (first_step > 0) record(event(wall_time, first_step) + session_start());
}

void TensorBoardWriter::write(int step, double wall_time,
                              const std::map<std::string, double>& metrics) {
  std::string summary;
  for (const auto& [name, value] : metrics) summary += scalar(name, value);
  record(event(wall_time, step) + text(5, summary));
}

void TensorBoardWriter::record(const std::string& event) {
  const std::string length = raw(static_cast<uint64_t>(event.size()));
  file_->append(length + raw(masked_crc(length)) + event + raw(masked_crc(event)));
}

}  // namespace nereus
