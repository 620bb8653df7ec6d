// tessera eval: the loss of a model on a data set, and exact match and F1 of the answers it generates.
#include <filesystem>

#include "tessera/app/machine.h"
#include "tessera/app/run_as_ranks.h"
#include "tessera/app/verbs.h"
#include "tessera/load/data_report.h"
#include "tessera/load/initial_weights.h"
#include "tessera/load/model_files.h"
#include "tessera/plan/memory_check.h"
#include "tessera/settings/engine_options.h"
#include "tessera/store/atomic_folder.h"
#include "tessera/store/file.h"
#include "tessera/train/evaluation.h"
#include "tessera/train/train_state.h"
#include "tessera/train/worker.h"

namespace tessera {

namespace fs = std::filesystem;

int run_eval(const Invocation& invocation) {
  const Settings& settings = invocation.settings();
  ReadAhead read_ahead = read_weights_ahead(settings, invocation.world);
  Worker worker(settings, invocation.world);
  Console console = worker.is_first() ? Console::of_process(settings.bars()) : Console::muted();
  ThreadPool& pool = worker.pool();
  ModelConfig config = model_config_of(settings);
  const Tokenizer tokenizer = tokenizer_of(settings, config);
  const Dataset dataset = load_eval_data(settings, tokenizer, config, pool);
  const auto work_of = [&](const Settings& s) {
    WorkBounds work;
    work.evaluation = bounds_of(dataset.samples, s.eval_batch_size);
    if (s.eval_generation) {
      work.generation = bounds_of(dataset.prompts, s.eval_batch_size);
      work.max_new_tokens = s.max_new_tokens;
    }
    return work;
  };
  Record fingerprint = model_fingerprint(config);
  fingerprint["eval_data_checksum"] = checksum_of(dataset.samples);
  check_ranks_agree(worker.world(), fingerprint);
  const PlannedRank rank = worker.planned_rank();
  const LocalRanks local = worker.local_ranks();
  const auto check = [&] { check_memory(config, settings, work_of, rank, local, usable_gpu_bytes(worker.device())); };
  const auto check_again = [&] {
    check();
    return advice_for_less(config, settings, work_of, rank, local, usable_gpu_bytes(worker.device()));
  };
  check();
  check_disk(config, settings, work_of, rank, local);
  if (!settings.output_dir.empty()) create_folders(settings.output_dir);  // fails before the work, not after it
  worker.note_device(settings, console);
  Engine engine = within_memory(check_again, [&] { return Engine(worker.place(), config, engine_options(settings)); });
  return run_among_ranks(invocation, [&] {
    within_memory(check_again, [&] { engine.prepare(work_of(settings)); });
    worker.note_unpinned(console);
    for (const std::string& note : load_or_initialize(engine, settings, worker.world(), pool)) console.note(note);
    read_ahead = {};
    worker.note_precision(settings, console);
    note_model(config, console);
    note_unused_keys(tokenizer.unused_keys(), console);
    note_data(dataset.use, settings, console);
    note_long_no_answer(dataset.use, tokenizer, settings, console);

    const LossEvaluation loss =
        *evaluate_loss(engine, worker.world(), dataset.samples, settings.eval_batch_size, console);
    const Record loss_record =
        trainer_record(EvalMetrics{loss.loss, loss.runtime_s, loss.num_samples, loss.num_steps, 0});
    Record summary = loss_record;
    summary.erase("epoch");
    const LineStyle style = line_style(settings, console.out_terminal());
    Record line = summary;
    if (style == LineStyle::rounded) line["eval_loss"] = round_decimals(loss.loss, 4);
    if (!settings.json) console.print(style == LineStyle::json ? to_json(line) : to_python(line));
    Record predictions;
    if (settings.eval_generation) {
      const AnswerEvaluation answers = *evaluate_answers(engine, worker.world(), dataset, tokenizer, settings, console);
      summary.update(answer_record(answers.metrics));
      summary["answers_runtime"] = answers.runtime_s;
      if (!settings.json) console.print(trainer_line(answers.metrics, style));
      predictions = predictions_by_id(dataset.examples, answers.predictions, console);
    }
    summary["eval_data"] = data_record(dataset.use);
    if (settings.json) console.print(to_json(summary));
    if (!settings.output_dir.empty() && worker.is_first()) {
      write_file_atomically(fs::path(settings.output_dir) / "eval.json", to_pretty_json(summary) + "\n");
      // The format of SQuAD's own evaluation script: {id: answer}.
      if (settings.eval_generation)
        write_file_atomically(fs::path(settings.output_dir) / "predictions.json", to_pretty_json(predictions) + "\n");
    }
    return static_cast<int>(ExitCode::kDone);
  });
}

}  // namespace tessera
