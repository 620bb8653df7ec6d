// Checkpoints that are written in the background hold the state at the time of the save. Errors of the background write
// appear at the next call of wait() or save().
#include "tessera/store/background_checkpoint.h"

#include <atomic>

#include "store_test_util.h"
#include "tessera/store/checkpoint.h"
#include "thread_world.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kTotal = 1'000'003;

ArrayRange range_of(const Communicator& world) {
  return {"a", kTotal, kTotal * world.rank() / world.size(), kTotal * (world.rank() + 1) / world.size()};
}

// Writes this rank's range of the array `values` as bf16, in two pieces. Also writes an empty array and a text.
void write_part(CheckpointPart& part, const Communicator& world, const std::vector<float>& values) {
  const ArrayRange range = range_of(world);
  part.declare({"nothing", 0, 0, 0}, DType::f32);
  part.declare(range, DType::bf16);
  View all{reinterpret_cast<std::byte*>(const_cast<float*>(values.data())), DType::f32, {kTotal}};
  part.write("a", all.rows(range.begin, range.begin + 100'000));
  part.write("a", all.rows(range.begin + 100'000, range.end));
  part.write("nothing", {});
  part.add_text("trainer_state.json", "state " + std::to_string(values[0]));
}

float value_of(const fs::path& folder) {
  const auto checkpoint = Checkpoint::open_verified(folder);
  std::vector<float> values(kTotal);
  checkpoint.read_range({"a", kTotal, 0, kTotal}, view_of(values.data(), {kTotal}));
  EXPECT_EQ(values, std::vector<float>(kTotal, values[0]));
  EXPECT_EQ(checkpoint.trainer_state(), "state " + std::to_string(values[0]));
  return values[0];
}

struct Rank {
  explicit Rank(Communicator& world_of_all) : world(world_of_all), background(*host, world) {}
  void save(const fs::path& output, int64_t step) {
    background.save(
        output, step, [&](CheckpointPart& part) { write_part(part, world, values); }, &pool);
  }
  Communicator& world;
  ThreadPool pool{2};
  std::unique_ptr<Device> host = make_cpu_device(pool);
  BackgroundCheckpoint background;
  std::vector<float> values = std::vector<float>(kTotal, 1.0f);
};

TEST(BackgroundCheckpoint, HoldsTheStateAtTheTimeOfTheSave) {
  for (int size : {1, 3}) {
    TemporaryFolder output(memory_folder());
    const auto errors = run_ranks(size, [&](Communicator& world) {
      Rank rank(world);
      rank.save(output.path(), 1);
      const int64_t copy_bytes = rank.host->ledger().current(Category::staging);
      const int64_t range_bytes = 2 * (range_of(world).end - range_of(world).begin);
      EXPECT_GE(copy_bytes, range_bytes);
      EXPECT_LT(copy_bytes, range_bytes + Device::kAlignment);
      rank.values.assign(kTotal, 2.0f);  // training continues
      rank.save(output.path(), 2);
      rank.values.assign(kTotal, 3.0f);
      EXPECT_TRUE(fs::exists(output / "checkpoint-1/manifest.json"));
      rank.background.wait();
      EXPECT_TRUE(fs::exists(output / "checkpoint-2/manifest.json"));
      rank.background.wait();
      rank.save(output.path(), 3);  // the destructor waits for the write
      EXPECT_EQ(rank.host->ledger().current(Category::staging), copy_bytes);
    });
    EXPECT_THAT(errors, Each(""));
    for (int step : {1, 2, 3}) EXPECT_EQ(value_of(checkpoint_folder(output.path(), step)), static_cast<float>(step));
    EXPECT_EQ(std::distance(fs::directory_iterator(output.path()), fs::directory_iterator()), 3);
  }
}

TEST(BackgroundCheckpoint, ErrorsOfTheThreadAppearOnceAtTheNextWait) {
  TemporaryFolder output(memory_folder());
  put(output / "file", "");
  const auto errors = run_ranks(3, [&](Communicator& world) {
    Rank rank(world);
    rank.save(output / "file", 1);
    EXPECT_THAT(error_of<RunError>([&] { rank.background.wait(); }), HasSubstr("rank 0: "));
    rank.background.wait();
    rank.save(output / "file", 2);
    EXPECT_THAT(error_of<RunError>([&] { rank.save(output.path(), 3); }), HasSubstr("rank 0: "));
    rank.save(output.path(), 4);
  });
  EXPECT_THAT(errors, Each(""));
  EXPECT_THAT(checkpoint_steps(output.path()), ElementsAre(4));
}

TEST(BackgroundCheckpoint, ErrorsOfTheCopyAppearImmediatelyOnAllRanks) {
  TemporaryFolder output(memory_folder());
  const auto errors = run_ranks<RunError>(3, [&](Communicator& world) {
    Rank rank(world);
    rank.background.save(output.path(), 1, [&](CheckpointPart& part) {
      write_part(part, world, rank.values);
      if (world.rank() == 2) throw RunError("", "no more");
    });
  });
  EXPECT_THAT(errors, Each("rank 2: no more"));
  EXPECT_TRUE(fs::is_empty(output.path()));
}

TEST(BackgroundCheckpoint, ACountingDeviceBooksTheCopyAndWritesNothing) {
  TemporaryFolder output(memory_folder());
  const auto host = make_counting_device();
  const auto world = make_self_communicator();
  BackgroundCheckpoint background(*host, *world);
  background.save(output.path(), 1, [&](CheckpointPart& part) {
    part.declare({"a", 1000, 0, 500}, DType::f32);
    part.declare({"b", 1000, 500, 501}, DType::f32);
  });
  background.wait();
  // Both ranges, of 2000 and 4 bytes, are rounded up to multiples of Device::kAlignment (256).
  EXPECT_EQ(host->ledger().current(Category::staging), 2048 + 256);
  EXPECT_TRUE(fs::is_empty(output.path()));
}

}  // namespace
}  // namespace tessera
