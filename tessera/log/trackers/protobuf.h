// The wire format of Protocol Buffers: messages are built as strings of bytes and read field by field.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

// Appends the lowest `bytes` bytes of `value`, with the lowest byte first.
void append_little_endian(std::string& text, uint64_t value, int bytes);
// Reads an integer of at most 8 bytes, with the lowest byte first.
uint64_t little_endian(std::string_view bytes);

class ProtoMessage {
 public:
  // Adds a field. A negative integer takes ten bytes, as in int32 and int64 fields.
  ProtoMessage& integer(int field, int64_t value);
  ProtoMessage& real64(int field, double value);
  ProtoMessage& real32(int field, float value);
  ProtoMessage& text(int field, std::string_view value);
  ProtoMessage& message(int field, const ProtoMessage& value) { return text(field, value.bytes()); }
  const std::string& bytes() const { return bytes_; }

 private:
  void varint(uint64_t value);
  std::string bytes_;
};

struct ProtoField {
  int number = 0;
  int wire_type = 0;       // 0: integer, 1: 64 bits, 2: bytes, 5: 32 bits
  uint64_t value = 0;      // types 0, 1 and 5: the bits
  std::string_view bytes;  // type 2
};

class ProtoReader {
 public:
  explicit ProtoReader(std::string_view message) : rest_(message) {}
  // Returns the next field, or nothing at the end. Also returns nothing if the next bytes are not a valid field;
  // is_damaged() is then true.
  std::optional<ProtoField> next();
  bool is_damaged() const { return is_damaged_; }

 private:
  std::optional<uint64_t> varint();
  std::string_view rest_;
  bool is_damaged_ = false;
};

// Returns the first field of the message with this number, or nothing.
std::optional<ProtoField> find_field(std::string_view message, int number);

}  // namespace tessera
