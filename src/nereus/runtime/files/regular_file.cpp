#include "nereus/runtime/files/regular_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "nereus/core/base/error.h"

namespace nereus {

namespace {

std::string kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

[[noreturn]] void refuse(const std::filesystem::path& file, const std::string& why) {
  throw Error(ErrorCode::kInvalidInput, "cannot read " + file.string() + ": " + why);
}

}  // namespace

uint64_t regular_file_size(const std::filesystem::path& file) {
  struct stat status = {};
  if (::stat(file.c_str(), &status) != 0) {
    refuse(file, errno == ENOENT || errno == ENOTDIR ? "no such file"
                                                     : std::generic_category().message(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    refuse(file, "it is " + kind_of(status.st_mode) + "; only regular files are read");
  }
  if (::access(file.c_str(), R_OK) != 0) refuse(file, std::generic_category().message(errno));
  return static_cast<uint64_t>(status.st_size);
}

void require_regular_file(const std::filesystem::path& file) { regular_file_size(file); }

}  // namespace nereus
