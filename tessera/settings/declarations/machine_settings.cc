// Declarations of devices, precision, threads, and the output of a verb.
#include "tessera/settings/declarations/declaring.h"

namespace tessera::declaring {

namespace {

Setting device() {
  return with_words(
      choice("device", &S::device, brief(kMachine, "auto, cpu or cuda"),
             {{"auto", S::DeviceChoice::automatic}, {"cpu", S::DeviceChoice::cpu}, {"cuda", S::DeviceChoice::cuda}},
             "Where to compute; auto: a GPU if the machine has one, otherwise the CPU; gpu is cuda"),
      {{"gpu", "cuda"}, {"cuda:0", "cuda"}},
      {{"cuda:1", "Write --device cuda, and set the environment variable CUDA_VISIBLE_DEVICES=1"}});
}

Setting precision() {
  const char* const too_few = "Use bf16. Tessera does not quantize";
  return with_words(
      choice("precision", &S::precision,
             recorded(Resume::new_folder, brief(kMachine, "auto, fp32, tf32, fp16 or bf16")),
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
      {{"fp8", "Use --precision bf16 --matmul-precision fp8"}, {"int8", too_few}, {"int4", too_few}});
}

}  // namespace

std::vector<Setting> machine_settings() {
  return {
      device(),
      precision(),
      integer("threads", &S::threads, kMachine, "N", {0, 4096},
              "CPU threads of each rank; 0: OMP_NUM_THREADS, otherwise the cores divided among the ranks"),
      choice("instruction_set", &S::instruction_set, recorded(Resume::any, kMachine),
             {{"auto", S::InstructionSet::automatic},
              {"x86-64-v2", S::InstructionSet::x86_64_v2},
              {"x86-64-v3", S::InstructionSet::x86_64_v3},
              {"x86-64-v4", S::InstructionSet::x86_64_v4}},
             "Vector instructions of CPU kernels: x86-64-v2 has SSE4.2, v3 has AVX2, v4 has AVX-512. auto: the newest "
             "set that the processors of all ranks have"),
      integer("seed", &S::seed, recorded(Resume::never, kMachine), "N", {0, kMaxSeed}, "Seed of all random numbers"),
      text("checkpoint", &S::checkpoint, brief(kCheckpoint, "folder checkpoint-<step>, or a run folder"), "PATH",
           "Checkpoint folder (checkpoint-<step>), or a folder of checkpoints, whose newest one is read; empty: "
           "--model names it"),
      text("output_dir", &S::output_dir, brief(kOutputDir, "folder for the results"), "PATH", "Folder for the results"),
      text("output", &S::output, kOutputFile, "FILE", "Write the result to this file; empty: standard output"),
      boolean("json", &S::json, brief(kPresentation, "print the result as JSON", kQuestion | kPlanOutput),
              "Print the result as JSON"),
      choice("progress", &S::progress, kPresentation,
             {{"auto", S::Progress::automatic}, {"on", S::Progress::on}, {"off", S::Progress::off}},
             "Progress bar. auto: only on a terminal; on: always; off: never"),
      choice("log_format", &S::log_format, kLog,
             {{"auto", S::LogFormat::automatic}, {"trainer", S::LogFormat::trainer}, {"json", S::LogFormat::json}},
             "Lines with losses, scores and speeds. trainer: dicts as the Hugging Face Trainer prints them; json: the "
             "same records, each as one line of JSON; auto: like trainer, but with rounded values on a terminal"),
  };
}

}  // namespace tessera::declaring
