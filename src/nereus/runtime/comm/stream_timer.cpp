#include "nereus/runtime/comm/stream_timer.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

#include "nereus/runtime/cuda/device.h"

namespace nereus {

namespace {

c10::Event record(c10::Device device) {
  c10::Event event(device.type(), c10::EventFlag::BACKEND_DEFAULT);
  event.record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  return event;
}

}  // namespace

StreamTimer::Scope::Scope(StreamTimer& timer, c10::Device device) : timer_(timer), device_(device) {
  if (!device.is_cpu() && !cuda::is_capturing()) event_ = record(device);
}

StreamTimer::Scope::~Scope() {
  if (device_.is_cpu()) {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin_;
    timer_.on_host_ += Seconds(passed.count());
  } else if (event_) {
    try {
      timer_.on_device_.push_back({std::move(*event_), record(device_)});
    } catch (const std::exception&) {
      // The device has failed, which the work itself reports.
    }
  }
}

Seconds StreamTimer::take() {
  Seconds total = std::exchange(on_host_, Seconds());
  for (const Span& span : on_device_) {
    span.end.synchronize();
    total += Seconds(span.begin.elapsedTime(span.end) / 1000);  // of milliseconds
  }
  on_device_.clear();
  return total;
}

}  // namespace nereus
