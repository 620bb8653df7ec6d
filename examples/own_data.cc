// Trains on rows that the program makes: token ids with an own choice of what carries loss, and rows from a function.
// Some rows count more than others.
//
//     own_data MODEL OUTPUT
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include <tessera/tessera.h>

namespace {

// "The number after 7 is 8", where only the answer carries loss.
tessera::Row row_of(const tessera::Tokenizer& tokenizer, int number) {
  std::vector<std::int32_t> ids = tokenizer.encode("The number after " + std::to_string(number) + " is ");
  std::vector<bool> has_loss(ids.size(), false);
  for (const std::int32_t id : tokenizer.encode(std::to_string(number + 1), false)) {
    ids.push_back(id);
    has_loss.push_back(true);
  }
  return tessera::Row::tokens(std::move(ids), std::move(has_loss));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: own_data MODEL OUTPUT\n");
    return 2;
  }
  try {
    const tessera::Tokenizer tokenizer(argv[1]);
    std::vector<double> weights;
    int made = 0;
    tessera::Hooks hooks;
    // The library calls the function until it returns nothing.
    hooks.rows = tessera::Rows([&]() -> std::optional<tessera::Row> {
      if (made == 32) return std::nullopt;
      weights.push_back(made % 2 == 0 ? 2.0 : 0.5);
      return row_of(tokenizer, made++);
    });
    hooks.eval_rows = {row_of(tokenizer, 10), row_of(tokenizer, 11)};
    // LossChunk::rows has the number of the row that each token comes from. In an evaluation, every row counts 1.
    hooks.loss = [&](const tessera::LossChunk& chunk) {
      double sum = 0;
      for (std::int64_t i = 0; i < chunk.num_rows; ++i) {
        const auto row = static_cast<std::size_t>(chunk.rows[static_cast<std::size_t>(i)]);
        sum += chunk.cross_entropy(i, chunk.needs_gradients() ? weights.at(row) : 1);
      }
      return sum;
    };
    const tessera::TrainResult result = tessera::train({{"model", argv[1]},
                                                        {"output-dir", argv[2]},
                                                        {"epochs", 3},
                                                        {"learning-rate", 3e-4},
                                                        {"save-strategy", "no"},
                                                        {"device", "cpu"}},
                                                       hooks);
    for (const tessera::Evaluation& evaluation : result.evaluations) {
      std::printf("epoch %.0f: loss %.4f\n", evaluation.epoch, evaluation.loss);
    }
    std::printf("%lld samples, %lld tokens with loss\n", static_cast<long long>(result.num_samples),
                static_cast<long long>(result.num_targets));
  } catch (const tessera::Error& error) {
    std::fprintf(stderr, "%s error: %s\n", tessera::name_of(error.kind()), error.what());
    return 1;
  }
}
