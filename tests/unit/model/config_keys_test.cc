// Reads configurations with every key of the tables of keys, for every type of model.
#include "tessera/model/config_keys.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tessera/base/error.h"
#include "tessera/model/architecture.h"
#include "tessera/model/config.h"

namespace tessera {
namespace {

using testing::HasSubstr;

Json config_of(const std::string& type) {
  Json config{{"model_type", type}, {"vocab_size", 11}, {"hidden_size", 12}};
  if (type == "bloom" || type == "gpt") {
    config["num_layers"] = 3;
    config["num_heads"] = 2;
    return config;
  }
  config.update(
      Json{{"intermediate_size", 8}, {"num_hidden_layers", 3}, {"num_attention_heads", 2}, {"num_key_value_heads", 2}});
  config["head_dim"] = 6;
  config["max_position_embeddings"] = 64;
  config["rope_scaling"] = {{"type", "yarn"}, {"factor", 2}};  // reads original_max_position_embeddings
  return config;
}

Json valid_value(const std::string& key, const std::string& type) {
  const Json values{
      {"hidden_act", "silu"}, {"tie_word_embeddings", true}, {"attention_bias", true},   {"mlp_bias", true},
      {"rope_theta", 10000},  {"attention_dropout", 0.5},    {"hidden_dropout", 0.5},    {"dropout", 0.5},
      {"rms_norm_eps", 0.5},  {"initializer_range", 2},      {"layer_norm_epsilon", 0.5}};
  if (key == "layer_types")
    return Json(std::vector<std::string>(3, type == "mistral" ? "sliding_attention" : "full_attention"));
  return values.value(key, Json(1));
}

struct Outcome {
  std::string error;  // empty: the configuration is valid
  std::vector<std::string> notes;
};

Outcome outcome_of(const Json& config) {
  try {
    return {"", parse_model_config(config.dump(), "config.json").notes};
  } catch (const InputError& error) {
    return {error.what(), {}};
  }
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

// Calls visit(type, key, row) for every key and type, with the first row for the key. A pattern gives one key.
template <typename Visit>
void for_each_key(Visit&& visit) {
  for (const Architecture* architecture : architectures()) {
    const std::string type = architecture->name;
    std::set<std::string> seen;
    for (const ConfigKeys* row : keys_of(*architecture)) {
      for (std::string key : words_of(row->names)) {
        for (size_t pos; (pos = key.find('*')) != std::string::npos;) key.replace(pos, 1, "zz");
        if (!seen.insert(key).second) continue;
        SCOPED_TRACE(type + " " + key);
        visit(type, key, *row);
      }
    }
  }
}

TEST(ConfigKeys, DoWhatTheTableSays) {
  int num_cases = 0;
  for_each_key([&](const std::string& type, const std::string& key, const ConfigKeys& row) {
    ++num_cases;
    const std::vector<std::string> names = row.use == KeyUse::renamed ? words_of(row.why) : std::vector<std::string>();
    const auto with = [&](const Json& value, bool has_other = true) {
      Json config = config_of(type);
      const bool is_given = std::ranges::any_of(names, [&](const std::string& name) { return config.contains(name); });
      if (!has_other) std::ranges::for_each(names, [&](const std::string& name) { config.erase(name); });
      if (has_other && !is_given && !names.empty()) config[names[0]] = valid_value(names[0], type);
      config[key] = value;
      return outcome_of(config);
    };
    const Json odd{{"odd", 1}};
    const std::string quoted = "\"" + key + "\"";
    if (row.use == KeyUse::read) {  // its value has an effect, so a wrong value has one, too
      const Outcome outcome = with(odd);
      EXPECT_THAT(outcome.error + (outcome.notes.empty() ? "" : outcome.notes[0]), HasSubstr(quoted));
      return;
    }
    for (const Json& value : Json::parse(row.neutral)) {
      EXPECT_EQ(with(value).error, "") << value;
      EXPECT_THAT(with(value).notes, testing::IsEmpty()) << value;
    }
    EXPECT_EQ(with(nullptr).error, "");
    EXPECT_THAT(with(nullptr).notes, testing::IsEmpty());
    for (const Json& value : {odd, Json(-7.5), Json("odd")}) {
      const Outcome outcome = with(value);
      if (row.use == KeyUse::refused) {
        EXPECT_THAT(outcome.error, HasSubstr("config.json: " + quoted + " is ")) << value;
        EXPECT_THAT(outcome.error, HasSubstr(row.why)) << value;
      } else if (row.use == KeyUse::noted) {
        EXPECT_THAT(outcome.notes, testing::ElementsAre(HasSubstr("config.json: " + quoted + " is "))) << value;
      } else if (row.use == KeyUse::unused) {
        EXPECT_EQ(outcome.error, "") << value;
        EXPECT_THAT(outcome.notes, testing::IsEmpty()) << value;
      } else {
        EXPECT_EQ(outcome.error, "") << value;
        EXPECT_THAT(outcome.notes, testing::ElementsAre(HasSubstr(quoted + " has no effect"))) << value;
        EXPECT_THAT(with(value, false).error, HasSubstr("Did you mean \"" + names[0] + "\"?")) << value;
      }
    }
  });
  EXPECT_GT(num_cases, 600);
}

// A misspelt key is an error if the configuration lacks the key that it probably means.
TEST(ConfigKeys, MisspeltKeysAreNamed) {
  std::vector<std::string> known;
  for_each_key(
      [&](const std::string& type, const std::string& key, const ConfigKeys&) { known.push_back(type + key); });
  int num_cases = 0;
  for_each_key([&](const std::string& type, const std::string& key, const ConfigKeys& row) {
    if ((row.use != KeyUse::read && row.use != KeyUse::refused) || key.size() < 6 || key.find("zz") != key.npos) return;
    if (key == "model_type") return;  // without it, nothing else is read
    std::string dashed = key, upper = key;
    std::ranges::replace(dashed, '_', '-');
    upper[0] = static_cast<char>(upper[0] - 'a' + 'A');
    for (const std::string& word : {key.substr(0, 3) + key.substr(4), key + "s", key.substr(0, 2) + "q" + key.substr(2),
                                    key.substr(0, 4) + key[5] + key[4] + key.substr(6), dashed, upper}) {
      if (std::ranges::find(known, type + word) != known.end()) continue;
      Json config = config_of(type);
      for (const char* other : {"num_layers", "num_heads", "hidden_size"}) config.erase(other);
      config.erase(key);
      config[word] = 3;
      const std::string error = outcome_of(config).error;
      EXPECT_THAT(error, testing::AnyOf(HasSubstr("has the unknown key \"" + word + "\". Did you mean \""),
                                        HasSubstr("has the key \"" + word + "\", which models of type"),
                                        HasSubstr("\"" + word + "\" is 3")));
      ++num_cases;
    }
  });
  EXPECT_GT(num_cases, 200);
  Json config = config_of("llama");
  config["hidden_sizes"] = 13;  // beside hidden_size, the key may belong to another program
  config["use_foo"] = false;
  config["foo"] = {{"bar", 1}};
  EXPECT_THAT(outcome_of(config).notes, testing::ElementsAre("config.json: Tessera ignores keys that models of type "
                                                             "\"llama\" do not have: \"hidden_sizes\", \"foo\""));
  for (int i = 0; i < 1000; ++i) config["k" + std::to_string(i)] = 1;
  EXPECT_THAT(outcome_of(config).error, HasSubstr("keys, more than 1000"));
}

// A name that another program gives to a key, also with other separators, in capitals, or misspelt.
TEST(ConfigKeys, NamesOfOtherProgramsAreErrors) {
  const std::pair<const char*, const char*> kNames[] = {
      {"rms_norm_eps",
       "rms_norm_epsilon rms_eps rmsNormEps layernorm_eps layer_norm_eps layer_norm_epsilon norm_epsilon eps ln_eps "
       "variance_epsilon attention.layer_norm_rms_epsilon norm-eps layer_norm_epsilom"},
      {"num_key_value_heads",
       "n_kv_head n_kv_heads kv_heads num_kv_heads kvHeads n_kv num_query_groups head_count_kv attention.head_count_kv "
       "key_value_heads num_kv_head multi_query_group_num num_keyvalue_heads"},
      {"head_dim", "d_head dim_head head_size attention_head_dim dim_per_head headDim head_dims"},
      {"num_attention_heads", "n_head n_heads num_heads num_attn_heads head_count attention_heads num_atention_heads"},
      {"num_hidden_layers", "n_layer n_layers num_layers block_count num_hiden_layers"},
      {"hidden_size", "d_model n_embd n_embed embedding_length hiden_size"},
      {"intermediate_size", "ffn_hidden_size d_ff n_inner ffn_dim feed_forward_length intermediat_size"},
      {"hidden_act", "activation act_fn activation_fn hidden_activation activation_function hidden_actt"},
      {"tie_word_embeddings",
       "tie_embeddings weight_tying tied_embeddings share_embeddings_and_output_weights "
       "tie_word_embedding tie_weights"},
      {"rope_theta", "theta freq_base rope_tetha ropetheta"},
      {"attention_bias", "attn_bias use_attention_bias attention_biases"},
      {"mlp_bias", "ffn_bias use_mlp_bias"},
      {"attention_dropout", "attn_pdrop attn_dropout attention_probs_dropout_prob attn_drop_rate"},
      {"max_position_embeddings", "n_positions max_seq_len max_seq_length context_length max_positions"},
      {"initializer_range", "init_std init_method_std initializer_std"},
      {"layer_types", "layer_type layertypes"},
      {"quantization_config", "quantisation_config"},
      {"eos_token_id", "eos eos_id eos_token eos_token_ids eod_token_id"}};
  for (const auto& [key, names] : kNames) {
    for (const std::string& name : words_of(names)) {
      Json config = config_of("llama");
      config.erase(key);
      config["rope_scaling"] = nullptr;
      config[name] = 2;
      EXPECT_THAT(outcome_of(config).error, HasSubstr("Did you mean \"" + std::string(key) + "\"?")) << name;
    }
  }
  for (const char* name :
       {"rope_base", "rotary_emb_base", "rope.freq_base", "ropeScaling", "quantization", "quantize", "quant_method",
        "load_in_4bit", "untie_embeddings", "bits", "position_embeddings", "n_experts", "residual_multipler",
        "drop_path_rate", "embd_pdrop", "qk_rope_head_dim", "query_pre_attn_scaler"}) {
    Json config = config_of("llama");
    config[name] = {{"bits", 4}, {"group_size", 64}};
    EXPECT_THAT(outcome_of(config).error, HasSubstr("config.json: \"" + std::string(name) + "\" is an object")) << name;
  }
  // Names that only look similar, values that change nothing, and other names of a key that is given.
  Json config = config_of("llama");
  for (const char* name :
       {"attention_sinks", "attention_window_pattern", "num_steps", "rotations", "head", "hidden_sink"})
    config[name] = 4;
  const auto notes = outcome_of(config).notes;
  EXPECT_THAT(
      notes, testing::ElementsAre(HasSubstr(
                 R"("attention_sinks", "attention_window_pattern", "num_steps", "rotations", "head", "hidden_sink")")));
  config = config_of("bloom");
  config["n_heads"] = 2;
  config["attn_pdrop"] = 0;
  config["quantization"] = false;
  EXPECT_THAT(outcome_of(config).notes,
              testing::ElementsAre(HasSubstr(R"("n_heads" has no effect: models of this type read "num_heads")")));
}

TEST(ConfigKeys, EmptyValuesAreNotGiven) {
  for (const Architecture* architecture : architectures()) {
    Json config = config_of(architecture->name);
    for (const char* key : {"eos_token_id", "layer_types", "foo", "quantization"}) config[key] = Json::array();
    config["rope_parameters"] = Json::object();
    const ModelConfig model = parse_model_config(config.dump(), "config.json");
    EXPECT_EQ(model.eos_token_id, -1);
    EXPECT_EQ(model.end_fault, "");
    EXPECT_THAT(model.notes, testing::IsEmpty());
  }
}

TEST(RopeKeys, DoWhatTheTableSays) {
  for (const char* outer : {"rope_parameters", "rope_scaling"}) {
    for (const char* type : {"default", "linear", "llama3", "yarn"}) {
      for (const RopeKeys& row : rope_keys()) {
        for (const std::string& key : words_of(row.names)) {
          SCOPED_TRACE(std::string(outer) + " " + type + " " + key);
          Json config = config_of("llama");
          config.erase("rope_scaling");
          Json& rope = config[outer] = Json{{"rope_type", type}};
          if (type != std::string("default")) rope["factor"] = 2;
          if (type == std::string("llama3")) rope.update(Json{{"low_freq_factor", 1}, {"high_freq_factor", 4}});
          ASSERT_EQ(outcome_of(config).error, "");
          const std::vector<std::string> readers = words_of(row.readers);
          const bool is_read = std::ranges::any_of(readers, [&](auto& name) { return name == "*" || name == type; });
          rope[key] = Json{{"odd", 1}};
          const std::string where = "config.json: \"" + std::string(outer) + "\": ";
          if (is_read || row.neutral) {
            EXPECT_THAT(outcome_of(config).error, HasSubstr(where + "\"" + key + "\" is an object"));
          } else {
            EXPECT_EQ(outcome_of(config).error, "");
          }
          if (is_read) continue;
          for (const Json& value : Json::parse(row.neutral ? row.neutral : "[3]")) {
            rope[key] = value;
            EXPECT_EQ(outcome_of(config).error, "") << value;
          }
        }
      }
    }
  }
}

TEST(RopeKeys, UnknownKeysAreRefused) {
  const auto error_of = [](const char* rope) {
    Json config = config_of("qwen3");
    config["rope_scaling"] = Json::parse(rope);
    return outcome_of(config).error;
  };
  EXPECT_THAT(error_of(R"({"full_attention": {"rope_type": "default", "rope_theta": 3}})"),
              HasSubstr("\"full_attention\" is an object. Tessera supports only one set of rotary positions"));
  EXPECT_THAT(error_of(R"({"rope_tetha": 3})"), HasSubstr("unknown key \"rope_tetha\". Did you mean \"rope_theta\"?"));
  EXPECT_THAT(error_of(R"({"type": "linear", "faktor": 3})"), HasSubstr("Did you mean \"factor\"?"));
  EXPECT_THAT(error_of(R"({"type": "yarn", "factor": 3, "attn_factor": 2})"), HasSubstr("\"attn_factor\" is 2"));
  EXPECT_THAT(error_of(R"({"factor": 3})"), HasSubstr("\"factor\" is 3, but rope type \"default\" does not read this "
                                                      "key. Set \"rope_type\" to the type of the model"));
  EXPECT_EQ(error_of(R"({"factor": 1.0, "full_attention": null})"), "");
}

// A row of the page: rows of tables that say the same, and the types that they apply to.
struct PageRow {
  const ConfigKeys* row;
  std::string types;
};

bool say_the_same(const ConfigKeys& a, const ConfigKeys& b) {
  return a.topic == b.topic && a.use == b.use && std::string(a.names) == b.names &&
         std::string(a.neutral) == b.neutral && std::string(a.why) == b.why;
}

// All rows by topic. Within a topic, the tables of the architectures come first, then the shared rows.
std::vector<PageRow> page_rows() {
  std::vector<const ConfigKeys*> rows;
  const auto add = [&](std::span<const ConfigKeys> table) {
    for (const ConfigKeys& row : table) {
      const auto is_same = [&](const ConfigKeys* other) { return say_the_same(row, *other); };
      if (std::ranges::none_of(rows, is_same)) rows.push_back(&row);
    }
  };
  for (const Architecture* architecture : architectures()) {
    add(architecture->own_keys);
    if (architecture->family_keys) add(architecture->family_keys());
  }
  const size_t num_own = rows.size();
  add(shared_keys());
  std::vector<PageRow> result;
  for (size_t i = 0; i < rows.size(); ++i) {
    std::string types;
    for (const Architecture* architecture : architectures()) {
      const auto is_same = [&](const ConfigKeys* row) { return say_the_same(*row, *rows[i]); };
      if (std::ranges::any_of(keys_of(*architecture), is_same))
        types += (types.empty() ? "" : ", ") + std::string(architecture->name);
    }
    EXPECT_NE(types, "") << "no architecture has the row of " << rows[i]->names;
    result.push_back({rows[i], i < num_own ? types : "all"});
  }
  std::ranges::stable_sort(result, {}, [](const PageRow& row) { return row.row->topic; });
  return result;
}

// docs/config-keys.md shows the tables. TESSERA_WRITE_DOCS=1 writes them into the page.
std::string tables() {
  const auto code = [](const std::string& text) {
    std::string result;
    for (const std::string& word : words_of(text)) result += (result.empty() ? "`" : ", `") + word + "`";
    return result;
  };
  const auto neutral = [](const char* values) {
    std::string result;
    for (const Json& value : Json::parse(values)) result += (result.empty() ? "`" : ", `") + value.dump() + "`";
    return result;
  };
  std::string page;
  for (const auto& [use, title] :
       {std::pair{KeyUse::read, "### Read"}, std::pair{KeyUse::refused, "### Refused"},
        std::pair{KeyUse::renamed, "### Names of other types"}, std::pair{KeyUse::noted, "### Ignored, with a note"},
        std::pair{KeyUse::unused, "### Ignored"}}) {
    const bool has_neutral = use == KeyUse::refused || use == KeyUse::noted, has_why = use != KeyUse::read;
    page += std::string(title) + "\n\n| keys | types |" + (has_neutral ? " allowed values |" : "");
    page += has_why ? (use == KeyUse::renamed ? " the key to use |\n" : " reason |\n") : "\n";
    page += std::string("|---|---|") + (has_neutral ? "---|" : "") + (has_why ? "---|\n" : "\n");
    for (const auto& [row, types] : page_rows()) {
      if (row->use != use) continue;
      page += "| " + code(row->names) + " | " + types + " | ";
      if (has_neutral) page += neutral(row->neutral) + " | ";
      if (has_why)
        page += (use == KeyUse::renamed ? code(row->why) : fmt::format(fmt::runtime(row->why), types)) + " |";
      page.erase(page.find_last_not_of(' ') + 1);
      page += "\n";
    }
    page += "\n";
  }
  page +=
      "### In `rope_parameters` and `rope_scaling`\n\n| keys | rope types that read them | allowed values with other "
      "types |\n|---|---|---|\n";
  for (const RopeKeys& row : rope_keys()) {
    const std::string readers = row.readers == std::string("*") ? "all" : code(row.readers);
    page += "| " + code(row.names) + " | " + (readers.empty() ? "none" : readers) + " | " +
            (row.neutral ? neutral(row.neutral) : "all") + " |\n";
  }
  return page;
}

TEST(ConfigKeys, ThePageShowsTheTables) {
  const std::string path = TESSERA_TEST_DIR "/../docs/config-keys.md";
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  const std::string page = text.str(), mark = "## Tables\n\n";
  const size_t begin = page.find(mark);
  ASSERT_NE(begin, std::string::npos);
  if (std::getenv("TESSERA_WRITE_DOCS"))
    std::ofstream(path) << page.substr(0, begin) << mark << tables();
  else
    EXPECT_EQ(page.substr(begin + mark.size()), tables()) << "Run this test with TESSERA_WRITE_DOCS=1";
}

}  // namespace
}  // namespace tessera
