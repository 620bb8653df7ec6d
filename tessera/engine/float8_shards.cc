#include "tessera/engine/float8_shards.h"

#include <algorithm>

#include "tessera/base/option_names.h"

namespace tessera {

constexpr const char* kSubject = "parameters in 8 bits";

Float8Shards::Float8Shards(EngineContext& context, const PerSection<UnitArrays>& kept)
    : context_(context), kept_(kept), sections_(context.units.size()) {
  int64_t bytes = 0, most_scales = 0;
  const auto take = [&](int64_t elems, DType type) {
    const int64_t first = bytes;
    bytes = round_up(bytes + bytes_of(elems, type), Device::kAlignment);
    return first;
  };
  // Runs twice: first to count the bytes, then to place the views.
  const auto place = [&] {
    for (int64_t u = 0; u < context_.num_units(); ++u) {
      for (const Section section : kSections) {
        auto& rounded = section_of(u, section);
        if (!rounded) continue;
        const int64_t shard_elems = context_.cut(u, section).shard_elems;
        const int64_t codes = take(shard_elems, DType::e4m3), scales = take(rounded->num_scales, DType::f32),
                      others = take(rounded->num_others, context_.dtype);
        most_scales = std::max(most_scales, rounded->num_scales);
        if (memory_.bytes() == 0) continue;
        rounded->codes = {memory_.data() + codes, DType::e4m3, {shard_elems}};
        rounded->scales = {memory_.data() + scales, DType::f32, {rounded->num_scales}};
        rounded->others = {memory_.data() + others, context_.dtype, {rounded->num_others}};
      }
    }
  };
  for (int64_t u = 0; u < context_.num_units(); ++u) {
    for (const Section section : kSections) section_of(u, section) = layout_of(u, section);
  }
  place();
  if (bytes == 0) {
    throw UsageError(option_place("gather_dtype"), "the blocks have no weights that are gathered in 16 bits",
                     "Leave the setting out");
  }
  memory_ = context_.device.allocate(bytes, Category::parameters, context_.ranks.shard->allocator());
  largest_ = context_.device.allocate(bytes_of(most_scales, DType::f32) * context_.plan.shard_group_size(),
                                      Category::communication);
  bytes = 0;
  place();
}

std::optional<Float8Shards::Rounded> Float8Shards::layout_of(int64_t unit, Section section) const {
  if (!context_.model.is_block(unit)) return {};
  Rounded rounded;
  for (const auto& [of, place] : context_.model.float8_places(unit - 1)) {
    if (of == section) rounded.places.push_back(place);
  }
  if (rounded.places.empty()) return {};
  std::ranges::sort(rounded.places, {}, &Float8Place::offset);
  for (Float8Place& place : rounded.places) {
    // Nothing else may be between the weights.
    if (place.offset >= rounded.num_rounded + ParameterTable::kAlignment) return {};
    place.first_scale = rounded.num_scales;
    rounded.num_scales += float8_scales(place.rows, place.columns, true).num_elems();
    rounded.num_rounded = round_up(place.offset + place.rows * place.columns, ParameterTable::kAlignment);
  }
  const UnitShards& cut = context_.cut(unit, section);
  rounded.num_others = cut.num_elems - rounded.num_rounded;
  // The codes and the other elements share the space of the section.
  if (cut.padded_elems > 2 * rounded.num_rounded) return {};
  return rounded;
}

void Float8Shards::replaced(int64_t unit, Section section) {
  if (auto& rounded = section_of(unit, section)) rounded->stale = true;
}

void Float8Shards::round_shard(int64_t unit, Section section, Rounded& rounded) {
  Stream& comm = *context_.streams.comm;
  const int64_t R = context_.plan.shard_group_size(), own = context_.plan.shard_rank(), T = rounded.num_scales;
  const Kernels::Float8Shard shard{
      .values = kept_[section].view(unit), .first = context_.cut(unit, section).own.begin, .places = rounded.places};
  const View largest = largest_.view({R * T}, DType::f32), of_shard = largest.rows(own * T, (own + 1) * T);
  context_.ops.largest_of_squares(comm, shard, of_shard);
  context_.ranks.shard->all_gather(of_shard, largest, comm, kSubject);
  context_.ops.quantize_shard(comm, shard, largest_.view({R, T}, DType::f32), rounded.scales, rounded.codes);
}

void Float8Shards::exchange_others(int64_t unit, Section section, const Rounded& rounded) {
  Stream& comm = *context_.streams.comm;
  const UnitShards& cut = context_.cut(unit, section);
  for (int rank = 0; rank < context_.plan.shard_group_size(); ++rank) {  // few of them have such elements
    const int64_t begin = std::max(rank * cut.shard_elems, rounded.num_rounded),
                  end = std::min((rank + 1) * cut.shard_elems, cut.num_elems);
    if (begin >= end) continue;
    const View part = rounded.others.rows(begin - rounded.num_rounded, end - rounded.num_rounded);
    if (rank == context_.plan.shard_rank()) {
      comm.copy(part_of(kept_[section].view(unit), {begin - cut.own.begin, end - cut.own.begin}), part);
    }
    context_.ranks.shard->broadcast(part, rank, comm, kSubject);
  }
}

void Float8Shards::gather(int64_t unit, Section section, View whole) {
  Rounded& rounded = *section_of(unit, section);
  if (rounded.stale) {
    round_shard(unit, section, rounded);
    exchange_others(unit, section, rounded);
    rounded.stale = false;
  }
  Stream& comm = *context_.streams.comm;
  context_.ranks.shard->all_gather(rounded.codes, weights(unit, section, whole).codes, comm, kSubject);
  comm.copy(rounded.others, whole.rows(rounded.num_rounded, rounded.num_rounded + rounded.num_others));
}

Float8Weights Float8Shards::weights(int64_t unit, Section section, View whole) const {
  const Rounded& rounded = *section_of(unit, section);
  return {{whole.data, DType::e4m3, {whole.num_elems()}}, rounded.scales, rounded.places};
}

}  // namespace tessera
