#include "tessera/store/engine_checkpoint.h"

namespace tessera {

std::string array_name(StateKind kind, const Unit& unit) {
  constexpr const char* names[] = {"parameters/", "optimizer.m/", "optimizer.v/", "frozen/"};
  return names[static_cast<size_t>(kind)] + unit.name();
}

void declare_checkpoint(CheckpointPart& part, const UnitStates& states) {
  const Model& model = states.model();
  for (int64_t u = 0; u < model.num_units(); ++u) {
    const Unit& unit = model.unit(u);
    for (const StateKind kind : kStateKinds) {
      const ElemRange range = states.saved_range(kind, u);
      if (range.size() == 0) continue;
      part.declare({array_name(kind, unit), unit.table().num_elems(section_of(kind)), range.begin, range.end},
                   states.dtype());
    }
  }
}

void write_checkpoint_arrays(CheckpointPart& part, UnitStates states) {
  declare_checkpoint(part, states);
  states.save([&](StateKind kind, int64_t unit, ElemRange, View from) {
    part.write(array_name(kind, states.model().unit(unit)), from);
  });
}

void restore_checkpoint(const Checkpoint& checkpoint, UnitStates states, bool with_optimizer, ThreadPool& pool) {
  const auto read = [&](StateKind kind, int64_t unit, ElemRange range, View to) {
    const Unit& of = states.model().unit(unit);
    const int64_t num_elems = of.table().num_elems(section_of(kind));
    checkpoint.read_range({array_name(kind, of), num_elems, range.begin, range.end}, to, &pool);
  };
  states.load(read, with_optimizer);
}

}  // namespace tessera
