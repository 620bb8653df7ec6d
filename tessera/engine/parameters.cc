#include "tessera/engine/parameters.h"

namespace tessera {

static constexpr const char* kParametersSubject = "parameters";

static std::vector<int64_t> kept_elems(const Workplace& place) {
  std::vector<int64_t> elems;
  for (const UnitShards& unit : place.units) {
    elems.push_back(place.plan.shard_parameters() ? unit.shard_elems : unit.padded_elems);
  }
  return elems;
}

UnitParameters::UnitParameters(Workplace& place)
    : place_(place), stale_(place.units.size(), 0), updated_(place.units.size()), ready_(place.units.size()) {
  const Tier tier = place.plan.options().parameters;
  const bool gathers = place.plan.shard_parameters() && place.plan.shard_group_size() > 1;
  direct_ = tier == Tier::device && !gathers;
  View root;  // only the root uses its slot, so its kept part can be a part of the gathered root
  if (tier == Tier::device && gathers) {
    slots_.resize(1);
    const int64_t elems = place.cut(0).padded_elems;
    slots_[0].buffer = place.device.allocate(bytes_of(elems, place.dtype), Category::gathered);
    root = part_of(slots_[0].buffer.view({elems}, place.dtype), place.cut(0).own);
  }
  kept_ = Shelf(place, tier, Category::parameters, place.dtype, kept_elems(place), root);
}

void UnitParameters::prepare() {
  if (direct_ || slots_.size() > 1) return;
  const int64_t num_blocks = place_.num_units() - 1;
  const int64_t in_flight = place_.plan.free_after_forward() || kept_.tier() != Tier::device
                                ? std::min<int64_t>(place_.plan.options().max_units_in_flight, num_blocks)
                                : num_blocks;
  slots_.resize(static_cast<size_t>(1 + in_flight));
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].buffer.bytes() > 0) continue;
    const int64_t elems = i == 0 ? place_.cut(0).padded_elems : place_.largest_block_padded();
    slots_[i].buffer = place_.device.allocate(bytes_of(elems, place_.dtype), Category::gathered);
  }
  if (kept_.tier() == Tier::file) {
    staging_ =
        place_.host.allocate(bytes_of(place_.staging_elems(kept_elems(place_)), place_.dtype), Category::staging);
  }
}

ElemRange UnitParameters::kept_range(int64_t unit) const {
  const UnitShards& cut = place_.cut(unit);
  return place_.plan.shard_parameters() ? cut.own : ElemRange{0, cut.padded_elems};
}

UnitParameters::Slot* UnitParameters::slot_holding(int64_t unit) {
  for (Slot& slot : slots_) {
    if (slot.unit == unit) return &slot;
  }
  return nullptr;
}

// The root has its own slot, because the first and the last phase of forward and backward need it. A block takes an
// empty slot, or the slot that was released first.
UnitParameters::Slot* UnitParameters::take_slot(int64_t unit) {
  if (unit == 0) return slots_.data();
  Slot* best = nullptr;
  for (size_t i = 1; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    if (slot.acquired) continue;
    if (slot.unit < 0) return &slot;
    if (!best || slot.released_at < best->released_at) best = &slot;
  }
  return best;
}

void UnitParameters::gather_in_place(int64_t unit) {
  if (!stale_[static_cast<size_t>(unit)]) return;
  Stream& comm = *place_.streams.comm;
  comm.wait(updated_[static_cast<size_t>(unit)]);
  const View whole = kept_.view(unit);
  place_.ranks.shard->all_gather(part_of(whole, place_.cut(unit).own), whole, comm, kParametersSubject);
  ready_[static_cast<size_t>(unit)] = comm.record();
  stale_[static_cast<size_t>(unit)] = 0;
}

bool UnitParameters::gather(int64_t unit) {
  if (slot_holding(unit)) return true;
  Slot* slot = take_slot(unit);
  if (!slot) return false;
  slot->unit = unit;
  Stream& comm = *place_.streams.comm;
  comm.wait(slot->free);
  const UnitShards& cut = place_.cut(unit);
  const View whole = slot->buffer.view({cut.padded_elems}, place_.dtype);
  if (kept_.tier() == Tier::device) {
    comm.wait(updated_[static_cast<size_t>(unit)]);
    place_.ranks.shard->all_gather(kept_.view(unit), whole, comm, kParametersSubject);
  } else {
    bring_own_part(unit, part_of(whole, kept_range(unit)));
    if (place_.plan.shard_parameters()) {
      place_.ranks.shard->all_gather(part_of(whole, cut.own), whole, comm, kParametersSubject);
    }
  }
  slot->ready = comm.record();
  return true;
}

// Copies from host memory directly. From a file, copies in pieces through the staging buffer.
void UnitParameters::bring_own_part(int64_t unit, View own) {
  Stream& comm = *place_.streams.comm;
  Stream& upload = *place_.streams.upload;
  upload.wait(updated_[static_cast<size_t>(unit)]);
  if (kept_.tier() == Tier::host) {
    upload.wait(comm.record());  // waits until the slot is free
    kept_.load(unit, 0, own, upload);
  }
  for (int64_t first = 0; kept_.tier() == Tier::file && first < own.num_elems(); first += place_.piece_elems()) {
    const int64_t last = std::min(first + place_.piece_elems(), own.num_elems());
    const View piece = staging_.view({last - first}, place_.dtype);
    upload.wait(staging_free_);
    kept_.load(unit, first, piece, upload);
    upload.wait(comm.record());
    upload.copy(piece, own.rows(first, last));
    staging_free_ = upload.record();
  }
  comm.wait(upload.record());
}

ParameterViews UnitParameters::acquire(int64_t unit) {
  const ParameterTable& table = place_.model.unit(unit).table();
  Stream& compute = *place_.streams.compute;
  if (direct_) {
    gather_in_place(unit);
    compute.wait(updated_[static_cast<size_t>(unit)]);
    compute.wait(ready_[static_cast<size_t>(unit)]);
    return {&table, kept_.view(unit)};
  }
  const bool gathered = gather(unit);
  TESSERA_ASSERT(gathered);
  Slot& slot = *slot_holding(unit);
  slot.acquired = true;
  compute.wait(slot.ready);
  return {&table, slot.buffer.view({place_.cut(unit).padded_elems}, place_.dtype)};
}

void UnitParameters::release(int64_t unit) {
  Slot* slot = slot_holding(unit);
  if (!slot) return;
  slot->acquired = false;
  slot->free = place_.streams.compute->record();
  slot->released_at = ++clock_;
}

void UnitParameters::prefetch(int64_t unit) {
  if (unit < 0 || unit >= place_.num_units()) return;
  if (direct_)
    gather_in_place(unit);
  else
    gather(unit);
}

void UnitParameters::updated(int64_t unit, Event event) {
  replaced(unit);
  updated_[static_cast<size_t>(unit)] = std::move(event);
  stale_[static_cast<size_t>(unit)] = place_.plan.shard_optimizer() && place_.plan.shard_group_size() > 1;
}

void UnitParameters::replaced(int64_t unit) {
  updated_[static_cast<size_t>(unit)] = {};
  stale_[static_cast<size_t>(unit)] = 0;
  if (Slot* slot = slot_holding(unit)) {
    TESSERA_ASSERT(!slot->acquired);
    slot->unit = -1;
  }
}

}  // namespace tessera
