// Crash-safe files: write beside, fsync, rename.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace nereus {

// More than any config, plan or manifest has.
inline constexpr uint64_t kMostDocumentBytes = uint64_t{64} << 20U;

// Whole regular file as text. Throws Error(kInvalidInput) naming the path if it cannot be read, is
// no regular file, or has more bytes than `most`: nothing is read then.
std::string read_text(const std::filesystem::path& file, uint64_t most = kMostDocumentBytes);
// Atomic replacement: readers see the old or the new content, never half of it. Creates parent
// directories. Throws Error(kIo), and leaves nothing half-written behind.
void write_text(const std::filesystem::path& file, const std::string& text);
// The same for several pieces of memory, one after the other.
void write_pieces(const std::filesystem::path& file,
                  const std::vector<std::span<const std::byte>>& pieces);
// Flushes a file or directory to disk. Throws Error(kIo).
void fsync_path(const std::filesystem::path& path);

}  // namespace nereus
