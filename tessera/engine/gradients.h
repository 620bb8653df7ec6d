// Gradients of a rank: the buffers for backward, the reduction among ranks, and the sums over a step ("accumulators").
//
// If gradients stay in the buffers of backward until the last micro-batch (ShardPlan::reduce_every_micro_batch() is
// false), these buffers are the accumulators (Sums::in_backward). Otherwise a slot holds a unit's gradients of one
// micro-batch, and the ranks reduce the slot. Each rank then adds its own part (the part that it updates) to its
// accumulators, which may be on any tier: the device, host memory or a file.
//
// Frozen parameters have no gradients. A unit with only frozen parameters takes no slot and is not reduced.
//
// Gradients in slots have the type gradient_dtype(). The accumulators have the same type if a step has one micro-batch,
// and otherwise f32 (or f64). Outer units (engine_context.h) have their own slots. If a step has one micro-batch and
// the accumulators are on the device, the slots of outer units are also their accumulators.
#pragma once

#include <deque>
#include <vector>

#include "tessera/engine/unit_arrays.h"

namespace tessera {

class UnitGradients {
 public:
  // Where the sums of a unit are, and whether their type differs from the type of the slots ("converted"). The table in
  // gradient_sums.cc has a row for each value.
  enum class Sums { in_backward, in_slot, on_device, on_host, on_host_converted, in_file, in_file_converted };
  // Who adds up the squares of a unit's gradients, and when: the device after the last micro-batch; the device before
  // the gradients leave it, if they leave it once per step; or the host, from the sums over the micro-batches.
  enum class Squares { by_device, by_device_before_leaving, by_host };

  // Allocates all buffers for steps of at most `micro_batches` micro-batches. The context must outlive this object.
  UnitGradients(EngineContext& context, int64_t micro_batches);

  void begin_step();
  void begin_micro_batch(bool last_of_step) { last_micro_batch_ = last_of_step; }
  // Returns the gradients of all trainable parameters of a unit, not only this rank's part. The compute stream may add
  // to them until reduce(). A unit is held from acquire() to reduce(). At most one block may be held at a time. Outer
  // units may be held at the same time as a block. `fresh`: nothing was added yet, in this micro-batch (slots) or in
  // this step (Sums::in_backward). If `computes` is true, fresh gradients of weights with weight decay have unspecified
  // values, and backward must overwrite them; all other fresh gradients are zeros. If `computes` is false (this rank
  // has no samples), all fresh gradients are zeros.
  struct Acquired {
    ParameterViews views;
    bool fresh;
  };
  Acquired acquire(int64_t unit, bool computes);
  // Call it when backward has added this micro-batch's gradients to the unit's gradients. Starts the reduction if it is
  // due. Collective.
  void reduce(int64_t unit);
  // Moves the gradients of all slots to the accumulators. If the accumulators are on the device, does so only after the
  // step's last micro-batch.
  void end_micro_batch();

  // Call it after the step's last micro-batch. Returns the event for elements [0, last) of range(unit). After this
  // event, their sums over micro-batches and ranks are complete.
  const Event& complete(int64_t unit, int64_t last) const {
    const std::vector<Event>& pieces = complete_[static_cast<size_t>(unit)];
    return pieces[std::min(pieces.size(), static_cast<size_t>((last - 1) / context_.piece_elems() + 1)) - 1];
  }
  // The elements of the unit that this rank updates.
  ElemRange range(int64_t unit) const { return context_.updated(unit); }
  Tier tier(int64_t unit) const { return accumulators_.tier(unit); }
  DType dtype() const { return accumulators_.dtype(); }
  // The sums of elements [first, last), counted from the start of range(unit). Not for Tier::file: use load_sum().
  View sum(int64_t unit, int64_t first, int64_t last) const;
  // Copies sums to `to`. Copies as many sums as `to` has elements. The first one is element `first`,
  // counted from the start of range(unit). Works for every tier.
  void load_sum(int64_t unit, int64_t first, View to, Stream& stream) const;
  // Whether steps have one micro-batch. The next step then overwrites the sums only in its single backward, so the
  // optimizer may read them until then.
  bool one_micro_batch() const { return one_micro_batch_; }
  Squares squares_of(int64_t unit) const;
  bool any_squares(Squares who) const;  // whether squares_of() is `who` for any unit
  bool device_adds_squares() const {
    return any_squares(Squares::by_device) || any_squares(Squares::by_device_before_leaving);
  }
  // [units] f64, on the compute stream: for each unit, the sum of squares of this rank's own elements. Contains the
  // squares of the gradients that have left the device. Only if device_adds_squares().
  View squares() const { return squares_.view({context_.num_units()}, DType::f64); }
  // Announces that the work before `event` reads the unit's sums of this step. The next step writes to them only after
  // `event`.
  void read_until(int64_t unit, Event event) { read_until_[static_cast<size_t>(unit)] = std::move(event); }

  // The accumulators of all elements of a unit. Only for Sums::in_backward.
  ParameterViews whole(int64_t unit) const;

 private:
  struct GradientSlot {
    Buffer buffer;      // [padded] for one micro-batch; empty if backward adds to the accumulators
    Buffer wire;        // [padded] in the type of the reduction; empty if the gradients have this type
    int64_t unit = -1;  // the unit whose gradients it holds
    Event ready, free;  // ready: after the reduction; free: after the slot's last reader
  };
  // Buffers for pieces of gradients that move to accumulators outside the device. While the CPU adds one piece, the
  // next piece arrives.
  struct PieceBuffers {
    Buffer incoming, stored;
    Event ready, free;
  };

  Sums sums_of(int64_t unit) const { return sums_[static_cast<size_t>(unit)]; }
  Sums choose_sums(int64_t unit, DType sum_dtype) const;
  // Whether backward writes the unit's gradients into the accumulators, and not into a slot. A single rank with steps
  // of one micro-batch needs slots only for the units whose gradients leave the device.
  bool in_backward(int64_t unit) const {
    return all_in_backward_ || (one_micro_batch_ && context_.plan.alone() &&
                                context_.plan.tier(ArrayKind::gradients, unit) == Tier::device);
  }
  bool leaves_device(int64_t unit) const { return tier(unit) != Tier::device; }
  void allocate_slots();
  void allocate_piece_buffers();
  View in_slot(const GradientSlot& slot, int64_t unit) const;
  void empty_oldest_slot();
  GradientSlot& take_slot(int64_t unit);
  GradientSlot& slot_of(int64_t unit);
  Event reduce_among_ranks(View whole, const UnitShards& cut);
  void reduce_bucket(int64_t unit);

  // ---- from a slot to the accumulators (gradient_sums.cc)

  struct Transfer;
  void move_to_accumulators(GradientSlot& slot);
  View own_part(const GradientSlot& slot) const;
  View reduced_part(const GradientSlot& slot) const;
  void store_on_device(GradientSlot& slot, View to);
  void add_on_device(GradientSlot& slot, View sums);
  void completed_on_device(GradientSlot& slot);
  void move_off_device(GradientSlot& slot);
  void copy_to_host(const Transfer& transfer, GradientSlot& slot);
  void move_in_pieces(const Transfer& transfer, GradientSlot& slot);
  void fetch_piece(const Transfer& transfer, int64_t i, GradientSlot& slot);
  void sum_piece(const Transfer& transfer, int64_t i);
  PieceBuffers& buffers_of(const Transfer& transfer, int64_t i);
  View incoming_piece(const Transfer& transfer, int64_t i);
  View summed_piece(const Transfer& transfer, int64_t i);

  EngineContext& context_;
  const bool one_micro_batch_;
  const bool all_in_backward_;       // gradients stay where backward writes them until the step's last micro-batch
  const DType backward_dtype_;       // type of the gradients that backward writes, in slots or accumulators
  std::optional<DType> wire_dtype_;  // type of GradientSlot::wire; empty if the slots have no wire
  std::vector<Sums> sums_;           // [units]
  bool any_leaves_device_ = false;
  UnitArrays accumulators_;
  Buffer squares_;
  std::vector<GradientSlot> slots_;  // first those of outer units, then those that the blocks take in turn
  size_t next_slot_;
  std::deque<GradientSlot*> full_;  // the slots with reduced gradients, in the order of their reductions
  std::vector<std::vector<Event>>
      complete_;                   // [units] one event for the unit, or one for each piece of piece_elems() in order
  std::vector<Event> read_until_;  // [units]
  std::vector<char> begun_;        // [units] the accumulators contain gradients of this step
  PieceBuffers piece_buffers_[2];
  size_t next_buffers_ = 0;
  int64_t bucket_last_ = -1;  // the highest unit of the bucket that is being filled
  bool last_micro_batch_ = false;
};

}  // namespace tessera
