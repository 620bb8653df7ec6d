// Tests Hugging Face folders: single and sharded files, prefixes of names, and errors.
#include "tessera/store/model_folder.h"

#include "store_test_util.h"

namespace tessera {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

void write_tensors(const std::filesystem::path& path, const std::vector<std::pair<std::string, float>>& scalars) {
  std::vector<PlannedTensor> plan;
  for (const auto& [name, value] : scalars) plan.push_back({name, DType::f32, {1}});
  SafetensorsWriter writer(path, plan);
  for (auto [name, value] : scalars) writer.write(name, view_of(&value, {1}));
  writer.finish();
}

float read(const TensorSource& source, std::string_view name) {
  float value = -1;
  source.read_into(name, view_of(&value, {1}));
  return value;
}

std::string refusal(const std::filesystem::path& folder) {
  return error_of<InputError>([&] { TensorSource source(folder); });
}

TEST(TensorSource, PrefixDoesNotCount) {
  TemporaryFolder folder;
  write_tensors(folder / "model.safetensors", {{"transformer.a", 1.0f}, {"b", 2.0f}});
  const TensorSource source(folder.path());
  EXPECT_EQ(read(source, "a"), 1.0f);
  EXPECT_EQ(read(source, "transformer.a"), 1.0f);
  EXPECT_EQ(read(source, "transformer.b"), 2.0f);
  EXPECT_THAT(source.names(), ElementsAre("b", "transformer.a"));
  EXPECT_FALSE(source.contains("c"));
  EXPECT_THAT(error_of<InputError>([&] { source.get("c"); }), HasSubstr("no tensor \"c\""));
}

TEST(TensorSource, NameWithAndWithoutPrefixIsAmbiguous) {
  TemporaryFolder folder;
  write_tensors(folder / "model.safetensors", {{"transformer.a", 1.0f}, {"a", 2.0f}});
  EXPECT_THAT(refusal(folder.path()), HasSubstr("has both"));
}

TEST(TensorSource, WordsOfWrappersDoNotCount) {
  const std::pair<const char*, std::vector<std::string>> kNames[] = {
      {"_orig_mod.model.layers.0.mlp.w", {"_orig_mod"}},
      {"module.model.layers.0.mlp.w", {"module"}},
      {"module._orig_mod.model.layers.0.mlp.w", {"_orig_mod", "module"}},
      {"_orig_mod.module.model.layers.0.mlp.w", {"_orig_mod", "module"}},
      {"model.model.layers.0.mlp.w", {}},
      {"model.layers.0._orig_mod.mlp.w", {"_orig_mod"}},
      {"_fsdp_wrapped_module.model.layers.0._fsdp_wrapped_module._checkpoint_wrapped_module.mlp.w",
       {"_checkpoint_wrapped_module", "_fsdp_wrapped_module"}},
      {"_forward_module.transformer.layers.0.mlp.w", {"_forward_module"}}};
  for (const auto& [name, wrappers] : kNames) {
    TemporaryFolder folder;
    write_tensors(folder / "model.safetensors", {{name, 1.0f}, {"layers.0.module", 2.0f}, {"module", 3.0f}});
    const TensorSource source(folder.path());
    EXPECT_EQ(read(source, "layers.0.mlp.w"), 1.0f) << name;
    EXPECT_EQ(read(source, "model.layers.0.module"), 2.0f);
    EXPECT_EQ(read(source, "module"), 3.0f);
    EXPECT_THAT(source.wrappers(), testing::ElementsAreArray(wrappers)) << name;
  }
  TemporaryFolder folder;
  write_tensors(folder / "model.safetensors", {{"module.a", 1.0f}, {"_orig_mod.a", 2.0f}});
  EXPECT_THAT(refusal(folder.path()), HasSubstr("has both \"_orig_mod.a\" and \"module.a\""));
}

TEST(TensorSource, BuffersThatFollowFromTheConfigurationAreIgnored) {
  TemporaryFolder folder;
  const std::vector<std::string> buffers = {
      R"("model.layers.0.self_attn.rotary_emb.inv_freq":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})",
      R"("rotary_emb.original_inv_freq":{"dtype":"F32","shape":[1],"data_offsets":[4,8]})",
      R"("model.layers.0.self_attn.rotary_emb.cos_cached":{"dtype":"F32","shape":[1,1,1,1],"data_offsets":[8,12]})",
      R"("model.layers.0.self_attn.rotary_emb.sin_cached":{"dtype":"F32","shape":[1],"data_offsets":[12,16]})",
      R"("h.0.attn.masked_bias":{"dtype":"F32","shape":[],"data_offsets":[16,20]})",
      R"("h.0.attn.bias":{"dtype":"BOOL","shape":[1,1,2,2],"data_offsets":[20,24]})",
      R"("h.0.attention.bias":{"dtype":"U8","shape":[2,2],"data_offsets":[24,28]})",
      R"("position_ids":{"dtype":"I32","shape":[1,1],"data_offsets":[28,32]})"};
  std::string header = "{";
  for (const std::string& buffer : buffers) header += (header.size() > 1 ? "," : "") + buffer;
  put(folder / "model.safetensors", safetensors_bytes(header + "}", 32));
  const TensorSource source(folder.path());
  EXPECT_EQ(source.check_tensors({}, {}).size(), buffers.size());
  EXPECT_NE(source.sampled_checksum(), 0u);
  for (const std::string name : {"h.0.attn.bias", "h.0.attn.qkv.bias", "inv_freq.weight", "rotary_emb.freq"}) {
    TemporaryFolder other;
    write_tensors(other / "model.safetensors", {{name, 1.0f}, {"h.1.rotary_emb.inv_freq", 1.0f}});
    EXPECT_THAT(error_of<InputError>([&] { TensorSource(other.path()).check_tensors({}, {}); }),
                HasSubstr("1 tensor is not of this model (" + name + ")"));
  }
}

TEST(TensorSource, ComparesTensors) {
  TemporaryFolder folder;
  constexpr int64_t kRows = 3, kColumns = 70001;  // compared in 4 chunks of at most 65,536 elements
  const std::vector<std::pair<std::string, Shape>> tensors = {{"a", {kRows, kColumns}},
                                                              {"same", {kRows, kColumns}},
                                                              {"other", {kRows, kColumns}},
                                                              {"turned", {kColumns, kRows}}};
  std::vector<float> values(kRows * kColumns, 0.5f);
  std::vector<PlannedTensor> plan;
  for (const auto& [name, shape] : tensors) plan.push_back({name, name == "same" ? DType::bf16 : DType::f32, shape});
  SafetensorsWriter writer(folder / "model.safetensors", plan);
  for (const auto& [name, shape] : tensors) {
    values.back() = name == "other" ? 0.25f : 0.5f;
    writer.write(name, view_of(values.data(), shape));
  }
  writer.finish();
  const TensorSource source(folder.path());
  EXPECT_EQ(source.file_of("a"), folder / "model.safetensors");
  ThreadPool pool(2);
  EXPECT_TRUE(source.are_equal("a", "same", 0, 1, pool));
  EXPECT_FALSE(source.are_equal("a", "other", 0, 1, pool));
  EXPECT_FALSE(source.are_equal("a", "turned", 0, 1, pool));
  for (int part = 0; part < 9; ++part) {  // 9 parts share 4 chunks; the last part has the last chunk
    EXPECT_TRUE(source.are_equal("a", "same", part, 9, pool));
    EXPECT_EQ(source.are_equal("a", "other", part, 9, pool), part < 8) << part;
  }
}

// The checksum reads the names, types and shapes, but only 1,024 values in the middle of each tensor. Of 4,000
// elements, it therefore reads element 2000 and does not read element 100.
TEST(TensorSource, ChecksumDistinguishesWeights) {
  TemporaryFolder folder;
  int count = 0;
  const auto checksum = [&](const std::string& name, DType dtype, const Shape& shape, int64_t changed = -1) {
    std::filesystem::create_directory(folder / std::to_string(++count));
    std::vector<float> values(static_cast<size_t>(shape.num_elems()), 0.5f);
    if (changed >= 0) values[static_cast<size_t>(changed)] = 0.25f;
    SafetensorsWriter writer(folder / std::to_string(count) / "model.safetensors", {{name, dtype, shape}});
    writer.write(name, view_of(values.data(), shape));
    writer.finish();
    return TensorSource(folder / std::to_string(count)).sampled_checksum();
  };
  const uint64_t first = checksum("a", DType::f32, {4, 1000});
  EXPECT_EQ(checksum("transformer.a", DType::f32, {4, 1000}), first);
  EXPECT_NE(checksum("b", DType::f32, {4, 1000}), first);
  EXPECT_NE(checksum("a", DType::bf16, {4, 1000}), first);
  EXPECT_NE(checksum("a", DType::f32, {1000, 4}), first);
  EXPECT_NE(checksum("a", DType::f32, {4, 1000}, 2000), first);
  EXPECT_EQ(checksum("a", DType::f32, {4, 1000}, 100), first) << "the checksum reads all bytes instead of samples";
}

class ShardedFolder : public testing::Test {
 protected:
  void SetUp() override {
    write_tensors(folder / "one.safetensors", {{"a", 1.0f}, {"b", 2.0f}});
    write_tensors(folder / "two.safetensors", {{"c", 3.0f}});
  }
  std::string refusal_of_index(const std::string& text) {
    put(folder / "model.safetensors.index.json", text);
    return refusal(folder.path());
  }
  TemporaryFolder folder;
};

TEST_F(ShardedFolder, ReadsFromTheFileOfTheIndex) {
  put(folder / "model.safetensors.index.json",
      R"({"metadata": {"total_size": 12}, "weight_map": {"a": "one.safetensors", "c": "two.safetensors"}})");
  const TensorSource source(folder.path());
  EXPECT_EQ(read(source, "a"), 1.0f);
  EXPECT_EQ(read(source, "c"), 3.0f);
  EXPECT_FALSE(source.contains("b"));
}

TEST_F(ShardedFolder, WrongIndexesAreErrors) {
  EXPECT_THAT(refusal_of_index("{\n\n\"weight_map\": oops}"), HasSubstr("index.json:3"));
  EXPECT_THAT(refusal_of_index("[]"), HasSubstr("weight_map"));
  EXPECT_THAT(refusal_of_index("{}"), HasSubstr("weight_map"));
  EXPECT_THAT(refusal_of_index(R"({"weight_map": ["a"]})"), HasSubstr("weight_map"));
  EXPECT_THAT(refusal_of_index(R"({"weight_map": {"a": 1}})"), HasSubstr("not the name of a file"));
  EXPECT_THAT(refusal_of_index(R"({"weight_map": {"a": "../one.safetensors"}})"), HasSubstr("not the name of a file"));
  EXPECT_THAT(refusal_of_index(R"({"weight_map": {"a": "/etc/passwd"}})"), HasSubstr("not the name of a file"));
  EXPECT_THAT(refusal_of_index(R"({"weight_map": {"a": ".."}})"), HasSubstr("not the name of a file"));
  EXPECT_THAT(refusal_of_index(R"({"weight_map": {"a": "three.safetensors"}})"),
              HasSubstr("weight_map[\"a\"]: names three.safetensors, which does not exist"));
  EXPECT_THAT(refusal_of_index(R"({"weight_map": {"c": "one.safetensors"}})"), HasSubstr("no such tensor"));
  EXPECT_THAT(refusal_of_index(R"({"weight_map": {"a": "one.safetensors", "a": "one.safetensors"}})"),
              HasSubstr("\"a\" twice in one object"));
}

TEST_F(ShardedFolder, ATensorInTwoFilesIsAnError) {
  std::filesystem::remove(folder / "two.safetensors");
  write_tensors(folder / "two.safetensors", {{"a", 4.0f}, {"c", 3.0f}});
  EXPECT_THAT(refusal_of_index(R"({"weight_map": {"a": "one.safetensors", "c": "two.safetensors"}})"),
              HasSubstr("two.safetensors: has tensor \"a\", but model.safetensors.index.json says that this tensor is "
                        "in one.safetensors"));
  EXPECT_THAT(refusal_of_index(R"({"weight_map": {"a": "two.safetensors", "b": "one.safetensors"}})"),
              HasSubstr("one.safetensors: has tensor \"a\", but model.safetensors.index.json says that this tensor is "
                        "in two.safetensors"));
}

TEST_F(ShardedFolder, EveryShardIsValidated) {
  put(folder / "two.safetensors", "garbage, garbage");
  EXPECT_THAT(refusal_of_index(R"({"weight_map": {"a": "one.safetensors", "c": "two.safetensors"}})"),
              HasSubstr("two.safetensors"));
}

TEST(TensorSource, FoldersWithoutTensorsAreErrors) {
  TemporaryFolder folder;
  EXPECT_THAT(refusal(folder / "none"), HasSubstr("no such folder"));
  EXPECT_THAT(refusal(folder.path()), HasSubstr("neither model.safetensors nor"));
  put(folder / "pytorch_model.bin", "PK");
  EXPECT_THAT(refusal(folder.path()), AllOf(HasSubstr("pickle"), HasSubstr("safe_serialization=True")));
  EXPECT_THAT(refusal(folder / "pytorch_model.bin"), HasSubstr("is not a folder"));
}

TEST(TensorSource, AllContradictionsAreReportedTogether) {
  TemporaryFolder folder;
  write_tensors(folder / "model.safetensors",
                {{"transformer.good", 1.0f}, {"transformer.bent", 2.0f}, {"stray", 3.0f}, {"lm_head.weight", 4.0f}});
  const TensorSource source(folder.path());
  source.check_tensors({{"good", {1}}, {"bent", {1}}, {"stray", {1}}}, {"lm_head.weight", "absent"});
  std::vector<std::pair<std::string, Shape>> expected{{"good", {1}}, {"bent", {2, 3}}};
  for (int i = 0; i < 7; ++i) expected.push_back({"h." + std::to_string(i), {1}});
  const std::string message = error_of<InputError>([&] { source.check_tensors(expected, {"lm_head.weight"}); });
  EXPECT_THAT(message, AllOf(HasSubstr("7 tensors are missing (h.0, h.1, h.2, h.3, h.4, ...)"),
                             HasSubstr("1 tensor is not of this model (stray)"),
                             HasSubstr("(bent: [1] instead of [2, 3])"), Not(HasSubstr("lm_head"))));
}

TEST(TensorSource, TypesThatCannotBeReadAreContradictions) {
  TemporaryFolder folder;
  put(folder / "model.safetensors",
      safetensors_bytes(R"({"q":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]}})", 2));
  const TensorSource source(folder.path());
  EXPECT_THAT(error_of<InputError>([&] { source.check_tensors({{"q", {2}}}, {}); }), HasSubstr("q: F8_E4M3"));
}

}  // namespace
}  // namespace tessera
