#include "tessera/load/model_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "tessera/base/finite.h"
#include "tessera/base/read_file.h"
#include "tessera/load/model_files.h"
#include "tessera/load/special_tokens.h"
#include "tessera/report/record.h"
#include "tessera/store/all_ranks.h"
#include "tessera/store/atomic_folder.h"
#include "tessera/store/file.h"
#include "tessera/store/model_folder.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kMaxCopiedBytes = 64 << 20;

template <typename Visit>
void for_each_tensor(const Model& model, Visit&& visit) {
  for (int64_t u = 0; u < model.num_units(); ++u) {
    for (const ParameterSpec& spec : model.unit(u).table().specs()) visit(spec);
  }
}

// The index of a tensor's type in kSavedTypes. Returns 0 (f32) for types that a saved model cannot have (f64), and for
// tensors that are in no file. A tensor without a file is no error here, because the loader reports it.
size_t index_of_type(const std::optional<TensorSource>& source, const std::string& name) {
  const std::optional<DType> dtype = source ? source->dtype_of(name) : std::nullopt;
  const auto known = std::find(kSavedTypes.begin(), kSavedTypes.end(), dtype);
  return known == kSavedTypes.end() ? 0 : static_cast<size_t>(known - kSavedTypes.begin());
}

std::vector<DType> saved_types(const Model& model, const Settings& settings, const LoadedTypes& loaded) {
  std::vector<DType> dtypes;
  for_each_tensor(model, [&](const ParameterSpec& spec) {
    const auto known = loaded.find(spec.name);
    const DType as_loaded = known == loaded.end() ? DType::f32 : known->second;
    dtypes.push_back(settings.save_dtype.value_or(as_loaded));
  });
  return dtypes;
}

// The type that has the largest number of elements. config.json names only this type.
DType main_type(const std::vector<PlannedTensor>& tensors) {
  std::map<DType, int64_t> counts;
  for (const PlannedTensor& tensor : tensors) counts[tensor.dtype] += tensor.shape.num_elems();
  return std::max_element(counts.begin(), counts.end(), [](auto& a, auto& b) { return a.second < b.second; })->first;
}

// Throws if an element is too large for the saved type. The elements themselves are finite, because a run ends
// before it saves NaN or infinity.
void check_saved_range(const fs::path& folder, const ParameterSpec& spec, DType dtype, View part, int64_t first) {
  const int64_t found = find_non_finite(part, dtype);
  if (found < 0) return;
  double value;
  convert(part.data + found * static_cast<int64_t>(size_of(part.dtype)), part.dtype, &value, DType::f64, 1);
  const char* const word = dtype == DType::f16 ? "fp16" : dtype == DType::bf16 ? "bf16" : "fp32";
  throw RunError(folder,
                 fmt::format("is not written: tensor \"{}\" is {} at element {}, but the largest {} number is {}",
                             spec.name, value, first + found, word, largest_of(dtype)),
                 dtype == DType::f32 ? "" : "Give --save-dtype fp32");
}

// The text of tokenizer_config.json, for a tokenizer folder without this file.
std::string default_tokenizer_config(const ModelConfig& config, const Tokenizer& tokenizer) {
  Record record{{"tokenizer_class", "PreTrainedTokenizerFast"}};
  const std::pair<const char*, int32_t> tokens[] = {{"unk_token", config.unk_token_id},
                                                    {"bos_token", config.bos_token_id},
                                                    {"eos_token", config.eos_token_id},
                                                    {"pad_token", config.pad_token_id}};
  for (const auto& [key, id] : tokens) {
    const bool is_known = id >= 0 && (id == config.eos_token_id || tokenizer.is_special(id));
    if (is_known) record[key] = tokenizer.decode(std::array{id}, false);
  }
  record["padding_side"] = "left";
  record["clean_up_tokenization_spaces"] = false;
  return to_pretty_json(record) + "\n";
}

// Writes all files except the weights and their index.
void write_companions(const AtomicFolder& target, const ModelConfig& config, DType dtype, const Tokenizer& tokenizer,
                      const Settings& settings) {
  target.write_text("config.json", model_config_json(config, dtype));
  target.write_text("tokenizer.json", tokenizer.json_text());
  const auto text_of = [](const fs::path& file) -> std::optional<std::string> {
    if (!fs::exists(file)) return std::nullopt;
    return read_file(file, {.longest_bytes = kMaxCopiedBytes});
  };
  const fs::path generation = generation_config_path(settings);
  if (const auto text = text_of(generation)) {
    target.write_text("generation_config.json",
                      generation_config_to_save(*text, generation.string(), config.eos_token_id));
  }
  const fs::path own = settings.tokenizer;
  const fs::path tokenizer_folder = own.empty()             ? folder_of_model(settings)
                                    : fs::is_directory(own) ? own
                                                            : own.parent_path();
  // --eos-token replaces the token that these files name, so that the saved model ends its texts as it was trained to.
  const auto copy = [&](const char* name, bool names_tokens) {
    std::optional<std::string> text = text_of(tokenizer_folder / name);
    if (!text) return false;
    if (names_tokens && !settings.eos_token.empty()) {
      text = with_end_token(*text, (tokenizer_folder / name).string(),
                            tokenizer.decode(std::array{config.eos_token_id}, false));
    }
    target.write_text(name, *text);
    return true;
  };
  copy("special_tokens_map.json", true);
  copy("chat_template.jinja", false);
  if (!copy("tokenizer_config.json", true)) {
    target.write_text("tokenizer_config.json", default_tokenizer_config(config, tokenizer));
  }
}

}  // namespace

// Rank 0 sends one digit for each tensor: the index of the tensor's type in kSavedTypes.
LoadedTypes loaded_types_of(const Model& model, const Settings& settings, Communicator& world) {
  const auto codes = on_all_ranks(world, "the types of the weights", [&] {
    std::string text;
    if (world.rank() != 0) return text;
    std::optional<TensorSource> source;
    if (settings.init != Settings::Init::random && TensorSource::exists(folder_of_model(settings))) {
      source.emplace(folder_of_model(settings));
    }
    for_each_tensor(model, [&](const ParameterSpec& spec) {
      text += static_cast<char>('0' + static_cast<char>(index_of_type(source, spec.name)));
    });
    return text;
  });
  LoadedTypes loaded;
  for_each_tensor(model, [&](const ParameterSpec& spec) {
    loaded[spec.name] = kSavedTypes.at(static_cast<size_t>(codes[0].at(loaded.size()) - '0'));
  });
  return loaded;
}

ModelWriter::ModelWriter(const Model& model, const Tokenizer& tokenizer, const Settings& settings,
                         const LoadedTypes& loaded, Communicator& world, ThreadPool& pool)
    : model_(model),
      tokenizer_(tokenizer),
      settings_(settings),
      world_(world),
      pool_(pool),
      dtypes_(saved_types(model, settings, loaded)),
      shards_(planned_tensors(), settings.max_shard_size) {}

std::vector<PlannedTensor> ModelWriter::planned_tensors() const {
  std::vector<PlannedTensor> tensors;
  for_each_tensor(model_, [&](const ParameterSpec& spec) {
    tensors.push_back({model_.file_name(spec.name), dtypes_[tensors.size()], spec.shape});
  });
  return tensors;
}

// The ranks wait for each other three times, as for a checkpoint (store/checkpoint_writer.cc): after rank 0 has created
// the folder, after all ranks have written their elements, and after rank 0 has completed the folder.
void ModelWriter::write(const fs::path& folder, const std::function<void(const Write&)>& write_part) const {
  std::optional<AtomicFolder> target;  // rank 0 only; removes the temporary folder on failure
  const auto folders = on_all_ranks(world_, "a model's folder", [&]() -> std::string {
    if (world_.rank() != 0) return "";
    target.emplace(folder, std::vector<std::string>{"config.json"});
    write_companions(*target, model_.config(), main_type(planned_tensors()), tokenizer_, settings_);
    shards_.create_files(target->temporary());
    return target->temporary();
  });
  const auto counts = on_all_ranks(world_, "a model's weights", [&] {
    if (!fs::is_directory(folders[0])) {
      throw RunError(folders[0], "was created by rank 0, but this rank does not see it",
                     "The output folder must be on a file system that the machines of all ranks share");
    }
    return std::to_string(write_tensors(folder, folders[0], write_part));
  });
  on_all_ranks(world_, "a model's files", [&]() -> std::string {
    if (world_.rank() != 0) return "";
    int64_t num_written = 0;
    for (const std::string& count : counts) num_written += std::stoll(count);
    TESSERA_ASSERT(num_written == model_.num_parameters());
    shards_.complete_files(target->temporary());
    target->commit();
    return "";
  });
}

int64_t ModelWriter::write_tensors(const fs::path& folder, const fs::path& temporary,
                                   const std::function<void(const Write&)>& write_part) const {
  ShardWriter writer(shards_, temporary, pool_);
  int64_t num_written = 0;
  write_part([&](int64_t unit, ElemRange range, View parameters) {
    for (const ParameterSpec& spec : model_.unit(unit).table().specs()) {
      const int64_t begin = std::max(range.begin, spec.offset);
      const int64_t end = std::min(range.end, spec.offset + spec.shape.num_elems());
      if (begin >= end) continue;
      const View part = parameters.rows(begin - range.begin, end - range.begin);
      const std::string name = model_.file_name(spec.name);
      check_saved_range(folder, spec, shards_.place(name).dtype, part, begin - spec.offset);
      writer.write(name, begin - spec.offset, part);
      num_written += end - begin;
    }
  });
  writer.sync();
  return num_written;
}

}  // namespace tessera
