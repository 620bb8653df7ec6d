#include "tessera/base/closest_word.h"

#include <gtest/gtest.h>

#include <utility>

namespace tessera {
namespace {

TEST(ClosestWord, CountsEdits) {
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("train", "train"), 0);
  EXPECT_EQ(edit_distance("tarin", "train"), 1);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
}

TEST(ClosestWord, IsEmptyUnlessClose) {
  const std::vector<std::string> words = {"train", "eval", "generate"};
  EXPECT_EQ(closest_word("trian", words), "train");
  EXPECT_EQ(closest_word("gen", words), "generate");
  EXPECT_EQ(closest_word("ge", words), "");
  EXPECT_EQ(closest_word("export", words), "");
  EXPECT_EQ(closest_word("", words), "");
  EXPECT_EQ(closest_word(std::string(100000, 'x'), words), "");
  EXPECT_EQ(did_you_mean("evla", words), "Did you mean \"eval\"?");
  const std::vector<std::string> names = {
      "--batch-size", "--output-dir", "--eos-token",    "--max-length", "--threads",    "--num-heads",
      "--train-size", "--lr",         "--beta1",        "--model",      "--log-format", "--save-steps",
      "--epochs",     "--fp16",       "attention_bias", "rope_theta",   "rms_norm_eps"};
  for (const auto& [word, meant] : {
           std::pair{"--bacth_sise", "--batch-size"},
           std::pair{"--batchsize", "--batch-size"},
           std::pair{"--Batch-Size", "--batch-size"},
           std::pair{"--out-dir", "--output-dir"},
           std::pair{"--max-len", "--max-length"},
           std::pair{"--max-seq-length", "--max-length"},
           std::pair{"--num-epochs", "--epochs"},
           std::pair{"--num-threads", "--threads"},
           std::pair{"--beta-1", "--beta1"},
           std::pair{"--lrr", "--lr"},
           std::pair{"rope_tetha", "rope_theta"},
           std::pair{"rmsNormEpsilon", ""},
           std::pair{"rms_norm_epsilon", "rms_norm_eps"},
           // Other words and other digits are no typing errors.
           std::pair{"attention_sinks", ""},
           std::pair{"--pad-token", ""},
           std::pair{"--train-file", ""},
           std::pair{"--log-file", ""},
           std::pair{"--save-stats", ""},
           std::pair{"--nodes", ""},
           std::pair{"--beta3", ""},
           std::pair{"--fp15", ""},
           std::pair{"--xy", ""},
       }) {
    EXPECT_EQ(closest_word(word, names), meant) << word;
  }
}

}  // namespace
}  // namespace tessera
