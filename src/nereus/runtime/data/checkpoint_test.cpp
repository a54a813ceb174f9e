#include "nereus/runtime/data/checkpoint.h"

#include <ATen/ATen.h>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <fstream>

#include "nereus/runtime/files/files.h"
#include "nereus/runtime/files/testing.h"

namespace nereus {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<CheckpointPart> parts(float value) {
  return {{"actor", {{"weights/w", at::full({3}, value)}, {"exp_avg/w", at::zeros({3})}}},
          {"critic", {{"weights/w", at::full({2}, value, at::kBFloat16)}}}};
}

TEST(Checkpoint, RoundTrip) {
  const auto root = fresh_directory();
  EXPECT_FALSE(newest_checkpoint(root / "absent"));
  write_checkpoint(root, 4, {{"kl_coef", 0.5}}, parts(1), 0);
  const auto checkpoint = newest_checkpoint(root);
  ASSERT_TRUE(checkpoint);
  EXPECT_EQ(checkpoint->step, 4);
  EXPECT_EQ(checkpoint->state["kl_coef"], 0.5);
  EXPECT_TRUE(at::equal(read_part(*checkpoint, "actor").at("weights/w"), at::ones({3})));
  EXPECT_EQ(read_part(*checkpoint, "critic").at("weights/w").scalar_type(), at::kBFloat16);
  EXPECT_THAT(error_message(ErrorCode::kInvalidInput, [&] { read_part(*checkpoint, "reference"); }),
              HasSubstr("reference"));
}

TEST(Checkpoint, NewestByNumberAndKeep) {
  const auto root = fresh_directory();
  for (const int step : {2, 9, 10}) write_checkpoint(root, step, step, parts(1), 2);
  EXPECT_EQ(newest_checkpoint(root)->step, 10);
  EXPECT_FALSE(fs::exists(root / "step_2"));
  EXPECT_TRUE(fs::exists(root / "step_9"));
}

TEST(Checkpoint, SameStepAgainReplacesTheFirst) {
  const auto root = fresh_directory();
  write_checkpoint(root, 1, "first", parts(1), 0);
  write_checkpoint(root, 1, "second", parts(2), 0);
  EXPECT_EQ(newest_checkpoint(root)->state, "second");
  EXPECT_EQ(std::distance(fs::directory_iterator(root), fs::directory_iterator()), 1);
}

TEST(Checkpoint, IncompleteOnesAreSkipped) {
  const auto root = fresh_directory();
  for (const int step : {1, 2, 3, 4}) write_checkpoint(root, step, {}, parts(1), 0);
  fs::remove(root / "step_4" / "manifest.json");
  write_text(root / "step_3" / "manifest.json", "{\"step\": 3,");
  fs::resize_file(root / "step_2" / "critic.safetensors", 10);
  fs::create_directory(root / "unfinished_step_5");
  EXPECT_EQ(newest_checkpoint(root)->step, 1);
  EXPECT_THAT(search_checkpoints(root).damaged,
              ElementsAre(HasSubstr("step_4"), HasSubstr("step_3"),
                          AllOf(HasSubstr("critic.safetensors"), HasSubstr("10 of"))));
}

TEST(Checkpoint, OneThatCannotBeWrittenLeavesNothingBehind) {
  const auto root = fresh_directory();
  write_checkpoint(root, 1, "first", parts(1), 0);
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before = {};
  ::getrlimit(RLIMIT_FSIZE, &before);
  rlimit full = before;
  full.rlim_cur = 64;
  ::setrlimit(RLIMIT_FSIZE, &full);
  const std::string message =
      error_message(ErrorCode::kIo, [&] { write_checkpoint(root, 2, "second", parts(2), 0); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_THAT(message, HasSubstr("step_2"));
  EXPECT_EQ(newest_checkpoint(root)->state, "first");
  EXPECT_EQ(std::distance(fs::directory_iterator(root), fs::directory_iterator()), 1);
}

// State as a job saves it: whole numbers, fractions, lists, text.
Json state_of(int step) {
  return {{"step", step},
          {"position", 8 * step},
          {"kl_coef", 0.001},
          {"seed", 3},
          {"updates", {{"actor", step}, {"critic", step}}},
          {"extra", {{"plan", {{"stages", {1, 2.5, "0:1", nullptr, true}}}}}}};
}

// Flips each bit of a file of the newer of two checkpoints in turn: it must be left for the older
// one with a reason that names `file`, or be read as if nothing had happened.
void flip_every_bit(const std::string& file) {
  const auto root = fresh_directory();
  for (const int step : {1, 2}) {
    write_checkpoint(root, step, state_of(step), parts(static_cast<float>(step)), 0);
  }
  const Checkpoint intact = *newest_checkpoint(root);
  const auto path = root / "step_2" / file;
  const std::string content = read_text(path);
  int refused = 0;
  for (size_t bit = 0; bit < 8 * content.size(); ++bit) {
    std::string flipped = content;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    std::ofstream(path, std::ios::binary) << flipped;
    const CheckpointSearch search = search_checkpoints(root);
    ASSERT_TRUE(search.newest);
    if (search.newest->step == 1) {
      ++refused;
      ASSERT_THAT(search.damaged, ElementsAre(HasSubstr(file))) << bit;
      continue;
    }
    ASSERT_EQ(search.newest->state, intact.state) << bit;
    ASSERT_EQ(search.newest->part_hashes, intact.part_hashes) << bit;
    ASSERT_TRUE(at::equal(read_part(*search.newest, "actor").at("weights/w"), at::full({3}, 2.0F)));
  }
  EXPECT_GT(refused, 0.95 * 8 * static_cast<double>(content.size()));
}

TEST(Checkpoint, EveryBitOfAManifestCounts) { flip_every_bit("manifest.json"); }
TEST(Checkpoint, EveryBitOfAPartCounts) { flip_every_bit("actor.safetensors"); }

TEST(Checkpoint, AManifestBelongsToItsDirectory) {
  const auto root = fresh_directory();
  write_checkpoint(root, 1, state_of(1), parts(1), 0);
  fs::copy(root / "step_1", root / "step_7", fs::copy_options::recursive);
  write_checkpoint(root, 8, state_of(9), parts(1), 0);
  const CheckpointSearch search = search_checkpoints(root);
  EXPECT_EQ(search.newest->step, 1);
  EXPECT_THAT(search.damaged, ElementsAre(HasSubstr("step 9"), HasSubstr("step 1")));
}

// Of earlier builds, or one whose "hash" was lost: nothing confirms what it says.
TEST(Checkpoint, AManifestWithoutItsHashIsRefused) {
  const auto root = fresh_directory();
  write_checkpoint(root, 1, state_of(1), parts(1), 0);
  const auto file = root / "step_1" / "manifest.json";
  Json manifest = parse_json(read_text(file), "");
  manifest.erase("hash");
  write_text(file, manifest.dump());
  EXPECT_THAT(search_checkpoints(root).damaged, ElementsAre(HasSubstr("missing key \"hash\"")));
}

TEST(Checkpoint, PartsThatAreNoFilesOfItsDirectoryAreRefused) {
  const auto root = fresh_directory();
  write_checkpoint(root, 1, state_of(1), parts(1), 0);
  fs::remove(root / "step_1" / "critic.safetensors");
  ASSERT_EQ(::mkfifo((root / "step_1" / "critic.safetensors").c_str(), 0600), 0);
  EXPECT_THAT(search_checkpoints(root).damaged, ElementsAre(HasSubstr("a pipe")));
}

TEST(Checkpoint, BytesThatChangeAfterTheChoiceAreNoticed) {
  const auto root = fresh_directory();
  write_checkpoint(root, 1, {}, parts(1), 0);
  const auto checkpoint = newest_checkpoint(root);
  ASSERT_TRUE(checkpoint);
  {
    std::fstream file(root / "step_1" / "actor.safetensors", std::ios::in | std::ios::out);
    file.seekp(-1, std::ios::end);
    file.put('\x01');
  }
  EXPECT_THAT(error_message(ErrorCode::kInvalidInput, [&] { read_part(*checkpoint, "actor"); }),
              AllOf(HasSubstr("actor.safetensors"), HasSubstr("changed")));
}

// Not libtorch's older copy, which crashes where the program's libstdc++ is newer (GCC 13).
TEST(Checkpoint, FilesAreRemovedByTheSystemsStandardLibrary) {
  void* remove_all = ::dlsym(RTLD_DEFAULT, "_ZNSt10filesystem10remove_allERKNS_7__cxx114pathE");
  ASSERT_NE(remove_all, nullptr);
  Dl_info library = {};
  ASSERT_NE(::dladdr(remove_all, &library), 0);
  EXPECT_NE(std::string(library.dli_fname).find("libstdc++"), std::string::npos)
      << library.dli_fname;
}

}  // namespace
}  // namespace nereus
