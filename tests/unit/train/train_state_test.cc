// Tests TrainState, the part of a run's state that a checkpoint stores in trainer_state.json.
#include "tessera/train/train_state.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "tessera/base/error.h"

namespace tessera {
namespace {

const Record kFingerprint{{"seed", int64_t{7}}};

TrainState there_and_back(const TrainState& state) {
  return TrainState::from_json(state.to_json(kFingerprint), kFingerprint, "trainer_state.json");
}

TEST(TrainState, ComesBackAsItWas) {
  TrainState state;
  state.step = 12;
  state.num_updates = 11;
  state.total_loss = 0.1 + 0.2;
  state.best_metric = 0.75;
  state.fused_micro_batches = true;
  state.loss_scale = {.scale = 1024, .clean_steps = 3, .hysteresis_left = 1};
  state.loss_steps = 10;
  state.loaded_types = {{"a", DType::bf16}, {"b", DType::f32}, {"c", DType::f16}};
  state.health = {.num_without_targets = 4,
                  .num_skipped = 5,
                  .skipped_in_a_row = 2,
                  .warned_of_loss = true,
                  .losses = {7.5, 0.1 + 0.2, 0.25, 3.5, {7.5, 1e30, 0.1}},
                  .sound_checkpoint = 9};
  state.before = {.loss = 2.5, .answers = AnswerMetrics{.exact_match = 0.1, .f1 = 0.3}};
  state.rows = {{1, 2.5, {.loss = 2, .answers = AnswerMetrics{0.1, 0.2, {{0.1, 0.3, 7}}, {{1.0 / 3, 1.0 / 3, 9}}}}}};
  const TrainState back = there_and_back(state);
  ASSERT_TRUE(back.before.answers && back.rows.at(0).eval.answers);
  EXPECT_FALSE(back.before.answers->with_answer || back.before.answers->without_answer);
  EXPECT_EQ(answer_record(*back.rows[0].eval.answers), answer_record(*state.rows[0].eval.answers));
  EXPECT_EQ(back.step, 12);
  EXPECT_EQ(back.num_updates, 11);
  EXPECT_EQ(back.total_loss, state.total_loss);
  EXPECT_EQ(back.best_metric, 0.75);
  EXPECT_EQ(back.fused_micro_batches, true);
  ASSERT_TRUE(back.loss_scale);
  EXPECT_EQ(back.loss_scale->scale, 1024);
  EXPECT_EQ(back.loaded_types, state.loaded_types);
  EXPECT_EQ(back.loss_steps, 10);
  EXPECT_EQ(back.health.num_without_targets, 4);
  EXPECT_EQ(back.health.num_skipped, 5);
  EXPECT_EQ(back.health.skipped_in_a_row, 2);
  EXPECT_TRUE(back.health.warned_of_loss);
  EXPECT_EQ(back.health.losses, state.health.losses);
  EXPECT_EQ(back.health.sound_checkpoint, 9);
  EXPECT_EQ(back.to_json(kFingerprint), state.to_json(kFingerprint));
}

// Values that were not set are missing in the file. Files of older versions also lack fused_micro_batches and
// loaded_types.
TEST(TrainState, WhatWasNotSetIsNotKnown) {
  const TrainState back = there_and_back({});
  EXPECT_EQ(back.fused_micro_batches, std::nullopt);
  EXPECT_EQ(back.best_metric, std::nullopt);
  EXPECT_EQ(back.loaded_types, std::nullopt);
  EXPECT_FALSE(back.loss_scale);
  EXPECT_EQ(back.health.losses, LossWatch::State());
}

// Older checkpoints have no `health` and no `loss_steps`. Instead, `loss_scale` has the number of updates that fp16
// training skipped, and `step` also serves as loss_steps.
TEST(TrainState, ReadsTheCountsOfEarlierVersions) {
  TrainState state;
  state.step = 12;
  state.loss_scale = {.scale = 1024};
  Record record = record_from_json(state.to_json(kFingerprint), "state");
  record.erase("health");
  record.erase("loss_steps");
  Record scale = record["loss_scale"];
  scale["num_skipped"] = 3;
  record["loss_scale"] = scale;
  const TrainState back = TrainState::from_json(to_json(record), kFingerprint, "state");
  EXPECT_EQ(back.health.num_skipped, 3);
  EXPECT_EQ(back.health.skipped_in_a_row, 0);
  EXPECT_EQ(back.health.sound_checkpoint, -1);
  EXPECT_EQ(back.loss_steps, 12);
}

TEST(TrainState, UnknownTypesAreRefused) {
  TrainState state;
  state.loaded_types = {{"a", DType::bf16}};
  for (const Record& wrong : {Record("f64"), Record(3), Record()}) {
    Record record = record_from_json(state.to_json(kFingerprint), "state");
    record["loaded_types"] = Record{{"a", wrong}};
    EXPECT_THROW(TrainState::from_json(to_json(record), kFingerprint, "state"), InputError) << wrong;
  }
}

// Calls `check` with the record, in which each value in turn, at any depth, is removed or replaced by an odd value.
void for_each_edit(const Record& original, const std::function<void(const Record&, const std::string&)>& check) {
  const Record odd[] = {nullptr,
                        true,
                        -1,
                        -5,
                        1e300,
                        -0.5,
                        9'000'000'000'000'000'000,
                        ~uint64_t{0},
                        "",
                        "7",
                        std::string("a\0b", 3),
                        Record::array(),
                        Record::array({"x", -1}),
                        Record::object()};
  const Record flat = original.flatten();
  std::set<std::string> places;
  for (const auto& [place, value] : flat.items()) {
    for (size_t end = place.find('/', 1); end != std::string::npos; end = place.find('/', end + 1)) {
      places.insert(place.substr(0, end));
    }
    places.insert(place);
  }
  for (const std::string& place : places) {
    const Record::json_pointer pointer(place);
    for (const Record& value : odd) {
      Record edited = original;
      edited[pointer] = value;
      check(edited, place + " = " + value.dump());
    }
    Record edited = original;
    Record& parent = edited[pointer.parent_pointer()];
    if (parent.is_object()) parent.erase(pointer.back());
    check(edited, place + " removed");
  }
}

TEST(TrainState, EditedFilesAreReadOrRefused) {
  TrainState state;
  state.step = 12;
  state.num_updates = 11;
  state.best_metric = 0.75;
  state.loss_scale = {.scale = 1024, .clean_steps = 3, .hysteresis_left = 1};
  state.loaded_types = {{"a", DType::bf16}};
  state.health = {.num_without_targets = 4,
                  .num_skipped = 5,
                  .skipped_in_a_row = 2,
                  .warned_of_loss = true,
                  .losses = {7.5, 0.25, 0.5, 3.5, {7.5, 1, 0.1}},
                  .sound_checkpoint = 9};
  state.rows = {
      {.epoch = 1, .train_loss = 2, .eval = {.loss = 3, .answers = AnswerMetrics{.exact_match = 0.5, .f1 = 0.25}}}};
  state.stop_steps = {3, 12};
  state.origin = "there";
  const Record fingerprint{{"seed", int64_t{7}}, {"max_steps", int64_t{3}}, {"epochs", 2.5}};
  int num_refused = 0;
  for_each_edit(record_from_json(state.to_json(fingerprint), "state"), [&](const Record& edited,
                                                                           const std::string& edit) {
    const std::string text = to_json(edited);
    try {
      TrainState::fingerprint_in(text, "state");
      const TrainState read = TrainState::from_json(text, "state");
      for (const int64_t count : {read.step, read.num_samples, read.num_tokens, read.metrics_bytes, read.num_updates}) {
        EXPECT_TRUE(count >= 0 && count <= 1'000'000'000'000'000) << edit;
      }
    } catch (const InputError& error) {
      ++num_refused;
      EXPECT_EQ(std::string(error.what()).find('\0'), std::string::npos) << edit;
    }  // any other exception fails the test
  });
  EXPECT_GT(num_refused, 400);
  Record edited = record_from_json(state.to_json(fingerprint), "state");
  edited["num_updates"] = 13;
  try {
    TrainState::from_json(to_json(edited), "state");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(),
                 "state: the key \"num_updates\" is 13, but must be a whole number from 0 to 12. The file was "
                 "edited or damaged: put the original back, name an earlier checkpoint with --resume, or "
                 "use --resume none");
  }
}

TEST(TrainState, TheStateOfAnotherRunIsRefused) {
  EXPECT_THROW(TrainState::from_json(TrainState{}.to_json(kFingerprint), {{"seed", int64_t{8}}}, "state"), UsageError);
}

}  // namespace
}  // namespace tessera
