// The arrays of an engine in a checkpoint: parameters and optimizer states of each unit, under the unit's name.
#pragma once

#include <string>

#include "tessera/engine/states.h"
#include "tessera/store/checkpoint.h"

namespace tessera {

// The name of a unit's array in a checkpoint.
std::string array_name(StateKind kind, const Unit& unit);

// Declares the ranges that this rank writes: its parts of a training engine's arrays.
void declare_checkpoint(CheckpointPart& part, const UnitStates& states);
// Declares the same ranges and writes them.
void write_checkpoint_arrays(CheckpointPart& part, UnitStates states);
// Reads this rank's parameters and, if `with_optimizer` is true, its moments into the engine.
void restore_checkpoint(const Checkpoint& checkpoint, UnitStates states, bool with_optimizer, ThreadPool& pool);

}  // namespace tessera
