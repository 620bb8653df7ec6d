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
  EXPECT_THAT(refusal(" {}", 0), HasSubstr("does not start with {"));
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
  EXPECT_THAT(refusal(R"({"a":{"color":"red"}})", 0), HasSubstr("\"color\""));
  EXPECT_THAT(refusal(R"({"__metadata__":{"step":1}})", 0), HasSubstr("the number 1"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4), HasSubstr("the number -1"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4), HasSubstr("1.0"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})", 4), HasSubstr("an array"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,4]}})", 4),
              HasSubstr("99999999999999999999"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,4]}})", 4), HasSubstr("the number 4"));
  EXPECT_THAT(refusal(std::string(1'000'000, '[').insert(0, "{\"a\":"), 0), HasSubstr("an array"));
}

TEST(SafetensorsHeader, RefusesDuplicateKeys) {
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                      R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                      2),
              HasSubstr("\"a\" twice"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1), HasSubstr("twice"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1]}})", 1), HasSubstr("twice"));
  EXPECT_THAT(refusal(R"({"__metadata__":{},"__metadata__":{}})", 0), HasSubstr("__metadata__ twice"));
  EXPECT_THAT(refusal(R"({"__metadata__":{"k":"1","k":"2"}})", 0), HasSubstr("\"k\" twice"));
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
