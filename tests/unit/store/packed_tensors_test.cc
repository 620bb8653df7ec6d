#include "tessera/store/packed_tensors.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "store_test_util.h"
#include "tessera/base/thread_pool.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// A model that transformers has saved with bitsandbytes, and its weights before (tools/make_references.py).
const fs::path kFolder = fs::path(TESSERA_TEST_DIR) / "parity" / "data" / "llama_qlora";
const std::string kPrefix = "model.layers.0.";
const std::vector<std::pair<std::string, Shape>> kTensors = {
    {"self_attn.q_proj", {64, 64}}, {"self_attn.k_proj", {32, 64}}, {"self_attn.v_proj", {32, 64}},
    {"self_attn.o_proj", {64, 64}}, {"mlp.gate_proj", {272, 64}},   {"mlp.up_proj", {272, 64}},
    {"mlp.down_proj", {64, 272}}};

TEST(PackedTensors, HaveTheBitsOfBitsandbytes) {
  const TensorSource source(kFolder);
  const SafetensorsFile before(kFolder / "before_quantization.safetensors");
  const PackedTensors packed(source);
  ThreadPool pool(2);
  for (const auto& [layer, shape] : kTensors) {
    SCOPED_TRACE(layer);
    const std::string name = kPrefix + layer + ".weight";
    ASSERT_TRUE(PackedTensors::has(source, name));
    EXPECT_EQ(PackedTensors::unpacked_dtype(source, name), DType::f32);
    const int64_t n = shape.num_elems(), num_groups = nf4_groups(n);
    std::vector<Nf4Group> groups(static_cast<size_t>(num_groups)), quantized(groups.size());
    packed.read_groups(name, shape, 0, num_groups, groups.data());
    Nf4Quantizer(pool).quantize(
        name, n, 0, num_groups,
        [&](int64_t begin, int64_t end, float* values) {
          before.read_range_into(before.get(name), begin, end, view_of(values, {end - begin}));
        },
        quantized.data());
    for (size_t g = 0; g < groups.size(); ++g) {
      EXPECT_EQ(groups[g].codes, quantized[g].codes);
      // bitsandbytes sums in f32, so that its mean differs in the last bits, and scales near the mean may get other
      // codes.
      EXPECT_FLOAT_EQ(groups[g].scale_mean, quantized[g].scale_mean);
      for (size_t b = 0; b < groups[g].scales.size(); ++b) {
        const auto scale = [&](const Nf4Group& group) {
          return nf4_scale_map()[group.scales[b]] * group.scale_range + group.scale_mean;
        };
        EXPECT_NEAR(scale(groups[g]), scale(quantized[g]), 1e-5f * groups[g].scale_mean) << b;
      }
    }
    if (layer != "mlp.down_proj") continue;
    std::vector<float> values(static_cast<size_t>(n)), expected(values.size());
    before.read_into(before.get(kPrefix + layer + ".values"), view_of(expected.data(), {n}));
    packed.read(name, shape, 0, n, view_of(values.data(), {n}));
    EXPECT_EQ(std::memcmp(values.data(), expected.data(), expected.size() * sizeof(float)), 0);
    packed.read(name, shape, 16000, 17000, view_of(values.data(), {1000}));
    EXPECT_EQ(std::memcmp(values.data(), expected.data() + 16000, 1000 * sizeof(float)), 0);
  }
}

// Each fault is in one part of one tensor.
TEST(PackedTensors, RefuseOtherForms) {
  using Json = nlohmann::json;
  const std::string name = kPrefix + "self_attn.q_proj.weight";
  struct Fault {
    const char* named;
    std::function<void(Json&)> change_state = {};
    const char* part = "";  // whose first value changes
  };
  const Fault faults[] = {{"quant_type", [](Json& state) { state["quant_type"] = "fp4"; }},
                          {"blocksize", [](Json& state) { state["blocksize"] = 128; }},
                          {"nested_blocksize", [](Json& state) { state.erase("nested_blocksize"); }},
                          {"shape",
                           [](Json& state) {
                             state["shape"] = {32, 128};
                           }},
                          {"nested_offset", [](Json& state) { state["nested_offset"] = "0.5"; }},
                          {"nested_offset", [](Json& state) { state["nested_offset"] = 1e300; }},
                          {"quant_map", {}, ".quant_map"},
                          {"nested_quant_map", {}, ".nested_quant_map"},
                          {"no object", [](Json& state) { state = Json::array({1}); }}};
  const SafetensorsFile original(kFolder / "model.safetensors");
  for (const Fault& fault : faults) {
    SCOPED_TRACE(fault.named);
    const TemporaryFolder folder;
    std::vector<PlannedTensor> plan;
    std::map<std::string, std::vector<std::byte>> values;
    for (const TensorInfo& info : original.tensors()) {
      std::vector<std::byte> data(original.data(info), original.data(info) + (info.end - info.begin));
      Shape shape = info.shape();
      if (info.name == PackedTensors::state_name(name) && fault.change_state) {
        Json state = Json::parse(reinterpret_cast<const char*>(data.data()),
                                 reinterpret_cast<const char*>(data.data() + data.size()));
        fault.change_state(state);
        const std::string text = state.dump();
        const auto* const bytes = reinterpret_cast<const std::byte*>(text.data());
        data.assign(bytes, bytes + text.size());
        shape = {std::ssize(text)};
      }
      if (*fault.part && info.name == name + fault.part) {
        const float other = -0.75f;
        std::memcpy(data.data(), &other, sizeof(other));
      }
      plan.push_back({info.name, *info.dtype, shape});
      values[info.name] = std::move(data);
    }
    SafetensorsWriter writer(folder.path() / "model.safetensors", plan);
    for (const PlannedTensor& tensor : plan) {
      writer.write(tensor.name, {values[tensor.name].data(), tensor.dtype, tensor.shape});
    }
    writer.finish();
    const TensorSource source(folder.path());
    std::vector<Nf4Group> groups(1);
    try {
      PackedTensors(source).read_groups(name, {64, 64}, 0, 1, groups.data());
      FAIL() << "accepted";
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(fault.named), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace tessera
