// Writes a model as a Hugging Face folder that transformers can load.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tessera/base/thread_pool.h"
#include "tessera/comm/communicator.h"
#include "tessera/data/tokenizer.h"
#include "tessera/engine/shard_plan.h"
#include "tessera/model/model.h"
#include "tessera/settings/settings.h"
#include "tessera/store/model_shards.h"

namespace tessera {

// All ranks write the folder together, each the elements that it keeps. No rank holds the model.
class ModelWriter {
 public:
  // Decides the type of each tensor: --save-dtype, or the type in the files of --model. The constructor does this at
  // the start of a run, because the files may no longer exist at the end. All arguments must outlive it. Collective.
  // InputError.
  ModelWriter(const Model& model, const Tokenizer& tokenizer, const Settings& settings, Communicator& world,
              ThreadPool& pool);

  // Writes elements `range` of a unit's flat parameters (host memory, any floating-point type).
  using Write = std::function<void(int64_t unit, ElemRange range, View parameters)>;
  // Writes the folder. It appears complete or not at all. Copies generation_config.json from --model, and
  // tokenizer_config.json, special_tokens_map.json and chat_template.jinja from the folder of the tokenizer, if they
  // exist. All ranks must see the folder.
  //
  // `write_part` calls its argument with this rank's elements, and must not communicate. Over all ranks, it must pass
  // each element once. Any failure on any rank makes every rank throw the same error, and an existing folder then stays
  // unchanged: UsageError, InputError, RunError, also if an element is not finite in the type of the file. Collective.
  void write(const std::filesystem::path& folder, const std::function<void(const Write&)>& write_part) const;

 private:
  std::vector<PlannedTensor> planned_tensors() const;
  // Returns the number of elements that this rank has written.
  int64_t write_tensors(const std::filesystem::path& folder, const std::filesystem::path& temporary,
                        const std::function<void(const Write&)>& write_part) const;

  const Model& model_;
  const Tokenizer& tokenizer_;
  const Settings& settings_;
  Communicator& world_;
  ThreadPool& pool_;
  const std::vector<DType> dtypes_;  // of the tensors, in the order of the units and of their tables
  const ModelShards shards_;
};

}  // namespace tessera
