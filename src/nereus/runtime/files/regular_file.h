// Files that users name: only regular ones are read. A pipe would be waited for for ever, a device
// has no end.
#pragma once

#include <cstdint>
#include <filesystem>

namespace nereus {

// Bytes of a regular file, or of the one that a link leads to. Throws Error(kInvalidInput) naming
// the path and what it is instead: nothing, a directory, a pipe, a device, a socket, or not
// readable.
uint64_t regular_file_size(const std::filesystem::path& file);

// For paths that other libraries open.
void require_regular_file(const std::filesystem::path& file);

}  // namespace nereus
