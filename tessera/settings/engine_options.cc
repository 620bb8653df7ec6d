#include "tessera/settings/engine_options.h"

#include "tessera/base/text.h"
#include "tessera/device/cuda/cuda_device.h"

namespace tessera {

bool uses_cuda(const Settings& settings) {
  switch (settings.device) {
    case Settings::DeviceChoice::cpu:
      return false;
    case Settings::DeviceChoice::cuda:
      return true;
    case Settings::DeviceChoice::automatic:
      return !cuda_info().devices.empty();
  }
  return false;
}

bool pins_host_memory(const Settings& settings) {
  return settings.pin_memory && settings.offload.any();
}

namespace {

ShardOptions shard_options(const Settings& s) {
  ShardOptions options;
  options.strategy = s.strategy;
  options.shard_group_size = static_cast<int>(s.shard_group_size);
  options.offload = s.offload;
  options.device_update_percent = s.device_updates;
  options.file_folder = s.offload_dir;
  options.gradient_sync = s.grad_sync;
  options.backward_prefetch = s.backward_prefetch;
  options.forward_prefetch = s.forward_prefetch;
  options.max_units_in_flight = static_cast<int>(s.max_units_in_flight);
  options.bucket_bytes = s.reduce_bucket_size;
  options.reduce_dtype = s.reduce_dtype;
  options.gather_float8 = s.gather_dtype == Settings::GatherDtype::fp8;
  // All ranks draw random weights from the same seed, so rank 0 need not send them.
  options.sync_module_states = s.sync_module_states && s.init != Settings::Init::random;
  return options;
}

}  // namespace

EngineOptions engine_options(const Settings& s) {
  EngineOptions options;
  // A run replaces the precision `auto` first (settle_precision()).
  options.dtype = s.precision == Settings::Precision::bf16   ? DType::bf16
                  : s.precision == Settings::Precision::fp16 ? DType::f16
                                                             : DType::f32;
  options.tf32 = s.precision == Settings::Precision::tf32;
  options.float8 = s.matmul_precision == Settings::MatmulPrecision::fp8;
  options.recomputation = s.activation_checkpointing;
  options.adamw = {s.beta1, s.beta2, s.adam_epsilon, s.weight_decay};
  options.optimizer_states = s.optimizer_states;
  options.max_grad_norm = s.max_grad_norm;
  options.seed = static_cast<uint64_t>(s.seed);
  options.cuda_graphs = s.cuda_graphs;
  options.sharding = shard_options(s);
  options.frozen = split_list(s.freeze);
  return options;
}

}  // namespace tessera
