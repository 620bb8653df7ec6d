// tessera eval: loss and perplexity of a model on a data set, and exact match and F1 of the answers it generates. With
// several adapters, all of this for each one.
#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "tessera/app/machine.h"
#include "tessera/app/run_as_ranks.h"
#include "tessera/app/verbs.h"
#include "tessera/base/text.h"
#include "tessera/load/data_report.h"
#include "tessera/log/table.h"
#include "tessera/session/evaluation.h"
#include "tessera/session/fingerprint.h"
#include "tessera/session/session.h"
#include "tessera/store/atomic_folder.h"
#include "tessera/store/file.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

// The results of several adapters, for human readers.
std::string table_of(const std::vector<Record>& results, const Terminal& terminal) {
  Table table({{"adapter"},
               {"eval loss", Align::kRight},
               {"perplexity", Align::kRight},
               {"exact match", Align::kRight},
               {"F1", Align::kRight}});
  for (const Record& result : results) {
    const auto loss = result.at("eval_loss").get<double>();
    const auto score = [&](const char* key) {
      return result.contains(key) ? fmt::format("{:.3f}", result[key].get<double>()) : "-";
    };
    table.row({result.at("adapter").get<std::string>(), fmt::format("{:.4f}", loss), format_perplexity(loss),
               score("exact_match"), score("f1")});
  }
  return table.remove_empty_columns().render(terminal);
}

}  // namespace

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
  session.make_engine();
  return run_among_ranks(invocation, [&] {
    session.prepare();
    session.load_weights();
    session.note_start();
    note_data(dataset.use, settings, console);
    note_long_no_answer(dataset.use, tokenizer, settings, console);

    const std::vector<std::string> adapters = session.adapters();
    const bool several = adapters.size() > 1;
    const LineStyle style = line_style(settings, console.out_terminal());
    const auto write = [&](const std::string& name, const Record& content) {
      if (settings.output_dir.empty() || !session.worker().is_first()) return;
      write_file_atomically(fs::path(settings.output_dir) / name, to_pretty_json(content) + "\n");
    };
    const auto report_of = [&](const std::vector<Record>& results) {
      return several ? Record{{"adapters", results}, {"eval_data", data_record(dataset.use)}} : results.front();
    };
    std::vector<Record> results;
    for (size_t i = 0; i < adapters.size(); ++i) {
      if (i > 0) session.change_adapter(i);
      Engine& engine = session.engine();
      Record summary = Record::object();
      if (several) summary["adapter"] = adapters[i];
      const LossEvaluation loss = *evaluate_loss(engine, session.world(), dataset, settings.eval_batch_size, console);
      const double perplexity = std::exp(loss.loss);
      summary.update(Record{{"eval_loss", loss.loss}, {"perplexity", perplexity}});
      summary.update(trainer_record(EvalMetrics{loss.loss, loss.runtime_s, loss.num_samples, loss.num_steps, 0}));
      summary.erase("epoch");
      Record line = summary;
      if (style == LineStyle::rounded) {
        line["eval_loss"] = round_decimals(loss.loss, 4);
        line["perplexity"] = round_decimals(perplexity, 4);
      }
      if (!settings.json) console.print(style == LineStyle::json ? to_json(line) : to_python(line));
      if (settings.eval_generation) {
        const AnswerEvaluation answers =
            *evaluate_answers(engine, session.world(), dataset, tokenizer, settings, console);
        summary.update(answer_record(answers.metrics));
        summary["answers_runtime"] = answers.runtime_s;
        if (!settings.json) console.print(trainer_line(answers.metrics, style));
        // The format of SQuAD's own evaluation script: {id: answer}.
        write(several ? fmt::format("predictions-{}.json", i + 1) : "predictions.json",
              predictions_by_id(dataset.examples, answers.predictions, console));
      }
      if (!several) summary["eval_data"] = data_record(dataset.use);
      results.push_back(std::move(summary));
      // Also after each of several adapters, so that no result is lost if a later one fails.
      write("eval.json", report_of(results));
    }
    const Record summary = report_of(results);
    if (settings.json) console.print(to_json(summary));
    if (several && !settings.json && style != LineStyle::json) {
      console.print(table_of(results, console.out_terminal()));
    }
    return static_cast<int>(ExitCode::kDone);
  });
}

}  // namespace tessera
