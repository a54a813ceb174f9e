#include "nereus/runtime/engine/device_memory.h"

#include <ATen/Context.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

#include "nereus/core/base/error.h"
#include "nereus/runtime/cuda/device.h"

namespace nereus {

struct DeviceMemory::Account {
  std::string name;
  int64_t budget = 0;
  std::atomic<int64_t> current{0};
  std::atomic<int64_t> peak{0};

  void charge(int64_t bytes) {
    const int64_t now = current.fetch_add(bytes) + bytes;
    if (budget > 0 && now > budget) {
      current.fetch_sub(bytes);
      throw Error(ErrorCode::kOutOfMemory, "device " + name +
                                               ": out of memory: " + to_string(Bytes(bytes)) +
                                               " more on top of " + to_string(Bytes(now - bytes)) +
                                               " exceed its budget of " + to_string(Bytes(budget)));
    }
    int64_t seen = peak.load();
    while (now > seen && !peak.compare_exchange_weak(seen, now)) {
    }
  }
};

namespace {

// libtorch has one CPU allocator per process and calls it on whatever thread needs memory, so the
// account to charge has to be the thread's.
thread_local std::shared_ptr<DeviceMemory::Account> charged_account;

constexpr size_t kAlignment = 64;

// Sits in front of each block; the block remembers whom to give the bytes back to.
struct alignas(kAlignment) BlockHeader {
  std::shared_ptr<DeviceMemory::Account> account;
  int64_t bytes = 0;
};

void free_block(void* data) {
  if (data == nullptr) return;
  auto* header = reinterpret_cast<BlockHeader*>(static_cast<char*>(data) - sizeof(BlockHeader));
  if (header->account) header->account->current.fetch_sub(header->bytes);
  header->~BlockHeader();
  std::free(header);
}

class AccountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device cpu(c10::DeviceType::CPU);
    if (bytes == 0) return {nullptr, nullptr, &free_block, cpu};
    if (charged_account) charged_account->charge(static_cast<int64_t>(bytes));
    const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    void* raw = std::aligned_alloc(kAlignment, rounded + sizeof(BlockHeader));
    if (raw == nullptr) {
      if (charged_account) charged_account->current.fetch_sub(static_cast<int64_t>(bytes));
      throw Error(ErrorCode::kOutOfMemory,
                  "host out of memory: cannot allocate " + to_string(Bytes(bytes)));
    }
    new (raw) BlockHeader{charged_account, static_cast<int64_t>(bytes)};
    void* data = static_cast<char*>(raw) + sizeof(BlockHeader);
    return {data, data, &free_block, cpu};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }

  void copy_data(void* destination, const void* source, size_t count) const override {
    std::memcpy(destination, source, count);
  }
};

void install_allocator() {
  static AccountingAllocator allocator;
  static std::once_flag once;
  constexpr uint8_t kAboveDefault = 1;
  std::call_once(once, [] { c10::SetCPUAllocator(&allocator, kAboveDefault); });
}

}  // namespace

DeviceMemory::DeviceMemory(std::string name, Bytes budget) : account_(new Account) {
  install_allocator();
  account_->name = std::move(name);
  account_->budget = budget.count();
}

DeviceMemory::DeviceMemory(std::string name, Bytes budget, c10::Device accelerator, int sharing)
    : DeviceMemory(std::move(name), budget) {
  accelerator_ = accelerator;
  sharing_ = sharing;
  at::globalContext().lazyInitDevice(accelerator.type());
  if (budget > Bytes()) cuda::limit_memory(accelerator.index(), budget * sharing);
}

namespace {

c10::CachingDeviceAllocator::Stat allocated_on(c10::Device device) {
  const auto stats = c10::getDeviceAllocator(device.type())->getDeviceStats(device.index());
  return stats.allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
}

}  // namespace

Bytes DeviceMemory::budget() const { return Bytes(account_->budget); }

Bytes DeviceMemory::current() const {
  return Bytes(accelerator_ ? allocated_on(*accelerator_).current / sharing_
                            : account_->current.load());
}

Bytes DeviceMemory::peak() const {
  return Bytes(accelerator_ ? allocated_on(*accelerator_).peak / sharing_ : account_->peak.load());
}

void DeviceMemory::reset_peak() {
  if (accelerator_) {
    c10::getDeviceAllocator(accelerator_->type())->resetPeakStats(accelerator_->index());
  } else {
    account_->peak.store(account_->current.load());
  }
}

void DeviceMemory::reserve(Bytes bytes) const {
  if (accelerator_ && bytes > Bytes()) cuda::reserve_memory(accelerator_->index(), bytes);
}

DeviceMemory::Scope::Scope(const DeviceMemory& memory) {
  NEREUS_CHECK(!charged_account, "a thread works for one device at a time");
  charged_account = memory.account_;
}

DeviceMemory::Scope::~Scope() { charged_account.reset(); }

}  // namespace nereus
