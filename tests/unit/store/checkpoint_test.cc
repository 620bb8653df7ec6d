// Tests that a checkpoint is complete or absent, that damage in any file is found, and that the newest valid checkpoint
// is never removed.
#include "tessera/store/checkpoint.h"

#include <numeric>

#include "kill_at_syscall.h"
#include "store_test_util.h"
#include "tessera/store/atomic_folder.h"
#include "tessera/store/checked_files.h"
#include "tessera/store/checksum.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Saves a small checkpoint. All elements of its arrays are `value`.
void save(const fs::path& output, int64_t step, float value) {
  const auto alone = make_self_communicator();
  write_checkpoint(output, step, *alone, [&](CheckpointPart& part) {
    std::vector<float> parameters(10, value), moments(5, value);
    part.declare({"parameters/root", 10, 0, 10}, DType::f32);
    part.declare({"optimizer.m/h.0", 5, 0, 5}, DType::bf16);
    part.add_text("trainer_state.json", "{\"value\": " + std::to_string(value) + "}\n");
    part.write("optimizer.m/h.0", view_of(moments.data(), {5}));
    part.write("parameters/root", view_of(parameters.data(), {10}));
  });
}

float value_of(const Checkpoint& checkpoint) {
  std::vector<float> parameters(10), moments(5);
  checkpoint.read_range({"parameters/root", 10, 0, 10}, view_of(parameters.data(), {10}));
  checkpoint.read_range({"optimizer.m/h.0", 5, 0, 5}, view_of(moments.data(), {5}));
  EXPECT_EQ(parameters, std::vector<float>(10, parameters[0]));
  EXPECT_EQ(moments, std::vector<float>(5, parameters[0]));
  EXPECT_EQ(checkpoint.trainer_state(), "{\"value\": " + std::to_string(parameters[0]) + "}\n");
  return parameters[0];
}

std::string refusal(const fs::path& folder) {
  return error_of<InputError>([&] { Checkpoint::open_verified(folder); });
}

void rotate(const fs::path& output, int keep, const std::set<int64_t>& protected_steps) {
  const auto alone = make_self_communicator();
  rotate_checkpoints(output, *alone, {keep, protected_steps, {}});
}

// Returns the step of the newest complete checkpoint, or -1 if none exists. Appends warnings to `warnings`.
int64_t latest_step(const fs::path& output, std::vector<std::string>& warnings) {
  const auto alone = make_self_communicator();
  const auto warn = [&](const std::string& text) { warnings.push_back(text); };
  const auto checkpoint = latest_checkpoint(output, *alone, warn);
  return checkpoint ? checkpoint->step() : -1;
}

TEST(Checkpoint, ReadsBackWhatWasWritten) {
  TemporaryFolder output;
  save(output.path(), 12, 1.5f);
  ThreadPool pool(2);
  const auto checkpoint = Checkpoint::open_verified(output / "checkpoint-12", &pool);
  EXPECT_EQ(checkpoint.step(), 12);
  EXPECT_EQ(value_of(checkpoint), 1.5f);
  EXPECT_TRUE(fs::exists(output / "checkpoint-12/rank-00000-of-00001.safetensors"));
  float two[2];
  const View target = view_of(two, {2});
  EXPECT_THAT(error_of<InputError>([&] {
                checkpoint.read_range({"parameters/root", 2, 0, 2}, target);
              }),
              HasSubstr("has 10 elements, but this run needs 2"));
  EXPECT_THAT(error_of<InputError>([&] {
                checkpoint.read_range({"parameters/h.1", 2, 0, 2}, target);
              }),
              HasSubstr("has no array \"parameters/h.1\""));
  EXPECT_THAT(error_of<InputError>([&] { checkpoint.text("other.json"); }), HasSubstr("other.json"));
}

TEST(Checkpoint, SameStepIsReplacedAlsoIfDamaged) {
  TemporaryFolder output;
  save(output.path(), 12, 1.0f);
  save(output.path(), 12, 2.0f);
  EXPECT_EQ(value_of(Checkpoint::open_verified(output / "checkpoint-12")), 2.0f);
  fs::remove(output / "checkpoint-12/manifest.json");
  save(output.path(), 12, 3.0f);
  EXPECT_EQ(value_of(Checkpoint::open_verified(output / "checkpoint-12")), 3.0f);
}

TEST(Checkpoint, EveryFlippedBitIsFound) {
  TemporaryFolder output(memory_folder());
  save(output.path(), 12, 1.0f);
  for (const auto& entry : fs::directory_iterator(output / "checkpoint-12")) {
    const std::string name = entry.path().filename();
    const std::string good = contents(entry.path());
    for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
      std::string bad = good;
      bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
      put(entry.path(), bad);
      ASSERT_THAT(refusal(output / "checkpoint-12"), HasSubstr(name)) << bit;
    }
    put(entry.path(), good);
  }
  EXPECT_EQ(refusal(output / "checkpoint-12"), "");
}

TEST(Checkpoint, MissingAndTruncatedFilesAreFound) {
  TemporaryFolder output;
  save(output.path(), 12, 1.0f);
  for (const auto& entry : fs::directory_iterator(output / "checkpoint-12")) {
    const std::string name = entry.path().filename();
    const std::string good = contents(entry.path());
    fs::remove(entry.path());
    EXPECT_THAT(refusal(output / "checkpoint-12"), HasSubstr(name));
    for (const std::string& bad : {std::string(), good.substr(0, good.size() - 1), good + " "}) {
      put(entry.path(), bad);
      EXPECT_THAT(refusal(output / "checkpoint-12"), HasSubstr(name)) << bad.size();
    }
    put(entry.path(), good);
  }
  EXPECT_THAT(refusal(output / "checkpoint-13"), HasSubstr("no such checkpoint"));
}

// A checkpoint may refer to files outside for an array. Every difference between these files and their record is an
// error, which is not damage of the checkpoint: a run must not use an older checkpoint, which refers to the same files.
TEST(Checkpoint, EveryFlippedBitOfAReferencedFileIsFound) {
  TemporaryFolder output(memory_folder());
  const fs::path base = output / "base", files[] = {base / "a", base / "b"};
  fs::create_directory(base);
  put(files[0], "some weights");
  put(files[1], "");
  const auto alone = make_self_communicator();
  ThreadPool pool(2);
  const ReferencedFiles reference{base, record_files(base, {"a", "b"}, *alone, pool)};
  write_checkpoint(output.path(), 4, *alone, [&](CheckpointPart& part) {
    part.refer("frozen/root", 6, DType::bf16, reference);
    part.add_text("trainer_state.json", "{}\n");
  });
  const auto checkpoint = Checkpoint::open_verified(output / "checkpoint-4");
  EXPECT_TRUE(checkpoint.array("frozen/root").is_referenced);
  EXPECT_EQ(checkpoint.array("frozen/root").dtype, DType::bf16);
  const auto error = [&] { return error_of<InputError>([&] { checkpoint.check_reference(*alone, &pool); }); };
  EXPECT_EQ(error(), "");
  for (size_t bit = 0; bit < 8 * 12; ++bit) {
    std::string bad = "some weights";
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    put(files[0], bad);
    EXPECT_THAT(error(), HasSubstr("base/a: bytes 0 to 12 differ from what was written")) << bit;
  }
  put(files[0], "some weights");
  put(files[1], "more");
  EXPECT_THAT(error(), HasSubstr("base/b: has 4 bytes instead of 0"));
  fs::remove_all(base);
  EXPECT_THAT(error(), HasSubstr("base/a: no such file. " + (output / "checkpoint-4").string() + " needs this file"));
  EXPECT_THAT(error(), HasSubstr("ln -s NEW_FOLDER " + base.string()));
  EXPECT_EQ(refusal(output / "checkpoint-4"), "");
}

TEST(Manifest, InvalidContentIsAnError) {
  TemporaryFolder folder;
  const auto message = [&](const Manifest& manifest) {
    put(folder / "m", manifest_text(manifest));
    return error_of<InputError>([&] { read_manifest(folder / "m"); });
  };
  const auto pieces = [&](std::vector<ArrayPiece> list) {
    return message({3, 2, {}, {{"a", DType::f32, 6, std::move(list)}}});
  };
  EXPECT_EQ(pieces({{1, 0, 4}, {0, 4, 6}}), "");
  EXPECT_THAT(message({3, 1, {{"../secret", {{0, 1, 2}}}}, {}}), HasSubstr("outside the checkpoint"));
  EXPECT_THAT(pieces({{0, 0, 4}, {2, 4, 6}}), HasSubstr("a piece of rank 2, but the ranks are 0 to 1"));
  EXPECT_THAT(pieces({{0, 0, 4}, {1, 5, 6}}), HasSubstr("rank 1 holds elements 5 to 6, but element 4 must"));
  EXPECT_THAT(pieces({{0, 0, 4}, {1, 3, 6}}), HasSubstr("rank 1 holds elements 3 to 6, but element 4 must"));
  EXPECT_THAT(pieces({{0, 0, 4}}), HasSubstr("its pieces have 4 of its 6 elements"));
  EXPECT_THAT(pieces({{0, 0, 4}, {1, 4, 4}, {1, 4, 6}}), HasSubstr("rank 1 holds elements 4 to 4"));
  EXPECT_EQ(message({3, 1, {}, {{"a", DType::f32, 6, {}, true}}, ReferencedFiles{"/base", {}}}), "");
  EXPECT_THAT(message({3, 1, {}, {{"a", DType::f32, 6, {}, true}}}),
              HasSubstr("refers to files that it does not name"));
  EXPECT_THAT(message({3, 1, {}, {{"a", DType::f32, 6, {{0, 0, 6}}, true}}, ReferencedFiles{"/base", {}}}),
              HasSubstr("is in other files, but has pieces"));
}

TEST(Manifest, FilesThatDoNotMatchAreAnError) {
  TemporaryFolder folder;
  save(folder.path(), 3, 1.0f);
  Manifest manifest = read_manifest(folder / "checkpoint-3/manifest.json");
  manifest.arrays[0].total_elems = manifest.arrays[0].pieces[0].end = 9;
  put(folder / "checkpoint-3/manifest.json", manifest_text(manifest));
  const auto checkpoint = Checkpoint::open_verified(folder / "checkpoint-3");
  float nine[9];
  const auto read = [&] { checkpoint.read_range({"parameters/root", 9, 0, 9}, view_of(nine, {9})); };
  EXPECT_THAT(error_of<InputError>(read), HasSubstr("does not match the manifest"));
  manifest.files.pop_back();  // the file of the rank
  put(folder / "checkpoint-3/manifest.json", manifest_text(manifest));
  EXPECT_THAT(refusal(folder / "checkpoint-3"), HasSubstr("has no file \"rank-00000-of-00001.safetensors\""));
}

TEST(LatestCheckpoint, DamagedOnesAreReportedAndSkipped) {
  TemporaryFolder output;
  std::vector<std::string> warnings;
  EXPECT_EQ(latest_step(output / "none", warnings), -1);
  for (int step : {9, 10, 100}) save(output.path(), step, 1.0f);
  fs::create_directory(output / "checkpoint-007");
  fs::create_directory(output / "checkpoint-x");
  put(output / "checkpoint-1000", "a file");
  EXPECT_EQ(latest_step(output.path(), warnings), 100);
  EXPECT_THAT(warnings, IsEmpty());
  fs::remove(output / "checkpoint-100/manifest.json");
  fs::remove(output / "checkpoint-10/trainer_state.json");
  EXPECT_EQ(latest_step(output.path(), warnings), 9);
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("checkpoint-100/manifest.json"), HasSubstr("10/trainer_state.json")));
}

TEST(LatestCheckpoint, OnlyDamagedOnesAreAnError) {
  TemporaryFolder output;
  for (int step : {9, 10}) {
    save(output.path(), step, 1.0f);
    put(checkpoint_folder(output.path(), step) / "trainer_state.json", "{}");
  }
  std::vector<std::string> warnings;
  const std::string message = error_of<InputError>([&] { latest_step(output.path(), warnings); });
  EXPECT_THAT(message, HasSubstr(output.path().string() + ": has checkpoints, but every one of them is damaged"));
  EXPECT_THAT(message, HasSubstr("resume none"));
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("checkpoint-10/"), HasSubstr("checkpoint-9/")));
}

TEST(RotateCheckpoints, KeepsTheNewestAndTheProtected) {
  TemporaryFolder output;
  for (int step : {1, 2, 3, 4, 5}) save(output.path(), step, 1.0f);
  rotate(output.path(), 2, {2});
  EXPECT_THAT(checkpoint_steps(output.path()), ElementsAre(2, 4, 5));
  rotate(output.path(), 1, {2});
  EXPECT_THAT(checkpoint_steps(output.path()), ElementsAre(2, 5));
}

TEST(RotateCheckpoints, DamagedOnesDoNotCount) {
  TemporaryFolder output;
  for (int step : {1, 2, 3}) save(output.path(), step, 1.0f);
  fs::remove(output / "checkpoint-3/manifest.json");
  fs::resize_file(output / "checkpoint-2/rank-00000-of-00001.safetensors", 100);
  rotate(output.path(), 1, {});
  EXPECT_THAT(checkpoint_steps(output.path()), ElementsAre(1, 2, 3));
  std::vector<std::string> warnings;
  EXPECT_EQ(latest_step(output.path(), warnings), 1);
}

TEST(RotateCheckpoints, ReplacedOnesAreRemovedWhenANewerOneIsComplete) {
  TemporaryFolder output;
  for (int step : {1, 2, 3, 4, 5}) save(output.path(), step, 1.0f);
  const auto alone = make_self_communicator();
  // Of the replaced checkpoints 2, 3 and 5, only 3 is removed: 2 is protected, and 5 is the newest checkpoint.
  rotate_checkpoints(output.path(), *alone, {0, {2}, {2, 3, 5}});
  EXPECT_THAT(checkpoint_steps(output.path()), ElementsAre(1, 2, 4, 5));
  // Without its manifest, checkpoint 5 is not complete. Checkpoint 4 is then the newest complete checkpoint and stays.
  fs::remove(output / "checkpoint-5/manifest.json");
  rotate_checkpoints(output.path(), *alone, {1, {}, {4}});
  EXPECT_THAT(checkpoint_steps(output.path()), ElementsAre(4, 5));
}

TEST(SetCheckpointsAside, TakesFreeNames) {
  TemporaryFolder output;
  for (int step : {1, 2, 3}) save(output.path(), step, 1.0f);
  fs::create_directory(output / "checkpoint-3.damaged");
  put(output / "checkpoint-3.damaged-2", "");
  std::vector<std::string> notes;
  const auto alone = make_self_communicator();
  set_checkpoints_aside(output.path(), *alone, 1, "damaged", [&](const std::string& text) { notes.push_back(text); });
  EXPECT_THAT(checkpoint_steps(output.path()), ElementsAre(1));
  EXPECT_EQ(value_of(Checkpoint::open_verified(output / "checkpoint-3.damaged-3")), 1.0f);
  EXPECT_THAT(notes, ElementsAre(HasSubstr("checkpoint-2 is now checkpoint-2.damaged: "),
                                 HasSubstr("checkpoint-3 is now checkpoint-3.damaged-3: ")));
}

// If a checkpoint cannot be read for a reason other than damage, it is not skipped: the error is thrown. The test has
// two such cases: a folder in place of a file, and a manifest of another version.
TEST(LatestCheckpoint, OtherErrorsThanDamageAreThrown) {
  TemporaryFolder output;
  for (int step : {9, 10}) save(output.path(), step, 1.0f);
  const std::string manifest = contents(output / "checkpoint-10/manifest.json");
  std::vector<std::string> warnings;
  fs::remove(output / "checkpoint-10/trainer_state.json");
  fs::create_directory(output / "checkpoint-10/trainer_state.json");
  EXPECT_THAT(error_of<InputError>([&] { latest_step(output.path(), warnings); }),
              HasSubstr("is a folder, not a file"));
  std::string other = manifest;
  other.replace(other.find("\"schema_version\": 2"), 19, "\"schema_version\": 9");
  const size_t digits = other.find(": \"") + 3;
  other.replace(digits, 16, 16, '0');
  other.replace(digits, 16, checksum_text(checksum_of(other.data(), other.size())));
  put(output / "checkpoint-10/manifest.json", other);
  EXPECT_THAT(error_of<InputError>([&] { latest_step(output.path(), warnings); }), HasSubstr("has schema_version 9"));
  EXPECT_THAT(warnings, IsEmpty());
}

// A child process makes two saves and one rotation, and is killed at one of its system calls. The test repeats this for
// every system call. After each kill, all checkpoints in the folder are complete. Each save and the rotation had either
// its complete effect or no effect.
TEST(WriteCheckpoint, SurvivesDeathAtAnySystemCall) {
  for (int n = 0;; ++n) {
    TemporaryFolder output(memory_folder());
    save(output.path(), 1, 1.0f);
    save(output.path(), 2, 2.0f);
    const auto outcome = kill_at_syscall(n, [&] {
      save(output.path(), 2, 3.0f);  // replaces a checkpoint
      save(output.path(), 4, 4.0f);  // a new checkpoint
      rotate(output.path(), 1, {2});
    });
    if (outcome == KillOutcome::not_permitted) GTEST_SKIP() << "this process cannot trace a child";
    remove_stale_temporaries(output.path());
    const auto steps = checkpoint_steps(output.path());
    std::vector<float> values;
    for (const int64_t step : steps)
      values.push_back(value_of(Checkpoint::open_verified(output / ("checkpoint-" + std::to_string(step)))));
    const auto num_entries = std::distance(fs::directory_iterator(output.path()), fs::directory_iterator());
    EXPECT_EQ(static_cast<size_t>(num_entries), steps.size()) << n;
    // The values of the checkpoints after no operation, after the first save, after both saves, and after the rotation.
    const std::vector<std::vector<float>> possible{{1, 2}, {1, 3}, {1, 3, 4}, {3, 4}};
    EXPECT_THAT(possible, testing::Contains(values)) << n;
    if (outcome == KillOutcome::finished) {
      EXPECT_THAT(values, ElementsAre(3, 4));
      EXPECT_GT(n, 20);
      break;
    }
  }
}

}  // namespace
}  // namespace tessera
