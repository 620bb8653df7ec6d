// Checks that parameters are finite. Each rank reads only its own shard, once, from the tier where the shard is stored.
#include <cmath>

#include "tessera/engine/engine.h"

namespace tessera {

// Returns the sum of the squares of this rank's shard, in f64. For elements of 32 or 16 bits, the sum is finite if and
// only if every element is finite. If f32 masters are split into two arrays (UnitOptimizer::rest()), only master() can
// contain infinity or NaN, so rest() is not read. Frozen parameters do not change, so they are not checked.
double Engine::sum_of_squared_parameters(int64_t unit) {
  const ElemRange range = context_.cut(unit).own.clipped(context_.cut(unit).num_elems);
  if (range.size() <= 0 || counting()) return 0;
  const UnitArrays& arrays = optimizer_ ? optimizer_->master() : parameters_.kept();
  const int64_t first = optimizer_ ? optimizer_->first_master_elem(unit) + range.begin - optimizer_->range(unit).begin
                                   : range.begin - parameters_.kept_range(unit).begin;
  double result = 0;
  if (arrays.tier() == Tier::device && !context_.device.host_visible()) {
    const View sum = loss_.view({1}, DType::f64);
    ops_->fill(sum, 0);
    ops_->add_sum_of_squares(arrays.view(unit).rows(first, first + range.size()), sum);
    context_.device.copy_to_host(sum, &result);
    return result;
  }
  const View sum{reinterpret_cast<std::byte*>(&result), DType::f64, {1}};
  save_array(arrays, unit, range, first,
             [&](ElemRange, View part) { context_.host_ops->add_sum_of_squares(part, sum); });
  return result;
}

std::optional<int64_t> Engine::find_non_finite_unit() {
  finish_update();
  std::vector<double> sums;
  for (int64_t u = 0; u < context_.num_units(); ++u) sums.push_back(sum_of_squared_parameters(u));
  sums = context_.ranks.world->sum(std::move(sums), "the check for finite parameters");
  for (size_t u = 0; u < sums.size(); ++u) {
    if (!std::isfinite(sums[u])) return static_cast<int64_t>(u);
  }
  return std::nullopt;
}

}  // namespace tessera
