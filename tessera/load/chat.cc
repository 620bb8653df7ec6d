#include "tessera/load/chat.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <filesystem>

#include "tessera/base/option_names.h"
#include "tessera/base/read_file.h"
#include "tessera/base/record.h"
#include "tessera/load/model_place.h"
#include "tessera/load/special_tokens.h"
#include "tessera/store/model_folder.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

using TemplateSource = ChatTemplate::Source;

constexpr uint64_t kMaxBytes = 16 << 20;

struct Sources {
  std::optional<TemplateSource> usual, with_tools;
};

bool has_file(const fs::path& file) {
  std::error_code ignored;  // an unreadable folder is reported when its other files are read
  return fs::exists(file, ignored);
}

TemplateSource source_in(const fs::path& file) {
  return {read_file(file, {.longest_bytes = kMaxBytes}), file.string()};
}

// The value of "chat_template": a text, or a list of {"name", "template"}.
void add_from_json(const fs::path& file, Sources& sources) {
  const Record value = tokenizer_record(file).value("chat_template", Record());
  const std::string where = file.string() + ": chat_template";
  if (value.is_string()) {
    sources.usual = {value.get<std::string>(), where};
  } else if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i) {
      const Record& each = value[i];
      const bool has_form =
          each.is_object() && each.value("name", Record()).is_string() && each.value("template", Record()).is_string();
      if (!has_form) throw InputError(fmt::format("{}[{}]", where, i), "must be {\"name\", \"template\"}");
      const std::string name = each["name"].get<std::string>();
      const TemplateSource source{each["template"].get<std::string>(), fmt::format("{}[{}]", where, i)};
      if (name == "default") sources.usual = source;
      if (name == "tool_use") sources.with_tools = source;
    }
  } else if (!value.is_null()) {
    throw InputError(where, "must be a text or a list of {\"name\", \"template\"}");
  }
}

Sources sources_of(const Settings& settings, const fs::path& folder) {
  Sources sources;
  if (!settings.chat_template.empty()) {
    sources.usual = source_in(settings.chat_template);
    return sources;
  }
  add_from_json(folder / "chat_template.json", sources);
  add_from_json(folder / "tokenizer_config.json", sources);
  if (has_file(folder / "chat_template.jinja")) sources.usual = source_in(folder / "chat_template.jinja");
  const fs::path tools = folder / kChatTemplates / "tool_use.jinja";
  if (has_file(tools)) sources.with_tools = source_in(tools);
  return sources;
}

std::string today() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm local{};
  localtime_r(&now, &local);
  return fmt::format("{:04}-{:02}-{:02}", local.tm_year + 1900, local.tm_mon + 1, local.tm_mday);
}

std::tm time_of(const std::string& date) {
  std::tm time{};
  strptime(date.c_str(), "%Y-%m-%d", &time);  // also sets the day of the week and of the year
  return time;
}

// The special tokens that the files name, as transformers gives them to templates.
Record variables_of(const fs::path& folder, const Settings& settings, const Tokenizer& tokenizer,
                    const ModelConfig& config) {
  Record variables = Record::object();
  for (const char* file : {"special_tokens_map.json", "tokenizer_config.json"}) {
    const Record record = tokenizer_record(folder / file);
    for (const char* key :
         {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
      if (const Record token = named_token(record, key); token.is_string()) variables[key] = token;
    }
  }
  if (!settings.eos_token.empty()) variables["eos_token"] = tokenizer.decode(std::array{config.eos_token_id}, false);
  return variables;
}

}  // namespace

ChatTemplate chat_template_of(const Settings& settings, const Tokenizer& tokenizer, const ModelConfig& config,
                              TemplateDate date) {
  const fs::path folder = tokenizer_file_of(settings).parent_path();
  const Sources sources = sources_of(settings, folder);
  if (!sources.usual) {
    throw InputError(folder.string(), "has no chat template, so nothing says how conversations become text",
                     "Give " + option("chat_template") +
                         " FILE, or use a model that was trained for conversations (\"Instruct\", \"Chat\", \"it\")");
  }
  const bool writes_day = sources.usual->text.find("strftime_now") != std::string::npos ||
                          (sources.with_tools && sources.with_tools->text.find("strftime_now") != std::string::npos);
  if (date == TemplateDate::must_be_given && writes_day && settings.template_date.empty()) {
    throw UsageError(option_place("template_date"),
                     sources.usual->where + " writes the current day (strftime_now), so the samples would depend on it",
                     fmt::format("Give {} {}", option("template_date"), today()));
  }
  return {*sources.usual, sources.with_tools, variables_of(folder, settings, tokenizer, config),
          time_of(settings.template_date.empty() ? today() : settings.template_date)};
}

ChatOptions chat_options_of(const Settings& settings, const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                            const ModelConfig& config) {
  ChatOptions options{.chat_template = &chat_template,
                      .loss_on = settings.loss_on,
                      .tokenizer = &tokenizer,
                      .end_ids = config.more_end_ids};
  options.end_ids.push_back(config.eos_token_id);
  return options;
}

}  // namespace tessera
