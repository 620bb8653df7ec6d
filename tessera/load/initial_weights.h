// The initial weights of a run: read from the model's files or from a checkpoint, or drawn at random.
#pragma once

#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tessera/comm/world.h"
#include "tessera/engine/engine.h"
#include "tessera/settings/settings.h"
#include "tessera/store/engine_checkpoint.h"
#include "tessera/store/read_ahead.h"

namespace tessera {

// Starts to read the weight files of --model into the page cache for load_or_initialize(). Only local rank 0 does this,
// and only if all ranks are on one node. On several nodes, each rank reads only its own part, without reading ahead.
// Never throws. Destroy the result when the weights are loaded.
ReadAhead read_weights_ahead(const Settings& settings, const World* world);

// Where the adapter of a model comes from if the checkpoint of its run does not have it.
struct AdapterPlace {
  std::filesystem::path folder;  // empty: the factors are drawn
  uint64_t seed = 0;
};

// Reads the tensors of a Hugging Face folder, or of a checkpoint, into the engine's parameters. Each rank reads the
// parts that it keeps. With sync_module_states, rank 0 reads everything and sends it to the other ranks. Rows of the
// embedding and the head that the files do not have (--resize-embeddings) get the mean of the rows in the files.
//
// Returns what users should know: which tensors of the files are not used, and which words in their names are ignored.
// Throws InputError if a tensor is missing, is unexpected or has a wrong shape, or if a tied head differs from the
// embedding. Throws UsageError if ranks see different weights. Collective.
std::vector<std::string> load_parameters(Engine& engine, const std::filesystem::path& folder, Communicator& world,
                                         ThreadPool& pool, const AdapterPlace& place = {});

// Replaces the adapter of the engine by the one of --adapter, which must be interchangeable with it. The rest of the
// model stays; with sync_module_states, rank 0 sends all of it again. Throws as load_parameters() does. Collective.
void load_adapter(Engine& engine, const Settings& settings, Communicator& world, ThreadPool& pool);

// Reads elements [elem_begin, elem_end) of a tensor.
using ReadTensor =
    std::function<void(const std::string& name, int64_t elem_begin, int64_t elem_end, const View& target)>;
// Reads the tensors of an adapted model from the folders of its base and its adapter. Checks the tensors as
// load_parameters() does. The model and the pool must outlive the result.
ReadTensor reader_of_adapted(const Model& model, const std::filesystem::path& folder,
                             const std::filesystem::path& adapter_folder, ThreadPool& pool);

// Reads the tensors of a model without an adapter from its folder. Gives the values of weights in 4 bits. Checks the
// tensors as load_parameters() does. The model and the pool must outlive the result.
ReadTensor reader_of_model(const Model& model, const std::filesystem::path& folder, ThreadPool& pool);

// Names the frozen sections of a model whose tensors the model files hold. Checkpoints need not hold these arrays
// (array_name()). Empty if the parameters do not come from model files that every rank sees: with --init random,
// --sync-module-states, or a checkpoint as --model. A section with a tensor that has more rows than in the files
// (--resize-embeddings) does not count.
std::set<std::string> frozen_arrays_in_files(const Settings& settings, const Model& model);
// The files of these sections, with the checksums that they have now. Call it after load_or_initialize(). Collective.
FrozenFiles frozen_files(const Settings& settings, const Model& model, Communicator& world, ThreadPool& pool);

// Reads the parameters from the folder of --model. With --init random, draws them with --seed instead. Returns what
// load_parameters() returns. Collective.
std::vector<std::string> load_or_initialize(Engine& engine, const Settings& settings, Communicator& world,
                                            ThreadPool& pool);

}  // namespace tessera
