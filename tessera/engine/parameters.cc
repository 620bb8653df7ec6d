#include "tessera/engine/parameters.h"

#include <utility>

namespace tessera {

constexpr const char* kParametersSubject = "parameters";

UnitParameters::UnitParameters(EngineContext& context)
    : context_(context),
      gathers_(context.plan.shard_parameters() && context.plan.shard_group_size() > 1),
      stale_(context.units.size(), 0),
      updated_(context.units.size()),
      ready_(context.units.size()),
      slots_(context.num_outer_units()) {
  // Each outer unit (engine_context.h) has its own slot. The part of the unit that this rank keeps can therefore stay
  // in the slot and needs no other memory.
  PerSection<std::vector<View>> in_slots;
  for (const Section section : kSections) in_slots[section].resize(context.units.size());
  for (int64_t u = 0; gathers_ && u < context.num_units(); ++u) {
    if (!context.is_outer(u)) continue;
    Buffer& buffer = slots_[context.slot_of_outer(u)].buffer;
    for (const Section section : kSections) {
      if (context.plan.tier(kind_of(section), u) != Tier::device) continue;
      if (buffer.bytes() == 0)
        buffer = context.device.allocate(slot_bytes(u), Category::gathered, context.ranks.shard->allocator());
      in_slots[section][static_cast<size_t>(u)] =
          part_of(views(u, buffer).sections[section], context.cut(u, section).own);
    }
  }
  for (const Section section : kSections) {
    const auto elems = context.of_units([&](int64_t unit) { return kept_range(unit, section).size(); });
    kept_[section] = UnitArrays(context, kind_of(section), Category::parameters, context.formats[section], elems,
                                std::move(in_slots[section]), context.ranks.shard->allocator());
  }
  if (gathers_ && context.plan.options().gather_float8) float8_shards_.emplace(context, kept_);
}

int64_t UnitParameters::slot_bytes(int64_t unit) const {
  int64_t bytes = 0;
  for (const Section section : kSections) {
    if (resident(unit, section)) continue;
    bytes += bytes_of(context_.cut(unit, section).padded_elems, context_.formats[section]);
  }
  return bytes;
}

// Returns views of a complete unit. Its slot holds the sections that are not resident, one after the other.
ParameterViews UnitParameters::views(int64_t unit, const Buffer& slot) const {
  ParameterViews whole{&context_.model.unit(unit).table(), {}};
  std::byte* data = slot.data();
  for (const Section section : kSections) {
    View& view = whole.sections[section];
    if (resident(unit, section)) {
      view = kept(section).view(unit);
    } else {
      view = {data, context_.formats[section], {context_.cut(unit, section).padded_elems}};
      data += view.bytes();
      if (gathers_float8(unit, section)) whole.weights8[section] = float8_shards_->weights(unit, section, view);
    }
  }
  return whole;
}

void UnitParameters::prepare() {
  if (std::exchange(is_prepared_, true)) return;
  int64_t num_blocks = 0, staging_bytes = 0;
  bool limited = context_.plan.free_after_forward();  // few blocks are gathered at the same time
  for (int64_t u = 0; u < context_.num_units(); ++u) {
    num_blocks += !context_.is_outer(u) && slot_bytes(u) > 0;
    for (const Section section : kSections) {
      const Tier tier = kept(section).tier(u);
      limited = limited || tier != Tier::device;
      if (tier != Tier::file) continue;
      const int64_t elems = std::min(context_.piece_elems(context_.formats[section]), kept(section).num_elems(u));
      staging_bytes = std::max(staging_bytes, bytes_of(elems, context_.formats[section]));
    }
  }
  if (limited) num_blocks = std::min<int64_t>(context_.plan.options().max_units_in_flight, num_blocks);
  slots_.resize(context_.num_outer_units() + static_cast<size_t>(num_blocks));
  for (size_t i = 0; i < slots_.size(); ++i) {
    const int64_t bytes = context_.slot_size(i, [&](int64_t unit) { return slot_bytes(unit); });
    if (slots_[i].buffer.bytes() > 0 || bytes == 0) continue;
    slots_[i].buffer = context_.device.allocate(bytes, Category::gathered, context_.ranks.shard->allocator());
  }
  if (staging_bytes > 0) staging_ = context_.host.allocate(staging_bytes, Category::staging);
}

UnitParameters::ParameterSlot* UnitParameters::slot_holding(int64_t unit) {
  for (ParameterSlot& slot : slots_) {
    if (slot.unit == unit) return &slot;
  }
  return nullptr;
}

// Returns a slot for the unit, or null if no slot is free. An outer unit has its own slot. A block takes an empty slot
// or, if no slot is empty, the slot that was released the longest time ago.
UnitParameters::ParameterSlot* UnitParameters::take_slot(int64_t unit) {
  if (context_.is_outer(unit)) return &slots_[context_.slot_of_outer(unit)];
  ParameterSlot* best = nullptr;
  for (size_t i = context_.num_outer_units(); i < slots_.size(); ++i) {
    ParameterSlot& slot = slots_[i];
    if (slot.acquired) continue;
    if (slot.unit < 0) return &slot;
    if (!best || slot.released_at < best->released_at) best = &slot;
  }
  return best;
}

void UnitParameters::gather_in_place(int64_t unit) {
  if (!stale_[static_cast<size_t>(unit)] || !resident(unit, Section::trainable)) return;
  Stream& comm = *context_.streams.comm;
  comm.wait(updated_[static_cast<size_t>(unit)]);
  const View whole = kept(Section::trainable).view(unit);
  context_.ranks.shard->all_gather(part_of(whole, context_.trained_cut(unit).own), whole, comm, kParametersSubject);
  ready_[static_cast<size_t>(unit)] = comm.record();
  stale_[static_cast<size_t>(unit)] = 0;
}

// Gathers the sections that are not resident into a slot. Returns false if no slot is free.
bool UnitParameters::gather(int64_t unit) {
  if (slot_bytes(unit) == 0 || slot_holding(unit)) return true;
  ParameterSlot* slot = take_slot(unit);
  if (!slot) return false;
  slot->unit = unit;
  Stream& comm = *context_.streams.comm;
  comm.wait(slot->free);
  const ParameterViews whole = views(unit, slot->buffer);
  for (const Section section : kSections) {
    if (!resident(unit, section)) gather_section(unit, section, whole.sections[section]);
  }
  slot->ready = comm.record();
  return true;
}

void UnitParameters::gather_section(int64_t unit, Section section, View whole) {
  const UnitShards& cut = context_.cut(unit, section);
  if (cut.num_elems == 0) return;
  Stream& comm = *context_.streams.comm;
  if (gathers_float8(unit, section)) {
    comm.wait(updated_[static_cast<size_t>(unit)]);
    return float8_shards_->gather(unit, section, whole);
  }
  if (kept(section).tier(unit) == Tier::device) {
    comm.wait(updated_[static_cast<size_t>(unit)]);
    context_.ranks.shard->all_gather(kept(section).view(unit), whole, comm, kParametersSubject);
    return;
  }
  bring_own_part(unit, section, part_of(whole, kept_range(unit, section)));
  if (context_.plan.shard_parameters()) {
    context_.ranks.shard->all_gather(part_of(whole, cut.own), whole, comm, kParametersSubject);
  }
}

// Copies this rank's part of a section (kept_range()) to `own`, a view in a slot. If the part is in host memory, copies
// it directly. If it is in a file, copies it in pieces through the staging buffer.
void UnitParameters::bring_own_part(int64_t unit, Section section, View own) {
  const UnitArrays& kept = kept_[section];
  Stream& comm = *context_.streams.comm;
  Stream& upload = *context_.streams.upload;
  upload.wait(updated_[static_cast<size_t>(unit)]);
  if (kept.tier(unit) == Tier::host) {
    upload.wait(comm.record());  // waits until the slot is free: gather() made `comm` wait for that
    kept.load(unit, 0, own, upload);
  }
  const int64_t most = context_.piece_elems(own.dtype);
  for (int64_t first = 0; kept.tier(unit) == Tier::file && first < own.num_elems(); first += most) {
    const int64_t last = std::min(first + most, own.num_elems());
    const View piece = staging_.view({last - first}, own.dtype);
    upload.wait(staging_free_);
    kept.load(unit, first, piece, upload);
    upload.wait(comm.record());
    upload.copy(piece, own.rows(first, last));
    staging_free_ = upload.record();
  }
  comm.wait(upload.record());
}

ParameterViews UnitParameters::acquire(int64_t unit) {
  Stream& compute = *context_.streams.compute;
  gather_in_place(unit);
  if (resident(unit, Section::trainable)) {
    compute.wait(updated_[static_cast<size_t>(unit)]);
    compute.wait(ready_[static_cast<size_t>(unit)]);
  }
  const bool gathered = gather(unit);
  TESSERA_ASSERT(gathered);
  ParameterSlot* slot = slot_holding(unit);
  if (!slot) return views(unit, {});
  slot->acquired = true;
  compute.wait(slot->ready);
  return views(unit, slot->buffer);
}

void UnitParameters::release(int64_t unit) {
  ParameterSlot* slot = slot_holding(unit);
  if (!slot) return;
  slot->acquired = false;
  slot->free = context_.streams.compute->record();
  slot->released_at = ++clock_;
}

void UnitParameters::prefetch(int64_t unit) {
  if (unit < 0 || unit >= context_.num_units()) return;
  gather_in_place(unit);
  gather(unit);
}

void UnitParameters::compute_in_float8(bool wanted) {
  if (!float8_shards_ || std::exchange(in_float8_, wanted) == wanted) return;
  for (size_t i = context_.num_outer_units(); i < slots_.size(); ++i) {
    TESSERA_ASSERT(!slots_[i].acquired);
    slots_[i].unit = -1;
  }
}

void UnitParameters::updated(int64_t unit, Event event) {
  if (float8_shards_) float8_shards_->replaced(unit, Section::trainable);
  forget_gathered(unit);
  updated_[static_cast<size_t>(unit)] = std::move(event);
  stale_[static_cast<size_t>(unit)] = context_.plan.shard_optimizer() && context_.plan.shard_group_size() > 1;
}

void UnitParameters::replaced(int64_t unit) {
  updated_[static_cast<size_t>(unit)] = {};
  stale_[static_cast<size_t>(unit)] = 0;
  for (const Section section : kSections) {
    if (float8_shards_) float8_shards_->replaced(unit, section);
  }
  forget_gathered(unit);
}

// The slot of a unit no longer holds its parameters.
void UnitParameters::forget_gathered(int64_t unit) {
  if (ParameterSlot* slot = slot_holding(unit)) {
    TESSERA_ASSERT(!slot->acquired);
    slot->unit = -1;
  }
}

}  // namespace tessera
