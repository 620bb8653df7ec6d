#include "tessera/model/generation_config.h"

#include <limits>
#include <utility>

#include "tessera/model/config_reader.h"

namespace tessera {

// Keys that Tessera does not use, each with its neutral number (NaN: no number is neutral). Ignoring a key changes
// nothing if its value is the neutral number, null, or an empty list or object.
static constexpr std::pair<const char*, double> kUnusedKeys[] = {
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

static std::vector<std::string> unused_of(const ConfigReader& read) {
  std::vector<std::string> unused;
  for (const auto& [key, neutral] : kUnusedKeys) {
    const Json* value = read.value(key);
    if (!value || (value->is_structured() && value->empty())) continue;
    if (value->is_number() && value->get<double>() == neutral) continue;
    unused.push_back(value->is_number() ? fmt::format("{} {}", key, value->dump()) : std::string(key));
  }
  return unused;
}

GenerationConfig parse_generation_config(std::string_view text, const std::string& where, int64_t vocab_size) {
  const Json json = parse_json<Json>(text, where, "Use the generation_config.json of the model, or remove it");
  if (!json.is_object()) throw InputError(where, "is not a JSON object", "Use the file of the model, or remove it");
  const ConfigReader read(json, where);
  GenerationConfig config;
  config.end_ids = read_end_ids(read, vocab_size);
  for (const char* key : {"bos_token_id", "pad_token_id"}) {
    if (read.has(key)) read.integer({key}, -1, 0, vocab_size - 1);  // checks the value, but does not keep it
  }
  config.do_sample = read.boolean("do_sample", false);
  if (read.has("temperature")) config.temperature = read.number({"temperature"}, 1, 0, 1e6);
  if (read.has("top_k")) config.top_k = read.integer({"top_k"}, 0, 0, std::numeric_limits<int32_t>::max());
  if (read.has("top_p")) config.top_p = read.number({"top_p"}, 1, 0, 1);
  config.unused = unused_of(read);
  return config;
}

}  // namespace tessera
