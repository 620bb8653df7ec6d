#include "tessera/load/data_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/base/text.h"

namespace tessera {
namespace {

// Like counted(), but with separators: "1,065 tokens".
std::string counted_long(int64_t count, const char* noun) {
  return format_count(count) + " " + noun_for(count, noun);
}

std::string in_words(const BadRow& row) {
  return printable(fmt::format("{}: {}", row.place, row.what), 300);
}

}  // namespace

Record data_record(const DataUse& use) {
  constexpr size_t kListed = 100;
  std::vector<std::string> skipped;
  for (size_t i = 0; i < std::min(kListed, use.bad.size()); ++i) skipped.push_back(in_words(use.bad[i]));
  Record record = {{"rows_used", use.rows_used},
                   {"rows_cut", use.rows_cut},
                   {"rows_without_loss", use.rows_without_loss},
                   {"rows_without_context", use.rows_without_context},
                   {"rows_free_answer", use.rows_free_answer},
                   {"rows_left_out", use.rows_left_out},
                   {"rows_malformed", use.rows_malformed},
                   {"rows_too_long", use.rows_too_long},
                   {"samples", use.num_samples},
                   {"tokens_used", use.tokens_used},
                   {"tokens_cut", use.tokens_cut},
                   {"tokens_dropped", use.tokens_dropped},
                   {"skipped", skipped}};
  for (const FileUse& file : use.mixture) {
    record["mixture"].push_back(
        {{"file", file.path}, {"share", file.share}, {"rows", file.rows}, {"rows_per_epoch", file.rows_per_epoch}});
  }
  return record;
}

std::string data_line(const DataUse& use, const Settings& settings) {
  std::string line = fmt::format("{}: {} as {}, {}", use.name, counted_long(use.rows_used, "row"),
                                 counted_long(use.num_samples, "sample"), counted_long(use.tokens_used, "token"));
  if (use.rows_cut > 0) {
    line += fmt::format("; {} cut at --max-length {} ({} lost)", counted_long(use.rows_cut, "row"), settings.max_length,
                        counted_long(use.tokens_cut, "token"));
  }
  if (use.rows_without_answer > 0) {
    line += fmt::format("; {} without an answer", counted_long(use.rows_without_answer, "question"));
  }
  if (use.rows_without_loss > 0) line += fmt::format("; {} without loss", counted_long(use.rows_without_loss, "row"));
  if (use.rows_without_context > 0)
    line += fmt::format("; {} without context", counted_long(use.rows_without_context, "question"));
  if (use.rows_free_answer > 0)
    line += fmt::format("; {} not copied from the context", counted_long(use.rows_free_answer, "answer"));
  if (use.rows_left_out > 0) {
    line += fmt::format("; {} longer than --max-length {} omitted", counted_long(use.rows_left_out, "row"),
                        settings.max_length);
  }
  if (use.rows_bad() > 0) line += fmt::format("; {} skipped", counted_long(use.rows_bad(), "bad row"));
  if (use.tokens_dropped > 0) line += fmt::format("; {} dropped", counted_long(use.tokens_dropped, "token"));
  return use.complete() ? line + "; nothing cut or dropped" : line;
}

namespace {

// A model that never sees the end of its messages in training does not learn to stop.
void note_wrong_end(const DataUse& use, Console& console) {
  if (!use.wrong_end) return;
  const std::string rows = counted_long(use.rows_without_end, "conversation");
  if (use.wrong_end_text.empty()) {
    console.note(
        fmt::format("warning: {}: in {}, no special token ends a message of the assistant, so the model does "
                    "not learn to stop. Correct the chat template",
                    use.name, rows));
    return;
  }
  console.note(
      fmt::format("warning: {}: in {}, {} ends a message of the assistant, but it is no end token of the model, "
                  "so generated texts do not end there. Give --eos-token '{}'",
                  use.name, rows, printable(use.wrong_end_text), printable(use.wrong_end_text)));
}

}  // namespace

void note_data(const DataUse& use, const Settings& settings, Console& console) {
  constexpr size_t kShown = 5;
  console.note(data_line(use, settings));
  note_wrong_end(use, console);
  for (const FileUse& file : use.mixture) {
    console.note(fmt::format("  {}: share {}, {}, {} per epoch ({:.4g} times)", file.path, file.share,
                             counted_long(file.rows, "row"), format_count(file.rows_per_epoch),
                             static_cast<double>(file.rows_per_epoch) / static_cast<double>(file.rows)));
  }
  if (use.bad.empty()) return;
  std::string named = use.files.size() == 1 ? use.files[0] : "";
  console.note(fmt::format("warning: skipped {}:", counted(use.rows_bad(), "bad row")));
  const auto shown = std::span(use.bad).first(std::min(kShown, use.bad.size()));
  for (const BadRow& row : shown) {
    const std::string place = place_in_file(row.place, use.files, named);
    console.note(printable(fmt::format("  {}{}{}", place, place.empty() ? "" : ": ", row.what), 300));
  }
  if (const int64_t rest = use.rows_bad() - num_rows_of(shown); rest > 0) {
    console.note(fmt::format("  and {} more", format_count(rest)));
  }
}

void note_long_no_answer(const DataUse& use, const Tokenizer& tokenizer, const Settings& settings, Console& console) {
  if (!settings.eval_generation || use.rows_without_answer == 0 || settings.unanswerable_text.empty()) return;
  const auto tokens = std::ssize(tokenizer.encode_at(TextPlace::inside, " " + settings.unanswerable_text));
  if (tokens <= settings.max_new_tokens) return;
  console.note(
      fmt::format("warning: --unanswerable-text \"{}\" has {} tokens, but answers have at most {} tokens. No answer "
                  "can say that a question has no answer. Increase --max-new-tokens",
                  printable(settings.unanswerable_text), tokens, settings.max_new_tokens));
}

void note_model(const ModelConfig& config, Console& console) {
  for (const std::string& note : config.notes) console.note("warning: " + printable(note, 2000));
}

void note_unused_keys(const std::vector<std::string>& keys, Console& console) {
  if (keys.empty()) return;
  console.note(fmt::format(
      "tokenizer.json: Tessera ignores \"{}\". --max-length limits the length of rows, and rows are not padded",
      joined(keys, "\" and \"")));
}

void note_fill(const Fill& fill, const Settings& settings, Console& console) {
  console.note(fmt::format("Micro-batches per epoch: {}, filled to {:.1f} % of --batch-tokens {}",
                           format_count(fill.num_micro_batches), 100 * fill.share, settings.batch_tokens));
}

}  // namespace tessera
