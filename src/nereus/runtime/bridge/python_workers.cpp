#include "nereus/runtime/bridge/python_workers.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "nereus/core/base/error.h"
#include "nereus/runtime/bridge/python.h"

namespace nereus {

namespace {

constexpr std::chrono::milliseconds kTick{100};

PythonAnswer parse_answer(const std::string& text) {
  const Json answer = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!answer.is_object()) return {{}, "died", "the worker's answer cannot be read"};
  return {answer.value("value", Json()), answer.value("failure", ""), answer.value("reason", "")};
}

std::string settings_text(const PythonWorkersOptions& options) {
  return Json({{"source", options.source},
               {"arguments", options.arguments},
               {"workers", options.workers > 0 ? options.workers : default_workers()},
               {"timeout", options.timeout.count()},
               {"start_timeout", options.start_timeout.count()},
               {"memory", options.memory.count()},
               {"largest", options.largest_answer}})
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

int default_workers() {
  constexpr int kFewest = 8, kMost = 32;
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), kFewest, kMost);
}

PythonWorkers::PythonWorkers(PythonWorkersOptions options) : options_(std::move(options)) {
  start();
}

void PythonWorkers::start() {
  process_ = std::make_unique<PoolProcess>();
  process_->post(0, settings_text(options_));
  while (!process_->gone()) {
    for (const PoolMessage& message : process_->exchange(kTick)) {
      const PythonAnswer ready = parse_answer(message.text);
      if (ready.failure.empty()) return;
      process_.reset();
      throw Error(ErrorCode::kInvalidInput,
                  ready.reason + (ready.failure != "start"
                                      ? ""
                                      : ": run ./setup, or set NEREUS_PYTHON to a Python that "
                                        "has the packages of requirements.txt"));
    }
  }
  process_.reset();
  throw Error(ErrorCode::kInvalidInput,
              "the Python interpreter " + python_interpreter() +
                  " ended before it could do anything; set NEREUS_PYTHON to the python of a "
                  "working virtual environment");
}

std::vector<PythonAnswer> PythonWorkers::call(const std::vector<std::string>& arguments,
                                              const StopToken& stop) {
  if (!process_) start();
  const uint64_t first = std::exchange(next_, next_ + arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) process_->post(first + i, arguments[i]);
  const PythonAnswer none = {{}, "died", "the pool of workers was killed"};
  std::vector<PythonAnswer> answers(arguments.size(), none);
  for (size_t missing = arguments.size(); missing > 0 && !process_->gone();) {
    for (const PoolMessage& message : process_->exchange(kTick)) {
      if (message.number < first) continue;  // of calls that were dropped
      answers.at(message.number - first) = parse_answer(message.text);
      --missing;
    }
    if (!stop.requested()) continue;
    process_->post(0, "null");
    process_->exchange(std::chrono::milliseconds(0));
    throw Stopped();
  }
  if (process_->gone()) process_.reset();
  return answers;
}

}  // namespace nereus
