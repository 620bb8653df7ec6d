#include "tessera/settings/engine_options.h"

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

static ShardOptions shard_options(const Settings& s) {
  using S = Settings;
  ShardOptions options;
  options.strategy = [&] {
    switch (s.strategy) {
      case S::Strategy::no_shard:
      case S::Strategy::zero0:
        return ShardingStrategy::no_shard;
      case S::Strategy::zero1:
        return ShardingStrategy::zero1;
      case S::Strategy::zero2:
        return ShardingStrategy::zero2;
      case S::Strategy::shard_grad_op:
        return ShardingStrategy::shard_grad_op;
      case S::Strategy::zero3:
      case S::Strategy::full_shard:
        return ShardingStrategy::full_shard;
      case S::Strategy::hybrid_shard:
        return ShardingStrategy::hybrid_shard;
      case S::Strategy::hybrid_shard_zero2:
        return ShardingStrategy::hybrid_shard_zero2;
    }
    return ShardingStrategy::no_shard;
  }();
  options.shard_group_size = static_cast<int>(s.shard_group_size);
  const auto tier = [](Offload::Tier t) {
    return t == Offload::Tier::device ? Tier::device : t == Offload::Tier::host ? Tier::host : Tier::file;
  };
  options.parameters = tier(s.offload.parameters);
  options.gradients = tier(s.offload.gradients);
  options.optimizer = tier(s.offload.optimizer);
  options.file_folder = s.offload_dir;
  options.gradient_sync = s.grad_sync == S::GradSync::automatic ? GradientSync::automatic
                          : s.grad_sync == S::GradSync::micro   ? GradientSync::micro
                                                                : GradientSync::step;
  options.backward_prefetch = s.backward_prefetch == S::BackwardPrefetch::pre    ? BackwardPrefetch::pre
                              : s.backward_prefetch == S::BackwardPrefetch::post ? BackwardPrefetch::post
                                                                                 : BackwardPrefetch::none;
  options.forward_prefetch = s.forward_prefetch;
  options.max_units_in_flight = static_cast<int>(s.max_units_in_flight);
  options.bucket_bytes = s.reduce_bucket_size;
  options.reduce_dtype = [&]() -> std::optional<DType> {
    switch (s.reduce_dtype) {
      case S::ReduceDtype::automatic:
        return std::nullopt;
      case S::ReduceDtype::fp32:
        return DType::f32;
      case S::ReduceDtype::bf16:
        return DType::bf16;
      case S::ReduceDtype::fp16:
        return DType::f16;
    }
    return std::nullopt;
  }();
  // All ranks draw random weights from the same seed, so rank 0 need not send them.
  options.sync_module_states = s.sync_module_states && s.init != S::Init::random;
  return options;
}

EngineOptions engine_options(const Settings& s) {
  EngineOptions options;
  options.dtype = s.precision == Settings::Precision::bf16   ? DType::bf16
                  : s.precision == Settings::Precision::fp16 ? DType::f16
                                                             : DType::f32;
  options.tf32 = s.precision == Settings::Precision::tf32;
  options.checkpoint_blocks = s.activation_checkpointing == Settings::ActivationCheckpointing::block;
  options.adamw = {s.beta1, s.beta2, s.adam_epsilon, s.weight_decay};
  options.max_grad_norm = s.max_grad_norm;
  options.seed = static_cast<uint64_t>(s.seed);
  options.cuda_graphs = s.cuda_graphs;
  options.sharding = shard_options(s);
  return options;
}

}  // namespace tessera
