#include "nereus/runtime/files/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <system_error>

#include "nereus/core/base/error.h"
#include "nereus/runtime/files/regular_file.h"

namespace nereus {

namespace {

namespace fs = std::filesystem;

[[noreturn]] void throw_io(const std::string& action, const fs::path& path, int error) {
  throw Error(ErrorCode::kIo, "cannot " + action + " " + path.string() + ": " +
                                  std::generic_category().message(error));
}

class Descriptor {
 public:
  Descriptor(const fs::path& path, int flags)
      : path_(path), fd_(::open(path.c_str(), flags, 0644)) {
    if (fd_ < 0) throw_io("open", path_, errno);
  }
  ~Descriptor() { ::close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) throw_io("write", path_, written < 0 ? errno : ENOSPC);
      bytes = bytes.subspan(static_cast<size_t>(written));
    }
  }
  void sync() {
    if (::fsync(fd_) != 0) throw_io("flush", path_, errno);
  }

 private:
  fs::path path_;
  int fd_;
};

}  // namespace

std::string read_text(const fs::path& file, uint64_t most) {
  const uint64_t size = regular_file_size(file);
  if (size > most) {
    throw Error(ErrorCode::kInvalidInput, "cannot read " + file.string() + ": " +
                                              std::to_string(size) + " bytes, at most " +
                                              std::to_string(most) + " are legal here");
  }
  std::ifstream stream(file, std::ios::binary);
  std::string text(size, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(size));
  text.resize(static_cast<size_t>(stream.gcount()));
  if (stream.bad() || !stream.is_open()) {
    throw Error(ErrorCode::kInvalidInput, "cannot read " + file.string());
  }
  return text;
}

void write_text(const fs::path& file, const std::string& text) {
  write_pieces(file, {std::as_bytes(std::span(text))});
}

void write_pieces(const fs::path& file, const std::vector<std::span<const std::byte>>& pieces) {
  const fs::path directory = file.has_parent_path() ? file.parent_path() : fs::path(".");
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) throw_io("create directory", directory, error.value());

  const fs::path beside = file.string() + ".partial";
  try {
    Descriptor descriptor(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC);
    for (const auto& piece : pieces) descriptor.write(piece);
    descriptor.sync();
    fs::rename(beside, file, error);
    if (error) throw_io("rename to", file, error.value());
  } catch (const Error&) {
    ::unlink(beside.c_str());  // it would only keep a full disk full
    throw;
  }
  fsync_path(directory);
}

void fsync_path(const fs::path& path) { Descriptor(path, O_RDONLY | O_CLOEXEC).sync(); }

}  // namespace nereus
