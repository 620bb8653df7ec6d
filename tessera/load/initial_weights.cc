#include "tessera/load/initial_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>

#include "tessera/base/nf4.h"
#include "tessera/base/text.h"
#include "tessera/comm/world.h"
#include "tessera/data/tokenizer_text.h"
#include "tessera/load/adapter_files.h"
#include "tessera/load/checkpoint_weights.h"
#include "tessera/load/model_place.h"
#include "tessera/store/checked_files.h"
#include "tessera/store/checksum.h"
#include "tessera/store/model_folder.h"
#include "tessera/store/packed_tensors.h"

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

// Checks that a folder has the tensors of the model, perhaps packed. Returns the names of buffers.
std::vector<std::string> check_files(const Model& model, const TensorSource& source, bool without_adapter) {
  std::vector<std::pair<std::string, Shape>> expected;
  std::vector<std::string> tolerated = model.tolerated_names();
  model.for_each_tensor([&](const ParameterSpec& spec) {
    if (without_adapter && is_adapter_tensor(spec.name)) return;
    const Shape shape = shape_in_files(model, spec);
    if (PackedTensors::has(source, spec.name)) {
      for (auto& part : PackedTensors::parts(spec.name, shape)) expected.push_back(std::move(part));
      tolerated.push_back(PackedTensors::state_name(spec.name));
    } else {
      expected.emplace_back(spec.name, shape);
    }
  });
  return source.check_tensors(expected, tolerated);
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

// Where the tensors of a model come from.
struct ModelSource {
  ReadTensor read;  // values
  // Reads the groups [first, last) of a quantized tensor. Returns false if it has only the tensor's values.
  std::function<bool(const ParameterSpec& spec, int64_t first, int64_t last, Nf4Group* groups)> read_groups;
  const NewAdapter* adapter;  // null: the model has none, or `read` has it
};

// The tensors of a model in a folder. The arguments must outlive the result.
ModelSource source_of_files(const Model& model, const TensorSource& source, const NewAdapter* adapter,
                            ThreadPool& pool) {
  const auto packed = std::make_shared<const PackedTensors>(source);
  std::map<std::string, Shape> packed_shapes;
  model.for_each_tensor([&](const ParameterSpec& spec) {
    if (PackedTensors::has(source, spec.name)) packed_shapes[spec.name] = shape_in_files(model, spec);
  });
  return {.read =
              [&source, &pool, packed, packed_shapes](const std::string& name, int64_t begin, int64_t end,
                                                      const View& target) {
                const auto shape = packed_shapes.find(name);
                if (shape == packed_shapes.end()) return source.read_range_into(name, begin, end, target, &pool);
                packed->read(name, shape->second, begin, end, target);
              },
          .read_groups =
              [&source, packed](const ParameterSpec& spec, int64_t first, int64_t last, Nf4Group* groups) {
                if (!PackedTensors::has(source, spec.name)) return false;
                packed->read_groups(spec.name, spec.shape, first, last, groups);
                return true;
              },
          .adapter = adapter};
}

// Reads the tensors of a model. Rows that the files do not have get the mean of the rows in the files. The mean is the
// same with any sharding, because each rank that needs it computes it from all rows in the same order.
class ModelReader {
 public:
  ModelReader(const Model& model, ModelSource source, ThreadPool& pool)
      : model_(model), source_(std::move(source)), quantizer_(pool) {}

  // Reads elements of the section that has the tensor.
  void read(const ParameterSpec& spec, int64_t elem_begin, int64_t elem_end, const View& target) {
    if (spec.quantized()) return read_groups(spec, elem_begin, elem_end, reinterpret_cast<Nf4Group*>(target.data));
    if (source_.adapter && source_.adapter->has(spec)) {
      return source_.adapter->read(spec, elem_begin, elem_end, target);
    }
    const int64_t in_files = shape_in_files(model_, spec).num_elems();
    const int64_t split = std::clamp(in_files, elem_begin, elem_end);
    if (elem_begin < split) source_.read(spec.name, elem_begin, split, target.rows(0, split - elem_begin));
    if (split == elem_end) return;
    const std::vector<float>& mean = mean_row(spec);
    const auto width = std::ssize(mean);
    std::vector<float> values;
    for (int64_t i = split; i < elem_end; ++i) values.push_back(mean[static_cast<size_t>(i % width)]);
    const View rest = target.rows(split - elem_begin, elem_end - elem_begin);
    convert(values.data(), DType::f32, rest.data, rest.dtype, values.size());
  }

  // Reads elements of a tensor, as the model computes with them.
  void read_values(const ParameterSpec& spec, int64_t elem_begin, int64_t elem_end, const View& target) {
    if (!spec.quantized()) return read(spec, elem_begin, elem_end, target);
    read_nf4(
        elem_begin, elem_end,
        [&](int64_t first, int64_t last, Nf4Group* groups) { read_groups(spec, first, last, groups); }, target);
  }

 private:
  void read_groups(const ParameterSpec& spec, int64_t first, int64_t last, Nf4Group* groups) {
    if (source_.read_groups(spec, first, last, groups)) return;
    const auto read = [&](int64_t begin, int64_t end, float* values) {
      source_.read(spec.name, begin, end, view_of(values, {end - begin}));
    };
    quantizer_.quantize(spec.name, spec.shape.num_elems(), first, last, read, groups);
  }
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
      source_.read(spec.name, begin * width, begin * width + count, view_of(values.data(), {count}));
      for (size_t i = 0; i < values.size(); ++i) sums[i % sums.size()] += static_cast<double>(values[i]);
    }
    for (const double sum : sums) mean.push_back(static_cast<float>(sum / static_cast<double>(rows)));
    return mean;
  }

  const Model& model_;
  const ModelSource source_;
  Nf4Quantizer quantizer_;
  std::map<std::string, std::vector<float>> means_;  // by tensor
};

void read_into_engine(Engine& engine, ModelSource source, ThreadPool& pool, bool from_rank_0) {
  const Model& model = engine.model();
  ModelReader reader(model, std::move(source), pool);
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
  const bool all_read = !from_rank_0 && world.size() > 1;
  if (is_checkpoint(folder)) {
    const auto alone = make_self_communicator();
    const CheckpointWeights source(folder, all_read ? world : *alone, pool);
    model.for_each_tensor([&](const ParameterSpec& spec) {
      if (!added || !is_adapter_tensor(spec.name)) source.check(spec.name, shape_in_files(model, spec));
    });
    const auto read = [&](const std::string& name, int64_t begin, int64_t end, const View& target) {
      source.read_range_into(name, begin, end, target);
    };
    const auto read_groups = [&](const ParameterSpec& spec, int64_t first, int64_t last, Nf4Group* groups) {
      return source.read_groups(spec.name, first, last, groups);
    };
    read_into_engine(engine, {read, read_groups, added}, pool, from_rank_0);
    return {};
  }
  const TensorSource source(folder);
  const std::vector<std::string> buffers = check_files(model, source, added != nullptr);
  if (all_read) {
    check_agreement(world, {{"weights_checksum", checksum_text(source.sampled_checksum())},
                            {"adapter_checksum", added ? added->checksum() : ""}});
  }
  check_tied(source, model, all_read ? world.rank() : 0, all_read ? world.size() : 1, pool);
  read_into_engine(engine, source_of_files(model, source, added, pool), pool, from_rank_0);
  return notes_of(source, buffers);
}

ReadTensor reader_of_adapted(const Model& model, const fs::path& folder, const fs::path& adapter_folder,
                             ThreadPool& pool) {
  struct Files {
    TensorSource source;
    NewAdapter adapter;
    ModelReader reader;
    std::map<std::string, const ParameterSpec*> specs = {};
    Files(const fs::path& base, const AdapterPlace& place, const Model& of, ThreadPool& threads)
        : source(base),
          adapter(place, of, threads),
          reader(of, source_of_files(of, source, &adapter, threads), threads) {}
  };
  const auto files = std::make_shared<Files>(folder, AdapterPlace{adapter_folder, 0}, model, pool);
  model.for_each_tensor([&](const ParameterSpec& spec) { files->specs[spec.name] = &spec; });
  check_files(model, files->source, true);
  check_tied(files->source, model, 0, 1, pool);
  return [files](const std::string& name, int64_t begin, int64_t end, const View& target) {
    files->reader.read_values(*files->specs.at(name), begin, end, target);
  };
}

ReadTensor reader_of_model(const Model& model, const fs::path& folder, ThreadPool& pool) {
  struct Files {
    TensorSource source;
    ModelReader reader;
    std::map<std::string, const ParameterSpec*> specs = {};
    Files(const fs::path& base, const Model& of, ThreadPool& threads)
        : source(base), reader(of, source_of_files(of, source, nullptr, threads), threads) {}
  };
  const auto files = std::make_shared<Files>(folder, model, pool);
  model.for_each_tensor([&](const ParameterSpec& spec) { files->specs[spec.name] = &spec; });
  check_files(model, files->source, false);
  check_tied(files->source, model, 0, 1, pool);
  return [files](const std::string& name, int64_t begin, int64_t end, const View& target) {
    files->reader.read_values(*files->specs.at(name), begin, end, target);
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
    for (const Section section : {Section::frozen, Section::quantized}) {
      const bool complete = std::ranges::all_of(unit.table().specs(), [&](const ParameterSpec& spec) {
        return spec.section != section || shape_in_files(model, spec) == spec.shape;
      });
      if (unit.table().num_elems(section) > 0 && complete) arrays.insert(array_name(parameters_of(section), unit));
    }
  }
  return arrays;
}

FrozenFiles frozen_files(const Settings& settings, const Model& model, Communicator& world, ThreadPool& pool) {
  FrozenFiles frozen;
  frozen.arrays = frozen_arrays_in_files(settings, model);
  if (frozen.arrays.empty()) return frozen;
  const TensorSource source(folder_of_model(settings));
  std::set<std::string> names;
  const auto add_file_of = [&](const std::string& tensor) { names.insert(source.file_of(tensor).filename()); };
  for (int64_t u = 0; u < model.num_units(); ++u) {
    for (const ParameterSpec& spec : model.unit(u).table().specs()) {
      if (!frozen.arrays.contains(array_name(parameters_of(spec.section), model.unit(u)))) continue;
      add_file_of(spec.name);
      if (!PackedTensors::has(source, spec.name)) continue;
      for (const auto& [part, shape] : PackedTensors::parts(spec.name, spec.shape)) add_file_of(part);
      add_file_of(PackedTensors::state_name(spec.name));
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

void load_adapter(Engine& engine, const Settings& settings, Communicator& world, ThreadPool& pool) {
  if (engine.options().sharding.sync_module_states) {  // rank 0 sends the complete model
    load_or_initialize(engine, settings, world, pool);
    return;
  }
  const Model& model = engine.model();
  const AdapterFile file(adapter_folder_of(settings), model);
  if (world.size() > 1) check_agreement(world, {{"adapter_checksum", file.checksum()}});
  const auto read = [&](StateKind, int64_t unit, ElemRange range, View to) {
    const auto read_tensor = [&](const ParameterSpec& spec, int64_t first, int64_t last) {
      file.read_range_into(spec.name, first, last,
                           to.rows(spec.offset + first - range.begin, spec.offset + last - range.begin));
    };
    model.unit(unit).table().for_each_tensor(Section::trainable, range.begin, range.end, read_tensor);
  };
  engine.states().load(read, [](StateKind kind, int64_t) { return kind == StateKind::parameters; });
}

}  // namespace tessera
