// Damaged inputs of every reader: each is read, or refused with an Error that says so in our words.
// 200 inputs a reader by default; NEREUS_FUZZ=5000 says how many. What was once found stays in
// regressions/READER and is read each time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iostream>

#include "mutate.h"
#include "nereus/core/base/error.h"
#include "nereus/core/base/hash.h"
#include "nereus/runtime/files/files.h"
#include "readers.h"

namespace nereus::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr int kDefaultInputs = 200;
constexpr rlim_t kMostBytes = rlim_t{2} << 30U;
// An input that takes so long never ends. Of processor time, for the machine may be busy; and of
// the clock, for a wait takes none.
constexpr int kMostSeconds = 20;
constexpr int kMostWaitedSeconds = 300;

int inputs_wanted() {
  const char* wanted = std::getenv("NEREUS_FUZZ");
  return wanted == nullptr ? kDefaultInputs : std::atoi(wanted);
}

// Words of libraries, which tell a user nothing.
constexpr const char* kRawWords[] = {
    "json.exception", "yaml-cpp",  "bad conversion", "basic_string",     "std::",     ": stoi",
    ": stod",         "bad_alloc", "vector::",       "filesystem error", "c10::",     "_M_range",
    "map::at",        "Traceback", "bad optional",   "bad variant",      "terminate", "pybind11"};

// What is wrong with how an input was met, or "".
std::string complaint(const Reader& reader, const fs::path& folder, const std::string& input) {
  try {
    reader.read(folder, input);
    return "";
  } catch (const Error& error) {
    const std::string message = error.what();
    if (error.code() == ErrorCode::kInternal) return "an internal error: " + message;
    for (const char* word : kRawWords) {
      if (message.find(word) != message.npos) return "raw words: " + message;
    }
    if (message.empty()) return "no message";
    return message.size() > 4000 ? "a message of " + std::to_string(message.size()) + " bytes" : "";
  } catch (const std::exception& error) {
    return std::string("not an Error: ") + error.what();
  } catch (...) {
    return "not an exception";
  }
}

void limit(int resource, rlim_t most) {
  const rlimit both = {most, most};
  ::setrlimit(static_cast<__rlimit_resource>(resource), &both);
}

void start_clocks() {
  const itimerval most = {{0, 0}, {kMostSeconds, 0}};
  ::setitimer(ITIMER_PROF, &most, nullptr);
  ::alarm(kMostWaitedSeconds);
}

// Reads inputs in this process, which may die of it. `input.bin` is the one at hand.
void read_all(const Reader& reader, const std::vector<std::pair<std::string, std::string>>& inputs,
              const fs::path& folder) {
  limit(RLIMIT_DATA, kMostBytes);
  limit(RLIMIT_CORE, 0);
  std::ofstream complaints(folder / "complaints.txt");
  for (const auto& [name, input] : inputs) {
    std::ofstream(folder / "input.bin", std::ios::binary | std::ios::trunc) << input;
    std::ofstream(folder / "input.name", std::ios::trunc) << name;
    const fs::path work = folder / "work";
    fs::remove_all(work);
    fs::create_directories(work);
    start_clocks();
    const std::string what = complaint(reader, work, input);
    if (what.empty()) continue;
    complaints << name << ": " << what << std::endl;
    fs::copy_file(folder / "input.bin", folder / (name + ".bin"),
                  fs::copy_options::overwrite_existing);
  }
}

// Reads inputs in a process of their own; a failure of the test names what went wrong, and the
// file.
void expect_well_met(const Reader& reader,
                     const std::vector<std::pair<std::string, std::string>>& inputs) {
  const fs::path folder = fs::path(::testing::TempDir()) / "nereus_fuzz" / reader.name;
  fs::remove_all(folder);
  fs::create_directories(folder);
  std::cout.flush();
  const pid_t child = ::fork();
  if (child == 0) {
    read_all(reader, inputs, folder);
    ::_exit(0);
  }
  int status = 0;
  rusage usage = {};
  ASSERT_EQ(::wait4(child, &status, 0, &usage), child);
  const std::string last =
      fs::exists(folder / "input.name") ? read_text(folder / "input.name") : "";
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
      << reader.name << ": signal " << WTERMSIG(status) << ", exit code " << WEXITSTATUS(status)
      << " at " << last << ", see " << folder / "input.bin";
  EXPECT_LT(rlim_t(usage.ru_maxrss) * 1024, kMostBytes) << reader.name;
  const std::string complaints = read_text(folder / "complaints.txt");
  EXPECT_EQ(complaints, "") << reader.name << ": inputs lie in " << folder
                            << "; when mended, keep each as a file of tests/fuzz/regressions/"
                            << reader.name;
}

class Fuzz : public ::testing::TestWithParam<Reader> {};

TEST_P(Fuzz, SeedsAreRead) {
  for (const std::string& seed : GetParam().seeds) {
    const fs::path folder = fs::path(::testing::TempDir()) / "nereus_fuzz_seeds" / GetParam().name;
    fs::remove_all(folder);
    const std::string input = GetParam().finish ? GetParam().finish(seed, 1) : seed;
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        GetParam().read(folder, input);
      } catch (const std::exception& error) {
        std::cerr << error.what() << std::endl;
        ::_exit(1);
      }
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << seed;
  }
}

TEST_P(Fuzz, WhatWasFoundStaysMended) {
  std::vector<std::pair<std::string, std::string>> inputs;
  const fs::path kept = fs::path(NEREUS_SOURCE_DIR) / "tests/fuzz/regressions" / GetParam().name;
  if (!fs::exists(kept)) return;
  for (const auto& entry : fs::directory_iterator(kept)) {
    inputs.emplace_back(entry.path().filename().string(), read_text(entry.path()));
  }
  expect_well_met(GetParam(), inputs);
}

TEST_P(Fuzz, DamagedInputsAreReadOrRefused) {
  const Reader& reader = GetParam();
  const uint64_t base = hash_bytes(std::as_bytes(std::span(reader.name)));
  std::vector<std::pair<std::string, std::string>> inputs;
  for (int i = 0; i < inputs_wanted(); ++i) {
    const uint64_t seed = base + static_cast<uint64_t>(i);
    std::string input = mutated(reader.seeds, seed);
    if (reader.finish) input = reader.finish(input, static_cast<uint64_t>(i));
    inputs.emplace_back(std::to_string(i), std::move(input));
  }
  expect_well_met(reader, inputs);
}

INSTANTIATE_TEST_SUITE_P(Readers, Fuzz, ::testing::ValuesIn(readers()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace nereus::fuzz
