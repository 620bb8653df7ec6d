#include "tessera/store/engine_checkpoint.h"

#include <algorithm>
#include <vector>

#include "tessera/base/math.h"
#include "tessera/base/quantized_moments.h"

namespace tessera {

namespace {

// Elements of a type as the checkpoint holds them: packed elements are bytes.
int64_t stored_elems(int64_t elems, DType dtype) {
  return is_packed(dtype) ? bytes_of(elems, dtype) : elems;
}
DType stored_dtype(DType dtype) {
  return is_packed(dtype) ? DType::u8 : dtype;
}
View stored_view(View values) {
  return {values.data, stored_dtype(values.dtype), {stored_elems(values.num_elems(), values.dtype)}};
}
ArrayRange stored_range(std::string name, int64_t num_elems, ElemRange range, DType dtype) {
  return {std::move(name), stored_elems(num_elems, dtype), stored_elems(range.begin, dtype),
          stored_elems(range.end, dtype)};
}

}  // namespace

std::string array_name(StateKind kind, const Unit& unit) {
  constexpr const char* names[] = {"parameters/", "optimizer.m/", "optimizer.v/", "frozen/", "quantized/"};
  return names[static_cast<size_t>(kind)] + unit.name();
}

FrozenFiles frozen_files_of(const Checkpoint& checkpoint, const UnitStates& states) {
  FrozenFiles frozen;
  if (checkpoint.reference()) frozen.files = *checkpoint.reference();
  for (const ManifestArray& array : checkpoint.arrays()) {
    const bool same_type = array.dtype == states.dtype(StateKind::frozen) || is_packed(array.dtype);
    if (array.is_referenced && same_type) frozen.arrays.insert(array.name);
  }
  return frozen;
}

void declare_checkpoint(CheckpointPart& part, const UnitStates& states, const FrozenFiles& frozen) {
  const Model& model = states.model();
  for (int64_t u = 0; u < model.num_units(); ++u) {
    const Unit& unit = model.unit(u);
    for (const StateKind kind : kStateKinds) {
      const std::string name = array_name(kind, unit);
      const DType dtype = states.dtype(kind);
      const int64_t num_elems = states.num_elems(kind, u);
      const ElemRange range = states.saved_range(kind, u);
      if (frozen.arrays.contains(name)) {
        part.refer(name, num_elems, dtype, frozen.files);
      } else if (range.size() > 0) {
        part.declare(stored_range(name, num_elems, range, dtype), stored_dtype(dtype));
      }
    }
  }
}

void write_checkpoint_arrays(CheckpointPart& part, UnitStates states, const FrozenFiles& frozen) {
  declare_checkpoint(part, states, frozen);
  const auto name = [&](StateKind kind, int64_t unit) { return array_name(kind, states.model().unit(unit)); };
  states.save(
      [&](StateKind kind, int64_t unit, ElemRange, View from) { part.write(name(kind, unit), stored_view(from)); },
      [&](StateKind kind, int64_t unit) { return !frozen.arrays.contains(name(kind, unit)); });
}

CheckpointReader::CheckpointReader(const Checkpoint& checkpoint, const Model& model, Communicator& world,
                                   ThreadPool& pool)
    : checkpoint_(checkpoint), model_(model), pool_(pool), quantizer_(pool) {
  if (!checkpoint.reference()) return;
  checkpoint.check_reference(world, &pool);
  files_.emplace(checkpoint.reference()->folder);
  packed_.emplace(*files_);
}

void CheckpointReader::read(StateKind kind, int64_t unit, ElemRange range, View to) const {
  const Unit& of = model_.unit(unit);
  const std::string name = array_name(kind, of);
  const ManifestArray& array = checkpoint_.array(name);
  if (array.is_referenced) return read_referenced(kind, unit, range, to, array.dtype);
  const ArrayRange values{name, of.table().num_elems(section_of(kind)), range.begin, range.end};
  const bool is_moment = kind == StateKind::moment1 || kind == StateKind::moment2;
  if (kind == StateKind::quantized) {
    TESSERA_ASSERT(to.dtype == DType::nf4);
    return checkpoint_.read_range(stored_range(name, values.total_elems, range, to.dtype), stored_view(to), &pool_);
  }
  if (is_moment_block(to.dtype) || (is_moment && array.dtype == DType::u8)) return read_quantized(kind, values, to);
  checkpoint_.read_range(values, to, &pool_);
}

// Reads moments into quantized blocks, or reads moments that the checkpoint holds as quantized blocks. range.begin and
// range.end count elements of `to`. range.total_elems is the number of values.
void CheckpointReader::read_quantized(StateKind kind, const ArrayRange& range, View to) const {
  const bool from_blocks = checkpoint_.array(range.name).dtype == DType::u8, to_blocks = is_moment_block(to.dtype);
  const DType blocks = kind == StateKind::moment1 ? DType::q8_signed : DType::q8_unsigned;
  const int64_t num_values = range.total_elems, num_blocks = ceil_divide(num_values, kQuantizedValues);
  if (from_blocks && to_blocks) {
    const ElemRange wanted{range.begin, range.end};
    return checkpoint_.read_range(stored_range(range.name, num_blocks, wanted, to.dtype), stored_view(to), &pool_);
  }
  // Converts a few blocks at a time. [begin, end) are their values.
  constexpr int64_t kChunkBlocks = 4096;
  std::vector<float> values;
  std::vector<std::byte> bytes;
  const int64_t values_per_elem = values_of(to.dtype), first = range.begin * values_per_elem;
  const int64_t last = std::min(range.end * values_per_elem, num_values);
  for (int64_t begin = first, end = 0; begin < last; begin = end) {
    const int64_t block = begin / kQuantizedValues;
    end = std::min((block + kChunkBlocks) * kQuantizedValues, last);
    values.resize(static_cast<size_t>(end - begin));
    if (to_blocks) {
      checkpoint_.read_range({range.name, num_values, begin, end}, view_of(values.data(), {end - begin}), &pool_);
      quantize(values.data(), end - begin, blocks, to.data + bytes_of(block - range.begin, blocks));
      continue;
    }
    const ElemRange covered{block, ceil_divide(end, kQuantizedValues)};
    bytes.resize(static_cast<size_t>(bytes_of(covered.size(), blocks)));
    const View stored = view_of(reinterpret_cast<uint8_t*>(bytes.data()), {std::ssize(bytes)});
    checkpoint_.read_range(stored_range(range.name, num_blocks, covered, blocks), stored, &pool_);
    dequantize(bytes.data(), blocks, begin - block * kQuantizedValues, end - begin, values.data());
    convert(values.data(), DType::f32, to.data + bytes_of(begin - first, to.dtype), to.dtype, values.size());
  }
}

// The run used the tensors of the files in the type `format`. Rounds them to this type, so that the result has the bits
// of the run.
void CheckpointReader::read_referenced(StateKind kind, int64_t unit, ElemRange range, View to, DType format) const {
  std::fill_n(to.data, to.bytes(), std::byte{0});  // the gaps between tensors
  const ParameterTable& table = model_.unit(unit).table();
  const auto read = [&](const ParameterSpec& spec, int64_t first, int64_t last) {
    const View part = to.rows(spec.offset + first - range.begin, spec.offset + last - range.begin);
    if (spec.quantized()) return read_groups(spec, first, last, reinterpret_cast<Nf4Group*>(part.data));
    if (to.dtype == format) return files_->read_range_into(spec.name, first, last, part, &pool_);
    constexpr int64_t kChunkElems = 1 << 20;
    std::vector<std::byte> rounded(static_cast<size_t>(std::min(kChunkElems, last - first)) * size_of(format));
    for (int64_t at = first; at < last; at += kChunkElems) {
      const int64_t count = std::min(kChunkElems, last - at);
      files_->read_range_into(spec.name, at, at + count, {rounded.data(), format, {count}}, &pool_);
      const View chunk = part.rows(at - first, at - first + count);
      convert(rounded.data(), format, chunk.data, chunk.dtype, static_cast<size_t>(count));
    }
  };
  table.for_each_tensor(section_of(kind), range.begin, range.end, read);
}

void CheckpointReader::read_groups(const ParameterSpec& spec, int64_t first, int64_t last, Nf4Group* groups) const {
  if (PackedTensors::has(*files_, spec.name)) return packed_->read_groups(spec.name, spec.shape, first, last, groups);
  const auto read = [&](int64_t begin, int64_t end, float* values) {
    files_->read_range_into(spec.name, begin, end, view_of(values, {end - begin}), &pool_);
  };
  quantizer_.quantize(spec.name, spec.shape.num_elems(), first, last, read, groups);
}

void CheckpointReader::read_weights(const ParameterSpec& spec, int64_t unit, int64_t begin, int64_t end,
                                    View to) const {
  const std::string name = array_name(StateKind::quantized, model_.unit(unit));
  if (checkpoint_.array(name).is_referenced && !PackedTensors::has(*files_, spec.name)) {
    return files_->read_range_into(spec.name, begin, end, to, &pool_);
  }
  read_dequantized(spec, unit, begin, end, to);
}

void CheckpointReader::read_dequantized(const ParameterSpec& spec, int64_t unit, int64_t begin, int64_t end,
                                        View to) const {
  const auto read_some = [&](int64_t first, int64_t last, Nf4Group* groups) {
    read(StateKind::quantized, unit, {spec.offset + first, spec.offset + last},
         {reinterpret_cast<std::byte*>(groups), DType::nf4, {last - first}});
  };
  read_nf4(begin, end, read_some, to);
}

void restore_checkpoint(const Checkpoint& checkpoint, UnitStates states, Communicator& world, ThreadPool& pool) {
  const CheckpointReader reader(checkpoint, states.model(), world, pool);
  states.load([&](StateKind kind, int64_t unit, ElemRange range, View to) { reader.read(kind, unit, range, to); });
}

void restore_trained_parameters(const Checkpoint& checkpoint, UnitStates states, ThreadPool& pool) {
  const auto read = [&](StateKind kind, int64_t unit, ElemRange range, View to) {
    const Unit& of = states.model().unit(unit);
    checkpoint.read_range({array_name(kind, of), of.table().num_elems(section_of(kind)), range.begin, range.end}, to,
                          &pool);
  };
  states.load(read, [](StateKind kind, int64_t) { return kind == StateKind::parameters; });
}

}  // namespace tessera
