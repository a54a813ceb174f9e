// Everything that reads what users, downloads or damaged disks hand to Nereus.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace nereus::fuzz {

struct Reader {
  std::string name;
  std::vector<std::string> seeds;  // valid inputs
  // Reads an input as the program does, using `folder` for files, and goes on to what is made of it
  // before a job begins. Throws only Error.
  std::function<void(const std::filesystem::path& folder, const std::string& input)> read;
  // Makes an input of mutated text: what text cannot say (a length before it), or what would keep
  // every mutation from being read (a hash).
  std::function<std::string(const std::string& mutated, uint64_t seed)> finish = nullptr;
};

std::vector<Reader> readers();

}  // namespace nereus::fuzz
