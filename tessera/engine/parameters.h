// The parameters of a rank: the part of each unit that the rank keeps, and the complete units that it computes with.
#pragma once

#include <optional>
#include <vector>

#include "tessera/engine/float8_shards.h"

namespace tessera {

class UnitParameters {
 public:
  // Allocates the parts that this rank keeps. A slot is a buffer for the sections of a unit that are not complete on
  // the device. If shards of parameters are kept on the device, the shard of an outer unit (engine_context.h) is a part
  // of the unit's slot. The constructor then allocates the slots of outer units, too. The context must outlive this
  // object.
  explicit UnitParameters(EngineContext& context);
  // Allocates the slots that the constructor has not allocated, and the staging buffer if parameters are in a file.
  void prepare();

  // ---- complete units, for the compute stream

  // With every strategy except no_shard, acquire() and prefetch() are collective.

  // Returns the complete parameters of a unit, valid until release(). At most one block may be acquired at a time.
  // Outer units may be acquired at the same time as the block. After release(), an outer unit stays in its slot until
  // it is updated.
  ParameterViews acquire(int64_t unit);
  void release(int64_t unit);
  // Starts to gather a unit that is needed soon, if a slot is free. Ignores a `unit` that does not exist.
  void prefetch(int64_t unit);
  // Whether products read the weights of the next acquired units in 8 bits. Only then, and if ShardOptions says so, the
  // weights are gathered in 8 bits. No unit may be acquired. Collective.
  void compute_in_float8(bool wanted);

  // ---- what this rank keeps

  // For each unit, the parameters of a section that this rank keeps (kept_range()), in the section's format.
  const UnitArrays& kept(Section section) const { return kept_[section]; }
  ElemRange kept_range(int64_t unit, Section section) const { return context_.plan.kept(context_.cut(unit, section)); }
  // Announces that the work before `event` updates this rank's own part of a unit. Gathered copies become out of date.
  void updated(int64_t unit, Event event);
  // Announces that all kept elements of a unit, on all ranks, have new values now. Gathered copies become out of date.
  void replaced(int64_t unit);

 private:
  struct ParameterSlot {
    Buffer buffer;
    int64_t unit = -1;  // the slot holds this unit's parameters; -1: none
    bool acquired = false;
    Event ready, free;  // ready: the unit is gathered; free: no kernel reads the slot any more
    uint64_t released_at = 0;
  };

  ParameterSlot* slot_holding(int64_t unit);
  ParameterSlot* take_slot(int64_t unit);
  void forget_gathered(int64_t unit);
  void gather_in_place(int64_t unit);
  bool gather(int64_t unit);
  void gather_section(int64_t unit, Section section, View whole);
  void bring_own_part(int64_t unit, Section section, View own);
  // Whether the section is complete on the device between uses, so that it needs no slot.
  bool resident(int64_t unit, Section section) const {
    return !gathers_ && context_.plan.tier(kind_of(section), unit) == Tier::device;
  }
  int64_t slot_bytes(int64_t unit) const;
  ParameterViews views(int64_t unit, const Buffer& slot) const;

  bool gathers_float8(int64_t unit, Section section) const { return in_float8_ && float8_shards_->has(unit, section); }

  EngineContext& context_;
  PerSection<UnitArrays> kept_;
  const bool gathers_;  // this rank keeps only shards, and computes with units that are gathered from several ranks
  std::optional<Float8Shards> float8_shards_;
  bool in_float8_ = false;  // only with float8_shards_
  bool is_prepared_ = false;
  std::vector<char> stale_;             // [units] a resident section misses updates of other ranks
  std::vector<Event> updated_, ready_;  // [units]
  std::vector<ParameterSlot> slots_;    // for outer units, then for blocks
  Buffer staging_;                      // holds one piece of a unit on its way from a file to a slot
  Event staging_free_;
  uint64_t clock_ = 0;
};

}  // namespace tessera
