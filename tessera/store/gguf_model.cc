#include "tessera/store/gguf_model.h"

#include <algorithm>

#include "tessera/base/error.h"

namespace tessera {

namespace {

constexpr const char* kRopeDivisors = "rope_freqs.weight";

// The number of general.file_type for files whose matrices mostly have this type.
uint32_t file_type_of(GgufType type) {
  switch (type) {
    case GgufType::f32:
      return 0;
    case GgufType::f16:
      return 1;
    case GgufType::q8_0:
      return 7;
    case GgufType::bf16:
      return 32;
  }
  return 0;
}

}  // namespace

GgufModel::GgufModel(const Model& model, GgufType type, const std::string& name, GgufKeys keys)
    : model_(model), form_(gguf_form_of(model.config())), divisors_(form_.rope_divisors(model.config())) {
  keys_ = {{"general.architecture", std::string(form_.name)}, {"general.type", std::string("model")}};
  keys_.push_back({"general.name", name});
  for (GgufKey& key : form_.keys_of(model.config())) {
    keys_.push_back({std::string(form_.name) + "." + key.name, std::move(key.value)});
  }
  keys_.push_back({"general.file_type", file_type_of(type)});
  keys_.push_back({"general.quantization_version", uint32_t{2}});
  std::ranges::move(keys, std::back_inserter(keys_));

  if (!divisors_.empty()) tensors_.push_back({kRopeDivisors, {std::ssize(divisors_)}, GgufType::f32});
  model.for_each_tensor([&](const ParameterSpec& spec) {
    GgufTensor tensor{gguf_name_of(form_, spec.name), spec.shape, type};
    if (spec.shape.rank() < 2) {
      tensor.type = GgufType::f32;
    } else if (type == GgufType::q8_0 && spec.shape[1] % kQ8Values != 0) {
      tensor.type = GgufType::f16;
      without_blocks_.push_back(tensor.name);
    }
    tensors_.push_back(std::move(tensor));
  });
}

void GgufModel::write(const std::filesystem::path& path, ThreadPool& pool,
                      const std::function<void(const Write&)>& write_part) const {
  GgufFile file(path, keys_, tensors_);
  if (!divisors_.empty()) {
    std::vector<float> values = divisors_;
    file.write(kRopeDivisors, view_of(values.data(), {std::ssize(values)}), {}, pool);
  }
  write_part([&](Section section, int64_t unit, View values) {
    const ParameterTable& table = model_.unit(unit).table();
    table.for_each_tensor(section, 0, table.num_elems(section), [&](const ParameterSpec& spec, int64_t, int64_t end) {
      file.write(gguf_name_of(form_, spec.name), values.rows(spec.offset, spec.offset + end),
                 form_.rows_of(model_.config(), gguf_layer_of(form_, spec.name)), pool);
    });
  });
  file.commit();
}

}  // namespace tessera
