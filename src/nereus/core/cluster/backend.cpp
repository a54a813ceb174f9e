#include "nereus/core/cluster/backend.h"

#include <algorithm>
#include <charconv>

#include "nereus/core/base/error.h"
#include "nereus/core/base/text.h"

namespace nereus {

namespace {

const std::string kCpu = "cpu";
const std::string kCuda = "cuda:";

}  // namespace

int Backend::gpu_of(DeviceId device) const {
  NEREUS_CHECK(device.index >= 0 && device.index < static_cast<int>(gpus.size()),
               "no GPU for device " + to_string(device));
  return gpus[device.index];
}

int Backend::sharing(DeviceId device) const {
  return static_cast<int>(std::ranges::count(gpus, gpu_of(device)));
}

std::string to_string(const Backend& backend) {
  if (backend.is_cpu()) return kCpu;
  std::vector<std::string> numbers;
  for (const int gpu : backend.gpus) numbers.push_back(std::to_string(gpu));
  return kCuda + join(numbers, ",");
}

Backend parse_backend(const std::string& text) {
  Backend backend;
  if (text == kCpu) return backend;
  const auto refuse = [&] {
    throw Error(ErrorCode::kInvalidInput,
                "\"" + text + "\" names no devices; write cpu, or cuda: and the GPUs' numbers, " +
                    "for example cuda:0,1");
  };
  if (!text.starts_with(kCuda)) refuse();
  for (const std::string& number : split(text.substr(kCuda.size()), ',')) {
    int gpu = 0;
    const char* end = number.data() + number.size();
    const auto read = std::from_chars(number.data(), end, gpu);
    if (read.ec != std::errc() || read.ptr != end || gpu < 0) refuse();
    backend.gpus.push_back(gpu);
  }
  return backend;
}

}  // namespace nereus
