// Declares where a run computes, and in which precision.
#include "tessera/settings/setting_declarations.h"

namespace tessera::declaring {

static Setting device() {
  return with_words(
      choice("device", &S::device, brief(kMachine, "auto, cpu or cuda"),
             {{"auto", S::DeviceChoice::automatic}, {"cpu", S::DeviceChoice::cpu}, {"cuda", S::DeviceChoice::cuda}},
             "Where to compute; auto: a GPU if the machine has one, otherwise the CPU; gpu is cuda"),
      {{"gpu", "cuda"}, {"cuda:0", "cuda"}},
      {{"cuda:1", "Write --device cuda, and set the environment variable CUDA_VISIBLE_DEVICES=1"}});
}

static Setting precision() {
  const char* const too_few = "Use bf16. Tessera does not quantize";
  return with_words(
      choice("precision", &S::precision, brief(kMachine, "auto, fp32, tf32, fp16 or bf16"),
             {{"auto", S::Precision::automatic},
              {"fp32", S::Precision::fp32},
              {"tf32", S::Precision::tf32},
              {"fp16", S::Precision::fp16},
              {"bf16", S::Precision::bf16}},
             "Data type of the computation. auto: bf16 on GPUs that have it (compute capability 8.0 and later), "
             "otherwise fp32; a resumed run keeps its precision. tf32 needs a GPU",
             {"mixed_precision"}),
      {{"float32", "fp32"},
       {"float", "fp32"},
       {"no", "fp32"},
       {"float16", "fp16"},
       {"half", "fp16"},
       {"bfloat16", "bf16"}},
      {{"fp8", too_few}, {"int8", too_few}, {"int4", too_few}});
}

std::vector<Setting> device_settings() {
  return {device(), precision()};
}

}  // namespace tessera::declaring
