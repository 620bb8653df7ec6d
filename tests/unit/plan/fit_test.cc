// Tests the search for the fastest configuration that fits, and the advice for a run that does not fit.
#include "tessera/plan/fit.h"
#include "tessera/base/host_resources.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <limits>
#include <random>

#include "tessera/app/machine.h"
#include "tessera/plan/advice.h"
#include "tessera/plan/known_gpus.h"
#include "tessera/plan/start_command.h"
#include "tessera/session/worker.h"
#include "tessera/settings/engine_options.h"
#include "tessera/settings/setting_words.h"

namespace tessera {
namespace {

using S = Settings;

ModelConfig small_config() {
  ModelConfig config;
  config.architecture = "bloom";
  config.vocab_size = 1000;
  config.hidden_size = 256;
  config.num_layers = 6;
  config.num_heads = 4;
  config.ff_dim = 1024;
  return config;
}

WorkBounds work_of(const Settings& s) {
  const int64_t tokens = 512 * s.batch_size;
  return {{tokens, s.batch_size, tokens}, {}, {}, 0, s.grad_accum};
}

FitRequest request(int world_size, int64_t device_bytes) {
  FitRequest r{.config = small_config(),
               .settings = {},
               .fixed = {},
               .work_of = work_of,
               .typical_of = work_of,
               .rank = {},
               .limits = {},
               .machine = machine_of(*known_gpu_by_word("a100-80"))};
  r.settings.grad_accum = 3;  // with the default batch size of 4: 12 samples per rank and step
  r.rank.world_size = r.rank.ranks_per_node = world_size;
  r.rank.device = DeviceKind::cuda;
  r.limits.device_bytes = device_bytes;
  return r;
}

constexpr int64_t kPlenty = int64_t{1} << 50;

TEST(Fit, TakesTheFastestIfAllFit) {
  const FitResult result = find_fit(request(1, kPlenty));
  ASSERT_TRUE(result.best);
  EXPECT_FALSE(result.with_next_gib);
  EXPECT_EQ(result.best->settings.strategy, ShardingStrategy::no_shard);
  EXPECT_FALSE(result.best->settings.offload.any());
  EXPECT_FALSE(result.best->settings.activation_checkpointing.any());
  EXPECT_EQ(result.best->settings.batch_size, 12);
  EXPECT_EQ(result.best->settings.grad_accum, 1);
}

// If four query heads share a head of keys and values, a micro-batch may have 3 · 2^19 tokens: 3,072 samples of
// work_of(). The given size of 4,096 samples exceeds this limit, so the search must choose another one.
TEST(Fit, LeavesOutBatchSizesAboveTheLimitOfTheKernels) {
  FitRequest r = request(1, kPlenty);
  r.config.num_kv_heads = 1;
  r.settings.batch_size = 4096;
  r.settings.grad_accum = 1;
  const FitResult result = find_fit(r);
  ASSERT_TRUE(result.best);
  EXPECT_LE(result.best->settings.batch_size, 1024);  // the largest size that the search tries
  EXPECT_EQ(result.best->settings.batch_size * result.best->settings.grad_accum, 4096);
}

// Gives the search less and less memory, until no configuration fits. The best configuration of each search fits, and
// it is not faster than the best one of the previous search. Each has the time that its own plan predicts.
TEST(Fit, LessMemoryIsNeverFaster) {
  for (const int world_size : {1, 4}) {
    double last_s = 0;
    const Ledger fastest = find_fit(request(world_size, kPlenty)).best->plan.device;
    const int64_t fastest_bytes = fastest.peak_total(), context_bytes = fastest.peak(Phase::step, Category::context);
    int64_t bytes = fastest_bytes;
    for (int i = 0; i < 40; ++i) {
      const FitRequest r = request(world_size, bytes);
      const FitResult result = find_fit(r);
      if (!result.best) {
        ASSERT_TRUE(result.smallest);
        EXPECT_GT(result.smallest->plan.device.peak_total(), bytes);
        break;
      }
      const Configuration& best = *result.best;
      EXPECT_LE(best.plan.device.peak_total(), bytes);
      EXPECT_EQ(best.settings.batch_size * best.settings.grad_accum, 12);
      EXPECT_GE(best.time.step_s, 0.975 * last_s);
      EXPECT_EQ(best.time.step_s,
                step_time(r.config, engine_options(best.settings), work_of(best.settings), r.rank, r.machine).step_s);
      last_s = best.time.step_s;
      for (const Configuration& c : result.runners_up) {
        EXPECT_GE(c.time.step_s, 0.975 * last_s);
        EXPECT_LE(c.excess.bytes, 0);
        EXPECT_LE(c.plan.device.peak_total(), bytes);
      }
      if (result.with_next_gib) {
        EXPECT_LT(result.with_next_gib->time.step_s, last_s);
      }
      bytes -= std::max<int64_t>(1, fastest_bytes / 40);
    }
    EXPECT_LT(bytes - context_bytes, (fastest_bytes - context_bytes) / 3);
  }
}

// Compares find_fit() with exhaustive searches over recomputation, offload and batch size, for limits drawn between the
// smallest and the largest memory.
TEST(Fit, FindsWhatAnExhaustiveSearchFinds) {
  std::mt19937 random(5);
  for (const bool fixes_offload : {true, false}) {
    FitRequest r = request(1, kPlenty);
    r.fixed = {"strategy"};
    if (fixes_offload) r.fixed.insert("offload");
    r.limits.disk_bytes = 0;
    std::vector<Configuration> all;
    const int64_t B = r.config.num_layers;
    std::vector<Recomputation> recomputations;
    for (int64_t number = 0; number <= B; ++number) {
      recomputations.push_back({.blocks = number});
      recomputations.push_back({.mlp = number});
      recomputations.push_back({.attention = number});
      recomputations.push_back({.blocks = number, .mlp = B - number, .attention = B - number});
    }
    for (int64_t offloaded = 0; offloaded <= (fixes_offload ? 0 : B + 1); ++offloaded) {
      for (const Recomputation& recomputation : recomputations) {
        for (const int64_t batch_size : {1, 2, 4, 6, 12}) {
          for (const bool gradients : {false, true}) {
            Settings s = r.settings;
            s.activation_checkpointing = recomputation;
            s.batch_size = batch_size;
            s.grad_accum = 12 / batch_size;
            const std::string part = offloaded > B ? "" : fmt::format("={}", offloaded);
            if (offloaded > 0) {
              s.offload = parse_offload("optimizer" + part + (gradients ? ",gradients" + part : ""), "");
            }
            all.push_back(plan_configuration(r, s));
            all.back().time = step_time(r.config, engine_options(s), work_of(s), r.rank, r.machine);
          }
        }
      }
    }
    const auto bytes_of = [](const Configuration& c) { return c.plan.device.peak_total(); };
    const auto [least, most] = std::ranges::minmax(all, {}, bytes_of);
    int num_equal = 0, num_tries = 0;
    for (; num_tries < 25; ++num_tries) {
      r.limits.device_bytes = std::uniform_int_distribution<int64_t>(bytes_of(least), bytes_of(most))(random);
      double least_s = std::numeric_limits<double>::infinity();
      for (const Configuration& c : all) {
        if (bytes_of(c) <= r.limits.device_bytes) least_s = std::min(least_s, c.time.step_s);
      }
      const FitResult result = find_fit(r);
      ASSERT_TRUE(result.best);
      EXPECT_LE(bytes_of(*result.best), r.limits.device_bytes);
      EXPECT_LE(result.best->time.step_s, 1.03 * least_s);
      num_equal += result.best->time.step_s <= least_s;
    }
    EXPECT_GE(num_equal, num_tries * 3 / 5);
  }
}

// `auto` in a fixed setting is still chosen, and only what is automatic changes.
TEST(Fit, ChoosesWhatIsAutomatic) {
  FitRequest r = request(1, kPlenty);
  r.settings.offload = parse_offload("optimizer:file,gradients=auto", "");
  r.settings.offload_dir = "files";
  r.fixed = {"strategy", "offload", "activation_checkpointing", "batch_size", "grad_accum"};
  EXPECT_TRUE(has_search(r.settings));
  const Configuration all = *find_fit(r).best;
  EXPECT_EQ(offload_text(all.settings.offload), "optimizer:file");
  r.limits.device_bytes = all.plan.device.peak_total() - 1;
  const Configuration less = *find_fit(r).best;
  EXPECT_EQ(less.settings.offload.optimizer, Tier::file);
  EXPECT_EQ(less.settings.offload.gradients, Tier::host);
  EXPECT_NE(less.settings.offload.part_of_gradients.of, OffloadedPart::Of::automatic);
  EXPECT_EQ(less.settings.batch_size, 4);
  EXPECT_FALSE(less.settings.activation_checkpointing.any());
}

TEST(Fit, FixedSettingsStay) {
  FitRequest r = request(4, kPlenty);
  r.settings.strategy = ShardingStrategy::zero2;
  r.settings.activation_checkpointing = {.blocks = kAllBlocks};
  r.fixed = {"strategy", "activation_checkpointing", "grad_accum"};
  const Settings found = find_fit(r).best->settings;  // a copy: the result is a temporary
  EXPECT_EQ(found.strategy, ShardingStrategy::zero2);
  EXPECT_EQ(found.activation_checkpointing, r.settings.activation_checkpointing);
  EXPECT_EQ(found.batch_size, 4);
  r.settings.offload = parse_offload("parameters", "");  // zero2 does not shard parameters, so they cannot be offloaded
  r.fixed.insert("offload");
  EXPECT_THROW(find_fit(r), UsageError);
}

// The search does not change batch_tokens, because another value would divide the samples into other micro-batches.
TEST(Fit, BatchTokensStay) {
  FitRequest r = request(2, kPlenty);
  r.settings.batch_size = 0;
  r.settings.batch_tokens = 2048;
  r.work_of = [](const Settings& s) {
    return WorkBounds{{s.batch_tokens, 9, s.batch_tokens, 512}, {}, {}, 0, s.grad_accum};
  };
  const FitResult all = find_fit(r);
  ASSERT_TRUE(all.best);
  r.limits.device_bytes = all.best->plan.device.peak_total() - 1;
  const FitResult less = find_fit(r);
  ASSERT_TRUE(less.best);
  for (const Configuration* c : {&*all.best, &*less.best}) {
    EXPECT_EQ(c->settings.batch_size, 0);
    EXPECT_EQ(c->settings.batch_tokens, 2048);
    EXPECT_EQ(c->settings.grad_accum, 3);
  }
  for (const auto& [flag, value] : flags_between(r.settings, less.best->settings)) {
    EXPECT_NE(flag, "--batch-size");
    EXPECT_NE(flag, "--grad-accum");
  }
  r.limits.device_bytes = 1;
  r.limits.disk_bytes = 0;
  EXPECT_NE(advice(r).find("Use a smaller --batch-tokens, a smaller --max-length"), std::string::npos) << advice(r);
}

TEST(Fit, FlagsThatChangeOneRunIntoTheOther) {
  Settings from, to;
  EXPECT_TRUE(flags_between(from, to).empty());
  to.strategy = ShardingStrategy::full_shard;
  to.offload = parse_offload("optimizer", "");
  to.batch_size = 1;
  to.grad_accum = 4;
  to.eval_batch_size = 2;
  EXPECT_EQ(command_with({"tessera", "train", "--lr", "1e-3", "--grad-accum", "1", "--prompt=it's", "--batch_size=4"},
                         flags_between(from, to)),
            "tessera train --lr 1e-3 '--prompt=it'\\''s' --strategy full_shard --offload optimizer:host --batch-size 1 "
            "--grad-accum 4 --eval-batch-size 2");
  EXPECT_EQ(command_with({"tessera"}, {{"--fsdp", ""}}), "tessera --fsdp ''");
  // Flags without a value, and flags whose value is optional.
  EXPECT_EQ(command_with({"tessera", "--json", "run.toml", "--fit", "--disk=1GiB", "--lr", "1", "--fit"}, {},
                         {"json", "fit", "disk"}),
            "tessera run.toml --lr 1");
}

TEST(Excess, OfDeviceHostAndBoth) {
  Plan plan;
  plan.device.enter(Phase::step);
  plan.device.add(Category::activations, 60);
  plan.device.add(Category::gradients, 40);
  plan.host.enter(Phase::step);
  plan.host.add(Category::batch, 5);
  plan.device.enter(Phase::save);
  plan.host.enter(Phase::save);
  plan.device.add(Category::staging, 10);
  plan.host.add(Category::staging, 200);
  const Excess step = excess_of(plan, {.device_bytes = 95});
  EXPECT_EQ(step.bytes, 15);           // the highest peak (110, in the phase save) minus 95
  EXPECT_EQ(step.phase, Phase::step);  // a step already exceeds the limit: 60 + 40 > 95
  EXPECT_EQ(step.largest, Category::activations);
  EXPECT_EQ(step.largest_bytes, 60);
  EXPECT_EQ(excess_of(plan, {.device_bytes = 105}).phase, Phase::save);
  EXPECT_TRUE(excess_of(plan, {.device_bytes = 110}).fits());
  const Excess host = excess_of(plan, {.device_bytes = 110, .host_bytes = 100});
  EXPECT_EQ(host.of, Excess::Of::host);
  EXPECT_EQ(host.bytes, 105);
  EXPECT_EQ(host.largest, Category::staging);
  EXPECT_EQ(excess_of(plan, {.device_bytes = 300, .one_memory = true}).bytes, 15);
  plan.file_bytes = 1000;
  const Excess disk = excess_of(plan, {.device_bytes = 110, .disk_bytes = 600});
  EXPECT_EQ(disk.of, Excess::Of::disk);
  EXPECT_EQ(disk.bytes, 400);
  EXPECT_TRUE(excess_of(plan, {.device_bytes = 110, .disk_bytes = 1000}).fits());
}

// If the device and the host share one memory, offload to the host saves no memory, but offload to files does. The
// search uses files only as far as the disk has space.
TEST(Fit, OffloadsToFilesWithinTheDisk) {
  FitRequest r = request(1, 0);
  r.rank.device = DeviceKind::cpu;
  r.machine = typical_cpu(1);
  r.limits = {.device_bytes = kPlenty, .one_memory = true, .disk_bytes = kPlenty};
  int64_t least = find_fit(r).best->plan.peak_bytes();
  std::optional<Configuration> files;
  for (;;) {  // each search has less memory than the previous configuration needs
    r.limits.device_bytes = least - 1;
    const FitResult result = find_fit(r);
    if (!result.best) break;
    EXPECT_LE(result.best->plan.peak_bytes(), r.limits.device_bytes);
    EXPECT_FALSE(result.best->settings.offload.uses(Tier::host));
    least = result.best->plan.peak_bytes();
    if (result.best->plan.file_bytes > 0) files = result.best;
  }
  ASSERT_TRUE(files);
  EXPECT_EQ(files->settings.offload_dir, "offload");
  // The files hold at least both moments of AdamW, which take 8 bytes per parameter. The parameters take 4 more bytes
  // if they are in files, and so do the gradients. The upper limit leaves some space for padding.
  EXPECT_GE(files->plan.file_bytes, 8 * files->plan.num_parameters);
  EXPECT_LE(files->plan.file_bytes, 21 * files->plan.num_parameters);
  r.limits.device_bytes = files->plan.peak_bytes();
  r.limits.disk_bytes = files->plan.file_bytes - 1;
  const FitResult less = find_fit(r);
  EXPECT_TRUE(!less.best || less.best->plan.file_bytes < files->plan.file_bytes);
  r.limits.disk_bytes = 0;
  EXPECT_FALSE(find_fit(r).best);
}

// For an evaluation, the search may reduce the batch size, shard the parameters and offload the parameters.
TEST(Advice, OfAnEvaluation) {
  FitRequest r = request(1, 0);
  r.settings.eval_batch_size = 8;
  r.work_of = [](const Settings& s) {
    WorkBounds work;
    work.evaluation = {512 * s.eval_batch_size, s.eval_batch_size, 512 * s.eval_batch_size};
    return work;
  };
  r.rank.device = DeviceKind::cpu;
  r.machine = typical_cpu(1);
  r.limits = {.device_bytes = kPlenty, .one_memory = true, .disk_bytes = kPlenty};
  int64_t last = find_nearest_fit(r)->plan.peak_bytes();
  std::vector<std::pair<std::string, std::string>> flags;
  int found = 0;
  for (;; ++found) {
    r.limits.device_bytes = last - 1;
    const auto fit = find_nearest_fit(r);
    if (!fit) break;
    EXPECT_LT(fit->plan.peak_bytes(), last);
    last = fit->plan.peak_bytes();
    flags = flags_between(r.settings, fit->settings);
  }
  EXPECT_GE(found, 4);  // batch sizes of 4, 2 and 1, then also the parameters in files
  EXPECT_NE(command_with({}, flags).find("--offload parameters:file"), std::string::npos) << command_with({}, flags);
  EXPECT_NE(advice(r).find("makes the run fit"), std::string::npos);
}

// On a GPU, a run may need exactly the free memory of the GPU, but not one byte more. If a run does not fit, its error
// contains a command for a run that fits.
TEST(CheckMemory, LimitsARunToTheFreeMemoryOfTheGpu) {
  const PlannedRank rank{.device = DeviceKind::cuda};
  const WorkOf work_of = [](const Settings& s) {
    return WorkBounds{{4096 * s.batch_size, s.batch_size, 4096 * s.batch_size}, {}, {}, 0};
  };
  Settings settings;
  settings.batch_size = 4;
  settings.grad_accum = 1;
  settings.activation_checkpointing = {};
  const int64_t needed = plan_training(small_config(), settings, work_of(settings), rank).device.peak_total();
  check_memory(small_config(), settings, work_of, rank, {}, needed);
  try {
    check_memory(small_config(), settings, work_of, rank, {}, needed - 1);
    FAIL() << "check_memory() accepted a run that does not fit";
  } catch (const OutOfMemoryError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("but the GPU has "), std::string::npos) << text;
    EXPECT_NE(text.find("Start the run with: "), std::string::npos) << text;
  }
}

// The batch does not fit into the memory of this machine, but a single sample does.
TEST(CheckMemory, ReportsWhatWouldFit) {
  const std::optional<int64_t> usable_bytes = usable_memory_bytes();
  ASSERT_TRUE(usable_bytes);
  ModelConfig config = small_config();
  config.hidden_size = 2048;
  const auto work_of_tokens = [](int64_t tokens, int64_t batch_size) {
    return WorkBounds{{tokens, batch_size, tokens}, {}, {}, 0};
  };
  const auto peak = [&](int64_t tokens) {
    return plan_training(config, {}, work_of_tokens(tokens, 1), {}).peak_bytes();
  };
  const int64_t bytes_per_token = (peak(20000) - peak(10000)) / 10000;
  const int64_t sample_tokens = *usable_bytes / bytes_per_token * 2 / 5;  // two samples fit, and four do not
  const WorkOf of_batch = [&](const Settings& s) { return work_of_tokens(sample_tokens * s.batch_size, s.batch_size); };
  Settings settings;
  settings.activation_checkpointing = {};
  try {
    check_memory(config, settings, of_batch, {}, {}, {});
    FAIL() << "check_memory() accepted a run that does not fit";
  } catch (const OutOfMemoryError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("but this machine has"), std::string::npos) << text;
    EXPECT_NE(text.find("Start the run with: "), std::string::npos) << text;
    EXPECT_TRUE(text.find("--batch-size ") != std::string::npos ||
                text.find("--activation-checkpointing block") != std::string::npos)
        << text;
  }
  settings.batch_size = 1;
  check_memory(config, settings, of_batch, {}, {}, {});
  // No configuration of this evaluation fits, so check_memory() can only give general advice.
  const WorkOf evaluation = [&](const Settings&) {
    WorkBounds work;
    work.evaluation = {sample_tokens * 100, 1, 1};
    return work;
  };
  EXPECT_THROW(check_memory(config, settings, evaluation, {}, {}, {}), OutOfMemoryError);
}

}  // namespace
}  // namespace tessera
