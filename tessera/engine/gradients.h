// Gradients of a rank: what the backward pass adds to, their reduction among ranks, and the sums over a step.
//
// Backward adds to the sums over a step ("accumulators") directly where they lie on the device and nothing is reduced
// before the step's last micro-batch. Else a unit's gradients of one micro-batch lie in a slot, are reduced among the
// ranks there, and what this rank updates of them is added to the accumulators, on whichever tier those are.
//
// A micro-batch's gradients are of gradient_dtype(), and so are the accumulators where a step has no other micro-batch;
// else these are of the masters' type. The root has a slot of its own, where its sums of one micro-batch stay.
#pragma once

#include <vector>

#include "tessera/engine/shelf.h"

namespace tessera {

class UnitGradients {
 public:
  // Allocates all, for steps of at most so many micro-batches. The workplace must outlive it.
  UnitGradients(Workplace& place, int64_t micro_batches);

  void begin_step();
  void begin_micro_batch(bool last_of_step) { last_micro_batch_ = last_of_step; }
  // A unit's gradients, whole, for the compute stream to add to, until reduce(). One block at a time, beside the root.
  // Where they are fresh nothing of the step, or of the micro-batch, is in them: weights that decay hold anything then,
  // or zeros where the rank `computes` nothing, and the rest holds zeros.
  struct Acquired {
    ParameterViews views;
    bool fresh;
  };
  Acquired acquire(int64_t unit, bool computes);
  // Backward has added all of this micro-batch to the unit: reduces what is due. Collective.
  void reduce(int64_t unit);
  // What is to leave the device goes; after the step's last one the accumulators get all that is still on its way.
  void end_micro_batch();

  // After the step's last micro-batch: the sum over micro-batches and ranks of the part of a unit that this rank
  // updates, whose first elements up to `last` are complete once the event is reached.
  const Event& complete(int64_t unit, int64_t last) const {
    const std::vector<Event>& pieces = complete_[static_cast<size_t>(unit)];
    return pieces[std::min(pieces.size(), static_cast<size_t>((last - 1) / place_.piece_elems() + 1)) - 1];
  }
  ElemRange range(int64_t unit) const { return place_.plan.updated(place_.cut(unit)); }
  Tier tier() const { return accumulators_.tier(); }
  DType dtype() const { return accumulators_.dtype(); }
  // Elements [first, last) of range(), unless they lie in a file.
  View sum(int64_t unit, int64_t first, int64_t last) const;
  // The same brought to a view in the host's memory.
  void load_sum(int64_t unit, int64_t first, View to, Stream& stream) const;
  // Steps are of one micro-batch: what the last step left is needed until this one's only backward.
  bool one_micro_batch() const { return one_micro_batch_; }
  // [1] f64, of the compute stream: the sum of squares of this rank's own elements of all units, where it was taken on
  // the device before they left; or empty.
  View squares() const { return squares_.bytes() > 0 ? squares_.view({1}, DType::f64) : View{}; }
  // Work before the event still reads a unit's sums of this step.
  void read_until(int64_t unit, Event event) { read_until_[static_cast<size_t>(unit)] = std::move(event); }

  // The accumulators of a unit whole; where direct() alone.
  bool direct() const { return direct_; }
  ParameterViews whole(int64_t unit) const;

 private:
  struct Slot {
    Buffer buffer;      // [padded] of one micro-batch; none where backward adds to the accumulators
    Buffer wire;        // [padded] in the type of the reduction, where the gradients are of another
    int64_t unit = -1;  // whose gradients it holds
    bool reduced = false;
    Event ready, free;  // reduced; read for the last time
  };

  void allocate_slots();
  View in_slot(const Slot& slot, int64_t unit) const;
  Slot& take_slot(int64_t unit);
  Slot& slot_of(int64_t unit);
  Event reduce_among_ranks(View whole, const UnitShards& cut);
  void reduce_bucket(int64_t unit);
  void settle(Slot& slot);
  void accumulate_beyond_device(int64_t unit, View part, Slot& slot);

  Workplace& place_;
  const bool one_micro_batch_;
  const bool direct_;
  const DType backward_dtype_;       // of what backward adds to: the slots, or directly the accumulators
  std::optional<DType> wire_dtype_;  // of slots' wires, if any
  Shelf accumulators_;
  Buffer squares_;
  std::vector<Slot> slots_;  // [0] the root's, the others the blocks' in turn
  size_t next_slot_ = 1;
  std::vector<std::vector<Event>> complete_;  // [units] of all, or of pieces of piece_elems() in order
  std::vector<Event> read_until_;             // [units]
  std::vector<char> begun_;                   // [units] the accumulators hold something of this step
  // What pieces of gradients pass through on their way to accumulators beyond the device: while one is added up, the
  // next one comes.
  struct Lane {
    Buffer incoming, stored;
    Event ready, free;
  };
  Lane lanes_[2];
  size_t next_lane_ = 0;
  int64_t bucket_last_ = -1;  // the highest unit of the bucket that is being filled
  bool last_micro_batch_ = false;
};

}  // namespace tessera
