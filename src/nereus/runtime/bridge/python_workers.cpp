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

uint64_t PythonWorkers::post(const std::string& argument) {
  if (!process_) start();
  open_.insert(next_);
  process_->post(next_, argument);
  return next_++;
}

std::map<uint64_t, PythonAnswer> PythonWorkers::poll(std::chrono::milliseconds patience) {
  std::map<uint64_t, PythonAnswer> answers;
  if (!process_) return answers;
  for (const PoolMessage& message : process_->exchange(patience)) {
    // Others are of calls that were dropped.
    if (open_.erase(message.number) > 0) answers[message.number] = parse_answer(message.text);
  }
  if (!process_->gone()) return answers;
  process_.reset();
  for (const uint64_t number : std::exchange(open_, {})) {
    answers[number] = {{}, "died", "the pool of workers was killed"};
  }
  return answers;
}

void PythonWorkers::drop() {
  if (open_.empty()) return;
  open_.clear();
  process_->post(0, "null");
  process_->exchange(std::chrono::milliseconds(0));
}

std::vector<PythonAnswer> PythonWorkers::call(const std::vector<std::string>& arguments,
                                              const StopToken& stop) {
  std::map<uint64_t, size_t> places;
  for (size_t i = 0; i < arguments.size(); ++i) places[post(arguments[i])] = i;
  std::vector<PythonAnswer> answers(arguments.size());
  while (!places.empty()) {
    for (auto& [number, answer] : poll(kTick)) {
      const auto place = places.extract(number);
      if (!place.empty()) answers[place.mapped()] = std::move(answer);
    }
    if (!stop.requested()) continue;
    drop();
    throw Stopped();
  }
  return answers;
}

}  // namespace nereus
