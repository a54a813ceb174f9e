// Crash-safe files: write beside, fsync, rename.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace nereus {

// Whole file as text. Throws Error(kInvalidInput) naming the path if it cannot be read.
std::string read_text(const std::filesystem::path& file);
// Atomic replacement: readers see the old or the new content, never half of it. Creates parent
// directories. Throws Error(kIo).
void write_text(const std::filesystem::path& file, const std::string& text);
// The same for several pieces of memory, one after the other.
void write_pieces(const std::filesystem::path& file,
                  const std::vector<std::span<const std::byte>>& pieces);
// Flushes a file or directory to disk. Throws Error(kIo).
void fsync_path(const std::filesystem::path& path);

}  // namespace nereus
