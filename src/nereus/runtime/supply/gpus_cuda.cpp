#include <dlfcn.h>

#include <array>
#include <memory>

#include "nereus/runtime/supply/gpus.h"

namespace nereus {

namespace {

struct CloseLibrary {
  void operator()(void* library) const { ::dlclose(library); }
};
using Library = std::unique_ptr<void, CloseLibrary>;

// A function of the driver's C interface, which has kept these names and arguments since CUDA 3.2;
// null if it is not there.
template <class Function>
Function function_of(const Library& library, const char* name) {
  return reinterpret_cast<Function>(::dlsym(library.get(), name));
}

constexpr int kSuccess = 0;  // CUDA_SUCCESS

}  // namespace

std::vector<Gpu> visible_gpus() {
  // Loaded and not linked, so that the program starts where there is no driver.
  const Library driver(::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE));
  if (!driver) return {};
  const auto init = function_of<int (*)(unsigned)>(driver, "cuInit");
  const auto count_of = function_of<int (*)(int*)>(driver, "cuDeviceGetCount");
  const auto device_at = function_of<int (*)(int*, int)>(driver, "cuDeviceGet");
  const auto name_of = function_of<int (*)(char*, int, int)>(driver, "cuDeviceGetName");
  const auto memory_of = function_of<int (*)(size_t*, int)>(driver, "cuDeviceTotalMem_v2");
  if (!init || !count_of || !device_at || !name_of || !memory_of) return {};
  int count = 0;
  if (init(0) != kSuccess || count_of(&count) != kSuccess) return {};
  std::vector<Gpu> found;
  for (int i = 0; i < count; ++i) {
    int device = 0;
    std::array<char, 256> name = {};
    size_t memory = 0;
    if (device_at(&device, i) != kSuccess ||
        name_of(name.data(), static_cast<int>(name.size()), device) != kSuccess ||
        memory_of(&memory, device) != kSuccess) {
      return {};
    }
    found.push_back({name.data(), Bytes(static_cast<int64_t>(memory))});
  }
  return found;
}

}  // namespace nereus
