// Gradients of a rank: the buffers for backward, the reduction among ranks, and the sums over a step ("accumulators").
//
// Backward adds to the accumulators directly if they are on the device and nothing is reduced before the step's last
// micro-batch. Otherwise a slot holds a unit's gradients of one micro-batch. The ranks reduce the slot. This rank then
// adds the part that it updates to the accumulators, on any tier.
//
// Frozen parameters have no gradients. A unit with only frozen parameters takes no slot and is not reduced.
//
// A micro-batch's gradients have the type gradient_dtype(). The accumulators have the same type if a step has one
// micro-batch, and otherwise f32 (or f64). Outer units have slots of their own. With one micro-batch, their sums
// can stay in these slots.
#pragma once

#include <vector>

#include "tessera/engine/unit_arrays.h"

namespace tessera {

class UnitGradients {
 public:
  // Allocates all buffers, for steps of at most `micro_batches`. The context must outlive this object.
  UnitGradients(EngineContext& context, int64_t micro_batches);

  void begin_step();
  void begin_micro_batch(bool last_of_step) { last_micro_batch_ = last_of_step; }
  // The complete gradients of a unit's trainable parameters. The compute stream may add to them until reduce(). One
  // block at a time, in addition to outer units. Fresh gradients contain nothing of this step or of this micro-batch
  // yet: the gradients of weights with decay are unspecified, or zeros if the rank does not compute, and all others are
  // zeros.
  struct Acquired {
    ParameterViews views;
    bool fresh;
  };
  Acquired acquire(int64_t unit, bool computes);
  // Call it when backward has added this micro-batch to the unit. Starts the reduction if it is due. Collective.
  void reduce(int64_t unit);
  // Sends gradients that must leave the device. After the step's last micro-batch, also adds all outstanding sums to
  // the accumulators.
  void end_micro_batch();

  // After the step's last micro-batch: the event that completes the sum over micro-batches and ranks. It covers the
  // elements up to `last` of the part of a unit that this rank updates.
  const Event& complete(int64_t unit, int64_t last) const {
    const std::vector<Event>& pieces = complete_[static_cast<size_t>(unit)];
    return pieces[std::min(pieces.size(), static_cast<size_t>((last - 1) / context_.piece_elems() + 1)) - 1];
  }
  ElemRange range(int64_t unit) const { return context_.plan.updated(context_.cut(unit)); }
  Tier tier() const { return accumulators_.tier(); }
  DType dtype() const { return accumulators_.dtype(); }
  // Elements [first, last) of range(), unless they are in a file.
  View sum(int64_t unit, int64_t first, int64_t last) const;
  // Copies the same elements to a view in host memory.
  void load_sum(int64_t unit, int64_t first, View to, Stream& stream) const;
  // Steps have one micro-batch. The gradients of one step are therefore needed until the only backward of the next
  // step.
  bool one_micro_batch() const { return one_micro_batch_; }
  // [1] f64, on the compute stream: the sum of squares of this rank's own elements of all units. Empty unless it was
  // computed on the device before the gradients left it.
  View squares() const { return squares_.bytes() > 0 ? squares_.view({1}, DType::f64) : View{}; }
  // Work before the event still reads a unit's sums of this step.
  void read_until(int64_t unit, Event event) { read_until_[static_cast<size_t>(unit)] = std::move(event); }

  // The complete accumulators of a unit. Only if direct().
  bool direct() const { return direct_; }
  ParameterViews whole(int64_t unit) const;

 private:
  struct GradientSlot {
    Buffer buffer;      // [padded] for one micro-batch; empty if backward adds to the accumulators
    Buffer wire;        // [padded] in the type of the reduction, if the gradients have another type
    int64_t unit = -1;  // the unit whose gradients it holds
    bool reduced = false;
    Event ready, free;  // reduction is done; the last reader is done
  };
  // Buffers for pieces of gradients that move to accumulators outside the device. While the CPU adds one piece, the
  // next one arrives.
  struct PieceBuffers {
    Buffer incoming, stored;
    Event ready, free;
  };

  void allocate_slots();
  View in_slot(const GradientSlot& slot, int64_t unit) const;
  void empty_head_slot();
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
  const bool direct_;
  const DType backward_dtype_;       // type of the buffers of backward: slots or accumulators
  std::optional<DType> wire_dtype_;  // type of the slots' wires, if any
  UnitArrays accumulators_;
  Buffer squares_;
  std::vector<GradientSlot> slots_;  // for outer units, then for blocks in turn
  size_t next_slot_;
  std::vector<std::vector<Event>>
      complete_;                   // [units] one event for the unit, or one for each piece of piece_elems() in order
  std::vector<Event> read_until_;  // [units]
  std::vector<char> begun_;        // [units] the accumulators hold something of this step
  PieceBuffers piece_buffers_[2];
  size_t next_buffers_ = 0;
  int64_t bucket_last_ = -1;  // the highest unit of the bucket that is being filled
  bool last_micro_batch_ = false;
};

}  // namespace tessera
