#include "tessera/store/model_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "tessera/base/finite.h"
#include "tessera/base/option_names.h"
#include "tessera/model/adapter_config.h"
#include "tessera/store/all_ranks.h"
#include "tessera/store/atomic_folder.h"
#include "tessera/store/file.h"
#include "tessera/store/model_folder.h"
#include "tessera/store/replaceable.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr const char* kConfig = "config.json";

std::vector<DType> saved_types(const Model& model, const ModelWriterOptions& options) {
  std::vector<DType> dtypes;
  model.for_each_tensor([&](const ParameterSpec& spec) {
    const auto known = options.loaded.find(spec.name);
    const DType as_loaded = known == options.loaded.end() ? DType::f32 : known->second;
    dtypes.push_back(options.dtype.value_or(as_loaded));
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
                 dtype == DType::f32 ? "" : "Give " + option("save_dtype") + " fp32");
}

}  // namespace

ModelWriter::ModelWriter(const Model& model, const ModelWriterOptions& options, Communicator& world, ThreadPool& pool)
    : model_(model),
      world_(world),
      pool_(pool),
      base_(options.base),
      dtypes_(saved_types(model, options)),
      shards_(model.config().adapter ? ModelShards(planned_tensors(), kAdapterWeights)
                                     : ModelShards(planned_tensors(), options.max_shard_bytes)) {
  on_all_ranks(world, "the files of the tokenizer", [&]() -> std::string {
    if (world.rank() == 0) files_ = options.read_files();
    return "";
  });
}

void ModelWriter::write_texts(const WriteText& write_text) const {
  write_text(kConfig, model_config_json(model_.config(), main_type(planned_tensors())));
  if (const auto& adapter = model_.config().adapter) {
    write_text(kAdapterConfig, adapter_config_json(*adapter, {}, base_));  // as the run got the options
  }
  for (const ModelFile& file : files_) write_text(file.name, file.text);
}

std::vector<PlannedTensor> ModelWriter::planned_tensors() const {
  std::vector<PlannedTensor> tensors;
  size_t i = 0;
  model_.for_each_tensor([&](const ParameterSpec& spec) {
    const DType dtype = dtypes_[i++];
    if (has(spec.section)) tensors.push_back({saved_name(spec.name), dtype, spec.shape});
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
    const auto& adapter = model_.config().adapter;
    write_texts([&](std::string_view name, std::string_view text) {
      const bool is_of_base = name == kConfig || name == "generation_config.json";
      if (adapter && (is_of_base || name == kAdapterConfig)) return;  // a folder of PEFT has no files of the base
      target->write_text(name, text);
    });
    if (adapter) {
      target->write_text(kAdapterConfig, adapter_config_json(*adapter, model_.adapted_layers(), base_));
    }
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
    TESSERA_ASSERT(num_written ==
                   (model_.config().adapter ? model_.num_trainable_parameters() : model_.num_parameters()));
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
    if (!has(section)) return;
    const ParameterTable& table = model_.unit(unit).table();
    table.for_each_tensor(section, range.begin, range.end, [&](const ParameterSpec& spec, int64_t first, int64_t last) {
      const View part = parameters.rows(spec.offset + first - range.begin, spec.offset + last - range.begin);
      const std::string name = saved_name(spec.name);
      check_saved_range(folder, spec, shards_.place(name).dtype, part, first);
      writer.write(name, first, part);
      num_written += last - first;
    });
  });
  writer.sync();
  return num_written;
}

}  // namespace tessera
