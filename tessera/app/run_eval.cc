// tessera eval: loss and perplexity of a model on a data set, and exact match and F1 of the answers it generates.
#include <cmath>
#include <filesystem>

#include "tessera/app/machine.h"
#include "tessera/app/run_as_ranks.h"
#include "tessera/app/verbs.h"
#include "tessera/load/data_report.h"
#include "tessera/session/evaluation.h"
#include "tessera/session/fingerprint.h"
#include "tessera/session/session.h"
#include "tessera/store/atomic_folder.h"
#include "tessera/store/file.h"

namespace tessera {

namespace fs = std::filesystem;

int run_eval(const Invocation& invocation) {
  const Settings& settings = invocation.settings();
  Console console = console_of(invocation);
  Session session(settings, invocation.world, console);
  session.read_model();
  const Tokenizer& tokenizer = session.tokenizer();
  const Dataset dataset = load_eval_data(settings, tokenizer, session.config(), session.pool());
  session.agree({{"eval_data_checksum", checksum_of(dataset.samples)}});
  session.check_work([&](const Settings& s) {
    WorkBounds work;
    work.evaluation = bounds_of(dataset.samples, s.eval_batch_size);
    if (s.eval_generation) {
      work.generation = bounds_of(dataset.prompts, s.eval_batch_size);
      work.max_new_tokens = s.max_new_tokens;
    }
    return work;
  });
  if (!settings.output_dir.empty()) create_folders(settings.output_dir);  // fails before the work, not after it
  Engine& engine = session.make_engine();
  return run_among_ranks(invocation, [&] {
    session.prepare();
    session.load_weights();
    session.note_start();
    note_data(dataset.use, settings, console);
    note_long_no_answer(dataset.use, tokenizer, settings, console);

    const LossEvaluation loss =
        *evaluate_loss(engine, session.world(), dataset.samples, settings.eval_batch_size, console);
    const double perplexity = std::exp(loss.loss);
    Record summary{{"eval_loss", loss.loss}, {"perplexity", perplexity}};
    summary.update(trainer_record(EvalMetrics{loss.loss, loss.runtime_s, loss.num_samples, loss.num_steps, 0}));
    summary.erase("epoch");
    const LineStyle style = line_style(settings, console.out_terminal());
    Record line = summary;
    if (style == LineStyle::rounded) {
      line["eval_loss"] = round_decimals(loss.loss, 4);
      line["perplexity"] = round_decimals(perplexity, 4);
    }
    if (!settings.json) console.print(style == LineStyle::json ? to_json(line) : to_python(line));
    Record predictions;
    if (settings.eval_generation) {
      const AnswerEvaluation answers =
          *evaluate_answers(engine, session.world(), dataset, tokenizer, settings, console);
      summary.update(answer_record(answers.metrics));
      summary["answers_runtime"] = answers.runtime_s;
      if (!settings.json) console.print(trainer_line(answers.metrics, style));
      predictions = predictions_by_id(dataset.examples, answers.predictions, console);
    }
    summary["eval_data"] = data_record(dataset.use);
    if (settings.json) console.print(to_json(summary));
    if (!settings.output_dir.empty() && session.worker().is_first()) {
      write_file_atomically(fs::path(settings.output_dir) / "eval.json", to_pretty_json(summary) + "\n");
      // The format of SQuAD's own evaluation script: {id: answer}.
      if (settings.eval_generation)
        write_file_atomically(fs::path(settings.output_dir) / "predictions.json", to_pretty_json(predictions) + "\n");
    }
    return static_cast<int>(ExitCode::kDone);
  });
}

}  // namespace tessera
