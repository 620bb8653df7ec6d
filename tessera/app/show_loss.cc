#include "tessera/app/show_loss.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tessera/base/option_names.h"
#include "tessera/load/data_report.h"
#include "tessera/load/datasets.h"
#include "tessera/session/session.h"

namespace tessera {

namespace {

// [N]: whether the model learns to write a token. The label of the position before it is then the token.
std::vector<bool> carries_loss(const Sample& sample) {
  std::vector<bool> carries(sample.ids.size());
  for (size_t t = 1; t < carries.size(); ++t) carries[t] = sample.labels[t - 1] == sample.ids[t];
  return carries;
}

// Decodes tokens with equal marks together, because a character may have several tokens.
template <typename Add>
void for_each_part(const Sample& sample, const std::vector<bool>& carries, const Add& add) {
  for (size_t begin = 0; begin < carries.size();) {
    size_t end = begin;
    while (end < carries.size() && carries[end] == carries[begin]) ++end;
    add(std::span(sample.ids).subspan(begin, end - begin), carries[begin]);
    begin = end;
  }
}

std::string bytes_of(std::span<const int32_t> ids, const Tokenizer& tokenizer) {
  std::string bytes;
  for (const int32_t id : ids) bytes += tokenizer.bytes_of(id);
  return bytes;
}

std::string marked_text(const Sample& sample, const Tokenizer& tokenizer, bool in_color) {
  std::string text;
  for_each_part(sample, carries_loss(sample), [&](std::span<const int32_t> ids, bool carries) {
    const std::string part = bytes_of(ids, tokenizer);
    text += !carries ? part : in_color ? "\x1b[1;32m" + part + "\x1b[0m" : "«" + part + "»";
  });
  return text;
}

Record record_of(const Sample& sample, const Tokenizer& tokenizer) {
  const std::vector<bool> carries = carries_loss(sample);
  Record parts = Record::array();
  for_each_part(sample, carries, [&](std::span<const int32_t> ids, bool part_carries) {
    parts.push_back({{"text", tokenizer.decode(ids, false)}, {"loss", part_carries}});
  });
  return {{"ids", sample.ids}, {"loss", carries}, {"parts", parts}};
}

}  // namespace

int run_show_loss(const Invocation& invocation) {
  Settings settings = invocation.settings();
  if (settings.dataset.empty()) {
    throw UsageError(option_place("show_loss"), "needs the data set whose samples to show", "Give --dataset FILE");
  }
  if (settings.model.empty()) {
    throw UsageError(option_place("show_loss"), "needs the model, whose configuration names the end tokens",
                     "Give --model");
  }
  settings.subset = RowOrder::first;  // the order of the file
  Console console = Console::of_process();
  Session session(settings, console);
  session.read_model();
  const Dataset dataset =
      load_training_data(settings, session.tokenizer(), session.config(), session.pool(), {.console = &console}).train;
  session.note_model();
  note_data(dataset.use, settings, console);
  const int64_t count = std::min(dataset.samples.size(), settings.show_loss);
  for (int64_t i = 0; i < count; ++i) {
    const Sample sample = dataset.samples[i];
    console.print(settings.json ? to_json(record_of(sample, session.tokenizer()))
                                : marked_text(sample, session.tokenizer(), console.out_terminal().color));
  }
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace tessera
