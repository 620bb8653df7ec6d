#include "tessera/workshop/tables.h"

namespace tessera {

namespace {

constexpr double kGB = 1.0 / 1024;  // the scale from MiB to GB

const char* const kUnits = "MB and GB are 2^20 and 2^30 bytes, as the workshop's tools count.";
const char* const kEfficiency =
    "Efficiency is T1/TN, the usual definition. The workshop's README has the inverse, TN/T1: see the column "
    "\"Workshop's TN/T1 (%)\".";

std::vector<WorkshopExperiment> deepspeed_stages(const std::string& folder, const std::string& suffix = "") {
  std::vector<WorkshopExperiment> all;
  for (const char* stage : {"1", "2", "3"}) {
    all.push_back({std::string("Stage ") + stage + suffix, "deepspeed/" + folder + "/zero_" + stage});
  }
  return all;
}

std::vector<WorkshopExperiment> numbered(const std::string& folder, const std::string& unit, const std::string& title,
                                         std::vector<const char*> numbers = {"2", "4", "8"}) {
  std::vector<WorkshopExperiment> all;
  for (const char* number : numbers) {
    all.push_back({std::string(number) + " " + title, folder + "/" + number + "_" + unit});
  }
  return all;
}

std::vector<WorkshopExperiment> joined_lists(std::vector<WorkshopExperiment> a,
                                             const std::vector<WorkshopExperiment>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<WorkshopFigure> gpu_memory_rows() {
  return {{"Peak GPU Memory (MiB)", "gpu_peak"},
          {"Average GPU Memory (MiB)", "gpu_average"},
          {"Mode GPU Memory (MiB)", "gpu_mode"}};
}

std::vector<WorkshopFigure> scaling_rows() {
  std::vector<WorkshopFigure> rows{{"Train Samples/sec", "samples_per_second"}, {"Train Loss", "train_loss"}};
  for (const auto& row : gpu_memory_rows()) rows.push_back(row);
  return rows;
}

std::vector<WorkshopFigure> bloom_columns() {
  return {{"Total GPUs", "ranks"},
          {"Samples/s", "samples_per_second"},
          {"Samples/s Scale Factor", "speedup"},
          {"Runtime (s)", "runtime"},
          {"Runtime Scale Factor", "runtime_ratio"},
          {"Loss", "train_loss"},
          {"GPU Memory Allocated (GB)", "gpu_peak", "", "", kGB}};
}

std::vector<WorkshopFigure> custom_columns() {
  return {{"Total GPUs", "ranks"},
          {"Samples/s (Default)", "samples_per_second"},
          {"Samples/s (Callback)", "callback_samples_per_second"},
          {"GPU Memory (GB, Default)", "gpu_peak", "", "", kGB},
          {"GPU Memory (GB, Callback)", "callback_memory", "", "", kGB},
          {"GPU Utilization (%)", "gpu_utilization"},
          {"Loss", "train_loss"},
          {"Runtime (s)", "runtime"}};
}

std::vector<WorkshopTable> deepspeed_tables() {
  std::vector<WorkshopFigure> stage_rows = scaling_rows();
  stage_rows.push_back({"Peak CPU Memory (MiB)", "cpu_peak"});
  stage_rows.push_back({"Average CPU Memory (MiB)", "cpu_average"});
  stage_rows.push_back({"Mode CPU Memory (MiB)", "cpu_mode"});
  return {
      {.name = "deepspeed-baseline",
       .title = "DeepSpeed: baseline evaluation summary",
       .text_columns = {"Category", "Metric", "Extraction Instruction"},
       .experiments = {{"Your Value", "deepspeed/baseline"}},
       .figures = {{"Final Train Loss", "train_loss", "Training", "summary.json: train_loss"},
                   {"Eval Loss (Epoch 1)", "eval_loss_1", "Evaluation", "summary.json: epochs[0].eval_loss"},
                   {"Eval Loss (Epoch 2)", "eval_loss_2", "Evaluation", "summary.json: epochs[1].eval_loss"},
                   {"Eval Loss (Final)", "eval_loss", "Evaluation", "summary.json: eval_loss"},
                   {"Train Samples/sec", "samples_per_second", "Speed", "summary.json: train_samples_per_second"},
                   {"Eval Samples/sec", "eval_samples_per_second", "Speed", "summary.json: eval_samples_per_second"},
                   {"Steps per Epoch", "steps_per_epoch", "Speed", "summary.json: steps / epoch"},
                   {"Peak (MiB)", "gpu_peak", "GPU memory", "tessera memory FOLDER"},
                   {"Average (MiB)", "gpu_average", "GPU memory", "tessera memory FOLDER"},
                   {"Mode (MiB)", "gpu_mode", "GPU memory", "tessera memory FOLDER"},
                   {"Peak (MB)", "cpu_peak", "CPU memory", "tessera memory FOLDER"},
                   {"Average (MB)", "cpu_average", "CPU memory", "tessera memory FOLDER"},
                   {"Mode (MB)", "cpu_mode", "CPU memory", "tessera memory FOLDER"}},
       .baseline = "deepspeed/baseline",
       .remarks = {kUnits}},
      {.name = "deepspeed-stages-1-gpu",
       .title = "DeepSpeed: ZeRO stage comparison (1 GPU, with offloading)",
       .figures_are_rows = false,
       .text_columns = {"ZeRO Stage"},
       .experiments = deepspeed_stages("deepspeed-single-gpu/cpu_offloading", " + Offloading"),
       .figures = {{"Peak GPU Memory Used (MiB)", "gpu_peak"},
                   {"Average GPU Memory Used (MiB)", "gpu_average"},
                   {"Peak CPU Memory Used (MiB)", "cpu_peak"},
                   {"Average CPU Memory Used (MiB)", "cpu_average"},
                   {"Train Samples/Second", "samples_per_second"}},
       .baseline = "deepspeed/deepspeed-single-gpu/cpu_offloading/zero_1"},
      {.name = "deepspeed-multi-gpu",
       .title = "DeepSpeed: weak scaling over the GPUs of a node",
       .text_columns = {"Metric"},
       .experiments = numbered("deepspeed/deepspeed-multi-gpu", "gpus", "GPUs"),
       .figures = scaling_rows(),
       .baseline = "deepspeed/deepspeed-multi-gpu/2_gpus"},
      {.name = "deepspeed-stages-2-gpus",
       .title = "DeepSpeed: ZeRO stage comparison on 2 GPUs",
       .text_columns = {"Metric"},
       .experiments = joined_lists(
           deepspeed_stages("deepspeed-multi-gpu/2_gpus_stages_comparison"),
           deepspeed_stages("deepspeed-multi-gpu/2_gpus_stages_comparison/cpu_offloading", " + Offloading")),
       .figures = stage_rows,
       .baseline = "deepspeed/deepspeed-multi-gpu/2_gpus_stages_comparison/zero_1"},
      {.name = "deepspeed-multi-node",
       .title = "DeepSpeed: weak scaling across nodes",
       .text_columns = {"Metric"},
       .experiments = numbered("deepspeed/deepspeed-multi-node", "nodes", "Nodes"),
       .figures = scaling_rows(),
       .baseline = "deepspeed/deepspeed-multi-node/2_nodes"},
  };
}

std::vector<WorkshopTable> fsdp_bloom_tables() {
  const WorkshopExperiment one{"1 GPU", "fsdp/bloom/baseline"};
  return {
      {.name = "fsdp-bloom-baseline",
       .title = "FSDP: BLOOM baseline",
       .text_columns = {"Metric", "Location"},
       .experiments = {{"Your Value", "fsdp/bloom/baseline"}},
       .figures = {{"Train Loss (Final)", "train_loss", "", "summary.json: train_loss"},
                   {"Eval Loss (last epoch)", "eval_loss", "", "summary.json: eval_loss"},
                   {"Training Speed (samples/sec)", "samples_per_second", "", "summary.json: train_samples_per_second"},
                   {"Evaluation Speed (samples/sec)", "eval_samples_per_second", "",
                    "summary.json: eval_samples_per_second"},
                   {"Steps per Epoch", "steps_per_epoch", "", "summary.json: steps / epoch"},
                   {"Peak Memory Allocated (MB)", "gpu_peak", "", "tessera memory FOLDER"},
                   {"Peak GPU Utilization (%)", "gpu_utilization_peak", "", "summary.json: gpu.utilization_percent"}},
       .baseline = "fsdp/bloom/baseline",
       .remarks =
           {"The workshop asks for the eval loss of epoch 5, but its experiment has only 3 epochs. The table shows "
            "the eval loss of the last epoch.",
            kUnits}},
      {.name = "fsdp-bloom-multi-gpu",
       .title = "FSDP: BLOOM on the GPUs of a node",
       .figures_are_rows = false,
       .text_columns = {"Setup"},
       .experiments = joined_lists({one}, numbered("fsdp/bloom/multi_gpu", "gpus", "GPUs")),
       .figures = bloom_columns(),
       .baseline = "fsdp/bloom/baseline",
       .remarks = {"Scale factors are the row's value divided by the value of 1 GPU.", kUnits}},
      {.name = "fsdp-bloom-multi-node",
       .title = "FSDP: BLOOM across nodes",
       .figures_are_rows = false,
       .text_columns = {"Setup"},
       .experiments = joined_lists({{"Single Node", "fsdp/bloom/multi_gpu/2_gpus"}},
                                   numbered("fsdp/bloom/multi_node", "nodes", "Nodes")),
       .figures = bloom_columns(),
       .baseline = "fsdp/bloom/multi_gpu/2_gpus",
       .remarks =
           {"A node has 2 GPUs, so the single node is the run on 2 GPUs. Scale factors are the row's value divided by "
            "the value of this run.",
            kUnits}},
  };
}

std::vector<WorkshopTable> fsdp_custom_tables() {
  const WorkshopExperiment one{"1 GPU", "fsdp/custom_model/single_node"};
  return {
      {.name = "fsdp-custom-single-node",
       .title = "FSDP: custom model on one GPU",
       .text_columns = {"Metric", "Location"},
       .experiments = {{"Your Value", "fsdp/custom_model/single_node"}},
       .figures = {{"Train Loss", "train_loss", "", "summary.json: train_loss"},
                   {"Eval Loss (Epoch 1)", "eval_loss_1", "", "summary.json: epochs[0].eval_loss"},
                   {"Eval Loss (Epoch 2)", "eval_loss_2", "", "summary.json: epochs[1].eval_loss"},
                   {"Eval Loss (Epoch 3)", "eval_loss_3", "", "summary.json: epochs[2].eval_loss"},
                   {"Training Speed (samples/sec)", "samples_per_second", "", "summary.json: train_samples_per_second"},
                   {"Evaluation Speed (samples/sec)", "eval_samples_per_second", "",
                    "summary.json: eval_samples_per_second"},
                   {"Steps per Epoch", "steps_per_epoch", "", "summary.json: steps / epoch"},
                   {"Memory Allocated (MB)", "gpu_peak", "", "tessera memory FOLDER"},
                   {"GPU Utilization (%)", "gpu_utilization", "", "summary.json: gpu.utilization_percent"}},
       .baseline = "fsdp/custom_model/single_node",
       .remarks = {kUnits}},
      {.name = "fsdp-custom-multi-gpu",
       .title = "FSDP: custom model on the GPUs of a node",
       .figures_are_rows = false,
       .text_columns = {"Setup"},
       .experiments = joined_lists({one}, numbered("fsdp/custom_model/multi_gpu", "gpus", "GPUs")),
       .figures = custom_columns(),
       .baseline = "fsdp/custom_model/single_node",
       .remarks = {kUnits}},
      {.name = "fsdp-custom-multi-node",
       .title = "FSDP: custom model across nodes",
       .figures_are_rows = false,
       .text_columns = {"Setup"},
       .experiments = joined_lists({one}, numbered("fsdp/custom_model/multi_node", "nodes", "Nodes")),
       .figures = custom_columns(),
       .baseline = "fsdp/custom_model/single_node",
       .remarks = {kUnits}},
      {.name = "fsdp-custom-weak-scaling",
       .title = "FSDP: custom model, weak scaling (layers grow with the GPUs)",
       .figures_are_rows = false,
       .text_columns = {"Setup"},
       .experiments = numbered("fsdp/custom_model/weak_scaling", "gpus", "GPUs", {"2", "4", "8", "16"}),
       .figures = {{"Num Layers", "num_layers"},
                   {"Per-GPU Batch", "batch_size"},
                   {"Total Params", "parameters"},
                   {"Samples/s (Callback)", "callback_samples_per_second"},
                   {"GPU Memory (GB, Callback)", "callback_memory", "", "", kGB},
                   {"GPU Utilization (%)", "gpu_utilization"},
                   {"Loss", "train_loss"},
                   {"Runtime (s)", "runtime"},
                   {"Efficiency (%)", "weak_efficiency"},
                   {"Workshop's TN/T1 (%)", "inverse_efficiency"}},
       .baseline = "fsdp/custom_model/weak_scaling/2_gpus",
       .remarks = {kEfficiency, kUnits}},
  };
}

std::vector<WorkshopTable> declare_tables() {
  std::vector<WorkshopTable> all;
  for (auto* part : {deepspeed_tables, fsdp_bloom_tables, fsdp_custom_tables}) {
    for (auto& table : part()) all.push_back(std::move(table));
  }
  return all;
}

}  // namespace

const std::vector<WorkshopTable>& workshop_tables() {
  static const std::vector<WorkshopTable> tables = declare_tables();
  return tables;
}

}  // namespace tessera
