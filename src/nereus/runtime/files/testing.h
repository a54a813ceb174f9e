// For tests: a directory of its own for each test, and a small model.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>

#include "nereus/core/base/error.h"
#include "nereus/core/model/model_spec.h"

namespace nereus {

// An empty directory named after the running test.
inline std::filesystem::path fresh_directory() {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  const auto directory = std::filesystem::path(::testing::TempDir()) / "nereus" /
                         test->test_suite_name() / test->name();
  std::filesystem::remove_all(directory);
  std::filesystem::create_directories(directory);
  return directory;
}

// The message of the Error with `code` that `call` throws, or "" and a test failure.
inline std::string error_message(ErrorCode code, const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(to_string(error.code()), to_string(code)) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

inline ModelSpec tiny_llama() {
  ModelSpec spec;
  spec.vocab_size = 11;
  spec.hidden_size = 8;
  spec.intermediate_size = 12;
  spec.num_layers = 2;
  spec.num_heads = 4;
  spec.num_kv_heads = 2;
  spec.head_dim = 2;
  spec.max_position = 64;
  spec.eos_token_ids = {1, 2};
  return spec;
}

}  // namespace nereus
