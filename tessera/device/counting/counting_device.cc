#include "tessera/device/counting/counting_device.h"

#include "tessera/device/cuda/cuda_device.h"

namespace tessera {
namespace {

// An event of a counting device with a timeline.
class CountedEvent final : public Event::State {
 public:
  CountedEvent(Timeline& timeline, std::shared_ptr<Moment> moment) : timeline_(timeline), moment_(std::move(moment)) {}
  bool reached() override { return moment_->known && moment_->time <= timeline_.now(); }
  void synchronize() override { timeline_.wait_for(*moment_); }
  const std::shared_ptr<Moment>& moment() const { return moment_; }

 private:
  Timeline& timeline_;
  const std::shared_ptr<Moment> moment_;
};

class CountingDevice;

// Without a timeline, a stream does nothing. With one, it queues its work for the simulation.
class CountingStream final : public Stream {
 public:
  // `blocks`: the stream's work runs in the calling thread, as on the compute stream of a CPU.
  CountingStream(CountingDevice& device, bool blocks);
  ~CountingStream() override;

  Event record() override;
  void wait(const Event& event) override;
  void run(std::function<void()> work) override;
  void transfer_file(bool reads, int64_t bytes, std::function<void()> work) override;
  void copy(View from, View to) override;
  double clock() const override { return timeline_ ? timeline_->clock_of(queue_) : 0; }
  // Work of this stream, or of the host code that runs on it now.
  void spend(Busy what, double seconds, bool exclusive);

 private:
  void add(WorkQueue::Item item);

  Timeline* const timeline_;
  const bool blocks_;
  WorkQueue queue_;
  bool runs_code_ = false;
};

// Distinct from every address of host memory.
constexpr uintptr_t kFirstGpuAddress = uintptr_t{1} << 60;

bool on_gpu(View view) {
  return reinterpret_cast<uintptr_t>(view.data) >= kFirstGpuAddress;
}

class CountingDevice final : public Device {
 public:
  explicit CountingDevice(CountedDevice counted)
      : counted_(counted),
        compute_(*this, counted.kind == DeviceKind::cpu),
        next_(counted.kind == DeviceKind::cuda ? kFirstGpuAddress : uintptr_t{1} << 20) {  // not 0: no address is null
    if (counted.kind == DeviceKind::cuda) ledger().add(Category::context, kCudaContextBytes);
  }
  DeviceKind kind() const override { return DeviceKind::counting; }
  void copy_to_host(View from, void*) override {
    if (!counted_.timeline) return;
    compute_.copy(from, {reinterpret_cast<std::byte*>(1), from.dtype, from.shape});
    compute_.synchronize();
  }
  void copy_from_host(const void*, View) override {}
  bool host_visible() const override { return counted_.kind == DeviceKind::cpu; }
  Stream& compute_stream() override { return compute_; }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<CountingStream>(*this, false); }
  const CountedDevice& counted() const { return counted_; }

  // The work of kernels that the code of a stream calls is this stream's, whichever device the kernels are for.
  CountingStream& current_stream() {
    Stream* const running = counted_.timeline->running();
    return running ? static_cast<CountingStream&>(*running) : compute_;
  }

 private:
  std::byte* take(int64_t bytes) override {
    const uintptr_t address = next_;
    next_ += static_cast<uintptr_t>((bytes + kAlignment) / kAlignment * kAlignment);
    return reinterpret_cast<std::byte*>(address);
  }
  void give_back(std::byte*, int64_t) override {}
  void clear(std::byte*, int64_t) override {}

  const CountedDevice counted_;
  CountingStream compute_;
  uintptr_t next_;
};

CountingStream::CountingStream(CountingDevice& device, bool blocks)
    : timeline_(device.counted().timeline), blocks_(blocks) {
  if (timeline_) timeline_->add(queue_);
}

CountingStream::~CountingStream() {
  if (timeline_) timeline_->remove(queue_);
}

void CountingStream::add(WorkQueue::Item item) {
  item.issued = timeline_->now();
  queue_.add(std::move(item));
  if (blocks_) timeline_->wait_for(queue_);
}

Event CountingStream::record() {
  if (!timeline_) return {};
  auto moment = std::make_shared<Moment>();
  queue_.add({.kind = WorkQueue::Item::Kind::record, .moment = moment});
  return Event(std::make_shared<CountedEvent>(*timeline_, std::move(moment)));
}

void CountingStream::wait(const Event& event) {
  const auto* counted = dynamic_cast<const CountedEvent*>(event.state());
  if (counted) add({.kind = WorkQueue::Item::Kind::wait, .moment = counted->moment()});
}

void CountingStream::run(std::function<void()> work) {
  if (!timeline_) return;
  add({.kind = WorkQueue::Item::Kind::code, .code = [this, code = std::move(work)] {
         timeline_->set_running(this);
         runs_code_ = true;
         code();
         runs_code_ = false;
         timeline_->set_running(nullptr);
       }});
}

void CountingStream::spend(Busy what, double seconds, bool exclusive) {
  if (runs_code_) {
    timeline_->run(queue_, what, seconds, exclusive);
  } else {
    add({.kind = WorkQueue::Item::Kind::work, .what = what, .seconds = seconds, .exclusive = exclusive});
  }
}

void CountingStream::transfer_file(bool reads, int64_t bytes, std::function<void()>) {
  if (!timeline_) return;
  const Machine& machine = timeline_->machine();
  const double rate = reads ? machine.file_read_bytes_per_s : machine.file_write_bytes_per_s;
  spend(Busy::file, static_cast<double>(bytes) / rate, true);
}

void CountingStream::copy(View from, View to) {
  if (!timeline_) return;
  const Machine& machine = timeline_->machine();
  const auto bytes = static_cast<double>(from.bytes());
  if (on_gpu(from) && on_gpu(to)) return spend(Busy::memory, memory_time(machine, 2 * bytes), false);
  if (on_gpu(from)) return spend(Busy::to_host, machine.copy_s + bytes / machine.to_host_bytes_per_s, true);
  if (on_gpu(to)) return spend(Busy::to_device, machine.copy_s + bytes / machine.to_device_bytes_per_s, true);
  spend(Busy::host, 2 * bytes / machine.host_bytes_per_s, true);
}

}  // namespace

std::unique_ptr<Device> make_counting_device(CountedDevice counted) {
  return std::make_unique<CountingDevice>(counted);
}

const CountedDevice& counted_by(Device& device) {
  TESSERA_ASSERT(device.kind() == DeviceKind::counting);
  return static_cast<CountingDevice&>(device).counted();
}

DeviceKind kind_of_work(Device& device) {
  return device.kind() == DeviceKind::counting ? counted_by(device).kind : device.kind();
}

Timeline* timeline_of(Device& device) {
  return device.kind() == DeviceKind::counting ? counted_by(device).timeline : nullptr;
}

void spend_on_kernel(Device& device, const char* name, Busy what, double seconds) {
  auto& counting = static_cast<CountingDevice&>(device);
  const bool gpu = counting.counted().kind == DeviceKind::cuda;
  if (gpu) {
    counting.counted().timeline->launch();
    counting.counted().timeline->add_kernel(name, seconds);
  }
  // The cores of a CPU do one piece of work at a time, whichever stream it is on.
  counting.current_stream().spend(gpu ? what : Busy::host, seconds, !gpu);
}

void spend_on_network(Stream& stream, double seconds) {
  static_cast<CountingStream&>(stream).spend(Busy::network, seconds, true);
}

}  // namespace tessera
