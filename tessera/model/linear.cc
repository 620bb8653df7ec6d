// The adapters of all parts are computed together, so that a layer with joined parts stays one product:
//   u = dropout(x) · Aᵀ  with the rows of all A, [R, I];  y = x · weightᵀ + u · Upᵀ
// Up [O, R] has s · B of each part at the rows of the part and the columns of its u, and zeros elsewhere. The product
// with Up writes y, and the product with the weight adds to it, so that y is rounded once more than without an adapter.
#include "tessera/model/linear.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tessera/base/math.h"
#include "tessera/base/option_names.h"
#include "tessera/base/text.h"

namespace tessera {

Linear::Linear(ParameterTable& table, const std::vector<Part>& parts, int64_t in)
    : has_bias_(!parts.front().bias.empty()), in_block_(true) {
  using enum ParameterTable::Gap;
  for (const Part& part : parts) {
    const bool first = &part == &parts.front();
    last_weight_ = table.add(part.weight, {part.out, in}, part.weight_init, true, first ? aligned : none);
    if (first) first_weight_ = last_weight_;
    layers_.push_back(layer_of_tensor(part.weight));
  }
  if (!has_bias_) return;
  for (const Part& part : parts) {
    const bool first = &part == &parts.front();
    last_bias_ = table.add(part.bias, {part.out}, part.bias_init, false, first ? aligned : none);
    if (first) first_bias_ = last_bias_;
  }
}

Linear::Linear(std::string name, Handle weight, std::optional<Handle> bias)
    : first_weight_(weight),
      last_weight_(weight),
      first_bias_(bias.value_or(0)),
      last_bias_(first_bias_),
      has_bias_(bias.has_value()),
      layers_{std::move(name)} {}

std::vector<std::string> Linear::weight_names() const {
  std::vector<std::string> names;
  for (const std::string& layer : layers_) names.push_back(layer + ".weight");
  return names;
}

View Linear::weight(Frame& f, const ParameterViews& p) const {
  const std::vector<ParameterSpec>& specs = p.table->specs();
  const auto first = specs.begin() + static_cast<ptrdiff_t>(first_weight_);
  const auto last = specs.begin() + static_cast<ptrdiff_t>(last_weight_) + 1;
  if (std::none_of(first, last, [](const ParameterSpec& spec) { return spec.quantized(); })) {
    return p.joined(first_weight_, last_weight_);
  }
  int64_t rows = 0;
  for (auto spec = first; spec != last; ++spec) rows += spec->shape[0];
  const View weight = f.push(rows, first->shape[1]);
  int64_t row = 0;
  for (Handle part = first_weight_; part <= last_weight_; ++part) {
    const View rows_of_part = weight.rows(row, row + specs[part].shape[0]);
    specs[part].quantized() ? f.ops->dequantize(p[part], rows_of_part) : f.ops->convert(p[part], rows_of_part);
    row += specs[part].shape[0];
  }
  return weight;
}

// ---- factors in 8 bits

void Linear::check_float8(const ParameterTable& table) const {
  constexpr int64_t kMultiple = 16;  // of the bytes of a row, for the tensor cores' loads
  const int64_t in = table.specs()[first_weight_].shape[1];
  int64_t out = 0;
  for (Handle part = first_weight_; part <= last_weight_; ++part) out += table.specs()[part].shape[0];
  if (in % kMultiple == 0 && out % kMultiple == 0) return;
  throw UsageError(
      option_place("matmul_precision"),
      fmt::format("fp8 needs layers whose sizes are multiples of {}, but there are {} inputs and {} outputs in {}",
                  kMultiple, in, out, tessera::joined(layers_)),
      "Leave the setting out");
}

// Left factors of products have a scale for the terms of a row, right factors have one for a square (Float8Matrix).
constexpr bool kLeft = false, kRight = true;

Float8Matrix push_float8(Frame& f, int64_t rows, int64_t columns, bool squares) {
  return {f.stack.push({rows, columns}, DType::e4m3), f.stack.push(float8_scales(rows, columns, squares), DType::f32),
          squares};
}

bool Linear::reads_only_float8(const Frame& f) const {
  return in_float8(f) && adapted_.empty();
}

LinearInput Linear::push_input(Frame& f, int64_t rows, int64_t columns) const {
  if (!reads_only_float8(f)) return f.push(rows, columns);
  return {push_float8(f, rows, columns, kLeft), {}};
}

LinearInput Linear::push_input_again(Frame& f, const ParameterViews& p, int64_t rows, int64_t columns) const {
  if (!reads_only_float8(f)) return f.push(rows, columns);
  if (!trains_weight(p)) return View{};
  return {{}, push_float8(f, columns, float8_terms(rows), kRight)};
}

std::optional<std::pair<Section, Float8Place>> Linear::place8(const ParameterTable& table) const {
  const ParameterSpec& first = table.specs()[first_weight_];
  Float8Place place{first.offset, 0, first.shape[1], 0};
  for (Handle part = first_weight_; part <= last_weight_; ++part) {
    const ParameterSpec& spec = table.specs()[part];
    if (spec.quantized()) return {};
    TESSERA_ASSERT(spec.section == first.section && spec.offset == place.offset + place.rows * place.columns);
    place.rows += spec.shape[0];
  }
  return std::pair(first.section, place);
}

// A weight has the same squares and scales in both directions. Its blocks do not depend on how a step is divided, so
// its scales may be quotients in both.
Float8Matrix Linear::weight8(Frame& f, const ParameterViews& p, bool transposed) const {
  const ParameterSpec& first = p.table->specs()[first_weight_];
  const Float8Weights& gathered = p.weights8[first.section];
  const auto place = std::ranges::find(gathered.places, first.offset, &Float8Place::offset);
  if (place != gathered.places.end()) {
    const auto& [offset, O, I, first_scale] = *place;
    const Shape shape = float8_scales(O, I, kRight);
    const View scales = gathered.scales.rows(first_scale, first_scale + shape.num_elems());
    const Float8Matrix whole{{gathered.codes.rows(offset, offset + O * I).data, DType::e4m3, {O, I}},
                             {scales.data, scales.dtype, shape},
                             kRight};
    if (!transposed) return whole;
    const Float8Matrix narrow = push_float8(f, I, O, kRight);
    f.ops->transpose8(whole, narrow);
    return narrow;
  }
  const View wide = weight(f, p);
  const int64_t O = wide.shape[0], I = wide.shape[1];
  const Float8Matrix narrow = transposed ? push_float8(f, I, O, kRight) : push_float8(f, O, I, kRight);
  Kernels::Quantize call{.x = wide, .kind_of_columns = Float8ScaleKind::quotient};
  (transposed ? call.columns : call.rows) = narrow;
  f.ops->quantize(call);
  return narrow;
}

// ---- adapter

void Linear::adapt(ParameterTable& table, const AdapterOf& adapter_of, double dropout, uint32_t number) {
  using enum ParameterTable::Gap;
  adapter_dropout_ = dropout;
  number_ = number;
  const int64_t in = table.specs()[first_weight_].shape[1];
  const uint64_t stream = (uint64_t{1} << 40) + uint64_t{number} * 16;
  std::vector<std::pair<std::string, Shape>> ups;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const int64_t out = table.specs()[first_weight_ + i].shape[0];
    if (const auto adapter = adapter_of(layers_[i])) {
      // As in PEFT: Kaiming's uniform distribution with a = √5.
      const Initializer init{Initializer::Kind::uniform, 1 / std::sqrt(static_cast<double>(in)), stream + i};
      const Handle a =
          table.add(layers_[i] + ".lora_A.weight", {adapter->rank, in}, init, true, adapted_.empty() ? aligned : none);
      adapted_.push_back({a, 0, out_, rank_, adapter->scale});
      ups.emplace_back(layers_[i] + ".lora_B.weight", Shape{out, adapter->rank});
      rank_ += adapter->rank;
    }
    out_ += out;
  }
  for (size_t i = 0; i < ups.size(); ++i) adapted_[i].b = table.add(ups[i].first, ups[i].second, {}, true);
}

std::vector<FactorPlace> Linear::places(const ParameterViews& views) const {
  std::vector<FactorPlace> places;
  for (const Adapted& part : adapted_) {
    places.push_back({.factor = views[part.b], .scale = part.scale, .row = part.row, .column = part.column});
  }
  return places;
}

// Up [O, R].
View Linear::push_up(Frame& f, const ParameterViews& p) const {
  const View up = f.push(out_, rank_);
  f.ops->join_factors(places(p), up);
  return up;
}

Dropout Linear::adapter_dropout(const Frame& f) const {
  return f.dropout_at(adapter_dropout_, (uint32_t{1} << 31) | number_);
}

// dropout(x) for the adapter, on the stack unless it is x.
View Linear::dropped(Frame& f, View x) const {
  const Dropout dropout = adapter_dropout(f);
  if (!(dropout.rate > 0)) return x;
  const View dropped = f.push(x.shape[0], x.shape[1]);
  f.ops->dropout_backward(x, dropout, dropped);
  return dropped;
}

// ---- forward and backward

void Linear::forward(Frame& f, const ParameterViews& p, const LinearInput& input, View y,
                     const LinearEpilogue& epilogue, View preactivation) const {
  const StackScope scope(f.stack);
  Kernels::LinearForward call{
      .x = {}, .weight = {}, .bias = bias(p), .epilogue = epilogue, .preactivation = preactivation, .y = y};
  const View x = input.x;
  if (in_float8(f)) {
    call.x8 = input.rows;
    if (!call.x8) {
      call.x8 = push_float8(f, x.shape[0], x.shape[1], kLeft);
      f.ops->quantize({.x = x, .rows = call.x8});
    }
    call.weight8 = weight8(f, p, false);
  } else {
    call.x = x, call.weight = weight(f, p);
  }
  if (adapted_.empty()) return f.ops->linear_forward(call);
  const int64_t N = x.shape[0];
  const bool in_place = epilogue.residual.data == y.data;
  // Kernels cannot measure a product that adds in place. Therefore they first compute the layer without the adapter.
  if (f.ops->tuning() && !in_place) f.ops->linear_forward(call);
  const View up = push_up(f, p), u = f.push(N, rank_);
  {
    const StackScope scope_of_dropout(f.stack);
    f.ops->linear_forward({.x = dropped(f, x), .weight = down(p), .y = u});
  }
  if (epilogue.activation == Activation::none && !(epilogue.dropout.rate > 0) && !preactivation) {
    f.ops->linear_forward({.x = u, .weight = up, .epilogue = {Activation::none, {}, epilogue.residual}, .y = y});
    call.epilogue.residual = y;
  } else {
    call.added = in_place ? f.push(N, out_) : y;
    f.ops->linear_forward({.x = u, .weight = up, .y = call.added});
  }
  f.ops->linear_forward(call);
}

Linear::Upstream Linear::upstream(Frame& f, const ParameterViews& p, View d_y) const {
  Upstream d{d_y, {}};
  if (in_float8(f)) {
    d = push_upstream8(f, p, d_y.shape[0], d_y.shape[1]);
    d.d_y = d_y;
    f.ops->quantize({.x = d_y, .rows = d.rows, .columns = d.columns});
  }
  if (adapted_.empty()) return d;
  d.d_u = f.push(d_y.shape[0], rank_);
  const StackScope scope(f.stack);
  f.ops->linear_backward_input({.d_y = d_y, .weight = push_up(f, p), .d_x = d.d_u});
  return d;
}

Linear::Upstream Linear::push_upstream8(Frame& f, const ParameterViews& p, int64_t rows, int64_t columns) const {
  Upstream d{.d_y = {}, .d_u = {}, .rows = push_float8(f, rows, columns, kLeft)};
  if (trains_weight(p)) d.columns = push_float8(f, columns, float8_terms(rows), kLeft);
  return d;
}

void Linear::backward_input(Frame& f, const ParameterViews& p, const Upstream& d, View d_x,
                            const Previous& previous) const {
  const StackScope scope(f.stack);
  const LinearEpilogue& epilogue = previous.epilogue;
  Kernels::LinearBackwardInput call{.d_y = {},
                                    .weight = {},
                                    .epilogue = epilogue,
                                    .preactivation = previous.preactivation,
                                    .d_x = d_x,
                                    .x = previous.x};
  if (in_float8(f)) {
    call.d_y8 = d.rows, call.weight8 = weight8(f, p, true);
  } else {
    call.d_y = d.d_y, call.weight = weight(f, p);
  }
  if (adapted_.empty()) return f.ops->linear_backward_input(call);
  const bool in_place = epilogue.residual.data == d_x.data;
  if (f.ops->tuning() && !in_place) {
    f.ops->linear_backward_input(
        {.d_y = call.d_y, .weight = call.weight, .d_y8 = call.d_y8, .weight8 = call.weight8, .d_x = d_x});
  }
  const Dropout dropout = adapter_dropout(f);
  if (epilogue.activation == Activation::none && !(epilogue.dropout.rate > 0) && !previous.x) {
    f.ops->linear_backward_input(
        {.d_y = d.d_u, .weight = down(p), .epilogue = {Activation::none, dropout, epilogue.residual}, .d_x = d_x});
    call.epilogue.residual = d_x;
  } else {
    call.added = in_place ? f.push(d_x.shape[0], d_x.shape[1]) : d_x;
    f.ops->linear_backward_input(
        {.d_y = d.d_u, .weight = down(p), .epilogue = {Activation::none, dropout, {}}, .d_x = call.added});
  }
  f.ops->linear_backward_input(call);
}

void Linear::backward_weight(Frame& f, const ParameterViews& p, const ParameterViews& g, const Upstream& d,
                             const LinearInput& again, bool fresh) const {
  const View x = again.x;
  if (const View d_weight = weight_gradient(g); d_weight && in_float8(f)) {
    const StackScope scope(f.stack);
    Float8Matrix columns = again.columns;
    if (!columns) {
      columns = push_float8(f, x.shape[1], float8_terms(x.shape[0]), kRight);
      f.ops->quantize({.x = x, .columns = columns});
    }
    f.ops->linear_backward_weight8(d.columns, columns, fresh, d_weight);
  } else if (d_weight) {
    f.ops->linear_backward_weight(d.d_y, x, fresh, d_weight);
  }
  if (adapted_.empty()) return;
  const StackScope scope(f.stack);
  const View input = dropped(f, x), u = f.push(x.shape[0], rank_);
  f.ops->linear_forward({.x = input, .weight = down(p), .y = u});
  f.ops->linear_backward_weight(d.d_u, input, fresh, down(g));
  const View d_up = f.stack.push({out_, rank_}, g.trainable().dtype);
  f.ops->linear_backward_weight(d.d_y, u, true, d_up);
  f.ops->split_factors(d_up, places(g), fresh);
}

void Linear::clear_gradients(Frame& f, const ParameterViews& g) const {
  if (const View d_weight = weight_gradient(g)) f.ops->fill(d_weight, 0);
  for (const Adapted& part : adapted_) {
    f.ops->fill(g[part.a], 0);
    f.ops->fill(g[part.b], 0);
  }
}

void bias_gradients(Frame& f, std::initializer_list<BiasGradient> gradients) {
  std::vector<BiasGradient> wanted;
  for (const BiasGradient& one : gradients) {
    if (one.d_bias) wanted.push_back(one);
  }
  if (!wanted.empty()) f.ops->linear_backward_bias(wanted);
}

}  // namespace tessera
