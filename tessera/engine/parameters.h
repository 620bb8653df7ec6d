// The parameters of a rank: the part of each unit that it keeps, and complete units while the computation needs them.
#pragma once

#include <vector>

#include "tessera/engine/unit_arrays.h"

namespace tessera {

class UnitParameters {
 public:
  // Allocates the kept parts. If the parts of outer units are kept in their slots, allocates these slots too. The
  // context must outlive this object.
  explicit UnitParameters(EngineContext& context);
  // Allocates the other slots for gathered units.
  void prepare();

  // ---- complete units, for the compute stream

  // acquire() and prefetch() are collective if parameters are sharded.

  // The complete parameters of a unit, valid until release(). Only one block may be acquired at a time, in addition to
  // outer units. An outer unit stays in its slot after release(), until it is updated.
  ParameterViews acquire(int64_t unit);
  void release(int64_t unit);
  // Starts to gather a unit that is needed soon, if a slot is free.
  void prefetch(int64_t unit);

  // ---- what this rank keeps

  // Parameters [s] or [padded], in the type of the computation.
  const UnitArrays& kept() const { return kept_; }
  UnitArrays& kept() { return kept_; }
  // The frozen parameters, which are kept apart. Empty if no parameter is frozen.
  const UnitArrays& frozen() const { return frozen_; }
  // The kept elements of a part of a unit: this rank's shard, or all of it.
  ElemRange kept_range(int64_t unit) const { return kept_range(context_.cut(unit)); }
  ElemRange kept_frozen_range(int64_t unit) const { return kept_range(context_.frozen_cut(unit)); }
  // Work before the event updates this rank's own part of a unit. Gathered copies become out of date.
  void updated(int64_t unit, Event event);
  // Everything that is kept of a unit is new. Gathered copies become out of date.
  void replaced(int64_t unit);

 private:
  struct ParameterSlot {
    Buffer buffer;
    int64_t unit = -1;  // the unit whose parameters it holds
    bool acquired = false;
    Event ready, free;  // gathering is done; the last reader is done
    uint64_t released_at = 0;
  };

  ParameterSlot* slot_holding(int64_t unit);
  ParameterSlot* take_slot(int64_t unit);
  void gather_in_place(int64_t unit);
  bool gather(int64_t unit);
  void gather_part(const UnitArrays& kept, int64_t unit, const UnitShards& cut, View whole);
  void bring_own_part(const UnitArrays& kept, int64_t unit, View own);
  ElemRange kept_range(const UnitShards& cut) const;
  int64_t gathered_elems(int64_t unit) const;
  ParameterViews in_buffer(const Buffer& buffer, int64_t unit) const;

  EngineContext& context_;
  UnitArrays kept_, frozen_;
  bool direct_ = true;                  // complete units are kept on the device: no slots
  std::vector<char> stale_;             // [units] direct_: other ranks have updated their parts
  std::vector<Event> updated_, ready_;  // [units]
  std::vector<ParameterSlot> slots_;    // for outer units, then for blocks
  Buffer staging_;                      // for Tier::file
  Event staging_free_;
  uint64_t clock_ = 0;
};

}  // namespace tessera
