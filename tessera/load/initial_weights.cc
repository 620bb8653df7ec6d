#include "tessera/load/initial_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>

#include "tessera/base/text.h"
#include "tessera/comm/world.h"
#include "tessera/data/tokenizer_text.h"
#include "tessera/load/adapter_files.h"
#include "tessera/load/checkpoint_weights.h"
#include "tessera/load/model_place.h"
#include "tessera/store/checked_files.h"
#include "tessera/store/checksum.h"
#include "tessera/store/model_folder.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

// Throws InputError if the head is tied and the files contain a head tensor that is not equal to the embedding.
// Divides the tensors into `num_ranks` parts, and compares only part `rank`.
void check_tied(const TensorSource& source, const Model& model, int rank, int num_ranks, ThreadPool& pool) {
  for (const std::string& name : model.tolerated_names()) {
    if (!source.contains(name) || source.are_equal(name, model.embedding_name(), rank, num_ranks, pool)) continue;
    throw InputError(
        source.file_of(name).string(),
        fmt::format("tensor \"{}\" is not equal to \"{}\"", name, model.embedding_name()),
        "In config.json the head is tied to the embedding. Set \"tie_word_embeddings\" to false there to use the "
        "tensor as the head, or remove the tensor to use the embedding");
  }
}

// The shape that a tensor has in the files. With --resize-embeddings, the embedding and the head have more rows in the
// model than in the files.
Shape shape_in_files(const Model& model, const ParameterSpec& spec) {
  const int64_t rows = model.config().vocab_size_in_files;
  if (rows == 0 || is_adapter_tensor(spec.name)) return spec.shape;
  if ((spec.name != model.embedding_name() && !spec.name.starts_with("lm_head."))) return spec.shape;
  return spec.shape.rank() == 1 ? Shape{rows} : Shape{rows, spec.shape[1]};
}

// Where the tensors of an adapter come from if the model's files do not have them.
class NewAdapter {
 public:
  // With an empty folder, the factors are drawn with the seed, by the CPU on every device.
  NewAdapter(const AdapterPlace& place, const Model& model, ThreadPool& pool) : seed_(place.seed) {
    if (!place.folder.empty()) {
      file_.emplace(place.folder, model);
    } else {
      cpu_ = make_cpu_device(pool);
      kernels_ = make_kernels(*cpu_);
    }
  }

  // Whether the adapter has the values of a tensor.
  bool has(const ParameterSpec& spec) const { return file_ ? spec.trainable() : is_adapter_tensor(spec.name); }
  void read(const ParameterSpec& spec, int64_t elem_begin, int64_t elem_end, const View& target) const {
    if (file_) return file_->read_range_into(spec.name, elem_begin, elem_end, target);
    const Initializer& init = spec.init;
    if (init.kind == Initializer::Kind::zero) return kernels_->fill(target, 0);
    TESSERA_ASSERT(init.kind == Initializer::Kind::uniform);
    kernels_->fill_uniform(target, -init.scale, init.scale, seed_, init.stream, elem_begin);
  }
  std::string checksum() const { return file_ ? file_->checksum() : ""; }

 private:
  std::optional<AdapterFile> file_;
  uint64_t seed_;
  std::unique_ptr<Device> cpu_;
  std::unique_ptr<Kernels> kernels_;
};

// Reads the tensors of a model. Rows that the files do not have get the mean of the rows in the files. The mean is the
// same with any sharding, because each rank that needs it computes it from all rows in the same order.
class ModelReader {
 public:
  ModelReader(const Model& model, ReadTensor read, const NewAdapter* adapter)
      : model_(model), read_(std::move(read)), adapter_(adapter) {}

  void read(const ParameterSpec& spec, int64_t elem_begin, int64_t elem_end, const View& target) {
    if (adapter_ && adapter_->has(spec)) return adapter_->read(spec, elem_begin, elem_end, target);
    const int64_t in_files = shape_in_files(model_, spec).num_elems();
    const int64_t split = std::clamp(in_files, elem_begin, elem_end);
    if (elem_begin < split) read_(spec.name, elem_begin, split, target.rows(0, split - elem_begin));
    if (split == elem_end) return;
    const std::vector<float>& mean = mean_row(spec);
    const auto width = std::ssize(mean);
    std::vector<float> values;
    for (int64_t i = split; i < elem_end; ++i) values.push_back(mean[static_cast<size_t>(i % width)]);
    const View rest = target.rows(split - elem_begin, elem_end - elem_begin);
    convert(values.data(), DType::f32, rest.data, rest.dtype, values.size());
  }

 private:
  const std::vector<float>& mean_row(const ParameterSpec& spec) {
    constexpr int64_t kChunkElems = 1 << 20;
    std::vector<float>& mean = means_[spec.name];
    if (!mean.empty()) return mean;
    const Shape shape = shape_in_files(model_, spec);
    const int64_t rows = shape[0], width = shape.num_elems() / rows;
    const int64_t step = std::max<int64_t>(1, kChunkElems / width);
    std::vector<double> sums(static_cast<size_t>(width));
    for (int64_t begin = 0; begin < rows; begin += step) {
      const int64_t count = std::min(step, rows - begin) * width;
      std::vector<float> values(static_cast<size_t>(count));
      read_(spec.name, begin * width, begin * width + count, view_of(values.data(), {count}));
      for (size_t i = 0; i < values.size(); ++i) sums[i % sums.size()] += static_cast<double>(values[i]);
    }
    for (const double sum : sums) mean.push_back(static_cast<float>(sum / static_cast<double>(rows)));
    return mean;
  }

  const Model& model_;
  const ReadTensor read_;
  const NewAdapter* adapter_;                        // null: the model has none, or its files have it
  std::map<std::string, std::vector<float>> means_;  // by tensor
};

void read_into_engine(Engine& engine, const ReadTensor& read, const NewAdapter* adapter, bool from_rank_0) {
  const Model& model = engine.model();
  ModelReader reader(model, read, adapter);
  const auto read_section = [&](Section section, int64_t unit, ElemRange range, View to) {
    const ParameterTable& table = model.unit(unit).table();
    table.for_each_tensor(section, range.begin, range.end, [&](const ParameterSpec& spec, int64_t first, int64_t last) {
      reader.read(spec, first, last, to.rows(spec.offset + first - range.begin, spec.offset + last - range.begin));
    });
  };
  engine.states().load_parameters(read_section, from_rank_0);
}

// Notes about the names in the files: the words that are ignored, and the tensors that are not used.
std::vector<std::string> notes_of(const TensorSource& source, const std::vector<std::string>& buffers) {
  std::vector<std::string> notes;
  const std::string folder = source.folder().string();
  if (!source.wrappers().empty()) {
    const std::vector<std::string> words(source.wrappers().begin(), source.wrappers().end());
    notes.push_back(
        fmt::format("{}: the names of tensors contain \"{}.\" of a wrapper. These words are ignored, and a "
                    "saved model does not have them",
                    folder, joined(words, ".\", \"")));
  }
  if (!buffers.empty()) {
    const bool one = buffers.size() == 1;
    notes.push_back(fmt::format("{}: {} not used, because {} from config.json: {}{}", folder,
                                one ? "1 tensor is" : fmt::format("{} tensors are", buffers.size()),
                                one ? "it follows" : "they follow", printable(buffers.front()), one ? "" : ", ..."));
  }
  std::error_code ignored;  // an unreadable folder is reported when its other files are read
  if (fs::exists(source.folder() / "adapter_config.json", ignored)) {
    notes.push_back(
        fmt::format("warning: {} also has a LoRA adapter (adapter_config.json), which is not applied", folder));
  }
  return notes;
}

}  // namespace

ReadAhead read_weights_ahead(const Settings& settings, const World* world) {
  const bool reads = !world || (world->local_rank() == 0 && world->local_size() == world->size());
  if (!reads || settings.init == Settings::Init::random) return {};
  fs::path folder;
  try {
    folder = folder_of_model(settings);
  } catch (const Error&) {  // reported when the model is read
    return {};
  }
  std::error_code error;
  std::vector<fs::path> files = {folder / "model.safetensors"};
  if (!fs::exists(files[0], error)) {
    files.clear();
    for (auto it = fs::directory_iterator(folder, error); it != fs::end(it); it.increment(error)) {
      if (it->path().extension() == ".safetensors") files.push_back(it->path());
    }
    std::sort(files.begin(), files.end());
  }
  return ReadAhead(std::move(files));
}

std::vector<std::string> load_parameters(Engine& engine, const fs::path& folder, Communicator& world, ThreadPool& pool,
                                         const AdapterPlace& place) {
  const bool from_rank_0 = engine.options().sharding.sync_module_states;
  if (from_rank_0 && world.rank() > 0) {  // the folder may be missing on these ranks
    engine.states().load_parameters({}, from_rank_0);
    return {};
  }
  const Model& model = engine.model();
  std::optional<NewAdapter> adapter;
  if (model.config().adapter && (!place.folder.empty() || !is_checkpoint(folder) || !adapter_in_checkpoint(folder))) {
    adapter.emplace(place, model, pool);
  }
  const NewAdapter* const added = adapter ? &*adapter : nullptr;
  std::vector<std::pair<std::string, Shape>> expected;
  for (int64_t u = 0; u < model.num_units(); ++u) {
    for (const ParameterSpec& spec : model.unit(u).table().specs()) {
      if (!added || !is_adapter_tensor(spec.name)) expected.emplace_back(spec.name, shape_in_files(model, spec));
    }
  }
  const bool all_read = !from_rank_0 && world.size() > 1;
  if (is_checkpoint(folder)) {
    const auto alone = make_self_communicator();
    const CheckpointWeights source(folder, all_read ? world : *alone, pool);
    for (const auto& [name, shape] : expected) source.check(name, shape);
    read_into_engine(
        engine,
        [&](const std::string& name, int64_t begin, int64_t end, const View& target) {
          source.read_range_into(name, begin, end, target);
        },
        added, from_rank_0);
    return {};
  }
  const TensorSource source(folder);
  const std::vector<std::string> buffers = source.check_tensors(expected, model.tolerated_names());
  if (all_read) {
    check_agreement(world, {{"weights_checksum", checksum_text(source.sampled_checksum())},
                            {"adapter_checksum", added ? added->checksum() : ""}});
  }
  check_tied(source, model, all_read ? world.rank() : 0, all_read ? world.size() : 1, pool);
  read_into_engine(
      engine,
      [&](const std::string& name, int64_t begin, int64_t end, const View& target) {
        source.read_range_into(name, begin, end, target, &pool);
      },
      added, from_rank_0);
  return notes_of(source, buffers);
}

ReadTensor reader_of_adapted(const Model& model, const fs::path& folder, const fs::path& adapter_folder,
                             ThreadPool& pool) {
  struct Files {
    TensorSource source;
    NewAdapter adapter;
    std::optional<ModelReader> reader = {};
    std::map<std::string, const ParameterSpec*> specs = {};
    Files(const fs::path& base, const AdapterPlace& place, const Model& of, ThreadPool& threads)
        : source(base), adapter(place, of, threads) {}
  };
  const auto files = std::make_shared<Files>(folder, AdapterPlace{adapter_folder, 0}, model, pool);
  std::vector<std::pair<std::string, Shape>> expected;
  for (int64_t u = 0; u < model.num_units(); ++u) {
    for (const ParameterSpec& spec : model.unit(u).table().specs()) {
      files->specs[spec.name] = &spec;
      if (!is_adapter_tensor(spec.name)) expected.emplace_back(spec.name, shape_in_files(model, spec));
    }
  }
  files->source.check_tensors(expected, model.tolerated_names());
  check_tied(files->source, model, 0, 1, pool);
  const TensorSource& source = files->source;
  files->reader.emplace(
      model,
      [&source, &pool](const std::string& name, int64_t begin, int64_t end, const View& target) {
        source.read_range_into(name, begin, end, target, &pool);
      },
      &files->adapter);
  return [files](const std::string& name, int64_t begin, int64_t end, const View& target) {
    files->reader->read(*files->specs.at(name), begin, end, target);
  };
}

std::set<std::string> frozen_arrays_in_files(const Settings& settings, const Model& model) {
  if (settings.init == Settings::Init::random || settings.sync_module_states) return {};
  if (settings.freeze.empty() && !model.config().adapter) return {};
  const fs::path folder = folder_of_model(settings);
  // A manifest cannot name a folder that is not UTF-8.
  if (is_checkpoint(folder) || !is_utf8(fs::absolute(folder).string())) return {};
  std::set<std::string> arrays;
  for (int64_t u = 0; u < model.num_units(); ++u) {
    const Unit& unit = model.unit(u);
    const bool complete = std::ranges::all_of(unit.table().specs(), [&](const ParameterSpec& spec) {
      return spec.trainable() || shape_in_files(model, spec) == spec.shape;
    });
    if (unit.table().num_elems(Section::frozen) > 0 && complete) arrays.insert(array_name(StateKind::frozen, unit));
  }
  return arrays;
}

FrozenFiles frozen_files(const Settings& settings, const Model& model, Communicator& world, ThreadPool& pool) {
  FrozenFiles frozen;
  frozen.arrays = frozen_arrays_in_files(settings, model);
  if (frozen.arrays.empty()) return frozen;
  const TensorSource source(folder_of_model(settings));
  std::set<std::string> names;
  for (int64_t u = 0; u < model.num_units(); ++u) {
    if (!frozen.arrays.contains(array_name(StateKind::frozen, model.unit(u)))) continue;
    for (const ParameterSpec& spec : model.unit(u).table().specs()) {
      if (!spec.trainable()) names.insert(source.file_of(spec.name).filename());
    }
  }
  frozen.files.folder = fs::absolute(source.folder()).lexically_normal();
  frozen.files.files = record_files(frozen.files.folder, {names.begin(), names.end()}, world, pool);
  return frozen;
}

std::vector<std::string> load_or_initialize(Engine& engine, const Settings& settings, Communicator& world,
                                            ThreadPool& pool) {
  if (settings.init != Settings::Init::random) {
    AdapterPlace place{{}, static_cast<uint64_t>(settings.seed)};
    if (!settings.init_adapter.empty()) place.folder = adapter_folder_of(settings);
    return load_parameters(engine, folder_of_model(settings), world, pool, place);
  }
  engine.states().initialize(static_cast<uint64_t>(settings.seed));
  return {};
}

}  // namespace tessera
