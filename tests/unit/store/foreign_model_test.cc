// Tests the errors for models in forms that Tessera does not read.
#include "tessera/store/foreign_model.h"

#include "store_test_util.h"

namespace tessera {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Case {
  std::vector<std::string> files;
  std::string message;
};

TEST(ForeignModel, FoldersOfOtherFormsAreNamed) {
  const Case kCases[] = {
      {{"adapter_config.json", "adapter_model.safetensors"},
       "is a LoRA adapter, and not a model. Give its base as the model, and add "},
      {{"adapter_model.bin", "config.json"}, "is a LoRA adapter"},
      {{"config.json", "pytorch_model.bin"}, "pytorch_model.bin: is a pickle file"},
      {{"config.json", "pytorch_model-00001-of-00002.bin"}, "pytorch_model-00001-of-00002.bin: is a pickle file"},
      {{"README.md", "model.Q4_K_M.gguf"}, "model.Q4_K_M.gguf: is a GGUF file"},
      {{"config.json", "flax_model.msgpack"}, "is a file of Flax. Convert the folder: python -c"},
      {{"config.json", "tf_model.h5"}, "is a file of TensorFlow. Convert"},
      {{"config.json", "model.onnx"}, "is an ONNX file"},
      {{"consolidated.00.pth", "params.json"}, "consolidated.00.pth: has the weights in the original form"},
      {{"consolidated.safetensors", "tekken.json"}, "consolidated.safetensors: has the weights in the original form"},
      {{"config.json", "model-00001-of-00002.safetensors"}, "model.safetensors.index.json is missing"},
      {{"config.json", "weights.safetensors"}, "weights.safetensors: is not named model.safetensors"},
      {{"config.json", "weights.PT"}, "is a pickle file"},
      {{"model_index.json"}, "a pipeline of diffusers"},
      {{"__0_0.distcp"}, "a sharded checkpoint of PyTorch"},
      {{"llama/config.json", "other/config.json"}, "has no config.json, but its subfolders do. Give the folder"}};
  for (const Case& test : kCases) {
    TemporaryFolder folder;
    for (const std::string& file : test.files) {
      std::filesystem::create_directories((folder / file).parent_path());
      put(folder / file, "{}");
    }
    EXPECT_THAT(error_of<InputError>([&] { refuse_foreign_folder(folder.path()); }), HasSubstr(test.message));
  }
  TemporaryFolder folder;
  refuse_foreign_folder(folder.path());
  put(folder / "model.safetensors", "");
  put(folder / "model.gguf", "");
  refuse_foreign_folder(folder.path());
}

TEST(ForeignModel, AnAdapterNamesItsBaseModel) {
  TemporaryFolder folder;
  for (const std::string text :
       {R"({"base_model_name_or_path": "me/base"})", R"({"base_model_name_or_path": null})", "{"}) {
    put(folder / "adapter_config.json", text);
    const std::string message = error_of<InputError>([&] { refuse_foreign_folder(folder.path()); });
    EXPECT_THAT(message, HasSubstr("as the model, and add init_adapter " + folder.path().string()));
    EXPECT_EQ(message.find("for the model me/base") != message.npos, text.find("me/base") != text.npos);
  }
}

TEST(ForeignModel, FilesOfOtherFormsAreNamed) {
  TemporaryFolder folder;
  struct File {
    const char* name;
    std::string content, message;
  };
  const File kCases[] = {
      {"a.gguf", "GGUF\3", "is a GGUF file"},
      {"renamed.json", "GGUF\3", "is a GGUF file"},
      {"model.safetensors", std::string(16, '\0'), "is a single weight file, not a model. Give its folder"},
      {"model.safetensors.index.json", "{}", "is one file of a model. Give its folder"},
      {"tokenizer.json", "{}", "is one file of a model. Give its folder"},
      {"pytorch_model.bin", "PK", "is a pickle file"},
      {"a.onnx", "", "is an ONNX file"},
      {"adapter_config.json", "{}", "is a LoRA adapter"},
      {"data", std::string("\x89HDF\0", 5), "is neither a folder nor a config.json"}};
  for (const File& file : kCases) {
    put(folder / file.name, file.content);
    EXPECT_THAT(error_of<InputError>([&] { refuse_foreign_file(folder / file.name); }), HasSubstr(file.message));
  }
  put(folder / "config.json", " \xEF\xBB\xBF{}");
  refuse_foreign_file(folder / "config.json");
}

}  // namespace
}  // namespace tessera
