#include "common/record.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <fstream>
#include <string>
#include <thread>

namespace nereus::bench {

namespace {

std::string now() {
  const std::time_t time = std::time(nullptr);
  std::tm parts{};
  localtime_r(&time, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  return text;
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

}  // namespace

Json record_head(int argc, const char* const* argv) {
  std::string command = std::filesystem::path(argv[0]).filename();
  for (int i = 1; i < argc; ++i) command += std::string(" ") + argv[i];
  return {{"date", now()},
          {"command", command},
          {"machine",
           {{"cpu", cpu_name()},
            {"cores", std::thread::hardware_concurrency()},
            {"compiler", "g++ " __VERSION__}}}};
}

void write_record(const std::filesystem::path& file, const Json& record) {
  if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path());
  std::ofstream stream(file);
  stream << record.dump(1) << "\n";
  if (!stream) throw Error(ErrorCode::kIo, "cannot write " + file.string());
}

double quantile(std::vector<double> values, double fraction) {
  const auto rank = static_cast<size_t>(std::lround(fraction * double(values.size() - 1)));
  std::nth_element(values.begin(), values.begin() + ptrdiff_t(rank), values.end());
  return values[rank];
}

}  // namespace nereus::bench
