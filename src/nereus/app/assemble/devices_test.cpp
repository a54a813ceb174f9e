#include "nereus/app/assemble/devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "nereus/core/base/error.h"

namespace nereus {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kGiB = int64_t{1} << 30;

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidInput);
    return error.what();
  }
  return "";
}

std::string chosen(const std::string& device, int devices, int found) {
  const HostDevices chosen = host_devices({.device = device, .devices = devices}, found);
  return to_string(chosen.backend) + " " + std::to_string(chosen.count);
}

TEST(DevicesTest, AutoTakesAllGpusOrTheCpu) {
  EXPECT_EQ(chosen("auto", 0, 2), "cuda:0,1 2");
  EXPECT_EQ(chosen("auto", 1, 2), "cuda:0 1");
  EXPECT_EQ(chosen("auto", 0, 0), "cpu 1");
  EXPECT_EQ(chosen("auto", 4, 0), "cpu 4");
}

TEST(DevicesTest, GpusByCountOrByNumber) {
  EXPECT_EQ(chosen("cuda", 0, 8), "cuda:0,1,2,3,4,5,6,7 8");
  EXPECT_EQ(chosen("cuda", 2, 0), "cuda:0,1 2") << "planned for another machine";
  EXPECT_EQ(chosen("cuda:3,1", 0, 8), "cuda:3,1 2");
  EXPECT_EQ(chosen("cuda:0,0", 2, 1), "cuda:0,0 2");
  EXPECT_EQ(chosen("cpu", 3, 8), "cpu 3");
}

TEST(DevicesTest, RefusalsNameTheValueAndTheRemedy) {
  const auto refused = [](const char* device, int devices, int found) {
    return refusal([=] { chosen(device, devices, found); });
  };
  EXPECT_THAT(refused("cuda", 0, 0), HasSubstr("cluster.devices"));
  EXPECT_THAT(refused("cuda:0,1", 4, 2), HasSubstr("cuda:0,1 names 2 devices"));
  EXPECT_THAT(refused("rocm", 0, 0), HasSubstr("\"rocm\""));
  EXPECT_THAT(refusal([] { require_gpus(parse_backend("cuda:0,5"), 2); }),
              HasSubstr("no GPU 5, 2 are visible"));
  require_gpus(parse_backend("cuda:1,0,1"), 2);
  require_gpus(Backend{}, 0);
}

TEST(DevicesTest, MemoryIsThatOfTheSmallestGpuAndOfThoseWhoShareIt) {
  const std::vector<Gpu> found = {{"NVIDIA A100-SXM4-80GB", Bytes(80 * kGiB)},
                                  {"NVIDIA A100-SXM4-80GB", Bytes(40 * kGiB)}};
  const auto memory = [&](const char* device) {
    return to_cluster({.device = device}, found).device.memory.count() / double(kGiB);
  };
  EXPECT_NEAR(memory("cuda:0"), 80, 6);
  EXPECT_NEAR(memory("auto"), 40, 3);
  EXPECT_NEAR(memory("cuda:0,0"), 40, 3);
  const Cluster shared = to_cluster({.device = "cuda:0,0"}, found);
  EXPECT_EQ(shared.device.kind, "a100-64gb");
  EXPECT_EQ(shared.hosts[0].full_speed_devices, 1) << "both compute on one GPU";
  EXPECT_EQ(to_cluster({.device = "auto", .memory_per_device = Bytes(kGiB)}, found).device.memory,
            Bytes(kGiB));
}

TEST(DevicesTest, WhatDoesNotSuitTheDevicesIsRefused) {
  Config config;
  config.cluster = {.device = "cpu", .devices = 2};
  EXPECT_THAT(refusal([&] { to_cluster(config); }),
              HasSubstr("cluster.memory_per_device is missing"));
  config.cluster.memory_per_device = Bytes(kGiB);
  EXPECT_EQ(all_devices(to_cluster(config)).size(), 2);
  config.supply.counts.entries = {{0, 2}, {3, 4}};
  EXPECT_THAT(refusal([&] { to_cluster(config); }), HasSubstr("4 devices at step 3"));
  config.cluster.hosts = 2;
  EXPECT_EQ(all_devices(to_cluster(config)).size(), 4);
  config.cluster = {.device = "cuda", .devices = 4, .link_bandwidth = Bytes(kGiB)};
  EXPECT_THAT(refusal([&] { to_cluster(config); }), HasSubstr("cluster.link_bandwidth"));
}

}  // namespace
}  // namespace nereus
