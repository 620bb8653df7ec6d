// Tests that valid headers of safetensors files are read, and that invalid and malicious headers are refused.
#include "store_test_util.h"
#include "tessera/store/safetensors.h"

namespace tessera {
namespace {

using testing::HasSubstr;

SafetensorsHeader parse(const std::string& bytes) {
  return SafetensorsFile::parse_header(std::as_bytes(std::span(bytes.data(), bytes.size())), bytes.size(), "f");
}
SafetensorsHeader parse(const std::string& header, size_t data_bytes) {
  return parse(safetensors_bytes(header, data_bytes));
}
std::string refusal(const std::string& bytes) {
  return error_of<InputError>([&] { parse(bytes); });
}
std::string refusal(const std::string& header, size_t data_bytes) {
  return refusal(safetensors_bytes(header, data_bytes));
}

TEST(SafetensorsHeader, DescribesTensorsInTheOrderOfTheirBytes) {
  const auto header =
      parse(R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2,3],"data_offsets":[2,26]},)"
            R"("a":{"data_offsets":[0,2],"shape":[],"dtype":"BF16"},)"
            R"("none":{"dtype":"I64","shape":[4,0],"data_offsets":[2,2]}}  )",
            26);
  ASSERT_EQ(header.tensors.size(), 3u);
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_EQ(header.tensors[0].dtype, DType::bf16);
  EXPECT_EQ(header.tensors[0].shape(), Shape());
  EXPECT_EQ(header.tensors[0].num_elems(), 1);
  EXPECT_EQ(header.tensors[1].name, "none");
  EXPECT_EQ(header.tensors[1].num_elems(), 0);
  EXPECT_EQ(header.tensors[2].name, "b");
  EXPECT_EQ(header.tensors[2].shape(), (Shape{2, 3}));
  EXPECT_EQ(header.metadata.at("format"), "pt");
}

TEST(SafetensorsHeader, NoTensorsIsValid) {
  EXPECT_TRUE(parse("{}", 0).tensors.empty());
}

TEST(SafetensorsHeader, RefusesBadLengths) {
  EXPECT_THAT(refusal(""), HasSubstr("0 bytes"));
  EXPECT_THAT(refusal("1234567"), HasSubstr("7 bytes"));
  const std::string good = safetensors_bytes("{}", 0);
  EXPECT_THAT(refusal(good.substr(0, 9)), HasSubstr("header length of 2 bytes"));
  EXPECT_THAT(refusal("\x01\xe1\xf5\x05" + std::string(100, '\0')), HasSubstr("header length of 100000001"));
  EXPECT_THAT(refusal(std::string(8, '\xff') + "{}"), HasSubstr("header length of 18446744073709551615"));
  EXPECT_THAT(refusal(std::string(8, '\0')), HasSubstr("does not start with {"));
}

TEST(SafetensorsHeader, RefusesInvalidJson) {
  EXPECT_THAT(refusal("", 0), HasSubstr("does not start with {"));
  EXPECT_THAT(refusal("\xEF\xBB\xBF{}", 0), HasSubstr("does not start with {"));
  EXPECT_THAT(refusal("[]", 0), HasSubstr("does not start with {"));
  EXPECT_THAT(refusal("{", 0), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal("{}x", 0), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal("{}{}", 0), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal(std::string("{}\0\0", 4), 0), HasSubstr("zero byte"));
  EXPECT_THAT(refusal("{\"\xc3\x28\":1}", 0), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal("{\"\\ud800\":1}", 0), HasSubstr("not valid JSON"));
}

TEST(SafetensorsHeader, RefusesUnexpectedValues) {
  EXPECT_THAT(refusal(R"({"a":1})", 0), HasSubstr("the number 1"));
  EXPECT_THAT(refusal(R"({"a":null})", 0), HasSubstr("null"));
  EXPECT_THAT(refusal(R"({"a":[]})", 0), HasSubstr("an array"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":{}}})", 0), HasSubstr("an object"));
  EXPECT_THAT(refusal(R"({"__metadata__":{"step":null}})", 0), HasSubstr("null"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":null,"shape":[],"data_offsets":[0,4]}})", 4), HasSubstr("null"));
  EXPECT_THAT(refusal(R"({"__metadata__":{"step":1}})", 0), HasSubstr("the number 1"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4), HasSubstr("the number -1"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4), HasSubstr("1.0"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})", 4), HasSubstr("an array"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,4]}})", 4),
              HasSubstr("99999999999999999999"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,4]}})", 4), HasSubstr("the number 4"));
  EXPECT_THAT(refusal(std::string(1'000'000, '[').insert(0, "{\"a\":"), 0), HasSubstr("an array"));
}

// The library safetensors 0.8.0 accepts all of these headers.
TEST(SafetensorsHeader, AcceptsWhatTheLibraryAccepts) {
  const std::string f32 = R"("dtype":"F32","shape":[1],"data_offsets":[0,4])";
  const std::string a = R"("a":{)" + f32 + "}";
  for (const std::string& header : std::vector<std::string>{
           R"({"__metadata__":null,)" + a + "}", R"({"__metadata__":{},)" + a + "}",
           R"({"__metadata__":{"k":"1","k":"2"},)" + a + "}", R"({"a":{"x":1,)" + f32 + "}}",
           R"({"a":{)" + f32 + R"(,"x":-1,"y":1.5,"z":true,"v":"s","w":null}})",
           R"({"a":{"x":1,"x":{"dtype":"q","y":[1,{"data_offsets":null}],"shape":{}},)" + f32 + "}}",
           R"({"a":{"x":)" + std::string(125, '[') + std::string(125, ']') + "," + f32 + "}}",
           R"({"a":{"x":99999999999999999999999,)" + f32 + "}}", "{" + a + "," + a + "}",
           R"({"a":{"dtype":"F32","shape":[7],"data_offsets":[9,2]},)" + a + "}", " \n\t\r{" + a + "}\n \t\r",
           R"({"":{)" + f32 + "}}", R"({"a\u0000b":{)" + f32 + "}}",
           "{" + a + R"(,"e":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})",
           "{" + a + R"(,"e":{"dtype":"F4","shape":[0],"data_offsets":[4,4]}})",
           R"({"a":{"dtype":"F32","shape":[1,4611686018427387904,0],"data_offsets":[0,0]},"b":{)" + f32 + "}}"}) {
    EXPECT_FALSE(parse(header, 4).tensors.empty()) << header;
  }
  EXPECT_EQ(parse(R"({"__metadata__":{"k":"1","k":"2"}})", 0).metadata.at("k"), "2");
  EXPECT_EQ(parse("{" + a + "," + a + "}", 4).tensors.size(), 1u);
}

TEST(SafetensorsHeader, RefusesDuplicateKeys) {
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                      R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                      2),
              HasSubstr("hole"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1), HasSubstr("twice"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1]}})", 1), HasSubstr("twice"));
  EXPECT_THAT(refusal(R"({"__metadata__":{},"__metadata__":{}})", 0), HasSubstr("__metadata__ twice"));
  EXPECT_THAT(refusal(R"({"__metadata__":null,"__metadata__":null})", 0), HasSubstr("__metadata__ twice"));
}

TEST(SafetensorsHeader, RefusesDeepValuesAndLargeNumbersOfUnknownKeys) {
  const auto with = [](const std::string& value) {
    return R"({"a":{"x":)" + value + R"(,"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  };
  EXPECT_THAT(refusal(with(std::string(126, '[') + std::string(126, ']')), 4), HasSubstr("deeper than 127 levels"));
  EXPECT_THAT(refusal(with(std::string(1'000'000, '[')), 4), HasSubstr("deeper than 127 levels"));
  EXPECT_THAT(refusal(with("1e999"), 4), HasSubstr("not valid JSON"));
}

TEST(SafetensorsHeader, NamesAPointerOfGitLfs) {
  EXPECT_THAT(refusal("version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 2200119864\n"),
              HasSubstr("is a Git LFS pointer, not the file itself. Install Git LFS, and run \"git lfs pull\" in"));
}

TEST(SafetensorsHeader, RefusesTensorsWhoseShapeAndBytesDisagree) {
  EXPECT_THAT(refusal(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4), HasSubstr("missing"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1]}})", 4), HasSubstr("missing"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}})", 4), HasSubstr("F33"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4]}})", 4), HasSubstr("two numbers"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4), HasSubstr("backwards"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4), HasSubstr("64 bits"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0),
              HasSubstr("overflows"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1), HasSubstr("12 bits"));
}

TEST(SafetensorsHeader, RefusesTensorsThatDoNotTileTheFile) {
  const std::string two_bytes = R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]})";
  EXPECT_THAT(refusal(two_bytes + "}", 1), HasSubstr("truncated"));
  EXPECT_THAT(refusal(two_bytes + "}", 3), HasSubstr("3 bytes of data"));
  EXPECT_THAT(refusal(two_bytes + R"(,"b":{"dtype":"U8","shape":[1],"data_offsets":[3,4]}})", 4), HasSubstr("hole"));
  EXPECT_THAT(refusal(two_bytes + R"(,"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3), HasSubstr("overlap"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2), HasSubstr("hole"));
  EXPECT_THAT(
      refusal(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[18446744073709551614,18446744073709551615]}})", 1),
      HasSubstr("hole"));
}

TEST(SafetensorsHeader, MessagesCarryNoControlCharacters) {
  EXPECT_THAT(refusal(R"({"a\u001b[31m":{"dtype":"?","shape":[],"data_offsets":[0,1]}})", 1), HasSubstr("a?[31m"));
}

}  // namespace
}  // namespace tessera
