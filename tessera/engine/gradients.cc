#include "tessera/engine/gradients.h"

#include <utility>

namespace tessera {

constexpr const char* kGradientsSubject = "gradients";

namespace {

// Returns reduce_dtype if it is a 16-bit type other than `dtype`, the type of the gradients. The ranks then reduce a
// converted copy. Otherwise returns nullopt, and the ranks reduce in `dtype`. A copy in a wider type is never needed:
// if reduce_dtype is f32, backward already writes f32 (gradient_dtype()). A single rank reduces nothing and gets
// nullopt.
std::optional<DType> wire_dtype(const ShardPlan& plan, DType dtype) {
  const std::optional<DType> wanted = plan.options().reduce_dtype;
  return plan.alone() || !wanted || size_of(*wanted) != 2 || *wanted == dtype ? std::nullopt : wanted;
}

}  // namespace

UnitGradients::UnitGradients(EngineContext& context, int64_t micro_batches)
    : context_(context),
      one_micro_batch_(micro_batches == 1),
      all_in_backward_(!context.plan.reduce_every_micro_batch()),
      backward_dtype_(all_in_backward_ && micro_batches > 1 ? context.sum_dtype() : context.gradient_dtype()),
      wire_dtype_(wire_dtype(context.plan, backward_dtype_)),
      next_slot_(context.num_outer_units()),
      complete_(context.units.size(), std::vector<Event>(1)),
      read_until_(context.units.size()),
      begun_(context.units.size(), 0) {
  if (!all_in_backward_ || wire_dtype_) allocate_slots();
  const DType sum_dtype = one_micro_batch_ ? context.gradient_dtype() : context.sum_dtype();
  std::vector<View> in_slots(context.units.size());
  for (int64_t u = 0; u < context.num_units(); ++u) {
    sums_.push_back(choose_sums(u, sum_dtype));
    if (sums_of(u) != Sums::in_slot) continue;
    in_slots[static_cast<size_t>(u)] = part_of(in_slot(slots_[context.slot_of_outer(u)], u), range(u));
  }
  const auto elems = context.of_units(
      [&](int64_t unit) { return in_backward(unit) ? context.trained_cut(unit).padded_elems : range(unit).size(); });
  accumulators_ = UnitArrays(context, ArrayKind::gradients, Category::gradients, sum_dtype, elems, std::move(in_slots));
  for (int64_t u = 0; u < context.num_units(); ++u) any_leaves_device_ = any_leaves_device_ || leaves_device(u);
  if (device_adds_squares()) {
    squares_ = context.device.allocate(bytes_of(context.num_units(), DType::f64), Category::workspace);
  }
  allocate_piece_buffers();
}

UnitGradients::Sums UnitGradients::choose_sums(int64_t unit, DType sum_dtype) const {
  if (in_backward(unit)) return Sums::in_backward;
  const bool converts = backward_dtype_ != sum_dtype;
  switch (context_.plan.tier(ArrayKind::gradients, unit)) {
    case Tier::host:
      return converts ? Sums::on_host_converted : Sums::on_host;
    case Tier::file:
      return converts ? Sums::in_file_converted : Sums::in_file;
    case Tier::device:
      break;
  }
  return one_micro_batch_ && context_.is_outer(unit) && context_.trains(unit) ? Sums::in_slot : Sums::on_device;
}

UnitGradients::Squares UnitGradients::squares_of(int64_t unit) const {
  if (!leaves_device(unit)) return Squares::by_device;
  return one_micro_batch_ ? Squares::by_device_before_leaving : Squares::by_host;
}

bool UnitGradients::any_squares(Squares who) const {
  for (int64_t u = 0; u < context_.num_units(); ++u) {
    if (squares_of(u) == who) return true;
  }
  return false;
}

void UnitGradients::allocate_piece_buffers() {
  const auto in_file = [&](int64_t unit) { return tier(unit) == Tier::file; };
  const auto is_added = [&](int64_t unit) { return leaves_device(unit) && !one_micro_batch_; };
  for (PieceBuffers& buffers : piece_buffers_) {
    buffers.incoming =
        context_.staging_of_updated(backward_dtype_, [&](int64_t unit) { return in_file(unit) || is_added(unit); });
    buffers.stored =
        context_.staging_of_updated(dtype(), [&](int64_t unit) { return in_file(unit) && is_added(unit); });
  }
}

void UnitGradients::allocate_slots() {
  // The number of slots for blocks is at most the number of trained blocks. With more slots, a block could take a
  // second slot while its first slot is still full.
  int64_t num_blocks = 0;
  const auto needs_slot = [&](int64_t unit) { return wire_dtype_ || !in_backward(unit); };
  for (int64_t u = 1; u <= context_.model.num_blocks(); ++u) num_blocks += context_.trains(u) && needs_slot(u);
  const int64_t most = context_.plan.options().max_units_in_flight;
  slots_.resize(context_.num_outer_units() + static_cast<size_t>(std::min(most, num_blocks)));
  for (size_t i = 0; i < slots_.size(); ++i) {
    const int64_t elems = context_.slot_size(
        i, [&](int64_t unit) { return needs_slot(unit) ? context_.trained_cut(unit).padded_elems : 0; });
    if (elems == 0) continue;  // all units of this slot are frozen, or need none
    if (!all_in_backward_)
      slots_[i].buffer = context_.device.allocate(bytes_of(elems, backward_dtype_), Category::gathered);
    if (wire_dtype_) slots_[i].wire = context_.device.allocate(bytes_of(elems, *wire_dtype_), Category::communication);
  }
}

View UnitGradients::in_slot(const GradientSlot& slot, int64_t unit) const {
  return slot.buffer.view({context_.trained_cut(unit).padded_elems}, backward_dtype_);
}

void UnitGradients::begin_step() {
  std::ranges::fill(begun_, 0);
  if (device_adds_squares()) context_.ops.fill(squares(), 0);
}

ParameterViews UnitGradients::whole(int64_t unit) const {
  TESSERA_ASSERT(in_backward(unit));
  return {&context_.model.unit(unit).table(), {accumulators_.view(unit)}};
}

View UnitGradients::sum(int64_t unit, int64_t first, int64_t last) const {
  const int64_t begin = in_backward(unit) ? range(unit).begin : 0;
  return accumulators_.view(unit).rows(begin + first, begin + last);
}

void UnitGradients::load_sum(int64_t unit, int64_t first, View to, Stream& stream) const {
  accumulators_.load(unit, (in_backward(unit) ? range(unit).begin : 0) + first, to, stream);
}

// Gradients leave their slots in the order of their reductions, so a slot never waits for a later reduction.
void UnitGradients::empty_oldest_slot() {
  GradientSlot& slot = *full_.front();
  full_.pop_front();
  move_to_accumulators(slot);
}

UnitGradients::GradientSlot& UnitGradients::take_slot(int64_t unit) {
  const bool outer = context_.is_outer(unit);
  const size_t index = outer ? context_.slot_of_outer(unit) : next_slot_;
  if (!outer) next_slot_ = next_slot_ + 1 < slots_.size() ? next_slot_ + 1 : context_.num_outer_units();
  GradientSlot& slot = slots_[index];
  while (slot.unit >= 0) empty_oldest_slot();
  context_.streams.compute->wait(slot.free);
  slot.unit = unit;
  return slot;
}

UnitGradients::GradientSlot& UnitGradients::slot_of(int64_t unit) {
  for (GradientSlot& slot : slots_) {
    if (slot.unit == unit) return slot;
  }
  assertion_failed("the unit has a slot", __FILE__, __LINE__);
}

// If the sums are on the device, the compute stream waits here for the work that reads the previous step's sums. Sums
// outside the device are overwritten later (gradient_sums.cc), so the compute stream does not wait for their readers.
UnitGradients::Acquired UnitGradients::acquire(int64_t unit, bool computes) {
  const auto u = static_cast<size_t>(unit);
  const ParameterTable& table = context_.model.unit(unit).table();
  if (!context_.trains(unit)) return {{&table, {}}, false};
  if (!begun_[u] && !leaves_device(unit)) context_.streams.compute->wait(read_until_[u]);
  const bool fresh = !in_backward(unit) || !begun_[u];
  if (in_backward(unit)) begun_[u] = 1;
  const View view = in_backward(unit) ? accumulators_.view(unit) : in_slot(take_slot(unit), unit);
  const int64_t first_zeroed = computes ? table.num_decayed() : 0;
  if (!fresh) return {{&table, {view}}, fresh};
  context_.ops.fill(view.rows(first_zeroed, view.num_elems()), 0);
  // Gradients of weights with decay will be overwritten, but not the gaps between them. Blocks with other trained
  // tensors use the same slot, so a gap may hold a gradient of another block.
  int64_t end = 0;
  const auto clear_gap = [&](int64_t next) {
    if (next > end) context_.ops.fill(view.rows(end, next), 0);
  };
  for (const ParameterSpec& spec : table.specs()) {
    if (!computes || !spec.trainable() || !spec.decays) continue;
    clear_gap(spec.offset);
    end = spec.offset + spec.shape.num_elems();
  }
  clear_gap(first_zeroed);
  return {{&table, {view}}, fresh};
}

// If the optimizer states are sharded, reduces within the shard group first, then among the replicas of the shard.
// Otherwise reduces among all ranks at once.
Event UnitGradients::reduce_among_ranks(View whole, const UnitShards& cut) {
  Stream& comm = *context_.streams.comm;
  comm.wait(context_.streams.compute->record());
  if (context_.plan.shard_optimizer()) {
    const View own = part_of(whole, cut.own);
    context_.ranks.shard->reduce_scatter(whole, own, comm, kGradientsSubject);
    if (context_.plan.num_replicas() > 1) context_.ranks.replica->all_reduce(own, comm, kGradientsSubject);
  } else {
    context_.ranks.world->all_reduce(whole, comm, kGradientsSubject);
  }
  return comm.record();
}

void UnitGradients::reduce(int64_t unit) {
  const bool stays = in_backward(unit);
  if (stays && (context_.plan.alone() || !last_micro_batch_)) return;
  const UnitShards& cut = context_.trained_cut(unit);
  const bool in_buckets = stays && !wire_dtype_ && !context_.plan.shard_optimizer();
  if (!context_.trains(unit) && !in_buckets) return;
  if (stays && !wire_dtype_) {
    if (!in_buckets) {
      complete_[static_cast<size_t>(unit)] = {reduce_among_ranks(accumulators_.view(unit), cut)};
    } else {
      reduce_bucket(unit);
    }
    return;
  }
  GradientSlot& slot = stays ? take_slot(unit) : slot_of(unit);
  View whole = stays ? accumulators_.view(unit) : in_slot(slot, unit);
  if (wire_dtype_) {
    const View wire = slot.wire.view({cut.padded_elems}, *wire_dtype_);
    context_.ops.convert(whole, wire);
    whole = wire;
  }
  slot.ready = reduce_among_ranks(whole, cut);
  full_.push_back(&slot);
}

// Replicated gradients of consecutive units are adjacent in memory, and form a bucket. The ranks reduce a bucket when
// it has at least bucket_bytes bytes, or when it includes unit 0, the last unit of backward.
void UnitGradients::reduce_bucket(int64_t unit) {
  if (bucket_last_ < 0) bucket_last_ = unit;
  const View bucket = accumulators_.views(unit, bucket_last_);
  if (unit > 0 && bucket.bytes() < context_.plan.options().bucket_bytes) return;
  const int64_t last = std::exchange(bucket_last_, -1);
  if (bucket.bytes() == 0) return;
  Stream& comm = *context_.streams.comm;
  comm.wait(context_.streams.compute->record());
  context_.ranks.world->all_reduce(bucket, comm, kGradientsSubject);
  for (int64_t u = unit; u <= last; ++u) complete_[static_cast<size_t>(u)] = {comm.record()};
}

// In all micro-batches of a step except the last one, accumulators on the device get the gradients of a slot only when
// a unit takes the slot again. The reductions of the slots that are still full therefore overlap the next forward.
void UnitGradients::end_micro_batch() {
  if (!last_micro_batch_ && !any_leaves_device_) return;
  while (!full_.empty()) empty_oldest_slot();
}

}  // namespace tessera
