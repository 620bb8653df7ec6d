// tessera generate: the model's answers to questions about contexts, or its continuations of prompts. With several
// adapters, all of this for each one.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "tessera/app/machine.h"
#include "tessera/app/run_as_ranks.h"
#include "tessera/app/usage_errors.h"
#include "tessera/app/verbs.h"
#include "tessera/base/clock.h"
#include "tessera/base/math.h"
#include "tessera/data/prompt_file.h"
#include "tessera/data/prompts.h"
#include "tessera/data/text_stream.h"
#include "tessera/load/datasets.h"
#include "tessera/load/model_files.h"
#include "tessera/log/progress.h"
#include "tessera/session/evaluation.h"
#include "tessera/session/generation.h"
#include "tessera/session/session.h"
#include "tessera/store/atomic_folder.h"
#include "tessera/store/checksum.h"
#include "tessera/store/file.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

std::vector<PromptRow> rows_of(const Settings& settings) {
  if (!settings.prompts.empty()) {
    return load_prompts(settings.prompts, {.kind = settings.dataset_format, .fields = settings.fields});
  }
  PromptRow row;
  if (settings.question.empty()) {
    row.example.content = PlainText{settings.prompt};  // the prompt may be empty
  } else {
    row.example.content = Question{.context = settings.context, .question = settings.question, .answers = {}};
  }
  return {row};
}

// Prints generated_text() in parts. A part is printed when later tokens can no longer change it.
class StreamedText {
 public:
  StreamedText(const Tokenizer& tokenizer, const Example& example, const Settings& settings, Console& console)
      : stream_(tokenizer, true, settings.stop), console_(console), drops_space_(example.question()) {}
  // Returns false after a string of --stop.
  bool add(int32_t id) {
    print(stream_.add(id));
    return !stream_.has_stopped();
  }
  void finish() { print(stream_.finish() + "\n"); }

 private:
  void print(std::string part) {
    if (part.empty()) return;
    if (std::exchange(drops_space_, false) && part.starts_with(' ')) part.erase(0, 1);
    console_.print_part(part);
  }

  TextStream stream_;
  Console& console_;
  bool drops_space_;
};

// Ends texts after a string of --stop, although nothing prints them before they are complete.
class EndsAtStops {
 public:
  EndsAtStops(const Tokenizer& tokenizer, const Settings& settings) : tokenizer_(tokenizer), stops_(settings.stop) {}
  bool add(int64_t prompt, int32_t id) {
    TextStream& stream = streams_.try_emplace(prompt, tokenizer_, true, stops_).first->second;
    stream.add(id);
    return !stream.has_stopped();
  }
  void forget() { streams_.clear(); }

 private:
  const Tokenizer& tokenizer_;
  const std::vector<std::string>& stops_;
  std::unordered_map<int64_t, TextStream> streams_;  // by the number of the prompt
};

// `adapter` is empty unless the run has several.
Record result_of(const std::string& adapter, const PromptRow& row, const std::vector<int32_t>& prompt,
                 const std::vector<int32_t>& ids, const Settings& settings, const Tokenizer& tokenizer) {
  Record record = Record::object();
  if (!adapter.empty()) record["adapter"] = adapter;
  if (!row.id_json.empty()) record["id"] = Record::parse(row.id_json);
  if (!settings.prompts.empty()) {
    const Example& example = row.example;
    if (const Conversation* conversation = example.conversation()) {
      record["messages"] = conversation->messages;
    } else {
      record["prompt"] = example.text() ? example.text()->text : prompt_text(example);
    }
  }
  const auto [text, has_stopped] = generated_text(ids, row.example, tokenizer, settings.stop);
  record["text"] = text;
  record["ids"] = ids;
  record["finish_reason"] = has_stopped || std::ssize(ids) < settings.max_new_tokens ? "stop" : "length";
  record["num_prompt_tokens"] = prompt.size();
  return record;
}

bool prints_as_it_comes(const Settings& settings, const Console& console) {
  if (settings.stream != Settings::Stream::automatic) return settings.stream == Settings::Stream::on;
  return settings.prompts.empty() && !settings.json && settings.output.empty() && console.out_terminal().interactive;
}

uint64_t checksum_of_prompts(const EncodedPrompts& prompts) {
  Checksum checksum;
  for (const auto& ids : prompts.ids) {
    const auto size = static_cast<uint64_t>(ids.size());
    checksum.update(&size, sizeof size);
    checksum.update(ids.data(), ids.size() * sizeof(int32_t));
  }
  return checksum.value();
}

}  // namespace

int run_generate(const Invocation& invocation) {
  const Settings& settings = invocation.settings();
  check_target(invocation.resolved, "output", settings.output);
  Console console = console_of(invocation);
  Session session(settings, invocation.world, console);
  session.read_model();
  const ModelConfig& config = session.config();
  const Tokenizer& tokenizer = session.tokenizer();
  const GenerationConfig file = generation_config_of(settings, config);
  GenerationOptions options = generation_options(invocation.resolved, config, file);
  const EncodedPrompts prompts = encode_prompts(rows_of(settings), settings, tokenizer, config, session.pool());

  session.agree({{"prompts_checksum", checksum_text(checksum_of_prompts(prompts))}});
  session.check_work([&](const Settings& s) {
    WorkBounds work;
    work.generation = bounds_of(prompts.ids, s.eval_batch_size);
    work.max_new_tokens = s.max_new_tokens;
    return work;
  });
  const fs::path output = settings.output;
  // Creates the folder of --output now, so that an error comes before the long work.
  if (output.has_parent_path() && session.worker().is_first()) create_folders(output.parent_path());
  session.make_engine();
  return run_among_ranks(invocation, [&] {
    session.prepare();
    session.load_weights();
    // On a CPU, generation is silent: its precision is fp32, or the note on the device says that it is emulated.
    session.note_start(session.worker().device().kind() == DeviceKind::cuda);
    note_sampling(options, file, settings, console);

    std::string written;  // the lines for --output
    const auto print = [&](const std::string& line) {
      if (output.empty()) return console.print(line);
      written += line + "\n";
    };
    EndsAtStops ends(tokenizer, settings);
    if (!settings.stop.empty()) options.on_token = [&](int64_t prompt, int32_t id) { return ends.add(prompt, id); };
    const auto answer_one = [&](const std::string& adapter) {
      const double begin_s = steady_seconds();
      const PromptRow& row = prompts.rows[0];
      StreamedText streamed(tokenizer, row.example, settings, console);
      const bool streaming = prints_as_it_comes(settings, console);
      if (!adapter.empty() && !settings.json) print(adapter + ":");
      GenerationOptions its_options = options;
      if (streaming) its_options.on_token = [&](int64_t, int32_t id) { return streamed.add(id); };
      generate_all(session.engine(), session.world(), prompts.ids, 1, its_options, [&](int64_t, const auto& texts) {
        if (streaming) return streamed.finish();
        if (!settings.json) return print(generated_text(texts[0], row.example, tokenizer, settings.stop).text);
        Record record = result_of(adapter, row, prompts.ids[0], texts[0], settings, tokenizer);
        record["runtime_s"] = steady_seconds() - begin_s;
        print(to_json(record));
      });
      ends.forget();
    };
    const auto answer_all = [&](const std::string& adapter) {
      const int64_t at_once = settings.eval_batch_size * session.worker().num_ranks(), count = std::ssize(prompts.ids);
      Progress progress(console,
                        {.description = "Generating", .total_steps = ceil_divide(count, at_once), .unit = "prompts"});
      const auto take = [&](int64_t first, const std::vector<std::vector<int32_t>>& texts) {
        for (size_t i = 0; i < texts.size(); ++i) {
          const size_t at = static_cast<size_t>(first) + i;
          print(to_json(result_of(adapter, prompts.rows[at], prompts.ids[at], texts[i], settings, tokenizer)));
        }
        ends.forget();
        progress.update(first / at_once + 1, std::ssize(texts));
      };
      generate_all(session.engine(), session.world(), prompts.ids, settings.eval_batch_size, options, take);
    };
    const std::vector<std::string> adapters = session.adapters();
    for (size_t i = 0; i < adapters.size(); ++i) {
      if (i > 0) session.change_adapter(i);
      const std::string adapter = adapters.size() > 1 ? adapters[i] : "";
      settings.prompts.empty() ? answer_one(adapter) : answer_all(adapter);
    }
    if (!output.empty() && session.worker().is_first()) write_file_atomically(output, written);
    return static_cast<int>(ExitCode::kDone);
  });
}

}  // namespace tessera
