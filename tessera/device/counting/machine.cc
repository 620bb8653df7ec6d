#include "tessera/device/counting/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/option_names.h"
#include "tessera/base/text.h"

namespace tessera {
namespace {

// A measured value and the base-2 logarithms of the sizes that it belongs to.
template <size_t D>
struct Sample {
  std::array<double, D> at;
  double value;
};

// The value at `at`: the exponential of a plane through the logarithms of the values, fitted with weights that fall
// with the distance. Its slopes are kept small where few samples determine them.
template <size_t D>
double interpolated(const std::vector<Sample<D>>& samples, const std::array<double, D>& at) {
  constexpr double kNearness = 0.05, kRidge = 0.02;
  std::array<std::array<double, D + 2>, D + 1> rows{};  // normal equations with their right side
  for (const Sample<D>& sample : samples) {
    std::array<double, D + 1> x{1};
    double distance = 0;
    for (size_t d = 0; d < D; ++d) {
      x[d + 1] = sample.at[d] - at[d];
      distance += x[d + 1] * x[d + 1];
    }
    const double weight = 1 / ((distance + kNearness) * (distance + kNearness)), y = std::log(sample.value);
    for (size_t i = 0; i <= D; ++i) {
      for (size_t j = 0; j <= D; ++j) rows[i][j] += weight * x[i] * x[j];
      rows[i][D + 1] += weight * x[i] * y;
    }
  }
  for (size_t d = 1; d <= D; ++d) rows[d][d] += kRidge * rows[0][0];
  for (size_t i = 0; i <= D; ++i) {  // Gaussian elimination; the matrix is positive definite
    for (size_t r = i + 1; r <= D; ++r) {
      const double factor = rows[r][i] / rows[i][i];
      for (size_t j = i; j <= D + 1; ++j) rows[r][j] -= factor * rows[i][j];
    }
  }
  std::array<double, D + 1> solution{};
  for (size_t i = D + 1; i-- > 0;) {
    double sum = rows[i][D + 1];
    for (size_t j = i + 1; j <= D; ++j) sum -= rows[i][j] * solution[j];
    solution[i] = sum / rows[i][i];
  }
  return std::exp(solution[0]);
}

double log2_of(int64_t size) {
  return std::log2(static_cast<double>(std::max<int64_t>(1, size)));
}

constexpr std::array<ProductForm, 3> kForms = {ProductForm::forward, ProductForm::backward_input,
                                               ProductForm::backward_weight};

}  // namespace

const char* name_of(ProductForm form) {
  constexpr const char* names[] = {"forward", "backward_input", "backward_weight"};
  return names[static_cast<size_t>(form)];
}

const char* name_of(Arithmetic type) {
  constexpr const char* names[] = {"f32", "tf32", "f16", "bf16", "fp8"};
  return names[static_cast<size_t>(type)];
}

Arithmetic arithmetic_of(DType dtype, bool tf32) {
  if (dtype == DType::bf16) return Arithmetic::bf16;
  if (dtype == DType::f16) return Arithmetic::f16;
  if (dtype == DType::e4m3) return Arithmetic::fp8;
  return tf32 ? Arithmetic::tf32 : Arithmetic::f32;
}

namespace {

// The type itself if it was measured, otherwise the most similar one.
template <typename Measured>
Arithmetic nearest_type(const std::vector<Measured>& all, Arithmetic wanted) {
  using enum Arithmetic;
  constexpr std::array<std::array<Arithmetic, 5>, 5> kNearest = {{{f32, tf32, bf16, f16, fp8},
                                                                  {tf32, f32, bf16, f16, fp8},
                                                                  {f16, bf16, tf32, f32, fp8},
                                                                  {bf16, f16, tf32, f32, fp8},
                                                                  {fp8, bf16, f16, tf32, f32}}};
  for (const Arithmetic type : kNearest[static_cast<size_t>(wanted)]) {
    if (std::ranges::any_of(all, [&](const Measured& m) { return m.type == type; })) return type;
  }
  assertion_failed("a machine has measured values", __FILE__, __LINE__);
}

// The measured products of a type and form, and their rates without what follows from their sizes alone: a product has
// some time of its own, and its FLOPs at the highest rate. What is left changes little between similar shapes.
class ProductRates {
 public:
  ProductRates(const Machine& machine, Arithmetic type, ProductForm form) {
    for (const Machine::Product& p : machine.products) {
      if (p.type != type || p.form != form) continue;
      const double flops = flops_of(p.rows, p.in, p.out);
      highest_ = std::max(highest_, p.flops_per_s);
      own_s_ = std::min(own_s_, flops / p.flops_per_s);
      samples_.push_back({{log2_of(p.rows), log2_of(p.in), log2_of(p.out)}, p.flops_per_s});
    }
    for (Sample<3>& sample : samples_) sample.value /= by_size(sample.at);
  }

  size_t size() const { return samples_.size(); }
  const std::vector<Sample<3>>& samples() const { return samples_; }
  double by_size(const std::array<double, 3>& at) const {
    const double flops = 2 * std::exp2(at[0] + at[1] + at[2]);
    return flops / (flops / highest_ + own_s_);
  }
  double at(const std::array<double, 3>& place) const { return by_size(place) * interpolated(samples_, place); }

 private:
  static double flops_of(int64_t rows, int64_t in, int64_t out) {
    return 2 * static_cast<double>(rows) * static_cast<double>(in) * static_cast<double>(out);
  }
  std::vector<Sample<3>> samples_;
  double highest_ = 0, own_s_ = std::numeric_limits<double>::infinity();
};

}  // namespace

// Most products are measured in one type. Its rates depend on the shape in a way that few measurements do not show. For
// another type, the ratio between the two types is interpolated, because it changes little.
double product_rate(const Machine& machine, Arithmetic type, ProductForm form, int64_t rows, int64_t in, int64_t out) {
  type = nearest_type(machine.products, type);
  if (type == Arithmetic::fp8) {  // has only products that sum over the columns of both factors
    if (form == ProductForm::backward_input) std::swap(in, out);
    if (form == ProductForm::backward_weight) std::tie(rows, in, out) = std::tuple(out, rows, in);
    form = ProductForm::forward;
  }
  const std::array at{log2_of(rows), log2_of(in), log2_of(out)};
  const ProductRates rates(machine, type, form), densest(machine, Arithmetic::bf16, form);
  if (type == Arithmetic::bf16 || densest.size() <= rates.size()) return rates.at(at);
  std::vector<Sample<3>> ratios = rates.samples();
  for (Sample<3>& ratio : ratios) ratio.value *= rates.by_size(ratio.at) / densest.at(ratio.at);
  return densest.at(at) * interpolated(ratios, at);
}

double attention_rate(const Machine& machine, Machine::Attention shape, bool backward) {
  shape.type = nearest_type(machine.attention, shape.type);
  const auto is_alike = [&](const Machine::Attention& a) { return a.type == shape.type && a.alibi == shape.alibi; };
  const bool any_alike = std::ranges::any_of(machine.attention, is_alike);
  const auto place = [](const Machine::Attention& a) {
    return std::array{log2_of(a.head_dim), log2_of(a.length), log2_of(a.heads)};
  };
  std::vector<Sample<3>> samples;
  for (const Machine::Attention& a : machine.attention) {
    if (a.type != shape.type || (any_alike && !is_alike(a))) continue;
    samples.push_back({place(a), backward ? a.backward_flops_per_s : a.forward_flops_per_s});
  }
  return interpolated(samples, place(shape));
}

double memory_time(const Machine& machine, double bytes) {
  const std::vector<Machine::Memory>& all = machine.memory;
  TESSERA_ASSERT(all.size() >= 2);
  size_t i = 1;
  while (i + 1 < all.size() && static_cast<double>(all[i].bytes) < bytes) ++i;
  const Machine::Memory &a = all[i - 1], &b = all[i];
  const double slope = (b.seconds - a.seconds) / static_cast<double>(b.bytes - a.bytes);
  return std::max(all[0].seconds, a.seconds + slope * (bytes - static_cast<double>(a.bytes)));
}

Record record_of(const Machine& m) {
  Record record{{"schema", 1}, {"name", m.name}, {"source", m.source}};
  const auto link = [](const Machine::Link& l) {
    return Record{{"latency_s", l.latency_s}, {"bytes_per_s", l.bytes_per_s}};
  };
  record["products"] = Record::array();
  for (const Machine::Product& p : m.products) {
    record["products"].push_back({{"type", name_of(p.type)},
                                  {"form", name_of(p.form)},
                                  {"rows", p.rows},
                                  {"in", p.in},
                                  {"out", p.out},
                                  {"flops_per_s", p.flops_per_s}});
  }
  record["attention"] = Record::array();
  for (const Machine::Attention& a : m.attention) {
    record["attention"].push_back({{"type", name_of(a.type)},
                                   {"alibi", a.alibi},
                                   {"head_dim", a.head_dim},
                                   {"length", a.length},
                                   {"heads", a.heads},
                                   {"forward_flops_per_s", a.forward_flops_per_s},
                                   {"backward_flops_per_s", a.backward_flops_per_s}});
  }
  record["memory"] = Record::array();
  for (const Machine::Memory& p : m.memory) record["memory"].push_back({{"bytes", p.bytes}, {"seconds", p.seconds}});
  record["num_multiprocessors"] = m.num_multiprocessors;
  record["launch_s"] = m.launch_s;
  record["to_device_bytes_per_s"] = m.to_device_bytes_per_s;
  record["to_host_bytes_per_s"] = m.to_host_bytes_per_s;
  record["copy_s"] = m.copy_s;
  record["host_bytes_per_s"] = m.host_bytes_per_s;
  record["host_parameters_bytes_per_s"] = m.host_parameters_bytes_per_s;
  record["host_moments_bytes_per_s"] = m.host_moments_bytes_per_s;
  record["file_read_bytes_per_s"] = m.file_read_bytes_per_s;
  record["file_write_bytes_per_s"] = m.file_write_bytes_per_s;
  record["within_node"] = link(m.within_node);
  record["between_nodes"] = link(m.between_nodes);
  return record;
}

Machine machine_from(const Record& record, const std::string& where) {
  const auto refuse = [&](const std::string& what) {
    return InputError(where, what, "Measure the machine again: tessera doctor " + option("measure"));
  };
  // Values outside of these bounds are no speeds of a machine.
  const auto number = [&](const Record& from, const char* key, double least, double most, bool may_be_zero = false) {
    const auto found = from.find(key);
    if (found == from.end() || !found->is_number()) throw refuse(fmt::format("{} is missing, or is not a number", key));
    const double value = found->get<double>();
    if ((value >= least && value <= most) || (may_be_zero && value == 0)) return value;
    throw refuse(fmt::format("{} must be from {} to {}, got {}", key, least, most, value));
  };
  const auto rate = [&](const Record& from, const char* key, bool may_be_zero = false) {
    return number(from, key, 1e3, 1e19, may_be_zero);
  };
  const auto seconds = [&](const Record& from, const char* key, bool may_be_zero = false) {
    return number(from, key, 1e-12, 1e4, may_be_zero);
  };
  const auto size = [&](const Record& from, const char* key) {
    return static_cast<int64_t>(number(from, key, 1, 1e15));
  };
  const auto text = [&](const Record& from, const char* key) {
    const auto found = from.find(key);
    if (found == from.end() || !found->is_string()) throw refuse(fmt::format("{} is missing, or is not a text", key));
    return found->get<std::string>();
  };
  const auto flag = [&](const Record& from, const char* key) {
    const auto found = from.find(key);
    if (found == from.end() || !found->is_boolean())
      throw refuse(fmt::format("{} is missing, or is not true or false", key));
    return found->get<bool>();
  };
  const auto type_of = [&](const Record& from) {
    const std::string word = text(from, "type");
    using enum Arithmetic;
    for (const Arithmetic type : {f32, tf32, f16, bf16, fp8}) {
      if (word == name_of(type)) return type;
    }
    throw refuse(fmt::format("unknown type \"{}\"", printable(word)));
  };
  const auto list = [&](const char* key) -> const Record& {
    const auto found = record.find(key);
    if (found == record.end() || !found->is_array() || found->empty()) {
      throw refuse(fmt::format("{} is missing or empty", key));
    }
    for (const Record& item : *found) {
      if (!item.is_object()) throw refuse(fmt::format("{} holds a value that is no object", key));
    }
    return *found;
  };
  const auto link = [&](const char* key) -> Machine::Link {
    const auto found = record.find(key);
    if (found == record.end() || !found->is_object()) throw refuse(fmt::format("{} is missing", key));
    return {seconds(*found, "latency_s", true), rate(*found, "bytes_per_s", true)};
  };
  if (const auto schema = record.find("schema"); schema == record.end() || *schema != 1) {
    throw refuse("schema is not 1");
  }
  Machine m;
  m.name = text(record, "name");
  m.source = text(record, "source");
  for (const Record& p : list("products")) {
    const std::string form = text(p, "form");
    const auto known = std::ranges::find_if(kForms, [&](ProductForm f) { return form == name_of(f); });
    if (known == kForms.end()) throw refuse(fmt::format("unknown product \"{}\"", printable(form)));
    m.products.push_back({type_of(p), *known, size(p, "rows"), size(p, "in"), size(p, "out"), rate(p, "flops_per_s")});
  }
  // Every type that has a product has all forms, except that fp8 needs only `forward`.
  for (const Machine::Product& one : m.products) {
    for (const ProductForm form : kForms) {
      if (one.type == Arithmetic::fp8 && form != ProductForm::forward) continue;
      const auto is_same = [&](const Machine::Product& p) { return p.type == one.type && p.form == form; };
      if (std::ranges::none_of(m.products, is_same)) {
        throw refuse(fmt::format("no product \"{}\" of type \"{}\"", name_of(form), name_of(one.type)));
      }
    }
  }
  for (const Record& a : list("attention")) {
    m.attention.push_back({type_of(a), flag(a, "alibi"), size(a, "head_dim"), size(a, "length"), size(a, "heads"),
                           rate(a, "forward_flops_per_s"), rate(a, "backward_flops_per_s")});
  }
  for (const Record& p : list("memory")) m.memory.push_back({size(p, "bytes"), seconds(p, "seconds")});
  const auto ascends = [](const Machine::Memory& a, const Machine::Memory& b) { return a.bytes >= b.bytes; };
  if (m.memory.size() < 2 || std::ranges::adjacent_find(m.memory, ascends) != m.memory.end()) {
    throw refuse("memory needs at least two sizes in ascending order");
  }
  m.num_multiprocessors = static_cast<int>(number(record, "num_multiprocessors", 1, 1e6, true));
  m.launch_s = seconds(record, "launch_s", true);
  m.to_device_bytes_per_s = rate(record, "to_device_bytes_per_s");
  m.to_host_bytes_per_s = rate(record, "to_host_bytes_per_s");
  m.copy_s = seconds(record, "copy_s", true);
  m.host_bytes_per_s = rate(record, "host_bytes_per_s");
  m.host_parameters_bytes_per_s = rate(record, "host_parameters_bytes_per_s");
  m.host_moments_bytes_per_s = rate(record, "host_moments_bytes_per_s");
  m.file_read_bytes_per_s = rate(record, "file_read_bytes_per_s", true);
  m.file_write_bytes_per_s = rate(record, "file_write_bytes_per_s", true);
  m.within_node = link("within_node");
  m.between_nodes = link("between_nodes");
  return m;
}

}  // namespace tessera
