// tessera generate: the model's answer to a question about a context, or its continuation of a prompt.
#include <fmt/format.h>

#include "tessera/app/machine.h"

#include <nlohmann/json.hpp>

#include "tessera/app/verbs.h"
#include "tessera/data/prompts.h"
#include "tessera/load/data_report.h"
#include "tessera/load/datasets.h"
#include "tessera/load/model_files.h"
#include "tessera/plan/memory_check.h"
#include "tessera/report/console.h"
#include "tessera/report/progress.h"
#include "tessera/report/record.h"
#include "tessera/settings/engine_options.h"
#include "tessera/train/worker.h"

namespace tessera {

// A prompt is never cut.
static constexpr int64_t kAnyLength = int64_t{1} << 30;

int run_generate(const Invocation& invocation) {
  const Settings& settings = invocation.settings();
  if (!settings.question.empty() && !invocation.resolved.is_given("context")) {
    throw UsageError(invocation.resolved.where("question"), "needs the passage that answers it",
                     "Give --context, or the complete text as --prompt");
  }
  Console console = Console::of_process();
  ReadAhead read_ahead = read_weights_ahead(settings, nullptr);
  Worker worker(settings);
  ThreadPool& pool = worker.pool();
  ModelConfig config = model_config_of(settings);
  const Tokenizer tokenizer = tokenizer_of(settings, config);
  const EncodeFn encode = [&](TextPlace place, std::string_view text) { return tokenizer.encode_at(place, text); };

  Example example;
  example.question = settings.question;
  example.context = settings.context;
  if (!settings.prompt.empty()) example.text = settings.prompt;
  const PromptOptions options{.max_length = kAnyLength, .eos_id = config.eos_token_id, .around_answer = false};
  const std::vector<int32_t> prompt = encode_prompt(example, encode, options);
  if (prompt.empty()) throw UsageError("--prompt", "has no tokens", "Give another text");

  const auto work_of = [&](const Settings& s) {
    WorkBounds work;
    work.generation = {static_cast<int64_t>(prompt.size()), 1, 0};
    work.max_new_tokens = s.max_new_tokens;
    return work;
  };
  const PlannedRank rank = worker.planned_rank();
  const LocalRanks local = worker.local_ranks();
  const auto check = [&] { check_memory(config, settings, work_of, rank, local, usable_gpu_bytes(worker.device())); };
  const auto check_again = [&] {
    check();
    return advice_for_less(config, settings, work_of, rank, local, usable_gpu_bytes(worker.device()));
  };
  check();
  check_disk(config, settings, work_of, rank, local);
  worker.note_device(settings, console);
  Engine engine = within_memory(check_again, [&] { return Engine(worker.place(), config, engine_options(settings)); });
  within_memory(check_again, [&] { engine.prepare(work_of(settings)); });
  worker.note_unpinned(console);
  load_or_initialize(engine, settings, worker.world(), pool);
  read_ahead = {};
  note_unused_keys(tokenizer.unused_keys(), console);
  check_context(config, std::ssize(prompt), settings.max_new_tokens);
  const double begin_s = steady_seconds();
  const std::vector<int32_t> ids = engine.generate({&prompt, 1}, settings.max_new_tokens, config.eos_token_id)[0];
  const double seconds = steady_seconds() - begin_s;

  std::string text = tokenizer.decode(ids, true);
  if (settings.prompt.empty() && !text.empty() && text[0] == ' ') text.erase(0, 1);  // an answer follows "Answer:"
  if (settings.json) {
    console.print(
        to_json({{"text", text}, {"ids", ids}, {"num_prompt_tokens", prompt.size()}, {"runtime_s", seconds}}));
  } else {
    console.print(text);
  }
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace tessera
