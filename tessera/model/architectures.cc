#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/model/architecture.h"

namespace tessera {

// Each row is in the file of its architecture.
extern const Architecture kLlama, kMistral, kQwen2, kQwen3, kBloom, kGpt;

std::span<const Architecture* const> architectures() {
  static constexpr const Architecture* kRows[] = {&kLlama, &kMistral, &kQwen2, &kQwen3, &kBloom, &kGpt};
  return kRows;
}

namespace {

// All architectures in the order of their names.
std::vector<const Architecture*> sorted_by_name() {
  std::vector<const Architecture*> rows(architectures().begin(), architectures().end());
  std::ranges::sort(rows, {}, [](const Architecture* row) { return std::string_view(row->name); });
  return rows;
}

std::vector<KnownModel> known_models() {
  std::vector<KnownModel> models;
  for (const Architecture* row : sorted_by_name()) {
    if (!row->known_models) continue;
    for (KnownModel& model : row->known_models()) {
      model.config.architecture = row->name;
      models.push_back(std::move(model));
    }
  }
  return models;
}

}  // namespace

const Architecture* find_architecture(std::string_view name) {
  const auto found = std::ranges::find_if(architectures(), [&](const Architecture* row) { return name == row->name; });
  return found == architectures().end() ? nullptr : *found;
}

const Architecture& architecture_of(const ModelConfig& config) {
  const Architecture* found = find_architecture(config.architecture);
  TESSERA_ASSERT(found);
  return *found;
}

std::string supported_types() {
  std::vector<std::string> names;
  for (const Architecture* row : sorted_by_name()) names.push_back(fmt::format("\"{}\"", row->name));
  return listed(names);
}

std::vector<std::string> model_families() {
  std::vector<std::string> names;
  for (const Architecture* row : architectures()) {
    if (std::ranges::find(names, row->family) == names.end()) names.emplace_back(row->family);
  }
  return names;
}

std::vector<std::string> block_classes() {
  std::set<std::string> classes;
  for (const Architecture* row : architectures()) classes.insert(row->block_class);
  return {classes.begin(), classes.end()};
}

bool has_free_sizes(std::string_view name) {
  const Architecture* found = find_architecture(name);
  return found && found->free_sizes;
}

std::vector<std::string> names_with_free_sizes() {
  std::vector<std::string> names;
  for (const Architecture* row : sorted_by_name()) {
    if (row->free_sizes) names.emplace_back(row->name);
  }
  return names;
}

std::vector<std::string> known_model_names() {
  std::vector<std::string> names;
  for (KnownModel& model : known_models()) names.push_back(std::move(model.name));
  return names;
}

bool find_known_model(std::string_view name, ModelConfig& config) {
  for (KnownModel& model : known_models()) {
    if (name == model.name) return config = std::move(model.config), true;
  }
  return false;
}

std::vector<std::string> shape_names() {
  std::vector<std::string> names = names_with_free_sizes();
  for (std::string& name : known_model_names()) names.push_back(std::move(name));
  return names;
}

bool is_shape_name(std::string_view name) {
  ModelConfig ignored;
  return has_free_sizes(name) || find_known_model(name, ignored);
}

}  // namespace tessera
