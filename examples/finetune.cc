// Fine-tunes a model on a file of questions and answers, and asks the result a question.
//
//     finetune recipes/quickstart/model recipes/quickstart/train.json recipes/quickstart/eval.json runs/finetuned
#include <cstdio>

#include <tessera/tessera.h>

namespace {

// An own rule to stop: the run has seen enough when the loss of a step is below this value.
constexpr double kGoodLoss = 0.05;

tessera::Next after_step(const tessera::StepMetrics& step) {
  std::printf("step %lld of %lld: loss %.4f, %lld tokens\n", static_cast<long long>(step.step),
              static_cast<long long>(step.num_steps), step.loss.value_or(0), static_cast<long long>(step.num_tokens));
  return step.loss && *step.loss < kGoodLoss ? tessera::Next::finish : tessera::Next::proceed;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: finetune MODEL TRAIN EVAL OUTPUT\n");
    return 2;
  }
  try {
    const tessera::Options options{{"model", argv[1]},         {"dataset", argv[2]},    {"eval-dataset", argv[3]},
                                   {"output-dir", argv[4]},    {"learning-rate", 3e-4}, {"batch-size", 8},
                                   {"max-length", 256},        {"max-steps", 12},       {"warmup-steps", 4},
                                   {"eval-size", 16},          {"eval-steps", 6},       {"seed", 1},
                                   {"objective", "completion"}};
    tessera::Hooks hooks;
    hooks.on_step = after_step;
    hooks.on_evaluation = [](const tessera::Evaluation& evaluation) {
      std::printf("after step %lld: evaluation loss %.4f\n", static_cast<long long>(evaluation.step), evaluation.loss);
    };
    const tessera::TrainResult result = tessera::train(options, hooks);
    std::printf("%s, mean loss %.4f\n", result.model.c_str(), result.train_loss.value_or(0));

    tessera::Model model = tessera::Model::load(result.model);
    const tessera::Generation answer =
        model.generate("Question: Who is the mayor of Orlaholm?\nAnswer:", {.max_new_tokens = 16});
    std::printf("%s\n", answer.text.c_str());
  } catch (const tessera::Error& error) {
    std::fprintf(stderr, "%s error: %s\n", tessera::name_of(error.kind()), error.what());
    return 1;
  }
}
