#include "nereus/core/base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>

namespace nereus::log {

namespace {

spdlog::logger& logger() {
  static spdlog::logger instance = [] {
    spdlog::logger made("nereus", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made.set_pattern("[%H:%M:%S] %v");
    made.flush_on(spdlog::level::info);
    return made;
  }();
  return instance;
}

}  // namespace

void info(const std::string& message) { logger().info(message); }
void warn(const std::string& message) { logger().warn("warning: " + message); }
void error(const std::string& message) { logger().error("error: " + message); }

void set_quiet(bool quiet) {
  logger().set_level(quiet ? spdlog::level::warn : spdlog::level::info);
}

}  // namespace nereus::log
