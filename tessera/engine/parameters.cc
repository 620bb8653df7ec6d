#include "tessera/engine/parameters.h"

namespace tessera {

static constexpr const char* kParametersSubject = "parameters";

UnitParameters::UnitParameters(EngineContext& context)
    : context_(context), stale_(context.units.size(), 0), updated_(context.units.size()), ready_(context.units.size()) {
  const Tier tier = context.plan.options().offload.parameters;
  const bool gathers = context.plan.shard_parameters() && context.plan.shard_group_size() > 1;
  direct_ = tier == Tier::device && !gathers;
  // Each outer unit (engine_context.h) has its own slot. The part of the unit that this rank keeps can therefore stay
  // in the slot and needs no other memory.
  PerSection<std::vector<View>> in_slots;
  for (const Section section : kSections) in_slots[section].resize(context.units.size());
  if (tier == Tier::device && gathers) {
    slots_.resize(context.num_outer_units());
    for (int64_t u = 0; u < context.num_units(); ++u) {
      if (!context.is_outer(u)) continue;
      Buffer& buffer = slots_[context.slot_of_outer(u)].buffer;
      buffer = context.device.allocate(gathered_bytes(u), Category::gathered);
      const ParameterViews whole = in_buffer(buffer, u);
      for (const Section section : kSections) {
        in_slots[section][static_cast<size_t>(u)] = part_of(whole.sections[section], context.cut(u, section).own);
      }
    }
  }
  for (const Section section : kSections) {
    const auto elems = context.of_units([&](int64_t unit) { return kept_range(unit, section).size(); });
    kept_[section] =
        UnitArrays(context, tier, Category::parameters, context.formats[section], elems, std::move(in_slots[section]));
  }
}

int64_t UnitParameters::gathered_bytes(int64_t unit) const {
  int64_t bytes = 0;
  for (const Section section : kSections) {
    bytes += bytes_of(context_.cut(unit, section).padded_elems, context_.formats[section]);
  }
  return bytes;
}

// Returns views of a complete unit in a slot's buffer. The buffer holds one section after the other.
ParameterViews UnitParameters::in_buffer(const Buffer& buffer, int64_t unit) const {
  ParameterViews whole{&context_.model.unit(unit).table(), {}};
  std::byte* data = buffer.data();
  for (const Section section : kSections) {
    whole.sections[section] = {data, context_.formats[section], {context_.cut(unit, section).padded_elems}};
    data += whole.sections[section].bytes();
  }
  return whole;
}

void UnitParameters::prepare() {
  const size_t num_outer = context_.num_outer_units();
  if (direct_ || slots_.size() > num_outer) return;
  const int64_t num_blocks = context_.model.num_blocks();
  const Tier tier = context_.plan.options().offload.parameters;
  const int64_t in_flight = context_.plan.free_after_forward() || tier != Tier::device
                                ? std::min<int64_t>(context_.plan.options().max_units_in_flight, num_blocks)
                                : num_blocks;
  slots_.resize(num_outer + static_cast<size_t>(in_flight));
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].buffer.bytes() > 0) continue;
    const int64_t bytes = context_.slot_size(i, [&](int64_t unit) { return gathered_bytes(unit); });
    slots_[i].buffer = context_.device.allocate(bytes, Category::gathered);
  }
  if (tier != Tier::file) return;
  int64_t staging_bytes = 0;
  for (const Section section : kSections) {
    const auto elems = context_.of_units([&](int64_t unit) { return kept_range(unit, section).size(); });
    staging_bytes = std::max(staging_bytes, bytes_of(context_.staging_elems(elems), context_.formats[section]));
  }
  staging_ = context_.host.allocate(staging_bytes, Category::staging);
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
  if (!stale_[static_cast<size_t>(unit)]) return;
  Stream& comm = *context_.streams.comm;
  comm.wait(updated_[static_cast<size_t>(unit)]);
  const View whole = kept(Section::trainable).view(unit);
  context_.ranks.shard->all_gather(part_of(whole, context_.trained_cut(unit).own), whole, comm, kParametersSubject);
  ready_[static_cast<size_t>(unit)] = comm.record();
  stale_[static_cast<size_t>(unit)] = 0;
}

bool UnitParameters::gather(int64_t unit) {
  if (slot_holding(unit)) return true;
  ParameterSlot* slot = take_slot(unit);
  if (!slot) return false;
  slot->unit = unit;
  Stream& comm = *context_.streams.comm;
  comm.wait(slot->free);
  const ParameterViews whole = in_buffer(slot->buffer, unit);
  for (const Section section : kSections) gather_section(unit, section, whole.sections[section]);
  slot->ready = comm.record();
  return true;
}

void UnitParameters::gather_section(int64_t unit, Section section, View whole) {
  const UnitShards& cut = context_.cut(unit, section);
  if (cut.num_elems == 0) return;
  Stream& comm = *context_.streams.comm;
  if (kept(section).tier() == Tier::device) {
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
  if (kept.tier() == Tier::host) {
    upload.wait(comm.record());  // waits until the slot is free: gather() made `comm` wait for that
    kept.load(unit, 0, own, upload);
  }
  for (int64_t first = 0; kept.tier() == Tier::file && first < own.num_elems(); first += context_.piece_elems()) {
    const int64_t last = std::min(first + context_.piece_elems(), own.num_elems());
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
  if (direct_) {
    ParameterViews whole{&context_.model.unit(unit).table(), {}};
    gather_in_place(unit);
    compute.wait(updated_[static_cast<size_t>(unit)]);
    compute.wait(ready_[static_cast<size_t>(unit)]);
    for (const Section section : kSections) whole.sections[section] = kept(section).view(unit);
    return whole;
  }
  const bool gathered = gather(unit);
  TESSERA_ASSERT(gathered);
  ParameterSlot& slot = *slot_holding(unit);
  slot.acquired = true;
  compute.wait(slot.ready);
  return in_buffer(slot.buffer, unit);
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
  if (direct_)
    gather_in_place(unit);
  else
    gather(unit);
}

void UnitParameters::updated(int64_t unit, Event event) {
  replaced(unit);
  updated_[static_cast<size_t>(unit)] = std::move(event);
  stale_[static_cast<size_t>(unit)] = context_.plan.shard_optimizer() && context_.plan.shard_group_size() > 1;
}

void UnitParameters::replaced(int64_t unit) {
  updated_[static_cast<size_t>(unit)] = {};
  stale_[static_cast<size_t>(unit)] = 0;
  if (ParameterSlot* slot = slot_holding(unit)) {
    TESSERA_ASSERT(!slot->acquired);
    slot->unit = -1;
  }
}

}  // namespace tessera
