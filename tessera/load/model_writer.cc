#include "tessera/load/model_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "tessera/base/finite.h"
#include "tessera/load/checkpoint_weights.h"
#include "tessera/load/model_place.h"
#include "tessera/store/all_ranks.h"
#include "tessera/store/atomic_folder.h"
#include "tessera/store/file.h"
#include "tessera/store/model_folder.h"
#include "tessera/store/replaceable.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

template <typename Visit>
void for_each_tensor(const Model& model, Visit&& visit) {
  for (int64_t u = 0; u < model.num_units(); ++u) {
    for (const ParameterSpec& spec : model.unit(u).table().specs()) visit(spec);
  }
}

// The index of a tensor's type in kSavedTypes, as a digit. Returns 0 (f32) for types that a saved model cannot have
// (f64), and for tensors that are in no file. A tensor without a file is no error here, because the loader reports it.
char digit_of(std::optional<DType> dtype) {
  const auto known = std::find(kSavedTypes.begin(), kSavedTypes.end(), dtype);
  return static_cast<char>('0' + (known == kSavedTypes.end() ? 0 : known - kSavedTypes.begin()));
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

}  // namespace

// Rank 0 sends one digit for each tensor: the index of the tensor's type in kSavedTypes.
LoadedTypes loaded_types_of(const Model& model, const Settings& settings, Communicator& world) {
  const auto codes = on_all_ranks(world, "the types of the weights", [&] {
    std::string text;
    if (world.rank() != 0) return text;
    std::optional<TensorSource> source;
    const bool has_files = settings.init != Settings::Init::random;
    const fs::path folder = has_files ? folder_of_model(settings) : "";
    if (has_files && is_checkpoint(folder)) {
      const LoadedTypes known = loaded_types_in(folder);
      for_each_tensor(model, [&](const ParameterSpec& spec) {
        const auto type = known.find(spec.name);
        text += digit_of(type == known.end() ? std::nullopt : std::optional(type->second));
      });
      return text;
    }
    if (has_files && TensorSource::exists(folder)) source.emplace(folder);
    for_each_tensor(model, [&](const ParameterSpec& spec) {
      text += digit_of(source ? source->dtype_of(spec.name) : std::nullopt);
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
      world_(world),
      pool_(pool),
      dtypes_(saved_types(model, settings, loaded)),
      shards_(planned_tensors(), settings.max_shard_size) {
  on_all_ranks(world, "the files of the tokenizer", [&]() -> std::string {
    if (world.rank() == 0) companions_ = read_companions(settings, model.config(), tokenizer);
    return "";
  });
}

void ModelWriter::write_companions(const WriteText& write_text) const {
  write_text("config.json", model_config_json(model_.config(), main_type(planned_tensors())));
  write_text("tokenizer.json", tokenizer_.json_text());
  for (const Companion& companion : companions_) write_text(companion.name, companion.text);
}

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
    target.emplace(folder, why_no_saved_model);
    write_companions([&](std::string_view name, std::string_view text) { target->write_text(name, text); });
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
  write_part([&](Section section, int64_t unit, ElemRange range, View parameters) {
    const ParameterTable& table = model_.unit(unit).table();
    table.for_each_tensor(section, range.begin, range.end, [&](const ParameterSpec& spec, int64_t first, int64_t last) {
      const View part = parameters.rows(spec.offset + first - range.begin, spec.offset + last - range.begin);
      const std::string name = model_.file_name(spec.name);
      check_saved_range(folder, spec, shards_.place(name).dtype, part, first);
      writer.write(name, first, part);
      num_written += last - first;
    });
  });
  writer.sync();
  return num_written;
}

}  // namespace tessera
