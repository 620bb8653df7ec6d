// What the settings say about a model that a run saves: the types of its tensors, and its files next to the weights.
#pragma once

#include "tessera/comm/communicator.h"
#include "tessera/data/tokenizer.h"
#include "tessera/model/model.h"
#include "tessera/settings/settings.h"
#include "tessera/store/model_writer.h"

namespace tessera {

// Reads the types from the files of --model, or from a checkpoint. Returns f32 for a tensor in three cases: the file
// has a type that is not in kSavedTypes (f64), no file has the tensor, or the weights are random (--init random). Only
// rank 0 reads the files; other ranks need no access to them. Throws InputError. Collective.
LoadedTypes loaded_types_of(const Model& model, const Settings& settings, Communicator& world);

// How a run saves its model. read_files() reads generation_config.json from the folder of --model,
// and the files of the tokenizer from its folder: other forms of its vocabulary, its special tokens, its chat
// templates. It makes tokenizer_config.json if the folder does not have it, and throws InputError. The arguments must
// outlive its call.
ModelWriterOptions saved_model_options(const Settings& settings, const ModelConfig& config, const Tokenizer& tokenizer,
                                       const LoadedTypes& loaded);

}  // namespace tessera
