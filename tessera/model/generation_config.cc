#include "tessera/model/generation_config.h"

#include <limits>

#include "tessera/model/config_reader.h"

namespace tessera {

// Keys that Tessera does not use, each with its neutral number (NaN: no number is neutral). Ignoring a key changes
// nothing if its value is the neutral number, null, or an empty list or object.
constexpr std::pair<const char*, double> kUnusedKeys[] = {
    {"repetition_penalty", 1},
    {"encoder_repetition_penalty", 1},
    {"no_repeat_ngram_size", 0},
    {"min_p", 0},
    {"typical_p", 1},
    {"epsilon_cutoff", 0},
    {"eta_cutoff", 0},
    {"num_beams", 1},
    {"penalty_alpha", 0},
    {"guidance_scale", 1},
    {"min_length", 0},
    {"min_new_tokens", 0},
    {"bad_words_ids", 0},
    {"sequence_bias", 0},
    {"suppress_tokens", 0},
    {"begin_suppress_tokens", 0},
    {"forced_bos_token_id", std::numeric_limits<double>::quiet_NaN()},
    {"forced_eos_token_id", std::numeric_limits<double>::quiet_NaN()},
    {"exponential_decay_length_penalty", 0},
};

namespace {

std::vector<std::string> unused_of(const ConfigReader& read) {
  std::vector<std::string> unused;
  for (const auto& [key, neutral] : kUnusedKeys) {
    const Json* value = read.value(key);
    if (!value || (value->is_structured() && value->empty())) continue;
    if (value->is_number() && value->get<double>() == neutral) continue;
    unused.push_back(value->is_number() ? fmt::format("{} {}", key, value->dump()) : std::string(key));
  }
  return unused;
}

}  // namespace

GenerationConfig parse_generation_config(std::string_view text, const std::string& where, int64_t vocab_size) {
  const Json json = parse_json<Json>(text, where, "Use the generation_config.json of the model, or remove it");
  if (!json.is_object()) throw InputError(where, "is not a JSON object", "Use the file of the model, or remove it");
  const ConfigReader read(json, where);
  GenerationConfig config;
  config.end_ids = read_end_ids(read, vocab_size, config.notes);
  for (const char* key : {"bos_token_id", "pad_token_id"}) read_token_id(read, key, vocab_size, config.notes);
  // An error of `read` begins with "PATH: ".
  const auto keep = [&](const char* key, auto&& read_value) {
    try {
      if (read.has(key)) read_value();
    } catch (const InputError& error) {
      config.faults.emplace_back(key, std::string(error.what()).substr(where.size() + 2));
    }
  };
  keep("do_sample", [&] { config.do_sample = read.boolean("do_sample", false); });
  keep("temperature", [&] { config.temperature = read.number({"temperature"}, 1, 0, 1e6); });
  keep("top_k", [&] { config.top_k = read.integer({"top_k"}, 0, 0, std::numeric_limits<int32_t>::max()); });
  keep("top_p", [&] { config.top_p = read.number({"top_p"}, 1, 0, 1); });
  config.unused = unused_of(read);
  return config;
}

std::string generation_config_to_save(const std::string& text, const std::string& where, int32_t end_id) {
  Json json = parse_json<Json>(text, where);
  const Json before = json;
  add_end_id(json, end_id);
  return json == before ? text : json.dump(2) + "\n";
}

}  // namespace tessera
