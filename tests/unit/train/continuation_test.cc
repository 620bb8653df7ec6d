#include "tessera/train/continuation.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tessera/base/random.h"
#include "tessera/base/read_file.h"
#include "tessera/settings/resolve.h"
#include "tessera/train/train_state.h"

namespace tessera {
namespace {

ModelConfig bloom() {
  ModelConfig config;
  config.architecture = "bloom";
  return config;
}

using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> keys_of(const std::vector<Change>& changes) {
  std::vector<std::string> keys;
  for (const Change& change : changes) keys.push_back(change.key);
  return keys;
}

Record fingerprint(const Settings& settings) {
  return train_fingerprint(settings, bloom(), {}, 1);
}

TEST(Continuation, LengthMayChangeAnywhereAndRatesInANewFolder) {
  Settings now;
  now.max_steps = 8;
  now.epochs = 5;
  const auto longer = changes_between(fingerprint({}), fingerprint(now));
  EXPECT_THAT(keys_of(longer), testing::ElementsAre("epochs", "max_steps"));
  EXPECT_THAT(forbidden_among(longer, false), IsEmpty());
  now.lr = 1e-3;
  now.seed = 7;
  const auto changes = changes_between(fingerprint({}), fingerprint(now));
  EXPECT_THAT(keys_of(forbidden_among(changes, false)), testing::ElementsAre("seed", "lr"));
  EXPECT_THAT(keys_of(forbidden_among(changes, true)), testing::ElementsAre("seed"));
  EXPECT_EQ(listed(forbidden_among(changes, false)),
            "was made with seed = 42, and this run has 7; with lr = 5e-05, and this run has 0.001");
}

// The number of ranks and the number of micro-batches per step and rank may change if their product stays the same. A
// run with batch_tokens cannot continue a run with batch_size, and a run with batch_size cannot continue a run with
// batch_tokens.
TEST(Continuation, MicroBatches) {
  const auto of = [](int64_t size, int64_t tokens, int64_t grad_accum, int ranks) {
    Settings s;
    s.batch_size = size, s.batch_tokens = tokens, s.grad_accum = grad_accum;
    return train_fingerprint(s, bloom(), {}, ranks);
  };
  EXPECT_THAT(changes_between(of(0, 600, 4, 1), of(0, 600, 1, 4)), IsEmpty());
  EXPECT_THAT(keys_of(forbidden_among(changes_between(of(0, 600, 4, 1), of(0, 600, 4, 2)), true)),
              testing::ElementsAre("grad_accum x ranks"));
  EXPECT_THAT(keys_of(forbidden_among(changes_between(of(0, 600, 1, 1), of(0, 601, 1, 1)), true)),
              testing::ElementsAre("batch_tokens"));
  EXPECT_FALSE(forbidden_among(changes_between(of(0, 600, 1, 1), of(4, 0, 1, 1)), true).empty());
  EXPECT_FALSE(forbidden_among(changes_between(of(4, 0, 1, 1), of(0, 600, 1, 1)), true).empty());
}

// A checkpoint of a version that filled micro-batches by tokens in order cannot continue, because its steps have other
// samples. Without shuffling, the samples are the same.
TEST(Continuation, MicroBatchesOfAnOlderVersion) {
  Settings s;
  s.batch_tokens = 600;
  Record older = fingerprint(s);
  older.erase(kPackingKey);
  const auto forbidden = forbidden_among(changes_between(older, fingerprint(s)), true);
  EXPECT_EQ(listed(forbidden),
            "was made with micro-batches = \"filled in order by an older version\", and this run has \"packed by best "
            "fit\"");
  EXPECT_EQ(
      remedy_for_older_program(forbidden, "out/checkpoint-5"),
      "Continue with the version of Tessera that made it, or give --model out/checkpoint-5 and another --output-dir "
      "to train its model further in a new run");
  s.shuffle = false;
  EXPECT_FALSE(fingerprint(s).contains(kPackingKey));
  EXPECT_EQ(remedy_for_older_program(changes_between(older, fingerprint(s)), "x"), "");
}

// A checkpoint contains the fingerprint of its run: the settings that the trainer compares when another run continues
// from it. This test changes one key at a time. In the same folder, only the keys that set the length of the run, and
// the instruction set, may change. In a new folder, these keys and some others may change.
TEST(Continuation, EveryKeyIsJudged) {
  const Record then = fingerprint({});
  int num_in_a_new_folder = 0, num_always = 0;
  const auto is_recorded = [](const std::string& key) {
    const Setting* setting = find_setting(key);
    return setting && setting->is_recorded();
  };
  for (const auto& [key, value] : then.items()) {
    Record now = then;
    now[key] = "another";
    const auto changes = changes_between(then, now);
    ASSERT_EQ(keys_of(changes), std::vector<std::string>{key});
    const bool here = forbidden_among(changes, false).empty(), elsewhere = forbidden_among(changes, true).empty();
    EXPECT_TRUE(elsewhere || !here) << key;
    num_always += here;
    num_in_a_new_folder += elsewhere && !here;
    now.erase(key);
    const auto since = changes_between(now, then);  // here, `now` is an old checkpoint without this key
    // A key that the checkpoint lacks is no change if the run has the setting's default, or an empty text as a fact.
    if (value == "" || is_recorded(key)) {
      EXPECT_THAT(since, IsEmpty()) << key;
    } else {
      EXPECT_EQ(since.at(0).then, "nothing") << key;
    }
    EXPECT_THAT(changes_between(then, now), IsEmpty());
  }
  EXPECT_EQ(num_always, 3);
  EXPECT_EQ(num_in_a_new_folder, 25);
  const int num_recorded = static_cast<int>(std::ranges::count_if(all_settings(), &Setting::is_recorded));
  EXPECT_EQ(std::ranges::count_if(then.items(), [&](const auto& entry) { return is_recorded(entry.key()); }),
            num_recorded);
}

// A checkpoint that is older than a setting has the value that was always used: fp32 states, and the text "No Answer".
TEST(Continuation, OldCheckpointsHaveTheValuesOfTheirVersion) {
  Record then = fingerprint({});
  then.erase("optimizer_states");
  then.erase("unanswerable_text");
  EXPECT_THAT(changes_between(then, fingerprint({})), IsEmpty());
  Settings now;
  now.optimizer_states = Settings::OptimizerStates::bf16;
  EXPECT_THAT(keys_of(changes_between(then, fingerprint(now))), testing::ElementsAre("optimizer_states"));
  Settings other;
  other.unanswerable_text = "";
  EXPECT_THAT(keys_of(forbidden_among(changes_between(then, fingerprint(other)), true)),
              testing::ElementsAre("unanswerable_text"));
  EXPECT_EQ(listed(changes_between(fingerprint(now), fingerprint({}))),
            "was made with optimizer_states = \"bf16\", and this run has \"fp32\"");
}

// The settings that version 0.2.0 recorded, with their defaults. Another name or value would refuse its checkpoints.
TEST(Continuation, RecordsWhatEarlierVersionsRecorded) {
  const Record recorded = Record::parse(R"({"seed": 42, "shuffle": true, "objective": "completion", "max_length": 512,
      "truncation": "context", "unanswerable_text": "No Answer", "eos_token": "", "epochs": 3.0, "max_steps": 0,
      "lr": 5e-05, "weight_decay": 0.01, "beta1": 0.9, "beta2": 0.999, "adam_epsilon": 1e-08, "max_grad_norm": 1.0,
      "lr_schedule": "linear", "warmup_steps": 0, "warmup_ratio": 0.0, "warmup_type": "linear", "warmup_min_lr": 0.0,
      "lr_decay_steps": 0, "min_lr": 0.0, "lr_num_cycles": 0.0, "lr_power": 1.0, "lr_timescale": 0,
      "num_decay_steps": 0, "decay_type": "cosine", "precision": "auto", "optimizer_states": "fp32", "freeze": "",
      "load_best_model_at_end": false, "metric_for_best_model": "eval_loss", "hidden_dropout": 0.0,
      "attention_dropout": 0.0, "batch_size x grad_accum x ranks": 4})");
  const Record now = fingerprint({});
  for (const auto& [key, value] : recorded.items()) EXPECT_EQ(now.value(key, Record()), value) << key;
}

TEST(Continuation, TheNoteSaysWhatTheScheduleDoes) {
  Settings s;
  s.lr = 1;
  EXPECT_EQ(
      note_of_length(s, 4, 8, 4, 4),
      "The run has 8 steps now instead of 4. The finished steps keep their learning rates. From here on, the rate "
      "decays until step 8 instead of step 4. The rate of step 5 is 0.5, but with 4 steps it would be 0");
  s.lr_decay_steps = 100;
  EXPECT_THAT(note_of_length(s, 4, 8, 4, 4), HasSubstr("does not depend"));
  s.lr_decay_steps = 0;
  s.lr_schedule = Schedule::constant;
  EXPECT_THAT(note_of_length(s, 4, 8, 4, 4), HasSubstr("does not depend"));
  EXPECT_THAT(note_of_length(s, 8, 4, 4, 4), HasSubstr("all of them are done"));
  s.warmup_ratio = 0.5;
  EXPECT_THAT(note_of_length(s, 4, 8, 3, 3), HasSubstr("The rate of step 4 is 0.75, but with 4 steps it would be 1"));
}

// The rates of all schedules equal transformers' rates for drawn arguments of the Trainer
// (tools/make_schedule_reference.py). The tolerance is a few rounding errors of each side.
TEST(Schedules, EqualTheTrainers) {
  const Record cases = Record::parse(read_file(TESSERA_TEST_DIR "/unit/train/schedules.json", {}));
  for (const Record& reference : cases) {
    std::string toml;
    for (const char* name : {"lr_scheduler_type", "learning_rate", "warmup_steps", "max_steps"}) {
      toml += fmt::format("{} = {}\n", name, to_json(reference.at(name)));
    }
    toml += fmt::format("lr_scheduler_kwargs = '{}'\n", to_json(reference.at("lr_scheduler_kwargs")));
    const ResolvedSettings resolved =
        resolve({.flags = {}, .environment = {}, .file = parse_config(toml, "c")}, kAllGroups, "train", {"train"});
    check_consistent(resolved);
    // What is printed gives the same rates.
    const ResolvedSettings again =
        resolve({.flags = {}, .environment = {}, .file = parse_config(resolved_config_text(resolved), "again")},
                kAllGroups, "train", {"train"});
    for (const Settings& s : {resolved.settings, again.settings}) {
      const ScheduleOptions options = schedule_options(s, s.max_steps);
      for (const Record& point : reference.at("rates")) {
        const auto step = point[0].get<int64_t>();
        const auto rate = point[1].get<double>();
        EXPECT_NEAR(scheduled_rate(options, rate_bounds(s), step), rate, 1e-14 * s.lr) << to_json(reference) << step;
      }
    }
  }
  EXPECT_EQ(cases.size(), 48u);
}

// Schedules without an end ignore min_lr.
TEST(Schedules, OnlyADecayHasAnEnd) {
  Settings s;
  s.min_lr = 1e-6;
  EXPECT_EQ(rate_bounds(s).end, 1e-6);
  s.lr_schedule = Schedule::inverse_sqrt;
  EXPECT_EQ(rate_bounds(s).end, 0);
}

TEST(Continuation, LengthRoundsUp) {
  EXPECT_EQ(total_steps(7, 3, EpochSteps({.num_samples = 10})), 7);
  for (uint64_t draw = 0; draw < 1000; ++draw) {
    const auto words = philox(3, draw, 0);
    const int64_t steps = 1 + words[0] % 1000;
    const double epochs = 0.01 * (1 + words[1] % 1000);
    const int64_t total = total_steps(0, epochs, EpochSteps({.num_samples = steps}));
    EXPECT_GE(static_cast<double>(total), epochs * static_cast<double>(steps));
    EXPECT_LT(static_cast<double>(total - 1), epochs * static_cast<double>(steps));
  }
}

}  // namespace
}  // namespace tessera
