// Moves reduced gradients from a slot to the accumulators (gradients.h). If the ranks reduce in another type than the
// type that backward writes, a slot has a buffer for gradients in the type of the reduction: the wire.
//
// The table shows the work for each kind of sums. "Pieces" have at most piece_elems() elements.
//
//   Sums                first micro-batch of the step          later micro-batches
//   in_backward         after the last micro-batch: convert the wire back, if any
//   in_slot             nothing, or convert the wire           (steps have one micro-batch)
//   on_device           convert                                add
//   on_host             copy                                   the CPU adds pieces
//   on_host_converted   the CPU converts pieces                the CPU adds pieces
//   in_file             write pieces                           read, the CPU adds, write pieces
//   in_file_converted   the CPU converts, write pieces         read, the CPU adds, write pieces
//
// If there is a wire, its gradients are converted back into the slot before they leave the device.
#include "tessera/base/math.h"
#include "tessera/engine/gradients.h"

namespace tessera {

// A slot's gradients on their way to accumulators outside the device.
struct UnitGradients::Transfer {
  int64_t unit;
  View part;   // this rank's part of the slot
  bool adds;   // true: adds to the sums of earlier micro-batches; false: overwrites the previous step's sums
  bool plain;  // the accumulators get a copy of the slot: nothing to add or to convert
  int64_t piece_elems;
  size_t first_buffers;  // index in piece_buffers_ for piece 0

  int64_t num_pieces() const { return ceil_divide(part.num_elems(), piece_elems); }
  int64_t first(int64_t i) const { return i * piece_elems; }
  int64_t last(int64_t i) const { return std::min(first(i) + piece_elems, part.num_elems()); }
  int64_t size(int64_t i) const { return last(i) - first(i); }
};

void UnitGradients::move_to_accumulators(GradientSlot& slot) {
  const auto u = static_cast<size_t>(slot.unit);
  switch (sums_of(slot.unit)) {
    case Sums::in_backward:
      store_on_device(slot, own_part(slot));
      break;
    case Sums::in_slot:
    case Sums::on_device:
      if (begun_[u]) {
        add_on_device(slot, accumulators_.view(slot.unit));
      } else {
        store_on_device(slot, accumulators_.view(slot.unit));
      }
      break;
    case Sums::on_host:
    case Sums::on_host_converted:
    case Sums::in_file:
    case Sums::in_file_converted:
      move_off_device(slot);
      break;
  }
  begun_[u] = 1;
  slot.unit = -1;
}

// The gradients of the part of the slot's unit that this rank updates, in the buffer that backward writes.
View UnitGradients::own_part(const GradientSlot& slot) const {
  return part_of(in_backward(slot.unit) ? accumulators_.view(slot.unit) : in_slot(slot, slot.unit), range(slot.unit));
}

// The reduced gradients of the elements of own_part(): in the wire if there is one, otherwise own_part() itself.
View UnitGradients::reduced_part(const GradientSlot& slot) const {
  if (!wire_dtype_) return own_part(slot);
  return part_of(slot.wire.view({context_.trained_cut(slot.unit).padded_elems}, *wire_dtype_), range(slot.unit));
}

void UnitGradients::store_on_device(GradientSlot& slot, View to) {
  const View reduced = reduced_part(slot);
  if (reduced.data == to.data) {
    complete_[static_cast<size_t>(slot.unit)] = {slot.ready};
    slot.free = slot.ready;
    return;
  }
  context_.streams.compute->wait(slot.ready);
  context_.ops.convert(reduced, to);
  completed_on_device(slot);
}

void UnitGradients::add_on_device(GradientSlot& slot, View sums) {
  context_.streams.compute->wait(slot.ready);
  context_.ops.add(reduced_part(slot), sums);
  completed_on_device(slot);
}

void UnitGradients::completed_on_device(GradientSlot& slot) {
  slot.free = context_.streams.compute->record();
  complete_[static_cast<size_t>(slot.unit)] = {slot.free};
}

void UnitGradients::move_off_device(GradientSlot& slot) {
  const int64_t unit = slot.unit;
  const View part = own_part(slot);
  store_on_device(slot, part);  // if there is a wire, converts its gradients
  if (squares_of(unit) == Squares::by_device_before_leaving) {
    context_.streams.compute->wait(slot.ready);
    context_.ops.add_sum_of_squares(part_of(in_slot(slot, unit), context_.trained_cut(unit).own),
                                    squares().rows(unit, unit + 1));
  }
  const bool adds = begun_[static_cast<size_t>(unit)];
  const bool same_type = sums_of(unit) == Sums::on_host || sums_of(unit) == Sums::in_file;
  const Transfer transfer{.unit = unit,
                          .part = part,
                          .adds = adds,
                          .plain = !adds && same_type,
                          .piece_elems = context_.piece_elems(),
                          .first_buffers = next_buffers_};
  context_.streams.copy->wait(slot.free);
  if (transfer.plain && tier(unit) == Tier::host) {
    copy_to_host(transfer, slot);
  } else {
    move_in_pieces(transfer, slot);
  }
}

// The root has one event for each piece, and every other unit has one event. The root's gradients arrive last, but
// AdamW starts with the root. With one event per piece, AdamW can start with the first piece while the other pieces
// arrive.
void UnitGradients::copy_to_host(const Transfer& transfer, GradientSlot& slot) {
  Stream& copy = *context_.streams.copy;
  const auto u = static_cast<size_t>(transfer.unit);
  // Waits for the work of the previous step that uses these sums. With one micro-batch per step, this work only reads
  // the sums, and ends at read_until_. With several micro-batches, the host stream also adds gradients to the sums, so
  // the copy waits for all work of the host stream.
  copy.wait(one_micro_batch_ ? read_until_[u] : context_.streams.host->record());
  const int64_t num_elems = transfer.part.num_elems(), most = transfer.unit == 0 ? transfer.piece_elems : num_elems;
  complete_[u].clear();
  for (int64_t first = 0; first < num_elems; first += most) {
    const int64_t last = std::min(first + most, num_elems);
    copy.copy(transfer.part.rows(first, last), accumulators_.view(transfer.unit).rows(first, last));
    complete_[u].push_back(copy.record());
  }
  slot.free = complete_[u].back();
}

// Fetches each piece while the CPU works on the previous piece.
void UnitGradients::move_in_pieces(const Transfer& transfer, GradientSlot& slot) {
  Stream& copy = *context_.streams.copy;
  const bool in_file = tier(transfer.unit) == Tier::file;
  const int64_t num_pieces = transfer.num_pieces();
  if (num_pieces > 0) fetch_piece(transfer, 0, slot);
  for (int64_t i = 0; i < num_pieces; ++i) {
    if (i + 1 < num_pieces) fetch_piece(transfer, i + 1, slot);
    if (!transfer.plain) sum_piece(transfer, i);
    if (!in_file) continue;
    PieceBuffers& buffers = buffers_of(transfer, i);
    if (!transfer.plain) copy.wait(buffers.free);
    const View piece = transfer.plain ? incoming_piece(transfer, i) : summed_piece(transfer, i);
    accumulators_.save(transfer.unit, transfer.first(i), piece, copy);
    buffers.free = copy.record();
  }
  next_buffers_ = (transfer.first_buffers + static_cast<size_t>(num_pieces)) % std::size(piece_buffers_);
  complete_[static_cast<size_t>(transfer.unit)] = {in_file ? copy.record() : context_.streams.host->record()};
}

// Copies piece i from the slot to the host. If the sums are in a file and piece i is added to them, also reads the sums
// for piece i from the file.
void UnitGradients::fetch_piece(const Transfer& transfer, int64_t i, GradientSlot& slot) {
  Stream& copy = *context_.streams.copy;
  PieceBuffers& buffers = buffers_of(transfer, i);
  copy.wait(buffers.free);
  copy.copy(transfer.part.rows(transfer.first(i), transfer.last(i)), incoming_piece(transfer, i));
  slot.free = copy.record();
  if (tier(transfer.unit) == Tier::file && transfer.adds) {
    accumulators_.load(transfer.unit, transfer.first(i), summed_piece(transfer, i), copy);
  }
  buffers.ready = copy.record();
}

// The CPU adds piece i to the sums. In the step's first micro-batch, it overwrites the sums with piece i.
void UnitGradients::sum_piece(const Transfer& transfer, int64_t i) {
  Stream& host = *context_.streams.host;
  PieceBuffers& buffers = buffers_of(transfer, i);
  host.wait(buffers.ready);
  host.run([&ops = *context_.host_ops, incoming = incoming_piece(transfer, i), sums = summed_piece(transfer, i),
            adds = transfer.adds] {
    if (adds) {
      ops.add(incoming, sums);
    } else {
      ops.convert(incoming, sums);
    }
  });
  buffers.free = host.record();
}

UnitGradients::PieceBuffers& UnitGradients::buffers_of(const Transfer& transfer, int64_t i) {
  return piece_buffers_[(transfer.first_buffers + static_cast<size_t>(i)) % std::size(piece_buffers_)];
}

View UnitGradients::incoming_piece(const Transfer& transfer, int64_t i) {
  return buffers_of(transfer, i).incoming.view({transfer.size(i)}, transfer.part.dtype);
}

// The place in host memory for the sums of piece i: in the accumulators or, if these are in a file, in the piece's
// buffer.
View UnitGradients::summed_piece(const Transfer& transfer, int64_t i) {
  if (tier(transfer.unit) == Tier::file) return buffers_of(transfer, i).stored.view({transfer.size(i)}, dtype());
  return accumulators_.view(transfer.unit).rows(transfer.first(i), transfer.last(i));
}

}  // namespace tessera
