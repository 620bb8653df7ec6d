// tessera tokenize: prints the ids of a text, or of every line of standard input.
// tessera tokenizer train: makes a new vocabulary.
#include <fmt/format.h>

#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "tessera/app/show_loss.h"
#include "tessera/app/verbs.h"
#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/base/option_names.h"
#include "tessera/base/record.h"
#include "tessera/base/text.h"
#include "tessera/data/bpe_trainer.h"
#include "tessera/data/examples.h"
#include "tessera/data/mixture.h"
#include "tessera/data/text.h"
#include "tessera/load/data_report.h"
#include "tessera/load/model_place.h"
#include "tessera/log/console.h"
#include "tessera/store/atomic_folder.h"
#include "tessera/store/file.h"
#include "tessera/store/manifest.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

// A token's bytes as text. Each byte that belongs to no complete character is written as SentencePiece does: "<0xE2>".
std::string text_of_bytes(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const size_t valid = std::min(find_invalid_utf8(bytes), bytes.size());
    text += bytes.substr(0, valid);
    bytes.remove_prefix(valid);
    if (bytes.empty()) break;
    text += fmt::format("<0x{:02X}>", static_cast<unsigned char>(bytes[0]));
    bytes.remove_prefix(1);
  }
  return text;
}

std::string hexadecimal(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

}  // namespace

int run_tokenize(const Invocation& invocation) {
  const Settings& settings = invocation.settings();
  if (settings.show_loss > 0) return run_show_loss(invocation);
  const Tokenizer tokenizer = Tokenizer::load(tokenizer_file_of(settings));
  Console console = Console::of_process();
  note_unused_keys(tokenizer.unused_keys(), console);
  const auto show = [&](const std::string& text) {
    const std::vector<int32_t> ids =
        settings.special_tokens ? tokenizer.encode_with_special(text) : tokenizer.encode(text);
    if (!settings.json) {
      std::string line;
      for (const int32_t id : ids) line += (line.empty() ? "" : " ") + std::to_string(id);
      console.print(line);
      return;
    }
    std::vector<std::string> tokens, bytes;
    for (const int32_t id : ids) {
      tokens.push_back(text_of_bytes(tokenizer.bytes_of(id)));
      bytes.push_back(hexadecimal(tokenizer.bytes_of(id)));
    }
    console.print(
        to_json({{"ids", ids}, {"tokens", tokens}, {"bytes", bytes}, {"text", tokenizer.decode(ids, false)}}));
  };
  if (!settings.prompt.empty() || invocation.resolved.is_given("prompt")) {
    show(settings.prompt);
    return static_cast<int>(ExitCode::kDone);
  }
  constexpr int64_t kNoted = 10;
  int64_t number = 0, num_invalid = 0;
  for (std::string line; std::getline(std::cin, line);) {
    ++number;
    const size_t invalid = find_invalid_utf8(line);
    if (invalid != std::string::npos && ++num_invalid <= kNoted) {
      console.note(
          fmt::format("warning: standard input:{}: byte 0x{:02X} at offset {} is not valid UTF-8; U+FFFD "
                      "replaces it",
                      number, static_cast<unsigned char>(line[invalid]), invalid));
    }
    show(line);
  }
  if (num_invalid > kNoted) {
    console.note(fmt::format("warning: standard input: {} lines are not valid UTF-8", format_count(num_invalid)));
  }
  return static_cast<int>(ExitCode::kDone);
}

int run_tokenizer_train(const Invocation& invocation) {
  const Settings& settings = invocation.settings();
  for (const char* name : {kManifestName, "config.json"}) {
    if (!fs::exists(fs::path(settings.output_dir) / name)) continue;
    throw UsageError(option_place("output_dir"),
                     fmt::format("\"{}\" is the folder of a model (it has {}), whose tokenizer is not replaced",
                                 printable(settings.output_dir), name),
                     "Give another folder, and name it with --tokenizer when you train");
  }
  const std::vector<DataFile> files = data_files_of(settings.dataset, "dataset");
  if (is_mixture(files)) {
    throw UsageError(option_place("dataset"), "a vocabulary is made from every row once, without shares",
                     "Give the files without shares");
  }
  const std::vector<Example> examples =
      load_examples(paths_of(files), {.kind = settings.dataset_format, .fields = settings.fields});
  std::vector<std::string_view> texts;
  std::string_view context;  // of the question before
  for (const Example& example : examples) {
    if (const PlainText* text = example.text()) {
      texts.push_back(text->text);
    } else if (const Conversation* conversation = example.conversation()) {
      for (const auto& message : conversation->messages) {
        if (message["content"].is_string()) texts.push_back(message["content"].get_ref<const std::string&>());
      }
    } else if (const Completion* row = example.completion()) {
      texts.insert(texts.end(), {row->prompt, row->completion});
    } else {
      const Question& question = *example.question();
      // In SQuAD's files, the questions of one paragraph are neighbours and have the same context. Adds it once.
      if (std::exchange(context, question.context) != question.context) texts.push_back(question.context);
      texts.push_back(question.question);
      texts.insert(texts.end(), question.answers.begin(), question.answers.end());
      if (question.answers.empty()) texts.push_back(settings.unanswerable_text);
    }
  }
  BpeTrainerOptions options;
  options.vocab_size = settings.vocab_size;
  const std::string json = train_bpe_tokenizer(texts, options);
  const Tokenizer tokenizer = Tokenizer::from_json_text(json, "the trained tokenizer");
  create_folders(settings.output_dir);
  const fs::path target = fs::path(settings.output_dir) / "tokenizer.json";
  write_file_atomically(target, json);
  Console::of_process().print(
      fmt::format("{}: {} tokens, from {} {}", target.string(), format_count(tokenizer.vocab_size()),
                  format_count(static_cast<int64_t>(texts.size())), noun_for(texts.size(), "text")));
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace tessera
