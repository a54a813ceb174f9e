// Functions that users write in Python.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "nereus/base/json.h"

namespace nereus {

// May be called on any thread.
class PythonFunction final {
 public:
  // Runs the file, whose folder is put on Python's path so that it may import its neighbours.
  // Throws Error(kInvalidInput) naming file and function if there is no such file or function, or
  // if the file raises.
  PythonFunction(const std::filesystem::path& file, const std::string& function);
  ~PythonFunction();
  PythonFunction(const PythonFunction&) = delete;
  PythonFunction& operator=(const PythonFunction&) = delete;

  const std::string& name() const { return name_; }  // "rewards.py: compute_score"
  // Calls it with an object's members as keyword arguments. What it returns may be made of numbers
  // (also numpy's and tensors of one element; NaN and Inf stay what they are), strings, lists,
  // dicts and None; anything else becomes its text. Throws Error(kInvalidInput) with what it
  // raises.
  Json call(const Json& arguments) const;

 private:
  struct Object;
  std::string name_;
  std::unique_ptr<Object> function_;
};

}  // namespace nereus
