// tessera plan: what a training run will hold in memory, before it starts.
#include <fmt/format.h>

#include "tessera/app/datasets.h"
#include "tessera/app/machine.h"
#include "tessera/app/memory_check.h"
#include "tessera/app/model_files.h"
#include "tessera/app/trainer.h"
#include "tessera/app/verbs.h"
#include "tessera/engine/plan.h"
#include "tessera/report/console.h"
#include "tessera/report/record.h"
#include "tessera/report/table.h"
#include "tessera/report/text.h"

namespace tessera {
namespace {

// The plan lays out the ids of a micro-batch, and no machine holds the activations of so many.
constexpr int64_t kMaxPlannedTokens = int64_t{1} << 28;

// Without data every sample is as long as it may be, and every token carries loss: no run needs more.
WorkBounds largest_work(const Settings& settings) {
  WorkBounds work;
  const auto tokens_of = [&](const char* name, int64_t batch_size) {
    if (batch_size <= kMaxPlannedTokens / settings.max_length) return batch_size * settings.max_length;
    throw UsageError(
        find_setting(name)->flag(),
        fmt::format("{} samples of {} tokens are more than the {} tokens of a micro-batch that can be planned",
                    batch_size, settings.max_length, kMaxPlannedTokens),
        "Use a smaller --max-length, or give the --dataset");
  };
  const int64_t tokens = tokens_of("batch_size", settings.batch_size);
  work.training = {tokens, settings.batch_size, tokens};
  if (settings.eval_dataset.empty()) return work;
  const int64_t eval_tokens = tokens_of("eval_batch_size", settings.eval_batch_size);
  work.evaluation = {eval_tokens, settings.eval_batch_size, eval_tokens};
  if (settings.eval_generation) {
    work.generation = {eval_tokens, settings.eval_batch_size, 0};
    work.max_new_tokens = settings.max_new_tokens;
  }
  return work;
}

}  // namespace

int run_plan(const Invocation& invocation) {
  Settings settings = invocation.settings();
  Console console = Console::of_process();
  if (!std::filesystem::exists(settings.model)) settings.init = Settings::Init::random;  // a shape is enough
  const ModelConfig config = model_config_of(settings);
  WorkBounds work = largest_work(settings);
  if (!settings.dataset.empty()) {
    ThreadPool pool(threads_to_use(settings.threads));
    const Tokenizer tokenizer = tokenizer_of(settings, config);
    const Dataset train = load_dataset(settings, DatasetUse::training, tokenizer, config.eos_token_id, false, pool);
    const std::optional<Dataset> eval = eval_dataset_of(settings, tokenizer, config.eos_token_id, pool);
    work = training_work(settings, train, eval ? &*eval : nullptr);
  }
  const Plan plan = plan_training(config, settings, work, {});

  if (settings.json) {
    Record phases;
    for (int p = 0; p < kNumPhases; ++p) {
      Record categories;
      for (int c = 0; c < kNumCategories; ++c) {
        categories.set(name_of(static_cast<Category>(c)),
                       plan.device.peak(static_cast<Phase>(p), static_cast<Category>(c)));
      }
      categories.set("total", plan.device.peak_total(static_cast<Phase>(p)));
      phases.set(name_of(static_cast<Phase>(p)), categories);
    }
    console.print(to_json({{"num_parameters", plan.num_parameters},
                           {"peak_bytes", plan.device.peak_total()},
                           {"micro_batch_tokens", work.training.num_tokens},
                           {"micro_batch_flops", plan.micro_batch_flops},
                           {"phases", phases}}));
    return static_cast<int>(ExitCode::kDone);
  }
  console.print(fmt::format("{} parameters; a micro-batch of at most {} tokens: {:.3g} TFLOP forward and backward",
                            format_count(plan.num_parameters), format_count(work.training.num_tokens),
                            static_cast<double>(plan.micro_batch_flops) * 1e-12));
  Table table({{"memory"}, {"step", Align::kRight}, {"evaluation", Align::kRight}});
  const auto cell = [&](Phase phase, Category category) { return format_bytes(plan.device.peak(phase, category)); };
  for (int c = 0; c < kNumCategories; ++c) {
    const auto category = static_cast<Category>(c);
    table.row({name_of(category), cell(Phase::step, category), cell(Phase::evaluation, category)});
  }
  table.rule();
  table.row({"total", format_bytes(plan.device.peak_total(Phase::step)),
             format_bytes(plan.device.peak_total(Phase::evaluation))});
  console.print(table.render(console.out_terminal()));
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace tessera
