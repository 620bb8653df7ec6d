// Tests checkpoints of several ranks. Any number of ranks can read such a checkpoint. A save succeeds on all ranks or
// on none.
#include "kill_at_syscall.h"
#include "store_test_util.h"
#include "tessera/base/random.h"
#include "tessera/store/all_ranks.h"
#include "tessera/store/atomic_folder.h"
#include "tessera/store/checkpoint.h"
#include "tessera/store/damage.h"
#include "thread_world.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// The arrays of a run. The last array has only one element, so most ranks hold none of it.
const std::vector<std::pair<std::string, int64_t>> kArrays{
    {"parameters/root", 101}, {"parameters/h.0", 64}, {"optimizer.m/h.0", 64}, {"optimizer.m/h.1", 1}};
constexpr const char* kState = "trainer_state.json";

float element(const std::string& array, int64_t i, float value) {
  return value + static_cast<float>(i) + 1000.0f * static_cast<float>(array.size());
}

// Returns the elements [begin, end) of `array` that a rank holds. The split is uneven and includes empty ranges.
ArrayRange range_of(const std::pair<std::string, int64_t>& array, int rank, int size) {
  const auto boundary = [&](int r) { return r == size ? array.second : array.second * r * r / (size * size); };
  return {array.first, array.second, boundary(rank), boundary(rank + 1)};
}

void write_part(CheckpointPart& part, int rank, int size, float value) {
  for (const auto& array : kArrays) part.declare(range_of(array, rank, size), DType::f32);
  for (const auto& array : kArrays) {
    const ArrayRange range = range_of(array, rank, size);
    std::vector<float> values;
    for (int64_t i = range.begin; i < range.end; ++i) values.push_back(element(range.name, i, value));
    const View view = view_of(values.data(), {range.end - range.begin});
    const int64_t cut = (range.end - range.begin) / 3;  // writes the range in two pieces
    part.write(range.name, view.rows(0, cut));
    part.write(range.name, view.rows(cut, range.end - range.begin));
  }
  part.add_text(kState, std::to_string(value) + " of rank " + std::to_string(rank));
}

void save(const fs::path& output, int64_t step, Communicator& world, float value) {
  write_checkpoint(output, step, world,
                   [&](CheckpointPart& part) { write_part(part, world.rank(), world.size(), value); });
}
void save(const fs::path& output, int64_t step, int size, float value) {
  EXPECT_THAT(run_ranks(size, [&](Communicator& world) { save(output, step, world, value); }), Each(""));
}

void expect_range(const Checkpoint& checkpoint, const ArrayRange& range, float value) {
  const int64_t count = range.end - range.begin;
  std::vector<double> values(static_cast<size_t>(count + 1), -1);  // f64: read_range() converts; one guard element
  checkpoint.read_range(range, view_of(values.data(), {count}));
  for (int64_t i = 0; i < count; ++i) {
    ASSERT_EQ(values[static_cast<size_t>(i)], element(range.name, range.begin + i, value)) << range.name << " " << i;
  }
  EXPECT_EQ(values.back(), -1);
}
void expect_complete(const Checkpoint& checkpoint, float value) {
  for (const auto& [name, size] : kArrays) expect_range(checkpoint, {name, size, 0, size}, value);
  EXPECT_EQ(checkpoint.trainer_state(), std::to_string(value) + " of rank 0");
}

TEST(CheckpointOfRanks, IsReadByWorldsOfAnySize) {
  for (int writers = 1; writers <= 4; ++writers) {
    TemporaryFolder output(memory_folder());
    save(output.path(), 7, writers, 0.5f);
    for (int readers = 1; readers <= 4; ++readers) {
      const auto errors = run_ranks(readers, [&](Communicator& world) {
        const auto checkpoint = Checkpoint::open_verified(output / "checkpoint-7", world);
        EXPECT_EQ(checkpoint.world_size(), writers);
        for (const auto& array : kArrays) expect_range(checkpoint, range_of(array, world.rank(), readers), 0.5f);
      });
      EXPECT_THAT(errors, Each(""));
    }
    expect_complete(Checkpoint::open_verified(output / "checkpoint-7"), 0.5f);
  }
}

TEST(CheckpointOfRanks, EveryRangeIsReadFromTheFilesThatHoldIt) {
  TemporaryFolder output(memory_folder());
  save(output.path(), 7, 4, 0.5f);
  const auto checkpoint = Checkpoint::open_verified(output / "checkpoint-7");
  for (int64_t begin = 0; begin <= 101; ++begin) {
    for (int64_t end = begin; end <= 101; ++end) expect_range(checkpoint, {"parameters/root", 101, begin, end}, 0.5f);
  }
}

TEST(CheckpointOfRanks, HoldsOneFilePerRank) {
  TemporaryFolder output(memory_folder());
  save(output.path(), 7, 3, 0.5f);
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(output / "checkpoint-7")) names.push_back(entry.path().filename());
  EXPECT_THAT(names, testing::UnorderedElementsAre("rank-00000-of-00003.safetensors", "rank-00001-of-00003.safetensors",
                                                   "rank-00002-of-00003.safetensors", kState, "manifest.json"));
}

// Damages each file in turn: flips one bit. Then one to four ranks open the checkpoint. All ranks must report the same
// error, which names the damaged file.
TEST(CheckpointOfRanks, DamageOfAnyFileIsFoundByAllRanks) {
  TemporaryFolder output(memory_folder());
  save(output.path(), 7, 3, 0.5f);
  uint64_t draw = 0;
  for (const auto& entry : fs::directory_iterator(output / "checkpoint-7")) {
    const std::string good = contents(entry.path());
    for (int trial = 0; trial < 20; ++trial) {
      std::string bad = good;
      const auto words = philox(1, draw++, 0);
      bad[words[0] % bad.size()] ^= static_cast<char>(1 << words[1] % 8);
      put(entry.path(), bad);
      const auto errors = run_ranks<InputError>(
          1 + trial % 4, [&](Communicator& world) { Checkpoint::open_verified(output / "checkpoint-7", world); });
      EXPECT_THAT(errors, Each(errors[0]));
      EXPECT_THAT(errors[0], HasSubstr(entry.path().filename().string()));
    }
    put(entry.path(), good);
  }
  expect_complete(Checkpoint::open_verified(output / "checkpoint-7"), 0.5f);
}

TEST(CheckpointOfRanks, RefusesIfRanksSeeDifferentCheckpoints) {
  TemporaryFolder mine(memory_folder()), yours(memory_folder());
  save(mine.path(), 7, 2, 0.5f);
  save(yours.path(), 7, 2, 0.75f);
  const auto errors = run_ranks<InputError>(2, [&](Communicator& world) {
    Checkpoint::open_verified((world.rank() == 0 ? mine : yours) / "checkpoint-7", world);
  });
  EXPECT_THAT(errors, Each(HasSubstr("is a different checkpoint on rank 1 than on rank 0")));
}

// Saves over an earlier checkpoint of the same step while one rank fails. The failing rank calls `fail` before its
// first array, after its first array, or after its last array. All ranks must throw the same error, and only the
// earlier checkpoint may remain.
void expect_nobody_saves(int failing_rank, const std::function<void()>& fail, const std::string& message) {
  for (int stage = 0; stage < 3; ++stage) {
    TemporaryFolder output(memory_folder());
    save(output.path(), 7, 3, 0.5f);
    const auto errors = run_ranks(3, [&](Communicator& world) {
      const bool fails = world.rank() == failing_rank;
      write_checkpoint(output.path(), 7, world, [&](CheckpointPart& part) {
        if (fails && stage == 0) fail();
        if (fails && stage == 1) {
          part.declare({"parameters/root", 101, 0, 1}, DType::f32);
          float value = 1;
          part.write("parameters/root", view_of(&value, {1}));
          fail();
        }
        write_part(part, world.rank(), 3, 9.0f);
        if (fails && stage == 2) fail();
      });
    });
    EXPECT_THAT(errors, Each("rank " + std::to_string(failing_rank) + ": " + message));
    EXPECT_EQ(std::distance(fs::directory_iterator(output.path()), fs::directory_iterator()), 1);
    expect_complete(Checkpoint::open_verified(output / "checkpoint-7"), 0.5f);
  }
}

TEST(WriteCheckpointOfRanks, FailsOnAllRanksTogether) {
  for (int rank = 0; rank < 3; ++rank) {
    expect_nobody_saves(
        rank, [] { throw RunError("disk", "is full"); }, "disk: is full");
    expect_nobody_saves(
        rank, [] { throw RunError("", "bad luck"); }, "bad luck");
    expect_nobody_saves(
        rank, [] { throw std::bad_alloc(); },
        "out of host memory. Free memory on this machine, or use fewer ranks per machine or smaller batches");
  }
}

TEST(WriteCheckpointOfRanks, KindsOfErrorsReachTheOtherRanks) {
  const auto all_throw = [&]<typename E>(E error) {
    const auto errors = run_ranks<E>(2, [&](Communicator& world) {
      on_all_ranks(world, "a test", [&]() -> std::string {
        if (world.rank() == 1) throw error;
        return "";
      });
    });
    EXPECT_THAT(errors, Each("rank 1: where: what. remedy"));
  };
  all_throw(RunError("where", "what", "remedy"));
  all_throw(UsageError("where", "what", "remedy"));
  all_throw(InputError("where", "what", "remedy"));
  all_throw(DamageError("where", "what", "remedy"));
  all_throw(OutOfMemoryError("where", "what", "remedy"));
  all_throw(CommunicationError("where", "what", "remedy"));
}

TEST(WriteCheckpointOfRanks, FailsIfTheFolderCannotBeCreated) {
  TemporaryFolder output;
  put(output / "file", "");
  const auto errors = run_ranks<RunError>(3, [&](Communicator& world) { save(output / "file", 7, world, 1.0f); });
  EXPECT_THAT(errors, Each(errors[0]));
  EXPECT_THAT(errors[0], HasSubstr("cannot write"));
  put(output / "checkpoint-7", "in the way");
  const auto refusals = run_ranks<UsageError>(3, [&](Communicator& world) { save(output.path(), 7, world, 1.0f); });
  EXPECT_THAT(refusals, Each(HasSubstr("is not a folder")));
}

TEST(WriteCheckpointOfRanks, FailsIfItCannotBePublished) {
  TemporaryFolder output;
  const auto errors = run_ranks<RunError>(3, [&](Communicator& world) {
    write_checkpoint(output.path(), 7, world, [&](CheckpointPart& part) {
      write_part(part, world.rank(), 3, 1.0f);
      part.add_text("manifest.json", "in the way");
    });
  });
  EXPECT_THAT(errors, Each(HasSubstr("manifest.json: cannot write: File exists")));
  EXPECT_TRUE(fs::is_empty(output.path()));
}

// Imitates a rank that does not see the folder that rank 0 created: inserts "/far" before each path that the rank
// receives. The text of a successful rank begins with "+", and rank 0's path follows (store/all_ranks.cc).
class FarRank final : public ThreadCommunicator {
 public:
  using ThreadCommunicator::ThreadCommunicator;
  std::vector<std::string> all_gather_text(std::string_view text, const char* what) override {
    auto texts = ThreadCommunicator::all_gather_text(text, what);
    for (auto& other : texts) {
      if (other.starts_with("+/")) other.insert(1, "/far");
    }
    return texts;
  }
};

TEST(WriteCheckpointOfRanks, FailsIfTheRanksDoNotShareTheFolder) {
  TemporaryFolder output;
  const auto errors =
      run_ranks<RunError, FarRank>(2, [&](Communicator& world) { save(output.path(), 7, world, 1.0f); });
  EXPECT_THAT(errors, Each(HasSubstr("rank 0: /far" + output.path().string())));
  EXPECT_THAT(errors, Each(HasSubstr("must be on a file system that the machines of all ranks share")));
  EXPECT_TRUE(fs::is_empty(output.path()));
}

// The ranges of all ranks must cover each array without holes and without overlaps.
TEST(WriteCheckpointOfRanks, HolesOverlapsAndContradictionsAreErrors) {
  const auto refusal = [](const std::function<ArrayRange(int)>& range_of_rank, DType dtype_of_rank_1) {
    TemporaryFolder output(memory_folder());
    const auto errors = run_ranks<RunError>(2, [&](Communicator& world) {
      write_checkpoint(output.path(), 7, world, [&](CheckpointPart& part) {
        const ArrayRange range = range_of_rank(world.rank());
        part.declare(range, world.rank() == 1 ? dtype_of_rank_1 : DType::f32);
        std::vector<float> values(10);
        part.write(range.name, view_of(values.data(), {range.end - range.begin}));
      });
    });
    EXPECT_EQ(errors[0], errors[1]);
    EXPECT_TRUE(fs::is_empty(output.path()));
    return errors[0];
  };
  const auto cut = [](int64_t first_end, int64_t second_begin, int64_t second_total) {
    return [=](int rank) {
      return rank == 0 ? ArrayRange{"a", 6, 0, first_end} : ArrayRange{"a", second_total, second_begin, 6};
    };
  };
  EXPECT_THAT(refusal(cut(3, 4, 6), DType::f32), HasSubstr("rank 1 holds elements 4 to 6, but element 3 must"));
  EXPECT_THAT(refusal(cut(4, 3, 6), DType::f32), HasSubstr("rank 1 holds elements 3 to 6, but element 4 must"));
  EXPECT_THAT(refusal(cut(0, 3, 6), DType::f32), HasSubstr("rank 1 holds elements 3 to 6, but element 0 must"));
  EXPECT_THAT(refusal(cut(3, 6, 6), DType::f32), HasSubstr("3 of its 6 elements"));
  EXPECT_THAT(refusal(cut(3, 3, 7), DType::f32),
              HasSubstr("do not agree on array \"a\": 6 elements of f32, or 7 of f32"));
  EXPECT_THAT(refusal(cut(3, 3, 6), DType::bf16),
              HasSubstr("do not agree on array \"a\": 6 elements of f32, or 6 of bf16"));
}

// Rank 2 ends without a collective call. On the other two ranks, the communicator throws an error. They must leave no
// files of their unfinished checkpoint behind.
TEST(WriteCheckpointOfRanks, LeavesNothingWhenARankIsGone) {
  TemporaryFolder output(memory_folder());
  save(output.path(), 5, 3, 0.5f);
  const auto errors = run_ranks<CommunicationError>(3, [&](Communicator& world) {
    if (world.rank() != 2) save(output.path(), 7, world, 1.0f);
  });
  EXPECT_THAT(errors, ElementsAre(HasSubstr("a rank has left"), HasSubstr("a rank has left"), ""));
  EXPECT_EQ(std::distance(fs::directory_iterator(output.path()), fs::directory_iterator()), 1);
}

TEST(WriteCheckpointOfRanks, FullDiskIsAnErrorOfTheRankThatWrites) {
  TemporaryFolder output(memory_folder());
  save(output.path(), 5, 3, 0.5f);
  const auto errors = run_ranks<RunError>(3, [&](Communicator& world) {
    write_checkpoint(output.path(), 7, world, [&](CheckpointPart& part) {
      constexpr int64_t kHuge = int64_t{1} << 42;  // 2^44 bytes: refused before `value` is read
      float value = 1;
      if (world.rank() == 1) part.declare({"huge", kHuge, 0, kHuge}, DType::f32);
      if (world.rank() == 1) part.write("huge", view_of(&value, {kHuge}));
    });
  });
  EXPECT_THAT(errors, Each(errors[0]));
  EXPECT_THAT(errors[0], HasSubstr("rank 1: "));
  EXPECT_THAT(errors[0], HasSubstr("/rank-00001-of-00003.safetensors: cannot write 17592186"));
  EXPECT_THAT(checkpoint_steps(output.path()), ElementsAre(5));
  EXPECT_EQ(std::distance(fs::directory_iterator(output.path()), fs::directory_iterator()), 1);
}

// Kills the process, with all its ranks, when rank 0 enters a system call. Does this for every seventh system call of
// rank 0. After each kill, checkpoint-2 must have either the complete old contents or the complete new contents.
// checkpoint-1 must be complete or removed.
TEST(WriteCheckpointOfRanks, SurvivesDeathAtSystemCalls) {
  for (int n = 0;; n += 7) {
    TemporaryFolder output(memory_folder());
    save(output.path(), 1, 2, 1.0f);
    save(output.path(), 2, 2, 2.0f);
    const auto outcome = kill_at_syscall(n, [&] {
      const auto errors = run_ranks(3, [&](Communicator& world) {
        save(output.path(), 2, world, 3.0f);
        rotate_checkpoints(output.path(), world, {1, {}, {}});
      });
      if (errors != std::vector<std::string>(3)) throw std::runtime_error("failed");
    });
    if (outcome == KillOutcome::not_permitted) GTEST_SKIP() << "this process cannot trace a child";
    remove_stale_temporaries(output.path());
    const auto steps = checkpoint_steps(output.path());
    EXPECT_EQ(std::distance(fs::directory_iterator(output.path()), fs::directory_iterator()),
              static_cast<std::ptrdiff_t>(steps.size()))
        << n;
    const auto newest = Checkpoint::open_verified(output / "checkpoint-2");
    expect_complete(newest, newest.world_size() == 2 ? 2.0f : 3.0f);
    if (steps.size() == 2) expect_complete(Checkpoint::open_verified(output / "checkpoint-1"), 1.0f);
    if (outcome == KillOutcome::finished) {
      EXPECT_THAT(steps, ElementsAre(2));
      EXPECT_EQ(newest.world_size(), 3);
      EXPECT_GT(n, 20);
      break;
    }
  }
}

TEST(LatestCheckpointOfRanks, AllChooseTheSameAndRankZeroWarns) {
  TemporaryFolder output(memory_folder());
  for (int step : {9, 10, 11}) save(output.path(), step, 3, 1.0f);
  fs::resize_file(output / "checkpoint-11/rank-00002-of-00003.safetensors", 100);
  std::vector<std::vector<std::string>> warnings(2);
  const auto latest = [&](Communicator& world) {
    const auto warn = [&](const std::string& text) { warnings[static_cast<size_t>(world.rank())].push_back(text); };
    return latest_checkpoint(output.path(), world, warn);
  };
  EXPECT_THAT(run_ranks(2, [&](Communicator& world) { EXPECT_EQ(latest(world).value().step(), 10); }), Each(""));
  EXPECT_THAT(warnings[0], ElementsAre(HasSubstr("checkpoint-11/rank-00002-of-00003.safetensors: has 100 bytes")));
  EXPECT_THAT(warnings[1], IsEmpty());

  EXPECT_THAT(run_ranks(2,
                        [&](Communicator& world) {
                          rotate_checkpoints(output.path(), world, {1, {}, {}});
                        }),
              Each(""));
  EXPECT_THAT(checkpoint_steps(output.path()), ElementsAre(10, 11));  // 11 is damaged: not counted, not removed

  put(output / "checkpoint-10/manifest.json", "");
  EXPECT_THAT(run_ranks<InputError>(2, [&](Communicator& world) { latest(world); }),
              Each(HasSubstr("every one of them is damaged")));
  for (int step : {10, 11}) fs::remove_all(checkpoint_folder(output.path(), step));
  EXPECT_THAT(run_ranks(2, [&](Communicator& world) { EXPECT_FALSE(latest(world).has_value()); }), Each(""));
}

}  // namespace
}  // namespace tessera
