#include "tessera/engine/gradients.h"

namespace tessera {

static constexpr const char* kGradientsSubject = "gradients";

static std::vector<int64_t> accumulated_elems(const Workplace& place) {
  std::vector<int64_t> elems;
  for (const UnitShards& unit : place.units) {
    elems.push_back(!place.plan.reduce_every_micro_batch() ? unit.padded_elems : place.plan.updated(unit).size());
  }
  return elems;
}

// The type in which ranks reduce gradients of `dtype`. Set only for a 16-bit type other than `dtype`; sums are never
// widened.
static std::optional<DType> wire_dtype(const ShardPlan& plan, DType dtype) {
  const std::optional<DType> wanted = plan.options().reduce_dtype;
  return plan.alone() || !wanted || size_of(*wanted) != 2 || *wanted == dtype ? std::nullopt : wanted;
}

UnitGradients::UnitGradients(Workplace& place, int64_t micro_batches)
    : place_(place),
      one_micro_batch_(micro_batches == 1),
      direct_(!place.plan.reduce_every_micro_batch()),
      backward_dtype_(direct_ && micro_batches > 1 ? place.master_dtype() : place.gradient_dtype()),
      wire_dtype_(wire_dtype(place.plan, backward_dtype_)),
      complete_(place.units.size(), std::vector<Event>(1)),
      read_until_(place.units.size()),
      begun_(place.units.size(), 0) {
  if (!direct_ || wire_dtype_) allocate_slots();
  const Tier tier = place.plan.options().gradients;
  const DType sum_dtype = micro_batches > 1 ? place.master_dtype() : place.gradient_dtype();
  const bool root_stays = !direct_ && micro_batches == 1 && tier == Tier::device;
  accumulators_ = Shelf(place, tier, Category::gradients, sum_dtype, accumulated_elems(place),
                        root_stays ? part_of(in_slot(slots_[0], 0), range(0)) : View{});
  if (tier == Tier::device) return;
  if (micro_batches == 1) squares_ = place.device.allocate(sizeof(double), Category::workspace);
  std::vector<int64_t> updated;
  for (const UnitShards& unit : place.units) updated.push_back(place.plan.updated(unit).size());
  const auto stage = [&](Buffer& buffer, bool wanted, DType dtype) {
    if (wanted) buffer = place.host.allocate(bytes_of(place.staging_elems(updated), dtype), Category::staging);
  };
  for (Lane& lane : lanes_) {
    stage(lane.incoming, micro_batches > 1 || tier == Tier::file, backward_dtype_);
    stage(lane.stored, micro_batches > 1 && tier == Tier::file, sum_dtype);
  }
}

void UnitGradients::allocate_slots() {
  const int64_t num_blocks = place_.num_units() - 1;
  slots_.resize(static_cast<size_t>(1 + std::min<int64_t>(place_.plan.options().max_units_in_flight, num_blocks)));
  for (size_t i = 0; i < slots_.size(); ++i) {
    const int64_t elems = i == 0 ? place_.cut(0).padded_elems : place_.largest_block_padded();
    if (!direct_) slots_[i].buffer = place_.device.allocate(bytes_of(elems, backward_dtype_), Category::gathered);
    if (wire_dtype_) slots_[i].wire = place_.device.allocate(bytes_of(elems, *wire_dtype_), Category::communication);
  }
}

View UnitGradients::in_slot(const Slot& slot, int64_t unit) const {
  return slot.buffer.view({place_.cut(unit).padded_elems}, backward_dtype_);
}

void UnitGradients::begin_step() {
  std::ranges::fill(begun_, 0);
  if (squares()) place_.ops.fill(squares(), 0);
}

ParameterViews UnitGradients::whole(int64_t unit) const {
  TESSERA_ASSERT(direct_);
  return {&place_.model.unit(unit).table(), accumulators_.view(unit)};
}

View UnitGradients::sum(int64_t unit, int64_t first, int64_t last) const {
  const int64_t begin = direct_ ? range(unit).begin : 0;
  return accumulators_.view(unit).rows(begin + first, begin + last);
}

void UnitGradients::load_sum(int64_t unit, int64_t first, View to, Stream& stream) const {
  accumulators_.load(unit, (direct_ ? range(unit).begin : 0) + first, to, stream);
}

UnitGradients::Slot& UnitGradients::take_slot(int64_t unit) {
  size_t index = 0;
  if (unit > 0) {
    index = next_slot_;
    next_slot_ = next_slot_ + 1 < slots_.size() ? next_slot_ + 1 : 1;
  }
  Slot& slot = slots_[index];
  if (slot.unit >= 0) settle(slot);
  place_.streams.compute->wait(slot.free);
  slot.unit = unit;
  slot.reduced = false;
  return slot;
}

UnitGradients::Slot& UnitGradients::slot_of(int64_t unit) {
  for (Slot& slot : slots_) {
    if (slot.unit == unit) return slot;
  }
  assertion_failed("the unit has a slot", __FILE__, __LINE__);
}

// Waits for the readers of the previous step's sums at this point, and not before. Sums outside the device are
// protected when new ones are copied there.
UnitGradients::Acquired UnitGradients::acquire(int64_t unit, bool computes) {
  const auto u = static_cast<size_t>(unit);
  if (!begun_[u] && tier() == Tier::device) place_.streams.compute->wait(read_until_[u]);
  const bool fresh = !direct_ || !begun_[u];
  if (direct_) begun_[u] = 1;
  const View view = direct_ ? accumulators_.view(unit) : in_slot(take_slot(unit), unit);
  const ParameterTable& table = place_.model.unit(unit).table();
  const int64_t first_zeroed = computes ? table.num_decayed() : 0;
  if (fresh) place_.ops.fill(view.rows(first_zeroed, view.num_elems()), 0);
  return {{&table, view}, fresh};
}

// Reduces within the shard group first, then among the replicas of the shard.
Event UnitGradients::reduce_among_ranks(View whole, const UnitShards& cut) {
  Stream& comm = *place_.streams.comm;
  comm.wait(place_.streams.compute->record());
  if (place_.plan.shard_optimizer()) {
    const View own = part_of(whole, cut.own);
    place_.ranks.shard->reduce_scatter(whole, own, comm, kGradientsSubject);
    if (place_.plan.num_replicas() > 1) place_.ranks.replica->all_reduce(own, comm, kGradientsSubject);
  } else {
    place_.ranks.world->all_reduce(whole, comm, kGradientsSubject);
  }
  return comm.record();
}

void UnitGradients::reduce(int64_t unit) {
  if (direct_ && (place_.plan.alone() || !last_micro_batch_)) return;
  const UnitShards& cut = place_.cut(unit);
  if (direct_ && !wire_dtype_) {
    if (place_.plan.shard_optimizer()) {
      complete_[static_cast<size_t>(unit)] = {reduce_among_ranks(accumulators_.view(unit), cut)};
    } else {
      reduce_bucket(unit);
    }
    return;
  }
  Slot& slot = direct_ ? take_slot(unit) : slot_of(unit);
  View whole = direct_ ? accumulators_.view(unit) : in_slot(slot, unit);
  if (wire_dtype_) {
    const View wire = slot.wire.view({cut.padded_elems}, *wire_dtype_);
    place_.ops.convert(whole, wire);
    whole = wire;
  }
  slot.ready = reduce_among_ranks(whole, cut);
  slot.reduced = true;
}

// Replicated gradients of consecutive units are adjacent. They are reduced together when they reach bucket_bytes.
void UnitGradients::reduce_bucket(int64_t unit) {
  if (bucket_last_ < 0) bucket_last_ = unit;
  const View bucket = accumulators_.views(unit, bucket_last_);
  if (unit > 0 && bucket.bytes() < place_.plan.options().bucket_bytes) return;
  Stream& comm = *place_.streams.comm;
  comm.wait(place_.streams.compute->record());
  place_.ranks.world->all_reduce(bucket, comm, kGradientsSubject);
  for (int64_t u = unit; u <= bucket_last_; ++u) complete_[static_cast<size_t>(u)] = {comm.record()};
  bucket_last_ = -1;
}

// Adds the content of a slot to the accumulators.
void UnitGradients::settle(Slot& slot) {
  TESSERA_ASSERT(slot.reduced);
  Stream& compute = *place_.streams.compute;
  const auto u = static_cast<size_t>(slot.unit);
  const UnitShards& cut = place_.cut(slot.unit);
  const ElemRange range = place_.plan.updated(cut);
  const View part = part_of(direct_ ? accumulators_.view(slot.unit) : in_slot(slot, slot.unit), range);
  const View reduced = wire_dtype_ ? part_of(slot.wire.view({cut.padded_elems}, *wire_dtype_), range) : part;
  const View sums = !direct_ && tier() == Tier::device ? accumulators_.view(slot.unit) : View{};
  const bool is_there = sums && !begun_[u] && reduced.data == sums.data;
  complete_[u] = {slot.ready};
  if (!is_there && (sums || wire_dtype_)) {
    compute.wait(slot.ready);
    const View to = sums ? sums : part;
    begun_[u] && sums ? place_.ops.add(reduced, to) : place_.ops.convert(reduced, to);
    complete_[u] = {compute.record()};
  }
  slot.free = complete_[u].front();
  if (squares()) {
    compute.wait(slot.ready);
    place_.ops.add_sum_of_squares(part_of(in_slot(slot, slot.unit), cut.own), squares());
  }
  if (!direct_ && !sums) accumulate_beyond_device(slot.unit, part, slot);
  begun_[u] = 1;
  slot.unit = -1;
}

// Takes a complete slot. The step's first micro-batch is stored in the type of the accumulators, and the CPU adds the
// others. Data moves in pieces, except when it is stored in host memory unchanged.
void UnitGradients::accumulate_beyond_device(int64_t unit, View part, Slot& slot) {
  Stream& copy = *place_.streams.copy;
  Stream& host = *place_.streams.host;
  const auto u = static_cast<size_t>(unit);
  const bool in_file = tier() == Tier::file, adds = begun_[u], as_it_is = !adds && part.dtype == dtype();
  const int64_t most = place_.piece_elems();
  copy.wait(complete_[u].front());
  if (as_it_is && !in_file) {
    copy.wait(squares() ? read_until_[u] : host.record());  // the previous step's readers or additions of these sums
    // The root's gradients come last. They move in pieces, because AdamW first waits only for their first piece.
    const int64_t size = unit == 0 ? most : part.num_elems();
    complete_[u].clear();
    for (int64_t first = 0; first < part.num_elems(); first += size) {
      const int64_t last = std::min(first + size, part.num_elems());
      copy.copy(part.rows(first, last), accumulators_.view(unit).rows(first, last));
      complete_[u].push_back(copy.record());
    }
    slot.free = complete_[u].back();
    return;
  }
  const int64_t num_pieces = (part.num_elems() + most - 1) / most;
  const size_t first_lane = next_lane_;
  const auto first_of = [&](int64_t i) { return i * most; };
  const auto size_of_piece = [&](int64_t i) { return std::min(most, part.num_elems() - first_of(i)); };
  const auto lane_of = [&](int64_t i) -> Lane& {
    return lanes_[(first_lane + static_cast<size_t>(i)) % std::size(lanes_)];
  };
  const auto stored_of = [&](int64_t i) {
    return in_file ? lane_of(i).stored.view({size_of_piece(i)}, dtype())
                   : accumulators_.view(unit).rows(first_of(i), first_of(i) + size_of_piece(i));
  };
  const auto fetch = [&](int64_t i) {
    Lane& lane = lane_of(i);
    copy.wait(lane.free);
    copy.copy(part.rows(first_of(i), first_of(i) + size_of_piece(i)),
              lane.incoming.view({size_of_piece(i)}, part.dtype));
    slot.free = copy.record();
    if (in_file && adds) accumulators_.load(unit, first_of(i), stored_of(i), copy);
    lane.ready = copy.record();
  };
  if (num_pieces > 0) fetch(0);
  for (int64_t i = 0; i < num_pieces; ++i) {
    if (i + 1 < num_pieces) fetch(i + 1);
    Lane& lane = lane_of(i);
    const View incoming = lane.incoming.view({size_of_piece(i)}, part.dtype);
    if (as_it_is) {
      accumulators_.save(unit, first_of(i), incoming, copy);
      lane.free = copy.record();
      continue;
    }
    host.wait(lane.ready);
    host.run([&ops = place_.host_ops, incoming, stored = stored_of(i), adds] {
      adds ? ops.add(incoming, stored) : ops.convert(incoming, stored);
    });
    lane.free = host.record();
    if (!in_file) continue;
    copy.wait(lane.free);
    accumulators_.save(unit, first_of(i), stored_of(i), copy);
    lane.free = copy.record();
  }
  next_lane_ = (first_lane + static_cast<size_t>(num_pieces)) % std::size(lanes_);
  complete_[u] = {in_file ? copy.record() : host.record()};
}

// The next forward overlaps the last reductions. On the device, adding a slot to the accumulators may wait until the
// slot is taken again.
void UnitGradients::end_micro_batch() {
  if (!last_micro_batch_ && tier() == Tier::device) return;
  // In the order of taking the slots. The root comes last, because it is reduced last.
  const size_t num_turns = slots_.empty() ? 0 : slots_.size() - 1;
  for (size_t i = 0; i < num_turns; ++i) {
    Slot& slot = slots_[1 + (next_slot_ - 1 + i) % num_turns];
    if (slot.unit >= 0) settle(slot);
  }
  if (!slots_.empty() && slots_[0].unit >= 0) settle(slots_[0]);
}

}  // namespace tessera
