// The parameters of a rank: what it keeps of each unit, and whole units while the computation needs them.
#pragma once

#include <vector>

#include "tessera/engine/shelf.h"

namespace tessera {

class UnitParameters {
 public:
  // Allocates what is kept, and the root's slot where its part is kept in there. The workplace must outlive it.
  explicit UnitParameters(Workplace& place);
  // Allocates the other slots that gathered units lie in.
  void prepare();

  // ---- whole units, for the compute stream

  // acquire() and prefetch() are collective wherever parameters are sharded.

  // A unit's parameters, whole; valid until release(). One of the blocks may be acquired at a time, beside the root.
  ParameterViews acquire(int64_t unit);
  void release(int64_t unit);
  // Begins to gather a block that is needed soon, if there is a slot for it.
  void prefetch(int64_t unit);

  // ---- what this rank keeps

  // Parameters [s] or [padded] in the type of the computation.
  const Shelf& kept() const { return kept_; }
  Shelf& kept() { return kept_; }
  // The elements of a unit that are kept: this rank's shard or all.
  ElemRange kept_range(int64_t unit) const;
  // This rank has changed its own part of a unit, by work before the event: whole copies are out of date.
  void updated(int64_t unit, Event event);
  // All that is kept of a unit is new: gathered copies are out of date.
  void replaced(int64_t unit);

 private:
  struct Slot {
    Buffer buffer;
    int64_t unit = -1;  // whose parameters it holds
    bool acquired = false;
    Event ready, free;  // gathered; no longer read
    uint64_t released_at = 0;
  };

  Slot* slot_holding(int64_t unit);
  Slot* take_slot(int64_t unit);
  void gather_in_place(int64_t unit);
  bool gather(int64_t unit);
  void bring_own_part(int64_t unit, View own);

  Workplace& place_;
  Shelf kept_;
  bool direct_ = true;                  // kept whole on the device: no slots
  std::vector<char> stale_;             // [units] direct_: other ranks have changed their parts
  std::vector<Event> updated_, ready_;  // [units]
  std::vector<Slot> slots_;             // [0] the root's, the others are the blocks'
  Buffer staging_;                      // of Tier::file
  Event staging_free_;
  uint64_t clock_ = 0;
};

}  // namespace tessera
