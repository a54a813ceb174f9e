// How long work takes: by the clock on the CPU, by events on an accelerator's stream.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <chrono>
#include <optional>
#include <vector>

#include "nereus/core/base/units.h"

namespace nereus {

// Used by one thread at a time.
class StreamTimer final {
 public:
  // Times what is done, or enqueued on the calling thread's current stream, while it lives; also if
  // it is left by an exception. Work that is being captured into a graph is not timed.
  class Scope final {
   public:
    Scope(StreamTimer& timer, c10::Device device);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    StreamTimer& timer_;
    c10::Device device_;
    std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
    std::optional<c10::Event> event_;
  };

  // Since the last take. Waits until the work that was enqueued is done.
  Seconds take();

 private:
  struct Span {
    c10::Event begin, end;
  };
  Seconds on_host_;
  std::vector<Span> on_device_;
};

}  // namespace nereus
